#include "oracles/bounds/inverse.h"

#include <algorithm>
#include <cmath>

#include "oracles/bounds/algebra.h"

namespace samestate::bounds {
namespace {

template <Mode mode>
struct InverseError {
  using Norms = Algebra<mode>;
  using Block = Eigen::Ref<const Matrix<double>, 0, Eigen::OuterStride<>>;

  Format operand;
  Accumulator accumulator;
  double eta = subnormal_error(operand) > 1e-30 ? subnormal_error(operand) : 0.0;

  /// Rounding of both operands and accumulation for a product of inner extent n, relative to |X| |Y|. The
  /// statistical modes use the tensor core's truncation whatever the contract says, because it is the larger
  /// error.
  [[nodiscard]] double product(Index n) const {
    const double u = Norms::u(operand);
    const double terms = static_cast<double>(n);
    double accumulation = std::sqrt(terms) * 0x1p-23;
    if (Norms::worst_case) {
      accumulation =
          accumulator == Accumulator::tensor_core ? (terms + 8) * 0x1p-23 : terms * kUnitRoundoff32;
    }
    return Norms::add(u, u, accumulation);
  }

  /// Error of a product of rounded operands: c relative to |X| |Y|, plus what the operands lose below the
  /// normal range.
  template <class X, class Y>
  [[nodiscard]] Matrix<double> rounded(double c, const X& x, const Y& y) const {
    const Matrix<double> relative = c * Norms::mm(x, y);
    if (eta == 0.0) return relative;
    const Matrix<double> lost_x = Matrix<double>::Constant(x.rows(), x.cols(), eta), size_y = y.cwiseAbs();
    const Matrix<double> lost_y = Matrix<double>::Constant(y.rows(), y.cols(), eta), size_x = x.cwiseAbs();
    return relative + lost_x * size_y + size_x * lost_y;
  }

  /// Forward substitution, t_i = e_i - sum_j A_ij t_j: a right residual (I + A) T_kernel = I + R with
  /// |R| <= gamma_L |A| |T| + u32 |T| off the diagonal (ASNA Thm 8.5, 8.3, 14.2.1), hence dT = |T| |R|.
  [[nodiscard]] static Matrix<double> substitution(const Block& A, const Block& T) {
    const double L = static_cast<double>(A.rows());
    const double gamma = Norms::worst_case ? L * kUnitRoundoff32 / (1 - L * kUnitRoundoff32)
                                           : std::sqrt(L) * kUnitRoundoff32 / std::sqrt(3.0);
    const Matrix<double> off = T.template triangularView<Eigen::StrictlyLower>();
    const Matrix<double> residual =
        Norms::add(gamma * Norms::mm(A, T), Norms::deviation(kUnitRoundoff32) * off.cwiseAbs());
    return Norms::mm(T, residual);
  }

  /// Substitution on blocks of `base`, then merges T21 = -(T22 A21) T11 with M = T22 A21 (ASNA 14.2.2):
  ///   dM = dT22 A21 + rounding of M,  dT21 = dM T11 + M dT11 + rounding of M T11.
  [[nodiscard]] Matrix<double> merges(const Block& A, const Block& T, Index base) const {
    const Index L = A.rows();
    if (L <= base) return substitution(A, T);
    Index h = base;
    while (2 * h < L) h *= 2;
    const Index rest = L - h;
    const Block T11 = T.topLeftCorner(h, h);
    const Block T22 = T.bottomRightCorner(rest, rest);
    const Block A21 = A.bottomLeftCorner(rest, h);
    const Matrix<double> d11 = merges(A.topLeftCorner(h, h), T11, base);
    const Matrix<double> d22 = merges(A.bottomRightCorner(rest, rest), T22, base);
    const double c = product(L);
    const Matrix<double> dM = Norms::add(Norms::mm(d22, A21), rounded(c, T22, A21));
    const Matrix<double> M = (T22 * A21).cwiseAbs() + (Norms::worst_case ? 1.0 : 0.0) * dM;
    Matrix<double> d = Matrix<double>::Zero(L, L);
    d.topLeftCorner(h, h) = d11;
    d.bottomRightCorner(rest, rest) = d22;
    d.bottomLeftCorner(rest, h) = Norms::add(Norms::mm(dM, T11), Norms::mm(M, d11), rounded(c, M, T11));
    return d;
  }

  /// The same, block row after block row: below the first block diagonal T_ij = -T_ii M with M = sum_m A_im
  /// T_mj, hence
  ///   dM = A dT + rounding of M,  dT_ij = dT_ii M + T_ii dM + rounding of T_ii M.
  [[nodiscard]] Matrix<double> rows(const Matrix<double>& A, const Matrix<double>& T, Index base) const {
    const Index L = A.rows();
    const double inflate = Norms::worst_case ? 1.0 : 0.0;
    const double c = product(L);
    Matrix<double> d = Matrix<double>::Zero(L, L);
    for (Index i = 0; i < L; i += base) {
      const Index n = std::min(base, L - i);
      const Matrix<double> Tii = T.block(i, i, n, n);
      const Matrix<double> dii = substitution(A.block(i, i, n, n), Tii);
      d.block(i, i, n, n) = dii;
      for (Index j = i - base; j >= 0; j -= base) {
        const bool next = j + base == i;
        const Matrix<double> left = next ? Tii : Matrix<double>(A.block(i, j, n, i - j));
        const Matrix<double> right =
            next ? Matrix<double>(A.block(i, j, n, base)) : Matrix<double>(T.block(j, j, i - j, base));
        const Matrix<double> exact = left * right;
        const Matrix<double> dM =
            Norms::add(next ? Norms::mm(dii, right) : Norms::mm(left, d.block(j, j, i - j, base)),
                       rounded(c, left, right));
        const Matrix<double> M = exact.cwiseAbs() + inflate * dM;
        const Matrix<double> Tjj = T.block(j, j, base, base);
        d.block(i, j, n, base) =
            next ? Norms::add(Norms::mm(dM, Tjj), Norms::mm(M, d.block(j, j, base, base)), rounded(c, M, Tjj))
                 : Norms::add(Norms::mm(dii, M), Norms::mm(Tii, dM), rounded(c, Tii, M));
      }
    }
    return d;
  }

  /// Doubling X <- X + X N, N <- N^2 from X = I - A, N = A; (dX, dN) follow the same recursion.
  [[nodiscard]] Matrix<double> doubling(const Matrix<double>& A) const {
    const Index L = A.rows();
    const double c = product(L);
    const double inflate = Norms::worst_case ? 1.0 : 0.0;  // second order: |X| + dX instead of |X|
    Matrix<double> X = Matrix<double>::Identity(L, L) - A;
    Matrix<double> N = A;
    Matrix<double> dX = kUnitRoundoff32 * A.cwiseAbs();
    Matrix<double> dN = Matrix<double>::Zero(L, L);
    for (Index n = 2; n < L; n *= 2) {
      const Matrix<double> before = N.cwiseAbs() + inflate * dN;
      dN = Norms::add(Norms::mm(dN, before), Norms::mm(before, dN), c * Norms::mm(before, before));
      N = (N * N).eval();
      const Matrix<double> Na = N.cwiseAbs() + inflate * dN;
      const Matrix<double> Xa = X.cwiseAbs() + inflate * dX;
      X += (X * N).eval();
      dX = Norms::add(dX, Norms::mm(dX, Na), Norms::mm(Xa, dN), c * Norms::mm(Xa, Na),
                      kUnitRoundoff32 * X.cwiseAbs());
    }
    return dX;
  }
};

template <Mode mode>
Matrix<double> error_in(const Matrix<double>& A, const Matrix<double>& T, const Contract& c) {
  const InverseError<mode> error{c.inverse_operand, c.accumulator};
  const auto merged = [&](Index base) {
    return c.merges == MergeOrder::rows ? error.rows(A, T, base) : error.merges(A, T, base);
  };
  switch (c.inverse) {
    case Inverse::block16:
      return merged(16);
    case Inverse::block8:
      return merged(8);
    case Inverse::neumann:
      return error.doubling(A);
    case Inverse::substitution:
      break;
  }
  return InverseError<mode>::substitution(A, T);
}

/// Mean relative truncation of one operand.
constexpr double kMeanTruncation = 0x1p-11;

/// For merges: with M = T22 A21, b(M) = b22 A21 - 2 t M and b(T21) = -b(M) T11 - M b11 - 2 t T21. Likewise
/// for rows.
Matrix<double> bias_of(const Matrix<double>& A, const Matrix<double>& T, Index base, MergeOrder order) {
  const Index L = A.rows();
  Matrix<double> b = Matrix<double>::Zero(L, L);
  if (L <= base) return b;
  const double t = 2 * kMeanTruncation;
  if (order == MergeOrder::pairwise) {
    Index h = base;
    while (2 * h < L) h *= 2;
    const Index rest = L - h;
    const Matrix<double> T22 = T.bottomRightCorner(rest, rest), A21 = A.bottomLeftCorner(rest, h);
    const Matrix<double> T11 = T.topLeftCorner(h, h), M = T22 * A21;
    b.topLeftCorner(h, h) = bias_of(A.topLeftCorner(h, h), T11, base, order);
    b.bottomRightCorner(rest, rest) = bias_of(A.bottomRightCorner(rest, rest), T22, base, order);
    const Matrix<double> bM = b.bottomRightCorner(rest, rest) * A21 - t * M;
    b.bottomLeftCorner(rest, h) = -(bM * T11) - M * b.topLeftCorner(h, h) - t * T.bottomLeftCorner(rest, h);
    return b;
  }
  for (Index i = base; i < L; i += base) {
    const Index n = std::min(base, L - i);
    for (Index j = i - base; j >= 0; j -= base) {
      const Matrix<double> left = A.block(i, j, n, i - j);
      const Matrix<double> bM = left * b.block(j, j, i - j, base) - t * (left * T.block(j, j, i - j, base));
      b.block(i, j, n, base) = -(T.block(i, i, n, n) * bM) - t * T.block(i, j, n, base);
    }
  }
  return b;
}

}  // namespace

Matrix<double> inverse_error(const Matrix<double>& A, const Matrix<double>& T, const Contract& contract,
                             Mode mode) {
  // Within one chunk semi is the same as prob.
  return mode == Mode::det ? error_in<Mode::det>(A, T, contract) : error_in<Mode::prob>(A, T, contract);
}

Matrix<double> inverse_bias(const Matrix<double>& A, const Matrix<double>& T, const Contract& c) {
  const bool merged = c.inverse == Inverse::block16 || c.inverse == Inverse::block8;
  if (!merged || c.inverse_operand != Format::tf32_truncated) return {};
  return bias_of(A, T, c.inverse == Inverse::block8 ? 8 : 16, c.merges);
}

double largest_of_inverse(const Matrix<double>& A, const Contract& contract) {
  double most = 0.0;
  if (contract.inverse != Inverse::neumann || A.rows() < 2) return most;
  Matrix<double> X = Matrix<double>::Identity(A.rows(), A.rows()) - A;
  Matrix<double> N = A;
  for (Index n = 2; n < A.rows(); n *= 2) {
    most = std::max(most, (N.cwiseAbs() * N.cwiseAbs()).maxCoeff());
    N = (N * N).eval();
    most = std::max(most, (X.cwiseAbs() + X.cwiseAbs() * N.cwiseAbs()).maxCoeff());
    X += (X * N).eval();
  }
  return most;
}

}  // namespace samestate::bounds
