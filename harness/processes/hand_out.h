#pragma once

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "harness/processes/piece_sizes.h"
#include "harness/processes/pool.h"
#include "harness/processes/rank_link.h"
#include "harness/processes/rank_messages.h"

namespace samestate {

/// The settings that the run which hands out jobs gives to this class.
struct HandOutOptions {
  double work = PieceSizes::kUnknown;  ///< sum of Job::work over all jobs
  /// Once it returns true no job is started: jobs that a rank was given and has not started are dropped
  /// without `finished`, except for jobs in a fresh process, which repeat one that is finished.
  std::function<bool()> ending = {};
  /// Asked before a job that came back is given out again (its rank was lost, or lost a process); false drops
  /// it without `finished`.
  std::function<bool(const Job&)> again = {};
};

/// Used on rank 0 of several: hands the jobs of a run out to the other ranks in pieces (serve_rank takes
/// them), and also runs jobs itself if there are few ranks. The results are those of a single pool: `next`
/// decides here which jobs there are, and each runs in a pool of isolated processes, there or here. The jobs
/// of a lost rank are handed out again; a job that was running on two lost ranks is held responsible and
/// counts as died.
class HandOut : private Elsewhere {
 public:
  /// `own` is the hello of rank 0; a rank with another build or command is refused. `say` is called with a
  /// sentence about each rank that is lost.
  HandOut(RankLink& link, RankHello own, std::function<void(const std::string&)> say = {});

  /// As pool.run, with its processes and those of the ranks, which use the pool's options. Throws Error that
  /// names the rank if one has another command or build, cannot load a kernel, or if a runner there threw.
  void run(Pool& pool, const NextJob& next, const JobObserver& observer, const HandOutOptions& options);

  /// With more ranks than this, rank 0 runs no jobs itself: receiving and writing results takes all of its
  /// time.
  static constexpr int kMostJudging = 16;
  /// A piece is one message, and its open jobs are kept in the memory of rank 0.
  static constexpr std::size_t kMostJobs = 1024;
  /// The number of jobs per concurrent slot while it is not yet known how long a job takes.
  static constexpr std::size_t kFirstJobs = 2;

 private:
  struct Open {
    Job job;
    bool announced = false;  ///< `started` was called for it
    int lost = 0;            ///< the number of ranks that were lost while it was running
  };
  struct Rank {
    enum class State {
      coming,   ///< has not reported yet
      waiting,  ///< waits for a run to begin
      called,   ///< was told of a run and has not answered yet
      serving,
      lost
    } state = State::coming;
    bool wants = false;
    std::string where = {};
    std::map<std::int64_t, Open> open = {};
  };
  struct Current {
    const NextJob* next;
    const JobObserver* observer;
    const HandOutOptions* options;
    const WorkerOptions* workers;
    PieceSizes sizes;
    bool recalled = false;
  };

  [[nodiscard]] int descriptor() const override { return link_open_ ? link_.descriptor() : -1; }
  [[nodiscard]] bool turn() override;
  [[nodiscard]] bool judges() const { return link_.ranks() <= kMostJudging || living() == 0; }
  [[nodiscard]] int living() const;
  std::optional<Job> next_here(std::int64_t served);
  std::optional<Open> take(std::int64_t served);
  void greet(int number, const RankHello& hello);
  void call(int number);
  void settle(int number, RankReport report);
  void announce(Open& open);
  void lose(int number, const std::string& why);
  void feed();
  void recall();
  void send(int number, const RankMessage& message);

  RankLink& link_;
  RankHello own_;
  std::function<void(const std::string&)> say_;
  bool link_open_ = true;
  std::vector<Rank> ranks_;  ///< by rank number; that of rank 0 is not used
  std::deque<Open> back_;    ///< jobs to be handed out again
  std::map<std::int64_t, Open> here_;
  std::uint64_t run_ = 0;
  std::int64_t serial_ = 0;
  std::optional<Current> now_;
};

/// Calls pool.run, and uses the other ranks if `ranks` is not null.
void run_on(HandOut* ranks, Pool& pool, const NextJob& next, const JobObserver& observer,
            const HandOutOptions& options);

}  // namespace samestate
