#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "oracles/bounds/random_function.h"
#include "oracles/bounds/skipped_points.h"
#include "oracles/bounds/softmax_order.h"
#include "oracles/rounding.h"
#include "reference/contract.h"

/// How the roundings of a sample are made. One evaluation of a reference with drawn roundings is one member
/// of the population of correct kernels of a contract, and the kernel's error has to belong to that
/// population (bounds_operators.md 2).
namespace samestate {

/// A rounding that no contract of an operator has, which tests plant in Stochastic arithmetic.
enum class Planted {
  none,
  sums,       ///< every sum of products is stored in 16 bits
  partial,    ///< every sum is kept in 16 bits while it is accumulated
  functions,  ///< results of exp, log, sin, cos and sqrt (the factor of a norm) are stored in 16 bits
  quotients   ///< results of divisions are stored in 16 bits (a logistic function, the result of a norm)
};

struct SampledModel {
  Format kept =
      Format::none;  ///< the format that a rounding point of the reference stores; none if nothing is rounded
                     ///< there
  Format operand = Format::none;  ///< to which a matrix unit rounds its operands, if it does
  bool drawn = true;              ///< rounding points draw; if false they round to nearest, as the twin does
  /// Values within an eighth of a spacing draw alike, and for roundings of working precision values within a
  /// spacing. Rounding to nearest sends values that hardly differ to one number; independent draws for each
  /// would let the errors cancel.
  bool alike = false;
  bool size_of_nearest = false;  ///< only the sign of an error is drawn: see kept_in()
  bool working = false;          ///< Stochastic also draws the roundings of fp32
  bool near_normal = false;  ///< the roundings of a sum are drawn as the many roundings that they are, if a
                             ///< limit depends on their tail
  bool by_place =
      false;  ///< the roundings depend on value and position: kernels add in another order at the edge of a tile
  bool sums_stored =
      false;  ///< a softmax divides by the sum of the weights as stored, not by the sum of the weights before
              ///< storing
  double truncation = 0.0;        ///< of this sample's accumulator, as a share of the largest bias
  double stagnation = 0.0;        ///< what this sample's sums lose next to large terms, as a share of n u
  double exponential_bias = 0.0;  ///< mean relative error of this sample's exponential, in units of fp32
  bool by_base_two = false;       ///< exp(x) is 2^(x log2 e): the product is rounded
  double base_two_slope = 0.0;    ///< relative error of this sample's log2 e, in units of fp32
  bool adds_one = false;          ///< softplus(x) is computed as log(1 + e^x), with the sum rounded
  std::uint64_t salt = 0;
  bool associates_otherwise = false;  ///< q (k v^T) if the form has (q k^T) v, and the reverse
  SoftmaxOrder softmax;
  const SkippedPoints* skipped = nullptr;   ///< points that a kernel leaves out: nothing is rounded there
  const SkippedPoints* switched = nullptr;  ///< points that the contract switches
  Planted planted = Planted::none;

  /// The n-th sample of a contract, with drawn rounding points.
  [[nodiscard]] static SampledModel sample(const Contract& contract, std::uint64_t seed, int n);
  /// The twin: rounded to nearest at the same points, with exact arithmetic in between.
  [[nodiscard]] static SampledModel twin(const Contract& contract);
  /// The twin with the n-th draw of working precision: sums in another order, everything else alike.
  [[nodiscard]] static SampledModel jitter(const Contract& contract, std::uint64_t seed, int n);
};

namespace detail {
struct SamplingState {
  SampledModel model;
  std::uint64_t place = 0;       ///< for the next rounding of working precision that is stored
  SkippedPoints* met = nullptr;  ///< collects the points that are reached
};
inline SamplingState& sampling() {
  thread_local SamplingState state;
  return state;
}
}  // namespace detail

/// Sets the model of this thread's Stored and Stochastic arithmetic while the object lives.
class SamplingScope {
 public:
  explicit SamplingScope(const SampledModel& model, SkippedPoints* met = nullptr)
      : before_(detail::sampling()) {
    detail::sampling() = {model, 0, met};
  }
  ~SamplingScope() { detail::sampling() = before_; }
  SamplingScope(const SamplingScope&) = delete;
  SamplingScope& operator=(const SamplingScope&) = delete;

 private:
  detail::SamplingState before_;
};

/// x as this thread's model keeps it in `format`: rounded to nearest, or drawn with mean x. Data have
/// patterns that show in a kernel's errors: half of the sums of two numbers of the format are ties, and a
/// value that is within one part in ten thousand of a number of the format has that error everywhere. So half
/// of the samples take the size of the error from rounding to nearest and draw only its sign; the others draw
/// both, up to half a spacing h (variance h^2 / 3). Numbers of the format stay unchanged; values beyond its
/// range become infinity. For tf32_truncated a share of the spacing, uniform in (0, 1), is subtracted.
[[nodiscard]] inline double kept_in(double x, Format format) {
  if (format == Format::none || x == 0.0 || !std::isfinite(x)) return x;
  const SampledModel& model = detail::sampling().model;
  const double nearest = round_to(x, format);
  // With three products the error is the operand's own rounding plus its share of the product that is left
  // out; no single rounding has exactly these sizes.
  if (format == Format::tf32x3 && model.drawn && std::isfinite(nearest))
    return round_to(x, whole_in(format)) == x ? x : x + half_ulp(x, format) * random_function(x, model.salt);
  if (!model.drawn || nearest == x || !std::isfinite(nearest)) return nearest;
  const double half = half_ulp(x, format);
  // Truncation makes a value smaller by up to a spacing and never larger, so there is no sign to draw.
  if (format == Format::tf32_truncated)
    return x - std::copysign(half * (0.5 + 0.5 * random_function(std::abs(x), model.salt)), x);
  const int bits = model.alike ? std::clamp(std::ilogb(x) - std::ilogb(half) + 2, 1, 36) : 36;
  const double draw = random_function(x, model.salt, bits);
  return x + (model.size_of_nearest ? std::copysign(nearest - x, draw) : half * draw);
}

/// x after a planted rounding of that kind.
[[nodiscard]] inline double planted(double x, Planted where) {
  const SampledModel& model = detail::sampling().model;
  if (model.planted != where) return x;
  return round_to(x, model.kept == Format::none ? Format::bf16 : model.kept);
}

namespace detail {
/// True if this thread's model takes that point. The point counts as reached if there is a `format` to round
/// to and the contract rounds.
[[nodiscard]] inline bool takes(SamplingState& state, Point point, Format format) {
  if (!contract_rounds_at(point, state.model.switched)) return false;
  if (state.met != nullptr && format != Format::none) state.met->add(point);
  return state.model.skipped == nullptr || !state.model.skipped->has(point);
}
}  // namespace detail

/// True if this thread's model stores at that point: the stored value is one number from there on, rounded or
/// not.
[[nodiscard]] inline bool model_rounds_at(Point point) {
  detail::SamplingState& state = detail::sampling();
  return detail::takes(state, point, state.model.kept);
}

/// True if the operands of the products at that point are rounded.
[[nodiscard]] inline bool model_rounds_operands(Point point) {
  detail::SamplingState& state = detail::sampling();
  return state.model.operand != Format::none && detail::takes(state, point, state.model.operand);
}

}  // namespace samestate
