#pragma once

#include <cstdint>
#include <vector>

#include "oracles/bounds/softmax_order.h"
#include "oracles/judge_policy.h"
#include "oracles/systems/judge_operator.h"

/// The statistical gate of operators: the reference of the form that ran is evaluated with drawn roundings,
/// and the kernel's error has to belong to the population of the samples' errors (bounds_operators.md 2, 3,
/// 5).
namespace samestate {

/// Errors of the samples of one sequence.
struct SampledErrors {
  std::vector<Tensors<double>> samples;  ///< each sample minus the exact outputs
  /// The worst case of the roundings between the points that are drawn.
  Tensors<double> between;
};

/// Samples `first` to `first + count` of one sequence, evaluated in calls that end at `cuts`; equal seeds
/// draw equal samples. Under a contract that keeps 16 bits or tf32 operands the roundings of its points are
/// drawn, otherwise those of every operation.
[[nodiscard]] SampledErrors sample_errors(const Operator& op, const Call& call, const Tensors<double>& inputs,
                                          const std::vector<Index>& cuts, const Contract& contract,
                                          const OperatorOracle& oracle, std::uint64_t seed, int first,
                                          int count);

/// True if drawn roundings say more than the running error: rounding points of the contract keep 16 bits, or
/// its matrix unit takes tf32 (for forms with products: OperatorOracle::points).
[[nodiscard]] bool has_samples(const Contract& contract);

/// The tolerance of each element: the limit of the statistic "element" below, plus `between`. For outputs
/// with a sample that is not finite, and for rows of undecided tokens, it is the oracle's tolerance.
[[nodiscard]] Tensors<double> sampled_tolerances(const OperatorOracle& oracle, const SampledErrors& errors);

/// The limit of a statistic: the value that the samples' own statistic exceeds with probability
/// kSampledFalseAlarm, or kSampledMargin times the largest of the samples, which no limit from more samples
/// would be below.
enum class SampledLimit { predicted, largest };

/// Compares five statistics of every output with those of the samples:
///   tensor  RMS over rows of |e_r| / sigma_r,   row  the largest of them,   element  max |e_rc| / sigma_rc,
///   column  max over columns of the RMS of e_rc / sigma_r,   slope  |<e, y>| / <y, y>, weighted by 1 / sigma_r^2.
/// A limit is the value that the logarithm of the samples' statistic, approximately normal, exceeds with
/// probability kSampledFalseAlarm, and at least kSampledMargin times the largest. e is the error minus
/// `between`; the slope is that of the whole error, minus the largest that `between` can have. Rows of
/// undecided tokens are left out, and an output with a sample that is not finite is not judged. Vacuous if no
/// output is both judged and known to kVacuousOutput of its size. Gate: "sampled STATISTIC"; error and bound
/// are the statistic and its limit.
[[nodiscard]] Judgement judge_samples(const OperatorOracle& oracle, const SampledErrors& errors,
                                      const Tensors<double>& actual,
                                      SampledLimit limit = SampledLimit::predicted);

/// The same with JudgePolicy::samples samples; if a limit is exceeded, `second_look` times as many fresh
/// samples decide. `begun` has the first samples, if they exist already. If the worst case between rounding
/// points leaves nothing known about any output, the roundings in between are drawn too. The samples take a
/// softmax in the order `softmax`, that of the kernel's twin: weights that another order leaves at 1 are
/// rounded in a lazy one.
[[nodiscard]] Judgement judge_sampled(const Operator& op, const Call& call, const Tensors<double>& inputs,
                                      const std::vector<Index>& cuts, const Contract& contract,
                                      const OperatorOracle& oracle, std::uint64_t seed,
                                      const Tensors<double>& actual, const JudgePolicy& policy,
                                      SampledErrors begun = {}, const SoftmaxOrder& softmax = {});

/// True if the first few samples (JudgePolicy::few_samples) are enough: each statistic is at most
/// kSampledMargin times their largest, so all samples together would not fail the kernel. If a statistic is
/// larger, or that much is above kVacuousOutput of every output, this says nothing and returns false. The
/// samples are stored in `few`.
[[nodiscard]] bool lies_within_few(const Operator& op, const Call& call, const Tensors<double>& inputs,
                                   const std::vector<Index>& cuts, const Contract& contract,
                                   const OperatorOracle& oracle, std::uint64_t seed,
                                   const Tensors<double>& actual, const JudgePolicy& policy,
                                   SampledErrors* few = nullptr);

}  // namespace samestate
