#include "oracles/bounds/chunked.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "oracles/bounds/algebra.h"
#include "oracles/bounds/decay.h"
#include "oracles/bounds/inverse.h"
#include "oracles/bounds/shared.h"
#include "reference/error.h"

/// A chunk of L tokens from the state S with error Sigma (names of reference/contract.h; G = cumsum g):
///   V' = U - W S          dV: error of its rows made in this chunk
///   o  = scale (e^G Q S + P V')
///   S <- e^{G_L} S + K^T (e^{G_L - G} V')
/// To first order o_i sees dS only through R_i = e^{G_i} q_i - (P W)_i, the next state only through
/// Phi = e^{G_L} I - K_d^T W, K_d = diag(e^{G_L - G}) K; both are computed exactly, so that
///   Bp    = scale sqrt(R Sigma R^T) (+) local errors,   Sigma <- Phi Sigma Phi^T (+)time local errors.
/// Second order enters by inflating the row norms of S, V' and Z with sqrt(Sigma_ll) and the like.
///
/// In-kernel l2norm: the kernel's keys are k_j (1 + kappa_j), queries q_i (1 + epsilon_i), |kappa|, |epsilon|
/// <= e over the whole row, so that products change by exact factors instead of by sums of absolute values:
///   (Q K^T)_ij by epsilon_i + kappa_j, (K K^T)_ij by kappa_i + kappa_j: 2 e |.| in det, sqrt 2 e |.| in
///   quadrature; e^G q_i S by epsilon_i;  row j of beta e^G K S by kappa_j;  term j of K_d^T V' by kappa_j.
/// One kappa_j serves all these places, which quadrature takes apart: a row's RMS was 1.36 times Bp at worst,
/// a head's 1.01, the state's 1.02 (random heads, dk 4-32, chunks 5-64). Each element is rounded besides
/// (u_qk: to fp32, and to `qk` when re-rounded), and then W sees the rounded k too.
namespace samestate {
namespace {

using bounds::below_fp32;
using bounds::ChunkDecay;
using bounds::diagonal_roots;
using bounds::quadratic;
using bounds::row_norms;

using Mat = Matrix<double>;
using Vec = Vector<double>;

/// Sigma -> Phi Sigma Phi^T with Phi = e I - Kd^T W: through Phi itself where dk is small, else in rank-L
/// form. Both work from one side, then from the other, so that a contraction cancels accurately.
Mat propagated(const Mat& sigma, double e, const Mat& Kd, const Mat& W) {
  if (2 * Kd.cols() < 3 * Kd.rows()) {
    const Mat phi = e * Mat::Identity(Kd.cols(), Kd.cols()) - Kd.transpose() * W;
    const Mat left = phi * sigma;
    return left * phi.transpose();
  }
  const Mat read = W * sigma;
  const Mat left = e * sigma - Kd.transpose() * read;
  const Mat written = left * W.transpose();
  return e * left - written * Kd;
}

template <Mode mode>
class Chunks {
  using Norms = Algebra<mode>;

 public:
  Chunks(const Sequence<double>& x, const Contract& contract, Structure structure,
         const StateError* carried_in, double key_norm_error, const Trajectory<double>* trajectory,
         const ExponentialModel& exponential)
      : x_(x),
        exponential_(exponential),
        c_(contract),
        delta_(structure.delta),
        e_(key_norm_error),
        trajectory_(trajectory),
        u32_(Norms::deviation(kUnitRoundoff32)),
        u_qk_(Norms::add(Norms::u(below_fp32(contract.qk)), key_norm_error > 0 ? u32_ : 0.0)),
        root_dv_(std::sqrt(static_cast<double>(x.value_width()))),
        scale_(std::fabs(x.scale)),
        error_(bounds::starting_error(carried_in, mode, x.key_width())),
        S_(x.initial_state) {
    // A segment too short to show that its gate repeats goes on as the one before it.
    gated_ = !Norms::worst_case && !(x.g.array() == 0.0).all();
    coherent_gate_ = !Norms::worst_case && (coherent_decay(x.g) || error_.repeating_gate);
    error_.repeating_gate = coherent_gate_;
  }

  [[nodiscard]] Bound run(Index chunk) {
    bound_ = bounds::empty_bound(x_);
    for (Index begin = 0; begin < x_.tokens(); begin += chunk) {
      load(begin, std::min(chunk, x_.tokens() - begin));
      scores();
      if (delta_) {
        delta_rule();
      } else {
        W_ = Mat::Zero(L_, K_.cols());
        n_ = row_norms(V_new_);
        dV_ = u32_ * n_;
        R_ = decay_.from_start.asDiagonal() * Q_;
      }
      output(begin);
      next_state();
    }
    bound_.carry = std::move(error_);
    bounds::finish(bound_, c_.output);
    return std::move(bound_);
  }

 private:
  /// The chunk's inputs, its exact outputs and the exact state after it, by the recurrence.
  void load(Index begin, Index tokens) {
    L_ = tokens;
    Q_ = x_.q.middleRows(begin, L_);
    K_ = x_.k.middleRows(begin, L_);
    beta_ = x_.beta.segment(begin, L_);
    decay_ = bounds::chunk_decay(x_.g.segment(begin, L_), c_.exponential, c_.scan, mode, exponential_);
    bV_ = beta_.asDiagonal() * x_.v.middleRows(begin, L_);
    V_new_ = bV_;
    S_next_ = S_;
    for (Index i = 0; i < L_; ++i) {
      S_next_ *= std::exp(x_.g(begin + i));
      if (trajectory_ != nullptr) {
        V_new_.row(i) = trajectory_->delta.row(begin + i);
      } else if (delta_) {
        V_new_.row(i) -= beta_(i) * (K_.row(i) * S_next_);
      }
      S_next_.noalias() += K_.row(i).transpose() * V_new_.row(i);
      if (trajectory_ == nullptr) bound_.o.row(begin + i).noalias() = x_.scale * (Q_.row(i) * S_next_);
    }
    if (trajectory_ != nullptr) bound_.o.middleRows(begin, L_) = trajectory_->o.middleRows(begin, L_);
    s_ = row_norms(S_) + diagonal_roots(error_.sigma);
    QS_ = row_norms(Q_ * S_);
    KS_ = K_ * S_;
  }

  /// Error of the products X K^T before the decay multiplies them: accumulation, both operands' rounding (and
  /// that of beta k for A), the factors of the l2norm.
  [[nodiscard]] Mat product_error(const Mat& X, const Mat& value, double u_beta_k) const {
    const Mat size = Norms::mm(X, K_.transpose());
    const Mat exact = value.cwiseAbs();
    return Norms::add(Norms::acc(K_.cols(), size, exact, c_.accumulator),
                      Norms::add(Norms::add(u_qk_, u_qk_), u_beta_k) * size, Norms::add(e_, e_) * exact);
  }

  /// P = Q K^T o E and dP.
  void scores() {
    const Mat QK = Q_ * K_.transpose();
    P_ = QK.cwiseProduct(decay_.between);
    const Mat size = P_.cwiseAbs();
    const Mat dQK = product_error(Q_, QK, 0.0);
    const Mat stored = Norms::u(c_.P) * size + subnormal_error(c_.P) * ones(Eigen::Lower);
    dP_ = Norms::add(dQK.cwiseProduct(decay_.between), QK.cwiseAbs().cwiseProduct(decay_.between_error),
                     u32_ * size, stored);
  }

  /// A, T, U, W, and dV from every rounding on the way to V' = T (bV - b e^G K S).
  void delta_rule() {
    const Mat& sigma = error_.sigma;
    const Mat KK = K_ * K_.transpose();
    const Vec b_norm = beta_.cwiseAbs();
    Mat A = (beta_.asDiagonal() * KK.cwiseProduct(decay_.between))
                .template triangularView<Eigen::StrictlyLower>();
    const Mat T =
        (Mat::Identity(L_, L_) + A).template triangularView<Eigen::UnitLower>().solve(Mat::Identity(L_, L_));
    const Mat Kt = beta_.cwiseProduct(decay_.from_start).asDiagonal() * K_;
    const Mat KtS = beta_.cwiseProduct(decay_.from_start).asDiagonal() * KS_;
    const Mat U = T * bV_;
    W_ = T * Kt;
    n_ = row_norms(V_new_) + quadratic(W_, sigma);
    const Vec z = row_norms(bV_ - KtS) + quadratic(Kt, sigma);

    // dA, through (I + A)^-1: T dA V' to first order, fac for the rest of the series.
    const Mat dKK = product_error(K_, KK, Norms::u(c_.beta_k));
    Mat dA = Norms::add(b_norm.asDiagonal() * dKK.cwiseProduct(decay_.between),
                        b_norm.asDiagonal() * KK.cwiseAbs().cwiseProduct(decay_.between_error),
                        2 * u32_ * A.cwiseAbs(), Norms::u(below_fp32(c_.A)) * A.cwiseAbs());
    dA = dA.template triangularView<Eigen::StrictlyLower>().toDenseMatrix().eval();
    const double nonlinear = Norms::worst_case ? Norms::mm(T, dA).rowwise().sum().maxCoeff()
                                               : 3 * row_norms(Norms::mm(T, dA)).maxCoeff();
    const double limit = Norms::worst_case ? 0.9 : 0.7;
    bound_.nonlinearity = std::max(bound_.nonlinearity, nonlinear);
    bound_.vacuous = bound_.vacuous || !(nonlinear < limit);
    const Vec e_A = Norms::mv(T, Norms::mv(dA, n_)) / (1 - std::min(nonlinear, limit));

    // The same stored T multiplies bV and b e^G K: its error acts on Z = bV - b e^G K S.
    const Mat dT = bounds::inverse_error(A, T, c_.inverse, c_.inverse_operand, c_.accumulator, mode);
    const Vec e_T = Norms::add(Norms::mv(dT, z), Norms::mv(stored_T_error(T), z));

    const Vec ones_L = Vec::Ones(L_);
    const Vec T1 = Norms::mv(T, ones_L);
    const Vec Tbv = Norms::mv(T, row_norms(bV_));
    const Vec U_norm = row_norms(U);
    const Vec e_bV =
        Norms::add(Norms::add(u_beta_v(), u32_) * Tbv, subnormal_error(c_.beta_v) * root_dv_ * T1,
                   Norms::acc(L_, Tbv, U_norm, c_.accumulator));
    const Vec e_U = (Norms::u(c_.U) * U_norm).array() + subnormal_error(c_.U) * root_dv_;

    const Vec Tw = Norms::mv(T, Norms::mv(Kt, s_));
    const double u_bK = Norms::add(Norms::u(c_.beta_exp_k), 2 * u32_, e_ > 0 ? u_qk_ : 0.0);
    const Vec e_bK =
        Norms::add(u_bK * Tw, Norms::acc(L_, Tw, Vec::Zero(L_), c_.accumulator),
                   subnormal_error(c_.beta_exp_k) * s_.sum() * T1, e_ * Norms::mv(T, row_norms(KtS)));
    const Vec KS_norm = row_norms(KS_);
    const Vec e_decay = Norms::mv(T, b_norm.cwiseProduct(decay_.start_error).cwiseProduct(KS_norm));
    coherent_write_ = b_norm.cwiseProduct(coherent_start()).cwiseProduct(KS_norm);

    const Vec ws = Norms::mv(W_, s_);
    const Vec e_W = (Norms::u(c_.W) * ws).array() + subnormal_error(c_.W) * s_.sum();
    const Vec W1 = W_.cwiseAbs().rowwise().sum();
    const Mat WS = W_ * S_;
    const Vec e_S =
        Norms::add(Norms::u(c_.state_operand) * ws + subnormal_error(c_.state_operand) * root_dv_ * W1,
                   Norms::acc(K_.cols(), ws, row_norms(WS), c_.accumulator));
    dV_ = Norms::add(e_A, e_T, e_bV, e_U, e_bK, e_decay, e_W, e_S, u32_ * n_);
    R_ = decay_.from_start.asDiagonal() * Q_ - P_ * W_;
    note_range(T, U, bV_, W_);
  }

  /// Rounding of the stored T: its diagonal 1 is exact, unless it is T diag(beta) that is stored.
  [[nodiscard]] Mat stored_T_error(const Mat& T) const {
    if (c_.beta_in_T) {
      return Norms::add(Norms::u(c_.T) * T.cwiseAbs(), u32_ * T.cwiseAbs(),
                        subnormal_error(c_.T) * ones(Eigen::Lower));
    }
    const Mat off = T.template triangularView<Eigen::StrictlyLower>();
    return Norms::add(Norms::u(c_.T) * off.cwiseAbs(), subnormal_error(c_.T) * ones(Eigen::StrictlyLower));
  }

  /// With beta in T the operand is v itself, already in the input format: only a tf32 unit rounds it.
  [[nodiscard]] double u_beta_v() const {
    const bool tf32 = c_.beta_v == Format::tf32 || c_.beta_v == Format::tf32_truncated;
    return c_.beta_in_T && !tf32 ? 0.0 : Norms::u(c_.beta_v);
  }

  void output(Index begin) {
    const Vec& eG = decay_.from_start;
    const Vec qs = Norms::mv(Q_, s_);
    const double operands = Norms::add(Norms::u(c_.state_operand), u_qk_, Norms::u(c_.q_decayed), u32_);
    const Vec Q1 = Q_.cwiseAbs().rowwise().sum();
    const Vec from_state =
        eG.cwiseProduct(Norms::add(operands * qs, Norms::acc(K_.cols(), qs, QS_, c_.accumulator))) +
        decay_.start_error.cwiseProduct(QS_) +
        subnormal_error(c_.state_operand) * root_dv_ * Q1.cwiseProduct(eG) + e_ * eG.cwiseProduct(QS_);
    const Vec rounded = (Norms::u(c_.v_new) * n_).array() + subnormal_error(c_.v_new) * root_dv_;
    const Mat PV = P_ * V_new_;
    const Vec in_chunk = Norms::add(Norms::mv(P_, Norms::add(dV_, rounded)), Norms::mv(dP_, n_),
                                    Norms::acc(L_, Norms::mv(P_, n_), row_norms(PV), c_.accumulator));
    const Vec local = scale_ * Norms::add(quadratic(R_, error_.sigma), from_state, in_chunk);
    const Vec sums = row_norms(bound_.o.middleRows(begin, L_)) + scale_ * eG.cwiseProduct(QS_);
    bound_.before_output.segment(begin, L_) =
        Norms::add(local, 3 * u32_ * sums).array() + kSmallestNormal32 * root_dv_;
    if (gated_) {
      Vec made = coherent_start().cwiseProduct(QS_);
      if (delta_) made += P_.cwiseAbs() * coherent_write_;
      bound_.coherent.segment(begin, L_) = scale_ * (quadratic(R_, error_.coherent) + made);
    }
    note_range(V_new_, S_, S_next_, P_);
  }

  /// Sigma <- Phi Sigma Phi^T (+)time [Kd^T D Kd (+) diag(Er) (+) decay], S <- S_next.
  void next_state() {
    const double eC = decay_.from_start(L_ - 1);
    const Vec to_end = decay_.between.row(L_ - 1);
    const Vec to_end_error =
        decay_.between_error.row(L_ - 1).transpose().cwiseQuotient(to_end.cwiseMax(1e-300));
    const Mat Kd = to_end.asDiagonal() * K_;
    const Vec Kd_squares = Kd.rowwise().squaredNorm();
    const double decay_squared = std::pow(decay_.start_error(L_ - 1), 2);

    // What the tokens write is off along their own keys: Kd^T diag(weight) Kd.
    const Format written = c_.k_decayed == Format::none ? c_.v_decayed : c_.v_new;
    Vec dVs = Norms::add(dV_, Norms::add(Norms::u(written), u32_) * n_);
    if (Norms::worst_case) dVs += to_end_error.cwiseProduct(n_);
    const Vec weight = Norms::diag(dVs);
    const double trace_written = weight.dot(Kd_squares);

    // Rounding of the sum itself, row by row of S.
    const Vec mk = Norms::mv(Kd.transpose(), n_);
    const Mat KV = Kd.transpose() * V_new_;
    const Vec next = row_norms(S_next_);
    const Vec K1 = K_.cwiseAbs().colwise().sum();
    const Vec floor = Vec::Constant(mk.size(), (subnormal_error(c_.state) + 0x1p-148) * root_dv_);
    const Vec row_errors = Norms::add(Norms::acc(L_, mk, row_norms(KV), c_.accumulator),
                                      Norms::add(Norms::u(c_.k_decayed), u_qk_) * mk, u32_ * (next + eC * s_),
                                      Norms::u(below_fp32(c_.state)) * next,
                                      subnormal_error(c_.v_decayed) * root_dv_ * K1, floor, e_ * mk);
    const Vec diagonal = Norms::diag(row_errors);

    Mat& sigma = error_.sigma;
    sigma = propagate(sigma, eC, Kd);
    Vec weights = weight;
    double decay_factor = coherent_gate_ ? 0.0 : 1.0 / 3.0;
    const Vec V_norm = row_norms(V_new_);
    double f_diagonal = 1.0;
    if constexpr (mode == Mode::det) {
      const auto f = worst_case_factors<4>(
          {sigma.trace(), trace_written, diagonal.sum(), decay_squared * S_.squaredNorm()});
      sigma *= f[0];
      weights *= f[1];
      f_diagonal = f[2];
      decay_factor = f[3];
    } else {
      if constexpr (mode == Mode::semi) {
        const auto f = worst_case_factors<2>({sigma.trace(), trace_written + diagonal.sum()});
        sigma *= f[0];
        weights *= f[1];
        f_diagonal = f[1];
      }
      if (!coherent_gate_) weights += to_end_error.cwiseProduct(V_norm).cwiseAbs2() / 3.0;
    }
    sigma.noalias() += Kd.transpose() * (weights.asDiagonal() * Kd);
    sigma.diagonal() += f_diagonal * diagonal;
    Mat gram;
    if (decay_squared > 0) gram = S_ * S_.transpose();
    if (decay_squared > 0 && decay_factor > 0) sigma += decay_factor * decay_squared * gram;

    if (gated_) {
      const double start_squared = std::pow(coherent_start()(L_ - 1), 2);
      const Vec end_bias = decay_.end_bias.cwiseQuotient(to_end.cwiseMax(1e-300));
      const Vec coherent = (coherent_gate_ ? to_end_error : end_bias).cwiseProduct(V_norm);
      Mat& sum = error_.coherent;
      sum = propagate(sum, eC, Kd);
      const Vec all = coherent * coherent.sum();
      const auto f =
          worst_case_factors<3>({sum.trace(), start_squared * S_.squaredNorm(), all.dot(Kd_squares)});
      sum *= f[0];
      if (start_squared > 0) sum += f[1] * start_squared * gram;
      sum.noalias() += Kd.transpose() * ((f[2] * all).asDiagonal() * Kd);
    }
    std::swap(S_, S_next_);
  }

  /// The error of e^G that adds linearly from chunk to chunk: all of it where the gate repeats, else the
  /// exponential's bias.
  [[nodiscard]] const Vec& coherent_start() const {
    return coherent_gate_ ? decay_.start_error : decay_.start_bias;
  }

  /// The range guard G0 reads the largest magnitude among all that a kernel stores.
  template <class... Matrices>
  void note_range(const Matrices&... x) {
    bound_.largest = std::max({bound_.largest, x.cwiseAbs().maxCoeff()...});
  }

  [[nodiscard]] Mat propagate(const Mat& sigma, double e, const Mat& Kd) const {
    return delta_ ? propagated(sigma, e, Kd, W_) : Mat(e * e * sigma);
  }

  [[nodiscard]] Mat ones(unsigned part) const {
    Mat x = Mat::Ones(L_, L_);
    return part == Eigen::Lower ? Mat(x.triangularView<Eigen::Lower>())
                                : Mat(x.triangularView<Eigen::StrictlyLower>());
  }

  const Sequence<double>& x_;
  const ExponentialModel& exponential_;
  const Contract& c_;
  bool delta_;
  double e_;  ///< error of the l2norm factor
  const Trajectory<double>* trajectory_;
  double u32_;
  double u_qk_;
  double root_dv_;
  double scale_;
  bool gated_ = false;          ///< the coherent part is tracked: a gate, in prob or semi
  bool coherent_gate_ = false;  ///< all of the decay's error goes to it
  StateError error_;
  Bound bound_;

  // This chunk.
  Index L_ = 0;
  Mat Q_, K_, bV_, V_new_, S_, S_next_, KS_, P_, dP_, W_, R_;
  Vec beta_;
  ChunkDecay decay_;
  Vec s_;               ///< row norms of S, inflated
  Vec QS_;              ///< row norms of Q S
  Vec n_;               ///< row norms of V', inflated
  Vec dV_;              ///< row errors of V'
  Vec coherent_write_;  ///< |b| d(e^G) ||K S||: what the decay's error does to Z
};

}  // namespace

Bound bound_chunked(const Sequence<double>& sequence, const Contract& contract, Structure structure,
                    Mode mode, Index chunk, const StateError* carried_in, double key_norm_error,
                    const Trajectory<double>* trajectory, const ExponentialModel& exponential) {
  if (chunk < 1) throw Error("bound: chunk=" + std::to_string(chunk) + ": a chunk holds at least 1 token");
  bounds::check_shapes(sequence, carried_in);
  if (trajectory != nullptr &&
      (trajectory->delta.rows() != sequence.tokens() || trajectory->delta.cols() != sequence.value_width() ||
       trajectory->o.rows() != sequence.tokens() || trajectory->o.cols() != sequence.value_width())) {
    throw Error("bound: the trajectory has " + std::to_string(trajectory->delta.rows()) +
                " tokens and the sequence " + std::to_string(sequence.tokens()) +
                ": compute it from this sequence");
  }
  const auto bound = [&]<Mode m>() {
    return Chunks<m>(sequence, contract, structure, carried_in, key_norm_error, trajectory, exponential)
        .run(chunk);
  };
  switch (mode) {
    case Mode::det:
      return bound.template operator()<Mode::det>();
    case Mode::semi:
      return bound.template operator()<Mode::semi>();
    case Mode::prob:
      break;
  }
  return bound.template operator()<Mode::prob>();
}

}  // namespace samestate
