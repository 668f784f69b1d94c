#include "harness/processes/printed.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "reference/error.h"

namespace samestate {
namespace {

std::size_t most_shown = 0;       ///< Printed::show
std::FILE* own_output = nullptr;  ///< own_stderr; null means stderr

}  // namespace

std::FILE* own_stderr() { return own_output != nullptr ? own_output : stderr; }

void set_own_stderr(std::FILE* file) { own_output = file; }

void Printed::show(std::size_t most) { most_shown = most; }

Printed::Printed(std::string log) : log_(std::move(log)) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    throw Error(fmt::format("no pipe for what a process prints ({}): close files, or raise ulimit -n",
                            std::strerror(errno)));
  reader_ = ends[0], writer_ = ends[1];
  ::fcntl(reader_, F_SETFL, O_NONBLOCK);
}

Printed::~Printed() { close(); }

Printed::Printed(Printed&& other) noexcept
    : reader_(std::exchange(other.reader_, -1)),
      writer_(std::exchange(other.writer_, -1)),
      log_(std::move(other.log_)),
      text_(std::move(other.text_)),
      shown_(other.shown_) {}

Printed& Printed::operator=(Printed&& other) noexcept {
  if (this == &other) return *this;
  close();
  reader_ = std::exchange(other.reader_, -1);
  writer_ = std::exchange(other.writer_, -1);
  log_ = std::move(other.log_);
  text_ = std::move(other.text_);
  shown_ = other.shown_;
  return *this;
}

void Printed::close_writer() {
  if (writer_ >= 0) ::close(std::exchange(writer_, -1));
}

void Printed::close() {
  close_writer();
  if (reader_ >= 0) ::close(std::exchange(reader_, -1));
}

/// A process that prints without end fills a pipe but no disk.
void Printed::take() {
  if (reader_ < 0) return;
  constexpr std::size_t kKept = 16 << 10;
  constexpr off_t kMostLogged = 16 << 20;
  std::array<char, 65536> part;
  std::string fresh;
  ssize_t count = 0;
  while (fresh.size() < 16 * part.size() && (count = ::read(reader_, part.data(), part.size())) > 0)
    fresh.append(part.data(), static_cast<std::size_t>(count));
  // All writers are gone: a pipe at its end is readable for ever.
  if (count == 0) ::close(std::exchange(reader_, -1));
  if (fresh.empty()) return;
  if (shown_ < most_shown) {
    const std::string_view first = std::string_view(fresh).substr(0, most_shown - shown_);
    shown_ += first.size();
    fmt::print(own_stderr(), "{}", first);
    if (shown_ == most_shown)
      fmt::print(own_stderr(), "\nsamestate: its output beyond {} kB is only in the file\n",
                 most_shown >> 10);
  }
  text_ += fresh;
  if (text_.size() > kKept) text_.erase(0, text_.size() - kKept);
  // Several processes write to its end.
  const int file = ::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return;
  struct stat now {};
  if (::fstat(file, &now) == 0 && now.st_size < kMostLogged)
    for (std::string_view rest = fresh; !rest.empty();) {
      const ssize_t written = ::write(file, rest.data(), rest.size());
      if (written <= 0) break;  // a full disk costs a log, but not a verdict
      rest.remove_prefix(static_cast<std::size_t>(written));
    }
  ::close(file);
}

std::string Printed::last_line() const {
  std::string_view text = text_;
  constexpr std::string_view kBlanks = " \t\r\n";
  text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
  text.remove_prefix(text.find_last_of('\n') + 1);
  return std::string(text);
}

}  // namespace samestate
