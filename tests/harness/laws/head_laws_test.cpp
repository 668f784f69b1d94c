#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/laws.h"
#include "harness/run/law_subject.h"
#include "harness/systems/recurrent_system.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

constexpr Index kChunk = 4;

/// All that any system of the family has.
std::vector<const Law*> family_laws() {
  return laws_on_heads(properties_of(family_named("gated_delta_rule")));
}

const Law& family_law(std::string_view name) { return *system_named("gated_delta_rule").law(name); }

/// Two rows of nine tokens, two key heads, four value heads; keys are not of unit length.
Batch random_batch(const Family& family, BatchShape s) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> unit(0.05F, 1.0F);
  Batch batch{s, {}, {}, {}, {}, {}, {}};
  const auto fill = [&](std::vector<float>& data, std::int64_t size, auto&& draw) {
    for (std::int64_t i = 0; i < size; ++i) data.push_back(draw());
  };
  const float key = 0.8F / std::sqrt(static_cast<float>(s.dk));
  fill(batch.q, s.B * s.T * s.Hk * s.dk, [&] { return normal(random); });
  fill(batch.k, s.B * s.T * s.Hk * s.dk, [&] { return key * normal(random); });
  fill(batch.v, s.B * s.T * s.Hv * s.dv, [&] { return 2 * normal(random); });
  if (family.gated) fill(batch.g, s.B * s.T * s.Hv, [&] { return -0.5F * unit(random); });
  if (family.delta) fill(batch.beta, s.B * s.T * s.Hv, [&] { return unit(random); });
  if (s.initial_state)
    fill(batch.initial_state, s.sequences() * s.Hv * s.dk * s.dv, [&] { return normal(random); });
  return batch;
}

BatchShape usual_shape() {
  BatchShape s;
  s.B = 2, s.T = 9, s.Hk = 2, s.Hv = 4, s.dk = 4, s.dv = 6, s.scale = 0.5, s.initial_state = true;
  return s;
}

/// The things that a faulty kernel does differently; the defaults of all fields are those of the correct
/// kernel.
struct Fault {
  /// Evaluates one head of one call.
  std::function<Trajectory<double>(const Family&, const Sequence<double>&, Index chunk)> head;
  bool carry_state = true;           ///< from segment to segment
  bool leak_between_packed = false;  ///< a packed sequence starts from its predecessor's final state
  bool gate_of_first_row = false;    ///< every row of a batch reads the gate of row 0
  bool tiled_heads = false;          ///< whatever head map was asked for
  bool ranks_from_zero = false;      ///< each rank but the first starts from a zero state
};

Trajectory<double> honest(const Family& family, const Sequence<double>& x, Index chunk) {
  return chunk > 0 && x.tokens() > 0 ? family.chunked(x, chunk) : family.recurrent(x);
}

/// A kernel made of the float64 reference and a fault, its outputs rounded to fp32.
Runner runner_of(const Family& family, const Fault& fault) {
  return [&family, fault](const Batch& asked, const Path& path) {
    Batch batch = asked;
    BatchShape& s = batch.shape;
    if (fault.tiled_heads) s.head_map = HeadMap::tiled;
    if (fault.gate_of_first_row) {
      for (std::size_t i = 0, row = static_cast<std::size_t>(s.T * s.Hv); i < batch.g.size(); ++i) {
        batch.g[i] = batch.g[i % row];
      }
    }
    Outputs out;
    out.o.resize(static_cast<std::size_t>(s.B * s.T * s.Hv * s.dv));
    out.final_state.resize(static_cast<std::size_t>(s.sequences() * s.Hv * s.dk * s.dv));
    for (std::int64_t h = 0; h < s.Hv; ++h) {
      Matrix<double> state = Matrix<double>::Zero(s.dk, s.dv);
      for (std::int64_t n = 0; n < s.sequences(); ++n) {
        const Sequence<double> x = sequence_of(batch, n, h);
        if (!fault.leak_between_packed || s.offsets.empty()) state = x.initial_state;
        const Path segments = part_by_part(path_of_sequence(path, s, n));
        Index begin = 0;
        for (const Segment& segment : segments) {
          if (begin > 0 && !fault.carry_state) state.setZero();
          if (begin > 0 && fault.ranks_from_zero && path.size() == 1) state.setZero();
          const Trajectory<double> part = (fault.head ? fault.head : honest)(
              family, x.slice(begin, begin + segment.tokens, state), segment.chunk);
          for (Index t = 0; t < segment.tokens; ++t) {
            const std::int64_t token = (s.offsets.empty() ? n * s.T : s.begin(n)) + begin + t;
            for (Index c = 0; c < s.dv; ++c) {
              out.o[static_cast<std::size_t>((token * s.Hv + h) * s.dv + c)] =
                  static_cast<float>(part.o(t, c));
            }
          }
          state = part.state;
          begin += segment.tokens;
        }
        for (Index i = 0; i < s.dk * s.dv; ++i) {
          out.final_state[static_cast<std::size_t>((n * s.Hv + h) * s.dk * s.dv + i)] =
              static_cast<float>(state.data()[i]);
        }
      }
    }
    return out;
  };
}

Judgement judged(std::string_view law, const Batch& batch, const Family& family, const Fault& fault,
                 Index chunk = kChunk) {
  const Contract fp32;
  return judge_law(family_law(law), {batch, family, fp32, chunk, runner_of(family, fault)});
}

/// A fault inside one head: `change` is made to the inputs before an honest evaluation.
Fault on_inputs(std::function<void(Sequence<double>&)> change) {
  Fault fault;
  fault.head = [change](const Family& family, Sequence<double> x, Index chunk) {
    change(x);
    return honest(family, x, chunk);
  };
  return fault;
}

/// Chunk by chunk; `change(x, out)` spoils the chunk x whose honest result is `out`.
Fault on_chunks(std::function<void(const Sequence<double>&, Trajectory<double>&)> change) {
  Fault fault;
  fault.head = [change](const Family& family, const Sequence<double>& x, Index chunk) {
    if (chunk == 0) return family.recurrent(x);
    Trajectory<double> out = family.recurrent(x);
    Matrix<double> state = x.initial_state;
    for (Index t = 0; t < x.tokens(); t += chunk) {
      const Sequence<double> part = x.slice(t, std::min(t + chunk, x.tokens()), state);
      Trajectory<double> found = family.recurrent(part);
      change(part, found);
      out.o.middleRows(t, part.tokens()) = found.o;
      state = found.state;
    }
    out.state = state;
    return out;
  };
  return fault;
}

/// The delta rule with another write: u_t = `value`(x, t, S before the decay, S after it).
Fault on_writes(std::function<Matrix<double>(const Sequence<double>&, Index, const Matrix<double>&,
                                             const Matrix<double>&)>
                    value) {
  Fault fault;
  fault.head = [value](const Family& family, const Sequence<double>& x, Index) {
    Trajectory<double> out = family.recurrent(x);
    Matrix<double> S = x.initial_state;
    for (Index t = 0; t < x.tokens(); ++t) {
      const Matrix<double> decayed = std::exp(x.g(t)) * S;
      S = decayed + x.k.row(t).transpose() * value(x, t, S, decayed);
      out.o.row(t) = x.scale * (x.q.row(t) * S);
    }
    out.state = S;
    return out;
  };
  return fault;
}

Fault with(bool Fault::*field, bool value) {
  Fault fault;
  fault.*field = value;
  return fault;
}

struct Planted {
  std::string_view law;
  const char* name;  ///< the fault; M numbers are those of the ledger of bugs
  Fault fault;
};

/// Law -> faults that it is there to catch.
std::vector<Planted> planted() {
  const auto clamp = [](double bound) {
    return on_inputs([bound](Sequence<double>& x) { x.v = x.v.cwiseMax(-bound).cwiseMin(bound); });
  };
  return {
      {"path_equivalence", "decay of a chunk read one row early (M04)",
       on_chunks([](const Sequence<double>& x, Trajectory<double>& out) {
         const Index L = x.tokens();
         out.state += (std::exp(x.g.head(L - 1).sum()) - std::exp(x.g.sum())) * x.initial_state;
       })},
      {"path_equivalence", "anchor of the gate one row off in each chunk (M05)",
       on_chunks([](const Sequence<double>& x, Trajectory<double>& out) {
         for (Index t = 0; t < x.tokens(); ++t) {
           const double off = std::exp(x.g.head(t).sum()) - std::exp(x.g.head(t + 1).sum());
           out.o.row(t) += x.scale * off * (x.q.row(t) * x.initial_state);
         }
       })},
      {"split", "state not carried over a cut", with(&Fault::carry_state, false)},
      {"serving", "a call of one token starts from zero (M26)", on_inputs([](Sequence<double>& x) {
         if (x.tokens() == 1) x.initial_state.setZero();
       })},
      {"split", "first token of a call does not decay", on_inputs([](Sequence<double>& x) {
         if (x.tokens() > 0) x.g(0) = 0;
       })},
      {"causality", "mask one diagonal too wide",
       [] {
         Fault fault;
         fault.head = [](const Family& family, const Sequence<double>& x, Index chunk) {
           Trajectory<double> out = honest(family, x, chunk);
           for (Index t = 0; t + 1 < x.tokens(); ++t) {
             out.o.row(t) += x.scale * x.q.row(t).dot(x.k.row(t + 1)) * x.v.row(t + 1);
           }
           return out;
         };
         return fault;
       }()},
      {"causality", "anchor taken from a future row (M06)",
       [] {
         Fault fault;
         fault.head = [](const Family& family, const Sequence<double>& x, Index chunk) {
           Trajectory<double> out = honest(family, x, chunk);
           if (x.tokens() > 0) out.o *= 1 + 1e-3 * x.g(x.tokens() - 1);
           return out;
         };
         return fault;
       }()},
      {"batch_permutation", "every row reads the gate of row 0", with(&Fault::gate_of_first_row, true)},
      {"head_permutation", "tiled head map where the interleaved one was asked for",
       with(&Fault::tiled_heads, true)},
      {"linearity", "values cut off at 1", clamp(1.0)},
      {"linearity", "a constant added to what is written",
       on_inputs([](Sequence<double>& x) { x.v.array() += 0.01; })},
      {"linearity", "values divided by the largest of their row", on_inputs([](Sequence<double>& x) {
         for (Index t = 0; t < x.tokens(); ++t) x.v.row(t) /= std::max(1.0, x.v.row(t).cwiseAbs().maxCoeff());
       })},
      {"no_op", "a gate of 0 still decays",
       on_inputs([](Sequence<double>& x) { x.g = x.g.cwiseMin(-1e-6); })},
      {"no_op", "a query of 0 still reads", on_inputs([](Sequence<double>& x) {
         for (Index t = 0; t < x.tokens(); ++t) {
           if (x.q.row(t).isZero(0)) x.q.row(t).setConstant(1e-6);
         }
       })},
      {"packing", "state leaks into the next packed sequence (M27)", with(&Fault::leak_between_packed, true)},
      {"packing", "initial state of an empty sequence not handed on",
       [] {
         Fault fault;
         fault.head = [](const Family& family, const Sequence<double>& x, Index chunk) {
           Trajectory<double> out = honest(family, x, chunk);
           if (x.tokens() == 0) out.state.setConstant(0.5);
           return out;
         };
         return fault;
       }()},
      {"reset", "decay ignored (M16)", on_inputs([](Sequence<double>& x) { x.g.setZero(); })},
      {"reset", "decay never below e^-5 (M10)",
       on_inputs([](Sequence<double>& x) { x.g = x.g.cwiseMax(-5.0); })},
      {"reset", "gates subtracted after they were summed (M09)", on_inputs([](Sequence<double>& x) {
         float sum = 0;
         for (Index t = 0; t < x.tokens(); ++t) {
           const float next = sum + static_cast<float>(x.g(t));
           x.g(t) = static_cast<double>(next - sum);
           sum = next;
         }
       })},
      {"norm_bounds", "decay ignored (M16)", on_inputs([](Sequence<double>& x) { x.g.setZero(); })},
      {"norm_bounds", "sign of the gate turned round", on_inputs([](Sequence<double>& x) { x.g = -x.g; })},
      {"norm_bounds", "beta missing on the written value (M19)",
       on_writes([](const Sequence<double>& x, Index t, const Matrix<double>&, const Matrix<double>& S) {
         return Matrix<double>(x.v.row(t) - x.beta(t) * (x.k.row(t) * S));
       })},
      {"recall", "delta correction dropped (M13)",
       on_writes([](const Sequence<double>& x, Index t, const Matrix<double>&, const Matrix<double>&) {
         return Matrix<double>(x.beta(t) * x.v.row(t));
       })},
      {"recall", "beta missing on the written value (M19)",
       on_writes([](const Sequence<double>& x, Index t, const Matrix<double>&, const Matrix<double>& S) {
         return Matrix<double>(x.v.row(t) - x.beta(t) * (x.k.row(t) * S));
       })},
      {"recall", "what the key holds read before the decay (M17)",
       on_writes([](const Sequence<double>& x, Index t, const Matrix<double>& S, const Matrix<double>&) {
         return Matrix<double>(x.beta(t) * (x.v.row(t) - x.k.row(t) * S));
       })},
  };
}

/// The batch on which a law's faults are planted: norm bounds are sharp only where nothing but one write and
/// one decay is left.
Batch batch_for(std::string_view law, const Family& family) {
  BatchShape s = usual_shape();
  if (law != "norm_bounds") return random_batch(family, s);
  s.dk = 1;
  Batch batch = random_batch(family, s);
  for (float& g : batch.g) g *= 8;
  for (float& beta : batch.beta) beta *= 0.1F;
  return batch;
}

TEST(Laws, HoldOfTheReferenceOfEverySystemInBothForms) {
  for (const Family& family : families()) {
    for (const Law* law : family_laws()) {
      const Batch batch = batch_for(law->name, family);
      for (const Index chunk : {Index{0}, kChunk}) {
        const Judgement j = judged(law->name, batch, family, {}, chunk);
        const bool applies =
            (family.gated || law->name != "reset") && (family.delta || law->name != "recall");
        EXPECT_EQ(j.verdict, applies ? Verdict::pass : Verdict::vacuous)
            << law->name << " on " << family.name << ", chunk " << chunk << ": " << j.reason;
        EXPECT_LT(j.ratio, 1.0) << law->name;
        if (applies) {
          EXPECT_GT(j.rows, 0) << law->name;
        }
      }
    }
  }
}

TEST(Laws, EachCatchesTheFaultsItIsThereFor) {
  const Family& family = family_named("gated_delta_rule");
  for (const Planted& p : planted()) {
    const Judgement j = judged(p.law, batch_for(p.law, family), family, p.fault);
    EXPECT_EQ(j.verdict, Verdict::fail)
        << p.law << ": " << p.name << ", ratio " << j.ratio << " " << j.reason;
    EXPECT_GT(j.ratio, 1.0) << p.law << ": " << p.name;
    EXPECT_FALSE(j.reason.empty()) << p.law << ": " << p.name;
    EXPECT_FALSE(j.gate.empty()) << p.law << ": " << p.name;
  }
}

TEST(Laws, EachHasAFaultThatItCatches) {
  const std::vector<Planted> table = planted();
  for (const Law* law : family_laws()) {
    EXPECT_TRUE(std::any_of(table.begin(), table.end(), [&](const Planted& p) { return p.law == law->name; }))
        << law->name << ": no fault is planted for it";
  }
}

// Over ranks: laws of one call hold, and one rank shows what many got wrong.
TEST(Laws, HoldOverRanksAndCatchWhatRanksDo) {
  for (const Family& family : families()) {
    BatchShape shape = usual_shape();
    shape.T = 23;
    const Batch batch = random_batch(family, shape);
    const Contract fp32;
    for (const bool drawn : {false, true}) {
      Fault fault;
      const auto with = [&](std::string_view law) {
        LawSubject subject{batch, family, fp32, kChunk, runner_of(family, fault)};
        subject.ranks = {3, drawn, 4};
        return judge_law(family_law(law), subject);
      };
      for (const char* law : {"path_equivalence", "split", "packing", "serving", "linearity", "no_op"})
        EXPECT_EQ(with(law).verdict, Verdict::pass) << law << " of " << family.name << with(law).reason;
      fault.ranks_from_zero = true;
      EXPECT_EQ(with("path_equivalence").verdict, Verdict::fail) << family.name;
    }
  }
}

TEST(Laws, OverflowThatTheFormatExplainsIsNoFailure) {
  const Family& family = family_named("linear_attention");
  Batch batch = random_batch(family, usual_shape());
  for (float& v : batch.v) v *= 2e4F;
  Fault fp16;
  fp16.head = [](const Family& f, const Sequence<double>& x, Index chunk) {
    Trajectory<double> out = honest(f, x, chunk);
    const auto rounded = [](double value) {
      return std::abs(value) > 65504.0 ? std::copysign(INFINITY, value) : value;
    };
    out.o = out.o.unaryExpr(rounded);
    return out;
  };
  const Contract& contract = contract_named("fp16");
  const Judgement j =
      judge_law(family_law("norm_bounds"), {batch, family, contract, kChunk, runner_of(family, fp16)});
  EXPECT_EQ(j.verdict, Verdict::vacuous) << j.reason;
  const Contract fp32;
  EXPECT_EQ(
      judge_law(family_law("norm_bounds"), {batch, family, fp32, kChunk, runner_of(family, fp16)}).verdict,
      Verdict::fail);
}

TEST(Laws, OutputThatIsNotFiniteFails) {
  const Family& family = family_named("gated_delta_rule");
  for (const Law* law : family_laws()) {
    Fault fault;
    fault.head = [](const Family& f, const Sequence<double>& x, Index chunk) {
      Trajectory<double> out = honest(f, x, chunk);
      out.o.setConstant(std::numeric_limits<double>::quiet_NaN());
      out.state.setConstant(std::numeric_limits<double>::quiet_NaN());
      return out;
    };
    EXPECT_EQ(judged(law->name, batch_for(law->name, family), family, fault).verdict, Verdict::fail)
        << law->name;
  }
}

TEST(Laws, VacuousWhereTheyCannotBite) {
  const Family& gdn = family_named("gated_delta_rule");
  const auto expect_vacuous = [](std::string_view law, const Batch& batch, const Family& family,
                                 std::string_view reason) {
    const Judgement j = judged(law, batch, family, {});
    EXPECT_EQ(j.verdict, Verdict::vacuous) << law;
    EXPECT_EQ(j.gate, "law") << law;
    EXPECT_NE(j.reason.find(reason), std::string::npos) << law << ": " << j.reason;
  };
  const auto batch_with = [&](std::int64_t BatchShape::*field, std::int64_t value) {
    BatchShape s = usual_shape();
    s.*field = value;
    return random_batch(gdn, s);
  };
  expect_vacuous("batch_permutation", batch_with(&BatchShape::B, 1), gdn, "B=1");
  expect_vacuous("head_permutation", batch_with(&BatchShape::Hk, 1), gdn, "Hk=1");
  BatchShape stateless = usual_shape();
  stateless.initial_state = false;
  expect_vacuous("no_op", random_batch(gdn, stateless), gdn, "state=random");
  for (const char* name : {"delta_rule", "linear_attention"}) {
    expect_vacuous("reset", random_batch(family_named(name), usual_shape()), family_named(name), "no decay");
  }
  for (const char* name : {"retention", "linear_attention"}) {
    expect_vacuous("recall", random_batch(family_named(name), usual_shape()), family_named(name),
                   "no delta rule");
  }
  BatchShape packed = usual_shape();
  packed.B = 1, packed.offsets = {0, 4, 9};
  for (const Law* law : family_laws()) {
    const bool one_token_will_do = law->name == "norm_bounds";
    const Judgement j = judged(law->name, batch_with(&BatchShape::T, 1), gdn, {});
    EXPECT_EQ(j.verdict, one_token_will_do ? Verdict::pass : Verdict::vacuous) << law->name;
    EXPECT_EQ(judged(law->name, batch_with(&BatchShape::T, 0), gdn, {}).verdict, Verdict::vacuous)
        << law->name;
    EXPECT_EQ(judged(law->name, random_batch(gdn, packed), gdn, {}).verdict, Verdict::vacuous) << law->name;
  }
}

TEST(Laws, LinearityBitesOnOneChannelToo) {
  const Family& family = family_named("gated_delta_rule");
  BatchShape s = usual_shape();
  s.dv = 1;
  const Batch batch = random_batch(family, s);
  EXPECT_EQ(judged("linearity", batch, family, {}).verdict, Verdict::pass);
  for (const Planted& p : planted()) {
    if (p.law == "linearity") {
      EXPECT_EQ(judged(p.law, batch, family, p.fault).verdict, Verdict::fail) << p.name;
    }
  }
}

TEST(Laws, CausalityIsVacuousWhereTheFutureHasNoEffectAtAll) {
  const Family& family = family_named("gated_delta_rule");
  Fault nothing;
  nothing.head = [](const Family& f, const Sequence<double>& x, Index) {
    Trajectory<double> out = f.recurrent(x);
    out.o.setZero();
    out.state.setZero();
    return out;
  };
  const Judgement j = judged("causality", batch_for("causality", family), family, nothing);
  EXPECT_EQ(j.verdict, Verdict::vacuous);
  EXPECT_NE(j.reason.find("changed nothing"), std::string::npos) << j.reason;
}

int evaluations = 0;  // of all tokens, which the oracle does once
Trajectory<double> counted(const Sequence<double>& x) {
  evaluations += x.tokens() == usual_shape().T ? 1 : 0;
  return family_named("gated_delta_rule").recurrent(x);
}

// The run with which others are compared has one bound per head, however many comparisons there are. Two of
// split's bounds are not oracles: states after the cut without tokens after it.
TEST(Laws, OneOracleIsHeldAgainstAllOtherRuns) {
  Family counting = family_named("gated_delta_rule");
  const Family right = counting;
  counting.recurrent = counted;
  const Batch batch = random_batch(right, usual_shape());
  const Contract fp32;
  const int heads = 8, T = 9;
  const struct {
    std::string_view law;
    int runs;
  } rows[] = {{"split", 1 + (T + 1) + 2}, {"causality", 1 + T - 1}, {"path_equivalence", 3}};
  for (const auto& [law, runs] : rows) {
    evaluations = 0;
    const Judgement j =
        judge_law(family_law(law), {batch, counting, fp32, kChunk, runner_of(right, Fault{})});
    EXPECT_EQ(j.verdict, Verdict::pass) << law << ": " << j.reason;
    EXPECT_EQ(evaluations, heads * runs) << law;
  }
}

}  // namespace
}  // namespace samestate
