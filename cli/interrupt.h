#pragma once

namespace samestate::cli {

/// From now on an interrupt or a SIGTERM is noted instead of ending the process. So is the second one, since what was found
/// may be under way to its files; stderr then says that the third ends the process.
void note_interrupts();

/// Whether one was noted, here or where this process was forked from after note_interrupts(): what is under way is finished, and nothing new is begun.
[[nodiscard]] bool interrupted();

}  // namespace samestate::cli
