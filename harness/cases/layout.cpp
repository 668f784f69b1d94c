#include "harness/cases/layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "reference/error.h"

namespace samestate {
namespace {

constexpr std::array<std::string_view, 8> kLayouts{"dense", "padded",   "far",    "mixed",
                                                   "fused", "permuted", "sliced", "page_end"};
constexpr std::array<std::string_view, 3> kFinalStates{"apart", "none", "in_place"};

template <class Names>
std::size_t place_in(const Names& names, std::string_view key, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end())
    throw Error(fmt::format("{}={}: must be one of {}", key, name, fmt::join(names, ", ")));
  return static_cast<std::size_t>(found - names.begin());
}

}  // namespace

std::span<const std::string_view> layout_names() { return kLayouts; }

Layout layout_named(std::string_view name) { return static_cast<Layout>(place_in(kLayouts, "layout", name)); }

FinalState final_state_named(std::string_view name) {
  return static_cast<FinalState>(place_in(kFinalStates, "final", name));
}

}  // namespace samestate
