// The gated delta rule in three scalars: how far the chunked form is from the recurrent one in float64 and in 50 digits,
// and how far float64 is from the exact values, which an interval encloses.
#include <cmath>
#include <cstdio>

#include "reference/gated_delta_rule.h"
#include "reference/scalars.h"

namespace {

using namespace samestate;

/// Any data will do; these are the same everywhere.
Sequence<double> data(Index tokens, Index keys, Index values) {
  Sequence<double> x;
  const auto wave = [](double at) { return std::sin(1.7 * at) * std::cos(0.3 * at + 1.0); };
  const auto fill = [&](Matrix<double>& m, Index rows, Index cols, double phase) {
    m.resize(rows, cols);
    for (Index i = 0; i < m.size(); ++i) m.data()[i] = wave(static_cast<double>(i) + phase);
  };
  fill(x.q, tokens, keys, 0.1);
  fill(x.k, tokens, keys, 0.5);
  fill(x.v, tokens, values, 0.9);
  for (Index t = 0; t < tokens; ++t) x.k.row(t) /= x.k.row(t).norm();
  x.g = Vector<double>::Constant(tokens, -0.05);
  x.beta = Vector<double>::Constant(tokens, 0.5);
  x.scale = 1.0 / std::sqrt(static_cast<double>(keys));
  x.initial_state = Matrix<double>::Zero(keys, values);
  return x;
}

template <class Scalar>
double difference_of_forms(const Sequence<double>& from) {
  const Sequence<Scalar> x = from.cast<Scalar>();
  const Matrix<Scalar> d = recurrent<GatedDeltaRule>(x).o - chunked<GatedDeltaRule>(x, 16).o;
  return static_cast<double>(d.cwiseAbs().maxCoeff());
}

}  // namespace

int main() {
  const Sequence<double> x = data(65, 16, 8);
  const double in_float64 = difference_of_forms<double>(x);
  const double in_50_digits = difference_of_forms<Decimal50>(x);
  std::printf("recurrent against chunked, largest difference of o: %.1e in float64, %.1e in 50 digits\n",
              in_float64, in_50_digits);

  const Matrix<double> o = recurrent<GatedDeltaRule>(x).o;
  const Matrix<Interval> exact = recurrent<GatedDeltaRule>(x.cast<Interval>()).o;
  double error = 0.0, width = 0.0;
  for (Index i = 0; i < o.size(); ++i) {
    const Interval& e = exact.data()[i];
    const Decimal50 value(o.data()[i]);
    const Decimal50 low = value - Decimal50(lower(e)), high = Decimal50(upper(e)) - value;
    error = std::fmax(error,
                      std::fmax(std::fabs(low.convert_to<double>()), std::fabs(high.convert_to<double>())));
    width = std::fmax(width, Decimal50(upper(e) - lower(e)).convert_to<double>());
  }
  std::printf("float64 is at most %.1e from the exact o; the intervals are %.1e wide\n", error, width);
  return in_float64 < 1e-12 && in_50_digits < 1e-45 && error < 1e-12 && width < 1e-40 ? 0 : 1;
}
