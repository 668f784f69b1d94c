#pragma once

#include <sys/types.h>

/// What a worker, or a program that this process started, leaves behind: processes whose parent is gone.
namespace samestate {

/// From now on they become children of this process, however often they forked and whatever session they made, instead of those of
/// init. What children it has already stay as they are. Once a process: what is forked off has to call it again.
void adopt_orphans();

/// A child of this process that it ends itself, until it is forgotten: every one that it forks off has to be, or it ends with the
/// next worker.
void keep_child(pid_t child);
void forget_child(pid_t child);

/// Kills and reaps every child of this process that is none of its own. Nothing where it adopted none.
void end_orphans();

}  // namespace samestate
