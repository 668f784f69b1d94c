#include "harness/laws/head_laws.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/laws/head_comparison.h"
#include "oracles/batch_edit.h"

namespace samestate::laws_detail {

Judgement no_op(const LawSubject& s) {
  Batch idle = s.batch;
  const BatchShape& shape = s.batch.shape;
  for (std::int64_t b = 0; b < shape.B; ++b) {
    for (std::int64_t t = 0; t < shape.T; ++t) make_no_op(idle, b, t);
  }
  const Run idle_run = run_whole(s, std::move(idle));
  const Outputs& out = idle_run.out;
  Worst kept(s);
  kept.compares("no-op tokens: o is zero and the state stays", nullptr, "what the run on them returned",
                nullptr);
  for (std::int64_t n = 0; n < shape.B && s.trace != nullptr; ++n) {
    for (std::int64_t h = 0; h < shape.Hv; ++h) {
      kept.keep({demanded(Matrix<double>::Zero(shape.T, shape.dv), sequence_of(s.batch, n, h).initial_state),
                 demanded(rows_of(idle_run.batch, out, n, h), state_of(idle_run.batch, out, n, h)), 0, 0,
                 shape.T, true, n, h});
    }
  }
  Judgement j;
  j.gate = "exact";
  j.rows = shape.B * shape.T * shape.Hv;
  j.verdict = Verdict::pass;
  const auto differs = [&](const std::vector<float>& actual, const auto& expected, bool state) {
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (actual[i] == expected(i)) continue;
      j.verdict = Verdict::fail;
      j.ratio = std::numeric_limits<double>::infinity();
      j.expected = static_cast<double>(expected(i));
      j.actual = static_cast<double>(actual[i]);
      j.error = std::abs(j.actual - j.expected);
      // [N, Hv, dk, dv] or [B, T, Hv, dv]
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t row = at / shape.dv;
      j.gate = state ? "exact state" : "exact";
      j.worst =
          state
              ? Location{row / shape.dk / shape.Hv, row / shape.dk % shape.Hv, row % shape.dk, at % shape.dv}
              : Location{row / shape.Hv / shape.T, row % shape.Hv, row / shape.Hv % shape.T, at % shape.dv};
      j.reason = fmt::format("no-op tokens changed {}: element {} is {} and must stay {}",
                             state ? "the state" : "o", i, j.actual, j.expected);
      return;
    }
  };
  differs(
      out.final_state, [&](std::size_t i) { return s.batch.initial_state[i]; }, true);
  differs(
      out.o, [](std::size_t) { return 0.0F; }, false);
  return j;
}

namespace {

/// The bound ||S_t||_F <= a_t ||S_{t-1}||_F + beta_t ||k_t|| ||v_t|| holds for 0 <= beta ||k||^2 <= 2,
/// because then ||I - beta k k^T|| <= 1 (P-16). Without the delta rule the first factor is 1 anyway, and beta
/// is 1.
Vector<double> state_norm_bound(const Sequence<double>& x, bool delta) {
  Vector<double> bound(x.tokens());
  double norm = x.initial_state.norm();
  for (Index t = 0; t < x.tokens(); ++t) {
    const double k2 = x.k.row(t).squaredNorm();
    const double grow = delta ? std::max(1.0, std::abs(1.0 - x.beta(t) * k2)) : 1.0;
    norm = grow * std::exp(x.g(t)) * norm + std::abs(x.beta(t)) * std::sqrt(k2) * x.v.row(t).norm();
    bound(t) = norm;
  }
  return bound;
}

}  // namespace

// P-16, P-17: The state cannot outgrow what was written, and an output cannot outgrow what the state
// contains.
Judgement norm_bounds(const LawSubject& s) {
  Worst worst(s);
  const Run all = run_whole(s, s.batch);
  const BatchShape& shape = s.batch.shape;
  worst.compares("the most that the inputs allow", nullptr, "the norm of a row of o, of the state", &all);
  worst.at_most();
  for (std::int64_t n = 0; n < shape.sequences(); ++n) {
    for (std::int64_t h = 0; h < shape.Hv; ++h) {
      const Sequence<double> x = sequence_of(s.batch, n, h);
      const HeadRun head = head_of(s, all, n, h);
      const Vector<double> norms = state_norm_bound(x, s.family.delta);
      if (overflowed_as_expected(head)) {
        worst.add(nothing_to_compare(), n, h);
        continue;
      }
      if (s.trace != nullptr) {
        Matrix<double> most(x.tokens(), 1);
        for (Index t = 0; t < x.tokens(); ++t) most(t, 0) = std::abs(x.scale) * x.q.row(t).norm() * norms(t);
        HeadRun measured = head;  // norms instead of values; the bounds and the run are those of the values
        measured.o = head.o.rowwise().norm();
        measured.state = Matrix<double>::Constant(1, 1, head.state.norm());
        const Matrix<double> last = Matrix<double>::Constant(1, 1, norms(x.tokens() - 1));
        worst.keep({demanded(most, last), std::move(measured), 0, 0, x.tokens(), true, n, h});
      }
      Judgement j;
      j.rows = x.tokens();
      j.verdict = Verdict::pass;
      // Compares the excess over the exact inequality with what rounding may add.
      const auto hold = [&](double value, double limit, double tolerance, Index token, const char* what) {
        const double excess = value - limit;
        const double r = excess <= 0     ? 0.0
                         : tolerance > 0 ? excess / tolerance
                                         : std::numeric_limits<double>::infinity();
        if (r <= j.ratio) return;
        j.ratio = j.row_ratio = r;
        j.error = excess;
        j.bound = tolerance;
        j.worst.token = token;
        if (!(r <= 1.0)) {
          j.verdict = Verdict::fail;
          j.reason =
              fmt::format("{} has norm {:.6g} > {:.6g}, the most that the inputs allow", what, value, limit);
        }
      };
      for (Index t = 0; t < x.tokens(); ++t) {
        hold(head.o.row(t).norm(), std::abs(x.scale) * x.q.row(t).norm() * norms(t), head.oracle.row(t), t,
             "o");
      }
      hold(head.state.norm(), norms(x.tokens() - 1), head.oracle.state, x.tokens() - 1, "the state");
      if (head.oracle.vacuous && j.verdict == Verdict::pass)
        j.verdict = Verdict::vacuous, j.reason = head.oracle.why_vacuous;
      worst.add(std::move(j), n, h);
    }
  }
  return worst.take();
}

// P-19: after a write with beta = 1 and g = 0, reading the same key gives ||k||^2 v + (1 - ||k||^2) S_{t-1}^T
// k: the value just written when ||k|| = 1. The last token is made such a write, its query the key.
Judgement recall(const LawSubject& s) {
  Worst worst(s);
  const BatchShape& shape = s.batch.shape;
  Batch last = s.batch;
  for (std::int64_t b = 0; b < shape.B; ++b) {
    const std::int64_t at = b * shape.T + shape.T - 1;
    if (!last.g.empty()) std::fill_n(last.g.begin() + at * shape.Hv, shape.Hv, 0.0F);
    std::fill_n(last.beta.begin() + at * shape.Hv, shape.Hv, 1.0F);
    std::copy_n(last.k.begin() + at * shape.Hk * shape.dk, shape.Hk * shape.dk,
                last.q.begin() + at * shape.Hk * shape.dk);
  }
  const Run all = run_whole(s, std::move(last));
  worst.compares("scale (||k||^2 v + (1 - ||k||^2) S^T k) of the last token", nullptr,
                 "o of the last token, its query its key, beta = 1 and g = 0", &all);
  for (std::int64_t n = 0; n < shape.B; ++n) {
    for (std::int64_t h = 0; h < shape.Hv; ++h) {
      const Sequence<double> x = sequence_of(all.batch, n, h);
      const HeadRun head = head_of(s, all, n, h);
      if (overflowed_as_expected(head)) {
        worst.add(nothing_to_compare(), n, h);
        continue;
      }
      const Index t = shape.T - 1;
      const Matrix<double> before = s.family.recurrent(x.slice(0, t, x.initial_state)).state;
      const double k2 = x.k.row(t).squaredNorm();
      const Matrix<double> expected = x.scale * (k2 * x.v.row(t) + (1 - k2) * (x.k.row(t) * before));
      if (s.trace != nullptr) worst.keep({demanded(expected, {}), head, 0, t, 1, false, n, h});
      Judgement j = judge_pair(head.o.row(t), head.oracle.row.tail(1), expected, Vector<double>::Zero(1));
      j.worst.token = t;
      worst.add(std::move(j), n, h);
    }
  }
  return worst.take();
}

}  // namespace samestate::laws_detail
