#pragma once

#include <sys/types.h>

/// Orphans: processes that a worker, or a program started by this process, leaves behind when it ends.
namespace samestate {

/// Makes orphans children of this process instead of init, however often they forked and whatever session
/// they are in. Children that exist already are left alone. Call it once per process; a forked process has to
/// call it again.
void adopt_orphans();

/// Marks a child as one that this process ends itself, until forget_child is called. Every forked child must
/// be marked, or end_orphans() kills it.
void keep_child(pid_t child);
void forget_child(pid_t child);

/// Kills and reaps every child that is not marked. Does nothing if adopt_orphans() was not called.
void end_orphans();

}  // namespace samestate
