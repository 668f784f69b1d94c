#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "reference/axis.h"
#include "reference/error.h"
#include "reference/view.h"

/// A tensor as kernels of all systems receive it: with its name, type, shape, strides and role.
namespace samestate {

/// The element type of a tensor in memory.
enum class Dtype { fp32, bf16, fp16, int32, int64 };

/// How a kernel uses a tensor. Inputs are input or weight, outputs are output or in_place.
enum class TensorRole {
  input,    ///< read; belongs to the sequences of the call
  weight,   ///< read; the same in every call and for every sequence
  output,   ///< written: every element that belongs to a sequence, and no others
  in_place  ///< written like an output, in the memory of an input of the same call
};

/// True if elements of that shape, with those strides, are contiguous in row-major order.
[[nodiscard]] inline bool is_row_major(std::span<const std::int64_t> shape,
                                       std::span<const std::int64_t> stride) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return true;
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0; step *= shape[d]) {
    if (shape[d] > 1 && stride[d] != step) return false;
  }
  return true;
}

/// One tensor of a call.
struct CallTensor {
  std::string_view name = {};
  TensorRole role = TensorRole::input;
  Dtype dtype = Dtype::fp32;
  std::vector<std::int64_t> shape = {};
  std::vector<std::int64_t> stride = {};  ///< counted in elements
  void* data = nullptr;                   ///< null if the tensor is absent
  Axis axis = Axis::tokens;  ///< how the tensor is divided among calls, and among the sequences of a packed
                             ///< batch
  int token_dimension = -1;  ///< the dimension that counts tokens; -1 if there is none
  bool indices = false;      ///< its values are positions in another tensor, such as slots of a pool

  [[nodiscard]] bool dense() const { return is_row_major(shape, stride); }

  /// The tensor as a view with elements T: float is fp32, std::uint16_t holds the bits of bf16 or fp16.
  /// Extents beyond the first `Rank` have to be 1, so [B, T, Hv, 1] can be viewed with rank 3 and [B, T, Hv,
  /// dk] cannot. The view is absent if the tensor is. Throws Error, naming tensor, shape, rank and dtype, if
  /// the tensor has another rank or dtype.
  template <class T, std::size_t Rank>
  [[nodiscard]] View<T, Rank> view() const {
    if (data == nullptr) return {};
    const bool rank_fits =
        shape.size() >= Rank && std::all_of(shape.begin() + Rank, shape.end(), [](auto n) { return n == 1; });
    if (!rank_fits || !holds<std::remove_const_t<T>>()) refuse(Rank, sizeof(T));
    View<T, Rank> out{static_cast<T*>(data), {}, {}};
    std::copy_n(shape.begin(), Rank, out.shape.begin());
    std::copy_n(stride.begin(), Rank, out.stride.begin());
    return out;
  }

 private:
  template <class T>
  [[nodiscard]] bool holds() const {
    if constexpr (std::is_same_v<T, float>) return dtype == Dtype::fp32;
    if constexpr (std::is_same_v<T, std::uint16_t>) return dtype == Dtype::bf16 || dtype == Dtype::fp16;
    if constexpr (std::is_same_v<T, std::int32_t>) return dtype == Dtype::int32;
    if constexpr (std::is_same_v<T, std::int64_t>) return dtype == Dtype::int64;
    return false;
  }
  [[noreturn]] void refuse(std::size_t rank, std::size_t bytes) const {
    constexpr const char* kNames[] = {"fp32", "bf16", "fp16", "int32", "int64"};
    std::string extents;
    for (const std::int64_t n : shape) extents += (extents.empty() ? "" : ", ") + std::to_string(n);
    throw Error("tensor " + std::string(name) + " is " + kNames[static_cast<int>(dtype)] + " [" + extents +
                "], and the kernel asks for rank " + std::to_string(rank) + " of elements of " +
                std::to_string(bytes) + " bytes; ask for its own rank and type, or declare a limit");
  }
};

}  // namespace samestate
