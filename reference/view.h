#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace samestate {

/// A strided window on memory that it does not own. Strides count elements, not bytes, and may be zero
/// (broadcast). A view whose `data` is null is absent; optional tensors are passed that way.
template <class T, std::size_t Rank>
struct View {
  T* data = nullptr;
  std::array<std::int64_t, Rank> shape{};
  std::array<std::int64_t, Rank> stride{};

  [[nodiscard]] bool present() const { return data != nullptr; }

  [[nodiscard]] std::int64_t size() const {
    std::int64_t count = 1;
    for (std::int64_t extent : shape) count *= extent;
    return count;
  }

  template <class... Index>
  [[nodiscard]] T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank, "one index per dimension");
    const std::array<std::int64_t, Rank> at{static_cast<std::int64_t>(index)...};
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < Rank; ++d) offset += at[d] * stride[d];
    return data[offset];
  }

  /// The same memory, read only.
  operator View<const T, Rank>() const requires(!std::is_const_v<T>) { return {data, shape, stride}; }

  /// The elements [begin, end) along dimension `d`; no copy.
  [[nodiscard]] View slice(std::size_t d, std::int64_t begin, std::int64_t end) const {
    View part = *this;
    if (part.data) part.data += begin * stride[d];
    part.shape[d] = end - begin;
    return part;
  }
};

/// The view of a dense row-major array (last dimension innermost).
template <class T, std::size_t Rank>
[[nodiscard]] View<T, Rank> row_major(T* data, std::array<std::int64_t, Rank> shape) {
  View<T, Rank> view{data, shape, {}};
  std::int64_t step = 1;
  for (std::size_t d = Rank; d-- > 0;) {
    view.stride[d] = step;
    step *= shape[d];
  }
  return view;
}

}  // namespace samestate
