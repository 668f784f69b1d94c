#include "oracles/bounds/recurrent.h"

#include <algorithm>
#include <cmath>

#include "oracles/bounds/algebra.h"
#include "oracles/bounds/decay.h"
#include "oracles/bounds/shared.h"

/// One step, a = alpha_t, H = I - b k k^T (I where there is no delta rule), x (+) y the sum of ellipsoids:
///   S'    = a S,                      m1 = rounding of a S
///   Sigma <- H (a^2 Sigma (+) diag(m1)) H^T
///   d     = b (v - S'^T k),           dd = error of d made in this step, along k
///   S     <- S' + k d^T,              m2 = rounding of the update
///   Sigma <- Sigma (+) dd^2 k k^T (+) diag(m2)
///   Bp    = scale sqrt(q^T Sigma q) (+) rounding of S^T q
/// and, where the state is stored below fp32, Sigma <- Sigma (+)time diag(m3).
///
/// A kernel that reads the state before the token (reads_old_state; BOUNDS 4.1) takes S^T k and S^T q of S itself and a
/// times them: o = scale (a S^T q + d (k . q)). The rounding of a S is then seen by the next token alone, as
/// m2 is, and what o sees of this step is
///   Bp = scale sqrt(q^T (H a^2 Sigma H^T (+) dd^2 k k^T) q) (+) scale (a acc(dk, mv(q, s), ||S^T q||)
///        + acc(dk, |q|^T |k|, |q . k|) ||d|| + 3 u32 (a ||S^T q|| + |q . k| ||d||)),
/// dd gaining b u32 ||p||.
///
/// The error of alpha_t is relative (the exponential) or the loss of a value that fp32 flushes, and the same
/// for all of S': eps_t^2 H S' S'^T H^T joins Sigma (eps^2 / 3 for the exponential in quadrature, before this
/// token's output is judged), or Sigma_c where the gate repeats, or m1 in det. Of a gate that does not repeat
/// the exponential's bias goes to Sigma_c.
///
/// In-kernel l2norm: the kernel uses k (1 + kappa), q (1 + epsilon) with |kappa|, |epsilon| <= e the same
/// over a row, and rounds each element (u_qk below: to fp32, and to `qk` when re-rounded). To first order
///   p = S'^T k gains kappa p, so d gains -b kappa p;  k d^T gains kappa k d^T, as an error e ||d|| of d
///   would; o gains epsilon o.
/// The elements' own roundings: p is off by u_qk mv(k, s'), row l of k d^T by u_qk |k_l| ||d||, o by
/// u_qk scale mv(q, s).
namespace samestate {
namespace {

using bounds::diagonal_roots;
using bounds::row_norms;

template <Mode mode>
class Recurrence {
  using Norms = Algebra<mode>;
  using Row = Eigen::RowVectorXd;

 public:
  Recurrence(const Sequence<double>& x, const Contract& contract, Structure structure,
             const StateError* carried_in, double key_norm_error, const ExponentialModel& exponential)
      : x_(x),
        exponential_(exponential),
        c_(contract),
        delta_(structure.delta),
        e_(key_norm_error),
        u32_(Norms::deviation(kUnitRoundoff32)),
        u_state_(Norms::u(bounds::below_fp32(contract.state))),
        u_qk_(Norms::add(Norms::u(bounds::below_fp32(contract.qk)), key_norm_error > 0 ? u32_ : 0.0)),
        gated_(!Norms::worst_case && !(x.g.array() == 0.0).all()),
        root_dv_(std::sqrt(static_cast<double>(x.value_width()))),
        S_(x.initial_state),
        norms_(row_norms(x.initial_state)),
        error_(bounds::starting_error(carried_in, mode, x.key_width())) {
    if (carried_in == nullptr && u_state_ > 0) {
      error_.sigma.diagonal() += Norms::diag(u_state_ * norms_);
    }
    // A segment without a gate keeps the errors that earlier gates made.
    gated_ = gated_ || (!Norms::worst_case && !error_.coherent.isZero(0));
    if (gated_) gram_ = S_ * S_.transpose();
    // A segment that is too short to show that its gate repeats is treated like the one before it.
    coherent_gate_ = !Norms::worst_case && (coherent_decay(x.g) || error_.repeating_gate);
    error_.repeating_gate = coherent_gate_;
  }

  [[nodiscard]] Bound run() {
    Bound bound = bounds::empty_bound(x_);
    for (Index t = 0; t < x_.tokens(); ++t) step(t, bound);
    bound.carry = std::move(error_);
    bounds::finish(bound, c_.output);
    return bound;
  }

 private:
  void step(Index t, Bound& bound) {
    const double a = std::exp(x_.g(t));
    const double b = delta_ ? x_.beta(t) : 0.0;
    const double eps = bounds::exponential_error(bounds::clamped(x_.g(t)), c_.exponential, exponential_);
    const double lost = a > 0 ? bounds::flush_error(a) / a : 0.0;
    const Vector<double> k = x_.k.row(t);
    const Vector<double> q = x_.q.row(t);
    const Index dk = k.size();

    // Decay, and p = S'^T k. In det the decay's error counts together with the rounding of a S.
    const Vector<double> decayed = a * (norms_ + diagonal_roots(error_.sigma));
    const bool old = c_.reads_old_state;
    const double of_decay = Norms::worst_case ? eps + lost : 0.0;
    const double relative = old ? of_decay : Norms::worst_case ? Norms::add(u32_, of_decay) : u32_;
    const Vector<double> m1 =
        Norms::add(relative * decayed, Vector<double>::Constant(dk, 0x1p-149 * root_dv_));
    Row before = Row::Zero(x_.value_width());  // S'^T q
    Row p = Row::Zero(x_.value_width());
    for (Index l = 0; l < dk; ++l) {
      S_.row(l) *= a;
      p += k(l) * S_.row(l);
      if (old) before += q(l) * S_.row(l);
    }
    if (gated_) gram_ *= a * a;

    // The token's own write.
    Row d = x_.beta(t) * x_.v.row(t);
    double dd = 0.0;
    if (delta_) {
      const double size = Norms::mv(k.transpose(), decayed)(0);
      d -= b * p;
      dd = Norms::add(std::fabs(b) * Norms::acc(dk, size, p.norm(), c_.accumulator), 3 * u32_ * d.norm(),
                      std::fabs(b) * (u_qk_ * size + (old ? u32_ * p.norm() : 0.0)),
                      e_ * (std::fabs(b) * p.norm() + d.norm()));
    } else {
      dd = Norms::add(2 * u32_ * d.norm(), e_ * d.norm());
    }
    dd += 0x1p-148 * root_dv_;
    Row read = Row::Zero(x_.value_width());  // S^T q
    Vector<double> w(dk);                    // S' d
    for (Index l = 0; l < dk; ++l) {
      w(l) = gated_ ? S_.row(l).dot(d) : 0.0;
      S_.row(l) += k(l) * d;
      norms_(l) = S_.row(l).norm();
      read += q(l) * S_.row(l);
    }
    Vector<double> m2 = Norms::add(u32_ * norms_, Norms::add(u32_, u_qk_) * d.norm() * k.cwiseAbs());
    if (old) m2 = Norms::add(m2, u32_ * decayed);
    const double variance = gated_ && !coherent_gate_ ? eps * eps / 3 + lost * lost : 0.0;
    double carried = propagate(a, b, k, q, Norms::diag(m1), dd, Norms::diag(m2), variance);

    // The output is read before the state is rounded to its stored format.
    double local = 0.0;
    if (old) {
      const double size = Norms::mv(q.transpose(), decayed)(0);
      const double key_size = Norms::mv(q.transpose(), k.cwiseAbs())(0);
      const double key = q.dot(k);
      local = Norms::add(
          Norms::acc(dk, size, before.norm(), c_.accumulator), u_qk_ * size,
          (Norms::acc(dk, key_size, std::fabs(key), c_.accumulator) + Norms::add(u_qk_, u_qk_) * key_size) *
              d.norm(),
          3 * u32_ * (before.norm() + std::fabs(key) * d.norm()), e_ * read.norm());
    } else {
      carried = root_of(error_.sigma, q);
      const double size = Norms::mv(q.transpose(), norms_ + diagonal_roots(error_.sigma))(0);
      local = Norms::add(Norms::acc(dk, size, read.norm(), c_.accumulator), 2 * u32_ * size, u_qk_ * size,
                         e_ * read.norm());
    }
    const double scale = std::fabs(x_.scale);
    bound.o.row(t) = x_.scale * read;
    bound.before_output(t) = scale * Norms::add(carried, local) + kSmallestNormal32 * root_dv_;
    if (gated_) {
      const double bias = bounds::exponential_bias(bounds::clamped(x_.g(t)), c_.exponential, exponential_);
      add_coherent(a, b, k, coherent_gate_ ? eps + lost : bias);
      bound.coherent(t) = scale * root_of(error_.coherent, q);
    }
    bound.largest = std::max(bound.largest, S_.cwiseAbs().maxCoeff());
    if (u_state_ > 0) store();
    if (gated_) write_gram(k, w + 0.5 * d.squaredNorm() * k);
  }

  /// X <- H X H^T + extra k k^T with H = I - b k k^T and X symmetric. One row at a time, first from the left
  /// and then from the right: each step cancels on its own, which the rank-2 form of the same update would
  /// not do.
  static void congruence(Matrix<double>& X, double b, const Vector<double>& k, double extra) {
    const Row right = k.transpose();
    if (b == 0.0) {
      if (extra != 0.0) scale_and_write(X, 1.0, extra, right);
      return;
    }
    // This must not be (X k)^T: on the skew part that rounding leaves in X it has the other sign, and I + b k
    // k^T would grow that part.
    const Row left = right * X;
    for (Index i = 0; i < X.rows(); ++i) {
      X.row(i) -= b * k(i) * left;
      const double y = X.row(i).dot(right);
      X.row(i) -= (b * y - extra * k(i)) * right;
    }
  }

  /// X <- f X + c k k^T.
  static void scale_and_write(Matrix<double>& X, double f, double c, const Row& k) {
    for (Index i = 0; i < X.rows(); ++i) X.row(i) = f * X.row(i) + c * k(i) * k;
  }

  /// Sigma <- H (a^2 Sigma (+) diag(d1)) H^T (+) dd^2 k k^T (+) diag(d2) + variance H S' S'^T H^T, where the
  /// last term is the decay's error. Returns sqrt(q^T Sigma q) before diag(d2) is added.
  double propagate(double a, double b, const Vector<double>& k, const Vector<double>& q,
                   const Vector<double>& d1, double dd, const Vector<double>& d2, double variance) {
    const auto seen = [&](const Matrix<double>& X) { return c_.reads_old_state ? root_of(X, q) : 0.0; };
    double carried = 0.0;
    Matrix<double>& sigma = error_.sigma;
    const double write = dd * dd;
    if constexpr (mode == Mode::prob) {
      if (variance > 0) {
        sigma = a * a * sigma + variance * gram_;
      } else {
        sigma *= a * a;
      }
      sigma.diagonal() += d1;
      congruence(sigma, b, k, write);
      carried = seen(sigma);
      sigma.diagonal() += d2;
    } else if constexpr (mode == Mode::det) {
      const auto [f0, f1] = worst_case_factors<2>({a * a * sigma.trace(), d1.sum()});
      sigma *= f0 * a * a;
      sigma.diagonal() += f1 * d1;
      congruence(sigma, b, k, 0.0);
      carried = seen(sigma) + dd * std::fabs(q.dot(k));
      const auto [h0, h1, h2] = worst_case_factors<3>({sigma.trace(), write * k.squaredNorm(), d2.sum()});
      scale_and_write(sigma, h0, h1 * write, k.transpose());
      sigma.diagonal() += h2 * d2;
    } else {
      // Quadrature inside the step, N = H diag(d1) H^T + dd^2 k k^T + diag(d2), then F2 over time.
      sigma *= a * a;
      congruence(sigma, b, k, 0.0);
      Matrix<double> step = d1.asDiagonal();
      congruence(step, b, k, write);
      carried = seen(sigma) + seen(step);
      step.diagonal() += d2;
      const auto [f0, f1] = worst_case_factors<2>({sigma.trace(), step.trace()});
      sigma = f0 * sigma + f1 * step;
      if (variance > 0) {
        step = variance * gram_;
        congruence(step, b, k, 0.0);
        sigma += step;
        carried = std::hypot(carried, seen(step));
      }
    }
    return carried;
  }

  /// S' S'^T -> S S^T: + k w^T + w k^T with w = S' d + ||d||^2 k / 2. O(dk^2).
  void write_gram(const Vector<double>& k, const Vector<double>& w) {
    const Row key = k.transpose();
    const Row other = w.transpose();
    for (Index i = 0; i < gram_.rows(); ++i) gram_.row(i) += k(i) * other + w(i) * key;
  }

  /// A decay that rounds alike at every token: Sigma_c <- H (a^2 Sigma_c (+) eps^2 S' S'^T) H^T, with (+) as
  /// in det.
  void add_coherent(double a, double b, const Vector<double>& k, double eps) {
    Matrix<double>& sigma = error_.coherent;
    sigma *= a * a;
    if (gated_) {
      const double size = eps * eps;
      const auto [f0, f1] = worst_case_factors<2>({sigma.trace(), size * gram_.trace()});
      sigma = f0 * sigma + f1 * size * gram_;
    }
    congruence(sigma, b, k, 0.0);
  }

  /// Rounding of the stored state, row l to u_state (||S_l|| + sqrt(Sigma_ll)) + eta.
  void store() {
    Matrix<double>& sigma = error_.sigma;
    const Vector<double> m3 =
        (u_state_ * (norms_ + diagonal_roots(sigma))).array() + subnormal_error(c_.state) * root_dv_;
    const Vector<double> d3 = Norms::diag(m3);
    double keep = 1.0;
    double rounding = 1.0;
    if constexpr (Norms::linear_in_time) {
      const auto factors = worst_case_factors<2>({sigma.trace(), d3.sum()});
      keep = factors[0];
      rounding = factors[1];
    }
    sigma *= keep;
    sigma.diagonal() += rounding * d3;
  }

  /// sqrt(q^T X q).
  [[nodiscard]] static double root_of(const Matrix<double>& X, const Vector<double>& q) {
    return std::sqrt(std::max(q.dot(X * q), 0.0));
  }

  const Sequence<double>& x_;
  const ExponentialModel& exponential_;
  const Contract& c_;
  bool delta_;
  double e_;  ///< error of the l2norm factor
  double u32_;
  double u_state_;  ///< 0 if the state is kept in fp32
  double u_qk_;
  bool gated_;  ///< the decay's own error is tracked separately from m1 (not in det)
  double root_dv_;
  bool coherent_gate_ = false;  ///< the decay's error is added to the coherent part
  Matrix<double> S_;
  Vector<double> norms_;  ///< row norms of S
  Matrix<double> gram_;   ///< S S^T, if gated_; S' S'^T inside a step
  StateError error_;
};

}  // namespace

Bound bound_recurrent(const Sequence<double>& sequence, const Contract& contract, Structure structure,
                      Mode mode, const StateError* carried_in, double key_norm_error,
                      const ExponentialModel& exponential) {
  bounds::check_shapes(sequence, carried_in);
  switch (mode) {
    case Mode::det:
      return Recurrence<Mode::det>(sequence, contract, structure, carried_in, key_norm_error, exponential)
          .run();
    case Mode::semi:
      return Recurrence<Mode::semi>(sequence, contract, structure, carried_in, key_norm_error, exponential)
          .run();
    case Mode::prob:
      break;
  }
  return Recurrence<Mode::prob>(sequence, contract, structure, carried_in, key_norm_error, exponential).run();
}

}  // namespace samestate
