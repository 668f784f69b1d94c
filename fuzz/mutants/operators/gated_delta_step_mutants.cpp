#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/operators/gated_delta_step.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/rounding.h"

/// The serving step of Gated DeltaNet: M14, M16, M17, M19, M24, M26, M29, M31, M33, M47-M51, M55-M59, and slots and gates.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;
using Head = cpu::GatedDeltaStepHead;

/// The kernel with one stage replaced by `Wrong`.
template <class Wrong>
CallFault stage() {
  return [](const OperatorKernel&, ChangedCall& c, const Contract& contract) {
    Wrong head(c.call, contract);
    for (std::int64_t b = 0; b < c.call.batch; ++b) {
      for (std::int64_t h = 0; h < c.at("Hv"); ++h) head.run(b, h);
    }
    return Outcome{};
  };
}

// Slots.

struct NullIsSlot0 final : Head {
  using Head::Head;
  std::int64_t slot_read(std::int64_t b) const override {
    return std::max<std::int64_t>(Head::slot_read(b), 0);
  }
};
struct NullIsLastSlot final : Head {
  using Head::Head;
  std::int64_t slot_read(std::int64_t b) const override { return (Head::slot_read(b) + P_) % P_; }
};
struct SlotOffByOne final : Head {
  using Head::Head;
  std::int64_t slot_read(std::int64_t b) const override {
    const std::int64_t slot = Head::slot_read(b);
    return slot < 0 ? slot : (slot + 1) % P_;
  }
};
struct WrongRowWritten final : Head {
  using Head::Head;
  std::int64_t slot_written(std::int64_t b) const override {
    const std::int64_t slot = slot_read(b);
    return slot < 0 ? slot : (slot + 1) % P_;
  }
};
struct RowOfBatchWritten final : Head {
  using Head::Head;
  std::int64_t slot_written(std::int64_t b) const override {
    const std::int64_t slot = slot_read(b);
    return slot < 0 ? slot : b % P_;
  }
};

/// Calls f(element) for the elements that the call left in slots without an owner.
template <class Function>
void each_unowned(Call& c, Function&& f) {
  const std::int64_t P = c.at("P");
  std::int64_t place = 0;
  each_row(c.output("pool"), c.at("Hv") * c.at("dk") * c.at("dv"), [&](std::span<float> state) {
    const std::int64_t b = place / P;
    const bool own = c.input("slot")[static_cast<std::size_t>(b)] == static_cast<float>(place++ % P);
    if (!own) std::ranges::for_each(state, f);
  });
}
void unowned_in_bf16(Call& c) {
  each_unowned(c, [](float& x) { x = cpu::to_bf16(x); });
}
void unowned_zeroed(Call& c) {
  each_unowned(c, [](float& x) { x = 0.0F; });
}
/// The values that a copy by arithmetic leaves: -0 + 0 is 0.
void unowned_plus_zero(Call& c) {
  each_unowned(c, [](float& x) { x = x == 0.0F ? 0.0F : x; });
}
void unowned_flushed(Call& c) {
  each_unowned(c, [](float& x) { x = std::fpclassify(x) == FP_SUBNORMAL ? 0.0F : x; });
}
void whole_pool_in_bf16(Call& c) {
  for (float& x : c.output("pool")) x = cpu::to_bf16(x);
}
/// The output of a request without a slot keeps what its buffer held.
void null_output_left(Call& c) {
  const std::int64_t size = c.call.tokens * c.at("Hv") * c.at("dv");
  std::int64_t b = 0;
  each_row(c.output("o"), size, [&](std::span<float> o) {
    if (c.input("slot")[static_cast<std::size_t>(b++)] < 0.0F) std::ranges::fill(o, 1.0F);
  });
}
/// Transposes each state from [dv, dk] to [dk, dv] or back, for a kernel that stores the other order.
void turned(std::span<float> pool, std::int64_t rows, std::int64_t columns) {
  each_row(pool, rows * columns, [=](std::span<float> state) {
    const std::vector<float> old(state.begin(), state.end());
    for (std::int64_t i = 0; i < rows * columns; ++i)
      state[static_cast<std::size_t>(i % columns * rows + i / columns)] = old[static_cast<std::size_t>(i)];
  });
}

// Gates.

struct DecayOmitted final : Head {
  using Head::Head;
  float log_decay(float, std::int64_t) const override { return 0.0F; }
};
struct SoftplusMissing final : Head {
  using Head::Head;
  float log_decay(float a, std::int64_t h) const override {
    return -std::exp(call_.input("A_log").data[h]) * (a + call_.input("dt_bias").data[h]);
  }
};
struct SoftplusOverflows final : Head {
  using Head::Head;
  float log_decay(float a, std::int64_t h) const override {
    const float x = a + call_.input("dt_bias").data[h];
    return -std::exp(call_.input("A_log").data[h]) * std::log(1.0F + std::exp(x));
  }
};
struct RateWithoutExponential final : Head {
  using Head::Head;
  float log_decay(float a, std::int64_t h) const override {
    return -call_.input("A_log").data[h] * cpu::layer::softplus(a + call_.input("dt_bias").data[h]);
  }
};
struct RawStrength final : Head {
  using Head::Head;
  float strength(float b) const override { return b; }
};
struct SiluStrength final : Head {
  using Head::Head;
  float strength(float b) const override { return cpu::layer::silu(b); }
};
struct DoubledStrength final : Head {
  using Head::Head;
  float strength(float b) const override { return 2.0F * Head::strength(b); }
};
struct StrengthInBf16 final : Head {
  using Head::Head;
  float strength(float b) const override { return cpu::to_bf16(Head::strength(b)); }
};
struct StrengthInInputFormat final : Head {
  using Head::Head;
  float strength(float b) const override {
    float beta = Head::strength(b);
    cpu::round_values(&beta, &beta, 1, contract_.input);
    return beta;
  }
};

// Heads, norms, scale.

struct TiledHeads final : Head {
  using Head::Head;
  std::int64_t key_head(std::int64_t h) const override { return h % Hk_; }
};
struct NoScale final : Head {
  using Head::Head;
  float scale() const override { return 1.0F; }
};
struct ScaleOfValues final : Head {
  using Head::Head;
  float scale() const override { return 1.0F / root_of(dv_); }
};
/// A norm that divides by f(sum of squares).
template <float (*f)(float)>
struct OtherNorm final : Head {
  using Head::Head;
  void normalise(float* x) const override {
    if (call_.parameter("l2norm") == 0) return;
    float sum = 0.0F;
    for (std::int64_t i = 0; i < dk_; ++i) sum += x[i] * x[i];
    for (std::int64_t i = 0; i < dk_; ++i) x[i] /= f(sum);
  }
};
float epsilon_outside(float sum) { return std::sqrt(sum) + 1e-6F; }
float largest_of_length(float sum) { return std::max(std::sqrt(sum), 1e-6F); }
struct MeanNorm final : Head {
  using Head::Head;
  void normalise(float* x) const override {
    if (call_.parameter("l2norm") == 0) return;
    const float factor = cpu::layer::inverse_root_mean_square(x, dk_, 1e-6F) / root_of(dk_);
    for (std::int64_t i = 0; i < dk_; ++i) x[i] *= factor;
  }
};

// The rule.

struct UndecayedDelta final : Head {
  using Head::Head;
  float pass(float* S, float v) const override {
    const float u = strength_ * (v - dot(S, k_));
    for (std::int64_t i = 0; i < dk_; ++i) S[i] = decay_ * S[i] + u * k_[static_cast<std::size_t>(i)];
    return dot(S, q_);
  }
};
struct LogDecayMultiplies final : Head {
  using Head::Head;
  float pass(float* S, float v) const override {
    const float u = strength_ * (v - g_ * dot(S, k_));
    for (std::int64_t i = 0; i < dk_; ++i) S[i] = g_ * S[i] + u * k_[static_cast<std::size_t>(i)];
    return dot(S, q_);
  }
};
struct ReadsBeforeWrite final : Head {
  using Head::Head;
  float pass(float* S, float v) const override {
    const float o = decay_ * dot(S, q_);
    (void)Head::pass(S, v);
    return o;
  }
};
struct ValueWithoutStrength final : Head {
  using Head::Head;
  float pass(float* S, float v) const override {
    const float u = v - strength_ * decay_ * dot(S, k_);
    for (std::int64_t i = 0; i < dk_; ++i) S[i] = decay_ * S[i] + u * k_[static_cast<std::size_t>(i)];
    return dot(S, q_);
  }
};

/// The state after the call is the one before its last token.
Outcome last_token_not_kept(const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
  const Outcome outcome = right.run(c.call, contract);
  // The last token neither decays nor writes.
  const auto closed = [&](std::string_view name, float value) {
    const std::int64_t Hv = c.at("Hv");
    each_row(c.input(name), c.call.tokens * Hv,
             [&](std::span<float> x) { std::ranges::fill(x.last(static_cast<std::size_t>(Hv)), value); });
  };
  const std::span<float> o = c.output("o");
  const std::vector<float> written(o.begin(), o.end());
  closed("a", -200.0F);
  closed("b", -200.0F);
  (void)right.run(c.call, contract);
  std::ranges::copy(written, o.begin());
  return outcome;
}

}  // namespace

std::vector<Mutant> gated_delta_step_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.gated_delta_step.expanded",
      {{"M14", "log_decay_multiplies", "g multiplies the state, not e^g", stage<LogDecayMultiplies>()},
       {"M16", "decay_omitted", "the state does not decay", stage<DecayOmitted>()},
       {"M17", "undecayed_delta", "the error is that of the state before it decays", stage<UndecayedDelta>()},
       {"M19", "value_without_strength", "beta is missing on the written value",
        stage<ValueWithoutStrength>()},
       {"M24", "pool_in_bf16", "the pool is kept in bf16 where fp32 is promised",
        miswritten(whole_pool_in_bf16)},
       {"M26", "state_not_read", "every call starts from zero",
        [](const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
          const std::vector<float> given(c.input("pool").begin(), c.input("pool").end());
          c.fill("pool", 0.0F);
          const Outcome outcome = right.run(c.call, contract);
          std::size_t i = 0;
          const std::span<float> pool = c.output("pool");
          each_unowned(c, [&](float& x) {
            i = static_cast<std::size_t>(&x - pool.data());
            x = given[i];
          });
          return outcome;
        }},
       {"M29", "null_slot_is_slot_0", "no slot is taken for slot 0", stage<NullIsSlot0>()},
       {"M31", "tiled_heads", "the key head of value head h is h mod Hk", stage<TiledHeads>()},
       {"M33", "state_transposed", "the states of the pool are read and written as [dv, dk]",
        changed([](Call& c) { turned(c.input("pool"), c.at("dv"), c.at("dk")); },
                [](Call& c) { turned(c.output("pool"), c.at("dk"), c.at("dv")); })},
       {"M47", "no_scale", "the scale is left out", stage<NoScale>()},
       {"M47", "scale_of_values", "the scale is that of dv", stage<ScaleOfValues>()},
       {"M48", "largest_of_length", "l2norm divides by max(length, epsilon)",
        stage<OtherNorm<largest_of_length>>()},
       {"M49", "epsilon_outside", "epsilon is added to the length, not to the sum of squares",
        stage<OtherNorm<epsilon_outside>>()},
       {"M50", "mean_of_squares", "epsilon is added to the mean of squares", stage<MeanNorm>()},
       {"M51", "never_normalised", "q and k are taken as they are", misread(fixed("l2norm", 0))},
       {"F", "always_normalised", "q and k are normalised where they are to be taken as they are",
        misread(fixed("l2norm", 1))},
       {"M55", "bf16_beta", "beta is rounded to bf16", stage<StrengthInBf16>()},
       {"M55", "beta_in_input_format", "beta is rounded to the format of b", stage<StrengthInInputFormat>()},
       {"M56", "silu_beta", "beta = silu(b)", stage<SiluStrength>()},
       {"M57", "rate_of_rate", "-exp(A_log) of a value that is -exp(A_log) already",
        misread(mapped("A_log", [](float a) { return -std::exp(a); }))},
       {"M58", "softplus_overflows", "log(1 + exp(x)) without a branch for large x",
        stage<SoftplusOverflows>()},
       {"M59", "bf16_rate", "A_log is held in bf16",
        misread(mapped("A_log", [](float a) { return cpu::to_bf16(a); }))},
       {"F", "null_slot_is_the_last", "slot -1 is the last one, as an index from the end",
        stage<NullIsLastSlot>()},
       {"F", "null_output_left", "without a slot the output is what its buffer held",
        miswritten(null_output_left)},
       {"F", "slot_off_by_one", "the state is that of the next slot", stage<SlotOffByOne>()},
       {"F", "slot_of_the_next_request", "the slot is that of the next request",
        misread([](Call& c) { rotate(c.input("slot"), 1); })},
       {"F", "wrong_row_written", "the new state goes to the next slot", stage<WrongRowWritten>()},
       {"F", "row_of_the_batch_written", "the new state goes to the row of the batch, not to the slot",
        stage<RowOfBatchWritten>()},
       {"F", "unowned_zeroed", "the slots of no request are zero after the call", miswritten(unowned_zeroed)},
       {"F", "unowned_in_bf16", "the slots of no request go through bf16", miswritten(unowned_in_bf16)},
       {"F", "unowned_plus_zero", "zero is added to the slots of no request", miswritten(unowned_plus_zero)},
       {"F", "unowned_flushed", "subnormal numbers in the slots of no request are flushed",
        miswritten(unowned_flushed)},
       {"F", "softplus_missing", "g = -exp(A_log) (a + dt_bias)", stage<SoftplusMissing>()},
       {"F", "no_bias", "dt_bias is left out", misread(filled("dt_bias", 0.0F))},
       {"F", "rate_without_exponential", "g = -A_log softplus(a + dt_bias)", stage<RateWithoutExponential>()},
       {"F", "raw_beta", "beta = b", stage<RawStrength>()},
       {"F", "beta_doubled", "beta = 2 sigma(b)", stage<DoubledStrength>()},
       {"F", "a_and_b_exchanged", "a is taken for b and b for a", misread(exchanged("a", "b"))},
       {"F", "read_before_write", "the output is read before the token is written",
        stage<ReadsBeforeWrite>()},
       {"F", "last_token_not_kept", "the pool gets the state before the last token", last_token_not_kept}});
  return out;
}

}  // namespace samestate::mutants
