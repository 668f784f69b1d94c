#pragma once

#include "oracles/bounds/eigen_products.h"
#include "oracles/bounds/stochastic.h"

/// Products of matrices of Stochastic by products of doubles: element by element, a pending sum is drawn again for every
/// product that it is a factor of.
namespace samestate {

using StochasticMatrix = StridedMatrix<Stochastic>;

/// result(i, j) += sum_l x(i, l) y(l, j), one pending sum an element. Ones beside sums that are pending or zeros, and planted
/// roundings of partial sums, go term by term, as the operators of Stochastic say.
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
