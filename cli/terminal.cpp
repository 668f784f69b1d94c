#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string_view>

#include "cli/rank_place.h"

namespace samestate::cli {

bool colour() {
  const char* no = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  // Open MPI gives rank 0 a terminal, wherever its output goes.
  return rank_place().ranks == 1 && isatty(STDOUT_FILENO) != 0 && (no == nullptr || *no == '\0') &&
         terminal != nullptr && std::string_view(terminal) != "dumb";
}

int columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void end_with_the_reader() { (void)std::signal(SIGPIPE, SIG_DFL); }

}  // namespace samestate::cli
