#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "harness/run/kernel_table.h"
#include "oracles/rounding.h"

/// A chunked gated delta rule as its user would write it first, in plain loops with plain sums: what it rounds is bf16_u_fp32,
/// with an exact exponential and norm:unrounded+qk:bf16, or fp32 throughout. Dense batches alone.
namespace samestate::testing {

struct Plain {
  Format operands = Format::bf16;        ///< of everything that bf16_u_fp32 rounds; fp32: nothing
  Format loads = Format::fp32;           ///< q, k and v are rounded to it as they are loaded
  bool loads_qk = true, loads_v = true;  ///< or these alone
  bool rounds_k_twice = false;           ///< beta e^G k is of the rounded k
};

/// One head of one sequence.
class PlainHead {
 public:
  PlainHead(const Arguments& a, const Plain& plain, std::int64_t n, std::int64_t h)
      : a_(a),
        plain_(plain),
        n_(n),
        h_(h),
        kh_(h / (a.v.shape[2] / a.k.shape[2])),
        dk_(a.k.shape[3]),
        dv_(a.v.shape[3]) {}

  void run() {
    state_.assign(static_cast<std::size_t>(dk_ * dv_), 0.0F);
    for (std::int64_t i = 0; a_.initial_state.present() && i < dk_ * dv_; ++i)
      state_[i] = a_.initial_state(n_, h_, i / dv_, i % dv_);
    for (std::int64_t t = 0; t < a_.q.shape[1]; t += a_.chunk)
      chunk(t, std::min(a_.chunk, a_.q.shape[1] - t));
    for (std::int64_t i = 0; a_.final_state.present() && i < dk_ * dv_; ++i)
      a_.final_state(n_, h_, i / dv_, i % dv_) = state_[i];
  }

 private:
  using Row = std::vector<float>;
  using Rows = std::vector<Row>;
  [[nodiscard]] float operand(float x) const { return round_to(x, plain_.operands); }
  void round(Row& row) const {
    for (float& x : row) x = operand(x);
  }
  [[nodiscard]] Row loaded(const View<const float, 4>& x, std::int64_t t, std::int64_t h) const {
    const bool rounds = &x == &a_.v ? plain_.loads_v : plain_.loads_qk;
    Row row;
    float squares = 0.0F;
    for (std::int64_t i = 0; i < x.shape[3]; ++i) {
      row.push_back(round_to(x(n_, t, h, i), rounds ? plain_.loads : Format::fp32));
      squares += row.back() * row.back();
    }
    const float r = 1.0F / std::sqrt(squares + 1e-6F);
    for (float& e : row) e *= a_.l2norm && &x != &a_.v ? r : 1.0F;
    return row;
  }
  [[nodiscard]] static float dot(const Row& x, const Row& y) {
    float sum = 0.0F;
    for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
    return sum;
  }

  void chunk(std::int64_t first, std::int64_t tokens) {
    const auto L = static_cast<std::size_t>(tokens), dk = static_cast<std::size_t>(dk_),
               dv = static_cast<std::size_t>(dv_);
    Rows q(L), k(L), v(L), whole(L), T(L, Row(L)), U(L, Row(dv)), W(L, Row(dk)), added(L, Row(dv));
    Row G(L), beta(L), held = state_;
    float sum = 0.0F;
    for (std::size_t i = 0; i < L; ++i) {
      const std::int64_t t = first + static_cast<std::int64_t>(i);
      sum += a_.g.present() ? std::max(-128.0F, a_.g(n_, t, h_)) : 0.0F;
      G[i] = sum;
      beta[i] = a_.beta.present() ? a_.beta(n_, t, h_) : 1.0F;
      q[i] = loaded(a_.q, t, kh_), k[i] = loaded(a_.k, t, kh_), v[i] = loaded(a_.v, t, h_);
      whole[i] = k[i];
      round(q[i]), round(k[i]);
      if (plain_.rounds_k_twice) whole[i] = k[i];
    }
    for (std::size_t i = 0; i < L; ++i) {
      Row A(i);
      for (std::size_t j = 0; j < i; ++j) A[j] = dot(k[i], k[j]) * beta[i] * std::exp(G[i] - G[j]);
      T[i][i] = 1.0F;
      for (std::size_t j = 0; j < i; ++j) {
        for (std::size_t m = j; m < i; ++m) T[i][j] -= A[m] * T[m][j];
      }
    }
    for (Row& row : T) round(row);
    round(held);
    for (std::size_t i = 0; i < L; ++i) {
      for (std::size_t m = 0; m <= i; ++m) {
        for (std::size_t j = 0; j < dv; ++j) U[i][j] += T[i][m] * operand(beta[m] * v[m][j]);
        for (std::size_t j = 0; j < dk; ++j)
          W[i][j] += T[i][m] * operand(beta[m] * std::exp(G[m]) * whole[m][j]);
      }
      for (std::size_t j = 0; j < dv; ++j) {
        float read = 0.0F;
        for (std::size_t m = 0; m < dk; ++m) read += operand(W[i][m]) * held[m * dv + j];
        added[i][j] = U[i][j] - read;
      }
    }
    for (std::size_t i = 0; i < L; ++i) {
      for (std::size_t j = 0; j < dv; ++j) {
        float read = 0.0F, own = 0.0F;
        for (std::size_t m = 0; m < dk; ++m) read += q[i][m] * held[m * dv + j];
        for (std::size_t m = 0; m <= i; ++m)
          own += operand(dot(q[i], k[m]) * std::exp(G[i] - G[m])) * operand(added[m][j]);
        a_.o(n_, first + static_cast<std::int64_t>(i), h_, static_cast<std::int64_t>(j)) =
            operand(a_.scale * (std::exp(G[i]) * read + own));
      }
    }
    for (std::size_t m = 0; m < dk; ++m) {
      for (std::size_t j = 0; j < dv; ++j) {
        float written = 0.0F;
        for (std::size_t i = 0; i < L; ++i)
          written += k[i][m] * operand(std::exp(G[L - 1] - G[i]) * added[i][j]);
        state_[m * dv + j] = std::exp(G[L - 1]) * state_[m * dv + j] + written;
      }
    }
  }

  const Arguments& a_;
  const Plain& plain_;
  std::int64_t n_, h_, kh_, dk_, dv_;
  std::vector<float> state_;
};

/// Returns the table with that kernel after the others.
inline KernelTable plain_table(const Plain& plain, const std::string& declared) {
  KernelTable table(kernels());
  Kernel row;
  row.name = "plain.gated_delta_rule.chunked";
  row.system = "gated_delta_rule";
  row.form = "chunked";
  row.device = "cpu";
  row.contracts = {declared};
  row.run = [plain](const Arguments& a, const Contract&) {
    for (std::int64_t n = 0; n < a.q.shape[0]; ++n) {
      for (std::int64_t h = 0; h < a.v.shape[2]; ++h) PlainHead(a, plain, n, h).run();
    }
    return Outcome{};
  };
  table.add(std::span(&row, 1));
  return table;
}

}  // namespace samestate::testing
