#include "harness/processes/orphans.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <vector>

namespace samestate {
namespace {

namespace fs = std::filesystem;

/// Waiting ends after this many rounds, because a process may fork faster than it can be killed.
constexpr int kMostRounds = 1000;

std::mutex mutex;
pid_t adopter = -1;  ///< the process that called adopt_orphans(); its forked children have a copy of the
                     ///< number, but are not that process
std::set<pid_t> own;

pid_t parent_of(const fs::path& process) {
  std::ifstream file(process / "stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::size_t name =
      stat.rfind(')');  // the name in parentheses may hold any characters; after it comes " STATE PARENT"
  return name == stat.npos || name + 4 > stat.size() ? -1 : std::atoi(stat.c_str() + name + 4);
}

std::vector<pid_t> children() {
  std::vector<pid_t> out;
  std::error_code none;
  bool listed = false;
  for (const fs::directory_entry& task : fs::directory_iterator("/proc/self/task", none)) {
    std::ifstream file(task.path() / "children");
    listed |= file.is_open();
    std::copy(std::istream_iterator<pid_t>(file), {}, std::back_inserter(out));
  }
  if (listed) return out;
  // This is for a Linux kernel that is built without these lists.
  for (const fs::directory_entry& process : fs::directory_iterator("/proc", none)) {
    const pid_t number = std::atoi(process.path().filename().c_str());
    if (number > 0 && parent_of(process.path()) == ::getpid()) out.push_back(number);
  }
  return out;
}

}  // namespace

void adopt_orphans() {
  const std::scoped_lock lock(mutex);
  if (adopter == ::getpid() || ::prctl(PR_SET_CHILD_SUBREAPER, 1) != 0) return;
  adopter = ::getpid();
  const std::vector<pid_t> before = children();
  own = {before.begin(), before.end()};
}

void keep_child(pid_t child) {
  const std::scoped_lock lock(mutex);
  own.insert(child);
}

void forget_child(pid_t child) {
  const std::scoped_lock lock(mutex);
  own.erase(child);
}

void end_orphans() {
  const std::scoped_lock lock(mutex);
  if (adopter != ::getpid()) return;
  for (int round = 0; round < kMostRounds; ++round) {
    std::vector<pid_t> orphans = children();
    std::erase_if(orphans, [](pid_t child) { return own.contains(child); });
    if (orphans.empty()) return;
    for (const pid_t orphan : orphans) ::kill(orphan, SIGKILL);
    for (const pid_t orphan : orphans) {
      while (::waitpid(orphan, nullptr, 0) < 0 && errno == EINTR) {
      }
    }
  }
}

}  // namespace samestate
