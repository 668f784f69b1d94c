#include "oracles/systems/operator_twin.h"
#include "oracles/systems/twin_shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/contracts.h"
#include "oracles/named_points.h"
#include "oracles/numbers.h"
#include "oracles/systems/scalars.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

/// A drawn case of an operator under a contract, and kernels of it: the reference with the roundings of fp32 drawn.
struct Drawn : DrawnSubject {
  Drawn(const char* name, const char* form, Index tokens, std::uint64_t seed,
        const std::map<std::string, Index>& sizes = {}, const char* under = "bf16")
      : DrawnSubject(name, form, tokens, sizes, under, seed) {}

  /// One with sums in an order of its own, without the points `skipped`, with a rounding that no contract has.
  [[nodiscard]] Tensors<double> kernel(int n, const TwinVariant& variant = {},
                                       Planted planted = Planted::none) const {
    return drawn_kernel(*this, variant, planted, n);
  }
  [[nodiscard]] TwinJudgement judge(const Tensors<double>& actual) const {
    return judge_operator_twin(subject(), actual, 7, kGatePolicy);
  }
};

struct Row {
  const char* name;
  const char* form;
};
constexpr Row kRows[] = {
    {"rms_norm", "fused"},          {"softmax_attention", "online"},  {"gated_attention", "online"},
    {"gated_delta_net", "chunked"}, {"latent_attention", "absorbed"}, {"qwen3_next_moe", "sorted"},
    {"mamba2_mixer", "chunked"},    {"residual_rms_norm", "fused"}};

TEST(OperatorTwin, KernelsOfItsPointsAreTheSame) {
  for (const Row& row : kRows) {
    const Drawn drawn(row.name, row.form, 13, 5);
    for (int n = 0; n < 6; ++n) {
      const TwinJudgement j = drawn.judge(drawn.kernel(n));
      EXPECT_EQ(j.judgement.verdict, Verdict::pass) << row.name << ": " << j.judgement.reason;
      EXPECT_LE(j.judgement.ratio, 1.0);
    }
  }
}

TEST(OperatorTwin, AKernelMayLeavePointsOut) {
  const Drawn drawn("gated_attention", "online", 13, 5);
  TwinVariant variant;
  SkippedPoints met;
  (void)twin_values(drawn.subject(), {}, &met);
  ASSERT_GE(met.points.size(), 5U);
  for (const Point& point : met.points) {
    variant.skipped.points = {point};
    const TwinJudgement j = drawn.judge(drawn.kernel(1, variant));
    EXPECT_EQ(j.judgement.verdict, Verdict::pass) << variant.words() << ": " << j.judgement.reason;
  }
  variant.skipped = met;
  EXPECT_EQ(drawn.judge(drawn.kernel(1, variant)).judgement.verdict, Verdict::pass) << "16 bit outside alone";
}

// For a single token the products q k are numbers: if both are kept unrounded, a twin that rounds only one is
// farther than both.
TEST(OperatorTwin, AKernelOfManyPointsMayLeaveAnyTwoOut) {
  int pairs = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    const Drawn drawn("gated_delta_net", "recurrent", 1, seed, {{"D", 3}, {"dk", 2}, {"dv", 12}});
    SkippedPoints met;
    (void)twin_values(drawn.subject(), {}, &met);
    ASSERT_GT(std::ssize(met.points), kGatePolicy.twin_subsets);
    for (std::size_t i = 0; i < met.points.size(); ++i) {
      for (std::size_t k = i + 1; k < met.points.size(); ++k, ++pairs) {
        TwinVariant variant;
        variant.skipped.points = {met.points[i], met.points[k]};
        variant.skipped.sort();
        const TwinJudgement j = drawn.judge(drawn.kernel(1, variant));
        EXPECT_NE(j.judgement.verdict, Verdict::fail)
            << seed << " " << variant.words() << ": " << j.judgement.reason;
      }
    }
  }
  EXPECT_GE(pairs, 6 * 28);
}

// None of several alone brings a twin nearer where the last one rounds as coarsely as all of them.
TEST(OperatorTwin, AKernelMayLeaveSeveralPointsOut) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const Drawn drawn("mixture_of_experts", "sorted", 5, seed, {{"D", 1}, {"N", 3}, {"F", 8}});
    SkippedPoints met;
    (void)twin_values(drawn.subject(), {}, &met);
    ASSERT_EQ(met.points.size(), 5U);
    for (unsigned subset = 1; subset < 32; ++subset) {
      TwinVariant variant;
      for (std::size_t i = 0; i < met.points.size(); ++i) {
        if (((subset >> i) & 1U) != 0) variant.skipped.add(met.points[i]);
      }
      const TwinJudgement j = drawn.judge(drawn.kernel(1, variant));
      EXPECT_NE(j.judgement.verdict, Verdict::fail)
          << seed << " " << variant.words() << ": " << j.judgement.reason;
    }
  }
}

TEST(OperatorTwin, SoftmaxWeightsMayBeDividedLast) {
  const Drawn drawn("latent_attention", "absorbed", 13, 5);
  TwinVariant variant;
  variant.softmax.divides_last = true;
  const Tensors<double> actual = drawn.kernel(1, variant);
  EXPECT_EQ(drawn.judge(actual).judgement.verdict, Verdict::pass);
  const TwinSubject subject = drawn.subject();
  TwinSearch search(subject, actual, kGatePolicy);
  search.run([](const TwinDistance&) { return false; });
  EXPECT_TRUE(search.nearest().variant.softmax.divides_last);
}

TEST(OperatorTwin, ATwinOfOtherSequencesIsTriedFirstHoweverFar) {
  const Drawn drawn("gated_delta_net", "chunked", 13, 5);
  TwinSubject subject = drawn.subject();
  SkippedPoints met;
  static_cast<void>(twin_values(subject, {}, &met));
  TwinVariant far;
  far.skipped = met;
  far.skipped.sort();
  std::vector<TwinVariant> known{far};
  subject.known = &known;
  const Tensors<double> actual = drawn.kernel(1);
  TwinSearch search(subject, actual, kGatePolicy);
  std::vector<TwinDistance> offered;
  search.run([&](const TwinDistance& twin) {
    offered.push_back(twin);
    return offered.size() == 2;
  });
  ASSERT_EQ(offered.size(), 2U);
  EXPECT_EQ(offered[0].variant, far);
  EXPECT_GT(offered[0].most, offered[1].most);
  EXPECT_EQ(offered[1].variant, TwinVariant{}) << "the kernel's own";

  EXPECT_EQ(judge_operator_twin(subject, actual, 7, kGatePolicy).judgement.verdict, Verdict::pass);
  ASSERT_EQ(known.size(), 2U);
  EXPECT_EQ(known.front(), TwinVariant{}) << "the last found is first";
  // A kernel that fails is not a twin of any choice.
  static_cast<void>(judge_operator_twin(subject, drawn.kernel(1, {}, Planted::functions), 7, kGatePolicy));
  EXPECT_EQ(known.size(), 2U);
}

// As FlashMLA takes them: a weight is stored under the largest score so far, and rescaled when that is raised.
TEST(OperatorTwin, KeysMayBeTakenInTilesWhereNoFormHasThem) {
  for (const Row& row : {Row{"latent_attention", "absorbed"}, Row{"softmax_attention", "grouped"}}) {
    for (const Index tile : {16, 64}) {
      int farther = 0;
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        const Drawn drawn(row.name, row.form, 150, seed);
        TwinVariant tiled;
        tiled.softmax.divides_last = true;
        tiled.softmax.key_tile = tile;
        const Tensors<double> kernel = drawn.kernel(1, tiled);
        const TwinJudgement j = drawn.judge(kernel);
        EXPECT_EQ(j.judgement.verdict, Verdict::pass)
            << row.name << " " << tile << ": " << j.judgement.reason;
        tiled.softmax.key_tile = 0;
        const Tensors<double> whole = twin_values(drawn.subject(), tiled);
        for (const auto& [name, x] : whole)
          farther += unshared(get(kernel, name), x, get(drawn.oracle.exact, name)).maxCoeff() > 0.25;
      }
      EXPECT_GT(farther, 0) << "tiles of " << tile << " show";
    }
  }
}

// FlashAttention-2 and its successors begin with the last tile, where the causal mask lies.
TEST(OperatorTwin, TheLastKeysMayComeFirst) {
  int farther = 0;
  const auto check = [&](const Row& row, const Drawn& drawn, const TwinVariant& variant, const char* under) {
    const Tensors<double> kernel = drawn.kernel(1, variant);
    const TwinJudgement j = drawn.judge(kernel);
    EXPECT_EQ(j.judgement.verdict, Verdict::pass) << row.name << " " << under << ": " << j.judgement.reason;
    TwinVariant ascending = variant;
    ascending.softmax.last_keys_first = false;
    for (const auto& [name, x] : twin_values(drawn.subject(), ascending))
      farther += unshared(get(kernel, name), x, get(drawn.oracle.exact, name)).maxCoeff() > 0.25;
    EXPECT_EQ(drawn.judge(drawn.kernel(1, variant, Planted::functions)).judgement.verdict, Verdict::fail)
        << row.name << " " << under;
  };
  TwinVariant last_first;
  last_first.softmax.last_keys_first = true;
  for (const Row& row : {Row{"softmax_attention", "online"}, Row{"gated_attention", "online"}}) {
    for (const char* under : {"bf16", "fp16"})
      check(row, {row.name, row.form, 70, 3, {}, under}, last_first, under);
  }
  const Row grouped{"softmax_attention", "grouped"};
  last_first.softmax.divides_last = true;
  last_first.softmax.key_tile = 16;
  check(grouped, {grouped.name, grouped.form, 150, 2}, last_first, "tiles of 16");
  EXPECT_GT(farther, 0) << "it shows";
}

// FlashAttention-4 leaves the maximum where rescaling is not worth it, by 8 in the exponent of 2: weights up to 256 are stored then.
TEST(OperatorTwin, AMaximumMayBeRaisedLazily) {
  for (const double by : {8.0 * 0.6931471805599453, 4.0, 16.0 * 0.6931471805599453}) {
    int farther = 0;
    for (const Row& row : {Row{"softmax_attention", "online"}, Row{"gated_attention", "online"}}) {
      for (const char* under : {"bf16", "fp16"}) {
        const Drawn drawn(row.name, row.form, 70, 3, {}, under);
        TwinVariant lazy;
        lazy.softmax.lazy_by = by;
        const Tensors<double> kernel = drawn.kernel(1, lazy);
        const TwinJudgement j = drawn.judge(kernel);
        EXPECT_EQ(j.judgement.verdict, Verdict::pass)
            << row.name << " " << under << " " << by << ": " << j.judgement.reason;
        for (const auto& [name, x] : twin_values(drawn.subject(), {}))
          farther += unshared(get(kernel, name), x, get(drawn.oracle.exact, name)).maxCoeff() > 0.25;
        // A rounding that neither kind of kernel does is seen all the same.
        EXPECT_EQ(drawn.judge(drawn.kernel(1, lazy, Planted::functions)).judgement.verdict, Verdict::fail)
            << row.name << " " << under << " " << by;
      }
    }
    EXPECT_GT(farther, 0) << by << ": it shows";
  }
}

// Keys from the last to the first and an output that is handed on in fp32: of few tokens neither alone comes nearer.
TEST(OperatorTwin, AnOrderAndAPointMayComeNearerOnlyTogether) {
  const Drawn first("gated_attention", "online", 2, 1);
  SkippedPoints met;
  (void)twin_values(first.subject(), {}, &met);
  int passed = 0;
  int judged = 0;
  for (const Point& point : met.points) {
    if (point.table().name != "gated_attention") continue;
    TwinVariant variant;
    variant.skipped.add(point);
    variant.softmax.last_keys_first = true;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      const Drawn drawn("gated_attention", "online", 2, seed);
      const TwinJudgement j = drawn.judge(drawn.kernel(1, variant));
      ++judged;
      passed += j.judgement.verdict == Verdict::pass;
    }
  }
  EXPECT_GE(judged, 60);
  EXPECT_EQ(passed, judged);
}

// A kernel that fuses the shared expert with its gate stores what the others gave and not that.
TEST(OperatorTwin, ASharedExpertHasPointsOfItsOwn) {
  const Drawn drawn("qwen3_next_moe", "sorted", 40, 5);
  SkippedPoints met;
  const Tensors<double> all = twin_values(drawn.subject(), {}, &met);
  int shown = 0;
  for (const Point& point : met.points) {
    if (point.table().name != "qwen3_next_moe") continue;
    TwinVariant variant;
    variant.skipped.points = {point};
    const Tensors<double> kernel = drawn.kernel(1, variant);
    EXPECT_EQ(drawn.judge(kernel).judgement.verdict, Verdict::pass) << variant.words();
    shown += unshared(get(kernel, "y"), get(all, "y"), get(drawn.oracle.exact, "y")).maxCoeff() > 0.25;
  }
  EXPECT_GT(shown, 0);
}

// One that reads its projections in fp32 has a cache of 16 bit all the same: the next call reads other numbers than this one.
TEST(OperatorTwin, AConvolutionsCacheIsStoredWhereItsOperandIsNot) {
  for (const Row& row : {Row{"gated_delta_net", "chunked"}, Row{"mamba2_mixer", "chunked"}}) {
    Drawn drawn(row.name, row.form, 13, 5);
    for (Index t = 5; t < 13; ++t) drawn.cuts.push_back(t);
    drawn.oracle = operator_oracle(drawn.op, drawn.call, drawn.inputs, drawn.cuts, drawn.contract);
    TwinVariant variant;
    (void)twin_values(drawn.subject(), {}, &variant.skipped);
    ASSERT_TRUE(variant.skipped.has(require_point("short_convolution.state")));
    const Tensors<double> in_fp32 = drawn.kernel(1, variant);
    std::erase(variant.skipped.points, require_point("short_convolution.state"));
    const Tensors<double> kernel = drawn.kernel(1, variant);
    const char* const output = row.name == std::string_view("mamba2_mixer") ? "out" : "y";
    EXPECT_NE(get(kernel, output), get(in_fp32, output));
    EXPECT_EQ(drawn.judge(kernel).judgement.verdict, Verdict::pass) << row.name;
  }
}

TEST(OperatorTwin, SeesRoundingsThatNoContractHas) {
  struct Fault {
    Row row;
    Planted planted;
  };
  constexpr Fault kFaults[] = {{{"rms_norm", "fused"}, Planted::functions},
                               {{"latent_cache", "direct"}, Planted::functions},
                               {{"gated_attention", "online"}, Planted::quotients},
                               {{"gated_delta_net", "chunked"}, Planted::functions},
                               {{"latent_attention", "absorbed"}, Planted::partial},
                               {{"qwen3_next_moe", "sorted"}, Planted::partial},
                               {{"mamba2_mixer", "chunked"}, Planted::quotients}};
  for (const Fault& fault : kFaults) {
    const Drawn drawn(fault.row.name, fault.row.form, 13, 5);
    const TwinJudgement j = drawn.judge(drawn.kernel(1, {}, fault.planted));
    EXPECT_EQ(j.judgement.verdict, Verdict::fail) << fault.row.name;
    EXPECT_GT(j.judgement.twin_ratio, 1.0);
    EXPECT_FALSE(j.same);
  }
}

/// A fault that the carried state alone shows, of two columns too, whose errors have too few directions to be a share: its
/// elements show it.
TEST(OperatorTwin, SeesRoundingsThatTheStateAloneShows) {
  for (const Index columns : {2, 32}) {
    const Drawn drawn("gated_delta_net", "chunked", 48, 5, {{"dk", 32}, {"dv", columns}});
    Tensors<double> actual = drawn.kernel(1);
    EXPECT_EQ(drawn.judge(actual).judgement.verdict, Verdict::pass);
    actual.at("S") = drawn.kernel(1, {}, Planted::functions).at("S");
    const TwinJudgement j = drawn.judge(actual);
    EXPECT_EQ(j.judgement.verdict, Verdict::fail);
    EXPECT_NE(j.judgement.reason.find("output S"), std::string::npos) << j.judgement.reason;
  }
}

/// Another twin gives S up, or the core's output, to come nearer to one that is at fault.
TEST(OperatorTwin, BlamesWhatIsWrongUnderEveryTwin) {
  for (std::uint64_t seed = 1; seed <= 9; ++seed) {
    const Drawn drawn("gated_delta_net", "chunked", 24, seed, {{"dk", 16}, {"dv", 16}});
    for (const Planted planted : {Planted::functions, Planted::quotients, Planted::partial}) {
      Tensors<double> actual = drawn.kernel(1);
      actual.at("y") = drawn.kernel(1, {}, planted).at("y");
      const TwinJudgement j = drawn.judge(actual);
      EXPECT_EQ(j.judgement.verdict, Verdict::fail) << seed;
      EXPECT_NE(j.judgement.reason.find("output y,"), std::string::npos)
          << seed << ": " << j.judgement.reason;
    }
  }
}

TEST(OperatorTwin, SeesAScaleOfThreeThousandths) {
  for (const Row& row : kRows) {
    const Drawn drawn(row.name, row.form, 13, 5);
    Tensors<double> actual = drawn.kernel(1);
    for (auto& [name, x] : actual)
      x = (1.003 * x).unaryExpr([](double e) { return round_to(e, Format::bf16); });
    EXPECT_EQ(drawn.judge(actual).judgement.verdict, Verdict::fail) << row.name;
  }
}

constexpr Row kProducts[] = {{"linear_attention_bidirectional", "state_first"},
                             {"linear_attention_normalised", "chunked"},
                             {"normalised_retention", "chunked"},
                             {"multi_scale_retention", "chunked"},
                             {"softmax_attention", "online"},
                             {"softmax_attention", "grouped"},
                             {"gated_attention", "online"},
                             {"gated_delta_net", "chunked"},
                             {"state_space_duality", "chunked"},
                             {"mamba2_mixer", "chunked"},
                             {"dendritic_attention", "compacted"},
                             {"latent_attention", "absorbed"},
                             {"latent_attention", "fully_absorbed"},
                             {"mixture_of_experts", "sorted"},
                             {"qwen3_next_moe", "sorted"}};

/// The points of the case and its form.
SkippedPoints points_of(const Drawn& drawn) {
  SkippedPoints met;
  (void)twin_values(drawn.subject(), {}, &met);
  return met;
}

TEST(OperatorTwin, KernelsOfATf32UnitAreTheTwin) {
  int kernels = 0, same = 0;
  for (const Row& row : kProducts) {
    for (const char* contract : {"tf32", "tf32_truncated"}) {
      const Drawn drawn(row.name, row.form, 13, 5, {}, contract);
      EXPECT_TRUE(drawn.oracle.points) << row.name;
      EXPECT_FALSE(points_of(drawn).points.empty()) << row.name;
      for (int n = 0; n < 3; ++n) {
        const TwinJudgement j = drawn.judge(drawn.kernel(n));
        EXPECT_EQ(j.judgement.verdict, Verdict::pass)
            << row.name << " " << contract << ": " << j.judgement.reason;
        // Cut off, a weight of one that fp32 has a last place less of is a spacing smaller.
        if (contract == std::string_view("tf32_truncated")) continue;
        ++kernels;
        same += j.same ? 1 : 0;
      }
    }
  }
  EXPECT_GE(10 * same, 9 * kernels) << "but where a rounding that fp32 turned is carried on";
}

// The unit takes both operands of a product or, of a product that a kernel makes elsewhere, none.
TEST(OperatorTwin, AProductMayBeMadeBesideTheTf32Unit) {
  const Drawn drawn("gated_attention", "online", 13, 5, {}, "tf32");
  const SkippedPoints met = points_of(drawn);
  EXPECT_EQ(met.points.size(), 6U) << "four projections, scores, values";
  TwinVariant variant;
  for (const Point& point : met.points) {
    variant.skipped.points = {point};
    const TwinJudgement j = drawn.judge(drawn.kernel(1, variant));
    EXPECT_EQ(j.judgement.verdict, Verdict::pass) << variant.words() << ": " << j.judgement.reason;
  }
}

TEST(OperatorTwin, SeesThatATf32UnitCutsOff) {
  for (const Row& row : kProducts) {
    const Drawn rounded(row.name, row.form, 13, 5, {}, "tf32");
    const Drawn cut(row.name, row.form, 13, 5, {}, "tf32_truncated");
    EXPECT_EQ(rounded.judge(cut.kernel(1)).judgement.verdict, Verdict::fail) << row.name;
    EXPECT_EQ(cut.judge(rounded.kernel(1)).judgement.verdict, Verdict::fail) << row.name;
  }
}

TEST(OperatorTwin, SeesRoundingsBesideTf32Operands) {
  for (const Row& row : kProducts) {
    const Drawn drawn(row.name, row.form, 13, 5, {}, "tf32");
    for (const Planted planted : {Planted::sums, Planted::partial}) {
      EXPECT_EQ(drawn.judge(drawn.kernel(1, {}, planted)).judgement.verdict, Verdict::fail) << row.name;
    }
  }
}

// One of data is one number, but units round the middle between two to even or away from zero.
TEST(OperatorTwin, TiesOfTf32MayFallEitherWay) {
  Drawn drawn("linear_attention_bidirectional", "state_first", 1, 5, {{"H", 1}, {"dk", 1}, {"dv", 1}},
              "tf32");
  for (const char* name : {"q", "k", "v"}) drawn.inputs.at(name) << 1.0;
  EXPECT_LT(get(twin_bound(drawn.subject(), {}).slack, "o")(0, 0), 1e-6);
  drawn.inputs.at("q") << 1.0 + 0x1p-11;
  EXPECT_GT(get(twin_bound(drawn.subject(), {}).slack, "o")(0, 0), 0x1p-11);
}

TEST(OperatorTwin, AFormWithoutProductsHasNoPointsUnderTf32) {
  for (const Row& row : {Row{"rms_norm", "fused"}, Row{"selective_scan", "chunked"},
                         Row{"linear_attention_normalised", "recurrent"}}) {
    const Drawn drawn(row.name, row.form, 13, 5, {}, "tf32");
    EXPECT_FALSE(drawn.oracle.points) << row.name;
    EXPECT_TRUE(points_of(drawn).points.empty()) << row.name;
    const Drawn fp32(row.name, row.form, 13, 5, {}, "fp32");
    for (const auto& [name, tolerance] : fp32.oracle.tolerance)
      EXPECT_GE(get(drawn.oracle.tolerance, name).sum(), tolerance.sum());
  }
}

TEST(OperatorTwin, NaNIsNotTheTwin) {
  const Drawn drawn("rms_norm", "fused", 13, 5);
  Tensors<double> actual = drawn.kernel(1);
  actual["y"](2, 1) = kNaN;
  EXPECT_EQ(drawn.judge(actual).judgement.verdict, Verdict::fail);
}

// Weights just below one are one in a kernel, or are cut off to the number below: a twin that divides last
// knows that. If the products after them cut off what it keeps apart, a twin that divides first has the same
// values and does not know it.
TEST(OperatorTwin, TwinsOfTheSameValuesHaveBoundsOfTheirOwn) {
  TwinVariant last;
  last.softmax.divides_last = true;
  int same = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Drawn drawn("latent_attention", "absorbed", 3, seed,
                {{"D", 2}, {"H", 2}, {"dn", 5}, {"dr", 32}, {"dv", 2}, {"dc", 4}, {"q_lora", 0}},
                "tf32_truncated");
    for (const char* name : {"x", "c", "kr"}) drawn.inputs.find(name)->second *= 0x1p-13;
    drawn.oracle = operator_oracle(drawn.op, drawn.call, drawn.inputs, drawn.cuts, drawn.contract);
    same +=
        get(twin_values(drawn.subject(), {}), "y") == get(twin_values(drawn.subject(), last), "y") ? 1 : 0;
    for (int n = 0; n < 4; ++n) {
      const TwinJudgement j = drawn.judge(drawn.kernel(n, last));
      EXPECT_NE(j.judgement.verdict, Verdict::fail) << seed << ": " << j.judgement.reason;
    }
  }
  EXPECT_GT(same, 0);
}

}  // namespace
}  // namespace samestate
