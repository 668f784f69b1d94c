#include "harness/processes/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "fixtures/quote.h"
#include "harness/processes/line_process.h"
#include "harness/processes/orphans.h"
#include "harness/run/call_variant.h"
#include "harness/run/guarded_memory.h"
#include "reference/error.h"

namespace samestate {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr bool kLimitsMemory = false;  // the sanitizer's shadow memory counts as data
#else
constexpr bool kLimitsMemory = true;
#endif

/// Precedes every message in both directions.
struct Header {
  std::uint32_t id = 0;
  WorkerMessage::Kind kind = WorkerMessage::Kind::answer;
  std::uint32_t text = 0, broken = 0, misses = 0;  ///< sizes in bytes of what follows
};
/// The bytes that a worker shares with its parent: its note, and whether it ended by itself.
constexpr std::size_t kSharedBytes = kFaultNote + 1;
/// An answer of more bytes cannot be one: something other than the worker wrote into the socket.
constexpr std::uint32_t kMostBytes = 1U << 30;

std::string log_path;  ///< WorkerProcess::log_to

/// Runs in a child after its fork: closes everything that its parent had open except stderr, so that no
/// kernel reaches a run file or another worker through a guessed descriptor number. Stdin becomes empty and
/// stdout becomes stderr. Returns the number that `socket` then has. If `log` is not -1, stdout and stderr go
/// there, and own_stderr is the parent's stderr.
int own_alone(int socket, int log) {
  constexpr int kFirst = STDERR_FILENO + 1;
  int last = kFirst;
  if (log >= 0) {
    // Moves it away from the numbers that those get.
    const int own = ::fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, kFirst + 2);
    const int away = ::fcntl(socket, F_DUPFD_CLOEXEC, kFirst + 2);
    if (own < 0 || away < 0 || ::dup2(log, STDERR_FILENO) < 0) ::_exit(1);
    socket = away;
    last = kFirst + 1;
    if (::dup3(own, last, O_CLOEXEC) < 0) ::_exit(1);
  }
  if (socket != kFirst) {
    if (::dup3(socket, kFirst, O_CLOEXEC) < 0) ::_exit(1);
  }
  if (::close_range(last + 1, ~0U, 0) != 0) {  // for Linux kernels before 5.9
    for (int other = last + 1; other < static_cast<int>(::sysconf(_SC_OPEN_MAX)); ++other) ::close(other);
  }
  if (const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC); nothing > STDIN_FILENO) {
    ::dup2(nothing, STDIN_FILENO);
    ::close(nothing);
  }
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  if (log >= 0) {
    std::FILE* const own_output = ::fdopen(last, "w");
    if (own_output == nullptr) ::_exit(1);
    std::setvbuf(own_output, nullptr, _IONBF, 0);
    set_own_stderr(own_output);
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // otherwise the last words before a crash are lost
  }
  return kFirst;
}

bool send_all(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool send_message(int socket, Header header, const Answer& answer) {
  header.text = static_cast<std::uint32_t>(answer.text.size());
  header.broken = static_cast<std::uint32_t>(answer.broken.size());
  header.misses = static_cast<std::uint32_t>(answer.misses.size());
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  return send_all(socket, bytes + answer.text + answer.broken + answer.misses);
}

/// Appends what has arrived; returns false at the end of the stream.
bool receive_some(int socket, std::string& into) {
  char buffer[1 << 14];
  const ssize_t n = ::recv(socket, buffer, sizeof buffer, 0);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  into.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

/// Removes and returns the message that `received` begins with; nullopt if it is not complete yet. Throws
/// Error if it is not a message.
std::optional<WorkerMessage> take_message(std::string& received) {
  Header header;
  if (received.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, received.data(), sizeof header);
  if (std::max({header.text, header.broken, header.misses}) > kMostBytes)
    throw Error("a damaged message of a worker");
  const std::size_t size = sizeof header + header.text + header.broken + header.misses;
  if (received.size() < size) return std::nullopt;
  WorkerMessage message{header.id, header.kind, {}};
  message.answer.text = received.substr(sizeof header, header.text);
  message.answer.broken = received.substr(sizeof header + header.text, header.broken);
  message.answer.misses = received.substr(sizeof header + header.text + header.broken, header.misses);
  received.erase(0, size);
  return message;
}

/// Sets a limit of the calling process. A lower limit that the machine already sets is kept.
void limit(int resource, std::uint64_t most) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) != 0) return;
  now.rlim_cur = std::min<rlim_t>(now.rlim_cur, most);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

/// Matrices are created and freed by the thousand every second: the allocator keeps freed memory, since
/// otherwise the pages of each one are cleared and mapped again.
void keep_freed_memory() {
  constexpr int kLargestKept = 32 << 20;  // the largest value that glibc accepts
  constexpr int kKept = 512 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLargestKept);
  ::mallopt(M_TRIM_THRESHOLD, kKept);
}

/// Handles a signal that the parent decides about. It is not SIG_IGN, since a process started by a kernel
/// would inherit that.
extern "C" void outlive(int) {}

/// The life of a worker: it receives jobs and sends answers until the parent is gone or wants no more.
class Service {
 public:
  /// `left` is set when the worker ends by itself; it may be null.
  Service(int socket, const JobRunner& run, std::int64_t subject, char* left)
      : socket_(socket), run_(run), subject_(subject), left_(left) {}

  [[noreturn]] void work(int threads) {
    // The threads are detached: _exit ends them wherever they are.
    for (int i = 1; i < threads; ++i) std::thread([this] { serve(); }).detach();
    serve();
  }

 private:
  [[noreturn]] void serve() {
    while (true) {
      const WorkerMessage job = next();
      Header header{job.id, WorkerMessage::Kind::answer};
      Answer answer;
      ExcusedTime::tell([&](bool begins, double most) {
        const std::lock_guard lock(sending_);
        const auto kind = begins ? WorkerMessage::Kind::pauses : WorkerMessage::Kind::goes_on;
        if (!send_message(socket_, {job.id, kind}, {most > 0.0 ? fmt::format("{}", most) : "", {}})) leave();
      });
      try {
        answer = run_(subject_, job.answer.text);
      } catch (const Error& error) {
        header.kind = WorkerMessage::Kind::error;
        answer.text = error.what();
      } catch (const std::exception& error) {
        header.kind = WorkerMessage::Kind::internal_error;
        answer.text = error.what();
      } catch (...) {
        header.kind = WorkerMessage::Kind::internal_error;
        answer.text = "something was thrown that is not a std::exception";
      }
      ExcusedTime::tell(nullptr);
      const std::lock_guard lock(sending_);
      std::fflush(nullptr);
      if (!send_message(socket_, header, answer)) leave();
    }
  }

  [[noreturn]] void leave() {
    if (left_ != nullptr) *left_ = 1;
    LineProcess::end_all();
    ::_exit(0);
  }

  WorkerMessage next() {
    const std::lock_guard lock(reading_);
    while (true) {
      if (std::optional<WorkerMessage> job = take_message(received_)) return std::move(*job);
      if (!receive_some(socket_, received_)) leave();
    }
  }

  int socket_;
  const JobRunner& run_;
  std::int64_t subject_;
  char* left_;
  std::mutex reading_, sending_;
  std::string received_;
};

}  // namespace

WorkerProcess::WorkerProcess(const JobRunner& run, std::int64_t subject, int threads, std::uint64_t memory,
                             const std::optional<std::string>& gpus) {
  if (!log_path.empty()) printed_ = Printed(log_path);
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(fmt::format("no socket for a worker ({}): use fewer --threads", std::strerror(errno)));
  }
  // Without the note a fault is still named, but what came before it is not.
  void* note = ::mmap(nullptr, kSharedBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (note != MAP_FAILED) note_ = static_cast<char*>(note);
  adopt_orphans();
  std::fflush(nullptr);  // otherwise the child prints the parent's buffered text again
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    const int why = errno;
    ::close(pair[0]), ::close(pair[1]);
    if (note_ != nullptr) ::munmap(note_, kSharedBytes);
    throw Error(fmt::format("no process for a worker ({}): use fewer --threads", std::strerror(why)));
  }
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    // On an interrupt at the terminal or a signal to the group, the parent decides what ends.
    std::signal(SIGINT, SIG_IGN);
    std::signal(SIGTERM, outlive);
    std::signal(SIGHUP, outlive);
    const int socket = own_alone(pair[1], printed_.writer());
    // The driver reads it when it starts, which has not happened here yet.
    if (gpus) ::setenv("CUDA_VISIBLE_DEVICES", gpus->c_str(), 1);
    keep_freed_memory();
    note_faults(note_);
    limit(RLIMIT_CORE, 0);
    if (kLimitsMemory && memory > 0) limit(RLIMIT_DATA, memory);
    Service(socket, run, subject, note_ == nullptr ? nullptr : note_ + kFaultNote).work(threads);
  }
  ::close(pair[1]);
  printed_.close_writer();
  keep_child(pid);
  pid_ = pid;
  socket_ = pair[0];
}

WorkerProcess::~WorkerProcess() {
  (void)end(true);
  if (note_ != nullptr) ::munmap(note_, kSharedBytes);
}

bool WorkerProcess::send(std::uint32_t id, std::string_view text) {
  return send_message(socket_, {id, WorkerMessage::Kind::answer}, {std::string(text), {}});
}

bool WorkerProcess::receive(std::vector<WorkerMessage>& messages) {
  const bool open = receive_some(socket_, received_);
  try {
    while (std::optional<WorkerMessage> message = take_message(received_)) messages.push_back(*message);
  } catch (const Error&) {
    damaged_ = true;
    return false;
  }
  return open;
}

int WorkerProcess::stopped() const {
  siginfo_t found{};
  const bool some = pid_ > 0 &&
                    ::waitid(P_PID, static_cast<id_t>(pid_), &found, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
                    found.si_pid == pid_;
  return some ? found.si_status : 0;
}

WorkerEnd WorkerProcess::end(bool kill) {
  if (pid_ < 0) return {};
  int status = 0;
  bool gone = false;
  if (!kill) {
    // An idle worker reads the end of its jobs and exits: a tool that watches it, such as a sanitizer, sees
    // no kill.
    ::shutdown(socket_, SHUT_WR);
    const auto begin = std::chrono::steady_clock::now();
    while (!gone && std::chrono::steady_clock::now() - begin < std::chrono::seconds(2)) {
      gone = ::waitpid(pid_, &status, WNOHANG) == pid_;
      printed_.take();
      if (!gone) std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  if (!gone) {
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
  }
  printed_.take();
  printed_.close();
  const std::string last = printed_.last_line();
  const std::string words = last.empty() ? "" : fmt::format("; it last printed {}", quote(last, 400));
  ::close(socket_);
  forget_child(pid_);
  end_orphans();
  pid_ = socket_ = -1;
  // If its side of the socket was closed, it had not yet been told that there was nothing more to do.
  const bool left = note_ != nullptr && note_[kFaultNote] != 0;
  if (!kill && (!gone || left))
    return {"exit",
            fmt::format(
                "the kernel {} the channel of its process to the judge, while the process went on; use no "
                "descriptor that the library did not open",
                damaged_ ? "wrote into" : "closed")};
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    std::string reason =
        fmt::format("the kernel's process was killed by signal {} ({})", signal, ::strsignal(signal));
    if (note_ != nullptr && note_[0] != '\0')
      reason += fmt::format("; before that the kernel {}", std::string(note_, ::strnlen(note_, kFaultNote)));
    return {"signal", reason + words, signal == SIGKILL};
  }
  return {"exit", fmt::format("the kernel ended its process with code {}{}", WEXITSTATUS(status), words)};
}

void WorkerProcess::log_to(std::string path) { log_path = std::move(path); }

}  // namespace samestate
