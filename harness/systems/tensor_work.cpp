#include "harness/systems/tensor_work.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/cases/shards.h"
#include "harness/run/chosen_tokens.h"
#include "harness/run/judging_cost.h"
#include "oracles/contracts.h"
#include "oracles/systems/judge_samples.h"
#include "reference/error.h"

/// The work of judging a case of named tensors, and how many of its sequences are therefore judged in full.
namespace samestate {

WorkOfSizes work_of_sizes(const TensorSystem& system, const Case& c, Index tokens, std::string_view form) {
  WorkOfSizes of;
  const Operator& row = system.row;
  Call one;
  one.form = row.forms.front().name;
  one.tokens = tokens;
  one.parameters = system.parameters(c);
  if (row.possible != nullptr && !row.possible(one)) return of;
  Signature all;
  try {
    all = row.signature(one);
  } catch (const Error&) {  // sizes that are impossible together
    return of;
  }
  of.possible = true;
  of.by_token = held_by_token(row, all);
  of.recurrent_backward = row.family != nullptr;
  const auto operations = [&](const OperatorForm& native) {
    one.form = native.name;
    one.chunk = native.chunked ? c.chunk : 0;
    return static_cast<double>(row.cost(one, all).operations) / 2;
  };
  double of_token = 0.0;
  for (const TensorSpec& spec : all.inputs) {
    const auto size = static_cast<double>(spec.size());
    of.elements += size;
    if (spec.axis != Axis::tokens || !row.token_wise) of_token += size;
  }
  for (const TensorSpec& spec : all.outputs) {
    of.elements += static_cast<double>(spec.size());
    of.whole = of.whole || spec.axis == Axis::whole;
  }
  of.tensors = static_cast<double>(all.inputs.size() + all.outputs.size());
  // The first form is the oracle's; the kernel's is tens of times cheaper, but a large chunk more work.
  of.operations = operations(row.forms.front());
  if (const OperatorForm* own = row.form(form)) of.operations = std::max(of.operations, operations(*own));
  const CaseForm* asked = system.form(form);
  for (const OperatorForm& native : row.forms) {
    // The calls are of the kernel's form: before the first token that comes alone, in its chunks.
    if (asked != nullptr && asked->decodes && native.chunked && c.chunk > 0)
      of.operations = std::max(of.operations, operations(native));
  }
  // If the operations are not counted, an estimate is used: each token meets all weights, states and the rows
  // before it; without weights it also meets the other tokens' data, unless tokens do not affect each other.
  if (of.operations <= 0) of.operations = static_cast<double>(std::max<Index>(tokens, 1)) * of_token;
  return of;
}

namespace {

/// Returns the multiplications that it takes to judge each of a case's sequences, which all have `tokens`
/// tokens, if a `part` of them is compared with its tolerance.
double cost_of_sequence(const Case& c, const WorkOfSizes& of, Index tokens, bool decodes, double part,
                        const JudgePolicy& policy) {
  const bool drawn = has_samples(contract_named(c.contract));
  const double calls =
      decodes ? static_cast<double>((tokens - c.prefill) / c.step) * kTensorOfCallCost * of.tensors : 0.0;
  // The last tokens attend to twice as many tokens as the average one.
  const double made =
      c.cached ? std::min(1.0, 2.0 * static_cast<double>(tokens - c.prefill) / static_cast<double>(tokens))
               : 1.0;
  const double held = c.cached ? 1.0
                      : of.by_token && c.law.empty() && !c.taps
                          ? ChosenTokens::share(tokens, policy, c.prefill)
                          : 1.0;
  const double share = part * held + (1.0 - part * held) * kPlainShare;
  // Judging means the runs of a law, or drawn roundings in addition to the worst case, or only the worst
  // case. All stages together cost as much as the layer once more.
  const double looks = (!c.law.empty() ? kTensorLawFactor
                        : drawn        ? kSampledFactor
                                       : 1.0) *
                       (!of.recurrent_backward ? 1.0
                        : drawn                ? kBackwardFactor
                                               : kBackwardDrawnFactor) *
                       (c.taps ? kStagesFactor : 1.0);
  return looks * (share * (made * of.operations + kTensorElementCost * of.elements) + kSequenceCost + calls) +
         (1.0 - part) * kTensorElementCost / 2 * of.elements;
}

/// The work of a batch of sequences of `tokens` tokens in the form of that name, and how many of them are
/// compared with their tolerance: if there are many, only a few are (ChosenHeads), and the others are evaluated
/// in float64.
struct BatchWork {
  double work = std::numeric_limits<double>::infinity();
  Index held = 1;
};

BatchWork work_of_batch(const TensorSystem& system, const Case& c, Index tokens, std::string_view form,
                        const JudgePolicy& policy) {
  const WorkOfSizes of = work_of_sizes(system, c, tokens, form);
  const bool few = c.B <= 1 || !c.law.empty();
  if (!of.possible) return {.held = few ? c.B : 1};
  const CaseForm* asked = system.form(form);
  const bool decodes = asked != nullptr && asked->decodes;
  Index held = c.B;
  if (!few) {
    const double seconds = kSecondsOfWork * measured_share(system.row.name) *
                           (cost_of_sequence(c, of, tokens, decodes, 1.0, policy) / kTensorUnit);
    held = seconds * static_cast<double>(policy.held_heads) > policy.sequence_seconds
               ? std::min(c.B, std::max<Index>(static_cast<Index>(policy.sequence_seconds / seconds), 1))
               : std::min(c.B, policy.held_heads);
  }
  const double part =
      of.whole ? 1.0 : static_cast<double>(held) / static_cast<double>(std::max<Index>(c.B, 1));
  return {static_cast<double>(c.B) * cost_of_sequence(c, of, tokens, decodes, part, policy) / kTensorUnit,
          held};
}

/// The elements of the states of one sequence, which there are without tokens too.
double state_elements(const TensorSystem& system, const Case& c) {
  double elements = 0.0;
  try {
    const Signature all = system.signature(c);
    for (const auto* side : {&all.inputs, &all.outputs}) {
      for (const TensorSpec& spec : *side) {
        if (spec.axis == Axis::state) elements += static_cast<double>(spec.size());
      }
    }
  } catch (const Error&) {  // sizes that are impossible together
    return std::numeric_limits<double>::infinity();
  }
  return elements;
}

}  // namespace

double TensorSystem::work(const Case& c, const JudgePolicy& policy) const {
  if (c.lengths.empty()) return work_of_batch(*this, c, c.T, c.form, policy).work;
  // The work of a token grows with its sequence, up to the length from which on only some tokens are compared
  // with their tolerance. So the largest work of a token is either that of the longest sequence, or that of
  // the longest one that is compared as a whole.
  const Index longest = std::ranges::max(c.lengths);
  double of_token = 0.0;
  for (const Index tokens : {longest, std::min(longest, policy.all_tokens)}) {
    of_token = std::max(of_token, work_of_batch(*this, c, tokens, row.forms.front().name, policy).work /
                                      static_cast<double>(std::max<Index>(tokens, 1)));
  }
  if (!std::isfinite(of_token)) return of_token;
  return static_cast<double>(c.T) * of_token +
         static_cast<double>(sequences_of(c)) *
             (kSequenceCost + kTensorElementCost * state_elements(*this, c)) / kTensorUnit;
}

Index TensorSystem::sequences_to_hold(const Case& c, const JudgePolicy& policy) const {
  if (!c.lengths.empty()) return sequences_of(c);
  if (c.B <= 1 || !c.law.empty()) return c.B;
  return work_of_batch(*this, c, c.T, c.form, policy).held;
}

}  // namespace samestate
