#pragma once

#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness/processes/orphans.h"
#include "harness/processes/rank_link.h"
#include "harness/processes/rank_service.h"

namespace samestate::testing {

/// Ranks without MPI: processes that serve rank 0, which is the test, and one that carries frames between them as
/// samestate-mpi does: the end of a rank's socket is its loss, the end of rank 0's the end of all.
class RankHub {
 public:
  using Life = std::function<void(RankLink&)>;

  /// `live`: what a rank other than 0 does.
  RankHub(int ranks, const Life& live) {
    std::vector<std::pair<int, int>> ends;  // the rank's, the hub's
    for (int i = 0; i < ranks; ++i) {
      int pair[2] = {-1, -1};
      (void)::socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
      ends.emplace_back(pair[0], pair[1]);
    }
    pids_.push_back(::getpid());
    for (int rank = 1; rank < ranks; ++rank) {
      pids_.push_back(child([&] {
        for (int other = 0; other < ranks; ++other) {
          if (other != rank) ::close(ends[static_cast<std::size_t>(other)].first);
          ::close(ends[static_cast<std::size_t>(other)].second);
        }
        RankLink link(ends[static_cast<std::size_t>(rank)].first, rank, ranks);
        live(link);
      }));
    }
    hub_ = child([&] {
      for (const auto& [own, hubs] : ends) ::close(own);
      carry(ends, ranks);
    });
    for (const auto& [own, hubs] : ends) {
      ::close(hubs);
      if (own != ends.front().first) ::close(own);
    }
    link_ = std::make_unique<RankLink>(ends.front().first, 0, ranks);
  }
  ~RankHub() {
    link_.reset();
    pids_.push_back(hub_);
    for (std::size_t i = 1; i < pids_.size(); ++i) ::waitpid(pids_[i], nullptr, 0);
  }
  RankHub(const RankHub&) = delete;
  RankHub& operator=(const RankHub&) = delete;

  [[nodiscard]] RankLink& link() { return *link_; }
  [[nodiscard]] pid_t pid(int rank) const { return pids_[static_cast<std::size_t>(rank)]; }
  [[nodiscard]] pid_t hub() const { return hub_; }

 private:
  template <class Body>
  static pid_t child(Body&& body) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      keep_child(pid);  // what a pool of this process ends is others'
      return pid;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    body();
    ::_exit(0);
  }

  static void carry(const std::vector<std::pair<int, int>>& ends, int ranks) {
    std::vector<std::unique_ptr<RankLink>> links;
    for (int rank = 0; rank < ranks; ++rank)
      links.push_back(std::make_unique<RankLink>(ends[static_cast<std::size_t>(rank)].second, rank, ranks));
    while (true) {
      for (int from = 0; from < ranks; ++from) {
        std::unique_ptr<RankLink>& link = links[static_cast<std::size_t>(from)];
        if (!link) continue;
        std::vector<RankFrame> frames;
        const bool open = link->receive(frames) && link->flush();
        for (RankFrame& frame : frames) {
          const auto& to = links[static_cast<std::size_t>(frame.rank)];
          if (to) (void)to->post({from, frame.kind, std::move(frame.text)});
        }
        if (open) continue;
        if (from == 0) return;
        link.reset();
        (void)links[0]->post({from, RankFrame::Kind::lost, "its process is gone"});
      }
      links[0]->wait(1);
    }
  }

  std::vector<pid_t> pids_;  ///< by rank
  pid_t hub_ = -1;
  std::unique_ptr<RankLink> link_;
};

}  // namespace samestate::testing
