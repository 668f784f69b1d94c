/// samestate-mpi is the communication process of a rank. It takes the place of the process that mpirun
/// started, passes frames between the socket of its child, which runs the verb or its jobs, and the same
/// process of the other ranks by MPI, and ends with the child's exit code. All MPI calls are in this file.
/// usage: samestate-mpi SOCKET CHILD (cli/ranks.cpp)
#include <fmt/format.h>
#include <mpi.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/rank_place.h"
#include "harness/processes/rank_link.h"
#include "reference/error.h"

namespace {

using namespace samestate;
using Clock = std::chrono::steady_clock;

/// The kinds of messages.
enum Tag : int {
  kFrame = 1,
  kEnd,    ///< from rank 0: its child has ended, and the others must end too
  kLost,   ///< the sender's child is gone; the text says how it ended
  kEnded,  ///< the last message of a rank, before MPI_Finalize
  kAlive   ///< sent at intervals
};

constexpr int kWaitMilliseconds =
    1;  ///< between two looks at MPI, which has nothing to wait on, it waits this long for the child
constexpr std::chrono::seconds kAliveEvery(5);
constexpr std::chrono::seconds kSilence(60);    ///< a rank that is silent for this long is lost
constexpr std::chrono::seconds kEndWithin(10);  ///< the time that a child has to end before it is killed

volatile std::sig_atomic_t noted = 0;
extern "C" void note(int signal) { noted = signal; }

/// Handles errors between ranks that a run cannot survive: the job ends, and can be continued from its files.
[[noreturn]] void abandon(const std::string& why) {
  fmt::print(stderr,
             "samestate: {}; the files that the run wrote are complete, and --resume goes on with them\n",
             why);
  std::fflush(nullptr);
  MPI_Abort(MPI_COMM_WORLD, cli::kUsage);
  std::_Exit(cli::kUsage);
}

void check(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  MPI_Error_string(code, text, &length);
  abandon(fmt::format("{}: {}", call, std::string(text, static_cast<std::size_t>(length))));
}

class Wire {
 public:
  Wire(int socket, pid_t child, int rank, int ranks)
      : link_(std::make_unique<RankLink>(socket, rank, ranks)),
        child_(child),
        rank_(rank),
        heard_(static_cast<std::size_t>(ranks), Clock::now()),
        gone_(static_cast<std::size_t>(ranks)) {}

  /// Runs until all ranks have ended; returns the exit code of the child.
  int carry() {
    while (!ended_) {
      forward_signal();
      const bool came = receive_all();
      carry_from_child();
      finish_sends();
      say_alive();
      if (rank_ == 0) look_for_silent();
      if (came || ended_) continue;
      if (link_) {
        link_->wait(kWaitMilliseconds);
      } else {
        ::usleep(1000 * kWaitMilliseconds);
      }
    }
    // Sends to a lost rank never complete.
    while (!lost_any_ && !sends_.empty()) finish_sends();
    return exit_code();
  }

  [[nodiscard]] bool lost_any() const { return lost_any_; }

 private:
  struct Send {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  void send(int to, Tag tag, std::string text = "") {
    if (gone_[static_cast<std::size_t>(to)]) return;
    if (text.size() > (std::size_t{1} << 30))
      abandon(fmt::format("a message has {} bytes, but MPI carries at most 2^31 - 1", text.size()));
    Send& out = sends_.emplace_back(Send{std::move(text)});
    check(MPI_Isend(out.text.data(), static_cast<int>(out.text.size()), MPI_BYTE, to, tag, MPI_COMM_WORLD,
                    &out.request),
          "MPI_Isend");
  }

  void finish_sends() {
    for (auto out = sends_.begin(); out != sends_.end();) {
      int done = 0;
      check(MPI_Test(&out->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      out = done ? sends_.erase(out) : std::next(out);
    }
  }

  bool receive_all() {
    bool came = false;
    while (true) {
      int there = 0;
      MPI_Status status;
      check(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &there, &status), "MPI_Iprobe");
      if (!there) return came;
      came = true;
      int bytes = 0;
      check(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count");
      std::string text(static_cast<std::size_t>(bytes), '\0');
      check(MPI_Recv(text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE),
            "MPI_Recv");
      take(status.MPI_SOURCE, status.MPI_TAG, std::move(text));
    }
  }

  void take(int from, int tag, std::string text) {
    heard_[static_cast<std::size_t>(from)] = Clock::now();
    switch (tag) {
      case kFrame:
        if (link_) (void)link_->post({from, RankFrame::Kind::text, std::move(text)});
        return;
      case kLost:
        if (link_) (void)link_->post({from, RankFrame::Kind::lost, std::move(text)});
        return;
      case kEnd:
        link_.reset();
        end_child();
        send(0, kEnded);
        ended_ = true;
        return;
      case kEnded:
        gone_[static_cast<std::size_t>(from)] = true;
        look_whether_all_ended();
        return;
      default:
        return;
    }
  }

  void carry_from_child() {
    if (!link_) return;
    std::vector<RankFrame> frames;
    const bool open = link_->receive(frames);
    for (RankFrame& frame : frames) send(frame.rank, kFrame, std::move(frame.text));
    if (open && link_->flush()) return;
    link_.reset();
    end_child();
    if (rank_ > 0) {
      send(0, kLost, how_it_ended());
      return;
    }
    for (std::size_t other = 1; other < gone_.size(); ++other) send(static_cast<int>(other), kEnd);
    ending_ = true;
    look_whether_all_ended();
  }

  void look_whether_all_ended() {
    ended_ =
        ended_ || (ending_ && std::all_of(gone_.begin() + 1, gone_.end(), [](bool gone) { return gone; }));
  }

  void say_alive() {
    if (Clock::now() - said_ < kAliveEvery) return;
    said_ = Clock::now();
    if (rank_ > 0) {
      if (said_ - heard_[0] > kSilence) abandon(fmt::format("rank {}: nothing comes from rank 0", rank_));
      return send(0, kAlive);
    }
    for (std::size_t other = 1; other < gone_.size(); ++other) send(static_cast<int>(other), kAlive);
  }

  /// A rank whose communication process is lost too does not report anything.
  void look_for_silent() {
    for (std::size_t other = 1; other < gone_.size(); ++other) {
      const auto since = Clock::now() - heard_[other];
      if (gone_[other] || since < kSilence) continue;
      gone_[other] = lost_any_ = true;
      if (link_)
        (void)link_->post({static_cast<int>(other), RankFrame::Kind::lost,
                           fmt::format("nothing came from it for {} s", kSilence.count())});
      look_whether_all_ended();
    }
  }

  void forward_signal() {
    if (noted == 0) return;
    const int signal = noted;
    noted = 0;
    if (child_ > 0) ::kill(child_, signal);
  }

  /// Waits for the child, which ends when its socket does.
  void end_child() {
    if (child_ <= 0) return;
    const auto begin = Clock::now();
    // Rank 0 may still write reports, for as long as that takes; other ranks have nothing left to do.
    while (::waitpid(child_, &status_, WNOHANG) == 0) {
      forward_signal();
      if (rank_ > 0 && Clock::now() - begin > kEndWithin) ::kill(child_, SIGKILL);
      ::usleep(1000);
    }
    child_ = -1;
  }

  [[nodiscard]] std::string how_it_ended() const {
    if (WIFSIGNALED(status_))
      return fmt::format("its process was ended by signal {} ({})", WTERMSIG(status_),
                         ::strsignal(WTERMSIG(status_)));
    return fmt::format("its process ended with code {}", WEXITSTATUS(status_));
  }

  [[nodiscard]] int exit_code() const {
    if (rank_ > 0) return cli::kPass;  // losing a rank is not a verdict
    return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  }

  std::unique_ptr<RankLink> link_;  ///< connection to the child; null after the child has ended
  pid_t child_;
  int rank_;
  int status_ = 0;
  bool ending_ = false, ended_ = false, lost_any_ = false;
  std::list<Send> sends_;
  std::vector<Clock::time_point> heard_;  ///< when each rank was last heard from
  std::vector<bool> gone_;                ///< per rank: nothing more will arrive from it
  Clock::time_point said_ = Clock::now();
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "samestate-mpi is started by samestate under mpirun: mpirun -n 4 samestate gate\n");
    return cli::kUsage;
  }
  struct sigaction action {};
  action.sa_handler = note;
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  MPI_Init(nullptr, nullptr);
  int rank = 0, ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  const cli::RankPlace told = cli::rank_place();
  if (told.rank != rank || told.ranks != ranks)
    abandon(fmt::format(
        "mpirun started rank {} of {}, but the MPI of this build says {} of {}; use the mpirun of "
        "the MPI that samestate was built with",
        told.rank, told.ranks, rank, ranks));
  Wire wire(std::atoi(argv[1]), static_cast<pid_t>(std::atoi(argv[2])), rank, ranks);
  const int code = wire.carry();
  // MPI_Finalize waits for all ranks, and a lost one never arrives.
  if (wire.lost_any()) std::_Exit(code);
  MPI_Finalize();
  return code;
}
