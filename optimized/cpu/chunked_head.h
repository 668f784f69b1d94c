#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "optimized/cpu/block.h"
#include "optimized/cpu/inverse.h"
#include "optimized/cpu/l2norm.h"
#include "optimized/cpu/layout.h"
#include "optimized/cpu/products.h"

/// One head of the chunked form, for the kernels that work in chunks: over all tokens in order (chunked.h),
/// or over those of one rank (sequence_parallel.h).
namespace samestate::cpu {

/// G_i = sum_{m <= i} g_m in fp32. The tree adds at distances 1, 2, 4, ..., with depth ceil(log2 L).
inline void cumulative_sum(std::vector<float>& g, Scan scan) {
  const auto size = static_cast<std::int64_t>(g.size());
  if (scan == Scan::sequential) {
    for (std::int64_t i = 1; i < size; ++i) g[i] += g[i - 1];
    return;
  }
  for (std::int64_t distance = 1; distance < size; distance *= 2) {
    for (std::int64_t i = size; i-- > distance;) g[i] += g[i - distance];
  }
}

/// Evaluates one head chunk by chunk; an o without data is not wanted. The matrices have the names that
/// Contract uses.
template <bool delta, bool decay, class Sums>
class ChunkedHead {
 public:
  ChunkedHead(const Sums& sums, const Arguments& arguments, const Contract& contract)
      : sums_(sums),
        arguments_(arguments),
        contract_(contract),
        factored_(arguments.l2norm && contract.norm == Norm::factor),
        log2e_(contract.exponential == Exponential::ex2 ? contract.log2e : Log2e::difference) {}

  void run(const Head& head) {
    S_.resize(head.dk, head.dv);
    for (std::int64_t l = 0; l < head.dk; ++l) {
      if (head.initial_state.data) {
        head.initial_state.load(l, 0, head.dv, S_.row(l));
      } else {
        std::fill_n(S_.row(l), head.dv, 0.0F);
      }
    }
    for (std::int64_t first = 0; first < head.tokens; first += arguments_.chunk) {
      load_chunk(head, first, std::min(arguments_.chunk, head.tokens - first));
      state_operand_ = &rounded(S_, contract_.state_operand, S_rounded_);
      decays();
      if constexpr (delta) {
        triangle();
        if (contract_.residual == Format::none) {
          corrected_values();
        } else {
          residual_values();
        }
      } else {
        std::swap(V_, V_new_);
      }
      if (head.o.data) outputs(head, first);
      update_state();
    }
    if (head.final_state.data) {
      for (std::int64_t l = 0; l < head.dk; ++l) head.final_state.store(l, 0, head.dv, S_.row(l));
    }
  }

 private:
  /// Loads Q, K [L, dk], V [L, dv], g and beta [L] of the chunk.
  void load_chunk(const Head& head, std::int64_t first, std::int64_t length) {
    // A key normalised here is rounded before any use; a given one only as an operand of K K^T, Q K^T and K^T
    // V'.
    const Format format = arguments_.l2norm && contract_.norm == Norm::operand ? contract_.qk : Format::fp32;
    L_ = length;
    Q_.resize(length, head.dk);
    K_.resize(length, head.dk);
    V_.resize(length, head.dv);
    G_.resize(static_cast<std::size_t>(length));
    beta_.resize(static_cast<std::size_t>(length));
    const bool normalised = arguments_.l2norm && !factored_;
    if (factored_) {
      q_factor_.resize(static_cast<std::size_t>(length));
      k_factor_.resize(static_cast<std::size_t>(length));
    }
    for (std::int64_t i = 0; i < length; ++i) {
      load_key(head.q, first + i, head.dk, normalised, format, Q_.row(i));
      load_key(head.k, first + i, head.dk, normalised, format, K_.row(i));
      if (factored_) {
        q_factor_[i] = l2_factor(Q_.row(i), head.dk);
        k_factor_[i] = l2_factor(K_.row(i), head.dk);
      }
      head.v.load(first + i, 0, head.dv, V_.row(i));
      if constexpr (decay) G_[i] = clamped_decay(*head.g.row(first + i));
      beta_[i] = head.beta.data ? *head.beta.row(first + i) : 1.0F;
    }
    q_operand_ = &rounded(Q_, contract_.qk, Q_rounded_);
    k_operand_ = &rounded(K_, contract_.qk, K_rounded_);
    transpose(*k_operand_, K_transposed_);
  }

  /// E_ij = exp(G_i - G_j) for j <= i only: the differences above the diagonal are positive (EQUATIONS 8.3).
  void decays() {
    if constexpr (!decay) return;
    if (log2e_ == Log2e::gate) scale(G_);
    cumulative_sum(G_, contract_.scan);
    if (log2e_ == Log2e::sum) scale(G_);
    E_.resize(L_, L_);
    exp_G_.resize(static_cast<std::size_t>(L_));
    to_end_.resize(static_cast<std::size_t>(L_));
    for (std::int64_t i = 0; i < L_; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) E_.row(i)[j] = decayed(G_[i] - G_[j]);
      exp_G_[i] = decayed(G_[i]);
    }
    std::copy_n(E_.row(L_ - 1), L_, to_end_.begin());
  }

  static void scale(std::vector<float>& g) {
    for (float& x : g) x *= kLog2e;
  }

  /// e^x, or 2^x if log2 e has been multiplied in before.
  [[nodiscard]] float decayed(float x) const {
    return log2e_ == Log2e::difference ? exponential(x, contract_.exponential) : std::exp2(x);
  }

  /// x o E on and below the diagonal (`diagonal` 1) or below it (0), zero elsewhere.
  void mask(Block& x, std::int64_t diagonal) const {
    for (std::int64_t i = 0; i < L_; ++i) {
      float* row = x.row(i);
      const std::int64_t kept = i + diagonal;
      if constexpr (decay) {
        for (std::int64_t j = 0; j < kept; ++j) row[j] *= E_.row(i)[j];
      }
      std::fill(row + kept, row + x.stride, 0.0F);
    }
  }

  /// x_ij <- row_i k_factor_j x_ij.
  void scale_both(const std::vector<float>& row, Block& x) const {
    for (std::int64_t i = 0; i < L_; ++i) {
      for (std::int64_t j = 0; j <= i; ++j) x.row(i)[j] *= row[i] * k_factor_[j];
    }
  }

  /// A = strict_lower(beta K K^T o E), T = (I + A)^-1.
  void triangle() {
    if (contract_.beta_k == Format::none) {
      product_lower(sums_, *k_operand_, K_transposed_, A_);
      mask(A_, 0);
      scale_rows(beta_.data(), A_, A_);
    } else {
      scale_rows(beta_.data(), K_, scaled_);
      round_in_place(scaled_, contract_.beta_k);
      product_lower(sums_, scaled_, K_transposed_, A_);
      mask(A_, 0);
    }
    if (factored_) scale_both(k_factor_, A_);
    round_in_place(A_, contract_.A);
    invert(sums_, contract_, A_, T_);
    if (contract_.beta_in_T) {
      for (std::int64_t i = 0; i < L_; ++i) {
        for (std::int64_t j = 0; j <= i; ++j) T_.row(i)[j] *= beta_[j];
      }
    }
    round_in_place(T_, contract_.T);
  }

  /// U = T beta V, W = T beta e^G K, V' = U - W S.
  void corrected_values() {
    const bool split_beta = !contract_.beta_in_T;
    factor_.assign(static_cast<std::size_t>(L_), 1.0F);
    if (split_beta) factor_ = beta_;
    scale_rows(factor_.data(), V_, scaled_);
    round_in_place(scaled_, contract_.beta_v);
    lower_product(sums_, T_, scaled_, V_new_);
    round_in_place(V_new_, contract_.U);

    if constexpr (decay) {
      for (std::int64_t i = 0; i < L_; ++i) factor_[i] *= exp_G_[i];
    }
    if (factored_) {
      for (std::int64_t i = 0; i < L_; ++i) factor_[i] *= k_factor_[i];
    }
    scale_rows(factor_.data(), K_, scaled_);
    round_in_place(scaled_, contract_.beta_exp_k);
    lower_product(sums_, T_, scaled_, W_);
    round_in_place(W_, contract_.W);

    product(sums_, W_, *state_operand_, product_);
    for (std::int64_t i = 0; i < V_new_.size(); ++i) V_new_.values[i] -= product_.values[i];
  }

  /// R = beta V - beta e^G K S, V' = T R; if beta is in T, R does not have it.
  void residual_values() {
    product(sums_, *k_operand_, *state_operand_, product_);
    scaled_.resize(L_, V_.columns);
    for (std::int64_t i = 0; i < L_; ++i) {
      const float beta = contract_.beta_in_T ? 1.0F : beta_[i];
      float of_state = beta;
      if constexpr (decay) of_state *= exp_G_[i];
      if (factored_) of_state *= k_factor_[i];
      for (std::int64_t c = 0; c < V_.stride; ++c) {
        scaled_.row(i)[c] = beta * V_.row(i)[c] - of_state * product_.row(i)[c];
      }
    }
    round_in_place(scaled_, contract_.residual);
    lower_product(sums_, T_, scaled_, V_new_);
  }

  /// P = Q K^T o E, O = scale (e^G Q S + P V').
  void outputs(const Head& head, std::int64_t first) {
    product_lower(sums_, *q_operand_, K_transposed_, P_);
    mask(P_, 1);
    if (factored_) scale_both(q_factor_, P_);
    if (contract_.scale_in_P) scale_block(arguments_.scale, P_);
    round_in_place(P_, contract_.P);

    if (contract_.q_decayed != Format::none) {
      scaled_ = *q_operand_;
      if constexpr (decay) scale_rows(exp_G_.data(), scaled_, scaled_);
      round_in_place(scaled_, contract_.q_decayed);
      product(sums_, scaled_, *state_operand_, O_);
    } else {
      product(sums_, *q_operand_, *state_operand_, O_);
      if constexpr (decay) scale_rows(exp_G_.data(), O_, O_);
    }
    if (factored_) scale_rows(q_factor_.data(), O_, O_);
    if (contract_.scale_in_P) scale_block(arguments_.scale, O_);
    const float scale = contract_.scale_in_P ? 1.0F : arguments_.scale;
    lower_product(sums_, P_, rounded(V_new_, contract_.v_new, scaled_), product_);
    for (std::int64_t i = 0; i < O_.size(); ++i) {
      O_.values[i] = (O_.values[i] + product_.values[i]) * scale;
    }
    round_in_place(O_, contract_.output);
    for (std::int64_t i = 0; i < L_; ++i) head.o.store(first + i, 0, head.dv, O_.row(i));
  }

  /// S <- e^{G_C} S + K^T (e^{G_C - G} V').
  void update_state() {
    if (contract_.k_decayed != Format::none) {
      if (factored_) scale_rows(k_factor_.data(), V_new_, V_new_);
      if constexpr (decay) {
        for (std::int64_t l = 0; l < K_transposed_.rows; ++l) {
          for (std::int64_t j = 0; j < L_; ++j) K_transposed_.row(l)[j] *= to_end_[j];
        }
      }
      round_in_place(K_transposed_, contract_.k_decayed);
      product(sums_, K_transposed_, rounded(V_new_, contract_.v_new, scaled_), product_);
    } else {
      if constexpr (decay) scale_rows(to_end_.data(), V_new_, V_new_);
      if (factored_) scale_rows(k_factor_.data(), V_new_, V_new_);
      product(sums_, K_transposed_, rounded(V_new_, contract_.v_decayed, scaled_), product_);
    }
    const float carried = decay ? exp_G_[L_ - 1] : 1.0F;
    for (std::int64_t i = 0; i < S_.size(); ++i) S_.values[i] = S_.values[i] * carried + product_.values[i];
    round_in_place(S_, contract_.state);
  }

  const Sums& sums_;
  const Arguments& arguments_;
  const Contract& contract_;
  bool factored_;  ///< the l2norm multiplies sums, by q_factor_ and k_factor_
  Log2e log2e_;

  std::int64_t L_ = 0;  ///< number of tokens in this chunk
  Block Q_, Q_rounded_, K_, K_rounded_, K_transposed_, V_;
  std::vector<float> G_, beta_, exp_G_, to_end_, factor_, q_factor_, k_factor_;
  Block E_, A_, T_, W_, V_new_, P_, O_, S_, S_rounded_;
  Block scaled_, product_;  ///< scratch for an operand and for a product
  const Block* q_operand_ = nullptr;
  const Block* k_operand_ = nullptr;
  const Block* state_operand_ = nullptr;
};

}  // namespace samestate::cpu
