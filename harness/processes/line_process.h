#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>

#include "harness/processes/printed.h"

namespace samestate {

/// Quotes any text as one word of a POSIX shell.
[[nodiscard]] std::string shell_quoted(std::string_view text);

/// Another program with which we exchange lines, over its stdin and stdout or over a Unix socket. It is not
/// trusted: it may die, hang, or answer nonsense.
class LineProcess {
 public:
  /// The result of exchanging one line; `wrong` tells a person what went wrong, and is empty if nothing did.
  struct Said {
    enum class Kind { line, ended, late, long_line, stopped } kind = Kind::line;
    std::string line;
    std::string wrong;
  };

  /// Starts `/bin/sh -c command` in a process group of its own, which dies with the calling process. Throws
  /// Error whose message begins with `option` if no process can be created. `log` is a file to which its
  /// stderr is appended, up to 16 MiB; if empty, it shares the stderr of this process.
  [[nodiscard]] static LineProcess start(const std::string& command, std::string_view option,
                                         const std::string& log = {});
  /// Connects to a listening socket. Throws Error that names the path.
  [[nodiscard]] static LineProcess connect(const std::string& path, std::string_view option);

  LineProcess() = default;
  ~LineProcess();
  LineProcess(LineProcess&& other) noexcept;
  LineProcess& operator=(LineProcess&& other) noexcept;

  [[nodiscard]] bool open() const { return socket_ >= 0; }
  /// True if it was started here and not stopped; false if it was connected to, and so cannot be ended from
  /// here.
  [[nodiscard]] bool is_child() const { return child_ > 0; }
  /// Sends a line and a newline. `wrong` is empty, or says what went wrong.
  [[nodiscard]] Said send(std::string line, double seconds);
  /// Receives the next line, without its newline. While waiting, `stop` is asked at each signal and a few
  /// times a second, and the wait ends once it returns true.
  [[nodiscard]] Said receive(double seconds, const std::function<bool()>& stop = {});
  /// True if there is input that was not asked for.
  [[nodiscard]] bool has_more();
  /// Ends the process: it is expected to end at the end of its input; otherwise, and with everything that it
  /// started, it is killed after half a second, or immediately if `at_once`. Returns how it ended, "exit code
  /// 3" or "signal 11 (Segmentation fault)"; empty for a socket, and if it had to be killed.
  std::string stop(bool at_once = false);
  /// The output that it has printed so far, if it has a log.
  [[nodiscard]] const Printed& printed() const { return printed_; }
  /// Immediately ends all processes that this one started and has not stopped, and everything that they
  /// started; for a process that ends without running destructors.
  static void end_all() noexcept;

 private:
  /// Waits until there is input, or the milliseconds are over, and keeps what is printed meanwhile. Returns
  /// like poll.
  int wait(short events, int milliseconds);

  pid_t child_ = -1;
  int socket_ = -1;
  Printed printed_;
  std::string received_;
};

}  // namespace samestate
