#pragma once

#include <cstddef>
#include <string>

namespace samestate::cli {

/// Whether stdout is a terminal that takes colours, and nobody said NO_COLOR (https://no-color.org).
[[nodiscard]] bool colour();

/// A page of lines that begin with a title of ten columns, as repro and judge print, for stdout: on a terminal lines are
/// wrapped between words below their titles, but the case line, which is to be copied, and the verdict is green or red.
/// Elsewhere it stays as it is.
[[nodiscard]] std::string for_terminal(const std::string& page);

/// The same for a terminal of so many columns (0: it does not say), with or without colours.
[[nodiscard]] std::string laid_out(const std::string& page, std::size_t columns, bool colour);

/// Columns of the terminal that stdout is; 0 where it is none or does not say.
[[nodiscard]] std::size_t columns_of_stdout();

/// Columns of the terminal that stderr is; 0 where it is none or does not say.
[[nodiscard]] int columns();

/// From now on a write to a pipe that nobody reads ends this process quietly with 128 + SIGPIPE, as other filters
/// of a pipeline do; no kernel is blamed for it.
void end_with_the_reader();

}  // namespace samestate::cli
