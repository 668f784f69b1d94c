#include "harness/processes/line_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "harness/processes/orphans.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kLongestLine = std::size_t{1} << 22;
constexpr const char* kEnded = "it ended, or closed its output";

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// Returns the milliseconds until `end`, for poll.
int left(Clock::time_point end) {
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(milliseconds, 0, 1'000'000'000));
}

std::string ended_with(int status) {
  if (WIFSIGNALED(status))
    return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  const int code = WEXITSTATUS(status);
  // The shell reports the end of a child of its own in this way.
  return fmt::format("exit code {}{}", code,
                     code > 128 ? fmt::format(" (signal {}: {})", code - 128, ::strsignal(code - 128)) : "");
}

/// Makes the command replace the shell if it is a simple command: then nothing stands between the program and
/// whoever kills or waits for it.
std::string replacing_the_shell(const std::string& command) {
  const std::string first = command.substr(0, command.find(' '));
  const bool one = command.find_first_of(";&|<>()`\n") == std::string::npos && first != "exec" &&
                   first.find('=') == std::string::npos;
  return one ? "exec " + command : command;
}

/// {the process that started it, its process} of those that run. A forked child has a copy of the list, in
/// which nothing is its own.
std::mutex started_mutex;
std::set<std::pair<pid_t, pid_t>> started;

}  // namespace

std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

LineProcess LineProcess::start(const std::string& command, std::string_view option, const std::string& log) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
    throw Error(fmt::format("{}: no socket ({}); close files", option, std::strerror(errno)));
  LineProcess out;
  out.socket_ = ends[0];
  if (!log.empty()) out.printed_ = Printed(log);
  const std::string line = replacing_the_shell(command);
  const pid_t parent = ::getpid();
  // A child of vfork may not do this; between fork and exec only calls that are safe there are made.
  out.child_ = ::fork();
  if (out.child_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);
    ::setpgid(0, 0);  // what it starts ends with it
    ::dup2(ends[1], STDIN_FILENO);
    ::dup2(ends[1], STDOUT_FILENO);
    if (out.printed_.writer() >= 0) ::dup2(out.printed_.writer(), STDERR_FILENO);
    // A worker ignores what the terminal sends to the group; its children are in a group of their own.
    std::signal(SIGINT, SIG_DFL);
    std::signal(SIGPIPE, SIG_DFL);
    ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
    ::_exit(127);
  }
  const int why = errno;
  ::close(ends[1]);
  out.printed_.close_writer();
  if (out.child_ < 0)
    throw Error(fmt::format("{}: no process ({}); free memory", option, std::strerror(why)));
  ::setpgid(out.child_, out.child_);
  keep_child(out.child_);
  const std::scoped_lock lock(started_mutex);
  started.emplace(parent, out.child_);
  return out;
}

LineProcess LineProcess::connect(const std::string& path, std::string_view option) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    throw Error(fmt::format("{}: the path of a socket has 1 to {} characters, but '{}' has {}", option,
                            sizeof address.sun_path - 1, path, path.size()));
  std::copy(path.begin(), path.end(), address.sun_path);
  LineProcess out;
  out.socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (out.socket_ < 0 ||
      ::connect(out.socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw Error(fmt::format("{}: nobody listens on {} ({})", option, path, std::strerror(errno)));
  return out;
}

LineProcess::~LineProcess() { stop(); }

LineProcess::LineProcess(LineProcess&& other) noexcept
    : child_(std::exchange(other.child_, -1)),
      socket_(std::exchange(other.socket_, -1)),
      printed_(std::move(other.printed_)),
      received_(std::move(other.received_)) {}

LineProcess& LineProcess::operator=(LineProcess&& other) noexcept {
  if (this == &other) return *this;
  stop();
  child_ = std::exchange(other.child_, -1);
  socket_ = std::exchange(other.socket_, -1);
  printed_ = std::move(other.printed_);
  received_ = std::move(other.received_);
  return *this;
}

std::string LineProcess::stop(bool at_once) {
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  received_.clear();
  if (child_ <= 0) return {};
  {
    const std::scoped_lock lock(started_mutex);
    started.erase({::getpid(), child_});
  }
  int status = 0;
  bool gone = false;
  for (int i = 0; !at_once && !gone && i < 100; ++i) {
    gone = ::waitpid(child_, &status, WNOHANG) != 0;
    printed_.take();
    if (!gone) ::poll(nullptr, 0, 5);
  }
  ::kill(-child_, SIGKILL);  // end what it left running
  if (!gone) {
    ::kill(child_, SIGKILL);
    while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  forget_child(child_);
  end_orphans();
  child_ = -1;
  printed_.take();
  printed_.close();
  // The signal that this process sent says nothing about how the child would have ended.
  if (!gone && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return {};
  return ended_with(status);
}

void LineProcess::end_all() noexcept {
  // If the lock is taken, its holder is starting a process, and this process has no children in the list yet.
  const std::unique_lock lock(started_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return;
  for (const auto& [who, child] : started) {
    if (who == ::getpid()) ::kill(-child, SIGKILL);
  }
}

LineProcess::Said LineProcess::send(std::string line, double seconds) {
  line += '\n';
  const auto end = after(seconds);
  std::size_t sent = 0;
  while (sent < line.size()) {
    if (wait(POLLOUT, left(end)) == 0)
      return {Said::Kind::late, {}, fmt::format("it read nothing for {:g} s", seconds)};
    const ssize_t count =
        ::send(socket_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno != EAGAIN && errno != EINTR) return {Said::Kind::ended, {}, kEnded};
    if (count > 0) sent += static_cast<std::size_t>(count);
  }
  return {};
}

LineProcess::Said LineProcess::receive(double seconds, const std::function<bool()>& stop) {
  constexpr int kTick = 200;  // ms; a signal between the check and the wait is seen at the next tick
  const auto end = after(seconds);
  while (true) {
    if (const std::size_t newline = received_.find('\n'); newline != std::string::npos) {
      Said said{Said::Kind::line, received_.substr(0, newline), {}};
      received_.erase(0, newline + 1);
      return said;
    }
    if (received_.size() > kLongestLine)
      return {Said::Kind::long_line, {}, fmt::format("its line is longer than {} characters", kLongestLine)};
    if (stop && stop()) return {Said::Kind::stopped, {}, "interrupted"};
    const int most = left(end);
    const int ready = wait(POLLIN, stop ? std::min(most, kTick) : most);
    if (ready == 0 && most > kTick && stop) continue;
    if (ready == 0) return {Said::Kind::late, {}, fmt::format("no answer after {:g} s", seconds)};
    std::array<char, 65536> part;
    const ssize_t count = ::recv(socket_, part.data(), part.size(), MSG_DONTWAIT);
    if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR))
      return {Said::Kind::ended, {}, kEnded};
    if (count > 0) received_.append(part.data(), static_cast<std::size_t>(count));
  }
}

int LineProcess::wait(short events, int milliseconds) {
  const auto end = Clock::now() + std::chrono::milliseconds(milliseconds);
  while (true) {
    std::array<pollfd, 2> entries{{{socket_, events, 0}, {printed_.reader(), POLLIN, 0}}};
    const int most = left(end);
    const int ready = ::poll(entries.data(), printed_.reader() < 0 ? 1 : 2, most);
    if (ready <= 0) return ready;
    if (entries[1].revents != 0) printed_.take();
    if (entries[0].revents != 0) return 1;
  }
}

bool LineProcess::has_more() {
  if (!received_.empty()) return true;
  pollfd entry{socket_, POLLIN, 0};
  char byte = 0;
  return ::poll(&entry, 1, 0) > 0 && ::recv(socket_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

}  // namespace samestate
