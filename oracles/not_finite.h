#pragma once

#include <string_view>

namespace samestate {

/// Of two runs that agree wherever one of them is finite, and are not finite elsewhere: a failure, of the kernel and
/// not of the law that compares them.
inline constexpr std::string_view kBothNotFinite =
    "both runs are not finite there: the law says nothing; see the same case without law=";

}  // namespace samestate
