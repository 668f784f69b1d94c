#include "harness/diagnose/diagnose.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <set>
#include <string>

#include "harness/run/kernel_table.h"

namespace samestate {
namespace {

using Set = std::vector<const Deviation*>;

std::string text_of(const Set& of) {
  std::string text;
  for (const Deviation* d : of) text += (text.empty() ? "" : " + ") + std::string(d->name);
  return text.empty() ? "canonical" : text;
}

std::vector<Set> hypotheses_of(const Family& family, bool pairs) {
  const Set all = deviations_of(family);
  std::vector<Set> out{{}};
  for (const Deviation* d : all) out.push_back({d});
  for (std::size_t i = 0; pairs && i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (all[i]->aspect != all[j]->aspect) out.push_back({all[i], all[j]});
    }
  }
  return out;
}

std::vector<Returned> returned(const Family& family, const std::vector<DiagnosticCall>& calls,
                               const Set& of) {
  Reading reading;
  for (const Deviation* d : of) d->apply(reading);
  std::vector<Returned> out;
  for (const DiagnosticCall& call : calls) out.push_back(evaluate(call.batch, family, reading));
  return out;
}

/// As a kernel that rounds its outputs to bf16.
std::vector<Returned> rounded(std::vector<Returned> all) {
  std::mt19937_64 bits(3);
  std::uniform_real_distribution<double> error(-0x1p-9, 0x1p-9);
  for (Returned& one : all) {
    for (std::vector<double>* x : {&one.o, &one.final_state}) {
      for (double& value : *x) value *= 1.0 + error(bits);
    }
  }
  return all;
}

class Diagnosis : public ::testing::TestWithParam<std::string> {};

TEST_P(Diagnosis, TheCanonicalReadingIsTheReference) {
  const Family& family = family_named(GetParam());
  for (const DiagnosticCall& call : diagnostic_calls(family)) {
    const Returned mine = evaluate(call.batch, family, {});
    const BatchShape& s = call.batch.shape;
    Outputs outputs{{mine.o.begin(), mine.o.end()}, {mine.final_state.begin(), mine.final_state.end()}};
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        const Trajectory<double> exact = family.recurrent(sequence_of(call.batch, n, h));
        EXPECT_LT((rows_of(call.batch, outputs, n, h) - exact.o).norm(), 1e-5) << call.what;
        EXPECT_LT((state_of(call.batch, outputs, n, h) - exact.state).norm(), 1e-5) << call.what;
      }
    }
  }
}

TEST_P(Diagnosis, SinglesLieSixteenRoundingsApartOrAreListed) {
  const Family& family = family_named(GetParam());
  const std::vector<DiagnosticCall> calls = diagnostic_calls(family);
  const std::vector<Set> all = hypotheses_of(family, false);
  std::set<std::string> alike;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (std::size_t j = i + 1; j < all.size(); ++j) {
      if (distance(returned(family, calls, all[i]), returned(family, calls, all[j])) < kFits)
        alike.insert(text_of(all[i]) + " = " + text_of(all[j]));
    }
  }
  EXPECT_EQ(alike, std::set<std::string>{}) << ::testing::PrintToString(alike);
}

TEST_P(Diagnosis, EachPairIsDecodedUnderTheRoundingOfOutputs) {
  const Family& family = family_named(GetParam());
  const std::vector<DiagnosticCall> calls = diagnostic_calls(family);
  const std::vector<Set> all = hypotheses_of(family, true);
  std::vector<std::vector<Returned>> values;
  for (const Set& of : all) values.push_back(returned(family, calls, of));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::vector<Returned> seen = rounded(values[i]);
    std::size_t best = i;
    double least = distance(values[i], seen);
    for (std::size_t j = 0; j < all.size(); ++j) {
      const double d = distance(values[j], seen);
      if (d < least) least = d, best = j;
    }
    // Two that compute the same are one.
    if (best == i || distance(values[best], values[i]) < 1e-6) continue;
    ++wrong;
    ADD_FAILURE() << text_of(all[i]) << " is taken for " << text_of(all[best]);
  }
  EXPECT_EQ(wrong, 0U) << "of " << all.size();
}

// With more than two conventions, the result is the nearest set with that many, or a set that computes the
// same.
TEST_P(Diagnosis, SetsOfConventionsAreDecoded) {
  const Family& family = family_named(GetParam());
  const std::vector<DiagnosticCall> calls = diagnostic_calls(family);
  const Set all = deviations_of(family);
  std::mt19937_64 bits(4);
  for (std::size_t count = 3; count <= kMostConventions; ++count) {
    const std::vector<Set> sets = conventions_by(all, count);
    constexpr std::size_t kTried = 12;
    for (std::size_t i = 0; i < std::min(kTried, sets.size()); ++i) {
      const Set& meant = sets[bits() % sets.size()];
      const std::vector<Returned> values = returned(family, calls, meant);
      std::vector<ProbeRun> runs(calls.size());
      const std::vector<Returned> seen = rounded(values);
      for (std::size_t call = 0; call < calls.size(); ++call) {
        runs[call].outputs.o.assign(seen[call].o.begin(), seen[call].o.end());
        runs[call].outputs.final_state.assign(seen[call].final_state.begin(), seen[call].final_state.end());
      }
      const samestate::Diagnosis found = diagnose(family, calls, runs);
      ASSERT_FALSE(found.fits.empty()) << text_of(meant);
      for (const FoundReading& fit : found.fits) {
        EXPECT_LT(distance(returned(family, calls, fit.deviations), values), 1e-6)
            << text_of(meant) << " is taken for " << text_of(fit.deviations);
        EXPECT_EQ(fit.limit, kNoLimit) << text_of(meant);
      }
    }
  }
}

// The declared norm is what is expected, and the usual norm is a deviation from it.
TEST_P(Diagnosis, ANormIsFoundUnderAnyDeclaredOne) {
  const Family& family = family_named(GetParam());
  using enum Given::NormPlace;
  const auto given_as = [](Given::NormPlace place, double epsilon) {
    Given given;
    given.norm = place, given.norm_epsilon = epsilon;
    return given;
  };
  const std::vector<Given> norms = {
      {}, given_as(inside, 1e-5), given_as(outside, 1e-6), given_as(maximum, 1e-12)};
  const std::vector<DiagnosticCall> calls = diagnostic_calls(family);
  for (const Given& own : norms) {
    std::vector<ProbeRun> runs;
    for (DiagnosticCall call : calls) {
      call.batch.shape.given = own;
      const Returned values = evaluate(call.batch, family, {});
      ProbeRun& run = runs.emplace_back();
      run.outputs.o.assign(values.o.begin(), values.o.end());
      run.outputs.final_state.assign(values.final_state.begin(), values.final_state.end());
    }
    for (const Given& declared : norms) {
      std::vector<DiagnosticCall> of = calls;
      for (DiagnosticCall& call : of) call.batch.shape.given = declared;
      const samestate::Diagnosis found = diagnose(family, of, runs);
      ASSERT_EQ(found.fits.size(), 1U) << own.norm_epsilon << " " << declared.norm_epsilon;
      const Set& deviations = found.fits.front().deviations;
      ASSERT_EQ(deviations.size(), own == declared ? 0U : 1U);
      if (own != declared) {
        EXPECT_EQ(deviations.front()->aspect, "l2norm");
        EXPECT_NE(deviations.front()->declare, "");
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Family, Diagnosis,
                         ::testing::Values("gated_delta_rule", "delta_rule", "retention", "linear_attention"),
                         [](const auto& of) { return of.param; });

// A limit is fitted, alone and together with other readings; none is fitted to roundings or to values that
// are too small for fp16.
TEST(Diagnose, ALimitOfExponentsIsFound) {
  const Family& family = family_named("gated_delta_rule");
  const std::vector<DiagnosticCall> calls = diagnostic_calls(family);
  const Set all = deviations_of(family);
  const auto named = [&](std::string_view name) {
    return *std::ranges::find_if(all, [&](const Deviation* d) { return d->name == name; });
  };
  const std::vector<Set> sets = {
      {}, {named("states are [dv, dk], in and out"), named("beta is a logit (sigmoid inside)")}};
  for (const Set& meant : sets) {
    for (const double limit : {-2.0, -5.0, -20.0, -50.0, kNoLimit}) {
      Reading reading;
      for (const Deviation* d : meant) d->apply(reading);
      reading.least = limit;
      std::vector<ProbeRun> runs;
      std::vector<Returned> values;
      for (const DiagnosticCall& call : calls) values.push_back(evaluate(call.batch, family, reading));
      for (const Returned& x : rounded(values)) {
        ProbeRun& run = runs.emplace_back();
        run.outputs.o.assign(x.o.begin(), x.o.end());
        run.outputs.final_state.assign(x.final_state.begin(), x.final_state.end());
        for (std::vector<float>* out : {&run.outputs.o, &run.outputs.final_state}) {
          for (float& value : *out) value = std::abs(value) < 0x1p-24F && limit == kNoLimit ? 0.0F : value;
        }
      }
      const samestate::Diagnosis found = diagnose(family, calls, runs);
      ASSERT_EQ(found.fits.size(), 1U) << limit;
      EXPECT_EQ(text_of(found.fits.front().deviations), text_of(meant)) << limit;
      EXPECT_LT(found.strong_distance, kFits) << limit;
      if (limit == kNoLimit) {
        EXPECT_EQ(found.fits.front().limit, kNoLimit);
      } else {
        EXPECT_NEAR(found.fits.front().limit, limit, 0.02) << limit;
      }
    }
  }
}

KernelTable with_limits(const std::vector<std::string>& limits) {
  Kernel row = KernelTable(kernels()).named("cpu.gated_delta_rule.chunked");
  row.name = "mine.gated_delta_rule.chunked", row.limits = limits, row.contracts = {"fp32", "bf16", "fp16"};
  KernelTable table(kernels());
  table.add(std::vector<Kernel>{row});
  return table;
}

// The calls of a kernel that takes few sizes have these, declared or found by probing, and tell readings apart all the same.
TEST(Diagnose, CallsLieInsideTheLimits) {
  const Family& family = family_named("gated_delta_rule");
  const std::vector<std::string> limits = {"dk = 128", "dv = 128", "T % 16 = 0", "Hk = Hv",
                                           "contract in bf16 fp16"};
  for (const bool declared : {true, false}) {
    const KernelTable table = with_limits(declared ? limits : std::vector<std::string>{});
    const KernelRow& row = table.row_named("mine.gated_delta_rule.chunked");
    const DeclaredLimits further(declared ? std::vector<std::string>{} : limits, *row.system);
    const std::vector<DiagnosticCall> calls = diagnostic_calls(family, row, further);
    ASSERT_EQ(calls.size(), 4U) << "strong decays are of one token";
    for (const DiagnosticCall& call : calls) {
      const BatchShape& s = call.batch.shape;
      EXPECT_EQ(s.dk, 128) << call.what;
      EXPECT_EQ(s.dv, 128) << call.what;
      EXPECT_EQ(s.T % 16, 0) << call.what;
      EXPECT_EQ(s.Hk, s.Hv) << call.what;
      EXPECT_EQ(call.contract, "bf16");
      EXPECT_FALSE(call.outside) << call.what;
    }
    std::vector<ProbeRun> runs;
    for (const DiagnosticCall& call : calls) runs.push_back(run_diagnostic(row, call, further));
    const samestate::Diagnosis right = diagnose(family, calls, runs);
    ASSERT_EQ(right.fits.size(), 1U);
    EXPECT_TRUE(right.fits.front().deviations.empty()) << text_of(right.fits.front().deviations);
    // Maps of heads are one where there are as many of each, and axes are told apart where tokens are not as many as heads.
    for (const Deviation* planted : declared ? deviations_of(family) : Set{}) {
      const std::vector<Returned> values = returned(family, calls, {planted});
      if (distance(values, returned(family, calls, {})) < 1e-6) continue;
      std::vector<ProbeRun> seen;
      for (const Returned& x : rounded(values)) {
        ProbeRun& run = seen.emplace_back();
        run.outputs.o.assign(x.o.begin(), x.o.end());
        run.outputs.final_state.assign(x.final_state.begin(), x.final_state.end());
      }
      const samestate::Diagnosis found = diagnose(family, calls, seen);
      EXPECT_FALSE(found.fits.empty())
          << planted->name << " " << found.nearest.distance << text_of(found.nearest.deviations);
      if (found.fits.empty()) continue;
      EXPECT_LT(distance(returned(family, calls, found.fits.front().deviations), values), 1e-6)
          << planted->name << " is taken for " << text_of(found.fits.front().deviations);
    }
  }
}

// A scale, a norm or a map that the limits exclude keeps its call, which says nothing of other sizes if it is refused.
TEST(Diagnose, ACallWhoseSettingTheLimitsExcludeIsOutside) {
  const Family& family = family_named("gated_delta_rule");
  const KernelTable table = with_limits({"l2norm = 0", "dk = 64"});
  for (const DiagnosticCall& call :
       diagnostic_calls(family, table.row_named("mine.gated_delta_rule.chunked"))) {
    EXPECT_EQ(call.outside, call.what == "normalised") << call.what;
    EXPECT_EQ(call.batch.shape.l2norm, call.what == "normalised");
    EXPECT_EQ(call.batch.shape.dk, 64);
  }
}

TEST(Diagnose, ARefusalAndWhatAnotherProcessThrowsAreReasons) {
  const KernelTable plain(kernels());
  KernelRow row = plain.row_named("cpu.gated_delta_rule.chunked");
  const DiagnosticCall call = diagnostic_calls(family_named("gated_delta_rule")).front();
  for (const bool refusal : {true, false}) {
    row.run = [refusal](const KernelCall&, const Contract&) -> Outcome {
      throw ThrewElsewhere("'ValueError: dk must be 128'", refusal);
    };
    const ProbeRun run = run_diagnostic(row, call);
    EXPECT_EQ(run.refused, "the kernel threw: 'ValueError: dk must be 128'");
    EXPECT_EQ(run.refusal, refusal);
  }
  row.run = [](const KernelCall&, const Contract&) { return Outcome{Outcome::Kind::unsupported, "dk"}; };
  EXPECT_TRUE(run_diagnostic(row, call).refusal);
  row.run = [](const KernelCall&, const Contract&) { return Outcome{Outcome::Kind::no_device, "none"}; };
  EXPECT_FALSE(run_diagnostic(row, call).refusal);
}

TEST(Diagnose, OurKernelsAreAsDeclared) {
  const KernelTable table(kernels());
  for (const char* name : {"cpu.gated_delta_rule.chunked", "cpu.delta_rule.recurrent",
                           "cpu.retention.chunked", "cpu.linear_attention.recurrent"}) {
    const KernelRow& row = table.row_named(name);
    const Family& family = family_named(row.system->name);
    const std::vector<DiagnosticCall> calls = diagnostic_calls(family);
    std::vector<ProbeRun> runs;
    for (const DiagnosticCall& call : calls) runs.push_back(run_diagnostic(row, call));
    const samestate::Diagnosis found = diagnose(family, calls, runs);
    ASSERT_EQ(found.fits.size(), 1U) << name;
    EXPECT_TRUE(found.fits.front().deviations.empty()) << name << text_of(found.fits.front().deviations);
    EXPECT_EQ(found.fits.front().limit, kNoLimit) << name;
    EXPECT_LT(found.strong_distance, kFits) << name;
  }
}

}  // namespace
}  // namespace samestate
