#pragma once

namespace samestate::cli {

/// Whether stdout is a terminal that takes colours, and nobody said NO_COLOR (https://no-color.org).
[[nodiscard]] bool colour();

/// Columns of the terminal that stderr is; 0 where it is none or does not say.
[[nodiscard]] int columns();

/// From now on a write to a pipe that nobody reads ends this process quietly with 128 + SIGPIPE, as other filters
/// of a pipeline do; no kernel is blamed for it.
void end_with_the_reader();

}  // namespace samestate::cli
