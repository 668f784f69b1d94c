#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "oracles/rounding.h"
#include "tests/harness/systems/other_kernels.h"

/// sigma and silu by tanh, in fp32 (bounds_operators.md 13): allowed, and nothing that is less exact.
namespace samestate {
namespace {

using Sigma = std::function<float(float)>;

float by_exp(float x) { return 1.0F / (1.0F + std::exp(-x)); }
float by_tanh(float x) { return 0.5F * (1.0F + std::tanh(0.5F * x)); }
float by_short_tanh(float x) { return 0.5F * (1.0F + round_to(std::tanh(0.5F * x), Format::tf32)); }
float hard(float x) { return std::fmin(std::fmax(x / 6.0F + 0.5F, 0.0F), 1.0F); }

/// y = silu of the convolution, and the last inputs as the next call's state.
Outcome convolution(const OperatorArguments& call, const Sigma& sigma) {
  const Index C = call.parameter("C"), W = call.parameter("W"), T = call.tokens;
  const bool biased = call.parameter("bias") == 1;
  const auto& outputs = call.outputs;
  for (Index b = 0; b < call.batch; ++b) {
    const auto at = [&](Index t, Index c) {
      return t >= 0 ? call.input("x").data[(b * T + t) * C + c]
                    : call.input("state").data[(b * (W - 1) + W - 1 + t) * C + c];
    };
    for (Index t = 0; t < T; ++t) {
      for (Index c = 0; c < C; ++c) {
        float sum = biased ? call.input("bias").data[c] : 0.0F;
        for (Index j = 0; j < W; ++j) sum += call.input("kernel").data[c * W + j] * at(t - W + 1 + j, c);
        call.output("y").data[(b * T + t) * C + c] = sum * sigma(sum);
      }
    }
    for (const auto& out : outputs) {
      if (out.name != "state") continue;
      for (Index j = 0; j < W - 1; ++j) {
        for (Index c = 0; c < C; ++c) out.data[(b * (W - 1) + j) * C + c] = at(T - W + 1 + j, c);
      }
    }
  }
  return {};
}

/// rms_norm(x) weight silu(z), a head after the other.
Outcome gated_norm(const OperatorArguments& call, const Sigma& sigma) {
  const Index H = call.parameter("H"), D = call.parameter("D");
  for (Index row = 0; row < call.batch * call.tokens * H; ++row) {
    const float* x = call.input("x").data + row * D;
    const float* z = call.input("z").data + row * D;
    float squares = 0.0F;
    for (Index c = 0; c < D; ++c) squares += x[c] * x[c];
    const float r = 1.0F / std::sqrt(squares / static_cast<float>(D) + 1e-6F);
    for (Index c = 0; c < D; ++c)
      call.output("y").data[row * D + c] = x[c] * r * call.input("weight").data[c] * (z[c] * sigma(z[c]));
  }
  return {};
}

struct Layer {
  std::string system, form, sizes;
  Outcome (*run)(const OperatorArguments&, const Sigma&);
};

std::vector<Layer> layers() {
  return {{"short_convolution", "gather", "T=33 C=12 W=4", convolution},
          {"gated_rms_norm", "fused", "T=33 H=2 D=16", gated_norm}};
}

int fails(const Layer& layer, const Sigma& sigma) {
  int failed = 0;
  for (const char* regime : {"normal", "large", "tiny", "spiky", "mixed_scales"}) {
    for (int seed = 1; seed <= 20; ++seed) {
      const std::string line = "v1 " + layer.system + " form=" + layer.form + " " + layer.sizes +
                               " regime=" + regime + " seed=" + std::to_string(seed);
      const Judgement j = judged_kernel(
          line, layer.form, [&](const OperatorArguments& call) { return layer.run(call, sigma); });
      failed += j.verdict == Verdict::fail ? 1 : 0;
    }
  }
  return failed;
}

TEST(TanhGates, SigmaByTanhIsRightAndALessExactOneIsNot) {
  for (const Layer& layer : layers()) {
    SCOPED_TRACE(layer.system);
    EXPECT_EQ(fails(layer, by_exp), 0);
    EXPECT_EQ(fails(layer, by_tanh), 0);
    EXPECT_GT(fails(layer, by_short_tanh), 75)
        << "tanh of 11 bits: all cases but those of tiny x, where it is 0";
    EXPECT_GT(fails(layer, hard), 80);
  }
}

}  // namespace
}  // namespace samestate
