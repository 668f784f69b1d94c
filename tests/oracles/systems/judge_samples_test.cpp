#include "oracles/systems/judge_samples.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/numbers.h"
#include "oracles/systems/scalars.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

constexpr Index kSampleRows = 12;
constexpr Index kColumns = 16;

/// An oracle of one output y and 32 samples whose errors are normal, of standard deviation 0.01.
struct Model {
  OperatorOracle oracle;
  SampledErrors errors;
  std::mt19937_64 engine{17};

  explicit Model(int samples = kGatePolicy.samples) {
    oracle.exact["y"] = draw(1.0);
    oracle.undecided["y"] = Matrix<bool>::Constant(kSampleRows, 1, false);
    errors.between["y"] = Matrix<double>::Constant(kSampleRows, kColumns, 1e-6);
    for (int n = 0; n < samples; ++n) errors.samples.push_back({{"y", draw(0.01)}});
  }
  Matrix<double> draw(double size) {
    std::normal_distribution<double> normal(0.0, size);
    return Matrix<double>::NullaryExpr(kSampleRows, kColumns, [&] { return normal(engine); });
  }
  Judgement judge(const std::function<void(Matrix<double>&)>& fault = [](Matrix<double>&) {}) {
    Matrix<double> y = get(oracle.exact, "y") + draw(0.01);
    fault(y);
    return judge_samples(oracle, errors, {{"y", y}});
  }
};

TEST(JudgeSamples, ARightKernelIsOneOfThePopulation) {
  Model model;
  double largest = 0.0;
  for (int i = 0; i < 2000; ++i) {
    const Judgement j = model.judge();
    ASSERT_EQ(j.verdict, Verdict::pass) << j.reason;
    largest = std::max(largest, j.ratio);
  }
  EXPECT_LT(largest, 0.9);
  EXPECT_GT(largest, 0.4);  // limits that nothing comes near would say little
}

TEST(JudgeSamples, EachStatisticSeesItsFault) {
  Model model;
  const auto gate = [&](const std::function<void(Matrix<double>&)>& fault) {
    const Judgement j = model.judge(fault);
    EXPECT_EQ(j.verdict, Verdict::fail);
    EXPECT_GT(j.sampled_ratio, 1.0);
    return j.gate;
  };
  EXPECT_EQ(gate([&](auto& y) { y += model.draw(0.03); }), "sampled tensor");
  EXPECT_EQ(gate([](auto& y) { y(3, 5) += 0.5; }), "sampled element");
  EXPECT_EQ(gate([](auto& y) { y.row(3).array() += 0.05; }), "sampled row");
  EXPECT_EQ(gate([](auto& y) { y.col(5).array() += 0.035; }), "sampled column");
  EXPECT_EQ(gate([](auto& y) { y *= 1.012; }), "sampled slope");
}

TEST(JudgeSamples, WhereNothingRoundsTheWorkingPrecisionIsAllThereIs) {
  Model model;
  for (Tensors<double>& sample : model.errors.samples) sample["y"].setZero();
  const auto off = [&](double by) {
    return judge_samples(model.oracle, model.errors, {{"y", get(model.oracle.exact, "y").array() + by}});
  };
  EXPECT_EQ(off(0.9e-6).verdict, Verdict::vacuous);  // within `between`: no sample and no kernel errs
  EXPECT_EQ(off(1e-4).verdict, Verdict::fail);
}

// After a norm, errors are orthogonal to y, but what is subtracted from their elements for fp32 is not.
TEST(JudgeSamples, WhatIsTakenOffAnErrorIsNoSlope) {
  Model model;
  const Matrix<double>& y = get(model.oracle.exact, "y");
  const auto orthogonal = [&](Matrix<double> e) {
    for (Index i = 0; i < e.rows(); ++i)
      e.row(i) -= e.row(i).dot(y.row(i)) / y.row(i).squaredNorm() * y.row(i);
    return e;
  };
  for (Tensors<double>& sample : model.errors.samples) sample["y"] = orthogonal(sample["y"]);
  model.errors.between["y"].setConstant(0.003);
  const auto with = [&](double factor) {
    return judge_samples(model.oracle, model.errors, {{"y", factor * (y + orthogonal(model.draw(0.01)))}});
  };
  for (int i = 0; i < 200; ++i) EXPECT_EQ(with(1.0).verdict, Verdict::pass) << with(1.0).gate;
  EXPECT_EQ(with(1.012).gate, "sampled slope");
  EXPECT_EQ(with(1.012).verdict, Verdict::fail);
}

TEST(JudgeSamples, NaNFailsWhateverIsKnown) {
  Model model;
  model.errors.between["y"].setConstant(kInfinity);
  EXPECT_EQ(model.judge([](auto& y) { y(0, 0) = kNaN; }).verdict, Verdict::fail);
  EXPECT_EQ(model.judge([](auto& y) { y.setConstant(kNaN); }).verdict, Verdict::fail);
  EXPECT_EQ(model.judge().verdict, Verdict::vacuous);
}

TEST(JudgeSamples, UndecidedRowsAreLeftOut) {
  Model model;
  const auto wrong = [](auto& y) { y.row(4).setConstant(99.0); };
  EXPECT_EQ(model.judge(wrong).verdict, Verdict::fail);
  model.oracle.undecided["y"](4, 0) = true;
  EXPECT_EQ(model.judge(wrong).verdict, Verdict::pass);
}

TEST(JudgeSamples, AnOutputBeyondTheRangeOfASampleIsNotJudged) {
  Model model;
  model.errors.samples[3]["y"](0, 0) = kInfinity;
  EXPECT_EQ(model.judge([](auto& y) { y.setConstant(99.0); }).verdict, Verdict::vacuous);
}

TEST(JudgeSamples, SpreadAboveTheSizeIsVacuous) {
  Model model;
  model.oracle.exact["y"] *= 0.01;
  EXPECT_EQ(model.judge().verdict, Verdict::vacuous);
}

/// The reference itself as a kernel of bf16, with and without a rounding that its contract does not know.
TEST(JudgeSampled, OperatorsWithPlantedRoundings) {
  const Operator& op = *find_operator("gated_delta_net");
  Call call;
  call.form = "recurrent";
  call.tokens = 12;
  for (const Parameter& p : op.parameters) call.parameters.emplace(p.name, p.standard);
  const Contract& contract = contract_named("bf16");
  std::mt19937_64 engine(23);
  std::normal_distribution<double> normal;
  Tensors<double> inputs;
  for (const TensorSpec& spec : op.signature(call).inputs) {
    const bool state = spec.axis == Axis::state;
    Matrix<double> x = Matrix<double>::NullaryExpr(spec.rows(), spec.columns(), [&] {
      if (state) return 0.0;
      if (spec.content == Content::mask) return 1.0;
      const double size =
          spec.content == Content::weight ? 1.0 / std::sqrt(static_cast<double>(spec.columns())) : 1.0;
      return round_to(size * normal(engine), Format::bf16);
    });
    inputs.emplace(spec.name, std::move(x));
  }
  const OperatorOracle oracle = operator_oracle(op, call, inputs, {}, contract);
  ASSERT_EQ(judge_operator(op, oracle, oracle.exact).verdict, Verdict::pass);
  const auto with = [&](const Tensors<double>& actual) {
    return judge_sampled(op, call, inputs, {}, contract, oracle, 1, actual, kGatePolicy);
  };
  // A member of the population that the judge did not draw.
  Tensors<double> fresh = oracle.exact;
  const SampledErrors drawn = sample_errors(op, call, inputs, {}, contract, oracle, 1, 4000, 1);
  for (const auto& [name, error] : drawn.samples.front()) fresh[name] += error;
  EXPECT_EQ(with(fresh).verdict, Verdict::pass);
  EXPECT_EQ(with(oracle.exact).verdict, Verdict::pass) << "fewer roundings are covered";
  // An output kept in 4 bits, and one that is 2 % too large.
  Tensors<double> coarse = fresh;
  coarse["y"] = coarse["y"].unaryExpr([](double x) {
    const double half = 16.0 * half_ulp(x, Format::bf16);
    return half > 0.0 ? 2.0 * half * std::nearbyint(x / (2.0 * half)) : x;
  });
  EXPECT_EQ(with(coarse).verdict, Verdict::fail);
  Tensors<double> scaled = fresh;
  scaled["y"] *= 1.02;
  EXPECT_EQ(with(scaled).verdict, Verdict::fail);
}

/// rms_norm of three tokens.
struct Norms {
  const Operator& op = *find_operator("rms_norm");
  Call call;
  Tensors<double> inputs;

  Norms() {
    call.form = op.forms.front().name;
    call.tokens = 3;
    for (const Parameter& p : op.parameters) call.parameters.emplace(p.name, p.standard);
    double n = 1.0;
    for (const TensorSpec& spec : op.signature(call).inputs) {
      inputs.emplace(spec.name, Matrix<double>::NullaryExpr(spec.rows(), spec.columns(),
                                                            [&n] { return std::sin(n += 1.0); }));
    }
  }
};

TEST(JudgeSampled, EqualSeedsDrawEqualSamples) {
  const Norms norms;
  const auto& [op, call, inputs] = norms;
  const Contract& contract = contract_named("bf16");
  const OperatorOracle oracle = operator_oracle(op, call, inputs, {}, contract);
  const auto draw = [&](std::uint64_t seed) {
    return get(sample_errors(op, call, inputs, {}, contract, oracle, seed, 5, 1).samples.front(), "y");
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  EXPECT_FALSE(has_samples(contract_named("fp32")));
  EXPECT_TRUE(has_samples(contract));
  EXPECT_TRUE(has_samples(contract_named("tf32")));
}

/// Latent attention of a model's width: what fp32 may do between two stored tensors is anything in the worst case, and little
/// where it is drawn.
TEST(JudgeSampled, WhereTheWorstCaseBetweenPointsHidesEverythingAllIsDrawn) {
  const Operator& op = *find_operator("latent_attention");
  Call call;
  call.form = "absorbed";
  call.tokens = 3;
  call.parameters = {{"D", 1024}, {"H", 1}, {"dn", 128}, {"dr", 64}, {"dv", 64}, {"dc", 512}, {"q_lora", 0}};
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal;
  Tensors<double> inputs;
  for (const TensorSpec& spec : op.signature(call).inputs) {
    const double size =
        spec.content == Content::weight ? 1.0 / std::sqrt(static_cast<double>(spec.columns())) : 1.0;
    inputs.emplace(spec.name, Matrix<double>::NullaryExpr(spec.rows(), spec.columns(), [&] {
                     return round_to(size * normal(engine), Format::bf16);
                   }));
  }
  const Contract& contract = contract_named("bf16");
  const OperatorOracle oracle = operator_oracle(op, call, inputs, {}, contract);
  EXPECT_EQ(judge_operator(op, oracle, oracle.exact).verdict, Verdict::vacuous);
  const SampledErrors points = sample_errors(op, call, inputs, {}, contract, oracle, 1, 4000, 1);
  EXPECT_GT(get(points.between, "y").norm(), kVacuousOutput * get(oracle.exact, "y").norm());
  const auto with = [&](double factor, const Tensors<double>& error) {
    Tensors<double> actual = oracle.exact;
    actual["y"] = factor * actual["y"] + get(error, "y");
    return judge_sampled(op, call, inputs, {}, contract, oracle, 1, actual, kGatePolicy);
  };
  const Tensors<double>& error = points.samples.front();
  EXPECT_EQ(with(1.0, error).verdict, Verdict::pass) << with(1.0, error).reason;
  EXPECT_EQ(with(1.02, error).verdict, Verdict::fail);
}

// Four times as many samples more are drawn where they may acquit: a tie that 32 did not turn is a large error.
TEST(JudgeSampled, AGrossErrorInFp32HasNoSecondLook) {
  const Norms norms;
  const auto& [op, call, inputs] = norms;
  for (const std::string_view name : {"fp32", "bf16"}) {
    const Contract& contract = contract_named(name);
    const OperatorOracle oracle = operator_oracle(op, call, inputs, {}, contract);
    Tensors<double> scaled = oracle.exact;
    scaled["y"] *= 1.2;
    const SampledErrors first =
        sample_errors(op, call, inputs, {}, contract, oracle, 1, 0, kGatePolicy.samples);
    const double at_first = judge_samples(oracle, first, scaled).ratio;
    const Judgement last = judge_sampled(op, call, inputs, {}, contract, oracle, 1, scaled, kGatePolicy);
    EXPECT_GT(at_first, kGrossExcess);
    EXPECT_EQ(last.verdict, Verdict::fail);
    EXPECT_EQ(last.ratio == at_first, name == "fp32") << name;
  }
}

// With two keys in tiles of one, of which the later has the larger score, no weight is rounded, except where
// the maximum stays.
TEST(JudgeSampled, TakesASoftmaxInTheOrderOfTheTwin) {
  SoftmaxOrder lazy;
  lazy.lazy_by = 4.0;
  int passed = 0, convicted = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    DrawnSubject drawn("softmax_attention", "online", 5, {}, "bf16_out_fp32", seed);
    drawn.call.chunk = 1;
    drawn.judge();
    SampledModel model = SampledModel::sample(drawn.contract, 77, 3);
    model.softmax = lazy;
    const SamplingScope scope(model);
    Tensors<double> actual;
    for (const auto& [name, x] : evaluate(drawn.op.stochastic, drawn.op, drawn.call, drawn.inputs, {}))
      actual.emplace(name,
                     x.unaryExpr([](const Stochastic& e) { return round_to(e.value(), Format::fp32); }));
    const auto under = [&](const SoftmaxOrder& order) {
      return judge_sampled(drawn.op, drawn.call, drawn.inputs, {}, drawn.contract, drawn.oracle, 1, actual,
                           kGatePolicy, {}, order);
    };
    passed += under(lazy).verdict == Verdict::pass;
    convicted += under({}).verdict == Verdict::fail;
  }
  EXPECT_EQ(passed, 16);
  EXPECT_GT(convicted, 0) << "it shows";
}

}  // namespace
}  // namespace samestate
