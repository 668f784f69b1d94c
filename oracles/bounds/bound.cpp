#include "oracles/bounds/bound.h"

#include <algorithm>
#include <array>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include "oracles/bounds/algebra.h"
#include "oracles/bounds/few_rows.h"
#include "oracles/bounds/shared.h"
#include "oracles/numbers.h"
#include "reference/error.h"

namespace samestate {
namespace {

double or_infinite(double tolerance, bool vacuous) {
  return vacuous || !std::isfinite(tolerance) ? kInfinity : tolerance;
}

/// Compares rows i and j of a matrix in lexicographic order: -1, 0 or 1.
int compare(const Matrix<double>& x, Index i, Index j) {
  for (Index c = 0; c < x.cols(); ++c) {
    if (x(i, c) != x(j, c)) return x(i, c) < x(j, c) ? -1 : 1;
  }
  return 0;
}

/// The same for rows of (k, v).
int compare_pairs(const Sequence<double>& x, Index i, Index j) {
  const int by_key = compare(x.k, i, j);
  return by_key != 0 ? by_key : compare(x.v, i, j);
}

/// The same for rows of (k, v, beta).
int compare_rows(const Sequence<double>& x, Index i, Index j) {
  if (const int by_pair = compare_pairs(x, i, j); by_pair != 0) return by_pair;
  return x.beta(i) == x.beta(j) ? 0 : (x.beta(i) < x.beta(j) ? -1 : 1);
}

/// The formats of the multiply operands and stored matrices in `form`.
std::vector<Format> formats_of(const Contract& c, bool chunked) {
  if (!chunked) return {c.qk, c.state};
  std::vector<Format> used = {
      c.qk, c.beta_k, c.A,     c.T,         c.beta_v,    c.beta_exp_k, c.residual,      c.U,
      c.W,  c.P,      c.v_new, c.v_decayed, c.k_decayed, c.q_decayed,  c.state_operand, c.state};
  // The merges of block8 round each operand to nearest independently, so coherence of keys need not be
  // allowed for.
  const bool merged = c.inverse == Inverse::block8 && c.inverse_operand == Format::tf32;
  // Truncation in merges has a mean that the bound contains separately (inverse_bias).
  const bool cut = c.inverse_operand == Format::tf32_truncated && c.inverse != Inverse::neumann;
  if (c.inverse != Inverse::substitution && !merged) used.push_back(cut ? Format::tf32 : c.inverse_operand);
  return used;
}

bool contains(const std::vector<Format>& formats, Format format) {
  return std::find(formats.begin(), formats.end(), format) != formats.end();
}

bool coarser_than_fp32(Format format) { return unit_roundoff(format) > kUnitRoundoff32; }

void check(bool holds, const std::string& name, const std::string& is, const std::string& needed) {
  if (!holds) throw Error("bound: " + name + " is " + is + " and must be " + needed);
}

std::string shape(Index rows, Index cols) { return std::to_string(rows) + " x " + std::to_string(cols); }

}  // namespace

double Bound::row_tolerance(Index token, double lambda) const {
  return or_infinite(lambda * before_output(token) + coherent(token) + output_rounding(token), vacuous);
}

double Bound::state_tolerance(double factor) const { return or_infinite(factor * state, vacuous); }

bool coherent_decay(const Vector<double>& g) {
  if (g.size() < 2 || (g.array() == 0.0).all()) return false;
  std::vector<double> sorted(g.begin(), g.end());
  std::sort(sorted.begin(), sorted.end());
  const auto distinct = std::unique(sorted.begin(), sorted.end()) - sorted.begin();
  return kRepeatingGatePart * distinct < g.size();
}

namespace {

/// True if T > 1 and fewer than T / 4 tokens (T < 32: at most half) differ under `compare(i, j)`.
template <class Compare>
bool few_distinct(Index tokens, Compare&& compare) {
  if (tokens < 2) return false;
  std::vector<Index> order(static_cast<std::size_t>(tokens));
  std::iota(order.begin(), order.end(), Index{0});
  std::sort(order.begin(), order.end(), [&](Index i, Index j) { return compare(i, j) < 0; });
  Index distinct = 1;
  for (std::size_t i = 1; i < order.size(); ++i) distinct += compare(order[i - 1], order[i]) != 0 ? 1 : 0;
  return tokens < kShortSequence ? kStructuredShortPart * distinct <= tokens
                                 : kStructuredPart * distinct < tokens;
}

}  // namespace

bool structured(const Sequence<double>& sequence) {
  return few_distinct(sequence.tokens(), [&](Index i, Index j) { return compare_rows(sequence, i, j); });
}

bool repeated_keys(const Sequence<double>& sequence) {
  return few_distinct(sequence.tokens(), [&](Index i, Index j) { return compare(sequence.k, i, j); });
}

bool repeated_pairs(const Sequence<double>& sequence) {
  return few_distinct(sequence.tokens(), [&](Index i, Index j) { return compare_pairs(sequence, i, j); });
}

namespace {

/// The RMS of this many independent errors that is as improbable as one error at kRowLambda.
double rms_quantile(double errors) {
  const boost::math::chi_squared squares(errors);
  const double tail = std::erfc(kRowLambda / std::sqrt(2.0));
  return std::sqrt(boost::math::quantile(boost::math::complement(squares, tail)) / errors);
}

double few_rows_quantile(double rows) { return std::max(kHeadLimitFew, rms_quantile(rows)); }

/// The number of independent errors in a head whose rows all read one state: each element of the state is a
/// sum of roundings that continues from row to row until the gates have forgotten it. The mean square of such
/// a walk over its rows has the mean 1/2 and the variance 1/3 of the integral of W^2, hence 2 (1/2)^2 / (1/3)
/// = 3/2 degrees of freedom (Satterthwaite).
double walks(const Sequence<double>& x) {
  return 1.5 * static_cast<double>(x.key_width() * x.value_width()) * (1.0 - x.g.sum());
}

/// From this many on their quantile is below kHeadLimit.
constexpr double kManyWalks = 64.0;

}  // namespace

double few_rows_limit(double rows) {
  if (!(rows > 0) || rows >= kFewRows) return kHeadLimitFew;
  // Most heads have an integral number of rows, and computing the quantile takes longer than a small head's
  // bound.
  static const std::array<double, static_cast<std::size_t>(kFewRows)> whole = [] {
    std::array<double, static_cast<std::size_t>(kFewRows)> limits{};
    for (std::size_t n = 1; n < limits.size(); ++n) limits[n] = few_rows_quantile(static_cast<double>(n));
    return limits;
  }();
  return rows == std::floor(rows) ? whole[static_cast<std::size_t>(rows)] : few_rows_quantile(rows);
}

Policy policy_for(const Contract& contract, const Sequence<double>& sequence, std::string_view form,
                  bool l2norm) {
  if (form != "recurrent" && form != "chunked") {
    throw Error("bound: form '" + std::string(form) + "' has no bound: use recurrent or chunked");
  }
  const bool chunked = form == "chunked";
  const std::vector<Format> formats = formats_of(contract, chunked);
  const bool truncated = contains(formats, Format::tf32_truncated);
  const bool tf32 = truncated || contains(formats, Format::tf32);
  const bool neumann =
      chunked && contract.inverse == Inverse::neumann && coarser_than_fp32(contract.inverse_operand);

  Policy policy;
  const Index outputs = sequence.tokens() * sequence.value_width();
  const bool few = outputs < kHeadElements || sequence.tokens() < kHeadTokens || repeated_keys(sequence);
  policy.head_limit =
      few ? few_rows_limit(static_cast<double>(sequence.tokens())) : (tf32 ? kHeadLimitTf32 : kHeadLimit);
  // Rows that are rounded when they are written have independent errors.
  const bool of_state =
      bounds::below_fp32(contract.output) == Format::none || coarser_than_fp32(contract.state);
  if (const double errors = walks(sequence); of_state && errors < kManyWalks)
    policy.head_limit = std::max(policy.head_limit, rms_quantile(errors));
  // A key that a kernel stores again has the same error at every token.
  const bool stored_again = l2norm || contract.qk == Format::bf16 || contract.qk == Format::fp16;
  if (structured(sequence) || neumann || (stored_again && repeated_keys(sequence)))
    return {Mode::det, 1.0, 1.0, false, policy.head_limit, Mode::det};
  if (coarser_than_fp32(contract.state)) {
    policy.mode = Mode::semi;
    policy.lambda = kRowLambdaLowState;
  }
  if (chunked && repeated_keys(sequence)) policy.lambda = kRowLambdaRepeated;
  if (truncated) policy.lambda = kRowLambdaTruncated;
  const bool keys = bounds::below_fp32(contract.qk) != Format::none;
  const bool decayed_keys = chunked && bounds::below_fp32(contract.k_decayed) != Format::none;
  if (decayed_keys && repeated_pairs(sequence)) policy.mode = Mode::semi;
  policy.state_mode = keys && repeated_pairs(sequence) ? Mode::semi : policy.mode;
  return policy;
}

// This also holds for the norms of Given: an epsilon outside the root, of 1e-9 or more, adds a whole rounding
// where one inside the root adds half of one, but saves its own half; a maximum saves the sum.
double l2norm_error(Mode mode, Index key_width) {
  const double terms = static_cast<double>(key_width);
  return mode == Mode::det ? (terms / 2 + 4) * kUnitRoundoff32
                           : (std::sqrt(terms) / 2 + 4) * kUnitRoundoff32 / std::sqrt(3.0);
}

namespace bounds {

void check_shapes(const Sequence<double>& x, const StateError* carried_in) {
  const Index T = x.tokens();
  const Index dk = x.key_width();
  const Index dv = x.value_width();
  check(x.q.rows() == T && x.q.cols() == dk, "q", shape(x.q.rows(), x.q.cols()), shape(T, dk) + " as k is");
  check(x.v.rows() == T, "v", shape(x.v.rows(), dv), std::to_string(T) + " rows as k has");
  check(x.g.size() == T, "g", std::to_string(x.g.size()) + " long", std::to_string(T) + " as k has rows");
  check(x.beta.size() == T, "beta", std::to_string(x.beta.size()) + " long",
        std::to_string(T) + " as k has rows");
  check(x.initial_state.rows() == dk && x.initial_state.cols() == dv, "initial_state",
        shape(x.initial_state.rows(), x.initial_state.cols()), shape(dk, dv));
  if (carried_in == nullptr) return;
  for (const Matrix<double>* carried : {&carried_in->sigma, &carried_in->coherent}) {
    check(carried->rows() == dk && carried->cols() == dk, "carried state error",
          shape(carried->rows(), carried->cols()), shape(dk, dk));
  }
}

StateError starting_error(const StateError* carried_in, Mode mode, Index key_width) {
  const auto zero = Matrix<double>::Zero(key_width, key_width);
  if (carried_in == nullptr) return {zero, zero};
  if (mode != Mode::det) return *carried_in;
  const auto [f, h] = worst_case_factors<2>({carried_in->sigma.trace(), carried_in->coherent.trace()});
  return {f * carried_in->sigma + h * carried_in->coherent, zero};
}

Bound empty_bound(const Sequence<double>& x) {
  Bound bound;
  bound.before_output = Vector<double>::Zero(x.tokens());
  bound.coherent = Vector<double>::Zero(x.tokens());
  bound.o = Matrix<double>::Zero(x.tokens(), x.value_width());
  return bound;
}

void finish(Bound& bound, Format output) {
  const Index tokens = bound.o.rows();
  const Vector<double> total = bound.before_output + bound.coherent;
  bound.output_rounding.resize(tokens);
  for (Index t = 0; t < tokens; ++t) {
    double squares = 0.0;
    for (Index c = 0; c < bound.o.cols(); ++c) {
      const double half = half_ulp(std::fabs(bound.o(t, c)) + total(t), output);
      squares += half * half;
    }
    bound.output_rounding(t) = std::sqrt(squares);
  }
  bound.rms = (total.cwiseAbs2() + bound.output_rounding.cwiseAbs2() / 3.0).cwiseSqrt();
  const Matrix<double>& sigma = bound.carry.sigma;
  const Matrix<double>& coherent = bound.carry.coherent;
  bound.state = std::sqrt(std::max(sigma.trace(), 0.0)) + std::sqrt(std::max(coherent.trace(), 0.0));
  bound.state_rows = diagonal_roots(sigma) + diagonal_roots(coherent);
  if (bound.o.size() > 0) bound.largest = std::max(bound.largest, bound.o.cwiseAbs().maxCoeff());
  // Tested by sums, which vectorise; a sum of finite values that overflows is not a bound either.
  const auto finite = [](const Matrix<double>& m) { return std::isfinite(m.cwiseAbs().sum()); };
  bound.vacuous = bound.vacuous || !bound.rms.allFinite() || !finite(sigma) || !finite(coherent);
}

Vector<double> diagonal_roots(const Matrix<double>& sigma) {
  return sigma.diagonal().cwiseMax(0.0).cwiseSqrt();
}

Vector<double> quadratic(const Matrix<double>& r, const Matrix<double>& sigma) {
  const Matrix<double> y = r * sigma;
  return y.cwiseProduct(r).rowwise().sum().cwiseMax(0.0).cwiseSqrt();
}

}  // namespace bounds
}  // namespace samestate
