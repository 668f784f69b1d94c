#include "oracles/systems/judge_operator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "oracles/contracts.h"
#include "oracles/numbers.h"

namespace samestate {
namespace {

const Operator& op() { return *find_operator("linear_attention_normalised"); }

/// An oracle of one output.
OperatorOracle oracle(double expected, double tolerance) {
  OperatorOracle o;
  o.exact["o"] = Matrix<double>::Constant(2, 2, expected);
  o.tolerance["o"] = Matrix<double>::Constant(2, 2, tolerance);
  return o;
}

Judgement judge(const OperatorOracle& oracle, double actual, double last) {
  Matrix<double> o = Matrix<double>::Constant(2, 2, actual);
  o(1, 1) = last;
  return judge_operator(op(), oracle, {{"o", o}});
}

TEST(JudgeOperator, RatioIsErrorOverBoundOfTheWorstElement) {
  const Judgement j = judge(oracle(1.0, 0.1), 1.0, 1.05);
  EXPECT_EQ(j.verdict, Verdict::pass);
  EXPECT_NEAR(j.ratio, 0.5, 1e-12);
  EXPECT_EQ(j.worst.token, 1);
  EXPECT_EQ(j.worst.channel, 1);
  EXPECT_EQ(j.rows, 2);
  EXPECT_EQ(judge(oracle(1.0, 0.1), 1.0, 1.11).verdict, Verdict::fail);
}

// If heads are next to each other in a row, the place says which of them, and where in it.
TEST(JudgeOperator, TheWorstElementIsPlacedByHead) {
  OperatorOracle of = oracle(1.0, 0.1);
  of.axes["o"] = {.width = 1, .tokens = true};
  EXPECT_EQ(judge(of, 1.0, 1.05).worst.head, 1);
  EXPECT_EQ(judge(of, 1.0, 1.05).worst.channel, 0);
  EXPECT_EQ(judge(of, 1.0, 1.05).worst.token, 1);
}

TEST(JudgeOperator, NaNAndInfinityFail) {
  for (double wrong : {kNaN, kInfinity, -kInfinity}) {
    const Judgement j = judge(oracle(1.0, 0.1), 1.0, wrong);
    EXPECT_EQ(j.verdict, Verdict::fail);
    EXPECT_TRUE(std::isinf(j.ratio));
  }
}

// A format without the number excuses what it makes of it, where it may have met it and nowhere else.
TEST(JudgeOperator, OverflowIsExcusedWhereTheRangeMayBeLeft) {
  OperatorOracle o = oracle(1.0, 0.1);
  o.tolerance["o"](1, 1) = kInfinity;
  for (double wrong : {kNaN, kInfinity, -kInfinity}) {
    EXPECT_EQ(judge(o, 1.0, wrong).verdict, Verdict::fail) << "a loose bound";
    Matrix<bool>& overflows = o.overflows["o"];
    overflows = Matrix<bool>::Constant(2, 2, false);
    overflows(1, 1) = true;
    EXPECT_EQ(judge(o, 1.0, wrong).verdict, Verdict::pass);
    EXPECT_EQ(judge(o, wrong, 1.0).verdict, Verdict::fail) << "beside it";
    overflows(1, 1) = false;
    overflows(0, 0) = true;
    EXPECT_EQ(judge(o, 1.0, wrong).verdict, Verdict::fail)
        << "a loose bound, in a run that overflows elsewhere";
    o.overflows.clear();
  }
}

// One of two heads overflows fp16, and the other divides by a number that may be zero: nothing is known about
// either, but only the first may be NaN.
TEST(JudgeOperator, AnOverflowExcusesNoNaNOfWhatIsNotMadeOfIt) {
  Call call;
  call.form = "recurrent";
  call.tokens = 1;
  call.chunk = 1;
  call.parameters = {{"H", 2}, {"dk", 2}, {"dv", 1}};
  Tensors<double> inputs;
  for (const TensorSpec& spec : op().signature(call).inputs)
    inputs[spec.name] = Matrix<double>::Constant(spec.rows(), spec.columns(), 1.0);
  inputs["S"].setZero();
  inputs["z"].setZero();
  inputs["v"](0, 0) = 70000.0;
  inputs["q"](0, 3) = -1.0;
  inputs["k"](0, 3) = 1.0 - 1e-9;
  const OperatorOracle of = operator_oracle(op(), call, inputs, {}, contract_named("fp16"));
  ASSERT_TRUE(get(of.exact, "o").allFinite());
  ASSERT_TRUE(std::isinf(get(of.tolerance, "o")(0, 0)));
  ASSERT_TRUE(std::isinf(get(of.tolerance, "o")(0, 1)));
  for (const Index column : {0, 1}) {
    Tensors<double> actual = of.exact;
    actual["o"](0, column) = kNaN;
    EXPECT_EQ(judge_operator(op(), of, actual).verdict == Verdict::fail, column == 1) << column;
  }
}

// The norm without epsilon of a row that cancels to less than its roundings may be 0 / 0.
TEST(JudgeOperator, ARowThatMayBeZeroHasNoNorm) {
  const Operator& retention = *find_operator("normalised_retention");
  Call call;
  call.form = "chunked";
  call.tokens = 2;
  call.chunk = 1;
  call.parameters = {{"H", 1}, {"dk", 2}, {"dv", 1}};
  const auto excused = [&](double second, double epsilon) {
    Tensors<double> inputs;
    inputs["q"] = Matrix<double>::Ones(2, 2);
    inputs["k"] = Matrix<double>::Zero(2, 2);
    inputs["k"].row(0) << 1.0, second;
    inputs["v"] = Matrix<double>::Constant(2, 1, epsilon);
    const OperatorOracle of = operator_oracle(retention, call, inputs, {}, contract_named("fp32"));
    EXPECT_TRUE(get(of.exact, "o").allFinite());
    Tensors<double> actual = of.exact;
    actual["o"](1, 0) = kNaN;
    return of.may_overflow("o", 1, 0) && judge_operator(retention, of, actual).verdict != Verdict::fail;
  };
  EXPECT_TRUE(excused(-1.0 + 0x1p-24, 1.0));
  EXPECT_FALSE(excused(-1.0 + 0x1p-12, 1.0));
  EXPECT_TRUE(excused(-0.5, 0x1p-120)) << "its square is below all numbers of fp32";
}

// Two experts have probability 0 next to the one that is chosen: which of them is the second is open, and
// only one of them leaves fp16.
TEST(JudgeOperator, AnOpenChoiceMayOverflowByWhatNobodyComputed) {
  const Operator& block = *find_operator("qwen3_next_moe");
  Call call;
  call.form = "loop";
  call.tokens = 1;
  call.parameters = {{"D", 1}, {"N", 3}, {"K", 2}, {"F", 1}, {"Fs", 1}};
  const auto excused = [&](double of_the_third) {
    Tensors<double> inputs;
    for (const TensorSpec& spec : block.signature(call).inputs)
      inputs[spec.name] = Matrix<double>::Constant(spec.rows(), spec.columns(), 1.0);
    inputs["x"](0, 0) = 1000.0;
    inputs["router"] << 1.0, -1.0, -1.0;
    inputs["gate"] << 0.001, 0.001, of_the_third;
    inputs["shared_gate_proj"].setZero();
    const OperatorOracle of = operator_oracle(block, call, inputs, {}, contract_named("fp16"));
    EXPECT_TRUE(of.undecided.at("y")(0, 0));
    return of.may_overflow("y", 0, 0);
  };
  EXPECT_TRUE(excused(1.0));
  EXPECT_FALSE(excused(0.001));
}

TEST(JudgeOperator, TheRangeIsThatOfTheContract) {
  const Operator& sum = *find_operator("linear_attention_bidirectional");
  Call call;
  call.form = "state_first";
  call.tokens = 1;
  call.parameters = {{"H", 1}, {"dk", 1}, {"dv", 2}};
  const auto with = [&](double value, const char* contract) {
    Tensors<double> inputs;
    for (const TensorSpec& spec : sum.signature(call).inputs)
      inputs[spec.name] = Matrix<double>::Constant(spec.rows(), spec.columns(), 1.0);
    inputs["v"](0, 0) = value;
    return operator_oracle(sum, call, inputs, {}, contract_named(contract));
  };
  const OperatorOracle beyond = with(70000.0, "fp16");
  EXPECT_TRUE(beyond.may_overflow("o", 0, 0));
  EXPECT_FALSE(beyond.may_overflow("o", 0, 1));
  EXPECT_TRUE(beyond.row_may_overflow("o", 0));
  EXPECT_TRUE(std::isinf(get(beyond.tolerance, "o")(0, 0)));
  EXPECT_TRUE(std::isfinite(get(beyond.tolerance, "o")(0, 1)));
  for (const auto& [value, contract] :
       {std::pair(70000.0, "bf16"), std::pair(70000.0, "fp32"), std::pair(60000.0, "fp16")}) {
    const OperatorOracle within = with(value, contract);
    EXPECT_TRUE(within.overflows.empty()) << contract;
    EXPECT_TRUE(get(within.tolerance, "o").allFinite()) << contract;
  }
}

TEST(JudgeOperator, ToleranceOfZeroAllowsNothing) {
  EXPECT_EQ(judge(oracle(1.0, 0.0), 1.0, 1.0).verdict, Verdict::pass);
  EXPECT_EQ(judge(oracle(1.0, 0.0), 1.0, 1.0 + 1e-15).verdict, Verdict::fail);
}

TEST(JudgeOperator, VacuousWhereNothingCanBeSaid) {
  EXPECT_EQ(judge(oracle(0.0, 0.1), 0.0, 0.0).verdict, Verdict::vacuous);
  EXPECT_EQ(judge(oracle(1.0, 0.6), 1.0, 1.0).verdict, Verdict::vacuous);
  EXPECT_EQ(judge(oracle(1.0, kInfinity), 1.0, 7.0).verdict, Verdict::vacuous);
  EXPECT_EQ(judge_operator(op(), {}, {}).verdict, Verdict::vacuous);
}

TEST(JudgeOperator, AnErrorBeyondALooseBoundStillFails) {
  EXPECT_EQ(judge(oracle(1.0, 0.6), 1.0, 2.0).verdict, Verdict::fail);
}

TEST(JudgeOperator, ElementsWithoutToleranceAreLeftOutAndCounted) {
  OperatorOracle o = oracle(1.0, 0.1);
  o.tolerance["o"](1, 1) = kInfinity;
  const Judgement j = judge(o, 1.0, 99.0);
  EXPECT_EQ(j.verdict, Verdict::pass);
  EXPECT_NE(j.reason.find("1 element"), std::string::npos);
}

TEST(JudgeOperator, NaNFailsWhereNoBoundIsFinite) {
  OperatorOracle o = oracle(1.0, 0.1);
  o.tolerance["o"](1, 1) = kInfinity;
  EXPECT_EQ(judge(o, 1.0, kNaN).verdict, Verdict::fail);
  EXPECT_EQ(judge(o, 1.0, kInfinity).verdict, Verdict::fail);
  o.exact["o"](1, 1) = kNaN;  // nor does the oracle know
  EXPECT_EQ(judge(o, 1.0, kNaN).verdict, Verdict::pass);
}

TEST(JudgeOperator, AnOutputThatIsMostlyLeftOutIsVacuous) {
  OperatorOracle o = oracle(1.0, 0.1);
  o.tolerance["o"].row(0).setConstant(kInfinity);
  EXPECT_EQ(judge(o, 1.0, 1.0).verdict, Verdict::vacuous);
}

TEST(JudgeOperator, OutputsThatABoundSaysNothingOfAreNamed) {
  OperatorOracle o = oracle(1.0, 0.1);
  o.exact["S"] = Matrix<double>::Constant(1, 1, 1.0);
  o.tolerance["S"] = Matrix<double>::Constant(1, 1, 0.9);
  const Judgement j = judge_operator(op(), o, {{"o", o.exact["o"]}, {"S", o.exact["S"]}});
  EXPECT_EQ(j.verdict, Verdict::pass);
  EXPECT_NE(j.reason.find("size: S"), std::string::npos) << j.reason;
}

TEST(JudgeOperator, WrongShapeIsAnError) {
  EXPECT_THROW((void)judge_operator(op(), oracle(1.0, 0.1), {{"o", Matrix<double>(1, 2)}}), Error);
  EXPECT_THROW((void)judge_operator(op(), oracle(1.0, 0.1), {}), Error);
}

TEST(Operators, EveryRowEvaluatesAllItsFormsAlike) {
  for (const Operator& row : operators()) {
    Call call;
    call.tokens = 5;
    call.chunk = 2;
    for (const Parameter& p : row.parameters) {
      call.parameters.emplace(p.name, p.standard);
      EXPECT_LE(p.least, p.standard) << row.name << " " << p.name;
      EXPECT_LE(p.standard, p.most) << row.name << " " << p.name;
    }
    ASSERT_FALSE(row.forms.empty()) << row.name;
    for (const OperatorForm& form : row.forms) {
      call.form = form.name;
      Tensors<double> inputs;
      for (const TensorSpec& spec : row.signature(call).inputs) {
        Matrix<double> x(spec.rows(), spec.columns());
        for (Index i = 0; i < x.size(); ++i)
          x.data()[i] = 0.5 + 0.4 * std::sin(static_cast<double>(3 * i + 1));
        // The last slot, or the last experts.
        for (Index j = 0; spec.content == Content::slot && j < x.cols(); ++j)
          x.col(j).setConstant(static_cast<double>(spec.slots - 1 - j));
        inputs.emplace(spec.name, std::move(x));
      }
      // The tolerance of each form is on the exact value, so an evaluation of the reference in that form
      // passes.
      const OperatorOracle oracle = operator_oracle(row, call, inputs, {}, contract_named("fp32"));
      const Judgement j = judge_operator(row, oracle, row.exact(call, inputs));
      EXPECT_NE(j.verdict, Verdict::fail) << row.name << " " << form.name << ": " << j.ratio;
    }
  }
}

// A row that says which sizes are possible says what its signature says.
TEST(Operators, SizesArePossibleExactlyWhereThereIsASignature) {
  int rows = 0;
  for (const Operator& row : operators()) {
    if (row.possible == nullptr) continue;
    ++rows;
    int impossible = 0;
    for (unsigned draw = 0; draw < 300; ++draw) {
      Call call;
      call.tokens = 5;
      call.form = row.forms.front().name;
      unsigned place = draw;
      for (const Parameter& p : row.parameters) {
        place = place * 1664525U + 1013904223U;
        call.parameters.emplace(p.name, std::min(p.most, p.least + static_cast<Index>((place >> 16) % 9)));
      }
      bool there = true;
      try {
        (void)row.signature(call);
      } catch (const Error&) {
        there = false;
      }
      ASSERT_EQ(row.possible(call), there) << row.name << " draw " << draw;
      impossible += there ? 0 : 1;
    }
    EXPECT_GT(impossible, 10) << row.name << " needs none";
    EXPECT_LT(impossible, 290) << row.name;
  }
  EXPECT_GE(rows, 8);
}

}  // namespace
}  // namespace samestate
