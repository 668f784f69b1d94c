#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "fixtures/models.h"
#include "harness/cases/system.h"

namespace samestate {

/// The sizes that a layer of a public model gives a system, on one of `divided` devices that share the
/// layer's heads, expert columns or channels (tensor parallelism).
struct ModelSizes {
  const Model* model = nullptr;
  std::int64_t divided = 1;
  std::vector<std::pair<std::string_view, std::int64_t>> sizes;
  bool normalises = false;  ///< the layer normalises q and k inside its kernel
};

/// Every layer of the catalogue (fixtures/models.h) that contains the system, undivided and, if the division
/// leaves whole heads, divided among 2, 4 and 8 devices. Layers whose sizes the system does not support, and
/// equal sizes of one model, are left out.
[[nodiscard]] std::vector<ModelSizes> model_sizes(const System& system);

}  // namespace samestate
