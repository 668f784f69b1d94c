#include "oracles/bounds/inverse.h"

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

  /// Rounding of both operands and accumulation of a product with inner extent n, relative to |X| |Y|. The
  /// statistical modes take the tensor core's truncation whatever the contract says: it is the larger.
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
    const Matrix<double> dM = Norms::add(Norms::mm(d22, A21), c * Norms::mm(T22, A21));
    const Matrix<double> M = (T22 * A21).cwiseAbs() + (Norms::worst_case ? 1.0 : 0.0) * dM;
    Matrix<double> d = Matrix<double>::Zero(L, L);
    d.topLeftCorner(h, h) = d11;
    d.bottomRightCorner(rest, rest) = d22;
    d.bottomLeftCorner(rest, h) = Norms::add(Norms::mm(dM, T11), Norms::mm(M, d11), c * Norms::mm(M, T11));
    return d;
  }

  /// Doubling X <- X + X N, N <- N^2 from X = I - A, N = A; (dX, dN) follow the same recursion.
  [[nodiscard]] Matrix<double> doubling(const Matrix<double>& A) const {
    const Index L = A.rows();
    const double c = product(L);
    const double inflate = Norms::worst_case ? 1.0 : 0.0;  // second order: |X| + dX in place of |X|
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
Matrix<double> error_in(const Matrix<double>& A, const Matrix<double>& T, Inverse inverse, Format operand,
                        Accumulator accumulator) {
  const InverseError<mode> error{operand, accumulator};
  switch (inverse) {
    case Inverse::block16:
      return error.merges(A, T, 16);
    case Inverse::block8:
      return error.merges(A, T, 8);
    case Inverse::neumann:
      return error.doubling(A);
    case Inverse::substitution:
      break;
  }
  return InverseError<mode>::substitution(A, T);
}

}  // namespace

Matrix<double> inverse_error(const Matrix<double>& A, const Matrix<double>& T, Inverse inverse,
                             Format operand, Accumulator accumulator, Mode mode) {
  // Within one chunk semi is prob.
  return mode == Mode::det ? error_in<Mode::det>(A, T, inverse, operand, accumulator)
                           : error_in<Mode::prob>(A, T, inverse, operand, accumulator);
}

}  // namespace samestate::bounds
