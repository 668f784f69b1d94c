#pragma once

namespace samestate::cli {

/// True if stdout is a terminal that supports colours and NO_COLOR is not set (https://no-color.org).
[[nodiscard]] bool colour();

/// The width of the terminal on stderr in columns; 0 if it is not a terminal or does not say.
[[nodiscard]] int columns();

/// From now on a write to a pipe that nobody reads ends this process quietly with 128 + SIGPIPE, like other
/// filters in a pipeline; no kernel is blamed for it.
void end_with_the_reader();

}  // namespace samestate::cli
