#include "fuzz/plan/covering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "fuzz/plan/combinations.h"
#include "fuzz/plan/draw.h"
#include "fuzz/plan/never_judged.h"
#include "fuzz/plan/plan.h"
#include "fuzz/plan/plan_coverage.h"
#include "fuzz/plan/uses.h"
#include "harness/cases/case_line.h"
#include "harness/cases/counter.h"
#include "harness/cases/layout.h"
#include "optimized/operator_kernel.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

const KernelRow& row(std::string_view name) {
  return *std::find_if(table().all().begin(), table().all().end(),
                       [&](const KernelRow& kernel) { return kernel.name == name; });
}

std::vector<Case> cases_of(std::string_view name) {
  PlanOptions options;
  options.kernel = name;
  return plan_cases(table(), options);
}

TEST(Combinations, GainsAreWhatAddingFinds) {
  const std::vector<Factor> factors = factors_of(row("cpu.rms_norm.fused"));
  const KernelRow& kernel = row("cpu.rms_norm.fused");
  const Counter counter(5, "gains");
  std::int64_t draw = 0;
  const Dice dice{[&](std::int64_t n) { return counter.below({draw++, 0, 0, 0}, n); }};
  for (const int strength : {2, 3}) {
    Combinations all(factors, strength);
    for (int i = 0; i < 20; ++i) (void)all.add(levels_of(factors, draw_case(kernel, factors, dice, 1.0)));
    const std::vector<int> from = levels_of(factors, draw_case(kernel, factors, dice, 1.0));
    for (std::size_t f = 0; f < factors.size(); ++f) {
      std::vector<int> without = from;
      without[f] = -1;
      const std::vector<std::int64_t> gains = all.gains(without, f);
      ASSERT_EQ(gains.size(), factors[f].levels.size());
      for (std::size_t level = 0; level < gains.size(); ++level) {
        std::vector<int> with = without;
        with[f] = static_cast<int>(level);
        ASSERT_EQ(gains[level], all.fresh(with) - all.fresh(without)) << factors[f].name << " " << level;
      }
    }
  }
}

// A kernel with the wrong map of heads agrees with itself, so a law's case is not a witness of the map,
// whatever the number of heads.
TEST(Combinations, ALawIsAWitnessOfItsOwnPairsAlone) {
  const std::vector<Factor> factors = factors_of(row("cpu.retention.chunked"));
  const auto law = static_cast<std::size_t>(
      std::find_if(factors.begin(), factors.end(), [](const Factor& f) { return f.compares; }) -
      factors.begin());
  ASSERT_LT(law, factors.size());
  Case c = parse_case("v1 retention B=2 T=9 Hk=3 Hv=6 heads=tiled law=packing");
  for (const int strength : {2, 3}) {
    const Combinations all(factors, strength);
    const std::vector<int> levels = levels_of(factors, c);
    const std::vector<std::int64_t> shown = all.of(levels);
    ASSERT_FALSE(shown.empty());
    for (const std::int64_t at : shown) EXPECT_GT(all.levels(at)[law], 0);
    EXPECT_EQ(all.fresh(levels), std::ssize(shown));
  }
}

TEST(Combinations, IndexAndLevelsAreInverse) {
  const std::vector<Factor> factors = factors_of(row("cpu.rms_norm.fused"));
  for (const int strength : {2, 3}) {
    Combinations all(factors, strength);
    for (std::int64_t at = 0; at < all.size(); ++at) {
      std::vector<int> levels = all.levels(at);
      ASSERT_EQ(std::count_if(levels.begin(), levels.end(), [](int l) { return l >= 0; }), strength);
      ASSERT_EQ(all.add(levels), 1) << at;
      ASSERT_TRUE(all.has(at));
    }
    EXPECT_EQ(all.met(), all.size());
  }
  const Combinations pairs(factors, 2);
  for (std::int64_t at = 0; at < pairs.size(); ++at) {
    const std::vector<int> levels = pairs.levels(at);
    std::vector<std::size_t> of;
    for (std::size_t f = 0; f < levels.size(); ++f) {
      if (levels[f] >= 0) of.push_back(f);
    }
    ASSERT_EQ(pairs.at(of[0], levels[of[0]], of[1], levels[of[1]]), at);
  }
}

// Triples of one kernel take minutes, and whoever ends a gate waits for them.
TEST(Covering, EndsSoonOnceItIsToldToStop) {
  const KernelRow& kernel = row("cpu.gated_delta_rule.chunked");
  const std::vector<Factor> factors = factors_of(kernel);
  int asked = 0;
  const Covering covering = cover(kernel, factors, {}, {.strength = 3, .stop = [&] { return ++asked > 3; }});
  EXPECT_LT(covering.met, Combinations(factors, 3).size() / 2);
  EXPECT_LT(asked, 20) << "once a combination or a step of thinning, and not again";
}

// Each case of a covering set has a pair of levels, or a boundary of a size, that no other case has.
TEST(Covering, NoCaseIsSuperfluous) {
  for (const std::string_view name : {"cpu.rms_norm.fused", "cpu.linear_attention.recurrent"}) {
    const KernelRow& kernel = row(name);
    const std::vector<Factor> factors = factors_of(kernel);
    const Covering covering = cover(kernel, factors, {}, {});
    const Combinations pairs(factors, 2);
    std::map<std::int64_t, int> times;
    std::map<std::tuple<std::size_t, Index, Exposure>, int> values;
    const Case start = start_of(kernel);
    const auto visit = [&](const Case& c, auto&& see) {
      for (const std::int64_t at : pairs.of(levels_of(factors, c))) see(times[at]);
      for (std::size_t f = 0; f < factors.size(); ++f) {
        if (!factors[f].value) continue;
        for (const Exposure what : {Exposure::little, Exposure::most, Exposure::all}) {
          if (what <= exposure(factors[f], c, start)) see(values[{f, factors[f].value(c), what}]);
        }
      }
    };
    for (const Case& c : covering.cases) visit(c, [](int& n) { ++n; });
    for (const Case& c : covering.cases) {
      bool alone = false;
      visit(c, [&](int& n) { alone = alone || n == 1; });
      EXPECT_TRUE(alone) << format_case(c);
    }
    EXPECT_EQ(std::ssize(times), covering.met);
    EXPECT_GT(covering.cases.size(), 50U);
  }
}

// The default plan has every pair that a case can have and afford, and no pair is called impossible that one of
// its cases has: what a case has is read off the case, not off what was asked for.
TEST(Covering, DefaultPlanMeetsEveryPair) {
  for (const std::string_view name :
       {"cpu.gated_delta_rule.chunked", "cpu.linear_attention.recurrent", "cpu.rms_norm.fused",
        "cpu.softmax_attention.online", "cpu.expert_router.logits_first", "cpu.mamba2_mixer.chunked"}) {
    PlanOptions options;
    options.kernel = name;
    const Plan plan = plan_of(table(), options);
    PlanCoverage coverage(plan);
    const std::vector<Factor> factors = factors_of(row(name));
    Combinations pairs(factors, 2);
    for (const Case& c : plan.cases) {
      ASSERT_TRUE(possible(c)) << format_case(c);
      coverage.add(c, name);
      (void)pairs.add(levels_of(factors, c));
    }
    EXPECT_TRUE(coverage.missing(3).empty()) << name << ": " << coverage.missing(1).front();
    const CoverageCount count = coverage.pairs();
    EXPECT_EQ(count.met, pairs.met());
    EXPECT_GE(count.met + count.dear, count.possible);
    EXPECT_LT(static_cast<double>(count.dear), 0.03 * static_cast<double>(count.possible)) << name;
    EXPECT_GT(coverage.triples().share(), 0.2) << name;
    // Most pairs of factors with levels are possible: a rule that excluded too much would make the share
    // meaningless.
    EXPECT_GT(static_cast<double>(count.possible), 0.75 * static_cast<double>(pairs.size())) << name;
  }
}

// Impossible is what the construction did not find; cases that are drawn without it know nothing of that.
TEST(Covering, NothingThatIsDrawnWasCalledImpossible) {
  for (const std::string_view name :
       {"cpu.retention.chunked", "cpu.gated_attention.online", "cpu.mamba2_mixer.chunked",
        "cpu.mixture_of_experts.sorted", "cpu.rms_norm.fused"}) {
    const KernelRow& kernel = row(name);
    const std::vector<Factor> factors = factors_of(kernel);
    PlanOptions options;
    options.kernel = name;
    const Plan plan = plan_of(table(), options);
    const std::vector<Missing>& missing = plan.kernels.front().missing;
    Combinations drawn(factors, 2);
    const Counter counter(77, "drawn");
    std::int64_t draw = 0;
    for (int i = 0; i < 3000; ++i) {
      const Dice dice{[&](std::int64_t n) { return counter.below({draw++, 0, 0, 0}, n); }};
      const Case c = draw_case(kernel, factors, dice, 4.0);
      if (never_judged(*kernel.system, c) == nullptr) (void)drawn.add(levels_of(factors, c));
    }
    std::int64_t wrong = 0;
    for (std::int64_t at = 0; at < drawn.size(); ++at)
      wrong += drawn.has(at) && missing[static_cast<std::size_t>(at)] == Missing::impossible;
    // Lengths with a chunk of their own are covered only by chance: at most two of some 3000 per kernel.
    EXPECT_LE(static_cast<double>(wrong), 0.002 * static_cast<double>(drawn.met()))
        << name << ": " << wrong << " of " << drawn.met();
  }
}

// No case of the plan reached these sizes until sizes were drawn at their boundaries.
TEST(Covering, SizesReachThoseOfModels) {
  const auto largest = [](std::string_view kernel, auto&& of) {
    std::int64_t most = 0;
    for (const Case& c : cases_of(kernel)) most = std::max<std::int64_t>(most, of(c));
    return most;
  };
  const auto own = [](std::string_view name) {
    return [name = std::string(name)](const Case& c) { return c.parameters.at(name); };
  };
  EXPECT_GE(largest("cpu.rms_norm.fused", own("D")), 2049);
  EXPECT_GE(largest("cpu.rms_norm.fused", [](const Case& c) { return c.T; }), 4097);
  EXPECT_GE(largest("cpu.rms_norm.fused", [](const Case& c) { return c.B; }), 257);
  EXPECT_GE(largest("cpu.softmax_attention.online", [](const Case& c) { return c.T; }), 513);
  EXPECT_GE(largest("cpu.softmax_attention.online", own("H")), 64);
  EXPECT_GE(largest("cpu.expert_router.logits_first", own("N")), 512);
  const std::string_view chunked = "cpu.gated_delta_rule.chunked";
  EXPECT_GE(largest(chunked, [](const Case& c) { return c.chunk; }), 256);
  EXPECT_GE(largest(chunked, [](const Case& c) { return c.Hk; }), 64);
  EXPECT_GE(largest(chunked, [](const Case& c) { return c.Hv / c.Hk; }), 17);
  EXPECT_GE(largest(chunked, [](const Case& c) { return std::ssize(c.lengths); }), 513);
  EXPECT_GE(largest(chunked, [](const Case& c) { return c.T; }), 65537);
  EXPECT_GE(largest(chunked, [](const Case& c) { return c.prefill; }), 128);
  EXPECT_GE(largest(chunked, [](const Case& c) { return c.dk; }), 513);
}

// Every width that a tile of 8 columns divides is one that some case has.
TEST(Covering, EveryMultipleOfEightIsAWidth) {
  for (const std::string_view name : {"cpu.gated_delta_rule.chunked", "cpu.retention.recurrent"}) {
    std::set<Index> keys, values;
    for (const Case& c : cases_of(name)) keys.insert(c.dk), values.insert(c.dv);
    for (Index width = 8; width <= 256; width += 8) {
      EXPECT_TRUE(keys.contains(width)) << name << " dk=" << width;
      EXPECT_TRUE(values.contains(width)) << name << " dv=" << width;
    }
    EXPECT_GT(*keys.rbegin(), 2048) << name;
    EXPECT_GT(*values.rbegin(), 2048) << name;
  }
}

// The head of a public model with each form, contract, layout, final state and count of sequences; and such calls as
// those models make, whose sizes no pair asks for together.
TEST(Covering, HeadsOfModelsMeetEverySetting) {
  for (const std::string_view name : {"cpu.gated_delta_rule.chunked", "cpu.delta_rule.recurrent"}) {
    const KernelRow& kernel = row(name);
    const std::vector<Case> cases = cases_of(name);
    for (const Index width : {64, 128}) {
      std::set<std::string> forms, contracts, layouts, finals, regimes_seen;
      std::set<bool> l2norm;
      int prompts = 0, chunks = 0, decoded = 0;
      for (const Case& c : cases) {
        if (c.dk != width || c.dv != width) continue;
        forms.insert(c.form), contracts.insert(c.contract), layouts.insert(c.layout);
        finals.insert(c.final_state), regimes_seen.insert(c.regime), l2norm.insert(c.l2norm);
        const Index longest = c.lengths.empty() ? 0 : *std::max_element(c.lengths.begin(), c.lengths.end());
        prompts += longest > 64 && std::count(c.lengths.begin(), c.lengths.end(), 0) > 0 &&
                   std::count(c.lengths.begin(), c.lengths.end(), 1) > 0;
        chunks += c.form == kernel.form && c.T > 128 && (kernel.form == "recurrent" || c.chunk >= 64);
        decoded += c.form == "decode";
      }
      const std::string what = std::string(name) + " " + std::to_string(width);
      EXPECT_EQ(contracts.size(), kernel.contracts.size()) << what;
      EXPECT_EQ(regimes_seen.size(), kernel.system->regimes.size()) << what;
      EXPECT_TRUE(forms.contains("packed")) << what;
      EXPECT_EQ(layouts.size(), kernel.strided ? layout_names().size() : 1U) << what;
      EXPECT_EQ(finals.size(), 3U) << what;
      EXPECT_EQ(l2norm.size(), 2U) << what;
      for (const int count : {prompts, chunks, decoded}) EXPECT_GT(count, 0) << what;
    }
    const auto any = [&](auto&& holds) { return std::any_of(cases.begin(), cases.end(), holds); };
    EXPECT_TRUE(any([](const Case& c) { return c.Hv == 96 && c.dk == 128; })) << name;
    EXPECT_TRUE(any([](const Case& c) { return c.Hv == 128 && c.dk == 128; })) << name;
    EXPECT_TRUE(any([](const Case& c) { return c.T > 8192 && c.Hk > 1; })) << name;
    EXPECT_TRUE(any([](const Case& c) { return std::ssize(c.lengths) > 4096; })) << name;
    EXPECT_TRUE(any([](const Case& c) {
      return std::any_of(c.lengths.begin(), c.lengths.end(), [](Index length) { return length > 512; });
    })) << name;
    for (const double scale : {0.0, -1.0, 16.0, 0.0001220703125})
      EXPECT_TRUE(any([&](const Case& c) { return c.scale == scale; })) << name << " " << scale;
  }
}

// Among many sequences, the last one has tokens, and those with tokens are spread over all.
TEST(Covering, ManySequencesAreNotATailOfEmptyOnes) {
  int many = 0;
  for (const Case& c : cases_of("cpu.gated_delta_rule.chunked")) {
    if (c.lengths.size() <= 64 || c.T == 0) continue;
    ++many;
    EXPECT_GT(c.lengths.back(), 0) << format_case(c);
    const auto half = c.lengths.begin() + std::ssize(c.lengths) / 2;
    if (c.T >= std::ssize(c.lengths)) {
      EXPECT_TRUE(std::any_of(c.lengths.begin(), half, [](Index length) { return length > 0; }));
      EXPECT_GT(std::count_if(half, c.lengths.end(), [](Index length) { return length > 0; }),
                std::ssize(c.lengths) / 4)
          << format_case(c);
    }
  }
  EXPECT_GT(many, 20);
}

// Rows as wide as those of large models, and more keys than 4096.
TEST(Covering, RowsAndKeysReachTheirLargest) {
  for (const std::string_view name :
       {"cpu.rms_norm.fused", "cpu.l2norm.fused", "cpu.expert_router.logits_first"}) {
    std::set<Index> widths;
    for (const Case& c : cases_of(name)) widths.insert(c.parameters.at("D"));
    for (const Index width : {4097, 8193, 16384}) EXPECT_TRUE(widths.contains(width)) << name << " " << width;
  }
  const std::vector<Case> cases = cases_of("cpu.softmax_attention.online");
  EXPECT_TRUE(std::any_of(cases.begin(), cases.end(), [](const Case& c) { return c.T > 4096; }));
}

// Each boundary of each size, where the kernel can have it and a case may cost it, in a case that shows what becomes of it:
// a law's compares the kernel with itself, and where one key has all the weight another that is dropped does not show.
TEST(Covering, BoundariesOfSizesAreMet) {
  constexpr Index kAny = std::numeric_limits<Index>::max();
  const std::map<std::string_view, Index> largest = {
      {"cpu.gated_delta_rule.chunked", kAny},
      {"cpu.rms_norm.fused", kAny},
      {"cpu.l2norm.fused", kAny},
      {"cpu.softmax_attention.online", 768}};  // every token meets every key
  for (const auto& [name, most] : largest) {
    const std::vector<Case> cases = cases_of(name);
    const Case start = start_of(row(name));
    for (const Factor& factor : factors_of(row(name))) {
      if (!factor.value) continue;
      // For the largest sizes, a few tokens cost more than a case may.
      for (const Exposure what : {Exposure::most, Exposure::all}) {
        std::set<Index> met;
        for (const Case& c : cases) {
          if (exposure(factor, c, start) >= what) met.insert(factor.value(c));
        }
        const auto missed = std::count_if(factor.values.begin(), factor.values.end(),
                                          [&](Index value) { return value <= most && !met.contains(value); });
        EXPECT_LE(static_cast<double>(missed), 0.03 * static_cast<double>(factor.values.size()))
            << name << " " << factor.name;
      }
    }
  }
}

// A factor whose level is read wrongly, or a pair that is left out, shows as missing.
TEST(Covering, AMissingPairIsNamed) {
  PlanOptions options;
  options.kernel = "cpu.l2norm.fused";
  const Plan plan = plan_of(table(), options);
  PlanCoverage coverage(plan);
  for (const Case& c : plan.cases) {
    if (!(c.contract == "bf16" && c.regime == "tiny")) coverage.add(c, options.kernel);
  }
  const std::vector<std::string> missing = coverage.missing(100);
  EXPECT_NE(std::find(missing.begin(), missing.end(), "cpu.l2norm.fused: contract=bf16 with regime=tiny"),
            missing.end());
  EXPECT_LT(coverage.pairs().share(), 1.0);
  EXPECT_NE(coverage.json().find("contract=bf16 with regime=tiny"), std::string::npos);
}

// An odd number of rotary columns is not a valid case, so their range needs a boundary that is, or none of
// its pairs is tried.
TEST(Covering, ABandOfEvenSizesHasOne) {
  const KernelRow& kernel = row("cpu.latent_attention.absorbed");
  const Dice first{[](std::int64_t) { return 0; }};
  int bands = 0;
  for (const Factor& factor : factors_of(kernel)) {
    if (factor.name != "dr") continue;
    for (std::size_t level = 0; level < factor.levels.size(); ++level) {
      Case c = start_of(kernel);
      factor.put(c, static_cast<int>(level), first);
      if (factor.levels[level] == "1") continue;
      EXPECT_TRUE(possible(c)) << format_case(c);
      EXPECT_EQ(factor.level(c), static_cast<int>(level));
      ++bands;
    }
  }
  EXPECT_GT(bands, 4);
}

// For a kernel whose device is not available, no case is judged, and its pairs need not be covered.
TEST(Covering, PairsOfAKernelWithoutItsDeviceCountNowhere) {
  // A build without nvcc has the CPU's row alone.
  std::vector<OperatorKernel> rows(operator_kernels().begin(), operator_kernels().end());
  std::erase_if(rows, [](const OperatorKernel& row) { return row.name != "cpu.l2norm.fused"; });
  rows.push_back(rows.front());
  rows.back().name = "cuda.l2norm.fused";
  rows.back().device = "cuda";
  const KernelTable of_two(std::span<const Kernel>(), rows);
  const auto possible = [&](const std::string& device, bool with_device) {
    PlanOptions options;
    options.system = "l2norm";
    options.device = device;
    const Plan plan = plan_of(of_two, options);
    PlanCoverage coverage(plan);
    for (const Case& c : plan.cases) {
      coverage.add(c, "cpu.l2norm.fused");
      if (with_device) coverage.add(c, "cuda.l2norm.fused");
    }
    return coverage.pairs().possible;
  };
  EXPECT_EQ(possible("", false), possible("cpu", false));
  EXPECT_GT(possible("", true), possible("cpu", false));
}

// A pair whose cases were all vacuous gets others, round after round, until one is judged.
TEST(Covering, PairsThatNobodyJudgedAreTriedAgain) {
  PlanOptions options;
  options.kernel = "cpu.l2norm.fused";
  const Plan plan = plan_of(table(), options);
  PlanCoverage coverage(plan);
  // Without a device none of a kernel's cases is judged, and more of them would not be either.
  EXPECT_TRUE(coverage.again(table(), 1, 0).empty());
  const auto has_it = [](const Case& c) { return c.contract == "bf16" && c.regime == "tiny"; };
  for (const Case& c : plan.cases) {
    if (!has_it(c)) coverage.add(c, options.kernel);
  }
  std::set<std::string> seen;
  for (const Case& c : plan.cases) seen.insert(format_case(c));
  for (int round = 0; round < kCoverAgain; ++round) {
    const std::vector<Case> again = coverage.again(table(), 1, round);
    EXPECT_TRUE(std::any_of(again.begin(), again.end(), has_it)) << round;
    // A choice of a width or a scale for which a case is vacuous takes more than one case with few choices to
    // find.
    std::set<std::pair<Index, Index>> sizes;
    for (const Case& c : again) {
      if (has_it(c)) sizes.insert({c.B, size_in(c, "D")});
    }
    if (round >= 4) {
      EXPECT_GE(sizes.size(), 6U) << round;
    }
    EXPECT_EQ(again, coverage.again(table(), 1, round));
    for (const Case& c : again) {
      EXPECT_TRUE(possible(c)) << format_case(c);
      EXPECT_TRUE(seen.insert(format_case(c)).second) << format_case(c);
    }
  }
  for (const Case& c : plan.cases) coverage.add(c, options.kernel);
  EXPECT_TRUE(coverage.again(table(), 1, 0).empty());
}

// Three at a time, from effort 10 on.
TEST(Covering, TriplesAreMetByALargeEffort) {
  PlanOptions options;
  options.kernel = "cpu.load_balance.direct";
  options.effort = 10;
  const Plan plan = plan_of(table(), options);
  PlanCoverage coverage(plan);
  for (const Case& c : plan.cases) coverage.add(c, options.kernel);
  EXPECT_GT(coverage.triples().share(), 0.9);
  EXPECT_GT(coverage.pairs().share(), 0.99);
}

}  // namespace
}  // namespace samestate
