#include "cli/isolated.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "cli/commands.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

int guarded(const std::function<int()>& body) {
  try {
    return body();
  } catch (const Error& error) {
    fmt::print(stderr, "samestate: {}\n", error.what());
    return kUsage;
  } catch (const std::exception& error) {
    fmt::print(stderr, "samestate: internal error: {}\n", error.what());
    return kCrash;
  }
}

}  // namespace

int run_isolated(const std::function<int()>& body, double timeout,
                 const std::function<int(Verdict, const std::string&)>& lost) {
  // The child says that `body` ended: a code alone could be the kernel's own exit().
  int ended[2];
  if (::pipe2(ended, O_CLOEXEC | O_NONBLOCK) != 0)
    throw Error(fmt::format("no pipe for the kernel's process ({}): close files", std::strerror(errno)));
  std::fflush(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) throw Error(fmt::format("no process for the kernel ({}): free memory", std::strerror(errno)));
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kCrash);
    const int code = guarded(body);
    std::fflush(nullptr);
    (void)!::write(ended[1], "", 1);
    ::_exit(code);
  }
  ::close(ended[1]);
  const auto begin = std::chrono::steady_clock::now();
  int status = 0;
  while (true) {
    const pid_t gone = ::waitpid(pid, &status, timeout > 0 ? WNOHANG : 0);
    if (gone == pid) break;
    if (gone < 0 && errno != EINTR)
      throw Error(fmt::format("the kernel's process is lost ({})", std::strerror(errno)));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (timeout > 0 && seconds.count() > timeout) {
      ::kill(pid, SIGKILL);
      (void)::waitpid(pid, &status, 0);
      ::close(ended[0]);
      return lost(Verdict::timeout, fmt::format("no answer after {:g} s (--timeout)", timeout));
    }
    if (gone == 0) std::this_thread::sleep_for(std::chrono::milliseconds(seconds.count() < 1 ? 1 : 20));
  }
  char byte = 0;
  const bool done = ::read(ended[0], &byte, 1) == 1;
  ::close(ended[0]);
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return lost(Verdict::crash, fmt::format("the kernel's process was killed by signal {} ({})", signal,
                                            ::strsignal(signal)));
  }
  const int code = WEXITSTATUS(status);
  if (!done) return lost(Verdict::crash, fmt::format("the kernel ended its process with code {}", code));
  return code;
}

namespace {
constexpr std::int64_t kNone = -1;
}  // namespace

UnderWay::UnderWay(std::size_t most) : most_(most) {
  void* memory = ::mmap(nullptr, most_ * sizeof(std::int64_t), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(
        fmt::format("no memory to share with the kernels' process ({}): free some", std::strerror(errno)));
  }
  numbers_ = static_cast<std::int64_t*>(memory);
  for (std::size_t i = 0; i < most_; ++i) numbers_[i] = kNone;
}

UnderWay::~UnderWay() { ::munmap(const_cast<std::int64_t*>(numbers_), most_ * sizeof(std::int64_t)); }

void UnderWay::replace(std::int64_t from, std::int64_t to) {
  for (std::size_t i = 0; i < most_; ++i) {
    if (numbers_[i] != from) continue;
    numbers_[i] = to;
    return;
  }
}

void UnderWay::begin(std::int64_t number) { replace(kNone, number); }
void UnderWay::end(std::int64_t number) { replace(number, kNone); }

std::vector<std::int64_t> UnderWay::left() const {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < most_; ++i) {
    const std::int64_t number = numbers_[i];
    if (number != kNone) out.push_back(number);
  }
  return out;
}

}  // namespace samestate::cli
