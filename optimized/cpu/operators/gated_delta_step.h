#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {

/// One value head of one request at a time; its state is held as [dv, dk] while the tokens of its slot pass.
/// Each stage is a function of its own, so that a mutant can override it.
class GatedDeltaStepHead {
 public:
  /// Both arguments must outlive this object.
  GatedDeltaStepHead(const OperatorArguments& call, const Contract& contract);
  virtual ~GatedDeltaStepHead() = default;
  GatedDeltaStepHead(const GatedDeltaStepHead&) = delete;
  GatedDeltaStepHead& operator=(const GatedDeltaStepHead&) = delete;

  void run(std::int64_t b, std::int64_t h);

 protected:
  /// The slot whose state request b continues from; negative if none.
  [[nodiscard]] virtual std::int64_t slot_read(std::int64_t b) const;
  /// The slot that receives the new state.
  [[nodiscard]] virtual std::int64_t slot_written(std::int64_t b) const { return slot_read(b); }
  [[nodiscard]] virtual std::int64_t key_head(std::int64_t h) const { return h / (Hv_ / Hk_); }
  /// g of head h.
  [[nodiscard]] virtual float log_decay(float a, std::int64_t h) const;
  /// beta.
  [[nodiscard]] virtual float strength(float b) const;
  /// dk elements of q or k.
  virtual void normalise(float* x) const;
  [[nodiscard]] virtual float scale() const;
  /// Processes one row of the state, dk elements, and its value v: u = beta (v - e^g S k), S <- e^g S + u k.
  /// Returns S q.
  [[nodiscard]] virtual float pass(float* S, float v) const;
  [[nodiscard]] float dot(const float* x, const std::vector<float>& y) const;

  const OperatorArguments& call_;
  const Contract& contract_;
  std::int64_t Hk_, Hv_, P_, dk_, dv_;
  std::vector<float> q_, k_;  ///< q and k of the current token
  float g_ = 0.0F, decay_ = 1.0F, strength_ = 0.0F;

 private:
  [[nodiscard]] TensorRows<const float> given(std::int64_t b, std::int64_t slot, std::int64_t h) const;
  [[nodiscard]] TensorRows<float> left(std::int64_t b, std::int64_t slot, std::int64_t h) const;
  void load_key(std::string_view name, std::int64_t b, std::int64_t row, std::vector<float>& to) const;
  void token(std::int64_t b, std::int64_t t, std::int64_t h);

  std::vector<float> o_;
  Block state_;  ///< [dv, dk]
  Block rows_;   ///< [dk, dv]
};

/// The serving step of Gated DeltaNet with gates and l2norm inside: in one pass, each row of the state is
/// read before it decays, written, and read again. It computes in fp32 under every contract. Throws Error for
/// a slot outside the pool.
[[nodiscard]] Outcome gated_delta_step_expanded(const OperatorArguments& call, const Contract& contract);

}  // namespace samestate::cpu
