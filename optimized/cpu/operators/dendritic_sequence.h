#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"

/// The dendritic layer (EQUATIONS 7.3) on one sequence, with a separate function for each step, so that a
/// mutant can override one.
namespace samestate::cpu::dendritic {

/// The sizes of a call; the letters are those of EQUATIONS 7.2.
struct Extents {
  explicit Extents(const OperatorArguments& call);
  std::int64_t T, H, N, d, stride, w, dv, shared, routed, candidates, E, W;
};

/// Data shared by all sequences: the weights as right factors.
struct Weights {
  Weights(const OperatorArguments& call, const Extents& n);
  Block q, k, v, g, o, b, a, q_taps, k_taps, v_taps;
  std::vector<Block> q_expansion, k_expansion;  ///< for every head
};

/// One sequence of a call: reads its inputs, writes its outputs.
class Sequence {
 public:
  Sequence(const OperatorArguments& call, const Contract& contract, const Extents& extents,
           const Weights& weights, std::int64_t b);
  virtual ~Sequence() = default;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  void run();

 protected:
  /// y = x W, with W given transposed: for the hidden states, for heads of q and k, and for the gated
  /// mixture.
  virtual void product(const Block& x, const Block& weight, Block& y) const;
  virtual void output(const Block& gated, const Block& weight, Block& y) const;
  /// Called with q, k [T, H d] of branch e after its expansion and before its convolutions.
  virtual void expanded(std::int64_t, Block&, Block&) {}
  /// Token t of a convolution followed by silu; `history` is [W - 1 + T, channels].
  virtual void convolve(const Block& taps, const Block& history, std::int64_t t, float* y) const;
  /// beta = sigma(b), g = -e^A softplus(a + bias).
  [[nodiscard]] virtual float strength(float b) const;
  [[nodiscard]] virtual float log_decay(float a, float bias, float rate) const;
  /// q, k, v, g, beta, scale and l2norm for the windows of branch e of head h on `tokens`; each window is a
  /// head.
  virtual void windows(std::int64_t e, std::int64_t h, const std::vector<std::int64_t>& tokens,
                       Arguments& core);
  virtual void rule(Arguments& core) const { rule_of(core, Contract{}); }
  static void rule_of(const Arguments& core, const Contract& own);
  /// to += omega times the sum of the windows' o, N rows that are `stride` apart: the contribution of a
  /// branch to a token of a head.
  virtual void mix(const float* o, std::int64_t stride, float omega, float* to) const;
  /// One head of the mixture: its norm, weight and gate by z, in place.
  virtual void normed(float* a, const float* z, const float* weight) const;
  /// True if token t of head h uses branch e.
  [[nodiscard]] bool uses(std::int64_t t, std::int64_t h, std::int64_t e) const {
    return used_[static_cast<std::size_t>((t * n_.H + h) * n_.E + e)] != 0;
  }

  const Extents& n_;
  const Contract& contract_;
  const Format kept_;
  Block v_, beta_, g_;  ///< [T, H dv] convolved; [T, E H]
  /// memory behind the views of windows()
  std::vector<float> q_rows_, k_rows_, v_rows_, g_rows_, beta_rows_;

 private:
  void projected(const Block& x, const Block& weight, Block& y) const;
  void drop_pads(Block& x) const;
  void head_of(const Block& x, std::int64_t h, Block& to) const;
  void branch_of(const std::vector<Block>& wide, std::int64_t e, Block& to) const;
  void gates(const Block& b, const Block& a);
  void route();
  void convolved(const Block& x, const Block& taps, std::string_view state, std::int64_t part, Block& y);
  void run_head(std::int64_t e, std::int64_t h);
  void finish();

  const OperatorArguments& call_;
  const Weights& w_;
  std::int64_t b_;
  TensorRows<const float> mask_;
  Block z_, q_, k_, omega_, mixed_;
  std::vector<char> used_;
  layer::Dense o_;
};

/// Evaluates all sequences of a call, each by an Each, which derives from Sequence.
template <class Each>
[[nodiscard]] Outcome run(const OperatorArguments& call, const Contract& contract) {
  const Extents extents(call);
  const Weights weights(call, extents);
  for_each_task(call.batch, call.threads,
                [&] { return [&](std::int64_t b) { Each(call, contract, extents, weights, b).run(); }; });
  return {};
}

}  // namespace samestate::cpu::dendritic
