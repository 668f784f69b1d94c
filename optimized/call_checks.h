#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "reference/error.h"
#include "reference/view.h"

/// Checks of the tensors that a call of the recurrent family has, forward and backward.
namespace samestate::calls::checks {

/// Throws Error with the message unless the condition holds.
inline void require(bool holds, const std::string& message) {
  if (!holds) throw Error(message);
}

/// The extents as [2, 5, 4].
template <std::size_t Rank>
[[nodiscard]] std::string text(const std::array<std::int64_t, Rank>& shape) {
  std::string list = "[";
  for (std::size_t d = 0; d < Rank; ++d) list += (d ? ", " : "") + std::to_string(shape[d]);
  return list + "]";
}

/// Throws Error, naming the tensor, for another shape. A tensor that holds elements needs memory; an optional one may be
/// absent.
template <class T, std::size_t Rank>
void require_shape(const std::string& name, const View<T, Rank>& view,
                   const std::array<std::int64_t, Rank>& shape, bool optional) {
  if (!view.present()) {
    std::int64_t count = 1;
    for (const std::int64_t extent : shape) count *= extent;
    return require(optional || count == 0, name + " is absent; it must be " + text(shape));
  }
  require(view.shape == shape, name + " is " + text(view.shape) + "; q, v and the sequences make it " +
                                   text(shape) + "; pass that shape");
}

/// Throws Error, naming the tensor, if two elements of an output lie in one place.
template <class T, std::size_t Rank>
void require_writable(const std::string& name, const View<T, Rank>& view) {
  // No element of an empty tensor is written, so none is written twice.
  if (view.present() && view.size() == 0) return;
  for (std::size_t d = 0; d < Rank; ++d) {
    require(!view.present() || view.shape[d] <= 1 || view.stride[d] != 0,
            name + " has stride 0 in dimension " + std::to_string(d) + " of extent " +
                std::to_string(view.shape[d]) +
                "; an output may not be broadcast, give it memory of its own");
  }
}

/// Throws Error, naming the tensor, unless the elements of a row are contiguous (optimized/kernel.h).
template <class T>
void require_rows(const std::string& name, const View<T, 4>& view) {
  require(!view.present() || view.size() == 0 || view.shape[3] == 1 || view.stride[3] == 1,
          name + " has stride " + std::to_string(view.stride[3]) +
              " in its last dimension; it must be 1, pass a copy");
}

}  // namespace samestate::calls::checks
