#pragma once

#include <Eigen/Core>

/// The hooks of Eigen's own libraries of products (Core/products/*_BLAS.h), for a scalar that multiplies
/// whole matrices faster than element by element: its `add_product(x, y, result, row stride, column stride)`
/// adds x y to the result. The specialisations for that scalar inherit from these.
namespace samestate {

/// A matrix in memory, read by strides.
template <class Scalar>
struct StridedMatrix {
  const Scalar* data = nullptr;
  Eigen::Index rows = 0, columns = 0;
  Eigen::Index row_stride = 1, column_stride = 1;

  [[nodiscard]] const Scalar& operator()(Eigen::Index i, Eigen::Index j) const {
    return data[i * row_stride + j * column_stride];
  }
};

/// Replaces Eigen::internal::general_matrix_matrix_product.
template <class Index, class Scalar, int LhsOrder, int RhsOrder>
struct MatrixTimesMatrix {
  using Traits = Eigen::internal::gebp_traits<Scalar, Scalar>;

  static void run(Index rows, Index columns, Index depth, const Scalar* lhs, Index lhs_stride,
                  const Scalar* rhs, Index rhs_stride, Scalar* result, Index /*increment*/,
                  Index result_stride, const Scalar& alpha,
                  Eigen::internal::level3_blocking<Scalar, Scalar>& /*blocking*/,
                  Eigen::internal::GemmParallelInfo<Index>* /*info*/ = nullptr) {
    constexpr bool kLeftRows = LhsOrder == Eigen::RowMajor, kRightRows = RhsOrder == Eigen::RowMajor;
    const StridedMatrix<Scalar> x{lhs, rows, depth, kLeftRows ? lhs_stride : 1, kLeftRows ? 1 : lhs_stride};
    const StridedMatrix<Scalar> y{rhs, depth, columns, kRightRows ? rhs_stride : 1,
                                  kRightRows ? 1 : rhs_stride};
    if (alpha.is_one()) return add_product(x, y, result, 1, result_stride);
    Eigen::Matrix<Scalar, Eigen::Dynamic, Eigen::Dynamic> sums(rows, columns);
    add_product(x, y, sums.data(), 1, rows);
    for (Index j = 0; j < columns; ++j) {
      for (Index i = 0; i < rows; ++i) result[i + j * result_stride] += alpha * sums(i, j);
    }
  }
};

/// Replaces Eigen::internal::general_matrix_vector_product, which Eigen has for each storage order.
template <class Index, class Scalar, int Order>
struct MatrixTimesVector {
  template <class RhsMapper>
  static void run(Index rows, Index columns,
                  const Eigen::internal::const_blas_data_mapper<Scalar, Index, Order>& lhs,
                  const RhsMapper& rhs, Scalar* result, Index increment, const Scalar& alpha) {
    const StridedMatrix<Scalar> x{lhs.data(), rows, columns, Order == Eigen::RowMajor ? lhs.stride() : 1,
                                  Order == Eigen::RowMajor ? 1 : lhs.stride()};
    const StridedMatrix<Scalar> y{rhs.data(), columns, 1, rhs.stride(), 1};
    if (alpha.is_one()) return add_product(x, y, result, increment, 1);
    Eigen::Matrix<Scalar, Eigen::Dynamic, 1> sums(rows);
    add_product(x, y, sums.data(), 1, 1);
    for (Index i = 0; i < rows; ++i) result[i * increment] += alpha * sums(i);
  }
};

}  // namespace samestate
