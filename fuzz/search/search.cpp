#include "fuzz/search/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <tuple>

#include "fuzz/search/bug_conditions.h"
#include "fuzz/search/checkpoint.h"
#include "harness/records/attained.h"

namespace samestate {
namespace {

void check(const SearchOptions& o) {
  if (o.shards < 1 || o.shards > kMostShards || o.shard < 0 || o.shard >= o.shards) {
    throw Error(fmt::format("shard {}/{}: write I/N with N in 1..{} and I in 0..N-1", o.shard, o.shards,
                            kMostShards));
  }
  if (o.budget <= 0 && o.max_cases <= 0) throw Error("no end: give --budget, --max-cases or both");
  if (o.resume && o.checkpoint.empty()) throw Error("--resume needs --checkpoint FILE");
}

class Search {
 public:
  using Clock = std::chrono::steady_clock;

  Search(const KernelTable& table, const SearchOptions& options, const SearchObserver& observer)
      : table_(table),
        options_(options),
        observer_(observer),
        source_(table, options.filter, options.seed),
        result_(source_) {
    if (options.checkpoint.empty()) return;
    const std::string title =
        CheckpointTitle{options.build, options.seed, options.shard, options.shards, source_.fingerprint()}
            .text();
    if (!options.resume) {
      checkpoint_ = std::make_unique<Checkpoint>(options.checkpoint, title);
      return;
    }
    std::vector<CheckpointEntry> entries;
    checkpoint_ = std::make_unique<Checkpoint>(options.checkpoint, title, entries);
    for (const CheckpointEntry& entry : entries) {
      if (options.max_cases > 0 && entry.index >= options.max_cases) continue;
      if (entry.index < 0 || entry.index % options.shards != options.shard ||
          !done_.insert(entry.index).second) {
        throw Error(fmt::format("{}: case {} is not of this shard or stands twice; begin another file",
                                options.checkpoint.string(), entry.index));
      }
      before_ = std::max(before_, entry.elapsed);
      take({entry.index, source_.draw(entry.index)}, entry.finding, true);
    }
  }

  SearchResult run(const std::function<bool()>& stop) {
    begin_ = Clock::now();
    next_ = options_.shard;
    Workers workers(runner_of(table_), options_.workers);
    WorkerObserver observer;
    observer.started = observer_.started;
    observer.finished = [this](const Task& task, const CaseResult& finding) {
      keep(task, finding);
      take(task, finding, false);
    };
    const auto ending = [&] {
      const bool spent = options_.budget > 0 && before_ + seconds() > options_.budget;
      return spent || !result_.lost.empty() || (stop && stop());
    };
    OtherRanks others{options_.ranks, PieceSizes::kUnknown, ending, {}};
    if (options_.max_cases > 0) {
      const std::int64_t all = (options_.max_cases - options_.shard + options_.shards - 1) / options_.shards;
      others.work = static_cast<double>(all - std::ssize(done_));  // cases are drawn from one distribution
    }
    workers.run([&](std::int64_t) { return ending() ? std::nullopt : next(); }, observer, others);
    result_.seconds = seconds();
    result_.elapsed = before_ + result_.seconds;
    rank_worst();
    std::sort(result_.failures.begin(), result_.failures.end(),
              [](const Found& a, const Found& b) { return a.index < b.index; });
    return std::move(result_);
  }

 private:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count();
  }

  std::optional<Task> next() {
    while (done_.contains(next_)) next_ += options_.shards;
    if (options_.max_cases > 0 && next_ >= options_.max_cases) return std::nullopt;
    const std::int64_t index = next_;
    next_ += options_.shards;
    return Task{index, source_.draw(index)};
  }

  /// Adds it to the checkpoint until writing fails, for example on a full disk.
  void keep(const Task& task, const CaseResult& finding) {
    if (!checkpoint_ || !result_.lost.empty()) return;
    try {
      checkpoint_->append({task.index, before_ + seconds(), finding});
    } catch (const Error& error) {
      result_.lost = error.what();
    }
  }

  void take(const Task& task, const CaseResult& finding, bool replayed) {
    const Record record = record_of(task.c, table_, finding);
    const Judgement& j = finding.judgement;
    if (!replayed) result_.history.add(task);
    ++result_.cases;
    result_.replayed += replayed;
    ++result_.counts[j.verdict];
    result_.coverage.add(task.c, finding);
    if (is_repeatable_failure(j.verdict)) {
      if (result_.failures.size() < kKeptFailures)
        result_.failures.push_back({task.index, task.c, record, task});
    } else if (j.verdict == Verdict::pass) {
      keep_worst({task.index, task.c, record});
    }
    if (observer_.finished) observer_.finished(task, record, replayed);
  }

  /// Keeps the worst of the cases that share system, form, contract, law and gate: attained bounds refer to
  /// such a group.
  void keep_worst(Found found) {
    const Record& r = found.record;
    Group& group = groups_[{r.system, r.form, r.contract, r.law, r.judgement.gate}];
    group.ratios.add(r.judgement.ratio);
    keep_worst(group.worst, std::move(found));
  }

  static void keep_worst(std::vector<Found>& worst, Found found) {
    // Sorted by ratio, then by index: the same five whatever the order in which cases finish.
    const auto worse = [](const Found& a, const Found& b) {
      const double x = a.record.judgement.ratio;
      const double y = b.record.judgement.ratio;
      return x != y ? x > y : a.index < b.index;
    };
    worst.insert(std::upper_bound(worst.begin(), worst.end(), found, worse), std::move(found));
    if (worst.size() > 5) worst.pop_back();
  }

  void rank_worst() {
    for (auto& [key, group] : groups_) {
      if (group.ratios.attained(std::get<4>(key))) continue;
      for (Found& found : group.worst) keep_worst(result_.worst, std::move(found));
    }
  }

  struct Group {
    RatioRange ratios;
    std::vector<Found> worst;
  };

  const KernelTable& table_;
  const SearchOptions& options_;
  const SearchObserver& observer_;
  CaseSource source_;
  SearchResult result_;
  std::unique_ptr<Checkpoint> checkpoint_;
  std::set<std::int64_t> done_;
  std::map<std::tuple<std::string, std::string, std::string, std::string, std::string>, Group> groups_;
  std::int64_t next_ = 0;
  double before_ = 0.0;
  Clock::time_point begin_;
};

}  // namespace

CaseRunner runner_of(const KernelTable& table) {
  return [&table](const Case& c) { return case_result(run_case(c, table), edges_of(c)); };
}

SearchResult search(const KernelTable& table, const SearchOptions& options, const SearchObserver& observer,
                    const std::function<bool()>& stop) {
  check(options);
  return Search(table, options, observer).run(stop);
}

}  // namespace samestate
