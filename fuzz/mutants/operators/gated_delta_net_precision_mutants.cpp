#include <cmath>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"
#include "fuzz/mutants/operators/sixteen_bit.h"
#include "optimized/cpu/operators/gated_delta_net_layer.h"

/// One undeclared rounding and one 16-bit sum in each stage of the Gated DeltaNet layer, which is why its
/// stages are judged separately.
namespace samestate::mutants {
namespace {

using cpu::Block;
using cpu::GatedDeltaNetLayer;

struct ProjectedTermsRounded : GatedDeltaNetLayer {
  using GatedDeltaNetLayer::GatedDeltaNetLayer;
  void projected(const Block& x, const Block& w, Block& y) const override {
    product_of_rounded_terms(x, w, kept_, y);
  }
};
struct ProjectedInSixteenBits : GatedDeltaNetLayer {
  using GatedDeltaNetLayer::GatedDeltaNetLayer;
  void projected(const Block& x, const Block& w, Block& y) const override { narrow_product(x, w, kept_, y); }
};

/// The convolution with a different sum.
template <bool narrow>
struct OtherConvolution : GatedDeltaNetLayer {
  using GatedDeltaNetLayer::GatedDeltaNetLayer;
  void convolved(const Block& taps, const Block& history, std::int64_t t, float* y) const override {
    other_convolution(taps, history, t, narrow, kept_, y);
  }
};

/// The norm of q and k with a different sum.
template <bool narrow>
struct OtherLength : GatedDeltaNetLayer {
  using GatedDeltaNetLayer::GatedDeltaNetLayer;
  void normalised(float* x, std::int64_t dk) const override {
    NarrowSum sum(narrow ? kept_ : Format::fp32);
    for (std::int64_t i = 0; i < dk; ++i) sum.add(x[i] * x[i]);
    float factor = 1.0F / std::sqrt(sum.value() + 1e-6F);
    if (!narrow) factor = rounded(factor, kept_);
    for (std::int64_t i = 0; i < dk; ++i) x[i] *= factor;
  }
};

struct StateRounded : GatedDeltaNetLayer {
  using GatedDeltaNetLayer::GatedDeltaNetLayer;
  [[nodiscard]] Outcome rule(Arguments& core) const override {
    Contract own;
    own.state = kept_;
    return rule_of(core, own);
  }
};
/// Changes g so that its sums from the first token of a chunk on are 16-bit numbers.
struct DecaysInSixteenBits : GatedDeltaNetLayer {
  using GatedDeltaNetLayer::GatedDeltaNetLayer;
  [[nodiscard]] Outcome rule(Arguments& core) const override {
    const View<const float, 3>& g = core.g;
    std::vector<float> other(static_cast<std::size_t>(g.size()) + 1);
    const auto view = row_major<float, 3>(other.data(), {g.shape[0], g.shape[1], g.shape[2]});
    for (std::int64_t b = 0; b < g.shape[0]; ++b) {
      for (std::int64_t h = 0; h < g.shape[2]; ++h) {
        float sum = 0.0F;
        for (std::int64_t t = 0; t < g.shape[1]; ++t) {
          if (t % core.chunk == 0) sum = 0.0F;
          const float next = rounded(sum + g(b, t, h), kept_);
          view(b, t, h) = next - sum;
          sum = next;
        }
      }
    }
    core.g = {view.data, view.shape, view.stride};
    return GatedDeltaNetLayer::rule(core);
  }
};

/// The gated norm with a different sum, or with its normalised row rounded before weight and gate.
template <bool narrow>
struct NetOtherNorm : GatedDeltaNetLayer {
  using GatedDeltaNetLayer::GatedDeltaNetLayer;
  void normed(float* core, const float* z, const float* weight, std::int64_t dv) const override {
    other_gated_norm(core, z, weight, dv, 1e-6F, narrow, kept_);
  }
};

}  // namespace

std::vector<Mutant> gated_delta_net_precision_mutants() {
  const OperatorKernel& right = right_operator("cpu.gated_delta_net.chunked");
  const auto fault = [&](const char* name, const char* summary, decltype(OperatorKernel::run) run) {
    return operator_mutant(right, "F", name, summary, std::move(run));
  };
  using cpu::run_layer;
  return {
      fault("projected_terms_rounded",
            "the products of the input projections are rounded before they are added",
            run_layer<ProjectedTermsRounded>),
      fault("projected_in_16_bit", "the input projections keep their sums in 16 bit between tiles",
            run_layer<ProjectedInSixteenBits>),
      fault("convolution_rounded", "the convolution is rounded before silu",
            run_layer<OtherConvolution<false>>),
      fault("convolution_in_16_bit", "the convolution is summed in 16 bit",
            run_layer<OtherConvolution<true>>),
      fault("length_rounded", "the factor of l2norm is rounded", run_layer<OtherLength<false>>),
      fault("squares_in_16_bit", "the squares of l2norm are summed in 16 bit", run_layer<OtherLength<true>>),
      fault("strength_rounded", "beta is rounded", run_layer<StrengthRounded<GatedDeltaNetLayer>>),
      fault("bias_in_16_bit", "a and dt_bias are added in 16 bit",
            run_layer<BiasAddedInSixteenBits<GatedDeltaNetLayer>>),
      fault("state_rounded", "the state is kept in 16 bit between chunks", run_layer<StateRounded>),
      fault("decays_in_16_bit", "log-decays are summed in 16 bit", run_layer<DecaysInSixteenBits>),
      fault("normed_rounded", "the normalised core is rounded before weight and gate",
            run_layer<NetOtherNorm<false>>),
      fault("mean_square_in_16_bit", "the squares of the norm are summed in 16 bit",
            run_layer<NetOtherNorm<true>>),
      fault("output_terms_rounded", "the products of the output projection are rounded before they are added",
            run_layer<OutputTermsRounded<GatedDeltaNetLayer>>),
      fault("output_in_16_bit", "the output projection keeps its sums in 16 bit between tiles",
            run_layer<OutputInSixteenBits<GatedDeltaNetLayer>>)};
}

}  // namespace samestate::mutants
