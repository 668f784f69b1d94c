#pragma once

#include <cstddef>
#include <cstdio>
#include <string>

namespace samestate {

/// Takes what another process prints through a pipe: the end of it is kept, and all of it is appended to a file until
/// that is full. Whoever holds it has to read (take) while the process runs, which else waits for it.
class Printed {
 public:
  /// Nothing is read, and the process prints where it likes.
  Printed() = default;
  /// `log`: the file, of 16 MiB at most. Throws Error where there is no pipe.
  explicit Printed(std::string log);
  ~Printed();
  Printed(Printed&& other) noexcept;
  Printed& operator=(Printed&& other) noexcept;

  /// What the process is to print to; -1: there is nothing.
  [[nodiscard]] int writer() const { return writer_; }
  /// Closes this process's copy of it: the pipe ends with the other.
  void close_writer();
  /// To be polled; -1: nobody prints there any more.
  [[nodiscard]] int reader() const { return reader_; }
  /// Reads what is there.
  void take();
  void close();

  /// Of each process so many bytes go to own_stderr too, as they come; 0, as at first: none.
  static void show(std::size_t most);

  /// The end of it: at most 16 KiB, and its last line but for blanks.
  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::string last_line() const;

 private:
  int reader_ = -1, writer_ = -1;
  std::string log_, text_;
  std::size_t shown_ = 0;
};

/// stderr of the command, in a process whose own stderr is read (WorkerProcess::log_to) that of its parent: what the judge says.
[[nodiscard]] std::FILE* own_stderr();
void set_own_stderr(std::FILE* file);

}  // namespace samestate
