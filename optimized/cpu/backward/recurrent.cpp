#include "optimized/cpu/backward/recurrent.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "optimized/cpu/backward/l2norm_back.h"
#include "optimized/cpu/backward/row_sums.h"
#include "optimized/cpu/backward/state_sweep.h"
#include "optimized/cpu/layout.h"
#include "optimized/cpu/rounding.h"

namespace samestate::cpu {
namespace {

/// Evaluates one key head of one sequence.
class ReverseRecurrence {
 public:
  ReverseRecurrence(const System& system, const Sizes& sizes, const BackwardArguments& arguments,
                    const Contract& contract)
      : system_(system),
        arguments_(arguments.forward),
        contract_(contract),
        dk_(sizes.dk),
        dv_(sizes.dv),
        key_width_(round_up(sizes.dk, kLanes)),
        width_(round_up(sizes.dv, kLanes)) {
    for (std::vector<float>* x : {&q_, &k_}) x->assign(static_cast<std::size_t>(key_width_), 0.0F);
    for (std::vector<float>* x : {&v_, &d_o_, &e_, &u_, &d_u_, &d_v_, &R_, &after_})
      x->assign(static_cast<std::size_t>(width_), 0.0F);
  }

  void run(const BackwardGroup& group) {
    const Head& first = group.heads.front().forward;
    for (std::vector<float>* x : {&d_q_, &d_k_})
      x->assign(static_cast<std::size_t>(first.tokens * key_width_), 0.0F);
    for (const BackwardHead& head : group.heads) run_head(head);
    write_keys(first.q, first.tokens, d_q_, group.d_q);
    write_keys(first.k, first.tokens, d_k_, group.d_k);
  }

 private:
  void run_head(const BackwardHead& head) {
    load_state(head.forward.initial_state, S_);
    load_state(head.d_final_state, D_);
    sweep_.run(
        head.forward.tokens, dk_ * width_, S_.data(),
        [&](std::int64_t t, const float* before, float* after) {
          load_token(head, t);
          write_value(before);
          for (std::int64_t l = 0; l < dk_; ++l) write_row(l, before + l * width_, after + l * width_);
        },
        [&](std::int64_t t, const float* before) { reverse(head, t, before); });
    if (!head.d_initial_state.data) return;
    round_values(D_.data(), D_.data(), dk_ * width_, contract_.state);
    for (std::int64_t l = 0; l < dk_; ++l) head.d_initial_state.store(l, 0, dv_, D_.data() + l * width_);
  }

  void load_state(const Rows<const float>& from, std::vector<float>& to) const {
    to.assign(static_cast<std::size_t>(dk_ * width_), 0.0F);
    if (!from.data) return;
    for (std::int64_t l = 0; l < dk_; ++l) from.load(l, 0, dv_, to.data() + l * width_);
  }

  void load_token(const BackwardHead& head, std::int64_t t) {
    const Head& x = head.forward;
    load_key(x.k, t, dk_, arguments_.l2norm, Format::fp32, k_.data());
    x.v.load(t, 0, dv_, v_.data());
    decay_ = x.g.data ? std::exp(*x.g.row(t)) : 1.0F;
    beta_ = x.beta.data ? *x.beta.row(t) : 1.0F;
  }

  /// e = v - R^T k and u = beta e, or both v.
  void write_value(const float* before) {
    std::copy(v_.begin(), v_.end(), e_.begin());
    if (system_.delta) {
      for (std::int64_t l = 0; l < dk_; ++l)
        add_row(-(decay_ * k_[l]), before + l * width_, e_.data(), width_);
    }
    for (std::int64_t c = 0; c < width_; ++c) u_[c] = system_.delta ? beta_ * e_[c] : e_[c];
  }

  /// Row l of R + k u^T.
  void write_row(std::int64_t l, const float* before, float* after) const {
    for (std::int64_t c = 0; c < width_; ++c) after[c] = std::fma(k_[l], u_[c], decay_ * before[c]);
  }

  void reverse(const BackwardHead& head, std::int64_t t, const float* before) {
    load_token(head, t);
    write_value(before);
    load_key(head.forward.q, t, dk_, arguments_.l2norm, Format::fp32, q_.data());
    if (head.d_o.data)
      head.d_o.load(t, 0, dv_, d_o_.data());
    else
      std::fill(d_o_.begin(), d_o_.end(), 0.0F);

    std::fill(d_u_.begin(), d_u_.end(), 0.0F);
    for (std::int64_t l = 0; l < dk_; ++l) {
      float* const D = D_.data() + l * width_;
      add_row(arguments_.scale * q_[l], d_o_.data(), D, width_);
      add_row(k_[l], D, d_u_.data(), width_);
    }
    for (std::int64_t c = 0; c < width_; ++c) d_v_[c] = system_.delta ? beta_ * d_u_[c] : d_u_[c];
    if (head.d_beta.data) *head.d_beta.row(t) = dot_rows(d_u_.data(), e_.data(), width_);

    float d_g = 0.0F;
    for (std::int64_t l = 0; l < dk_; ++l) {
      float* const D = D_.data() + l * width_;
      const float* const S = before + l * width_;
      for (std::int64_t c = 0; c < width_; ++c) R_[c] = decay_ * S[c];
      write_row(l, S, after_.data());
      d_q_[t * key_width_ + l] += arguments_.scale * dot_rows(after_.data(), d_o_.data(), width_);
      float d_key = dot_rows(D, u_.data(), width_);
      if (system_.delta) {
        d_key -= dot_rows(R_.data(), d_v_.data(), width_);
        add_row(-k_[l], d_v_.data(), D, width_);
      }
      d_k_[t * key_width_ + l] += d_key;
      d_g += dot_rows(D, R_.data(), width_);
      for (std::int64_t c = 0; c < width_; ++c) D[c] *= decay_;
    }
    if (head.d_g.data) *head.d_g.row(t) = d_g;
    if (head.d_v.data) {
      round_values(d_v_.data(), d_v_.data(), width_, contract_.output);
      head.d_v.store(t, 0, dv_, d_v_.data());
    }
  }

  /// Writes the sums over the group as gradients of q or k as they are given.
  void write_keys(const Rows<const float>& x, std::int64_t tokens, std::vector<float>& gradient,
                  const Rows<float>& to) {
    if (!to.data) return;
    for (std::int64_t t = 0; t < tokens; ++t) {
      float* const row = gradient.data() + t * key_width_;
      if (arguments_.l2norm) {
        x.load(t, 0, dk_, q_.data());
        l2_normalise_back(q_.data(), row, dk_, Format::fp32, Format::fp32);
      }
      round_values(row, row, dk_, contract_.output);
      to.store(t, 0, dk_, row);
    }
  }

  const System& system_;
  const Arguments& arguments_;
  const Contract& contract_;
  std::int64_t dk_, dv_, key_width_,
      width_;  ///< sizes, and their multiples of kLanes that rows are padded to with zeros

  StateSweep sweep_;
  std::vector<float> S_, D_;          ///< [dk, width] the initial state, and the cotangent of the state
  std::vector<float> d_q_, d_k_;      ///< [tokens, key_width] sums over the value heads so far
  float decay_ = 1.0F, beta_ = 1.0F;  ///< this and those below: of one token
  std::vector<float> q_, k_;          ///< [key_width]
  std::vector<float> v_, d_o_, e_, u_, d_u_, d_v_;  ///< [width]
  std::vector<float> R_, after_;  ///< [width] one row of the decayed state and of the state after the token
};

}  // namespace

template <const System& system>
Outcome run_recurrent_backward(const KernelCall& call, const Contract& contract) {
  const BackwardArguments arguments = backward_arguments_of(call);
  const Sizes sizes = checked_sizes(arguments);
  if (std::string reason = unsupported_reason(system, arguments, contract); !reason.empty())
    return {Outcome::Kind::unsupported, std::move(reason)};
  for_each_task(sizes.sequences * sizes.key_heads, call.threads, [&] {
    return [&, worker = ReverseRecurrence(system, sizes, arguments, contract)](std::int64_t task) mutable {
      worker.run(backward_group_of(arguments, sizes, task / sizes.key_heads, task % sizes.key_heads));
    };
  });
  return {};
}
template Outcome run_recurrent_backward<GATED_DELTA_RULE>(const KernelCall&, const Contract&);
template Outcome run_recurrent_backward<DELTA_RULE>(const KernelCall&, const Contract&);
template Outcome run_recurrent_backward<RETENTION>(const KernelCall&, const Contract&);
template Outcome run_recurrent_backward<LINEAR_ATTENTION>(const KernelCall&, const Contract&);

}  // namespace samestate::cpu
