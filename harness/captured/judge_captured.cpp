#include "harness/captured/judge_captured.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "harness/captured/captured_heads.h"
#include "harness/captured/captured_spans.h"
#include "harness/cases/system.h"
#include "harness/run/chosen_heads.h"
#include "harness/run/head_cost.h"
#include "harness/systems/saved_run.h"
#include "oracles/judge.h"
#include "oracles/judge_policy.h"

namespace samestate {
namespace {

/// Half of the time is for the bounds of heads, and half for float64.
JudgePolicy captured_policy(double budget) {
  JudgePolicy policy = kCapturedPolicy;
  policy.held_microseconds = policy.float64_microseconds = 1e6 * budget / 2;
  return policy;
}

/// The errors of an output, and the limits that a correct kernel keeps.
struct Errors {
  double max_abs = -1.0;
  Location at, first;  ///< of the largest error, and of the first value that is not finite
  std::int64_t not_finite = 0;
  double squares = 0.0, size = 0.0;  ///< sums of squares over what was compared
  double held_size = 0.0, allowed = 0.0, expected = 0.0,
         most = 0.0;  ///< squares of what the bound covers; the largest row that is allowed

  void compare(const Matrix<double>& exact, const Matrix<double>& actual, std::int64_t n, std::int64_t h) {
    for (Index i = 0; i < exact.rows(); ++i) {
      for (Index j = 0; j < exact.cols(); ++j) {
        if (!std::isfinite(actual(i, j))) {
          if (not_finite++ == 0) first = {n, h, i, j};
          max_abs = std::max(max_abs, 0.0);
          continue;
        }
        const double off = std::abs(actual(i, j) - exact(i, j));
        squares += off * off;
        size += exact(i, j) * exact(i, j);
        if (off <= max_abs) continue;
        max_abs = off;
        at = {n, h, i, j};
      }
    }
  }
  void hold(const Matrix<double>& exact, const Vector<double>& tolerance, const Vector<double>& predicted) {
    held_size += exact.squaredNorm();
    allowed += tolerance.squaredNorm();
    expected += predicted.squaredNorm();
    if (tolerance.size() > 0) most = std::max(most, tolerance.maxCoeff());
  }
  void write(std::map<std::string, double>& numbers, const std::string& prefix) const {
    if (max_abs < 0.0) return;
    const auto root = [](double of, double over) { return over > 0.0 ? std::sqrt(of / over) : 0.0; };
    const auto place = [&](const std::string& name, const Location& is) {
      numbers[prefix + name + "_sequence"] = static_cast<double>(is.sequence);
      numbers[prefix + name + "_head"] = static_cast<double>(is.head);
      numbers[prefix + name + (prefix.empty() ? "_token" : "_row")] = static_cast<double>(is.token);
      numbers[prefix + name + "_column"] = static_cast<double>(is.channel);
    };
    numbers[prefix + "max_abs"] = max_abs;
    place("at", at);
    if (not_finite > 0) {
      numbers[prefix + "not_finite"] = static_cast<double>(not_finite);
      place("not_finite", first);
    }
    numbers[prefix + "relative_rms"] = root(squares, size);
    if (!(held_size > 0.0)) return;
    numbers[prefix + "allowed_max_abs"] = most;
    numbers[prefix + "allowed_relative_rms"] = root(allowed, held_size);
    numbers[prefix + "expected_relative_rms"] = root(expected, held_size);
  }
};

/// A call that changed an input fails, because its next caller relies on that input.
void note_edited(Judgement& judgement, const std::string& edited) {
  if (edited.empty()) return;
  judgement.verdict = Verdict::fail;
  judgement.gate = "memory";
  judgement.reason = fmt::format("the call changed its input {}{}{}", edited,
                                 judgement.reason.empty() ? "" : "; ", judgement.reason);
}

/// Results that are missing or have another size are the kernel's fault, however right the other results are.
void note_fault(Judgement& judgement, const std::string& fault) {
  if (fault.empty()) return;
  const bool failed = judgement.verdict == Verdict::fail;
  judgement.verdict = Verdict::fail;
  judgement.ratio = std::numeric_limits<double>::infinity();
  judgement.gate = "outputs";
  judgement.reason = fault + (failed ? "; " + judgement.reason : "");
}

class Judge {
 public:
  Judge(const CapturedHeads& call, double budget)
      : call_(call),
        r_(call.run().resolved()),
        contract_(r_.promised),
        policy_(captured_policy(budget)),
        chunk_(r_.chunk),
        cost_(mean_cost_of_head(r_.c, call.family())) {}

  [[nodiscard]] CapturedJudgement judge() {
    CapturedJudgement out;
    out.policy = policy_.name;
    const BatchShape& s = call_.shape();
    if (!call_.has_o()) {
      note_fault(out.judgement, call_.run().fault());
      note_edited(out.judgement, call_.run().edited());
      return out;
    }
    const ChosenHeads chosen = this->chosen();
    std::optional<Judgement> worst;
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        if (!chosen.takes(n, h)) continue;
        Judgement j = judge_one(n, h, chosen.count());
        const bool empty = s.begin(n) == s.end(n);
        if (empty && j.verdict == Verdict::vacuous && s.sequences() > 1) continue;
        j.worst.sequence = n, j.worst.head = h;
        if (worst) {
          merge(*worst, j);
        } else {
          worst = std::move(j);
        }
      }
    }
    if (!worst) worst.emplace().reason = "nothing was compared";
    out.judgement = std::move(*worst);
    chosen.note(out.judgement, plain_);
    note_spans(out.judgement);
    note_fault(out.judgement, call_.run().fault());
    note_edited(out.judgement, call_.run().edited());
    o_.write(out.numbers, "");
    state_.write(out.numbers, "state_");
    if (o_.size > 0.0)
      out.judgement.relative_rms =
          o_.not_finite > 0 ? std::numeric_limits<double>::quiet_NaN() : out.numbers["relative_rms"];
    return out;
  }

 private:
  /// Returns the heads that are compared with their bounds: as many as half of the time allows, and a few more
  /// that are farthest from float64. The other half of the time is for the evaluation in float64.
  [[nodiscard]] ChosenHeads chosen() {
    const BatchShape& s = call_.shape();
    const Index all = s.sequences() * s.Hv;
    const double affordable = policy_.held_microseconds / std::max(cost_.held, 1e-3);
    const Index most = affordable >= static_cast<double>(all)
                           ? all
                           : std::max(policy_.fewest_heads, static_cast<Index>(affordable));
    ChosenHeads chosen(
        s.sequences(), s.Hv, r_.c.seed, [&](std::int64_t n) { return s.begin(n) != s.end(n); }, policy_,
        most);
    if (chosen.all()) return chosen;
    double left =
        policy_.float64_microseconds - (in_spans() ? cost_.plain * static_cast<double>(chosen.count()) : 0.0);
    Farthest farthest(policy_.farthest);
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        const double one = cost_of_head(r_.c, call_.family(), s.end(n) - s.begin(n)).plain;
        if (chosen.takes(n, h) || left < one) continue;
        left -= one;
        ++plain_;
        const Trajectory<double> exact = call_.family().recurrent(call_.sequence(n, h));
        Distance distance;
        const Matrix<double> o = call_.rows(n, h);
        distance.add(exact.o, o);
        o_.compare(exact.o, o, n, h);
        if (call_.has_state()) {
          const Matrix<double> state = call_.state(n, h);
          distance.add(exact.state, state);
          state_.compare(exact.state, state, n, h);
        }
        farthest.add(n * s.Hv + h, distance);
      }
    }
    const Index before = chosen.count();
    const std::vector<Index> heads = farthest.heads();
    const Index more = std::max<Index>(most / 4, policy_.fewest_heads);
    for (Index i = 0; i < std::ssize(heads) && chosen.count() < before + more; ++i)
      chosen.add(heads[static_cast<std::size_t>(i)] / s.Hv, heads[static_cast<std::size_t>(i)] % s.Hv);
    plain_ -= chosen.count() - before;
    return chosen;
  }

  /// Returns true if the budget does not suffice for two whole heads.
  [[nodiscard]] bool in_spans() const {
    return cost_.held * static_cast<double>(policy_.fewest_heads) > policy_.held_microseconds;
  }

  Judgement judge_one(std::int64_t n, std::int64_t h, Index heads) {
    const Sequence<double> x = call_.sequence(n, h);
    const Matrix<double> o = call_.rows(n, h);
    const double held = cost_of_head(r_.c, call_.family(), x.tokens()).held;
    const double share = policy_.held_microseconds / static_cast<double>(heads);
    if (in_spans() && held > share && x.tokens() > 4 * span_length(chunk_))
      return judge_long(x, o, n, h, share / held);
    const HeadOracle oracle = oracle_of(x, whole(x.tokens(), chunk_), contract_, call_.family(), r_.c.l2norm);
    const Matrix<double> state = state_for(oracle.exact.state, n, h);
    note(oracle, x.tokens() > 0);
    o_.compare(oracle.exact.o, o, n, h);
    return judge_head(oracle, o, state);
  }

  Judgement judge_long(const Sequence<double>& x, const Matrix<double>& o, std::int64_t n, std::int64_t h,
                       double share) {
    const auto tokens = static_cast<Index>(share * static_cast<double>(x.tokens()));
    const Matrix<double> state =
        call_.has_state() ? call_.state(n, h) : Matrix<double>(call_.family().recurrent(x).state);
    const SpanJudgement found =
        judge_in_spans(x, chunk_, contract_, call_.family(), r_.c.l2norm, o, state, tokens);
    o_.compare(found.exact.o, o, n, h);
    if (call_.has_state()) state_.compare(found.exact.state, state, n, h);
    std::optional<Judgement> worst;
    std::string text;
    for (const HeldSpan& span : found.spans) {
      note(span.oracle, span.tokens.end == x.tokens() && call_.has_state());
      text += fmt::format("{}{}-{}", text.empty() ? "" : ",", span.tokens.begin, span.tokens.end - 1);
      if (worst) {
        merge(*worst, span.judgement);
      } else {
        worst = span.judgement;
      }
    }
    spans_.push_back(fmt::format(
        "{}:{} tokens {}{}", n, h, text,
        found.said_nothing > 0
            ? fmt::format(" ({} more say nothing: the state remembers what came before)", found.said_nothing)
            : ""));
    return *worst;
  }

  Matrix<double> state_for(const Matrix<double>& exact, std::int64_t n, std::int64_t h) {
    if (!call_.has_state()) return exact;
    const Matrix<double> state = call_.state(n, h);
    state_.compare(exact, state, n, h);
    return state;
  }

  void note(const HeadOracle& oracle, bool with_state) {
    if (!oracle.vacuous) o_.hold(oracle.exact.o, oracle.row, oracle.rms);
    if (oracle.vacuous || !with_state || !call_.has_state()) return;
    state_.hold(oracle.exact.state, Vector<double>::Constant(1, oracle.state),
                Vector<double>::Constant(1, oracle.state_rms.norm()));
  }

  void note_spans(Judgement& judgement) const {
    if (spans_.empty()) return;
    std::string text = fmt::format("{}", fmt::join(spans_, "; "));
    const std::size_t others = judgement.held_which.find("; ");
    if (others != std::string::npos) text += judgement.held_which.substr(others);
    judgement.held = std::ssize(spans_);
    judgement.held_of = call_.shape().sequences() * call_.shape().Hv;
    judgement.held_which = text + "; float64 went over all tokens of these heads";
  }

  const CapturedHeads& call_;
  const Resolved& r_;
  const Contract contract_;
  JudgePolicy policy_;
  Index chunk_;
  HeadCost cost_;
  Errors o_, state_;
  Index plain_ = 0;  ///< heads that were only compared with float64
  std::vector<std::string> spans_;
};

}  // namespace

Case captured_case(const std::filesystem::path& folder, const CapturedCall& call,
                   const CapturedFunction& function, const CapturedWords& words) {
  return CapturedRun(folder, call, function, words).resolved().c;
}

CapturedJudgement judge_captured(const std::filesystem::path& folder, const CapturedCall& call,
                                 const CapturedFunction& function, const CapturedWords& words,
                                 double budget) {
  const CapturedRun run(folder, call, function, words);
  if (run.resolved().system->of_family()) return Judge(CapturedHeads(run), budget).judge();
  CapturedJudgement out;
  out.policy = kFilePolicy.name;
  const std::optional<RunFile> file = run.run_file();
  if (!file) {
    note_fault(out.judgement, run.fault());
    return out;
  }
  try {
    out.judgement = judge_run_file(*file).judgement;
  } catch (const Error& error) {
    throw CapturedMismatch(error.what());
  }
  note_edited(out.judgement, run.edited());
  return out;
}

std::optional<RunFile> captured_run(const std::filesystem::path& folder, const CapturedCall& call,
                                    const CapturedFunction& function, const CapturedWords& words) {
  constexpr double kMostElements = 1 << 22;  // in all tensors together; larger calls take too long to explain
  const CapturedRun run(folder, call, function, words);
  return size_of_case(run.resolved()) <= kMostElements ? run.run_file() : std::nullopt;
}

}  // namespace samestate
