#include "oracles/bounds/chunked.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "oracles/bounds/algebra.h"
#include "oracles/bounds/decay.h"
#include "oracles/bounds/delta_correction.h"
#include "oracles/bounds/shared.h"
#include "reference/error.h"

/// A chunk of L tokens from the state S with error Sigma (names of reference/contract.h; G = cumsum g):
///   V' = U - W S or T R   dV: error of its rows made in this chunk (delta_correction.cpp)
///   o  = scale (e^G Q S + P V')
///   S <- e^{G_L} S + K^T (e^{G_L - G} V')
/// Either sum may be made apart or onto what stands before it: an fp32 kernel sums in any order.
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
/// (u_qk: to fp32, and to `qk` when re-rounded), and then W sees the rounded k too. With Norm::factor no
/// element is: the factors multiply fp32 sums, two roundings u32 a product more, the same e.
namespace samestate {
namespace {

/// The largest loss of a state, in units of itself, when it is the accumulator of L products in blocks of
/// eight: each addend loses up to a quarter of the sum's last place, and the sum up to one (docs/probe.md).
double most_cut(Index L) {
  const double blocks = std::ceil(static_cast<double>(L) / 8.0);
  return (0.25 * (static_cast<double>(L) + blocks) + blocks) * 0x1p-23;
}

using bounds::below_fp32;
using bounds::diagonal_roots;
using bounds::quadratic;
using bounds::row_norms;

using Mat = Matrix<double>;
using Vec = Vector<double>;

/// Sigma -> Phi Sigma Phi^T with Phi = e I - Kd^T W: with Phi itself if dk is small, else in rank-L form.
/// Both multiply from one side and then from the other, so that a contraction cancels accurately.
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
class Chunks : private bounds::Chunk {
  using Norms = Algebra<mode>;
  /// inside a chunk semi is the same as prob
  static constexpr Mode inside = mode == Mode::det ? Mode::det : Mode::prob;

 public:
  Chunks(const Sequence<double>& x, const Contract& contract, Structure structure,
         const StateError* carried_in, double key_norm_error, const Trajectory<double>* trajectory,
         const ExponentialModel& exponential)
      : x_(x),
        exponential_(exponential),
        c_(contract),
        delta_(structure.delta),
        trajectory_(trajectory),
        u32_(Norms::deviation(kUnitRoundoff32)),
        root_dv_(std::sqrt(static_cast<double>(x.value_width()))),
        scale_(std::fabs(x.scale)),
        error_(bounds::starting_error(carried_in, mode, x.key_width())) {
    S = x.initial_state;
    const bool normalises = key_norm_error > 0;
    keys_.in_products = normalises && c_.norm == Norm::factor;
    keys_.factor = key_norm_error + (keys_.in_products ? 2 * kUnitRoundoff32 : 0.0);
    keys_.rounding =
        Norms::add(Norms::u(below_fp32(contract.qk)), normalises && !keys_.in_products ? u32_ : 0.0);
    keys_.products = keys_.in_products ? 2.0 : 0.0;
    scaled_ = c_.scale_in_P && scale_ > 0;
    // The scale may be part of the exponent, as 2^(x log2 e + log2 scale), and is divided out of A again with
    // beta.
    if (scaled_) keys_.products += 2 + exponential_.ex2_slope * std::fabs(std::log2(scale_));
    // A segment that is too short to show that its gate repeats is treated like the one before it. A segment
    // without a gate keeps the errors that earlier gates made.
    gated_ = !Norms::worst_case && (!(x.g.array() == 0.0).all() || !error_.coherent.isZero(0));
    coherent_gate_ = !Norms::worst_case && (coherent_decay(x.g) || error_.repeating_gate);
    error_.repeating_gate = coherent_gate_;
    cuts_ = exponential_.repeats && !Norms::worst_case && c_.accumulator == Accumulator::tensor_core;
    rounds_state_ = exponential_.repeats && !Norms::worst_case && c_.state_operand != Format::none;
    rounds_keys_ =
        exponential_.repeats && !Norms::worst_case && (keys_.rounding > 0 || c_.beta_k != Format::none);
  }

  [[nodiscard]] Bound run(Index chunk) {
    bound_ = bounds::empty_bound(x_);
    for (Index begin = 0; begin < x_.tokens(); begin += chunk) {
      load(begin, std::min(chunk, x_.tokens() - begin));
      scores();
      correct();
      output(begin);
      next_state();
    }
    bound_.carry = std::move(error_);
    bounds::finish(bound_, c_.output);
    return std::move(bound_);
  }

 private:
  /// Loads the chunk's inputs, and computes its exact outputs and the exact state after it by the recurrence.
  void load(Index begin, Index tokens) {
    L = tokens;
    Q = x_.q.middleRows(begin, L);
    K = x_.k.middleRows(begin, L);
    beta = x_.beta.segment(begin, L);
    decay =
        bounds::chunk_decay(x_.g.segment(begin, L), c_.exponential, c_.scan, mode, exponential_, c_.log2e);
    bV = beta.asDiagonal() * x_.v.middleRows(begin, L);
    v = row_norms(x_.v.middleRows(begin, L));
    if (c_.beta_k == Format::fp16 || c_.k_decayed == Format::fp16) note_range(K, Mat(beta.asDiagonal() * K));
    V_new = bV;
    S_next = S;
    read_q_ = read_k = read_k_inside = Vec::Zero(L);
    for (Index i = 0; i < L; ++i) {
      S_next *= std::exp(x_.g(begin + i));
      if (rounds_keys_ && delta_) {
        read_k(i) = read_size(K.row(i), S_next);
        read_k_inside(i) = read_size(K.row(i), S_next - decay.from_start(i) * S);
      }
      if (trajectory_ != nullptr) {
        V_new.row(i) = trajectory_->delta.row(begin + i);
      } else if (delta_) {
        V_new.row(i) -= beta(i) * (K.row(i) * S_next);
      }
      S_next.noalias() += K.row(i).transpose() * V_new.row(i);
      if (rounds_keys_) read_q_(i) = read_size(Q.row(i), S_next);
      if (trajectory_ == nullptr) bound_.o.row(begin + i).noalias() = x_.scale * (Q.row(i) * S_next);
    }
    if (trajectory_ != nullptr) bound_.o.middleRows(begin, L) = trajectory_->o.middleRows(begin, L);
    s = row_norms(S) + diagonal_roots(error_.sigma);
    QS = row_norms(Q * S);
    KS = K * S;
    exp_bias = coherent_gate_ ? decay.start_error : decay.start_bias;
  }

  /// The size of x^T M if each element of x has an independent error.
  template <class Row, class M>
  [[nodiscard]] static double read_size(const Eigen::MatrixBase<Row>& x, const M& m) {
    const Vec size = m.rowwise().norm();
    return x.transpose().cwiseProduct(size).norm();
  }

  /// [dk] The rounding error of S as an operand, row by row.
  [[nodiscard]] Vec state_rounding() const {
    return (Norms::u(c_.state_operand) * s).array() + subnormal_error(c_.state_operand) * root_dv_;
  }

  /// P = Q K^T o E and dP. If the scale is in P, the subnormals are those of scale P.
  void scores() {
    const Mat QK = Q * K.transpose();
    P_ = QK.cwiseProduct(decay.between);
    const Mat size = P_.cwiseAbs();
    const Mat dQK = bounds::product_error<inside>(*this, Q, QK, c_, keys_, 0.0);
    const double eta = subnormal_error(c_.P) / (scaled_ ? scale_ : 1.0);
    const Mat stored = Norms::u(c_.P) * size + eta * bounds::ones(L, Eigen::Lower);
    dP_ = Norms::add(dQK.cwiseProduct(decay.between), QK.cwiseAbs().cwiseProduct(decay.between_error),
                     (1 + keys_.products) * u32_ * size, stored);
  }

  /// V' and its error; R, through which o depends on the state.
  void correct() {
    R_ = decay.from_start.asDiagonal() * Q;
    if (!delta_) {
      v_.W = Mat::Zero(L, K.cols());
      v_.n = row_norms(V_new);
      v_.dV = u32_ * v_.n;
      read_state_ = Vec::Zero(L);
      return;
    }
    v_ = bounds::delta_correction<inside>(*this, c_, keys_, error_.sigma);
    const Mat PW = P_ * v_.W;
    R_ -= PW;
    read_state_ = rounds_state_ ? row_norms(Mat(PW * state_rounding().asDiagonal())) : Vec(Vec::Zero(L));
    bound_.nonlinearity = std::max(bound_.nonlinearity, v_.nonlinearity);
    bound_.vacuous = bound_.vacuous || v_.vacuous;
    bound_.largest = std::max(bound_.largest, v_.largest);
  }

  void output(Index begin) {
    const Vec& eG = decay.from_start;
    const Vec qs = Norms::mv(Q, s);
    const double operands =
        Norms::add(Norms::u(c_.state_operand), keys_.rounding, Norms::u(c_.q_decayed), u32_);
    const Vec Q1 = Q.cwiseAbs().rowwise().sum();
    const Vec from_state =
        eG.cwiseProduct(Norms::add(operands * qs, Norms::acc(K.cols(), qs, QS, c_.accumulator))) +
        decay.start_error.cwiseProduct(QS) +
        subnormal_error(c_.state_operand) * root_dv_ * Q1.cwiseProduct(eG) +
        keys_.factor * eG.cwiseProduct(QS) +
        Vec::Constant(L, c_.q_decayed == Format::fp16 ? subnormal_error(c_.q_decayed) * s.sum() : 0.0);
    const Vec rounded = (Norms::u(c_.v_new) * v_.n).array() + subnormal_error(c_.v_new) * root_dv_;
    // If the scale is in P, one sum continues from e^G Q S.
    const Vec before = scaled_ ? Vec(eG.cwiseProduct(QS)) : Vec(Vec::Zero(L));
    const Vec PV = row_norms(P_ * V_new) + before;
    const Vec sizes = Norms::mv(P_, v_.n) + before;
    const Vec sums_of_o = row_norms(bound_.o.middleRows(begin, L)) / std::max(scale_, kSmallestNormal32);
    const Vec summed = in_any_order(L, sizes, PV, eG.cwiseProduct(QS), sums_of_o);
    // Quadrature over the tokens ignores that one rounding of q_i, or of S, enters all of its products.
    const Vec in_chunk = Norms::add(Norms::mv(P_, Norms::add(v_.dV, rounded)), Norms::mv(dP_, v_.n),
                                    Vec(keys_.rounding * read_q_), read_state_, summed);
    const Vec local = scale_ * Norms::add(quadratic(R_, error_.sigma), from_state, in_chunk);
    const Vec sums = row_norms(bound_.o.middleRows(begin, L)) + scale_ * eG.cwiseProduct(QS);
    bound_.before_output.segment(begin, L) =
        Norms::add(local, (keys_.in_products ? 4 : 3) * u32_ * sums).array() + kSmallestNormal32 * root_dv_;
    if (gated_ || cuts_) {
      Vec made = Vec::Zero(L);
      if (gated_) made = exp_bias.cwiseProduct(QS);
      if (gated_ && delta_) made += P_.cwiseAbs() * v_.coherent_write;
      bound_.coherent.segment(begin, L) = scale_ * (quadratic(R_, error_.coherent) + made);
    }
    note_range(V_new, S, S_next, P_);
  }

  /// Sigma <- Phi Sigma Phi^T (+)time [Kd^T D Kd (+) diag(Er) (+) decay], S <- S_next.
  void next_state() {
    const double eC = decay.from_start(L - 1);
    const Vec to_end = decay.between.row(L - 1);
    const Vec to_end_error =
        (Norms::worst_case || coherent_gate_ ? decay.end_error : Vec(decay.between_error.row(L - 1)))
            .cwiseQuotient(to_end.cwiseMax(1e-300));
    const Mat Kd = to_end.asDiagonal() * K;
    const Vec Kd_squares = Kd.rowwise().squaredNorm();
    const double decay_squared = std::pow(decay.start_error(L - 1), 2);

    // The writes of the tokens have errors along their own keys: Kd^T diag(weight) Kd.
    const Format written = c_.k_decayed == Format::none ? c_.v_decayed : c_.v_new;
    Vec dVs = Norms::add(v_.dV, Norms::add(Norms::u(written), (keys_.in_products ? 2 : 1) * u32_) * v_.n);
    if (Norms::worst_case) dVs += to_end_error.cwiseProduct(v_.n);
    const Vec weight = Norms::diag(dVs);
    const double trace_written = weight.dot(Kd_squares);

    // Rounding of the sum itself, row by row of S.
    const Vec mk = Norms::mv(Kd.transpose(), v_.n);
    const Vec next = row_norms(S_next);
    const Vec K1 = K.cwiseAbs().colwise().sum();
    const Vec floor = Vec::Constant(mk.size(), (subnormal_error(c_.state) + 0x1p-148) * root_dv_);
    const double lost_keys = c_.k_decayed == Format::fp16 ? subnormal_error(c_.k_decayed) * v_.n.sum() : 0.0;
    Vec row_errors =
        Norms::add(in_any_order(L, mk, row_norms(Mat(Kd.transpose() * V_new)), eC * s, next),
                   Norms::add(Norms::u(c_.k_decayed), keys_.rounding) * mk, u32_ * (next + eC * s),
                   Norms::u(below_fp32(c_.state)) * next, subnormal_error(c_.v_decayed) * root_dv_ * K1,
                   floor, keys_.factor * mk, Vec::Constant(mk.size(), lost_keys));
    // If the matrix unit adds the products to the state, the state is truncated with each of their blocks.
    const double most =
        exponential_.repeats && c_.accumulator == Accumulator::tensor_core ? most_cut(L) : 0.0;
    const Vec cut = most * next.cwiseMax(eC * s);
    if (Norms::worst_case) row_errors += cut;
    const Vec diagonal = Norms::diag(row_errors);
    // All tokens of the chunk subtract the same rounding of S: K_d^T W applied to it.
    Mat taken;
    if (rounds_state_ && delta_) taken = (Kd.transpose() * v_.W) * state_rounding().asDiagonal();

    Mat& sigma = error_.sigma;
    sigma = propagate(sigma, eC, Kd);
    Vec weights = weight;
    double decay_factor = coherent_gate_ ? 0.0 : 1.0 / 3.0;
    const Vec V_norm = row_norms(V_new);
    double f_diagonal = 1.0;
    if constexpr (mode == Mode::det) {
      const auto f = worst_case_factors<4>(
          {sigma.trace(), trace_written, diagonal.sum(), decay_squared * S.squaredNorm()});
      sigma *= f[0];
      weights *= f[1];
      f_diagonal = f[2];
      decay_factor = f[3];
    } else {
      if constexpr (mode == Mode::semi) {
        const auto f =
            worst_case_factors<2>({sigma.trace(), trace_written + diagonal.sum() + taken.squaredNorm()});
        sigma *= f[0];
        weights *= f[1];
        f_diagonal = f[1];
      }
      if (!coherent_gate_) weights += to_end_error.cwiseProduct(V_norm).cwiseAbs2() / 3.0;
    }
    sigma.noalias() += Kd.transpose() * (weights.asDiagonal() * Kd);
    sigma.diagonal() += f_diagonal * diagonal;
    if (taken.size() > 0) sigma.noalias() += f_diagonal * (taken * taken.transpose());
    if (decay_squared > 0 && gram_.size() == 0) gram_ = S * S.transpose();
    if (decay_squared > 0 && decay_factor > 0) sigma += decay_factor * decay_squared * gram_;

    if (gated_) {
      const double start_squared = std::pow(exp_bias(L - 1), 2);
      const Vec end_bias = decay.end_bias.cwiseQuotient(to_end.cwiseMax(1e-300));
      const Vec coherent = (coherent_gate_ ? to_end_error : end_bias).cwiseProduct(V_norm);
      Mat& sum = error_.coherent;
      sum = propagate(sum, eC, Kd);
      const Vec all = coherent * coherent.sum();
      const auto f =
          worst_case_factors<3>({sum.trace(), start_squared * S.squaredNorm(), all.dot(Kd_squares)});
      sum *= f[0];
      if (start_squared > 0) sum += f[1] * start_squared * gram_;
      sum.noalias() += Kd.transpose() * ((f[2] * all).asDiagonal() * Kd);
    } else if (cuts_) {
      error_.coherent = propagate(error_.coherent, eC, Kd);
    }
    gram_.resize(0, 0);
    if (cuts_) add_cut(0.5 * cut, 0.5 * most);
    std::swap(S, S_next);
  }

  /// n products of rows of sizes `m` with sum `sum`: either summed on their own, or added in fp32 one by one
  /// to the value `before` until it becomes `after` (a matrix unit's sums are truncated, `cut`). Each partial
  /// sum then has the size of both and is rounded: gamma_n (m + before), or on average sqrt(n) u / sqrt(3)
  /// times sqrt(m^2 + max(before, after)^2). BOUNDS only has the first case, although its fp32 sums come in
  /// any order.
  [[nodiscard]] Vec in_any_order(Index n, const Vec& m, const Vec& sum, const Vec& before,
                                 const Vec& after) const {
    const Vec apart = Norms::acc(n, m, sum, c_.accumulator);
    if (c_.accumulator == Accumulator::tensor_core || !exponential_.repeats) return apart;
    const double each = Norms::accumulation(n, c_.accumulator);
    if constexpr (Norms::worst_case) return each * (m + before);
    return apart.cwiseMax(each * (m.cwiseAbs2() + before.cwiseMax(after).cwiseAbs2()).cwiseSqrt());
  }

  /// The truncated part, half of the largest on average, has the sign of S and adds up from chunk to chunk:
  /// between half of `share` S and all of it, depending on how far S happens to be from the next number. The
  /// mean is along S; the rest is added by rows.
  void add_cut(const Vec& cut, double share) {
    gram_ = S_next * S_next.transpose();
    const Vec rest = (0.5 * cut).cwiseAbs2();
    Mat& sum = error_.coherent;
    const auto f = worst_case_factors<3>({sum.trace(), share * share * gram_.trace(), rest.sum()});
    sum *= f[0];
    sum += f[1] * share * share * gram_;
    sum.diagonal() += f[2] * rest;
  }

  /// The range guard G0 looks at the largest magnitude of everything that a kernel stores.
  template <class... Matrices>
  void note_range(const Matrices&... x) {
    bound_.largest = std::max({bound_.largest, x.cwiseAbs().maxCoeff()...});
  }

  [[nodiscard]] Mat propagate(const Mat& sigma, double e, const Mat& Kd) const {
    return delta_ ? propagated(sigma, e, Kd, v_.W) : Mat(e * e * sigma);
  }

  const Sequence<double>& x_;
  const ExponentialModel& exponential_;
  const Contract& c_;
  bool delta_;
  const Trajectory<double>* trajectory_;
  double u32_;
  double root_dv_;
  double scale_;
  bounds::KeyError keys_;
  bool scaled_ = false;        ///< the scale is in P
  bool gated_ = false;         ///< there is a gate, in prob or semi, whose bias is tracked
  bool rounds_keys_ = false;   ///< operands q, k or beta k are rounded once a row for all products
  bool rounds_state_ = false;  ///< S is rounded as an operand, once for all products of a chunk
  bool cuts_ =
      false;  ///< the state may be the accumulator of products that truncate their sums, in prob or semi
  bool coherent_gate_ = false;  ///< all of the decay's error is added to it
  StateError error_;
  Bound bound_;

  bounds::Correction v_;  ///< V'; without the delta rule it is beta V, rounded once
  Mat P_, dP_, R_;
  Vec read_q_;  ///< [L] mv(q_i, row norms of the state after token i): the effect of one rounding of q_i on
                ///< all of o_i
  Vec read_state_;  ///< [L] the effect of one rounding of S on o_i through all of V'
  Mat gram_;        ///< S S^T, if it is known
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
