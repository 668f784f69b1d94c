#include "harness/card/operator_card.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>

#include "optimized/cpu/backward/chunked.h"
#include "reference/error.h"

namespace samestate {
namespace {

using cpu::BackwardPoint;

const std::map<std::string_view, BackwardPoint> kPoints = {
    {"T", BackwardPoint::T},
    {"beta_v", BackwardPoint::beta_v},
    {"beta_k", BackwardPoint::beta_k},
    {"U", BackwardPoint::U},
    {"W", BackwardPoint::W},
    {"state_operand", BackwardPoint::state_operand},
    {"v_new", BackwardPoint::v_new},
    {"v_decayed", BackwardPoint::v_decayed},
    {"P", BackwardPoint::P},
    {"dv_local", BackwardPoint::dv_local},
    {"dh_operand", BackwardPoint::dh_operand},
    {"dv_new", BackwardPoint::dv_new},
    {"dw", BackwardPoint::dw},
    {"dS_score", BackwardPoint::dS_score},
    {"dT", BackwardPoint::dT},
    {"dT_T", BackwardPoint::dT_T},
    {"dA", BackwardPoint::dA},
    {"beta_key", BackwardPoint::beta_key},
};

/// A backward pass that keeps fp32 at some points, and may sum dg in bf16.
class Drawn : public cpu::ChunkedBackward {
 public:
  Drawn(const cpu::System& system, const cpu::BackwardArguments& arguments, const Contract& contract,
        std::set<BackwardPoint> without, bool rounds_dG)
      : ChunkedBackward(system, arguments, contract), without_(std::move(without)), rounds_dG_(rounds_dG) {}

 protected:
  Format format_at(BackwardPoint point) const override {
    if (point == BackwardPoint::dG && rounds_dG_) return Format::bf16;
    return without_.contains(point) ? Format::fp32 : ChunkedBackward::format_at(point);
  }

 private:
  std::set<BackwardPoint> without_;
  bool rounds_dG_;
};

CardRow card_in(const KernelTable& table, const std::string& name) {
  const KernelRow& kernel = table.row_named(name);
  const std::vector<Case> probes = operator_probes(kernel, kernel.contracts.front());
  std::vector<ProbeRun> runs;
  for (const Case& probe : probes) runs.push_back(run_operator_probe(table, kernel, probe));
  return operator_card(kernel, probes, runs, {});
}

CardRow card_of(const std::set<std::string_view>& without, bool rounds_dG) {
  std::set<BackwardPoint> points;
  for (const std::string_view name : without) points.insert(kPoints.at(name));
  CallKernel row{
      "drawn.gated_delta_rule.backward.chunked", "gated_delta_rule.backward", "chunked", "cpu", {"bf16"}};
  row.run = [=](const KernelCall& call, const Contract& contract) {
    const auto make = [&](const auto&... of) { return std::make_unique<Drawn>(of..., points, rounds_dG); };
    return cpu::run_chunked_backward_with(make, cpu::GATED_DELTA_RULE, call, contract);
  };
  const KernelTable table(std::span<const CallKernel>(&row, 1));
  return card_in(table, row.name);
}

/// The values of the points that a card does not leave open.
std::map<std::string, std::string> told_by(const CardRow& card) {
  std::map<std::string, std::string> out;
  for (const CardPoint& point : card.points) {
    if (point.like.empty()) out.emplace(point.name.substr(point.name.find('.') + 1), point.value);
  }
  return out;
}

TEST(OperatorCard, FindsThePointsOfDrawnKernels) {
  std::mt19937 draw(20);
  constexpr int kKernels = 6;
  int told = 0, asked = 0;
  for (int i = 0; i < kKernels; ++i) {
    std::set<std::string_view> without;
    for (const auto& [name, point] : kPoints) {
      if (draw() % 4 == 0) without.insert(name);
    }
    const bool rounds_dG = i % 2 == 1;
    const CardRow card = card_of(without, rounds_dG);
    EXPECT_TRUE(card.explained) << card.contract << " leaves " << card.farthest << " at " << card.worst;
    const std::map<std::string, std::string> values = told_by(card);
    for (const auto& [name, point] : kPoints) {
      ++asked;
      const auto found = values.find(std::string(name));
      if (found == values.end()) continue;
      ++told;
      EXPECT_EQ(found->second, without.contains(name) ? "fp32" : "bf16") << name << " in " << card.contract;
    }
    ASSERT_TRUE(values.contains("dG")) << card.contract;
    EXPECT_EQ(values.at("dG"), rounds_dG ? "bf16" : "fp32");
    for (const CardCase& c : card.cases) EXPECT_NE(c.verdict, "fail") << c.line << " " << c.gate;
  }
  EXPECT_GT(told, asked * 3 / 4);
}

TEST(OperatorCard, OfAKernelWithAllPointsItIsTheContract) {
  const CardRow card = card_of({}, false);
  EXPECT_EQ(card.contract, "bf16");
  EXPECT_TRUE(card.explained);
}

// A wrong result is no card.
TEST(OperatorCard, DoesNotExplainAWrongKernel) {
  struct Doubled : cpu::ChunkedBackward {
    using ChunkedBackward::ChunkedBackward;
    void query_gradient() override {
      ChunkedBackward::query_gradient();
      for (float& x : dQ_.values) x *= 1.01F;
    }
  };
  CallKernel row{"wrong.retention.backward.chunked", "retention.backward", "chunked", "cpu", {"bf16"}};
  row.run = [](const KernelCall& call, const Contract& contract) {
    const auto make = [&](const auto&... of) { return std::make_unique<Doubled>(of...); };
    return cpu::run_chunked_backward_with(make, cpu::RETENTION, call, contract);
  };
  const KernelTable table(std::span<const CallKernel>(&row, 1));
  const CardRow card = card_in(table, row.name);
  EXPECT_FALSE(card.explained);
}

// A kernel that writes NaN on some probes has no card that explains them, however well the others fit.
TEST(OperatorCard, DoesNotExplainWhatIsNotFinite) {
  struct Hollow : cpu::ChunkedBackward {
    using ChunkedBackward::ChunkedBackward;
    void query_gradient() override {
      ChunkedBackward::query_gradient();
      if (arguments_.l2norm) dQ_.values.front() = std::nanf("");
    }
  };
  CallKernel row{"hollow.retention.backward.chunked", "retention.backward", "chunked", "cpu", {"bf16"}};
  row.run = [](const KernelCall& call, const Contract& contract) {
    const auto make = [&](const auto&... of) { return std::make_unique<Hollow>(of...); };
    return cpu::run_chunked_backward_with(make, cpu::RETENTION, call, contract);
  };
  const KernelTable table(std::span<const CallKernel>(&row, 1));
  const CardRow card = card_in(table, row.name);
  EXPECT_FALSE(card.explained);
  EXPECT_TRUE(std::ranges::any_of(card.probes, [](const CardProbe& p) { return !p.nonfinite.empty(); }));
}

}  // namespace
}  // namespace samestate
