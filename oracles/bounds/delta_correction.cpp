#include "oracles/bounds/delta_correction.h"

#include <algorithm>
#include <cmath>

#include "oracles/bounds/inverse.h"
#include "oracles/bounds/shared.h"
#include "oracles/contract_points.h"

/// Every rounding on the way to V' = T Z, Z = beta V - beta e^G K S, in the two orders that a contract may
/// have. b = |beta|, z, n, s row norms of Z, V', S.
///
/// Both: dV = fac mv(T, mv(dA, n))                      A, through (I + A)^-1: T dA V' and the series' rest
///            + mv(dT, z) + mv(dTr, z)                  the inverse, and storing it (its diagonal 1 is exact)
///            + u_Sop mv(W, s) + u32 n                  S as operand; what follows V' sees dS through W
/// U - W S:   + (u_bV + u32) mv(T, ||b v||) + acc(L, mv(T, ||b v||), ||U||) + u_U ||U||
///            + (u_bK + 2 u32) mv(T, wk) + acc(L, mv(T, wk), 0),  wk_j = mv(b_j e^{G_j} k_j, s)
///            + mv(T, b dexpG ||S^T k||) + u_W mv(W, s) + acc(dk, mv(W, s), ||W S||)
/// State first, R_j = beta_j v_j - beta_j e^{G_j} S^T k_j rounded to `residual`, V' = T R:
///            + mv(T, dR) + acc(L, mv(T, z), n)
///       dR_j = b e^{G_j} (acc(dk, mv(k, s), ||S^T k||) + u_qk mv(k, s)) + b dexpG ||S^T k||
///            + u32 ||b v|| + 3 u32 b e^{G_j} ||S^T k|| + u_Res z + eta
/// The rounding of S as operand is common to the rows of K S, so it goes through W = T (b e^G K) as a whole
/// and not through T row by row.
namespace samestate::bounds {
namespace {

using Mat = Matrix<double>;
using Vec = Vector<double>;

template <Mode mode>
class Correcting {
  using Norms = Algebra<mode>;

 public:
  Correcting(const Chunk& chunk, const Contract& contract, const KeyError& keys, const Mat& sigma)
      : x_(chunk),
        c_(contract),
        keys_(keys),
        sigma_(sigma),
        u32_(Norms::deviation(kUnitRoundoff32)),
        root_dv_(std::sqrt(static_cast<double>(chunk.V_new.cols()))),
        b_(chunk.beta.cwiseAbs()) {}

  [[nodiscard]] Correction run() {
    const Mat KK = x_.K * x_.K.transpose();
    const Mat A = (x_.beta.asDiagonal() * KK.cwiseProduct(x_.decay.between))
                      .template triangularView<Eigen::StrictlyLower>();
    T_ = (Mat::Identity(x_.L, x_.L) + A)
             .template triangularView<Eigen::UnitLower>()
             .solve(Mat::Identity(x_.L, x_.L));
    const Vec weight = x_.beta.cwiseProduct(x_.decay.from_start);
    Kt_ = weight.asDiagonal() * x_.K;
    KtS_ = weight.asDiagonal() * x_.KS;
    KS_norm_ = row_norms(x_.KS);
    out_.W = T_ * Kt_;
    out_.n = row_norms(x_.V_new) + quadratic(out_.W, sigma_);
    Z_ = x_.bV - KtS_;
    z_ = row_norms(Z_) + quadratic(Kt_, sigma_);
    ws_ = Norms::mv(out_.W, x_.s);

    // The same stored T multiplies all of Z.
    const Mat dT = inverse_error(A, T_, c_, mode);
    out_.largest = std::max(out_.largest, largest_of_inverse(A, c_));
    const Vec e_T = Norms::add(Norms::mv(dT, z_), Norms::mv(stored_T_error(), z_)) + flushed_T() + bias(A);
    const Vec W1 = out_.W.cwiseAbs().rowwise().sum();
    const Vec e_S = Norms::u(c_.state_operand) * ws_ + subnormal_error(c_.state_operand) * root_dv_ * W1;
    const Vec e_order = c_.residual == Format::none ? two_products() : residual_first();
    out_.dV = Norms::add(of_A(A, KK), e_T, e_S, e_order, u32_ * out_.n);
    out_.coherent_write = b_.cwiseProduct(x_.exp_bias).cwiseProduct(KS_norm_);
    note_range(T_, x_.bV);
    if (c_.A == Format::fp16) note_range(A);
    if (c_.inverse_operand == Format::fp16) note_range(Mat(T_.cwiseAbs() * A.cwiseAbs()));
    return std::move(out_);
  }

 private:
  /// The effect of dA through (I + A)^-1: T dA V' to first order, 1 / (1 - ||T dA||) for the rest of the
  /// series.
  [[nodiscard]] Vec of_A(const Mat& A, const Mat& KK) {
    const Mat dKK = product_error<mode>(x_, x_.K, KK, c_, keys_, Norms::u(c_.beta_k));
    const double roundings = 2 + keys_.products;
    Mat dA = Norms::add(b_.asDiagonal() * dKK.cwiseProduct(x_.decay.between),
                        b_.asDiagonal() * KK.cwiseAbs().cwiseProduct(x_.decay.between_error),
                        roundings * u32_ * A.cwiseAbs(), Norms::u(below_fp32(c_.A)) * A.cwiseAbs());
    if (c_.A == Format::fp16) dA.array() += subnormal_error(c_.A);
    if (c_.beta_k == Format::fp16) {
      const Vec lost = subnormal_error(c_.beta_k) * x_.K.cwiseAbs().rowwise().sum();
      dA += lost.transpose().replicate(x_.L, 1).cwiseProduct(x_.decay.between);
    }
    dA = dA.template triangularView<Eigen::StrictlyLower>().toDenseMatrix().eval();
    out_.nonlinearity = Norms::worst_case ? Norms::mm(T_, dA).rowwise().sum().maxCoeff()
                                          : 3 * row_norms(Norms::mm(T_, dA)).maxCoeff();
    const double limit = Norms::worst_case ? kNonlinearityWorst : kNonlinearity;
    out_.vacuous = !(out_.nonlinearity < limit);
    // One rounding of k_i, or of beta k_i, enters all products of its row, which quadrature over them
    // ignores.
    const Vec row = b_.cwiseProduct(
        Norms::add(Vec(keys_.rounding * x_.read_k), Vec(Norms::u(c_.beta_k) * x_.read_k_inside)));
    return Norms::mv(T_, Norms::add(Norms::mv(dA, out_.n), row)) / (1 - std::min(out_.nonlinearity, limit));
  }

  /// Rounding of the stored T: its diagonal of 1 is exact, unless T diag(beta) is stored.
  [[nodiscard]] Mat stored_T_error() const {
    if (c_.beta_in_T) return Norms::add(Norms::u(c_.T) * T_.cwiseAbs(), u32_ * T_.cwiseAbs());
    const Mat off = T_.template triangularView<Eigen::StrictlyLower>();
    return Norms::add(Norms::u(c_.T) * off.cwiseAbs(),
                      subnormal_error(c_.T) * ones(x_.L, Eigen::StrictlyLower));
  }

  /// The part of T diag(beta) that is lost below the normal range multiplies v - e^G S^T k itself, which beta
  /// need not have made small.
  [[nodiscard]] Vec flushed_T() const {
    if (!c_.beta_in_T) return Vec::Zero(x_.L);
    const Vec raw = x_.v + x_.decay.from_start.cwiseProduct(KS_norm_ + quadratic(x_.K, sigma_));
    return Norms::mv(subnormal_error(c_.T) * ones(x_.L, Eigen::Lower), raw);
  }

  /// Merges of operands that are cut off shrink T: the rows of their mean times Z, as a whole.
  [[nodiscard]] Vec bias(const Mat& A) const {
    if (Norms::worst_case) return Vec::Zero(x_.L);
    const Mat mean = inverse_bias(A, T_, c_);
    return mean.size() == 0 ? Vec(Vec::Zero(x_.L)) : row_norms(mean * Z_);
  }

  /// With beta in T the operand is v itself, already in the input format: a format that holds that rounds nothing, but
  /// for a tf32 unit, of which BOUNDS 5 counts it.
  [[nodiscard]] double u_beta_v() const {
    const bool tf32 = c_.beta_v == Format::tf32 || c_.beta_v == Format::tf32_truncated;
    return c_.beta_in_T && !tf32 && holds(c_.beta_v, c_.input) ? 0.0 : Norms::u(c_.beta_v);
  }

  /// V' = U - W S with U = T beta V, W = T beta e^G K.
  [[nodiscard]] Vec two_products() {
    const Vec ones_L = Vec::Ones(x_.L);
    const Vec T1 = Norms::mv(T_, ones_L);
    const Vec Tbv = Norms::mv(T_, row_norms(x_.bV));
    const Mat U = T_ * x_.bV;
    const Vec U_norm = row_norms(U);
    const Vec e_bV =
        Norms::add(Norms::add(u_beta_v(), u32_) * Tbv, subnormal_error(c_.beta_v) * root_dv_ * T1,
                   Norms::acc(x_.L, Tbv, U_norm, c_.accumulator));
    const Vec e_U = (Norms::u(c_.U) * U_norm).array() + subnormal_error(c_.U) * root_dv_;

    const Vec Tw = Norms::mv(T_, Norms::mv(Kt_, x_.s));
    // A normalised k is rounded before it becomes beta e^G k.
    const double u_bK =
        Norms::add(Norms::u(c_.beta_exp_k), 2 * u32_, keys_.factor > 0 ? keys_.rounding : 0.0);
    const Vec e_bK = Norms::add(u_bK * Tw, Norms::acc(x_.L, Tw, Vec::Zero(x_.L), c_.accumulator),
                                subnormal_error(c_.beta_exp_k) * x_.s.sum() * T1,
                                keys_.factor * Norms::mv(T_, row_norms(KtS_)));
    const Vec e_decay = Norms::mv(T_, b_.cwiseProduct(x_.decay.start_error).cwiseProduct(KS_norm_));
    const Vec e_W = (Norms::u(c_.W) * ws_).array() + subnormal_error(c_.W) * x_.s.sum();
    const Vec e_WS = Norms::acc(x_.K.cols(), ws_, row_norms(out_.W * x_.S), c_.accumulator);
    note_range(U, out_.W);
    return Norms::add(e_bV, e_U, e_bK, e_decay, e_W, e_WS);
  }

  /// V' = T R with the residual R = beta V - beta e^G K S.
  [[nodiscard]] Vec residual_first() {
    const Vec weight = b_.cwiseProduct(x_.decay.from_start);
    const Vec ks = Norms::mv(x_.K, x_.s);
    const Vec of_state = row_norms(KtS_) + quadratic(Kt_, sigma_);
    const Vec dR =
        Norms::add(weight.cwiseProduct(Norms::acc(x_.K.cols(), ks, KS_norm_, c_.accumulator)),
                   keys_.rounding * weight.cwiseProduct(ks), keys_.factor * row_norms(KtS_),
                   b_.cwiseProduct(x_.decay.start_error).cwiseProduct(KS_norm_), u32_ * row_norms(x_.bV),
                   3 * u32_ * of_state, Norms::u(c_.residual) * z_,
                   (c_.beta_in_T ? b_ : Vec(Vec::Ones(x_.L))) * (subnormal_error(c_.residual) * root_dv_));
    note_range(Z_);
    if (c_.beta_in_T) note_range(x_.v, KS_norm_);
    return Norms::add(Norms::mv(T_, dR), Norms::acc(x_.L, Norms::mv(T_, z_), out_.n, c_.accumulator));
  }

  template <class... Matrices>
  void note_range(const Matrices&... x) {
    out_.largest = std::max({out_.largest, x.cwiseAbs().maxCoeff()...});
  }

  const Chunk& x_;
  const Contract& c_;
  const KeyError& keys_;
  const Mat& sigma_;
  double u32_;
  double root_dv_;
  Vec b_;
  Mat T_, Kt_, KtS_, Z_;
  Vec KS_norm_, z_, ws_;
  Correction out_;
};

}  // namespace

Matrix<double> ones(Index size, unsigned part) {
  const Mat x = Mat::Ones(size, size);
  return part == Eigen::Lower ? Mat(x.triangularView<Eigen::Lower>())
                              : Mat(x.triangularView<Eigen::StrictlyLower>());
}

template <Mode mode>
Correction delta_correction(const Chunk& chunk, const Contract& contract, const KeyError& keys,
                            const Matrix<double>& sigma) {
  return Correcting<mode>(chunk, contract, keys, sigma).run();
}
template Correction delta_correction<Mode::det>(const Chunk&, const Contract&, const KeyError&,
                                                const Matrix<double>&);
template Correction delta_correction<Mode::prob>(const Chunk&, const Contract&, const KeyError&,
                                                 const Matrix<double>&);

}  // namespace samestate::bounds
