#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace samestate {

/// Receives what another process prints through a pipe: keeps the end of it, and appends all of it to a file
/// up to a limit. The owner must keep reading (take) while the process runs, because the process blocks
/// otherwise.
class Printed {
 public:
  /// Reads nothing; the process prints wherever it wants.
  Printed() = default;
  /// `log` is the file, of at most 16 MiB. Throws Error if no pipe can be created.
  explicit Printed(std::string log);
  ~Printed();
  Printed(Printed&& other) noexcept;
  Printed& operator=(Printed&& other) noexcept;

  /// The descriptor to which the process prints; -1 if there is none.
  [[nodiscard]] int writer() const { return writer_; }
  /// Closes this process's copy of it, so that the pipe ends when the other process closes it.
  void close_writer();
  /// The descriptor to poll; -1 if no process writes to it any more.
  [[nodiscard]] int reader() const { return reader_; }
  /// Reads what is available.
  void take();
  void close();

  /// Forwards this many bytes of each process to own_stderr too, as they arrive; 0, the default, forwards
  /// none.
  static void show(std::size_t most);

  /// The end of the output: at most 16 KiB, and its last line that is not blank.
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::string last_line() const;

 private:
  int reader_ = -1, writer_ = -1;
  std::string log_, text_;
  std::size_t shown_ = 0;
};

/// The stderr of the command; in a process whose own stderr is captured (WorkerProcess::log_to), that of its
/// parent. The judge's own messages go there.
[[nodiscard]] std::FILE* own_stderr();
void set_own_stderr(std::FILE* file);

}  // namespace samestate
