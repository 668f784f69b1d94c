#include "harness/processes/history.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <utility>

#include "reference/error.h"

namespace samestate {
namespace {

using Clock = std::chrono::steady_clock;

class Replay {
 public:
  Replay(const Case& c, const CaseRunner& run, const ReplayOptions& options)
      : c_(c), run_(run), options_(options) {}

  Replayed operator()(std::vector<Case> before) {
    Replayed out{false, std::move(before), {}};
    if (!find(out)) return out;
    out.repeated = true;
    for (std::size_t block = (out.after.size() + 1) / 2; block >= 1; block /= 2) leave_out(block, out);
    return out;
  }

 private:
  /// The cause is usually the case just before it, or the first one of its process.
  bool find(Replayed& out) {
    std::vector<Case> own;
    for (const Case& other : out.after) {
      if (other.kernel == c_.kernel && other.system == c_.system) own.push_back(other);
    }
    const auto brings = [&](std::vector<Case> some) {
      if (!fails(some, out)) return false;
      out.after = std::move(some);
      return true;
    };
    for (std::size_t count = 1; count < own.size(); count *= 4) {
      const auto part = static_cast<std::ptrdiff_t>(count);
      if (brings({own.end() - part, own.end()}) || brings({own.begin(), own.begin() + part})) return true;
    }
    if (!own.empty() && own.size() < out.after.size() && brings(own)) return true;
    return fails(out.after, out);
  }

  /// Tries to leave out every block of `block` cases that is not needed.
  void leave_out(std::size_t block, Replayed& out) {
    for (std::size_t begin = 0; begin < out.after.size() && !spent();) {
      const std::size_t end = std::min(begin + block, out.after.size());
      std::vector<Case> rest(out.after.begin(), out.after.begin() + static_cast<std::ptrdiff_t>(begin));
      rest.insert(rest.end(), out.after.begin() + static_cast<std::ptrdiff_t>(end), out.after.end());
      if (fails(rest, out)) {
        out.after = std::move(rest);
      } else {
        begin = end;
      }
    }
  }

  [[nodiscard]] double left() const {
    return options_.budget - std::chrono::duration<double>(Clock::now() - begin_).count();
  }
  [[nodiscard]] bool spent() const { return left() <= 0.0 || (options_.stop && options_.stop()); }

  /// Returns true if the case fails repeatably after these; `out` then holds its result. A sequence that the
  /// budget cuts short has no result.
  bool fails(const std::vector<Case>& before, Replayed& out) {
    if (spent()) return false;
    ReplayOptions options = options_;
    const bool cut = options.timeout <= 0.0 || left() < options.timeout;
    if (cut) options.timeout = left();
    CaseResult result = run_behind(before, c_, run_, options);
    const Verdict verdict = result.judgement.verdict;
    if (!is_repeatable_failure(verdict) || (cut && verdict == Verdict::timeout)) return false;
    out.result = std::move(result);
    return true;
  }

  const Case& c_;
  const CaseRunner& run_;
  const ReplayOptions& options_;
  Clock::time_point begin_ = Clock::now();
};

}  // namespace

void History::add(const Task& task) {
  if (!task.fresh) tasks_[task.process][task.order] = task.index;
}

std::vector<std::int64_t> History::before(const Task& task) const {
  std::vector<std::int64_t> numbers;
  const auto process = tasks_.find(task.process);
  if (process == tasks_.end()) return numbers;
  for (const auto& [order, number] : process->second) {
    if (order < task.order) numbers.push_back(number);
  }
  return numbers;
}

CaseResult run_behind(const std::vector<Case>& before, const Case& c, const CaseRunner& run,
                      const ReplayOptions& options) {
  const JobResult done = run_apart(
      [&] {
        if (options.gpus) ::setenv("CUDA_VISIBLE_DEVICES", options.gpus->c_str(), 1);
        for (const Case& other : before) {
          try {
            (void)run(other);
          } catch (const Error&) {  // the case is not of this table
          }
        }
        return result_text(run(c));
      },
      options.timeout, options.stop);
  CaseResult result;
  if (std::optional<Judgement> lost = judgement_of_loss(done)) {
    result.judgement = std::move(*lost);
  } else {
    result = parse_result(done.text);
  }
  return result;
}

Replayed replay(std::vector<Case> before, const Case& c, const CaseRunner& run,
                const ReplayOptions& options) {
  return Replay(c, run, options)(std::move(before));
}

}  // namespace samestate
