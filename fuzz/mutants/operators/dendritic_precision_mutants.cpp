#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"
#include "fuzz/mutants/operators/sixteen_bit.h"
#include "optimized/cpu/operators/dendritic_sequence.h"

/// One undeclared rounding and one 16-bit sum in each stage of the dendritic layer. Its projections and
/// expansions are products of one kind.
namespace samestate::mutants {
namespace {

using cpu::Block;
using cpu::dendritic::Sequence;

struct ProductTermsRounded : Sequence {
  using Sequence::Sequence;
  void product(const Block& x, const Block& w, Block& y) const override {
    product_of_rounded_terms(x, w, kept_, y);
  }
};
struct ProductsInSixteenBits : Sequence {
  using Sequence::Sequence;
  void product(const Block& x, const Block& w, Block& y) const override { narrow_product(x, w, kept_, y); }
};

template <bool narrow>
struct DendriticOtherConvolution : Sequence {
  using Sequence::Sequence;
  void convolve(const Block& taps, const Block& history, std::int64_t t, float* y) const override {
    other_convolution(taps, history, t, narrow, kept_, y);
  }
};

/// The state is rounded after every token, which makes a 16-bit sum; or only its decay is rounded, once.
template <bool state>
struct OtherRule : Sequence {
  using Sequence::Sequence;
  void rule(Arguments& core) const override {
    Contract own;
    std::vector<float> decays;
    if (state) {
      own.state = kept_;
    } else {
      const std::int64_t A = core.g.shape[1];
      for (std::int64_t i = 0; i < A; ++i)
        decays.push_back(std::log(rounded(std::exp(core.g(0, i, 0)), kept_)));
      decays.push_back(0.0F);
      core.g = {decays.data(), {1, A, n_.N}, {A, 1, 0}};
    }
    rule_of(core, own);
  }
};

template <bool narrow>
struct OtherMix : Sequence {
  using Sequence::Sequence;
  void mix(const float* o, std::int64_t stride, float omega, float* to) const override {
    for (std::int64_t c = 0; c < n_.dv; ++c) {
      float windows = 0.0F;
      for (std::int64_t n = 0; n < n_.N; ++n) windows += o[n * stride + c];
      to[c] += omega * (narrow ? windows : rounded(windows, kept_));
      if (narrow) to[c] = rounded(to[c], kept_);
    }
  }
};

template <bool narrow>
struct DendriticOtherNorm : Sequence {
  using Sequence::Sequence;
  void normed(float* a, const float* z, const float* weight) const override {
    other_gated_norm(a, z, weight, n_.dv, 1e-5F, narrow, kept_);
  }
};

}  // namespace

std::vector<Mutant> dendritic_precision_mutants() {
  const OperatorKernel& right = right_operator("cpu.dendritic_attention.compacted");
  const auto fault = [&](const char* name, const char* summary, decltype(OperatorKernel::run) run) {
    return operator_mutant(right, "F", name, summary, std::move(run));
  };
  using cpu::dendritic::run;
  return {
      fault("projected_terms_rounded",
            "the products of projections and expansions are rounded before they are added",
            run<ProductTermsRounded>),
      fault("projected_in_16_bit", "projections and expansions keep their sums in 16 bit between tiles",
            run<ProductsInSixteenBits>),
      fault("convolution_rounded", "the convolution is rounded before silu",
            run<DendriticOtherConvolution<false>>),
      fault("convolution_in_16_bit", "the convolution is summed in 16 bit",
            run<DendriticOtherConvolution<true>>),
      fault("strength_rounded", "beta is rounded", run<StrengthRounded<Sequence>>),
      fault("bias_in_16_bit", "a and dt_bias are added in 16 bit", run<BiasAddedInSixteenBits<Sequence>>),
      fault("decay_rounded", "the decay e^g is rounded", run<OtherRule<false>>),
      fault("state_in_16_bit", "the state is summed up in 16 bit", run<OtherRule<true>>),
      fault("windows_rounded", "the sum of a branch's windows is rounded before it is weighted",
            run<OtherMix<false>>),
      fault("branches_in_16_bit", "the branches are added up in 16 bit", run<OtherMix<true>>),
      fault("normed_rounded", "the normalised mixture is rounded before weight and gate",
            run<DendriticOtherNorm<false>>),
      fault("mean_square_in_16_bit", "the squares of the norm are summed in 16 bit",
            run<DendriticOtherNorm<true>>),
      fault("output_terms_rounded", "the products of the output projection are rounded before they are added",
            run<OutputTermsRounded<Sequence>>),
      fault("output_in_16_bit", "the output projection keeps its sums in 16 bit between tiles",
            run<OutputInSixteenBits<Sequence>>)};
}

}  // namespace samestate::mutants
