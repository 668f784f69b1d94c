#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "harness/run/run_case.h"
#include "harness/systems/tensor_system.h"
#include "optimized/kernel.h"
#include "tests/harness/operator_row.h"

/// Calls as servers make them, each with a fault that shows in no other: several tokens at once after a
/// cache, a cache that is given, and sums in order over widths of models.
namespace samestate {
namespace {

Judgement judged(const OperatorKernel& kernel, const std::string& line) {
  const KernelRow row = adapted(kernel);
  const Resolved r(parse_case(line));
  return r.system->run(r, {&row, &row, &row}, {r.layout, 1}, kGatePolicy, nullptr);
}

// Drafted tokens are verified, and prompts are prefilled in pieces, by calls of several tokens after those
// before them. A fault in only such calls shows in no call of one token.
TEST(ServedCalls, SeveralTokensBehindACacheAreOneCall) {
  const OperatorKernel& right = operator_row("cpu.softmax_attention.online");
  OperatorKernel shifted = right;
  std::vector<std::int64_t> calls;
  shifted.run = [&](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    calls.push_back(call.tokens);
    const bool behind = call.input("k").shape[1] > call.tokens;
    float* o = call.output("o").data;
    if (behind && call.tokens > 1) std::copy_n(o + call.output("o").shape.back(), 4, o);
    return outcome;
  };
  const std::string line =
      "v1 softmax_attention form=decode B=1 H=2 Hkv=1 d=16 dv=16 chunk=32 prefill={} T={} step={}";
  for (const auto& [prefill, T, step] : {std::array<int, 3>{70, 74, 4}, {200, 232, 16}, {100, 300, 90}}) {
    const std::string of = fmt::format(fmt::runtime(line), prefill, T, step);
    EXPECT_EQ(judged(right, of).verdict, Verdict::pass) << of;
    calls.clear();
    EXPECT_EQ(judged(shifted, of).verdict, Verdict::fail) << of;
    std::vector<std::int64_t> expected{prefill};
    for (int t = prefill; t < T; t += step) expected.push_back(std::min(step, T - t));
    EXPECT_EQ(calls, expected) << of;
    EXPECT_EQ(judged(shifted, fmt::format(fmt::runtime(line), prefill, T, 1)).verdict, Verdict::pass);
  }
}

// The keys and values of a cache are given: the first call is not made, and the calls after it are judged
// like those after a call that was made.
TEST(ServedCalls, ACacheIsGivenInPlaceOfTheFirstCall) {
  const OperatorKernel& right = operator_row("cpu.softmax_attention.online");
  std::vector<std::int64_t> calls;
  float factor = 1.0F;
  OperatorKernel kernel = right;
  kernel.run = [&](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    calls.push_back(call.tokens);
    const auto& o = call.output("o");
    o.data[(call.batch - 1) * call.tokens * o.shape.back() + 3] *= factor;
    return outcome;
  };
  for (const char* keys : {"prefill=2000 T=2001", "prefill=300 T=304 step=4", "prefill=65 T=67 contract=bf16",
                           "prefill=500 T=700 step=200", "B=9 prefill=800 T=801"}) {
    const std::string line =
        fmt::format("v1 softmax_attention form=decode H=4 Hkv=2 d=32 dv=32 chunk=64 {}", keys);
    factor = 1.0F;
    const Judgement made = judged(kernel, line);
    calls.clear();
    const Judgement given = judged(kernel, line + " cached=1");
    EXPECT_EQ(made.verdict, Verdict::pass) << line << made.reason;
    EXPECT_EQ(given.verdict, Verdict::pass) << line << given.reason;
    EXPECT_LE(given.ratio, made.ratio * 1.0001) << "all that is judged is judged behind the first call too";
    EXPECT_GT(given.ratio, 0.0) << line;
    const Case c = parse_case(line);
    EXPECT_EQ(calls, std::vector<std::int64_t>(static_cast<std::size_t>((c.T - c.prefill) / c.step), c.step));
    factor = 1.02F;
    EXPECT_EQ(judged(kernel, line + " cached=1").verdict, Verdict::fail) << line;
  }
}

// Small squares after large ones are cut off: a sum in order is too small by more than roundings of either
// sign could make it.
TEST(ServedCalls, ASumInOrderOfNumbersFarApartIsRight) {
  OperatorKernel kernel = operator_row("cpu.rms_norm.fused");
  float factor = 1.0F;
  kernel.strided = false;
  kernel.run = [&](const OperatorArguments& call, const Contract&) -> Outcome {
    const auto& x = call.input("x");
    const float* w = call.input("weight").data;
    const std::int64_t D = x.shape.back(), rows = call.batch * call.tokens * call.parameter("H");
    for (std::int64_t i = 0; i < rows; ++i) {
      float sum = 0.0F;
      for (std::int64_t j = 0; j < D; ++j) sum += x.data[i * D + j] * x.data[i * D + j];
      const float inverse = factor / std::sqrt(sum / static_cast<float>(D) + 1e-6F);
      for (std::int64_t j = 0; j < D; ++j)
        call.output("y").data[i * D + j] = x.data[i * D + j] * inverse * w[j];
    }
    return {};
  };
  for (const char* keys : {"B=8 T=7 D=4095 seed=0x100000b97", "B=2 T=64 H=1 D=6144 seed=0x140000218",
                           "T=40 H=1 D=16384 seed=3"}) {
    const std::string line = fmt::format("v1 rms_norm form=fused regime=spiky {}", keys);
    factor = 1.0F;
    const Judgement j = judged(kernel, line);
    EXPECT_EQ(j.verdict, Verdict::pass) << line << j.reason;
    factor = 1.003F;
    EXPECT_EQ(judged(kernel, line).verdict, Verdict::fail) << line;
  }
}

}  // namespace
}  // namespace samestate
