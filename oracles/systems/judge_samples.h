#pragma once

#include <cstdint>
#include <vector>

#include "oracles/bounds/softmax_order.h"
#include "oracles/judge_policy.h"
#include "oracles/systems/judge_operator.h"

/// The statistical gate of operators: the reference of the form that ran is evaluated with drawn roundings, and the
/// kernel's error has to belong to the population of the samples' (bounds_operators.md 2, 3, 5).
namespace samestate {

/// Errors of samples of one sequence.
struct SampledErrors {
  std::vector<Tensors<double>> samples;  ///< each minus the exact outputs
  /// What the roundings between the points that are drawn may add, in the worst case.
  Tensors<double> between;
};

/// Samples `first` to `first + count` of one sequence evaluated in calls ending at `cuts`; equal seeds draw equal
/// samples. Of a contract that keeps 16 bit or tf32 operands those of its rounding points, of another those of every operation.
[[nodiscard]] SampledErrors sample_errors(const Operator& op, const Call& call, const Tensors<double>& inputs,
                                          const std::vector<Index>& cuts, const Contract& contract,
                                          const OperatorOracle& oracle, std::uint64_t seed, int first,
                                          int count);

/// Whether drawn roundings say more than the running error: rounding points of the contract keep 16 bit, or its matrix unit
/// takes tf32 (where a form has products: OperatorOracle::points).
[[nodiscard]] bool has_samples(const Contract& contract);

/// By how much an element may err: the limit of the statistic "element" below, and `between`. Of outputs of which a sample
/// is not finite, and of rows of undecided tokens, what the oracle says.
[[nodiscard]] Tensors<double> sampled_tolerances(const OperatorOracle& oracle, const SampledErrors& errors);

/// What a statistic is held against: where the samples' own is exceeded with probability kSampledFalseAlarm, or
/// kSampledMargin times the largest of theirs, below which no limit of more samples lies.
enum class SampledLimit { predicted, largest };

/// Five statistics of every output against the same of the samples:
///   tensor  RMS over rows of |e_r| / sigma_r,   row  the largest of them,   element  max |e_rc| / sigma_rc,
///   column  max over columns of the RMS of e_rc / sigma_r,   slope  |<e, y>| / <y, y>, weighed by 1 / sigma_r^2.
/// A limit is where the logarithm of the samples' statistic, near normal, is exceeded with probability
/// kSampledFalseAlarm, and at least kSampledMargin times the largest. e is the error less `between`; the slope
/// is that of the whole error, less the largest that `between` can have. Rows of undecided tokens are left out; an output
/// of which a sample is not finite is not judged. Vacuous where no output is both judged and known to kVacuousOutput of
/// its size. Gate: "sampled STATISTIC"; error and bound are the statistic and its limit.
[[nodiscard]] Judgement judge_samples(const OperatorOracle& oracle, const SampledErrors& errors,
                                      const Tensors<double>& actual,
                                      SampledLimit limit = SampledLimit::predicted);

/// The same of JudgePolicy::samples samples; what exceeds a limit is judged again against `second_look` times as many fresh
/// ones, which decide. `begun`: the first of them, where they are known. Where the worst case between rounding points leaves nothing
/// known of any output, what is rounded there is drawn too. The samples take a softmax in the order `softmax`, that of the
/// kernel's twin: weights that another order leaves at 1 are rounded in a lazy one.
[[nodiscard]] Judgement judge_sampled(const Operator& op, const Call& call, const Tensors<double>& inputs,
                                      const std::vector<Index>& cuts, const Contract& contract,
                                      const OperatorOracle& oracle, std::uint64_t seed,
                                      const Tensors<double>& actual, const JudgePolicy& policy,
                                      SampledErrors begun = {}, const SoftmaxOrder& softmax = {});

/// Returns true if the first few samples (JudgePolicy::few_samples) are enough: each statistic is at most kSampledMargin times the
/// largest of theirs, which says that all samples would not fail the kernel, and nothing where it is more, or where that much is
/// above kVacuousOutput of every output. They go to `few`.
[[nodiscard]] bool lies_within_few(const Operator& op, const Call& call, const Tensors<double>& inputs,
                                   const std::vector<Index>& cuts, const Contract& contract,
                                   const OperatorOracle& oracle, std::uint64_t seed,
                                   const Tensors<double>& actual, const JudgePolicy& policy,
                                   SampledErrors* few = nullptr);

}  // namespace samestate
