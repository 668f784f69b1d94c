#include "oracles/systems/judge_sequence.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/reasons.h"
#include "oracles/systems/in_doubt.h"
#include "oracles/systems/judge_samples.h"

namespace samestate {
namespace {

/// Combines the worst case with another gate: either may fail a run, and the other, if it `knows` enough, may
/// pass it.
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

/// Compares with the worst case of the form in chunks of one token, with q S instead of (q k^T) v. Without
/// rounding points nothing is rounded where a chunk ends, and a kernel with its own chunks may use either: if
/// q is nearly orthogonal to many keys, the two differ by more than their worst cases.
Judgement judge_in_other_chunks(const TwinSubject& of, const Tensors<double>& actual) {
  Call call = of.call;
  call.chunk = 1;
  OperatorOracle oracle = operator_oracle(of.op, call, of.inputs, of.cuts, of.contract);
  // A token's error in either form is within that form's worst case, so that of a kernel that mixes them is
  // within the sum; the larger of the two is less than that. A form whose worst case is useless excuses
  // nothing.
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

/// Draws roundings for a run; empty if they cannot tell if roundings cause its error. `begun` is used if few
/// samples may be enough.
std::optional<Judgement> draw(const TwinSubject& of, const Tensors<double>& actual, std::uint64_t seed,
                              const JudgePolicy& policy, SampledErrors begun = {}) {
  Judgement drawn = judge_sampled(of.op, of.call, of.inputs, of.cuts, of.contract, of.oracle, seed, actual,
                                  policy, std::move(begun), {});
  // The roundings of n copies of one token add up to n, whereas drawn ones give sqrt(n), so up to that factor
  // nothing is known about the run.
  const bool repeats = drawn.verdict == Verdict::fail &&
                       drawn.ratio * drawn.ratio <= static_cast<double>(tokens_met(of)) &&
                       roundings_repeat(of);
  if (repeats) return {};
  return drawn;
}

/// The same for a run in doubt, for which few samples may be enough: then only the verdict is known.
std::optional<Judgement> draw_in_doubt(const TwinSubject& of, const Tensors<double>& actual,
                                       std::uint64_t seed, const JudgePolicy& policy) {
  SampledErrors few;
  if (!lies_within_few(of.op, of.call, of.inputs, of.cuts, of.contract, of.oracle, seed, actual, policy,
                       &few))
    return draw(of, actual, seed, policy, std::move(few));
  Judgement within;
  within.verdict = Verdict::pass;
  return within;
}

/// True if in each row of each output a share of its size is a usable limit: nothing is undecided, may
/// overflow, or is nearly flushed to zero, and no row is zero.
bool all_rows_have_sizes(const OperatorOracle& oracle) {
  constexpr double kLeastSize = 1e-30;
  if (!oracle.overflows.empty()) return false;
  return std::ranges::all_of(oracle.exact, [&](const auto& output) {
    const auto& [name, y] = output;
    if (get(oracle.undecided, name).any() || !y.allFinite()) return false;
    return y.size() == 0 || y.cwiseAbs2().rowwise().mean().minCoeff() > kLeastSize * kLeastSize;
  });
}

/// Draws what has to be drawn of a run that its worst case does not fail: the parts where it is vacuous, as
/// far as that is requested, and the parts where it may hide something.
void judge_without_points(Judgement& judgement, const TwinSubject& of, const Tensors<double>& actual,
                          std::uint64_t seed, const JudgePolicy& policy, const GatesAsked& asked) {
  if (judgement.verdict == Verdict::fail) return;
  if (judgement.verdict == Verdict::vacuous && asked.drawn(Verdict::vacuous)) {
    if (const std::optional<Judgement> drawn = draw(of, actual, seed, policy)) add(judgement, *drawn, true);
    return;
  }
  const std::vector<std::string> wide = wide_outputs(of.oracle);
  const auto say = [&](std::string_view who) {
    if (judgement.verdict != Verdict::pass || wide.empty()) return;
    judgement.reason +=
        fmt::format("{}worst case above {} of its size: {} ({})", judgement.reason.empty() ? "" : "; ",
                    kWideTolerance, fmt::join(wide, ", "), who);
  };
  const std::vector<DoubtfulRow> rows = doubtful_rows(of, actual, seed, policy);
  if (rows.empty()) {
    // If an error had been more than that, or a thousandth of a row, it would have been in doubt, so a wide
    // worst case is no reason to call the run vacuous.
    if (judgement.verdict == Verdict::vacuous && judgement.gate != kZeroGate &&
        all_rows_have_sizes(of.oracle))
      judgement.verdict = Verdict::pass, judgement.reason.clear();
    return say("the error is what inputs moved by a rounding make");
  }
  const auto hidden = std::ranges::find_if(rows, &DoubtfulRow::wide);
  const auto leave_open = [&](std::string_view why) {
    if (judgement.verdict != Verdict::pass || hidden == rows.end())
      return say("drawn roundings know no more");
    judgement.verdict = Verdict::vacuous;
    judgement.gate = kInDoubtGate;
    judgement.reason = fmt::format(
        "output {}, row {}: its worst case is above {} of its size, its error more than inputs moved by a "
        "rounding make, and "
        "drawn roundings {}",
        hidden->output, hidden->row, kWideTolerance, why);
  };
  const bool few_tokens = of.call.tokens > policy.doubtful_tokens &&
                          std::ranges::none_of(rows, [](const DoubtfulRow& row) { return row.token < 0; });
  const double share = few_tokens ? policy.doubtful_tokens / static_cast<double>(of.call.tokens) : 1.0;
  const bool may = asked.in_doubt ? asked.in_doubt(share) : asked.drawn(Verdict::pass);
  if (!may) return leave_open("are too many for the work that a case may take");
  std::optional<Judgement> drawn;
  if (few_tokens) {
    const TokensAlone alone =
        tokens_in_doubt(of, actual, rows, static_cast<std::size_t>(policy.doubtful_tokens));
    const std::vector<Index> no_cuts;
    drawn = draw_in_doubt({of.op, alone.call, alone.inputs, no_cuts, of.contract, alone.oracle}, alone.actual,
                          seed, policy);
    if (drawn && drawn->worst.token >= 0) {
      const Index each = get(of.oracle.exact, rows.front().output).rows() / of.call.tokens;
      drawn->worst.token = alone.tokens[static_cast<std::size_t>(drawn->worst.token / each)] * each +
                           drawn->worst.token % each;
    }
  } else {
    drawn = draw_in_doubt(of, actual, seed, policy);
  }
  if (!drawn || drawn->verdict == Verdict::vacuous) return leave_open("do not know it either");
  // Some tokens, or few samples, are not enough to judge what the worst case leaves vacuous.
  add(judgement, *drawn, !few_tokens && drawn->sampled_ratio > 0.0);
  say("drawn roundings decide");
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
                         const JudgePolicy& policy, const GatesAsked& asked) {
  Judgement judgement = judge_operator(of.op, of.oracle, actual);
  if (judgement.verdict == Verdict::fail && has_free_chunks(of)) {
    // Samples use the requested chunks, and do not describe others better.
    Judgement other = judge_in_other_chunks(of, actual);
    if (other.verdict != Verdict::fail) return other;
  }
  bool same = false;
  SoftmaxOrder softmax;
  // For a nearest card both are only reported, as for the family: they use its points, and the kernel may
  // have others.
  const auto add_gated = [&](const Judgement& other, bool knows) {
    if (!of.contract.nearest || other.verdict != Verdict::fail) return add(judgement, other, knows);
    judgement.reason += fmt::format(
        "{}the card is nearest: {:.3g} of the limit of {}, reported and not gated (--strict gates it)",
        judgement.reason.empty() ? "" : "; ", other.ratio, other.gate);
    judgement.sampled_ratio = std::max(judgement.sampled_ratio, other.sampled_ratio);
    judgement.twin_ratio = std::max(judgement.twin_ratio, other.twin_ratio);
  };
  if (of.oracle.points && judgement.verdict != Verdict::fail && asked.twin(judgement.verdict)) {
    const TwinJudgement nearest = judge_operator_twin(of, actual, seed, policy);
    same = nearest.same;
    softmax = nearest.softmax;
    add_gated(nearest.judgement, same);
  }
  if (!of.oracle.points) {
    judge_without_points(judgement, of, actual, seed, policy, asked);
  } else if (judgement.verdict != Verdict::fail && !same && asked.drawn(judgement.verdict)) {
    const auto drawn = [&](const SoftmaxOrder& order) {
      return judge_sampled(of.op, of.call, of.inputs, of.cuts, of.contract, of.oracle, seed, actual, policy,
                           {}, order);
    };
    Judgement of_order = drawn(softmax);
    // The accepted twin may take the weights in another order than the kernel: a weight just below 1 differs by a
    // whole spacing from a weight of 1 when both are truncated, and the error of fp32 covers that difference.
    if (of_order.verdict == Verdict::fail && softmax != SoftmaxOrder{}) {
      Judgement other = drawn({});
      if (other.verdict != Verdict::fail) of_order = std::move(other);
    }
    add_gated(of_order, true);
  }
  return judgement;
}

}  // namespace samestate
