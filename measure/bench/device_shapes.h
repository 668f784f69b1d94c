#pragma once

#include <span>
#include <string_view>

namespace samestate {

/// A call of a system of named tensors that fills a GPU, as a part of a case line.
struct DeviceShape {
  std::string_view system, sizes;
};

/// One or more a system: the widths of a public model, and so many short sequences that the device's time is that of
/// bytes or products, and not of a launch, while the judge, which takes some of them, takes seconds.
[[nodiscard]] std::span<const DeviceShape> device_shapes();

}  // namespace samestate
