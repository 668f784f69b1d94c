#pragma once

#include <cstddef>
#include <string>

namespace samestate::cli {

/// True if stdout is a terminal that supports colours and NO_COLOR is not set (https://no-color.org).
[[nodiscard]] bool colour();

/// Lays out a page of lines that begin with a title of ten columns, as repro and judge print it, for stdout. On a
/// terminal, lines are wrapped between words below their titles, except for those with a case line, which users copy, and
/// the verdict is green or red. Elsewhere the page stays as it is.
[[nodiscard]] std::string for_terminal(const std::string& page);

/// The same for a terminal of that many columns (0 if it does not tell), with or without colours.
[[nodiscard]] std::string laid_out(const std::string& page, std::size_t columns, bool colour);

/// Wraps the lines of a text between words for a terminal of that many columns (0 if it does not tell: the text stays as
/// it is); what follows is indented by two columns more than the line. Lines with a command that repeats a case are not
/// wrapped, because users copy them.
[[nodiscard]] std::string folded(const std::string& text, std::size_t columns);

/// Returns the number of columns of the terminal that stdout is; 0 if it is not a terminal or does not tell.
[[nodiscard]] std::size_t columns_of_stdout();

/// Returns how many columns a table may have: those of the terminal, or 80 where stdout is none or does not tell.
[[nodiscard]] std::size_t columns_of_tables();

/// The width of the terminal on stderr in columns; 0 if it is not a terminal or does not say.
[[nodiscard]] int columns();

/// From now on a write to a pipe that nobody reads ends this process quietly with 128 + SIGPIPE, like other
/// filters in a pipeline; no kernel is blamed for it.
void end_with_the_reader();

}  // namespace samestate::cli
