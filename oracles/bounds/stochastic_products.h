#pragma once

#include "oracles/bounds/eigen_products.h"
#include "oracles/bounds/stochastic.h"

/// Products of matrices of Stochastic, computed by products of doubles. Evaluated element by element, a
/// pending sum would be drawn again for every product in which it is a factor.
namespace samestate {

using StochasticMatrix = StridedMatrix<Stochastic>;

/// result(i, j) += sum_l x(i, l) y(l, j), one pending sum per element. Ones multiplied with pending sums or
/// zeros, and planted roundings of partial sums, are handled term by term, by the operators of Stochastic.
void add_product(const StochasticMatrix& x, const StochasticMatrix& y, Stochastic* result,
                 Eigen::Index row_stride, Eigen::Index column_stride);

}  // namespace samestate

namespace Eigen::internal {

template <class Index, int LhsOrder, int RhsOrder>
struct general_matrix_matrix_product<Index, samestate::Stochastic, LhsOrder, false, samestate::Stochastic,
                                     RhsOrder, false, ColMajor, 1>
    : samestate::MatrixTimesMatrix<Index, samestate::Stochastic, LhsOrder, RhsOrder> {};
template <class Index, bool ConjugateLhs, class RhsMapper, bool ConjugateRhs>
struct general_matrix_vector_product<
    Index, samestate::Stochastic, const_blas_data_mapper<samestate::Stochastic, Index, ColMajor>, ColMajor,
    ConjugateLhs, samestate::Stochastic, RhsMapper, ConjugateRhs, Specialized>
    : samestate::MatrixTimesVector<Index, samestate::Stochastic, ColMajor> {};
template <class Index, bool ConjugateLhs, class RhsMapper, bool ConjugateRhs>
struct general_matrix_vector_product<
    Index, samestate::Stochastic, const_blas_data_mapper<samestate::Stochastic, Index, RowMajor>, RowMajor,
    ConjugateLhs, samestate::Stochastic, RhsMapper, ConjugateRhs, Specialized>
    : samestate::MatrixTimesVector<Index, samestate::Stochastic, RowMajor> {};

}  // namespace Eigen::internal
