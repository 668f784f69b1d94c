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

/// What a run says of itself for other ranks.
struct HandOutOptions {
  double work = PieceSizes::kUnknown;  ///< sum of Job::work of all jobs
  /// Once true no job is begun: what a rank was given and has not begun is left, without `finished`; but for jobs in a
  /// fresh process, which repeat one that is finished.
  std::function<bool()> ending = {};
  /// Before a job that came back is given again (its rank was lost, or lost a process); false: it is not, and has no
  /// `finished` of the run.
  std::function<bool(const Job&)> again = {};
};

/// Rank 0 of several: hands the jobs of a run out to the others in pieces (serve_rank takes them), and runs jobs itself
/// too where the ranks are few. The results are those of a pool alone: which jobs there are, `next` decides here, and
/// what becomes of each a pool of isolated processes, there or here. The jobs of a rank that is lost are handed out
/// again; one that was under way on two lost ranks is what ended them: it died.
class HandOut : private Elsewhere {
 public:
  /// `own`: what rank 0 would say; a rank that says another build or command is refused. `say`: called with a sentence
  /// about a rank that is lost.
  HandOut(RankLink& link, RankHello own, std::function<void(const std::string&)> say = {});

  /// As pool.run, with its processes and those of the ranks, which have the pool's options. Throws Error, that names the
  /// rank, also where one has another command or build, cannot load a kernel, or where a runner did there.
  void run(Pool& pool, const NextJob& next, const JobObserver& observer, const HandOutOptions& options);

  /// Rank 0 of more runs none itself: what it writes and counts takes it whole.
  static constexpr int kMostJudging = 16;
  /// A piece is one message, and what is open of it lies in the memory of rank 0.
  static constexpr std::size_t kMostJobs = 1024;
  /// Where nobody knows yet what a job takes: so many for each that runs at a time.
  static constexpr std::size_t kFirstJobs = 2;

 private:
  struct Open {
    Job job;
    bool announced = false;  ///< `started` came for it
    int lost = 0;            ///< ranks that were lost while it was under way
  };
  struct Rank {
    enum class State {
      coming,   ///< has not said yet that it is there
      waiting,  ///< for the beginning of a run
      called,   ///< told of it, and has not answered
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
  std::vector<Rank> ranks_;  ///< by number; that of rank 0 is not used
  std::deque<Open> back_;    ///< to be given again
  std::map<std::int64_t, Open> here_;
  std::uint64_t run_ = 0;
  std::int64_t serial_ = 0;
  std::optional<Current> now_;
};

/// pool.run, on the ranks of `ranks` too where it is one.
void run_on(HandOut* ranks, Pool& pool, const NextJob& next, const JobObserver& observer,
            const HandOutOptions& options);

}  // namespace samestate
