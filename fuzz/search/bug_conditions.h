#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/cases/system.h"

namespace samestate {

/// A condition under which kernels are known to break, from the list "Generators must reach" of
/// docs/theory/bugs.md.
struct Edge {
  std::string_view name;
  std::string_view summary;
};

/// At most 64; bit i of edges_of belongs to the i-th.
[[nodiscard]] std::span<const Edge> edges();

/// The edges that a case reaches, determined from its data if they are about data. Throws Error for an
/// invalid case.
[[nodiscard]] std::uint64_t edges_of(const Case& c);

/// True if some case of a kernel of this system and form could reach the edge. `strided`: it accepts tensors
/// that are not dense.
[[nodiscard]] bool edge_applies(std::size_t edge, const System& system, std::string_view form, bool strided);

}  // namespace samestate
