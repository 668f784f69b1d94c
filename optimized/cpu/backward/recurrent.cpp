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
    for (std::vector<float>* x : {&v_, &d_o_, &e_, &u_, &d_u_, &d_e_})
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

  /// e = v - R^T k and u = beta e, or both v, where beta is 1.
  void write_value(const float* before) {
    std::copy(v_.begin(), v_.end(), e_.begin());
    if (system_.delta) {
      for (std::int64_t l = 0; l < dk_; ++l)
        add_row(-(decay_ * k_[l]), before + l * width_, e_.data(), width_);
    }
    scale_row(beta_, e_.data(), u_.data(), width_);
  }

  /// Row l of R + k u^T.
  void write_row(std::int64_t l, const float* before, float* after) const {
    scale_row(decay_, before, after, width_);
    add_row(k_[l], u_.data(), after, width_);
  }

  void reverse(const BackwardHead& head, std::int64_t t, const float* before) {
    load_token(head, t);
    write_value(before);
    load_key(head.forward.q, t, dk_, arguments_.l2norm, Format::fp32, q_.data());
    if (head.d_o.data) head.d_o.load(t, 0, dv_, d_o_.data());  // else it stays zero

    std::fill(d_u_.begin(), d_u_.end(), 0.0F);
    for (std::int64_t l = 0; l < dk_; ++l) {
      float* const D = D_.data() + l * width_;
      add_row(arguments_.scale * q_[l], d_o_.data(), D, width_);
      add_row(k_[l], D, d_u_.data(), width_);
    }
    if (system_.delta) scale_row(beta_, d_u_.data(), d_e_.data(), width_);
    if (head.d_beta.data) *head.d_beta.row(t) = dot_rows(d_u_.data(), e_.data(), width_);

    float d_g = 0.0F;
    for (std::int64_t l = 0; l < dk_; ++l) {
      const RowSums sums = reverse_row(k_[l], before + l * width_, D_.data() + l * width_);
      d_q_[t * key_width_ + l] += arguments_.scale * sums.d_q;
      d_k_[t * key_width_ + l] += sums.d_k;
      d_g += sums.d_g;
    }
    if (head.d_g.data) *head.d_g.row(t) = d_g;
    if (head.d_v.data) {
      std::vector<float>& d_v = system_.delta ? d_e_ : d_u_;
      round_values(d_v.data(), d_v.data(), width_, contract_.output);
      head.d_v.store(t, 0, dv_, d_v.data());
    }
  }

  struct RowSums {
    float d_q, d_k, d_g;
  };

  /// Reads row l of the state before the token: (R + k u^T) do, D u - R de and <dR, R> of this row, where dR = D - k de^T;
  /// D <- e^g dR.
  [[nodiscard]] RowSums reverse_row(float key, const float* before, float* D) const {
    Lanes decay;
    Lanes k;
    Lanes minus_k;
    splat(decay, decay_);
    splat(k, key);
    splat(minus_k, -key);
    Lanes d_q{};
    Lanes d_k{};
    Lanes d_g{};
    for (std::int64_t c = 0; c < width_; c += kLanes) {
      Lanes R;
      Lanes d;
      Lanes u;
      Lanes d_e;
      Lanes d_o;
      load(R, before + c);
      load(d, D + c);
      load(u, u_.data() + c);
      load(d_e, d_e_.data() + c);
      load(d_o, d_o_.data() + c);
      R *= decay;
      fuse(d_k, d, u);
      const Lanes minus_R = -R;
      fuse(d_k, minus_R, d_e);
      Lanes after = R;
      fuse(after, k, u);
      fuse(d_q, after, d_o);
      fuse(d, minus_k, d_e);
      fuse(d_g, d, R);
      d *= decay;
      store(D + c, d);
    }
    return {sum_of_lanes(d_q), sum_of_lanes(d_k), sum_of_lanes(d_g)};
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
  std::int64_t dk_, dv_;
  std::int64_t key_width_, width_;  ///< the same, rounded up to kLanes; rows are padded with zeros

  StateSweep sweep_;
  std::vector<float> S_, D_;          ///< [dk, width] the initial state, and the cotangent of the state
  std::vector<float> d_q_, d_k_;      ///< [tokens, key_width] sums over the value heads so far
  float decay_ = 1.0F, beta_ = 1.0F;  ///< these, and those below, belong to one token
  std::vector<float> q_, k_;          ///< [key_width]
  std::vector<float> v_, d_o_, e_, u_, d_u_, d_e_;  ///< [width]; d_e is zero without a delta term
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
