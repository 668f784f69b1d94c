#include "measure/scale/hand_out_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <limits>
#include <queue>
#include <utility>
#include <vector>

#include "harness/processes/hand_out.h"
#include "harness/processes/piece_sizes.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// A model of one shard.
class Model {
 public:
  Model(std::span<const CaseSeconds> costs, const HandOutModel& model, std::int64_t first, std::int64_t cases,
        int ranks)
      : costs_(costs),
        model_(model),
        next_(first),
        end_(first + cases),
        judges_(ranks <= HandOut::kMostJudging),
        ranks_(static_cast<std::size_t>(judges_ ? ranks : ranks - 1)),
        sizes_(work_of(first, first + cases), static_cast<int>(ranks_.size()), 1) {
    // Reports that arrive between pieces: at most a thousand a second, whatever the number of ranks.
    const double reports = std::min(1000.0, 50.0 * (ranks - 1));
    slowed_ = 1.0 / std::max(0.1, 1.0 - reports * model.message_seconds);
  }

  void run() {
    for (std::size_t i = 0; i < ranks_.size(); ++i)
      wants_.push({i == 0 && judges_ ? 0.0 : model_.latency, i});
    while (!wants_.empty() && next_ < end_) {
      const auto [time, rank] = wants_.top();
      wants_.pop();
      give(rank, time);
    }
    for (Rank& rank : ranks_) {
      advance(rank, std::numeric_limits<double>::infinity());
      seconds = std::max(seconds, rank.busy_until + model_.latency);
    }
    seconds = std::max(seconds, rank_0_until_);
  }

  double seconds = 0.0, cost = 0.0, rank_0 = 0.0;
  std::int64_t pieces = 0;
  [[nodiscard]] std::size_t places() const { return ranks_.size(); }

 private:
  struct Rank {
    std::deque<double> queue;  ///< cases not begun, with the time each takes
    double busy_until = 0.0;
    double done_work = 0.0, done_seconds = 0.0;  ///< not yet covered by a report
  };

  [[nodiscard]] const CaseSeconds& at(std::int64_t i) const {
    return costs_[static_cast<std::size_t>(i % std::ssize(costs_))];
  }
  [[nodiscard]] double work_of(std::int64_t from, std::int64_t to) const {
    double all = 0.0;
    for (const CaseSeconds& c : costs_) all += c.work;
    const std::int64_t count = std::ssize(costs_);
    double work = static_cast<double>((to - from) / count) * all;
    for (std::int64_t i = from; i < from + (to - from) % count; ++i) work += at(i).work;
    return work;
  }

  /// Starts what it can until `time`.
  static void advance(Rank& rank, double time) {
    while (!rank.queue.empty() && rank.busy_until <= time) {
      rank.busy_until += rank.queue.front();
      rank.queue.pop_front();
    }
  }

  /// Rank 0 learns at `time` that the rank asks for a piece.
  void give(std::size_t number, double time) {
    Rank& rank = ranks_[number];
    const bool here = judges_ && number == 0;
    sizes_.measure(rank.done_work, rank.done_seconds);
    rank.done_work = rank.done_seconds = 0.0;
    const double size = here ? 0.0 : sizes_.next();
    std::vector<double> piece;
    double work = 0.0;
    const std::size_t most = here ? 1 : size > 0.0 ? HandOut::kMostJobs : HandOut::kFirstJobs;
    while (next_ < end_ && piece.size() < most && (size <= 0.0 || work < size)) {
      const CaseSeconds& c = at(next_++);
      piece.push_back(c.seconds);
      work += c.work;
      cost += c.seconds;
      rank.done_seconds += c.seconds;
    }
    rank.done_work = work;
    sizes_.give(work);
    const double service = slowed_ * (static_cast<double>(piece.size()) * model_.case_seconds +
                                      (here ? 0.0 : model_.message_seconds));
    rank_0 += service;
    rank_0_until_ = std::max(rank_0_until_, time) + service;
    ++pieces;
    const double arrives = rank_0_until_ + (here ? 0.0 : model_.latency);
    advance(rank, arrives);
    if (rank.queue.empty()) rank.busy_until = std::max(rank.busy_until, arrives);
    rank.queue.insert(rank.queue.end(), piece.begin(), piece.end());
    // A rank asks again when half of its jobs are left.
    const std::size_t half = rank.queue.size() / 2;
    double begins = std::max(rank.busy_until, arrives);
    while (rank.queue.size() > half) {
      begins = rank.busy_until;
      rank.busy_until += rank.queue.front();
      rank.queue.pop_front();
    }
    wants_.push({(here ? rank.busy_until : begins + model_.latency), number});
  }

  std::span<const CaseSeconds> costs_;
  const HandOutModel& model_;
  std::int64_t next_, end_;
  bool judges_;
  std::vector<Rank> ranks_;
  PieceSizes sizes_;
  double slowed_ = 1.0, rank_0_until_ = 0.0;
  using Want = std::pair<double, std::size_t>;
  std::priority_queue<Want, std::vector<Want>, std::greater<>> wants_;
};

}  // namespace

HandOutTime time_of(std::span<const CaseSeconds> costs, const HandOutModel& model) {
  if (model.shards < 1 || model.ranks < model.shards)
    throw Error(fmt::format("{} ranks in {} shards: each shard has at least one", model.ranks, model.shards));
  if (model.cases < 1) throw Error(fmt::format("{} cases: at least 1", model.cases));
  if (std::none_of(costs.begin(), costs.end(), [](const CaseSeconds& c) { return c.seconds > 0.0; }))
    throw Error("no case that took any time: name the run file of a gate");
  HandOutTime out;
  double rank_0 = 0.0;
  double places = 0.0;
  for (int shard = 0; shard < model.shards; ++shard) {
    const auto part = [&](std::int64_t of, std::int64_t i) { return of * i / model.shards; };
    const std::int64_t first = part(model.cases, shard);
    const std::int64_t ranks = part(model.ranks, shard + 1) - part(model.ranks, shard);
    Model one(costs, model, first, part(model.cases, shard + 1) - first, static_cast<int>(ranks));
    one.run();
    out.seconds = std::max(out.seconds, one.seconds);
    out.total_cost += one.cost;
    out.pieces += one.pieces;
    rank_0 = std::max(rank_0, one.rank_0);
    places += static_cast<double>(one.places());
  }
  out.efficiency = out.total_cost / (model.ranks * out.seconds);
  out.idle = 1.0 - out.total_cost / (places * out.seconds);
  out.rank_0 = rank_0 / out.seconds;
  return out;
}

}  // namespace samestate
