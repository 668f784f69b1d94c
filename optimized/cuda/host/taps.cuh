#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimized/cuda/host/grid.cuh"
#include "optimized/cuda/pointwise/pointwise.cuh"

/// Copies what a layer hands out of its workspace under taps=1 (docs/plugins.md, Taps): the copies come after
/// the launches that wrote it and before one that overwrites it. A call without taps makes no copies and the
/// same launches as without this file.
namespace samestate::cuda {

/// One extent of rows that are copied, and how far apart its steps lie in what is copied and in the tap, in elements.
struct TapAxis {
  std::int64_t count = 1;
  std::int64_t from = 0;
  std::int64_t to = 0;
};

/// Rows of `columns` neighbouring elements, by up to three extents, into a tap. T: an operand, float or int32.
template <class T>
struct TapParameters {
  const T* from = nullptr;
  float* to = nullptr;
  TapAxis axes[3];
  std::int64_t columns = 0;
  std::int64_t first = 0;  ///< column of the tap's rows where they begin
  /// for each step of the first extent, the step that is copied; null means itself
  const std::int32_t* place_of = nullptr;
  /// for each step of the first extent: 0 means that its rows are read as zero, whatever memory holds; null
  /// means that none is
  const float* mask = nullptr;
};

template <class T>
struct TappedElement {
  using Parameters = TapParameters<T>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.axes[0].count * p.axes[1].count * p.axes[2].count * p.columns;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const std::int64_t row = item / p.columns, column = item % p.columns;
    const std::int64_t of_two = row / p.axes[2].count, at2 = row % p.axes[2].count;
    const std::int64_t at0 = of_two / p.axes[1].count, at1 = of_two % p.axes[1].count;
    const std::int64_t place = p.place_of != nullptr ? p.place_of[at0] : at0;
    const T x = p.from[place * p.axes[0].from + at1 * p.axes[1].from + at2 * p.axes[2].from + column];
    float value;
    if constexpr (std::is_same_v<T, std::int32_t>) {
      value = static_cast<float>(x);
    } else {
      value = widen(x);
    }
    if (p.mask != nullptr && p.mask[at0] == 0.0F) value = 0.0F;
    p.to[at0 * p.axes[0].to + at1 * p.axes[1].to + at2 * p.axes[2].to + p.first + column] = value;
  }
};

/// Rows that lie `from_stride` apart, to columns from `first` on of rows that lie `to_stride` apart.
template <class T>
[[nodiscard]] TapParameters<T> tap_rows(const T* from, std::int64_t rows, std::int64_t columns,
                                        std::int64_t from_stride, std::int64_t to_stride,
                                        std::int64_t first = 0) {
  return {from, nullptr, {{rows, from_stride, to_stride}}, columns, first};
}
/// All of a dense matrix.
template <class T>
[[nodiscard]] TapParameters<T> tap_all(const T* from, std::int64_t rows, std::int64_t columns) {
  return tap_rows(from, rows, columns, columns, columns);
}

/// Launches that write taps, in their order; of a call without taps none.
class TapLaunches {
 public:
  template <class Item>
  void add(typename Item::Parameters p) {
    launches_.emplace_back([p](cudaStream_t stream) { EachThread<Item>::launch(p, stream); });
  }
  void enqueue(cudaStream_t stream) const {
    for (const auto& launch : launches_) launch(stream);
  }

 private:
  std::vector<std::function<void(cudaStream_t)>> launches_;
};

}  // namespace samestate::cuda
