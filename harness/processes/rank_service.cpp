#include "harness/processes/rank_service.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <exception>
#include <optional>
#include <utility>
#include <vector>

namespace samestate {
namespace {

class RankJobs : private Elsewhere {
 public:
  RankJobs(RankLink& link, const JobRunner& run, Devices* devices)
      : link_(link), run_(run), devices_(devices) {}

  void serve() {
    while (open_) {
      if (!begins_) {
        link_.wait(-1);
        look();
        continue;
      }
      const RankBegin begun = *std::exchange(begins_, std::nullopt);
      current_ = begun.run;
      interval_ = begun.interval;
      jobs_.clear();
      report_ = {};
      last_piece_ = 0;
      wanting_ = false;
      under_way_ = 0;
      WorkerOptions options = begun.options;
      options.devices = devices_;
      Pool pool(run_, options);
      JobObserver observer;
      observer.started = [this](const Job& job) { report_.started.push_back(job.index); };
      observer.finished = [this](const Job& job, JobResult result) { finish(job, std::move(result)); };
      // A later run has begun, or the end has come: nothing of this run matters any more.
      observer.stop = [this] { return begins_ || !open_; };
      observer.elsewhere = this;
      want();
      pool.run([this](std::int64_t served) { return next(served); }, observer);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] int descriptor() const override { return link_.descriptor(); }

  /// Always true: only rank 0 knows when there is nothing more to do.
  [[nodiscard]] bool turn() override {
    look();
    const bool some = !report_.started.empty() || !report_.done.empty() || !report_.returned.empty();
    const std::chrono::duration<double> since = Clock::now() - reported_;
    if (some && (since.count() >= interval_ || (under_way_ == 0 && jobs_.empty()))) report();
    return true;
  }

  void look() {
    std::vector<RankFrame> frames;
    open_ = link_.receive(frames);
    for (const RankFrame& frame : frames) {
      if (frame.kind == RankFrame::Kind::lost)
        continue;  // it is rank 0 that is lost, and the end of its
                   // connection ends this process
      RankMessage message = parse_message(frame.text);
      if (const auto* begin = std::get_if<RankBegin>(&message)) begins_ = *begin;
      if (const auto* back = std::get_if<RankRecall>(&message); back != nullptr && back->run == current_)
        return_jobs();
      if (auto* piece = std::get_if<RankPiece>(&message); piece != nullptr && piece->run == current_) {
        wanting_ = false;
        std::move(piece->jobs.begin(), piece->jobs.end(), std::back_inserter(jobs_));
        last_piece_ = jobs_.size();
      }
    }
  }

  /// Returns a job of the subject that the process served last, if there is one.
  std::optional<Job> next(std::int64_t served) {
    if (jobs_.empty()) return std::nullopt;
    auto found = std::find_if(jobs_.begin(), jobs_.end(), [&](const Job& j) { return j.subject == served; });
    if (found == jobs_.end()) found = jobs_.begin();
    Job job = std::move(*found);
    jobs_.erase(found);
    ++under_way_;
    // Half of the piece is left to cover the time until the next one arrives.
    if (!wanting_ && jobs_.size() <= last_piece_ / 2) want();
    return job;
  }

  void finish(const Job& job, JobResult result) {
    --under_way_;
    const bool lost = result.kind != JobResult::Kind::answered;
    report_.done.push_back({job.index, std::move(result)});
    if (lost) return_jobs();
  }

  void return_jobs() {
    for (const Job& job : jobs_) report_.returned.push_back(job.index);
    jobs_.clear();
    if (!wanting_) want();
  }

  void want() {
    wanting_ = true;
    report_.wants = true;
    report();
  }

  void report() {
    report_.run = current_;
    reported_ = Clock::now();
    // If the link is gone, the next look at it shows that.
    (void)link_.send({0, RankFrame::Kind::text, text_of_message(std::exchange(report_, {}))});
  }

  RankLink& link_;
  const JobRunner& run_;
  Devices* devices_;
  bool open_ = true;
  std::optional<RankBegin> begins_;
  std::uint64_t current_ = 0;
  double interval_ = 0.0;
  std::deque<Job> jobs_;
  std::size_t last_piece_ = 0;
  bool wanting_ = false;  ///< it asked for a piece that has not come yet
  std::int64_t under_way_ = 0;
  RankReport report_;
  Clock::time_point reported_;
};

}  // namespace

void serve_rank(RankLink& link, const RankHello& hello, const JobRunner& run, Devices* devices) {
  const auto say = [&](const RankMessage& message) {
    return link.send({0, RankFrame::Kind::text, text_of_message(message)});
  };
  if (!say(hello)) return;
  try {
    if (hello.refused.empty()) return RankJobs(link, run, devices).serve();
  } catch (const std::exception& error) {
    if (!say(RankFailure{error.what()})) return;
  }
  std::vector<RankFrame> frames;
  while (link.receive(frames)) link.wait(-1);
}

}  // namespace samestate
