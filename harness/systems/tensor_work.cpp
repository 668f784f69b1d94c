#include "harness/systems/tensor_work.h"

#include <algorithm>
#include <limits>

#include "harness/cases/shards.h"
#include "harness/run/chosen_tokens.h"
#include "harness/run/judging_cost.h"
#include "oracles/contracts.h"
#include "oracles/systems/judge_samples.h"
#include "reference/error.h"

/// The work of judging a case of named tensors, and how many of its sequences are therefore held.
namespace samestate {

WorkOfSizes work_of_sizes(const TensorSystem& system, const Case& c, const CaseForm* asked) {
  WorkOfSizes of;
  const Operator& row = system.row;
  Call one = system.call(c, row.forms.front().name);
  one.form = row.forms.front().name;
  Signature all;
  try {
    all = row.signature(one);
  } catch (const Error&) {  // sizes that are impossible together
    return of;
  }
  of.possible = true;
  of.by_token = held_by_token(row, all);
  const auto operations = [&](const OperatorForm& form) {
    one.form = form.name;
    one.chunk = form.chunked ? c.chunk : 0;
    return static_cast<double>(row.cost(one).operations) / 2;
  };
  double of_token = 0.0;
  for (const TensorSpec& spec : all.inputs) {
    const auto size = static_cast<double>(spec.size());
    of.elements += size;
    if (spec.axis != Axis::tokens || !row.token_wise) of_token += size;
  }
  for (const TensorSpec& spec : all.outputs) of.elements += static_cast<double>(spec.size());
  of.tensors = static_cast<double>(all.inputs.size() + all.outputs.size());
  // The first form is the oracle's; the kernel's is tens of times cheaper, but a large chunk more work.
  of.operations = operations(row.forms.front());
  if (const OperatorForm* own = row.form(c.form)) of.operations = std::max(of.operations, operations(*own));
  for (const OperatorForm& native : row.forms) {
    // The calls are of the kernel's form: before the first token that comes alone, in its chunks.
    if (asked != nullptr && asked->decodes && native.chunked && c.chunk > 0)
      of.operations = std::max(of.operations, operations(native));
  }
  // If the operations are not counted, an estimate is used: each token meets all weights, states and the rows
  // before it; without weights it also meets the other tokens' data, unless tokens do not affect each other.
  if (of.operations <= 0) of.operations = static_cast<double>(std::max<Index>(c.T, 1)) * of_token;
  return of;
}

WorkCache& WorkCache::of_thread() {
  thread_local WorkCache cache;
  return cache;
}

const WorkOfSizes& WorkCache::sizes(const TensorSystem& system, const Case& c, const CaseForm* asked) {
  key_.assign(system.name).append(1, '\0').append(c.form).append(1, '\0');
  const auto add = [&](Index size) { key_.append(reinterpret_cast<const char*>(&size), sizeof size); };
  add(c.T);
  add(c.chunk);
  for (const auto& [name, value] : c.parameters) add(value);
  if (const auto found = sizes_.find(key_); found != sizes_.end()) return found->second;
  if (sizes_.size() >= kMostSizes) sizes_.clear();
  return sizes_.emplace(key_, work_of_sizes(system, c, asked)).first->second;
}

bool WorkCache::keeps_sixteen_bits(const std::string& contract) {
  if (const auto found = contracts_.find(contract); found != contracts_.end()) return found->second;
  if (contracts_.size() >= kMostContracts) contracts_.clear();
  return contracts_.emplace(contract, has_samples(contract_named(contract))).first->second;
}

double TensorSystem::work(const Case& c, const JudgePolicy& policy) const {
  const CaseForm* asked = this->form(c.form);
  if (!c.lengths.empty()) {
    Case one = c;
    one.form = row.forms.front().name;
    one.lengths.clear();
    const double sequences = static_cast<double>(sequences_of(c));
    // The work of a token grows with its sequence, up to the length from which on only some tokens are compared
    // with their tolerance. So the largest work of a token is either that of the longest sequence, or that of
    // the longest one that is compared as a whole.
    const Index longest = std::ranges::max(c.lengths);
    double of_token = 0.0;
    for (const Index tokens : {longest, std::min(longest, policy.all_tokens)}) {
      one.T = tokens;
      of_token = std::max(of_token, work(one, policy) / static_cast<double>(std::max<Index>(tokens, 1)));
    }
    return static_cast<double>(c.T) * of_token + sequences * kSequenceCost / kTensorUnit;
  }
  WorkCache& cache = WorkCache::of_thread();
  const WorkOfSizes of = cache.sizes(*this, c, asked);
  if (!of.possible) return std::numeric_limits<double>::infinity();
  const bool decodes = asked != nullptr && asked->decodes;
  const double calls =
      decodes ? static_cast<double>((c.T - c.prefill) / c.step) * kTensorOfCallCost * of.tensors : 0.0;
  // If there are many sequences, few are compared with their tolerance (ChosenHeads), and the others are
  // evaluated in float64.
  const double part =
      static_cast<double>(sequences_to_hold(c, policy)) / static_cast<double>(std::max<Index>(c.B, 1));
  // The last tokens attend to twice as many tokens as the average one.
  const double made =
      c.cached ? std::min(1.0, 2.0 * static_cast<double>(c.T - c.prefill) / static_cast<double>(c.T)) : 1.0;
  const double tokens = c.cached ? 1.0
                        : of.by_token && c.law.empty() && !c.taps
                            ? ChosenTokens::share(c.T, policy, c.prefill)
                            : 1.0;
  const double share = part * tokens + (1.0 - part * tokens) * kPlainShare;
  // Judging means the runs of a law, or drawn roundings in addition to the worst case, or only the worst
  // case. All stages together cost as much as the layer once more.
  const double looks = (!c.law.empty()                         ? kTensorLawFactor
                        : cache.keeps_sixteen_bits(c.contract) ? kSampledFactor
                                                               : 1.0) *
                       (c.taps ? kStagesFactor : 1.0);
  const double of_sequence =
      looks * (share * (made * of.operations + kTensorElementCost * of.elements) + kSequenceCost + calls) +
      (1.0 - part) * kTensorElementCost / 2 * of.elements;
  return static_cast<double>(c.B) * of_sequence / kTensorUnit;
}

Index TensorSystem::sequences_to_hold(const Case& c, const JudgePolicy& policy) const {
  if (!c.lengths.empty()) return sequences_of(c);
  if (c.B <= 1 || !c.law.empty()) return c.B;
  Case one = c;
  one.B = 1;
  const double seconds = kSecondsOfWork * measured_share(row.name) * work(one, policy);
  if (!(seconds * static_cast<double>(policy.held_heads) > policy.sequence_seconds))
    return std::min(c.B, policy.held_heads);
  return std::min(c.B, std::max<Index>(static_cast<Index>(policy.sequence_seconds / seconds), 1));
}

}  // namespace samestate
