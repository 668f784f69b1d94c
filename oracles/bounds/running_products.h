#pragma once

#include <Eigen/Core>

#include "oracles/bounds/running_error.h"

/// Products of matrices of Running, which Eigen would make element by element: the same bound by products of doubles.
namespace samestate {

/// A matrix in memory, read by strides.
struct RunningMatrix {
  const Running* data = nullptr;
  Eigen::Index rows = 0, columns = 0;
  Eigen::Index row_stride = 1, column_stride = 1;

  [[nodiscard]] const Running& operator()(Eigen::Index i, Eigen::Index j) const {
    return data[i * row_stride + j * column_stride];
  }
};

/// result(i, j) += sum_l x(i, l) y(l, j), one pending sum an element. With sizes |x|, |y| and errors e, f, a term is off by
///   |x| f + e |y| + e f + u (|x| + e) (|y| + f),
/// whose sums are products of matrices; a factor of exactly one rounds nothing, one of exactly zero is no term. What may be
/// flushed or is not finite, and ones beside sums that are pending, go term by term, as the operators of Running say.
void add_product(const RunningMatrix& x, const RunningMatrix& y, Running* result, Eigen::Index row_stride,
                 Eigen::Index column_stride);

}  // namespace samestate

// The hooks of Eigen's own libraries of products (Core/products/*_BLAS.h).
namespace Eigen::internal {

template <class Index, int LhsOrder, int RhsOrder>
struct general_matrix_matrix_product<Index, samestate::Running, LhsOrder, false, samestate::Running, RhsOrder,
                                     false, ColMajor, 1> {
  using Running = samestate::Running;
  using Traits = gebp_traits<Running, Running>;

  static void run(Index rows, Index columns, Index depth, const Running* lhs, Index lhs_stride,
                  const Running* rhs, Index rhs_stride, Running* result, Index /*increment*/,
                  Index result_stride, const Running& alpha, level3_blocking<Running, Running>& /*blocking*/,
                  GemmParallelInfo<Index>* /*info*/ = nullptr) {
    const samestate::RunningMatrix x{lhs, rows, depth, LhsOrder == RowMajor ? lhs_stride : 1,
                                     LhsOrder == RowMajor ? 1 : lhs_stride};
    const samestate::RunningMatrix y{rhs, depth, columns, RhsOrder == RowMajor ? rhs_stride : 1,
                                     RhsOrder == RowMajor ? 1 : rhs_stride};
    if (alpha.is_one()) return samestate::add_product(x, y, result, 1, result_stride);
    Eigen::Matrix<Running, Dynamic, Dynamic> sums(rows, columns);
    samestate::add_product(x, y, sums.data(), 1, rows);
    for (Index j = 0; j < columns; ++j) {
      for (Index i = 0; i < rows; ++i) result[i + j * result_stride] += alpha * sums(i, j);
    }
  }
};

template <class Index, int Order>
struct RunningTimesVector {
  using Running = samestate::Running;

  template <class RhsMapper>
  static void run(Index rows, Index columns, const const_blas_data_mapper<Running, Index, Order>& lhs,
                  const RhsMapper& rhs, Running* result, Index increment, const Running& alpha) {
    const samestate::RunningMatrix x{lhs.data(), rows, columns, Order == RowMajor ? lhs.stride() : 1,
                                     Order == RowMajor ? 1 : lhs.stride()};
    const samestate::RunningMatrix y{rhs.data(), columns, 1, rhs.stride(), 1};
    if (alpha.is_one()) return samestate::add_product(x, y, result, increment, 1);
    Eigen::Matrix<Running, Dynamic, 1> sums(rows);
    samestate::add_product(x, y, sums.data(), 1, 1);
    for (Index i = 0; i < rows; ++i) result[i * increment] += alpha * sums(i);
  }
};

// Eigen has one for each order.
template <class Index, bool ConjugateLhs, class RhsMapper, bool ConjugateRhs>
struct general_matrix_vector_product<Index, samestate::Running,
                                     const_blas_data_mapper<samestate::Running, Index, ColMajor>, ColMajor,
                                     ConjugateLhs, samestate::Running, RhsMapper, ConjugateRhs, Specialized>
    : RunningTimesVector<Index, ColMajor> {};
template <class Index, bool ConjugateLhs, class RhsMapper, bool ConjugateRhs>
struct general_matrix_vector_product<Index, samestate::Running,
                                     const_blas_data_mapper<samestate::Running, Index, RowMajor>, RowMajor,
                                     ConjugateLhs, samestate::Running, RhsMapper, ConjugateRhs, Specialized>
    : RunningTimesVector<Index, RowMajor> {};

}  // namespace Eigen::internal
