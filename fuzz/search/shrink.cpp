#include "fuzz/search/shrink.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <vector>

#include "fuzz/search/shrink_steps.h"
#include "harness/cases/resolved.h"

namespace samestate {
namespace {

class Shrinking {
 public:
  Shrinking(const std::function<CaseResult(const Case&)>& run, const ShrinkOptions& options)
      : run_(run), options_(options), begin_(Clock::now()) {}

  Shrunk operator()(const Case& failing) {
    Shrunk out;
    out.smallest = failing;
    out.finding = again(failing);
    if (out.finding.judgement.verdict == Verdict::flaky) return done(std::move(out));
    if (!fails(out.finding.judgement)) {
      throw NothingToShrink(fmt::format("the result of the case is {}, so there is nothing to shrink",
                                        name_of(out.finding.judgement.verdict)));
    }
    verdict_ = out.finding.judgement.verdict;
    found_ = out.finding.judgement;
    if (options_.looks_like) names_ = options_.looks_like(failing, options_.budget / 8);
    Shrunk small = out;
    descend(small);
    if (small.finding.judgement.verdict == Verdict::flaky && options_.fresh) {
      always_fresh_ = true;
      tried_.clear();
      small = out;
      descend(small);
    }
    return done(std::move(small));
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kForReruns = 0.9;

  static bool fails(const Judgement& j) { return is_repeatable_failure(j.verdict); }
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  /// Returns true if no further run may begin. A run, and its check, take at most about as long as that of
  /// the smallest case so far.
  [[nodiscard]] bool spent() const { return seconds() + 2.0 * took_ > options_.budget || stopped(); }

  CaseResult once(const Case& c, bool fresh = false) {
    ++runs_;
    const double begin = seconds();
    CaseResult result = (fresh || always_fresh_) && options_.fresh ? options_.fresh(c) : run_(c);
    last_ = seconds() - begin;
    return result;
  }

  void descend(Shrunk& out) {
    took_ = last_;
    std::vector<Shrunk> accepted{out};
    while (!spent() && step(out)) accepted.push_back(out);
    keep_names(accepted);
    out = accepted.back();
    out.complete = !spent();
    if (stopped()) return;
    // A result counts only if it can be repeated.
    const CaseResult last = again(out.smallest);
    const Verdict verdict = last.judgement.verdict;
    if (verdict == verdict_) return;
    if (verdict == Verdict::flaky) {
      out.finding = last;
    } else {
      out.finding.judgement.verdict = Verdict::flaky;
      out.finding.judgement.reason =
          fmt::format("fails after other cases, but is {} alone", name_of(verdict));
    }
  }

  [[nodiscard]] bool keeps_names(const Case& c) const {
    const std::vector<std::string> now = options_.looks_like(c, std::max(options_.budget / 16, 0.5));
    return !now.empty() && std::ranges::all_of(now, [&](const std::string& name) {
      return std::ranges::find(names_, name) != names_.end();
    });
  }

  /// Undoes the last steps, after which the case looks like another fault, and goes on from there with steps
  /// that are each checked for it.
  void keep_names(std::vector<Shrunk>& accepted) {
    if (!options_.looks_like || names_.empty() || keeps_names(accepted.back().smallest)) return;
    std::size_t good = 0, bad = accepted.size() - 1;
    while (bad - good > 1 && !stopped()) {
      const std::size_t middle = good + (bad - good) / 2;
      (keeps_names(accepted[middle].smallest) ? good : bad) = middle;
    }
    accepted.resize(good + 1);
    asks_names_ = true;
    for (Shrunk next = accepted.back(); !spent() && step(next);) accepted.push_back(next);
    asks_names_ = false;
  }

  /// Runs the case several times. The result is flaky if two runs disagree in verdict or kind.
  CaseResult again(const Case& c) {
    CaseResult first = once(c, true);
    // A case that takes a good part of the budget is run only once, to leave time for smaller ones.
    for (int i = 1; i < options_.reruns && !stopped() && seconds() + last_ < kForReruns * options_.budget;
         ++i) {
      const CaseResult other = once(c);
      if (stopped()) return first;  // the reason for stopping may also keep the case from running
      const std::string a = kind_of(first.judgement);
      const std::string b = kind_of(other.judgement);
      if (first.judgement.verdict == other.judgement.verdict && a == b) continue;
      const auto say = [](const Judgement& j, const std::string& kind) {
        return std::string(name_of(j.verdict)) + (fails(j) && !kind.empty() ? " (" + kind + ")" : "");
      };
      first.judgement.reason =
          "runs of the same case disagree: " + say(first.judgement, a) + ", then " + say(other.judgement, b);
      first.judgement.verdict = Verdict::flaky;
      return first;
    }
    return first;
  }

  /// Takes the first step that still fails in the same way; returns false if there is none.
  bool step(Shrunk& out) {
    for (const Case& smaller : smaller_cases(out.smallest)) {
      if (spent()) return false;
      if (!tried_.insert(format_case(smaller)).second) continue;
      CaseResult finding;
      try {
        finding = once(smaller);
      } catch (const Error&) {  // no kernel of the table has this form
        continue;
      }
      if (finding.judgement.verdict != verdict_ || !fails_alike(found_, finding.judgement)) continue;
      if (asks_names_ && !keeps_names(smaller)) continue;
      took_ = last_;
      out.smallest = smaller;
      out.finding = finding;
      return true;
    }
    return false;
  }

  Shrunk done(Shrunk out) const {
    out.runs = runs_;
    out.seconds = seconds();
    return out;
  }

  const std::function<CaseResult(const Case&)>& run_;
  const ShrinkOptions& options_;
  Clock::time_point begin_;
  Verdict verdict_ = Verdict::fail;
  Judgement found_;
  std::vector<std::string> names_;  ///< names of the faults whose values the original case has
  bool asks_names_ = false;
  double last_ = 0.0;  ///< seconds of the last run
  double took_ = 0.0;  ///< seconds of the smallest case so far
  std::set<std::string> tried_;
  std::int64_t runs_ = 0;
  bool always_fresh_ = false;
};

}  // namespace

namespace {

/// Returns "o" from "output o: all tokens in one call ..".
std::string output_in(std::string_view reason) {
  constexpr std::string_view kOutput = "output ";
  if (!reason.starts_with(kOutput)) return "";
  reason.remove_prefix(kOutput.size());
  return std::string(reason.substr(0, reason.find_first_of(" :,")));
}

bool of_state(const Judgement& j) { return j.gate.ends_with("state"); }

}  // namespace

std::string kind_of(const Judgement& judgement) {
  std::string_view gate = judgement.gate;
  if (gate.starts_with("segment ")) gate.remove_prefix(8);
  if (gate.ends_with(" state")) gate.remove_suffix(6);
  if (gate == "row" || gate == "head" || gate == "hard" || gate == "state") return "bound";
  // The statistic of the twin gate does not matter either.
  std::string kind(gate.starts_with("twin") ? "twin" : gate);
  if (const std::string output = output_in(judgement.reason); !output.empty()) kind += " of " + output;
  return kind;
}

bool fails_alike(const Judgement& found, const Judgement& smaller) {
  constexpr double kFar = 10.0, kNear = 3.0;
  if (kind_of(found) != kind_of(smaller)) return false;
  if (found.ratio >= kFar && smaller.ratio < kNear) return false;
  // Both outputs may be wrong in the smaller case, and the other one by more.
  const bool state = of_state(found);
  if (state == of_state(smaller)) return true;
  return state ? smaller.state_ratio > 1.0 : std::max(smaller.row_ratio, smaller.head_ratio) > 1.0;
}

Shrunk shrink(const Case& failing, const std::function<CaseResult(const Case&)>& run,
              const ShrinkOptions& options) {
  (void)Resolved(failing);
  return Shrinking(run, options)(failing);
}

}  // namespace samestate
