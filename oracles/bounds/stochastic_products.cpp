#include "oracles/bounds/stochastic_products.h"

#include "oracles/bounds/term_by_term.h"
#include "oracles/limits.h"

namespace samestate {
namespace {

/// A factor whose sums are drawn once each.
struct Drawn {
  Matrix<double> value;
  bool ones = false;
  bool pending_or_zero = false;  ///< which a factor of one hands on as it is

  explicit Drawn(const StochasticMatrix& x) : value(x.rows, x.columns) {
    for (Index i = 0; i < x.rows; ++i) {
      for (Index j = 0; j < x.columns; ++j) {
        const Stochastic& from = x(i, j);
        value(i, j) = from.value();
        ones = ones || from.is_one();
        pending_or_zero = pending_or_zero || from.is_pending() || value(i, j) == 0.0;
      }
    }
  }
};

/// The weight of a mean of more than kAlikeTokens terms, as a softmax of scores makes it that fp32 hardly tells apart; 0: it
/// is none. Weights differ by their own roundings.
template <class Weights>
double weight_of_mean(const Weights& weights) {
  constexpr double kAlike = 0x1p-18;
  double weight = 0.0;
  Index terms = 0;
  for (const double w : weights) {
    if (w == 0.0) continue;
    if (terms++ == 0) weight = w;
    if (!(std::abs(w - weight) <= kAlike * std::abs(weight))) return 0.0;
  }
  return terms > kAlikeTokens ? weight : 0.0;
}

/// Its sum with the roundings of the partial ones, each drawn by its value in units of the weight: a kernel that divides last
/// adds the first terms of this mean and of one over more of them alike.
template <class Weights, class Values>
double summed_in_order(const Weights& weights, const Values& values, double weight) {
  const std::uint64_t salt = detail::sampling().model.salt;
  constexpr int kBitsAlike = 16;
  double sum = 0.0;
  double error = 0.0;
  bool begun = false;
  for (Index l = 0; l < weights.size(); ++l) {
    const double term = weights(l) * values(l);
    if (term == 0.0) continue;
    sum += term;
    if (begun && round_to(sum, Format::fp32) != sum)
      error += 0x1p-24 * std::abs(sum) * random_function(sum / weight, salt, kBitsAlike);
    begun = true;
  }
  return sum + error;
}

/// Weights of means among the rows of x and the columns of y, whichever of both a product's weights are.
struct Means {
  Vector<double> rows, columns;

  Means(const Matrix<double>& x, const Matrix<double>& y)
      : rows(Vector<double>::Zero(x.rows())), columns(Vector<double>::Zero(y.cols())) {
    const SampledModel& model = detail::sampling().model;
    if (!model.means_in_order || !model.working || model.truncation != 0.0 ||
        model.planted != Planted::none || x.cols() <= kAlikeTokens)
      return;
    for (Index i = 0; i < x.rows(); ++i) rows(i) = weight_of_mean(x.row(i));
    for (Index j = 0; j < y.cols(); ++j) columns(j) = weight_of_mean(y.col(j));
  }
};

}  // namespace

void add_product(const StochasticMatrix& x, const StochasticMatrix& y, Stochastic* result, Index row_stride,
                 Index column_stride) {
  if (detail::sampling().model.planted == Planted::partial)
    return add_term_by_term(x, y, result, row_stride, column_stride);
  const Drawn a(x), b(y);
  if ((a.ones && b.pending_or_zero) || (b.ones && a.pending_or_zero))
    return add_term_by_term(x, y, result, row_stride, column_stride);
  const Matrix<double> values = a.value * b.value;
  const Matrix<double> squares = a.value.cwiseAbs2() * b.value.cwiseAbs2();
  const auto terms = static_cast<double>(x.columns);
  const Means means(a.value, b.value);
  for (Index i = 0; i < x.rows; ++i) {
    for (Index j = 0; j < y.columns; ++j) {
      const bool of_row = means.rows(i) != 0.0;
      Stochastic& to = result[i * row_stride + j * column_stride];
      // What is left to draw of a mean are the products and the last sum.
      if (of_row || means.columns(j) != 0.0) {
        const double sum = of_row ? summed_in_order(a.value.row(i), b.value.col(j), means.rows(i))
                                  : summed_in_order(b.value.col(j), a.value.row(i), means.columns(j));
        to += Stochastic::sum_of(2.0, sum, squares(i, j));
      } else {
        to += Stochastic::sum_of(terms, values(i, j), squares(i, j));
      }
    }
  }
}

}  // namespace samestate
