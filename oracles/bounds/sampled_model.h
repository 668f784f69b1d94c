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

/// How the roundings of a sample fall. One evaluation of a reference with drawn roundings is one member of the
/// population of correct kernels of a contract; the kernel's error has to belong to it (bounds_operators.md 2).
namespace samestate {

/// A rounding that no contract of an operator has, which a test plants in Stochastic arithmetic.
enum class Planted {
  none,
  sums,       ///< every sum of products is stored in 16 bit
  partial,    ///< every sum is kept in 16 bit while it is added up
  functions,  ///< results of exp, log, sin, cos and sqrt (a norm's factor) are stored in 16 bit
  quotients   ///< results of divisions are (a logistic function, what a norm makes)
};

struct SampledModel {
  Format kept =
      Format::none;  ///< what a rounding point of the reference stores; none: nothing is rounded there
  Format operand = Format::none;  ///< to which a matrix unit rounds its operands; none: to nothing
  bool drawn = true;              ///< rounding points draw; false: they round to nearest, as the twin does
  /// Those within an eighth of a spacing alike, and those of working precision within a spacing: rounding to nearest sends
  /// what hardly differs to one number, where a draw of its own for each would let the errors cancel.
  bool alike = false;
  bool size_of_nearest = false;  ///< draws the sign of an error alone: see kept_in()
  bool working = false;          ///< Stochastic draws the roundings of fp32, too
  bool near_normal = false;      ///< those of a sum as the many that they are: where their tail is a limit
  bool by_place =
      false;  ///< those are of value and place: kernels add in another order at the edge of a tile
  bool sums_stored =
      false;  ///< a softmax divides by the sum of the weights as stored, not of what they were before
  double truncation = 0.0;        ///< of this sample's accumulator, share of the largest bias
  double stagnation = 0.0;        ///< what this sample's sums lose behind large terms, share of n u
  double exponential_bias = 0.0;  ///< mean relative error of this sample's exponential, in units of fp32
  bool by_base_two = false;       ///< exp(x) is 2^(x log2 e): the product is rounded
  double base_two_slope = 0.0;    ///< relative error of this sample's log2 e, in units of fp32
  bool adds_one = false;          ///< softplus(x) is log(1 + e^x), the sum rounded
  std::uint64_t salt = 0;
  bool associates_otherwise = false;  ///< q (k v^T) where the form has (q k^T) v, and the reverse
  SoftmaxOrder softmax;
  const SkippedPoints* skipped = nullptr;   ///< points that a kernel leaves out: they round nothing
  const SkippedPoints* unstored = nullptr;  ///< points at which the contract rounds nothing: there are none
  Planted planted = Planted::none;

  /// The n-th sample of a contract, its rounding points drawn.
  [[nodiscard]] static SampledModel sample(const Contract& contract, std::uint64_t seed, int n);
  /// Rounded to nearest at the same points, in exact arithmetic between.
  [[nodiscard]] static SampledModel twin(const Contract& contract);
  /// The twin with the n-th draw of working precision: sums in another order, all else alike.
  [[nodiscard]] static SampledModel jitter(const Contract& contract, std::uint64_t seed, int n);
};

namespace detail {
struct SamplingState {
  SampledModel model;
  std::uint64_t place = 0;       ///< of the next rounding of working precision that is stored
  SkippedPoints* met = nullptr;  ///< collects the points that are met
};
inline SamplingState& sampling() {
  thread_local SamplingState state;
  return state;
}
}  // namespace detail

/// The model of this thread's Stored and Stochastic arithmetic while the object lives.
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

/// x as this thread's model keeps it in `format`: to nearest, or drawn with the mean x. Data have patterns in them that a
/// kernel's errors keep: half of the sums of two numbers of the format are ties, and what is a number of the format but for
/// one part in ten thousand is off by that everywhere. So half of the samples take the size of the error from rounding to
/// nearest and draw the sign; the others draw both, up to half a spacing h (variance h^2 / 3). What is a number of the
/// format stays; beyond its range infinity. Of tf32_truncated a share of the spacing is taken off, uniform in (0, 1).
[[nodiscard]] inline double kept_in(double x, Format format) {
  if (format == Format::none || x == 0.0 || !std::isfinite(x)) return x;
  const SampledModel& model = detail::sampling().model;
  const double nearest = round_to(x, format);
  // Three products err by an operand's own rounding and by its share of the one left out: no rounding has just these sizes.
  if (format == Format::tf32x3 && model.drawn && std::isfinite(nearest))
    return round_to(x, whole_in(format)) == x ? x : x + half_ulp(x, format) * random_function(x, model.salt);
  if (!model.drawn || nearest == x || !std::isfinite(nearest)) return nearest;
  const double half = half_ulp(x, format);
  // What is cut off is smaller by up to a spacing, and never larger: there is no sign to draw.
  if (format == Format::tf32_truncated)
    return x - std::copysign(half * (0.5 + 0.5 * random_function(std::abs(x), model.salt)), x);
  const int bits = model.alike ? std::clamp(std::ilogb(x) - std::ilogb(half) + 2, 1, 36) : 36;
  const double draw = random_function(x, model.salt, bits);
  return x + (model.size_of_nearest ? std::copysign(nearest - x, draw) : half * draw);
}

/// x as a planted rounding of that kind leaves it.
[[nodiscard]] inline double planted(double x, Planted where) {
  const SampledModel& model = detail::sampling().model;
  if (model.planted != where) return x;
  return round_to(x, model.kept == Format::none ? Format::bf16 : model.kept);
}

namespace detail {
/// Returns true if this thread's model takes that point, which is met where there is a `format` to round to and the contract
/// rounds.
[[nodiscard]] inline bool takes(SamplingState& state, Point point, Format format) {
  if (state.model.unstored != nullptr && state.model.unstored->has(point)) return false;
  if (state.met != nullptr && format != Format::none) state.met->add(point);
  return state.model.skipped == nullptr || !state.model.skipped->has(point);
}
}  // namespace detail

/// Returns true if this thread's model stores at that point: what is stored is one number from there on, rounded or not.
[[nodiscard]] inline bool model_rounds_at(Point point) {
  detail::SamplingState& state = detail::sampling();
  return detail::takes(state, point, state.model.kept);
}

/// True if the operands of the products there are rounded.
[[nodiscard]] inline bool model_rounds_operands(Point point) {
  detail::SamplingState& state = detail::sampling();
  return state.model.operand != Format::none && detail::takes(state, point, state.model.operand);
}

}  // namespace samestate
