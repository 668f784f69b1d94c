#pragma once

#include "oracles/bounds/eigen_products.h"
#include "oracles/bounds/running_error.h"

/// Products of matrices of Running: the same bound as Eigen's element-by-element evaluation, computed by
/// products of doubles.
namespace samestate {

using RunningMatrix = StridedMatrix<Running>;

/// result(i, j) += sum_l x(i, l) y(l, j), one pending sum per element. With magnitudes |x|, |y| and errors e,
/// f, the error of a term is
///   |x| f + e |y| + e f + u (|x| + e) (|y| + f),
/// whose sums are products of matrices; a factor of exactly one rounds nothing, and a term with a factor of
/// exactly zero is left out. Values that may be flushed or are not finite, and ones multiplied with pending
/// sums, are handled term by term, by the operators of Running.
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
