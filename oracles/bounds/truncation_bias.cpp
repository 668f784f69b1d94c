#include "oracles/bounds/truncation_bias.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace samestate {
namespace {

using Mat = Matrix<double>;
using Vec = Vector<double>;

/// Largest mean of (x - cut(x)) / x over any spread of mantissas: half a spacing of 2^-10.
constexpr double kMean = 0x1p-11;

constexpr Format Contract::*kPoints[] = {
    &Contract::qk,       &Contract::beta_k, &Contract::T,          &Contract::beta_v,
    &Contract::residual, &Contract::W,      &Contract::beta_exp_k, &Contract::state_operand,
    &Contract::v_new,    &Contract::P,      &Contract::v_decayed,  &Contract::k_decayed,
    &Contract::q_decayed};

/// The chunked form with the operands of one point made smaller.
class Evaluation {
 public:
  Evaluation(const Contract& contract, bool delta, Format Contract::*point)
      : contract_(contract), delta_(delta), point_(point) {}

  [[nodiscard]] Trajectory<double> run(const Sequence<double>& x, const Path& path) const {
    Trajectory<double> out{Mat::Zero(x.tokens(), x.value_width()), {}, x.initial_state};
    Index at = 0;
    for (const Segment& segment : path) {
      const Index end = at + segment.tokens;
      const Index chunk = segment.chunk > 0 ? segment.chunk : 1;
      for (; at < end; at += std::min(chunk, end - at))
        one(x, at, std::min(chunk, end - at), segment.chunk == 0, out);
    }
    return out;
  }

 private:
  void one(const Sequence<double>& x, Index begin, Index L, bool recurrent, Trajectory<double>& out) const {
    const auto share = [&](Format Contract::*point) {
      return point == point_ && !recurrent ? 1.0 - kMean : 1.0;
    };
    const double qk = share(&Contract::qk);
    const Mat Q = qk * x.q.middleRows(begin, L);
    const Mat K = qk * x.k.middleRows(begin, L);
    const Vec beta = x.beta.segment(begin, L);
    Vec G = x.g.segment(begin, L);
    for (Index i = 1; i < L; ++i) G(i) += G(i - 1);
    Mat E = Mat::Zero(L, L);
    for (Index i = 0; i < L; ++i) {
      // Summed between tokens, so that a reset of -inf only affects its own tokens.
      double between = 0.0;
      E(i, i) = 1.0;
      for (Index j = i; j-- > 0;) E(i, j) = std::exp(between += x.g(begin + j + 1));
    }
    const Vec from_start = G.array().exp();
    const Vec to_end = E.row(L - 1);
    const Mat S = share(&Contract::state_operand) * out.state;

    Mat V = x.v.middleRows(begin, L);
    if (delta_) {
      Mat A = (beta.asDiagonal() * (share(&Contract::beta_k) * (K * K.transpose()))).cwiseProduct(E);
      A.diagonal().setZero();
      const Mat identity = Mat::Identity(L, L);
      Mat T = (identity + A).triangularView<Eigen::UnitLower>().solve(identity);
      T *= share(&Contract::T);
      // Its diagonal of ones loses nothing, so the loss of a residual is not compensated.
      if (!contract_.beta_in_T) T.diagonal().setOnes();
      const Mat bV = beta.asDiagonal() * V;
      const Mat bK = (beta.array() * from_start.array()).matrix().asDiagonal() * K;
      if (contract_.residual != Format::none) {
        V = T * (share(&Contract::residual) * (bV - bK * S));
      } else {
        const Mat W = share(&Contract::W) * (T * (share(&Contract::beta_exp_k) * bK));
        V = T * (share(&Contract::beta_v) * bV) - W * S;
      }
    }
    const Mat P = share(&Contract::P) * (Q * K.transpose()).cwiseProduct(E);
    out.o.middleRows(begin, L) =
        x.scale * (share(&Contract::q_decayed) * (from_start.asDiagonal() * (Q * S)) +
                   P * (share(&Contract::v_new) * V));
    const double written = share(&Contract::v_decayed) * share(&Contract::k_decayed);
    out.state =
        (from_start(L - 1) * out.state + written * (K.transpose() * (to_end.asDiagonal() * V))).eval();
  }

  const Contract& contract_;
  bool delta_;
  Format Contract::*point_;
};

}  // namespace

TruncationBias truncation_bias(const Sequence<double>& x, const Path& path, const Contract& contract,
                               bool delta) {
  TruncationBias bias{Vec::Zero(x.tokens()), 0.0};
  std::optional<Trajectory<double>> exact;
  for (Format Contract::*point : kPoints) {
    if (contract.*point != Format::tf32_truncated) continue;
    if (!exact) exact = Evaluation(contract, delta, nullptr).run(x, path);
    const Trajectory<double> cut = Evaluation(contract, delta, point).run(x, path);
    bias.rows += (cut.o - exact->o).rowwise().norm();
    bias.state += (cut.state - exact->state).norm();
  }
  return bias;
}

}  // namespace samestate
