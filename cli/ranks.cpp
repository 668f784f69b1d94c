#include "cli/ranks.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string_view>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "cli/table.h"
#include "harness/processes/rank_service.h"
#include "reference/error.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

/// The verbs whose jobs are distributed over ranks.
constexpr std::array<std::string_view, 4> kShared = {"gate", "fuzz", "sweep", "mutants"};

/// The state of this process once it has joined.
struct Joined {
  std::unique_ptr<RankLink> link;
  std::unique_ptr<HandOut> hand_out;
  std::string command;
};
Joined& joined() {
  static Joined of_process;
  return of_process;
}

RankHello hello(const std::vector<std::string>& plugins) {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  const std::string identities = plugin_identities(plugins);
  return {fmt::format("samestate {}{}", SAMESTATE_VERSION, identities.empty() ? "" : " with " + identities),
          joined().command, host.data(), ""};
}

}  // namespace

void join_ranks(const std::string& verb, const std::vector<std::string>& arguments) {
  const RankPlace place = rank_place();
  if (place.ranks == 1) return;
  if (std::find(kShared.begin(), kShared.end(), verb) == kShared.end())
    throw Error(
        fmt::format("{} ranks would each run all of `samestate {}`, because only {} share their work; start "
                    "it without mpirun",
                    place.ranks, verb, fmt::join(kShared, ", ")));
  std::error_code code;
  const std::filesystem::path wire =
      std::filesystem::read_symlink("/proc/self/exe", code).parent_path() / "samestate-mpi";
  if (::access(wire.c_str(), X_OK) != 0)
    throw Error(fmt::format(
        "{} ranks, and this samestate was built without MPI ({} does not exist); install "
        "libopenmpi-dev and openmpi-bin, or libmpich-dev and mpich, then configure and build again, "
        "or start it without mpirun and with --shard (docs/do/shards.md)",
        place.ranks, wire.string()));
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0)
    throw Error(fmt::format("cannot open a socket for a rank ({}); close some files", std::strerror(errno)));
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0)
    throw Error(
        fmt::format("cannot start a process for a rank ({}); free some memory", std::strerror(errno)));
  if (child > 0) {
    ::close(ends[1]);
    const std::string socket = std::to_string(ends[0]);
    const std::string number = std::to_string(child);
    ::execl(wire.c_str(), wire.c_str(), socket.c_str(), number.c_str(), nullptr);
    fmt::print(stderr, "samestate: {}: {}\n", wire.string(), std::strerror(errno));
    ::_exit(kUsage);
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kUsage);
  // A signal must arrive only once: mpirun sends it to the process that it knows, which passes it on.
  ::setpgid(0, 0);
  ::close(ends[0]);
  joined().link = std::make_unique<RankLink>(ends[1], place.rank, place.ranks);
  joined().command = fmt::format("{}", fmt::join(arguments, " "));
}

bool serves() { return joined().link != nullptr && joined().link->rank() > 0; }

int serve(const std::vector<std::string>& plugins, const JobRunner& run, Devices* devices) {
  note_interrupts();  // rank 0 decides what an interrupt ends, so this rank only notes it
  serve_rank(*joined().link, hello(plugins), run, devices);
  return kPass;
}

int refuse(const std::string& why) {
  if (!joined().link) return kPass;
  RankHello no = hello({});
  no.refused = why;
  serve_rank(*joined().link, no, {});
  return kPass;
}

HandOut* hand_out(const std::vector<std::string>& plugins) {
  Joined& own = joined();
  if (!own.link || own.link->rank() > 0) return nullptr;
  if (!own.hand_out)
    own.hand_out = std::make_unique<HandOut>(*own.link, hello(plugins), [](const std::string& sentence) {
      fmt::print(stderr, "samestate: {}\n", sentence);
    });
  return own.hand_out.get();
}

std::string ranks_text() {
  const auto& link = joined().link;
  if (!link) return "";
  return fmt::format(", {} ranks, {:.2f} MB to rank 0", link->ranks(),
                     1e-6 * static_cast<double>(link->received_bytes));
}

}  // namespace samestate::cli
