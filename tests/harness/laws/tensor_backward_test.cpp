#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>

#include "harness/run/run_case.h"
#include "optimized/call_kernel.h"

/// The laws of gradients, on the right kernel and on one fault each.
namespace samestate {
namespace {

/// Changes the gradients that the right kernel has written for a call.
using Spoil = std::function<void(const KernelCall&)>;

Judgement judged(const std::string& line, const Spoil& spoil) {
  const auto right =
      std::ranges::find(call_kernels(), "cpu.gated_delta_rule.backward.chunked", &CallKernel::name);
  CallKernel row = *right;
  row.name = "spoilt.gated_delta_rule.backward.chunked";
  row.run = [run = right->run, spoil](const KernelCall& call, const Contract& contract) {
    Outcome outcome = run(call, contract);
    if (spoil) spoil(call);
    return outcome;
  };
  return run_case(parse_case(line), KernelTable(std::span<const CallKernel>(&row, 1))).judgement;
}

const std::string kLine =
    "v1 gated_delta_rule pass=backward chunk=8 B=2 T=21 Hk=1 Hv=2 dk=6 dv=5 state=random seed=0x5 ";

/// The gradient of the state is one percent too large, so that parts that hand it on differ from the whole.
void state_scaled(const KernelCall& call) {
  const View<float, 4> d = call.view<float, 4>("d.initial_state");
  for (std::int64_t i = 0; d.present() && i < d.shape[0] * d.stride[0]; ++i) d.data[i] *= 1.01F;
}

/// The gradient of the last value also holds a share of the first token's cotangent.
void sees_the_first_cotangent(const KernelCall& call) {
  const View<float, 4> d_v = call.view<float, 4>("d.v");
  const View<const float, 4> d_o = call.view<const float, 4>("d.o");
  if (!d_o.present() || d_v.shape[1] == 0) return;
  for (std::int64_t b = 0; b < d_v.shape[0]; ++b) d_v(b, d_v.shape[1] - 1, 0, 0) += 0.01F * d_o(b, 0, 0, 0);
}

/// Gradients are clipped, as an optimiser clips them.
void clipped(const KernelCall& call) {
  const View<float, 4> d_k = call.view<float, 4>("d.k");
  for (std::int64_t i = 0; i < d_k.shape[0] * d_k.stride[0]; ++i)
    d_k.data[i] = std::clamp(d_k.data[i], -0.1F, 0.1F);
}

TEST(TensorBackward, TheRightKernelKeepsTheLaws) {
  for (const char* law : {"split", "causality", "linearity"}) {
    for (const char* contract : {"fp32", "bf16"}) {
      const Judgement j = judged(kLine + "contract=" + contract + " law=" + law, nullptr);
      EXPECT_EQ(j.verdict, Verdict::pass) << law << " " << contract << ": " << j.reason;
    }
  }
}

TEST(TensorBackward, EachLawSeesItsFault) {
  EXPECT_EQ(judged(kLine + "law=split", state_scaled).verdict, Verdict::fail);
  EXPECT_EQ(judged(kLine + "law=causality", sees_the_first_cotangent).verdict, Verdict::fail);
  EXPECT_EQ(judged(kLine + "law=linearity", clipped).verdict, Verdict::fail);
}

TEST(TensorBackward, ALawThatHasNothingToChangeSaysSo) {
  const Judgement j = judged(kLine + "cotangent=state law=causality", nullptr);
  EXPECT_EQ(j.verdict, Verdict::vacuous);
  EXPECT_NE(j.reason.find("no output of a token has a cotangent"), std::string::npos);
}

}  // namespace
}  // namespace samestate
