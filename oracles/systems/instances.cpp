#include "oracles/systems/instances.h"

namespace samestate {

SAMESTATE_INSTANCES_OF(template, double)
SAMESTATE_INSTANCES_OF(template, Running)
SAMESTATE_INSTANCES_OF(template, Stored)
SAMESTATE_INSTANCES_OF(template, Stochastic)

}  // namespace samestate
