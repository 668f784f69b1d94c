#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "harness/processes/printed.h"

namespace samestate {

/// One word of a POSIX shell, whatever the text holds.
[[nodiscard]] std::string shell_quoted(std::string_view text);

/// Somebody else's program that is talked to in lines, over its stdin and stdout or over a Unix socket. Nothing that it
/// does is trusted: it may die, hang or talk nonsense.
class LineProcess {
 public:
  /// How one line went; `wrong` says to a person what did, and is empty where nothing did.
  struct Said {
    enum class Kind { line, ended, late, long_line, stopped } kind = Kind::line;
    std::string line;
    std::string wrong;
  };

  /// Starts `/bin/sh -c command` in a process group of its own, which dies with the calling process. Throws Error, that
  /// begins with `option`, where no process can be made.
  /// `log`: a file to which what it prints to stderr is appended, up to 16 MiB; empty: it prints to this process's stderr.
  [[nodiscard]] static LineProcess start(const std::string& command, std::string_view option,
                                         const std::string& log = {});
  /// Connects to whoever listens. Throws Error that names the path.
  [[nodiscard]] static LineProcess connect(const std::string& path, std::string_view option);

  LineProcess() = default;
  ~LineProcess();
  LineProcess(LineProcess&& other) noexcept;
  LineProcess& operator=(LineProcess&& other) noexcept;

  [[nodiscard]] bool open() const { return socket_ >= 0; }
  /// True if it was started here and not stopped; false of one that was connected to, which nobody here can end.
  [[nodiscard]] bool is_child() const { return child_ > 0; }
  /// A newline is added. Empty, or what went wrong.
  [[nodiscard]] Said send(std::string line, double seconds);
  /// The next line, without its end. `stop` is asked while it waits, at a signal and a few times a second; nobody waits
  /// longer once it is true.
  [[nodiscard]] Said receive(double seconds, const std::function<bool()>& stop = {});
  /// Whether something is there that was not asked for.
  [[nodiscard]] bool has_more();
  /// Ends it: an orderly one at the end of its input, the others, and all that they started, by force after half a
  /// second, or at once. What it ended with, "exit code 3" or "signal 11 (Segmentation fault)"; empty for a socket, and for one that
  /// did not end by itself.
  std::string stop(bool at_once = false);
  /// Returns what it printed so far, if it has a log.
  [[nodiscard]] const Printed& printed() const { return printed_; }
  /// Ends at once what this process started and has not stopped, and all that they started: of a process that ends without
  /// destructors.
  static void end_all() noexcept;

 private:
  /// Waits until the conversation has something, or milliseconds are over, and keeps what is printed meanwhile. As poll.
  int wait(short events, int milliseconds);

  pid_t child_ = -1;
  int socket_ = -1;
  Printed printed_;
  std::string received_;
};

}  // namespace samestate
