#pragma once

#include "oracles/bounds/eigen_products.h"
#include "oracles/bounds/running_error.h"

/// Products of matrices of Running, which Eigen would make element by element: the same bound by products of doubles.
namespace samestate {

using RunningMatrix = StridedMatrix<Running>;

/// result(i, j) += sum_l x(i, l) y(l, j), one pending sum an element. With sizes |x|, |y| and errors e, f, a term is off by
///   |x| f + e |y| + e f + u (|x| + e) (|y| + f),
/// whose sums are products of matrices; a factor of exactly one rounds nothing, one of exactly zero is no term. What may be
/// flushed or is not finite, and ones beside sums that are pending, go term by term, as the operators of Running say.
void add_product(const RunningMatrix& x, const RunningMatrix& y, Running* result, Eigen::Index row_stride,
                 Eigen::Index column_stride);

}  // namespace samestate

namespace Eigen::internal {

template <class Index, int LhsOrder, int RhsOrder>
struct general_matrix_matrix_product<Index, samestate::Running, LhsOrder, false, samestate::Running, RhsOrder,
                                     false, ColMajor, 1>
    : samestate::MatrixTimesMatrix<Index, samestate::Running, LhsOrder, RhsOrder> {};
template <class Index, bool ConjugateLhs, class RhsMapper, bool ConjugateRhs>
struct general_matrix_vector_product<Index, samestate::Running,
                                     const_blas_data_mapper<samestate::Running, Index, ColMajor>, ColMajor,
                                     ConjugateLhs, samestate::Running, RhsMapper, ConjugateRhs, Specialized>
    : samestate::MatrixTimesVector<Index, samestate::Running, ColMajor> {};
template <class Index, bool ConjugateLhs, class RhsMapper, bool ConjugateRhs>
struct general_matrix_vector_product<Index, samestate::Running,
                                     const_blas_data_mapper<samestate::Running, Index, RowMajor>, RowMajor,
                                     ConjugateLhs, samestate::Running, RhsMapper, ConjugateRhs, Specialized>
    : samestate::MatrixTimesVector<Index, samestate::Running, RowMajor> {};

}  // namespace Eigen::internal
