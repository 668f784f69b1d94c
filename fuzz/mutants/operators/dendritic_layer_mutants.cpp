#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/operators/dendritic_sequence.h"

/// Bugs inside the dendritic layer (M75-M77): the right kernel with one of its steps replaced.
namespace samestate::mutants {
namespace {

namespace dendritic = cpu::dendritic;

/// g and beta keep their mask, so that a token outside a branch has no effect there in either case: what is
/// wrong is that later tokens see zeros in its place.
struct MaskBeforeConvolution : dendritic::Sequence {
  using Sequence::Sequence;
  void expanded(std::int64_t e, cpu::Block& q, cpu::Block& k) override {
    for (std::int64_t t = 0; t < n_.T; ++t) {
      for (std::int64_t h = 0; h < n_.H; ++h) {
        if (uses(t, h, e)) continue;
        std::fill_n(q.row(t) + h * n_.d, n_.d, 0.0F);
        std::fill_n(k.row(t) + h * n_.d, n_.d, 0.0F);
      }
    }
  }
};

struct NormBeforeWindows : dendritic::Sequence {
  using Sequence::Sequence;
  void windows(std::int64_t e, std::int64_t h, const std::vector<std::int64_t>& tokens,
               Arguments& core) override {
    Sequence::windows(e, h, tokens, core);
    for (std::vector<float>* rows : {&q_rows_, &k_rows_}) {
      each_row({rows->data(), rows->size() - 1}, n_.d, [](std::span<float> x) {
        float sum = 0.0F;
        for (const float value : x) sum += value * value;
        for (float& value : x) value /= std::sqrt(sum + 1e-6F);
      });
    }
    core.l2norm = false;
  }
};

/// Virtual head n E H + m has the q and k of window n of merged head m. If v, g and beta are repeated window
/// by window they come from merged head m too; if they are interleaved they come from merged head (n E H + m)
/// / N, which differs whenever N > 1.
struct RepeatedInterleaved : dendritic::Sequence {
  using Sequence::Sequence;
  void windows(std::int64_t e, std::int64_t h, const std::vector<std::int64_t>& tokens,
               Arguments& core) override {
    Sequence::windows(e, h, tokens, core);
    const auto A = static_cast<std::int64_t>(tokens.size());
    const std::int64_t heads = n_.E * n_.H;
    v_rows_.assign(static_cast<std::size_t>(A * n_.N * n_.dv + 1), 0.0F);
    g_rows_.assign(static_cast<std::size_t>(A * n_.N + 1), 0.0F);
    beta_rows_ = g_rows_;
    for (std::int64_t i = 0; i < A; ++i) {
      const std::int64_t t = tokens[static_cast<std::size_t>(i)];
      for (std::int64_t n = 0; n < n_.N; ++n) {
        const std::int64_t from = (n * heads + e * n_.H + h) / n_.N;
        const std::int64_t to = i * n_.N + n;
        std::copy_n(v_.row(t) + from % n_.H * n_.dv, n_.dv, v_rows_.data() + to * n_.dv);
        g_rows_[static_cast<std::size_t>(to)] = g_.row(t)[from];
        beta_rows_[static_cast<std::size_t>(to)] = beta_.row(t)[from];
      }
    }
    core.v = row_major<const float, 4>(v_rows_.data(), {1, A, n_.N, n_.dv});
    core.g = row_major<const float, 3>(g_rows_.data(), {1, A, n_.N});
    core.beta = row_major<const float, 3>(beta_rows_.data(), {1, A, n_.N});
  }
};

}  // namespace

std::vector<Mutant> dendritic_layer_mutants() {
  const OperatorKernel& right = right_operator("cpu.dendritic_attention.compacted");
  return {
      operator_mutant(right, "M75", "mask_before_convolution",
                      "the branch mask of q and k before the convolutions instead of after",
                      dendritic::run<MaskBeforeConvolution>),
      operator_mutant(right, "M76", "norm_before_windows",
                      "q and k are normalised over the head instead of over each window",
                      dendritic::run<NormBeforeWindows>),
      operator_mutant(right, "M77", "repeated_interleaved",
                      "v, g and beta of the windows repeated head by head where window by window is meant",
                      dendritic::run<RepeatedInterleaved>)};
}

}  // namespace samestate::mutants
