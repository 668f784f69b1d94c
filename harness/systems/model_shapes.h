#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace samestate {

/// A standard shape of a system of named tensors; sizes that it does not name are the row's standard ones.
struct ModelShape {
  std::string_view system;
  std::int64_t B, T;
  std::vector<std::pair<std::string_view, std::int64_t>> sizes;
};

/// Widths of public models, a row or more a system, and so many tokens that data, CPU kernel and judge take
/// seconds: the running error of a layer costs some hundred times what its kernel does.
[[nodiscard]] std::span<const ModelShape> model_shapes();

}  // namespace samestate
