#pragma once

#include <cstdint>
#include <string_view>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"

/// The Gated DeltaNet layer (EQUATIONS 5.6) with a separate function for each step, so that a mutant can
/// override one. Tensors between the steps are handed out if a call has taps (OperatorKernel::taps).
namespace samestate::cpu {

/// The norm of a row of `core` of width `dv`, its weight and its gate by z, in place.
void gated_norm(float* core, const float* z, const float* weight, std::int64_t dv);

/// One call of the layer. Every token goes through project() and finish(); between them the rule runs on the
/// whole batch.
class GatedDeltaNetLayer {
 public:
  GatedDeltaNetLayer(const OperatorArguments& call, const Contract& contract);
  virtual ~GatedDeltaNetLayer() = default;
  GatedDeltaNetLayer(const GatedDeltaNetLayer&) = delete;
  GatedDeltaNetLayer& operator=(const GatedDeltaNetLayer&) = delete;

  Outcome run();

 protected:
  /// y = x W, with W given transposed: for the hidden states and for the gated core.
  virtual void projected(const Block& x, const Block& weight, Block& y) const;
  virtual void output(const Block& gated, const Block& weight, Block& y) const;
  /// Token t of the convolution followed by silu; `history` is [W - 1 + T, channels].
  virtual void convolved(const Block& taps, const Block& history, std::int64_t t, float* y) const;
  /// A head of q or k divided by its length, in place.
  virtual void normalised(float* x, std::int64_t dk) const;
  /// beta = sigma(b), g = -e^A softplus(a + bias).
  [[nodiscard]] virtual float strength(float b) const;
  [[nodiscard]] virtual float log_decay(float a, float bias, float rate) const;
  /// The rule for all heads. q and k are already normalised and rounded, and its own operands are fp32 or
  /// those of a tf32 unit.
  virtual Outcome rule(Arguments& core) const { return rule_of(core, layer::of_core(contract_)); }
  [[nodiscard]] static Outcome rule_of(const Arguments& core, const Contract& own);
  virtual void normed(float* core, const float* z, const float* weight, std::int64_t dv) const;

  const OperatorArguments& call_;
  const Contract& contract_;
  Format kept_;

 private:
  void project(std::int64_t b);
  void ungroup(const float* grouped, float* flat, std::int64_t b, std::int64_t t) const;
  void normalise(const float* from, float* to) const;
  void gates(const float* ba, std::int64_t b, std::int64_t t) const;
  void finish(std::int64_t b);

  std::int64_t B_, T_, Hk_, R_, Hv_, dk_, dv_, channels_;
  Block qkvz_, ba_, taps_, out_;
  layer::Dense q_, k_, v_, z_, g_, beta_, o_;
  View<float, 4> q_view_, k_view_, v_view_, z_view_;
  View<float, 3> g_view_, beta_view_;
};

/// Evaluates a call by a Layer, which derives from GatedDeltaNetLayer.
template <class Layer>
[[nodiscard]] Outcome run_layer(const OperatorArguments& call, const Contract& contract) {
  return Layer(call, contract).run();
}

}  // namespace samestate::cpu
