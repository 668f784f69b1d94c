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

int run_isolated(const std::function<int()>& body, const std::function<std::string(double)>& overdue,
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
    const pid_t gone = ::waitpid(pid, &status, WNOHANG);
    if (gone == pid) break;
    if (gone < 0 && errno != EINTR)
      throw Error(fmt::format("the kernel's process is lost ({})", std::strerror(errno)));
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    const std::string late = gone == 0 ? overdue(seconds.count()) : "";
    if (!late.empty()) {
      ::kill(pid, SIGKILL);
      (void)::waitpid(pid, &status, 0);
      ::close(ended[0]);
      return lost(Verdict::timeout, late);
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

std::string no_answer(double seconds, double timeout) {
  return timeout > 0 && seconds > timeout ? fmt::format("no answer after {:g} s (--timeout)", timeout) : "";
}

ChildLines::ChildLines() : file_(::memfd_create("samestate", MFD_CLOEXEC)) {
  if (file_ < 0) {
    throw Error(
        fmt::format("no memory to share with the kernels' process ({}): free some", std::strerror(errno)));
  }
}

ChildLines::~ChildLines() { ::close(file_); }

void ChildLines::add(const std::string& line) {
  // Where it fails (a kernel may close any file) the lines are shorter, and nothing else is wrong.
  const std::string text = line + "\n";
  (void)!::write(file_, text.data(), text.size());
}

std::vector<std::string> ChildLines::lines() const {
  std::string text;
  char buffer[1 << 16];
  for (ssize_t n = 0; (n = ::pread(file_, buffer, sizeof buffer, static_cast<off_t>(text.size()))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(n));
  }
  std::vector<std::string> out;
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    out.push_back(text.substr(at, end - at));
  }
  return out;
}

namespace {

constexpr std::int64_t kNone = -1;

std::int64_t now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

}  // namespace

UnderWay::UnderWay(std::size_t most) : most_(most) {
  void* memory =
      ::mmap(nullptr, most_ * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw Error(
        fmt::format("no memory to share with the kernels' process ({}): free some", std::strerror(errno)));
  }
  slots_ = static_cast<Slot*>(memory);
  for (std::size_t i = 0; i < most_; ++i) slots_[i].number = kNone;
}

UnderWay::~UnderWay() { ::munmap(const_cast<Slot*>(slots_), most_ * sizeof(Slot)); }

void UnderWay::replace(std::int64_t from, std::int64_t to) {
  for (std::size_t i = 0; i < most_; ++i) {
    if (slots_[i].number != from) continue;
    slots_[i].began = now();
    slots_[i].number = to;
    return;
  }
}

void UnderWay::begin(std::int64_t number) { replace(kNone, number); }
void UnderWay::end(std::int64_t number) { replace(number, kNone); }

std::vector<std::int64_t> UnderWay::left(double seconds) const {
  std::vector<std::int64_t> out;
  for (std::size_t i = 0; i < most_; ++i) {
    const std::int64_t number = slots_[i].number;
    if (number != kNone && static_cast<double>(now() - slots_[i].began) * 1e-9 >= seconds) {
      out.push_back(number);
    }
  }
  return out;
}

}  // namespace samestate::cli
