#include "optimized/cpu/backward/short_convolution.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/call_views.h"
#include "optimized/cpu/block.h"
#include "optimized/cpu/operators/layer_parts.h"

namespace samestate::cpu {
namespace {

/// Channels of one task.
constexpr std::int64_t kReverseChannels = 64;

/// The tensors of a call, and the sums of its sequences.
struct ReverseConvolution {
  explicit ReverseConvolution(const OperatorArguments& call)
      : C(call.parameter("C")),
        W(call.parameter("W")),
        sequences(sequences_of_call(call)),
        activation(call.parameter("activation") != 0),
        x(given<3>(call, "x")),
        kernel(given<2>(call, "kernel")),
        state(given<3>(call, "state")),
        bias(given<1>(call, "bias")),
        d_y(given<3>(call, "d.y")),
        d_final(given<3>(call, "d.state")),
        d_x(view_of<3>(call.output("d.x"))),
        d_state(view_of<3>(call.output("d.state"))),
        sums(static_cast<std::size_t>(sequences * C * (W + 1)), 0.0F) {}

  /// The sums of one channel of a sequence: those of its W taps, and that of its bias.
  [[nodiscard]] float* sums_of(std::int64_t n, std::int64_t channel) {
    return sums.data() + (n * C + channel) * (W + 1);
  }

  std::int64_t C, W, sequences;
  bool activation;
  View<const float, 3> x;
  View<const float, 2> kernel;
  View<const float, 3> state;
  View<const float, 1> bias;
  View<const float, 3> d_y, d_final;
  View<float, 3> d_x, d_state;
  std::vector<float> sums;
};

/// Channels [first, first + count) of one sequence.
class ReverseBlock {
 public:
  ReverseBlock(ReverseConvolution& all, const Contract& contract) : of_(all), contract_(contract) {}

  void run(std::int64_t n, const Tokens& tokens, std::int64_t first, std::int64_t count) {
    history_.resize(of_.W - 1 + tokens.count, count);
    d_history_.resize(of_.W - 1 + tokens.count, count);
    for (std::int64_t i = 0; i < history_.rows; ++i) {
      const std::int64_t t = i - (of_.W - 1);
      for (std::int64_t c = 0; c < count; ++c)
        history_.row(i)[c] =
            t < 0 ? of_.state(n, i, first + c) : of_.x(tokens.batch, tokens.begin + t, first + c);
      std::fill_n(d_history_.row(i), count, 0.0F);
    }
    for (std::int64_t t = 0; of_.d_y.present() && t < tokens.count; ++t) {
      for (std::int64_t c = 0; c < count; ++c) reverse(n, tokens, t, first, c);
    }
    for (std::int64_t i = 0; of_.d_final.present() && i < of_.W - 1; ++i) {
      for (std::int64_t c = 0; c < count; ++c)
        d_history_.row(tokens.count + i)[c] += of_.d_final(n, i, first + c);
    }
    for (std::int64_t i = 0; i < d_history_.rows; ++i) {
      const std::int64_t t = i - (of_.W - 1);
      float* const row = d_history_.row(i);
      round_values(row, row, count, t < 0 ? contract_.state : contract_.output);
      for (std::int64_t c = 0; c < count; ++c)
        (t < 0 ? of_.d_state(n, i, first + c) : of_.d_x(tokens.batch, tokens.begin + t, first + c)) = row[c];
    }
  }

 private:
  /// Token t of one channel.
  void reverse(std::int64_t n, const Tokens& tokens, std::int64_t t, std::int64_t first, std::int64_t c) {
    float dp = of_.d_y(tokens.batch, tokens.begin + t, first + c);
    if (of_.activation) {
      float sum = of_.bias.present() ? of_.bias(first + c) : 0.0F;
      for (std::int64_t j = 0; j < of_.W; ++j) sum += of_.kernel(first + c, j) * history_.row(t + j)[c];
      const float sigma = layer::logistic(sum);
      dp *= sigma * (1.0F + sum * (1.0F - sigma));
    }
    float* const sums = of_.sums_of(n, first + c);
    for (std::int64_t j = 0; j < of_.W; ++j) {
      d_history_.row(t + j)[c] += of_.kernel(first + c, j) * dp;
      sums[j] += dp * history_.row(t + j)[c];
    }
    sums[of_.W] += dp;
  }

  ReverseConvolution& of_;
  const Contract& contract_;
  Block history_, d_history_;
};

}  // namespace

Outcome short_convolution_backward_gather(const OperatorArguments& call, const Contract& contract) {
  ReverseConvolution all(call);
  const std::int64_t C = all.C, W = all.W, blocks = (C + kReverseChannels - 1) / kReverseChannels;
  for_each_task(all.sequences * blocks, call.threads, [&] {
    return [&, block = ReverseBlock(all, contract)](std::int64_t task) mutable {
      const std::int64_t n = task / blocks, first = task % blocks * kReverseChannels;
      block.run(n, tokens_of_sequence(call, n), first, std::min(kReverseChannels, C - first));
    };
  });
  const View<float, 2> d_kernel = view_of<2>(call.output("d.kernel"));
  const bool biased = call.parameter("bias") != 0;
  const View<float, 1> d_bias = biased ? view_of<1>(call.output("d.bias")) : View<float, 1>{};
  for (std::int64_t c = 0; c < C; ++c) {
    for (std::int64_t j = 0; j <= W; ++j) {
      float sum = 0.0F;
      for (std::int64_t n = 0; n < all.sequences; ++n) sum += all.sums_of(n, c)[j];
      if (j < W) {
        round_values(&sum, &d_kernel(c, j), 1, contract.output);
      } else if (biased) {
        d_bias(c) = sum;
      }
    }
  }
  return {};
}

}  // namespace samestate::cpu
