#include "oracles/systems/kernel_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "oracles/contracts.h"
#include "oracles/systems/judge_sequence.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

/// A token whose second choice is open: the rows 1 and 2 of its router are the same but for what no fp32 sum tells apart.
struct Open : DrawnSubject {
  Open(const char* name, const char* form, const std::map<std::string, Index>& sizes, const char* x,
       Index candidates, const char* under)
      : DrawnSubject(name, form, 2, sizes, under, 11) {
    Matrix<double>& router = inputs["router"];
    router.setZero();
    for (Index i = 0; i < candidates; ++i)
      router(i, 0) = i == 0 ? 2.0 : i < 3 ? 1.0 : -1.0 - static_cast<double>(i);
    router(1, 1) = 0x1p-12;
    if (inputs.contains("scaling")) inputs["scaling"].setOnes();
    inputs[x].col(0).setOnes();
    inputs[x].col(1).setConstant(0x1p-12);
    DrawnSubject::judge();
  }

  /// Outputs of a kernel, exact but for its choice.
  [[nodiscard]] Tensors<double> kernel(const Matrix<Index>& choice) const {
    Call other = call;
    other.choice = std::make_shared<const Matrix<Index>>(choice);
    return op.exact(other, inputs);
  }
  [[nodiscard]] Matrix<Index> both(Index first, Index second) const {
    Matrix<Index> out(2, 2);
    out << first, second, first, second;
    return out;
  }
  [[nodiscard]] std::optional<ChosenByKernel> chosen(const Tensors<double>& actual) const {
    return chosen_by_kernel(op, call, inputs, {}, contract, oracle, actual);
  }
  [[nodiscard]] Judgement judge(const Tensors<double>& actual) const {
    const std::optional<ChosenByKernel> found = chosen(actual);
    const std::vector<Index> cuts;
    const GatesAsked all{[](Verdict) { return true; }, [](Verdict) { return true; }};
    return judge_sequence(
        {op, found ? found->call : call, inputs, cuts, contract, found ? found->oracle : oracle}, actual, 5,
        kGatePolicy, all);
  }
};

Open block(const char* under) {
  return {"qwen3_next_moe", "loop", {{"D", 8}, {"N", 5}, {"K", 2}, {"F", 6}, {"Fs", 4}}, "x", 5, under};
}

TEST(KernelChoice, ABlockIsJudgedByTheExpertsThatItsKernelChose) {
  for (const char* under : {"fp32", "bf16"}) {
    const Open of = block(under);
    ASSERT_TRUE(get(of.oracle.undecided, "y").all()) << under;
    for (const Index second : {1, 2}) {
      const Tensors<double> right = of.kernel(of.both(0, second));
      const std::optional<ChosenByKernel> found = of.chosen(right);
      ASSERT_TRUE(found) << under;
      EXPECT_EQ(*found->call.choice, of.both(0, second)) << under;
      EXPECT_FALSE(get(found->oracle.undecided, "y").any());
      EXPECT_TRUE(get(found->oracle.tolerance, "y").allFinite());
      EXPECT_LT((get(found->oracle.exact, "y") - get(right, "y")).norm(), 1e-14);
      EXPECT_EQ(of.judge(right).verdict, Verdict::pass) << under;
    }
  }
}

// Each of these passed while the token was open: nothing was said of it.
TEST(KernelChoice, WhatIsWrongOfAnOpenTokenIsSeen) {
  const Open of = block("fp32");
  const Tensors<double> right = of.kernel(of.both(0, 2));
  ASSERT_EQ(judge_operator(of.op, of.oracle, right).verdict, Verdict::vacuous);
  Tensors<double> scaled = right;
  scaled["y"].row(1) *= 1.001;
  EXPECT_EQ(of.judge(scaled).verdict, Verdict::fail);
  EXPECT_EQ(of.judge(of.kernel(of.both(0, 3))).verdict, Verdict::fail) << "an expert that none may choose";
  EXPECT_EQ(of.judge(of.kernel(of.both(1, 2))).verdict, Verdict::fail) << "without one that all choose";
}

TEST(KernelChoice, WhatIsNoNumberTellsOfNoChoice) {
  const Open of = block("fp32");
  Tensors<double> wrong = of.kernel(of.both(0, 1));
  wrong["y"](0, 3) = std::nan("");
  const std::optional<ChosenByKernel> found = of.chosen(wrong);
  ASSERT_TRUE(found);
  EXPECT_EQ((*found->call.choice)(0, 0), -1);
  EXPECT_EQ((*found->call.choice)(1, 1), 1);
  EXPECT_EQ(of.judge(wrong).verdict, Verdict::fail);
}

TEST(KernelChoice, RoutersAreJudgedByTheWeightsThatTheyWrote) {
  const std::map<std::string, Index> sizes{{"D", 8}, {"N", 5}, {"K", 2}};
  std::map<std::string, Index> grouped = sizes;
  grouped.insert({{"G", 1}, {"M", 1}, {"bias", 0}});
  for (const auto& [name, form] :
       {std::pair{"expert_router", "probabilities_first"}, std::pair{"expert_router", "logits_first"},
        std::pair{"group_limited_router", "gathered"}, std::pair{"group_limited_router", "ordered"}}) {
    const bool groups = std::string_view(name) == "group_limited_router";
    const Open of{name, form, groups ? grouped : sizes, "x", 5, "bf16"};
    ASSERT_TRUE(get(of.oracle.undecided, "weights").all()) << form;
    const Tensors<double> right = of.kernel(of.both(0, 2));
    const std::optional<ChosenByKernel> found = of.chosen(right);
    ASSERT_TRUE(found) << form;
    EXPECT_EQ(*found->call.choice, of.both(0, 2)) << form;
    EXPECT_EQ(of.judge(right).verdict, Verdict::pass) << form;
    Tensors<double> wrong = right;
    wrong["weights"](1, 2) *= 0.95;
    EXPECT_NE(judge_operator(of.op, of.oracle, wrong).verdict, Verdict::fail) << "open, it hid there";
    EXPECT_EQ(of.judge(wrong).verdict, Verdict::fail) << form;
    EXPECT_FALSE(of.chosen(of.kernel(of.both(0, 3)))) << "no correct kernel's";
    EXPECT_EQ(of.judge(of.kernel(of.both(0, 3))).verdict, Verdict::fail) << form;
  }
}

TEST(KernelChoice, OfDendriticBranchesByHead) {
  const Open of{
      "dendritic_router", "softmax", {{"H", 1}, {"d", 8}, {"Es", 1}, {"K", 2}, {"idle", 3}}, "q", 5, "bf16"};
  ASSERT_TRUE(get(of.oracle.undecided, "omega").all());
  const Tensors<double> right = of.kernel(of.both(0, 2));
  const std::optional<ChosenByKernel> found = of.chosen(right);
  ASSERT_TRUE(found);
  EXPECT_EQ(*found->call.choice, of.both(0, 2));
  EXPECT_TRUE(get(found->oracle.tolerance, "omega").allFinite());
  EXPECT_EQ(of.judge(right).verdict, Verdict::pass);
  Tensors<double> wrong = right;
  wrong["omega"](1, 1) *= 1.05;
  EXPECT_EQ(judge_operator(of.op, of.oracle, wrong).verdict, Verdict::vacuous)
      << "open, nothing was said of it";
  EXPECT_EQ(of.judge(wrong).verdict, Verdict::fail);
  EXPECT_FALSE(of.chosen(of.kernel(of.both(0, 3))));
}

TEST(KernelChoice, NothingIsAskedWhereNothingIsOpen) {
  Open of = block("fp32");
  of.inputs["router"](2, 0) = 0.5;
  of.oracle = operator_oracle(of.op, of.call, of.inputs, {}, of.contract);
  EXPECT_FALSE(of.chosen(of.oracle.exact));
}

}  // namespace
}  // namespace samestate
