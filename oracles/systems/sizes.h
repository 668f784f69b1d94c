#pragma once

#include <boost/container/flat_map.hpp>
#include <boost/container/static_vector.hpp>
#include <functional>
#include <string_view>
#include <utility>

#include "reference/sequence.h"

/// Sizes and extents that are stored in place. A plan copies, and asks for, ten million calls, most of whose time
/// went into allocations.
namespace samestate {

/// Values of sizes by name. The names are not copied: they are those of the rows of systems, which live as long
/// as the program. Dendritic attention has the most sizes, ten; a thirteenth throws std::bad_alloc.
using Sizes =
    boost::container::flat_map<std::string_view, Index, std::less<>,
                               boost::container::static_vector<std::pair<std::string_view, Index>, 12>>;

/// The extents of a tensor; a seventh throws std::bad_alloc.
using Extents = boost::container::static_vector<Index, 6>;

}  // namespace samestate
