#include "optimized/cpu/operators/short_convolution.h"

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {
namespace {

/// Channels of one task.
constexpr std::int64_t kChannels = 64;

/// The channels [first, first + n) of one sequence.
class ChannelBlock {
 public:
  ChannelBlock(const OperatorArguments& call, const Contract& contract)
      : call_(call), contract_(contract), W_(call.parameter("W")) {}

  void run(std::int64_t b, std::int64_t first, std::int64_t n) {
    copy_transposed(rows_of(call_.input("kernel"), 0, false).rows(first, n), kernel_);
    sums_.resize(call_.tokens, n);
    for (std::int64_t t = 0; t < call_.tokens; ++t) {
      if (call_.parameter("bias") != 0) {
        std::copy_n(call_.input("bias").data + first, n, sums_.row(t));
      } else {
        std::fill_n(sums_.row(t), n, 0.0F);
      }
    }
    const auto x = rows_of(call_.input("x"), b).columns(first, n);
    // Times -(W - 1) .. -1 hold the carried inputs.
    const auto past = rows_of(call_.input("state"), b).columns(first, n);
    const auto input = [&](std::int64_t t) { return t < 0 ? past.row(W_ - 1 + t) : x.row(t); };
    for (std::int64_t t = 1 - W_; t < call_.tokens; ++t) {
      const float* from = input(t);
      const std::int64_t end = std::min(call_.tokens, t + W_);
      for (std::int64_t to = std::max<std::int64_t>(t, 0); to < end; ++to) {
        const float* weight = kernel_.row(W_ - 1 - (to - t));
        float* sum = sums_.row(to);
        for (std::int64_t c = 0; c < n; ++c) sum[c] += weight[c] * from[c];
      }
    }
    if (call_.parameter("activation") != 0) {
      for (std::int64_t t = 0; t < call_.tokens; ++t) {
        for (std::int64_t c = 0; c < n; ++c) sums_.row(t)[c] = layer::silu(sums_.row(t)[c]);
      }
    }
    store_rounded(sums_, rows_of(call_.output("y"), b).columns(first, n), contract_.output);
    const auto carried = rows_of(call_.output("state"), b).columns(first, n);
    for (std::int64_t i = 0; i < W_ - 1; ++i) {
      round_values(input(call_.tokens - (W_ - 1) + i), carried.row(i), n, contract_.state);
    }
  }

 private:
  const OperatorArguments& call_;
  const Contract& contract_;
  std::int64_t W_;
  Block kernel_, sums_;
};

}  // namespace

Outcome short_convolution_scatter(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t C = call.parameter("C");
  const std::int64_t blocks = (C + kChannels - 1) / kChannels;
  for_each_task(call.batch * blocks, call.threads, [&] {
    return [&, block = ChannelBlock(call, contract)](std::int64_t task) mutable {
      const std::int64_t first = task % blocks * kChannels;
      block.run(task / blocks, first, std::min(kChannels, C - first));
    };
  });
  return {};
}

}  // namespace samestate::cpu
