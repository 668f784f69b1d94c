#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/commands.h"
#include "cli/interrupt.h"
#include "harness/cases/case_line.h"
#include "harness/processes/orphans.h"
#include "harness/subjects/declaration.h"
#include "harness/subjects/subject.h"
#include "reference/error.h"
#include "samestate_version.h"

namespace samestate::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kStdin = 0, kStdout = 1, kStderr = 2;
/// The same limit as the protocol's (docs/lookup/subjects.md).
constexpr std::size_t kLongestLine = std::size_t{4} << 20U;

/// A descriptor that closes itself.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) close(), number_ = std::exchange(other.number_, -1);
    return *this;
  }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }
  [[nodiscard]] int number() const { return number_; }
  [[nodiscard]] bool open() const { return number_ >= 0; }

 private:
  int number_ = -1;
};

[[noreturn]] void fail(std::string_view what) {
  throw Error(fmt::format("serve: {}: {}", what, std::strerror(errno)));
}

/// Returns false if nobody reads any more.
bool write_line(int to, std::string line) {
  line += '\n';
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t n = ::write(to, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

/// Splits what a descriptor delivers into lines.
class Lines {
 public:
  /// Reads what has arrived; returns false at the end.
  bool read(int from) {
    char buffer[65536];
    const ssize_t n = ::read(from, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n <= 0) return false;
    held_.append(buffer, static_cast<std::size_t>(n));
    if (held_.find('\n') == std::string::npos && held_.size() > kLongestLine)
      throw Error(fmt::format("serve: a line of more than {} bytes", kLongestLine));
    return true;
  }
  std::optional<std::string> next() {
    const std::size_t end = held_.find('\n');
    if (end == std::string::npos) return {};
    std::string line = held_.substr(0, end);
    held_.erase(0, end + 1);
    return line;
  }

 private:
  std::string held_;
};

std::string type_of(const std::string& line) {
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return json.is_object() && json.contains("type") && json["type"].is_string()
             ? json["type"].get<std::string>()
             : std::string();
}

/// Connects the gate, at one end of sockets, with the client on stdin and stdout. The gate has several
/// processes, each of which sends a hello.
class Relay {
 public:
  /// `line` is the case to repeat; empty for the gate.
  Relay(std::string line, std::vector<std::string> words)
      : line_(std::move(line)), words_(std::move(words)) {}

  int run() {
    std::signal(SIGPIPE, SIG_IGN);
    handshake();
    note_interrupts();
    listen();
    start();
    while (relay()) {
    }
    int status = 0;
    while (::waitpid(gate_, &status, 0) < 0 && errno == EINTR) {
    }
    // Without its client the gate judged calls that were never made.
    const int code = !stdin_open_ ? kCrash : WIFEXITED(status) ? WEXITSTATUS(status) : kCrash;
    if (!stdin_open_)
      fmt::print(
          stderr,
          "samestate: serve: the client closed its end before the gate had ended, so the verdict of the last "
          "case above says nothing about the kernel\n");
    (void)write_line(kStdout, Json{{"type", "bye"}, {"exit", code}}.dump());
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    return code;
  }

 private:
  /// One of the gate's processes.
  struct Conversation {
    std::int64_t number = 0;
    Descriptor socket;
    Lines lines;
    std::string hello;
    std::deque<std::string> asked;
  };

  /// Errors in the client's declaration are reported before a plan is made.
  void handshake() {
    const Descriptor memory(::memfd_create("samestate", MFD_CLOEXEC));
    if (!memory.open() || ::ftruncate(memory.number(), 65536) != 0) fail("a memory object");
    const Json hello{{"type", "hello"},
                     {"protocol", 1},
                     {"samestate", SAMESTATE_VERSION},
                     {"memory", fmt::format("/proc/{}/fd/{}", ::getpid(), memory.number())}};
    (void)write_line(kStdout, hello.dump());
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(patience_of_environment().start);
    std::optional<std::string> line;
    while (!(line = client_.next())) {
      const std::chrono::duration<double, std::milli> left = end - std::chrono::steady_clock::now();
      pollfd in{kStdin, POLLIN, 0};
      if (left.count() <= 0 || ::poll(&in, 1, static_cast<int>(left.count()) + 1) == 0)
        throw Error(
            "serve: the client wrote nothing to stdin; it must answer each hello with its declarations "
            "(docs/lookup/subjects.md)");
      if (!client_.read(kStdin))
        throw Error(
            "serve: the client's end of stdin is closed; a client starts `samestate serve`, keeps both pipes "
            "open and answers each hello with its declarations (docs/lookup/subjects.md)");
    }
    (void)parse_ready(*line);
  }

  void listen() {
    std::string pattern = (std::filesystem::temp_directory_path() / "samestate-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) fail(pattern);
    folder_ = pattern;
    const std::string path = (folder_ / "s").string();
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path)
      throw Error(fmt::format("serve: {}: the path is too long", path));
    std::copy(path.begin(), path.end(), address.sun_path);
    listener_ = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!listener_.open() ||
        ::bind(listener_.number(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.number(), 16) != 0)
      fail(path);
  }

  void start() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) fail("a pipe");
    records_ = Descriptor(ends[0]);
    const Descriptor theirs(ends[1]);
    const auto said = [&](std::string_view option) {
      return std::any_of(words_.begin(), words_.end(), [&](const std::string& word) {
        return word == option || word.starts_with(std::string(option) + "=");
      });
    };
    const bool whole = line_.empty();
    std::vector<std::string> words{"samestate", whole ? "gate" : "repro", "--subject",
                                   fmt::format("socket:{}", (folder_ / "s").string())};
    if (whole) words.insert(words.end(), {"--threads", "1"});
    if (whole && !said("--jsonl"))
      words.insert(words.end(), {"--jsonl", fmt::format("/dev/fd/{}", theirs.number())});
    words.insert(words.end(), words_.begin(), words_.end());
    if (!whole) words.push_back(line_);
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    gate_ = ::fork();
    if (gate_ < 0) fail("a process");
    if (gate_ == 0) {
      // An interrupt from the terminal is passed on once, and the gate does not outlive this process.
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGTERM);
      std::signal(SIGPIPE, SIG_DFL);
      ::setenv("SAMESTATE_SERVED", "1", 1);
      // The gate's stdout is not the conversation: what it prints goes to the terminal.
      ::dup2(kStderr, kStdout);
      const int none = ::open("/dev/null", O_RDONLY);
      ::dup2(none, kStdin);
      ::fcntl(theirs.number(), F_SETFD, 0);
      ::execv("/proc/self/exe", argv.data());
      ::_exit(kCrash);
    }
    keep_child(gate_);
  }

  /// Runs one round; returns false once the gate has ended and everything that it wrote is passed on.
  bool relay() {
    std::vector<pollfd> of{{records_.number(), POLLIN, 0},
                           {stdin_open_ ? kStdin : -1, POLLIN, 0},
                           {listener_.number(), POLLIN, 0}};
    for (const Conversation& one : conversations_) of.push_back({one.socket.number(), POLLIN, 0});
    constexpr int kMilliseconds = 500;  // an interrupt between two polls waits at most this long
    const int ready = ::poll(of.data(), of.size(), kMilliseconds);
    if (interrupted() && !passed_on_) {
      passed_on_ = true;
      ::kill(gate_, SIGINT);
    }
    if (ready < 0) return errno == EINTR;
    if (of[0].revents != 0 && !pass_records()) return false;
    if (of[1].revents != 0) from_client();
    for (std::size_t i = 3; i < of.size(); ++i) {
      if (of[i].revents != 0) from_gate(conversations_[i - 3]);
    }
    std::erase_if(conversations_, [](const Conversation& one) { return !one.socket.open(); });
    if (of[2].revents != 0)
      conversations_.push_back({next_number_++,
                                Descriptor(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC)),
                                {},
                                {},
                                {}});
    ask();
    return true;
  }

  bool pass_records() {
    const bool open = record_lines_.read(records_.number());
    while (const std::optional<std::string> line = record_lines_.next()) {
      const Json record = Json::parse(*line, nullptr, /*allow_exceptions=*/false);
      if (!record.is_object() || !record.contains("event")) continue;
      if (record["event"] == "run")
        (void)write_line(kStdout, Json{{"type", "plan"}, {"cases", record["planned"]}}.dump());
      if (record["event"] != "end") continue;
      Json verdict{{"type", "verdict"}};
      for (const char* key : {"line", "kernel", "verdict", "gate", "ratio", "error", "bound", "worst",
                              "expected", "actual", "reason"}) {
        if (record.contains(key)) verdict[key] = record[key];
      }
      (void)write_line(kStdout, verdict.dump());
    }
    return open;
  }

  void from_gate(Conversation& one) {
    const bool open = one.lines.read(one.socket.number());
    while (std::optional<std::string> line = one.lines.next()) {
      if (type_of(*line) != "bye") one.asked.push_back(std::move(*line));
    }
    if (!open) one.socket.close();
  }

  /// Passes on what the gate's processes ask, one question at a time. A process other than the client's last
  /// one sends its hello again, since its memory is different.
  void ask() {
    if (waits_for_ != 0 || !stdin_open_) return;
    for (Conversation& one : conversations_) {
      if (one.asked.empty()) continue;
      const bool hello = type_of(one.asked.front()) == "hello";
      if (hello) one.hello = one.asked.front();
      again_ = !hello && one.number != last_;
      last_ = waits_for_ = one.number;
      if (!write_line(kStdout, again_ ? one.hello : one.asked.front())) lose_client();
      if (!again_) one.asked.pop_front();
      return;
    }
  }

  void from_client() {
    if (!client_.read(kStdin)) {
      lose_client();
      return;
    }
    while (const std::optional<std::string> line = client_.next()) {
      // An unexpected line goes to the process with which the client spoke last: the gate reports what it is.
      const std::int64_t to = waits_for_ != 0 ? waits_for_ : last_;
      const auto one = std::find_if(conversations_.begin(), conversations_.end(),
                                    [&](const Conversation& c) { return c.number == to; });
      const bool there = one != conversations_.end() && one->socket.open();
      if (again_) {
        again_ = false;
        if (there && !write_line(kStdout, one->asked.front())) lose_client();
        if (there) {
          one->asked.pop_front();
          continue;
        }
      } else if (there) {
        (void)write_line(one->socket.number(), *line);
      }
      // The process that asked may be gone after a time limit; the answer is then dropped.
      if (type_of(*line) != "busy") waits_for_ = 0;
    }
  }

  /// The gate then ends as on an interrupt, with reports of what was done.
  void lose_client() {
    if (!stdin_open_) return;
    stdin_open_ = false;
    ::kill(gate_, SIGINT);
    conversations_.clear();
  }

  std::string line_;
  std::vector<std::string> words_;
  std::filesystem::path folder_;
  Descriptor listener_, records_;
  Lines client_, record_lines_;
  std::vector<Conversation> conversations_;
  std::int64_t next_number_ = 1;
  std::int64_t last_ = 0;       ///< the process whose hello the client read last
  std::int64_t waits_for_ = 0;  ///< the process whose question the client has; 0 if none
  bool again_ = false;          ///< the question is a hello that was answered before
  pid_t gate_ = -1;
  bool stdin_open_ = true;
  bool passed_on_ = false;  ///< an interrupt was passed on to the gate
};

}  // namespace

Command add_serve(CLI::App& app) {
  app.allow_extras();
  const auto line = std::make_shared<std::string>();
  const CLI::Option* const one = app.add_option(
      "--case", *line,
      "run only this case line, and explain it as repro does, whose options are then accepted: no "
      "plan and no verdict is sent, and bye has the exit code");
  app.footer(
      "For test programs that start this command and contain the kernels themselves, in any "
      "language. It speaks the protocol of\n"
      "docs/lookup/subjects.md over its stdin and stdout, with the client as subject. The client answers "
      "each hello with its\n"
      "declarations (there are several, because the gate has more than one process) and each run "
      "with ran. It receives\n"
      "{\"type\":\"plan\",\"cases\":N}, for each case "
      "{\"type\":\"verdict\",\"line\":..,\"verdict\":..,\"ratio\":..}, and at the end\n"
      "{\"type\":\"bye\",\"exit\":CODE}, which is also the exit code here. The gate's summary goes "
      "to stderr, and all options\n"
      "of the gate are accepted.\n"
      "\n"
      "  samestate serve --effort 0.2 --contract fp32 --junit gate.xml\n"
      "  samestate serve --case 'v1 gated_delta_rule T=9 kernel=mine.gated_delta_rule.chunked'");
  return [&app, line, one] {
    // This happens before waiting for a client: the gate would read the line only after the client's hello.
    if (one->count() > 0) (void)parse_case(*line);
    return Relay(*line, app.remaining()).run();
  };
}

}  // namespace samestate::cli
