#include "harness/processes/workers.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <utility>

#include "reference/error.h"

namespace samestate {
namespace {

constexpr int kTickMilliseconds = 50;  // a worker that died without closing its socket, or ran out of time
constexpr std::string_view kBadCase = "!";
#ifdef __SANITIZE_ADDRESS__
constexpr bool kLimitsMemory = false;  // the sanitizer's shadow of the memory counts as data
#else
constexpr bool kLimitsMemory = true;
#endif
constexpr std::string_view kLast = "$";  // the worker ends with this answer

bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

/// Appends what is there; false at the end of the stream.
bool receive(int socket, std::string& into) {
  char buffer[4096];
  const ssize_t n = ::recv(socket, buffer, sizeof buffer, 0);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  into.append(buffer, static_cast<std::size_t>(n));
  return n > 0;
}

/// The line that ends in `received`, removed from it.
std::optional<std::string> take_line(std::string& received) {
  const std::size_t end = received.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = received.substr(0, end);
  received.erase(0, end + 1);
  return line;
}

std::string one_line(std::string text) {
  for (char& c : text) {
    if (c == '\n' || c == '\r') c = ' ';
  }
  return text;
}

/// Of the calling process. A limit that the machine already has below it stays.
void limit(int resource, std::uint64_t most) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &now) != 0) return;
  now.rlim_cur = std::min<rlim_t>(now.rlim_cur, most);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &now);
}

/// The life of a worker: a case line in, a finding out.
[[noreturn]] void serve(int socket, const CaseRunner& run) {
  std::string received;
  while (true) {
    while (received.find('\n') == std::string::npos) {
      if (!receive(socket, received)) ::_exit(0);  // the parent is gone
    }
    std::string answer;
    bool last = false;
    try {
      const CaseResult finding = run(parse_case(*take_line(received)));
      last = finding.judgement.verdict == Verdict::crash;
      answer = (last ? std::string(kLast) : std::string()) + result_text(finding);
    } catch (const std::exception& error) {
      answer = std::string(kBadCase) + one_line(error.what());
    }
    std::fflush(nullptr);
    if (!send_all(socket, answer + "\n") || last) ::_exit(0);
  }
}

}  // namespace

Workers::Workers(CaseRunner run, const WorkerOptions& options)
    : Workers([run = std::move(run)](std::int64_t, const Case& c) { return run(c); }, options) {}

Workers::Workers(SubjectRunner run, const WorkerOptions& options) : run_(std::move(run)), options_(options) {
  if (options_.workers < 1) throw Error(fmt::format("{} workers: at least 1 is needed", options_.workers));
  workers_.resize(static_cast<std::size_t>(options_.workers));
}

Workers::~Workers() {
  for (Worker& worker : workers_) {
    if (worker.pid > 0) bury(worker, true);
  }
}

void Workers::start(Worker& worker, std::int64_t subject) {
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    throw Error(fmt::format("no socket for a worker ({}): use fewer --threads", std::strerror(errno)));
  }
  std::fflush(nullptr);  // or the child prints the parent's text again
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(pair[0]), ::close(pair[1]);
    throw Error(fmt::format("no process for a worker ({}): use fewer --threads", std::strerror(errno)));
  }
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(0);
    std::signal(SIGINT, SIG_IGN);  // the parent decides what an interrupt at the terminal ends
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::close(pair[0]);
    for (const Worker& other : workers_) {
      if (other.socket >= 0) ::close(other.socket);
    }
    limit(RLIMIT_CORE, 0);
    if (kLimitsMemory && options_.memory > 0) limit(RLIMIT_DATA, options_.memory);
    serve(pair[1], [&](const Case& c) { return run_(subject, c); });
  }
  ::close(pair[1]);
  worker = Worker{};
  worker.subject = subject;
  worker.pid = pid;
  worker.socket = pair[0];
}

Workers::End Workers::bury(Worker& worker, bool kill_first) {
  if (kill_first) ::kill(worker.pid, SIGKILL);
  int status = 0;
  while (::waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::close(worker.socket);
  worker.pid = -1;
  worker.socket = -1;
  if (WIFSIGNALED(status)) {
    const int signal = WTERMSIG(status);
    return {"signal",
            fmt::format("the kernel's process was killed by signal {} ({})", signal, ::strsignal(signal))};
  }
  return {"exit", fmt::format("the kernel ended its process with code {}", WEXITSTATUS(status))};
}

CaseResult Workers::lost(const Worker& worker, Verdict verdict, End end) const {
  CaseResult finding;
  finding.judgement.verdict = verdict;
  finding.judgement.gate = std::move(end.gate);
  finding.judgement.reason = std::move(end.reason);
  finding.seconds = std::chrono::duration<double>(Clock::now() - worker.began).count();
  return finding;
}

void Workers::finish(Worker& worker, const CaseResult& finding, const WorkerObserver& observer) {
  const Task task = std::move(*worker.task);
  worker.task.reset();
  if (observer.finished) observer.finished(task, finding);
}

void Workers::give(Worker& worker, Task task, const WorkerObserver& observer) {
  // What a subject left behind (threads, static variables, a damaged heap) ends with its process.
  if (worker.pid > 0 && worker.subject != task.subject) bury(worker, true);
  if (worker.pid < 0) start(worker, task.subject);
  worker.task = std::move(task);
  worker.began = Clock::now();
  if (observer.started) observer.started(*worker.task);
  // A worker that died while idle takes no case with it: the send fails, and another gets it.
  for (int attempt = 0; !send_all(worker.socket, format_case(worker.task->c) + "\n"); ++attempt) {
    if (attempt == 3) throw Error("workers die before they are given a case: see stderr for their reason");
    std::optional<Task> kept = std::move(worker.task);
    bury(worker, true);
    start(worker, kept->subject);
    worker.task = std::move(kept);
    worker.began = Clock::now();
  }
}

void Workers::collect(Worker& worker, const WorkerObserver& observer) {
  const bool open = receive(worker.socket, worker.received);
  while (const std::optional<std::string> line = take_line(worker.received)) {
    if (!worker.task) continue;
    if (line->starts_with(kBadCase)) {
      worker.task.reset();
      throw Error(line->substr(kBadCase.size()));
    }
    if (line->starts_with(kLast)) {
      const CaseResult finding = parse_result(std::string_view(*line).substr(kLast.size()));
      finish(worker, finding, observer);
      bury(worker, true);
      return;
    }
    finish(worker, parse_result(*line), observer);
  }
  if (open) return;
  const Worker before = worker;
  End end = bury(worker, true);
  if (before.task) finish(worker, lost(before, Verdict::crash, std::move(end)), observer);
}

void Workers::run(const std::function<std::optional<Task>(std::int64_t served)>& next,
                  const WorkerObserver& observer) {
  std::vector<char> done(workers_.size(), 0);
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Worker*> busy;
    for (std::size_t i = 0; i < workers_.size(); ++i) {
      Worker& worker = workers_[i];
      if (!worker.task && done[i] == 0) {
        std::optional<Task> task = next(worker.subject);
        done[i] = task ? 0 : 1;
        if (task) give(worker, std::move(*task), observer);
      }
      if (!worker.task) continue;
      waiting.push_back({worker.socket, POLLIN, 0});
      busy.push_back(&worker);
    }
    if (busy.empty()) return;
    const int ready = ::poll(waiting.data(), waiting.size(), kTickMilliseconds);
    if (ready < 0 && errno != EINTR) throw std::runtime_error("poll failed");
    const Clock::time_point now = Clock::now();
    for (std::size_t i = 0; i < busy.size(); ++i) {
      Worker& worker = *busy[i];
      if (ready > 0 && waiting[i].revents != 0) {
        collect(worker, observer);
      } else if (std::chrono::duration<double>(now - worker.began).count() > options_.timeout) {
        const CaseResult finding =
            lost(worker, Verdict::timeout,
                 {"", fmt::format("no answer after {:g} s (--timeout)", options_.timeout)});
        bury(worker, true);
        finish(worker, finding, observer);
      }
    }
  }
}

CaseResult Workers::run_fresh(const Case& c) {
  for (Worker& worker : workers_) {
    if (worker.pid > 0) bury(worker, true);
    worker = Worker{};
  }
  return run_one(c);
}

CaseResult Workers::run_one(const Case& c) {
  CaseResult out;
  bool given = false;
  run(
      [&](std::int64_t) -> std::optional<Task> {
        if (std::exchange(given, true)) return std::nullopt;
        return Task{0, c};
      },
      {{}, [&](const Task&, const CaseResult& finding) { out = finding; }});
  return out;
}

}  // namespace samestate
