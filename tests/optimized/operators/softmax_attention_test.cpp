#include "optimized/cpu/operators/softmax_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "optimized/cpu/operators/gated_attention.h"

namespace samestate {
namespace {

TEST(SoftmaxAttentionKernels, ATileOfNoKeysIsUnsupported) {
  OperatorArguments call;
  call.parameters = {{"H", 2}, {"Hkv", 1}, {"d", 4}, {"dv", 4}};
  for (const auto kernel :
       {cpu::softmax_attention_tiles, cpu::softmax_attention_split_keys, cpu::gated_attention_online}) {
    const Outcome outcome = kernel(call, Contract{});
    EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
    EXPECT_NE(outcome.reason.find("chunk=0"), std::string::npos);
  }
}

/// A call of the layer with memory of its own.
struct LayerCall {
  std::vector<std::vector<float>> memory;
  OperatorArguments arguments;

  explicit LayerCall(int threads) {
    constexpr std::int64_t B = 2, T = 70, D = 8, H = 4, Hkv = 2, d = 6, pairs = 2;
    arguments.parameters = {{"D", D}, {"H", H}, {"Hkv", Hkv}, {"d", d}, {"pairs", pairs}};
    arguments.batch = B;
    arguments.tokens = T;
    arguments.chunk = 16;
    arguments.threads = threads;
    const auto tensor = [&](const std::vector<std::int64_t>& shape) {
      std::int64_t size = 1;
      for (const std::int64_t extent : shape) size *= extent;
      std::vector<float>& x = memory.emplace_back(static_cast<std::size_t>(size));
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = std::sin(static_cast<float>(i * (2 * memory.size() + 1)));
      return x.data();
    };
    memory.reserve(16);
    const auto in = [&](std::string_view name, std::vector<std::int64_t> shape) {
      arguments.inputs.push_back({name, shape, tensor(shape)});
    };
    in("hidden", {B, T, D}), in("q_proj", {2 * H * d, D}), in("k_proj", {Hkv * d, D});
    in("v_proj", {Hkv * d, D}), in("o_proj", {D, H * d}), in("q_norm", {d}), in("k_norm", {d});
    in("cosine", {B, T, pairs}), in("sine", {B, T, pairs});
    const auto out = [&](std::string_view name, std::vector<std::int64_t> shape) {
      arguments.outputs.push_back({name, shape, tensor(shape)});
    };
    out("out", {B, T, D}), out("gated", {B, T, H * d}), out("k", {B, T, Hkv * d}), out("v", {B, T, Hkv * d});
  }
};

TEST(GatedAttentionKernel, BitsDoNotDependOnTheThreads) {
  LayerCall one(1);
  LayerCall four(4);
  ASSERT_EQ(cpu::gated_attention_online(one.arguments, Contract{}).kind, Outcome::Kind::ran);
  ASSERT_EQ(cpu::gated_attention_online(four.arguments, Contract{}).kind, Outcome::Kind::ran);
  EXPECT_EQ(one.memory, four.memory);
}

}  // namespace
}  // namespace samestate
