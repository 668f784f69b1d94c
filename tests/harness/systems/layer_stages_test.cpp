#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/run_case.h"
#include "oracles/systems/stages.h"
#include "tests/harness/operator_row.h"
#include "tests/harness/other_call.h"

/// Kernels of layers with one fault in one step, through the whole run: which stage the verdict names, and that no other fails.
namespace samestate {
namespace {

using Change = std::function<void(OtherCall&)>;

Change scaled(std::string_view input) {
  return [input](OtherCall& c) { c.scale(input, 1.02F); };
}
/// Changes the outputs of a step, and everything that is linear in them, as if the step were 2 % off.
Change followed(std::vector<std::string_view> outputs) {
  return [outputs = std::move(outputs)](OtherCall& c) {
    for (const std::string_view output : outputs) {
      for (float& x : c.written(output)) x *= 1.02F;
    }
  };
}
/// The rows of keys, or of values, of every head's W_UK and W_UV.
void key_rows(OtherCall& c) { c.scale("kv_up", 1.02F, 0, c.at("dn"), c.at("dn") + c.at("dv")); }
void value_rows(OtherCall& c) { c.scale("kv_up", 1.02F, c.at("dn"), c.at("dv"), c.at("dn") + c.at("dv")); }
/// The logits of the routing upside down: experts that are not the largest.
void smallest_chosen(OtherCall& c) { c.scale("logits", -1.0F); }
/// y as the sum of the first `ranks` experts' outputs times their weights.
void sum_again(OtherCall& c, std::int64_t ranks) {
  const std::int64_t D = c.at("D"), K = c.at("K");
  const std::span<float> y = c.written("y"), w = c.written("weights"), z = c.written("outputs");
  for (std::size_t i = 0; i < y.size() && !w.empty(); ++i) {
    const auto t = static_cast<std::int64_t>(i) / D, j = static_cast<std::int64_t>(i) % D;
    y[i] = 0.0F;
    for (std::int64_t r = 0; r < ranks; ++r)
      y[i] += w[static_cast<std::size_t>(t * K + r)] * z[static_cast<std::size_t>((t * K + r) * D + j)];
  }
}
void larger_weights(OtherCall& c) {
  for (float& w : c.written("weights")) w *= 1.02F;
  sum_again(c, c.at("K"));
}
/// One term of two.
void last_rank_dropped(OtherCall& c) { sum_again(c, c.at("K") - 1); }

struct Fault {
  const char* line;
  const char* stage;
  Change before = nullptr, after = nullptr;
};

constexpr const char* kCache = "latent_cache form=direct kernel=cpu.latent_cache.direct";
constexpr const char* kLatent = "latent_attention form=absorbed kernel=cpu.latent_attention.absorbed";
constexpr const char* kGated = "gated_attention form=online chunk=8 kernel=cpu.gated_attention.online";
constexpr const char* kSorted = "mixture_of_experts form=sorted kernel=cpu.mixture_of_experts.sorted";
constexpr const char* kTokens = "mixture_of_experts form=per_token kernel=cpu.mixture_of_experts.per_token";
constexpr const char* kBlock = "qwen3_next_moe form=sorted kernel=cpu.qwen3_next_moe.sorted";

std::vector<Fault> faults() {
  return {{kCache, "projection", scaled("kv_down")},
          {kCache, "norm", scaled("kv_norm")},
          {kCache, "rotation", scaled("cos")},
          {kLatent, "compression", scaled("q_down")},
          {kLatent, "norm", scaled("q_norm")},
          {kLatent, "queries", scaled("q_up")},
          {kLatent, "rotation", scaled("cos")},
          {kLatent, "absorption", key_rows},
          {kLatent, "attention", scaled("c")},
          {kLatent, "values", value_rows},
          {kLatent, "output", scaled("output")},
          {kGated, "query and gate", scaled("q_proj")},
          {kGated, "keys", scaled("k_proj")},
          {kGated, "values", scaled("v_proj")},
          {kGated, "norm and rotation of q", [](OtherCall& c) { c.scale("q_norm", 0.5F); }},
          {kGated, "norm and rotation of k", [](OtherCall& c) { c.scale("k_norm", 0.5F); }},
          {kGated, "attention", nullptr, followed({"attended", "gated", "out"})},
          {kGated, "gate", nullptr, followed({"gated", "out"})},
          {kGated, "output", scaled("o_proj")},
          {kSorted, "selection", smallest_chosen},
          {kSorted, "weights", nullptr, larger_weights},
          {kSorted, "hidden rows", scaled("up")},
          {kSorted, "experts", scaled("down")},
          {kSorted, "sum", nullptr, last_rank_dropped},
          {kTokens, "hidden rows", scaled("gate")},
          {kTokens, "experts", scaled("down")},
          {kTokens, "sum", nullptr, last_rank_dropped},
          {kBlock, "router", scaled("router")},
          {kBlock, "hidden rows", scaled("gate")},
          {kBlock, "experts", scaled("down")},
          {kBlock, "shared hidden rows", scaled("shared_up")},
          {kBlock, "shared expert", scaled("shared_down")},
          {kBlock, "shared gate", scaled("shared_gate")},
          {kBlock, "sum", nullptr, followed({"y"})}};
}

Judgement judged(const Fault& fault, const std::string& contract) {
  const Resolved r(parse_case(fmt::format("v1 {} T=19 B=2 contract={} taps=1 seed=3", fault.line, contract)));
  OperatorKernel kernel = operator_row(r.c.kernel.c_str());
  kernel.run = [right = kernel.run, &fault](const OperatorArguments& call, const Contract& kept) {
    OtherCall other(call);
    if (fault.before) fault.before(other);
    const Outcome outcome = right(other.call, kept);
    if (fault.after) fault.after(other);
    return outcome;
  };
  const KernelRow row = adapted(kernel);
  return r.system->run(r, {&row, &row, &row}, {r.layout, 1}, kGatePolicy, nullptr);
}

std::string failing(const Judgement& j) {
  std::string names;
  for (const StageFinding& s : j.stages) {
    if (s.verdict == Verdict::fail) names += (names.empty() ? "" : ", ") + s.stage;
  }
  return names;
}

TEST(LayerStages, RightKernelsPassInEveryStage) {
  for (const char* line : {kCache, kLatent, kGated, kSorted, kTokens, kBlock}) {
    for (const char* contract : {"fp32", "tf32", "bf16", "fp16"}) {
      const Judgement j = judged({line, ""}, contract);
      EXPECT_EQ(j.verdict, Verdict::pass) << line << " " << contract << ": " << j.reason;
      EXPECT_EQ(failing(j), "") << line << " " << contract;
    }
  }
}

// Plants a fault of 2 %, or a dropped term, in each step. The fault is applied after an fp32 kernel, where a
// scaled number is as good as one that was computed that way.
TEST(LayerStages, AFaultOfAKernelShowsInItsStageAlone) {
  for (const Fault& fault : faults()) {
    const Judgement j = judged(fault, fault.after ? "fp32" : "bf16");
    EXPECT_EQ(j.verdict, Verdict::fail) << fault.line << " " << fault.stage;
    EXPECT_EQ(j.stage, fault.stage) << fault.line << ": " << j.reason;
    // If other experts are chosen, their weights are different too.
    const std::string all = fault.stage == std::string("selection") ? "selection, weights" : fault.stage;
    EXPECT_EQ(failing(j), all) << fault.line;
  }
}

TEST(LayerStages, EveryStageOfAKernelHasAFault) {
  for (const char* line : {kCache, kLatent, kGated, kSorted, kBlock}) {
    for (const StageFinding& s : judged({line, ""}, "bf16").stages) {
      // The block's selection and weights are those of the mixture.
      if (line == kBlock && (s.stage == "selection" || s.stage == "weights")) continue;
      bool found = false;
      for (const Fault& fault : faults()) found = found || (fault.line == line && s.stage == fault.stage);
      EXPECT_TRUE(found) << line << " " << s.stage;
    }
  }
}

}  // namespace
}  // namespace samestate
