#pragma once

#include <cstddef>
#include <string>

namespace samestate::cli {

/// True if stdout is a terminal that supports colours and NO_COLOR is not set (https://no-color.org).
[[nodiscard]] bool colour();

/// A page of lines that begin with a title of ten columns, as repro and judge print, for stdout: on a terminal lines are
/// wrapped between words below their titles, but the case line, which is to be copied, and the verdict is green or red.
/// Elsewhere it stays as it is.
[[nodiscard]] std::string for_terminal(const std::string& page);

/// The same for a terminal of so many columns (0: it does not say), with or without colours.
[[nodiscard]] std::string laid_out(const std::string& page, std::size_t columns, bool colour);

/// Columns of the terminal that stdout is; 0 where it is none or does not say.
[[nodiscard]] std::size_t columns_of_stdout();

/// The width of the terminal on stderr in columns; 0 if it is not a terminal or does not say.
[[nodiscard]] int columns();

/// From now on a write to a pipe that nobody reads ends this process quietly with 128 + SIGPIPE, like other
/// filters in a pipeline; no kernel is blamed for it.
void end_with_the_reader();

}  // namespace samestate::cli
