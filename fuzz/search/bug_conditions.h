#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/cases/system.h"

namespace samestate {

/// A place where kernels are known to break: what "Generators must reach" of docs/understand/theory/bugs.md lists.
struct Edge {
  std::string_view name;
  std::string_view summary;
};

/// At most 64; bit i of edges_of is the i-th.
[[nodiscard]] std::span<const Edge> edges();

/// The edges that a case reaches, read from its data where they are about data. Throws Error for a case that
/// is no case.
[[nodiscard]] std::uint64_t edges_of(const Case& c);

/// Whether some case of a kernel of this system and form could reach the edge. `strided`: it takes tensors
/// that are not dense.
[[nodiscard]] bool edge_applies(std::size_t edge, const System& system, std::string_view form, bool strided);

}  // namespace samestate
