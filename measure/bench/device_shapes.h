#pragma once

#include <span>
#include <string_view>

namespace samestate {

/// A call of a system of named tensors that fills a GPU, as part of a case line.
struct DeviceShape {
  std::string_view system, sizes;
};

/// At least one shape per system: the widths of a public model with many short sequences, so that the
/// device's time comes from bytes or products and not from a launch, while the judge, which looks at some of
/// them, takes seconds.
[[nodiscard]] std::span<const DeviceShape> device_shapes();

}  // namespace samestate
