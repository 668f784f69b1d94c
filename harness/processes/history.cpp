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
    if (!fails(out.after, out)) return out;
    out.repeated = true;
    std::vector<Case> own;
    for (const Case& other : out.after) {
      if (other.kernel == c_.kernel && other.system == c_.system) own.push_back(other);
    }
    if (own.size() < out.after.size() && fails(own, out)) out.after = own;
    // What it keeps is mostly of the case before; then what is left in blocks of half, a quarter, .., one.
    for (std::size_t last = 1; last < out.after.size(); last *= 4) {
      std::vector<Case> tail(out.after.end() - static_cast<std::ptrdiff_t>(last), out.after.end());
      if (!fails(tail, out)) continue;
      out.after = std::move(tail);
      break;
    }
    for (std::size_t block = (out.after.size() + 1) / 2; block >= 1; block /= 2) leave_out(block, out);
    return out;
  }

 private:
  /// Every block that is not needed.
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

  [[nodiscard]] bool spent() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count() > options_.budget ||
           (options_.stop && options_.stop());
  }

  /// Whether the case has a repeatable failure behind these; then its result is that of `out`.
  bool fails(const std::vector<Case>& before, Replayed& out) {
    if (spent()) return false;
    const JobResult done = run_apart(
        [&] {
          if (options_.gpus) ::setenv("CUDA_VISIBLE_DEVICES", options_.gpus->c_str(), 1);
          for (const Case& other : before) {
            try {
              (void)run_(other);
            } catch (const Error&) {  // no case of this table
            }
          }
          return result_text(run_(c_));
        },
        options_.timeout, options_.stop);
    if (done.how == "interrupt") return false;
    CaseResult result;
    if (std::optional<Judgement> lost = judgement_of_loss(done)) {
      result.judgement = std::move(*lost);
    } else {
      result = parse_result(done.text);
    }
    if (!is_repeatable_failure(result.judgement.verdict)) return false;
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

Replayed replay(std::vector<Case> before, const Case& c, const CaseRunner& run,
                const ReplayOptions& options) {
  return Replay(c, run, options)(std::move(before));
}

}  // namespace samestate
