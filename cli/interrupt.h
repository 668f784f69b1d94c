#pragma once

namespace samestate::cli {

/// From now on an interrupt or a SIGTERM is noted instead of ending the process; the second one ends it.
void note_interrupts();

/// Whether one was noted, here or where this process was forked from after note_interrupts(): what is under way is finished, and nothing new is begun.
[[nodiscard]] bool interrupted();

}  // namespace samestate::cli
