#include "oracles/systems/judge_sequence.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "oracles/systems/in_doubt.h"
#include "oracles/systems/judge_samples.h"

namespace samestate {
namespace {

/// The worst case and another gate together: either may fail a run, and the other, if it `knows` enough, pass it.
void add(Judgement& judgement, const Judgement& other, bool knows) {
  judgement.sampled_ratio = std::max(judgement.sampled_ratio, other.sampled_ratio);
  judgement.twin_ratio = std::max(judgement.twin_ratio, other.twin_ratio);
  const bool decides = other.verdict == Verdict::fail || other.ratio > judgement.ratio;
  const bool passes = judgement.verdict == Verdict::vacuous && other.verdict == Verdict::pass && knows;
  if (other.verdict == Verdict::fail || passes) {
    judgement.verdict = other.verdict;
    judgement.reason = other.reason;
  }
  if (!decides) return;
  take_numbers(judgement, other);
}

/// Against the worst case of the form in chunks of one token, q S in the place of (q k^T) v. Without rounding points nothing is
/// rounded where a chunk ends, and a kernel that goes in chunks of its own may have either: where q is all but orthogonal to
/// many keys these differ by more than their worst cases.
Judgement judge_in_other_chunks(const TwinSubject& of, const Tensors<double>& actual) {
  Call call = of.call;
  call.chunk = 1;
  OperatorOracle oracle = operator_oracle(of.op, call, of.inputs, of.cuts, of.contract);
  // A token's error in either form is within its own worst case, so that of a kernel that mixes them is within the sum: the
  // larger is less than that. Where the other form's says nothing it excuses nothing.
  for (auto& [name, tolerance] : oracle.tolerance) {
    tolerance = tolerance
                    .binaryExpr(get(of.oracle.tolerance, name),
                                [](double other, double own) {
                                  return std::isfinite(other) ? std::max(other, own) : own;
                                })
                    .eval();
  }
  return judge_operator(of.op, oracle, actual);
}

bool has_free_chunks(const TwinSubject& of) {
  const OperatorForm* form = of.op.form(of.call.form);
  return !of.oracle.points && form != nullptr && form->chunked && of.call.chunk > 1 && of.call.tokens > 1;
}

}  // namespace

void take_numbers(Judgement& to, const Judgement& from) {
  to.gate = from.gate;
  to.ratio = from.ratio;
  to.error = from.error;
  to.bound = from.bound;
  to.worst = from.worst;
  to.expected = from.expected;
  to.actual = from.actual;
}

Judgement judge_sequence(const TwinSubject& of, const Tensors<double>& actual, std::uint64_t seed,
                         const GatesAsked& asked) {
  Judgement judgement = judge_operator(of.op, of.oracle, actual);
  if (judgement.verdict == Verdict::fail && has_free_chunks(of)) {
    // Samples are of the chunks that were asked for, and know the others no better.
    Judgement other = judge_in_other_chunks(of, actual);
    if (other.verdict != Verdict::fail) return other;
  }
  bool same = false;
  SoftmaxOrder softmax;
  // Of a card that is nearest both are reported, as of the family: they know its points, and it may have others.
  const auto add_gated = [&](const Judgement& other, bool knows) {
    if (!of.contract.nearest || other.verdict != Verdict::fail) return add(judgement, other, knows);
    judgement.sampled_ratio = std::max(judgement.sampled_ratio, other.sampled_ratio);
    judgement.twin_ratio = std::max(judgement.twin_ratio, other.twin_ratio);
  };
  if (of.oracle.points && judgement.verdict != Verdict::fail && asked.twin(judgement.verdict)) {
    const TwinJudgement nearest = judge_operator_twin(of, actual, seed);
    same = nearest.same;
    softmax = nearest.softmax;
    add_gated(nearest.judgement, same);
  }
  // Without rounding points the worst case is near, and samples are dear: where it says nothing and they are not, or it may
  // hide something.
  SampledErrors few;
  const auto open = [&] {
    if (of.oracle.points) return asked.drawn(judgement.verdict);
    if (judgement.verdict == Verdict::vacuous && asked.drawn(Verdict::vacuous)) return true;
    return asked.drawn(Verdict::pass) && in_doubt(of, actual, seed) && !roundings_repeat(of) &&
           !lies_within_few(of.op, of.call, of.inputs, of.cuts, of.contract, of.oracle, seed, actual, &few);
  };
  if (judgement.verdict != Verdict::fail && !same && open()) {
    const Judgement drawn = judge_sampled(of.op, of.call, of.inputs, of.cuts, of.contract, of.oracle, seed,
                                          actual, std::move(few), softmax);
    // Roundings of n tokens that are one token add up to n where drawn ones make the root of it: so far a run is not known.
    const bool repeats = !of.oracle.points && drawn.verdict == Verdict::fail &&
                         drawn.ratio * drawn.ratio <= static_cast<double>(tokens_met(of)) &&
                         roundings_repeat(of);
    if (!repeats) add_gated(drawn, true);
  }
  return judgement;
}

}  // namespace samestate
