#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "cli/rank_place.h"
#include "reports/text/aligned.h"
#include "reports/text/paint.h"

namespace samestate::cli {

bool colour() {
  const char* no = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  // Open MPI gives rank 0 a terminal even if its output goes somewhere else.
  return rank_place().ranks == 1 && isatty(STDOUT_FILENO) != 0 && (no == nullptr || *no == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t columns_of_stdout() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

std::size_t columns_of_tables() {
  constexpr std::size_t kUsual = 80;
  const std::size_t columns = columns_of_stdout();
  return columns == 0 ? kUsual : columns;
}

std::string folded(const std::string& text, std::size_t columns) {
  if (columns == 0) return text;
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    const std::size_t blanks = std::min(line.find_first_not_of(' '), line.size());
    const bool copied = line.find("samestate repro ") != line.npos;
    out += copied || columns_of(line) <= columns
               ? line
               : line.substr(0, blanks) + wrapped(line.substr(blanks), columns, blanks + 2, blanks);
    if (end < text.size()) out += '\n';
  }
  return out;
}

std::string laid_out(const std::string& page, std::size_t columns, bool colour) {
  constexpr std::size_t kTitle = 10;
  constexpr std::string_view kVerdict = "verdict   ";
  const Paint paint(colour);
  std::string out;
  for (std::size_t begin = 0; begin < page.size();) {
    const std::size_t end = std::min(page.find('\n', begin), page.size());
    std::string line = page.substr(begin, end - begin);
    begin = end + 1;
    const bool titled = line.size() > kTitle && line[kTitle - 1] == ' ';
    const bool has_case = line.find(" v1 ") != line.npos;  // printed as it is, to be copied
    if (columns > 2 * kTitle && columns_of(line) > columns && !has_case)
      line = titled ? line.substr(0, kTitle) + wrapped(line.substr(kTitle), columns, kTitle, kTitle)
                    : wrapped(line, columns, kTitle);
    if (line.starts_with(kVerdict)) {
      const std::size_t word = std::min(line.find(':'), line.size());
      const std::string name = line.substr(kVerdict.size(), word - kVerdict.size());
      const bool bad = name == "fail" || name == "crash" || name == "timeout" || name == "flaky";
      line = std::string(kVerdict) +
             paint(name == "pass" ? Tone::good
                   : bad          ? Tone::bad
                                  : Tone::warn,
                   name) +
             line.substr(word);
    }
    out += line + '\n';
  }
  return out;
}

std::string for_terminal(const std::string& page) { return laid_out(page, columns_of_stdout(), colour()); }

int columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void end_with_the_reader() { (void)std::signal(SIGPIPE, SIG_DFL); }

}  // namespace samestate::cli
