#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "reference/view.h"

namespace samestate {

/// How a kernel sees the tensors of a call.
enum class Layout {
  dense,
  padded,  ///< strided views: unused elements between tokens and heads
  far      ///< rows so far apart that their offsets do not fit 32 bits (BUGS M38)
};

/// dense, padded or far. Throws Error for another name.
[[nodiscard]] Layout layout_named(std::string_view name);

/// A tensor of rank 4 in a buffer of its own with guards around it; padded: with gaps inside it. far: the
/// rows of the first dimension that has two or more lie in address space of their own, the last one more than
/// 2^31 elements after the first; of it only what is touched becomes memory, and 2^31 elements before the
/// first row belong to it, so that an offset wrapped to 32 bits hits no other tensor.
class GuardedTensor {
 public:
  /// Throws Unavailable (harness/run/runner.h) where the machine does not give that much address space.
  GuardedTensor(std::array<std::int64_t, 4> shape, Layout layout);

  /// From and to row-major order.
  void set(const std::vector<float>& dense);
  [[nodiscard]] std::vector<float> get() const;
  [[nodiscard]] bool same_as(const std::vector<float>& dense) const;

  /// Fills an output before a call, and reads it after: elements that were not written are kPoison.
  void spoil();
  [[nodiscard]] std::vector<float> written() const;

  [[nodiscard]] const View<float, 4>& view() const { return view_; }

  /// Throws Trespass (harness/run/runner.h) where an element around the tensor changed.
  void check_surroundings(const char* name) const;

 private:
  struct Range;
  struct Unmap {
    void operator()(Range* range) const;
  };
  void reserve(std::size_t far);

  std::vector<float> storage_;
  std::unique_ptr<Range, Unmap> range_;
  View<float, 4> view_;
  /// Consecutive elements with guards around them: one, or one a row.
  std::int64_t blocks_ = 1, block_size_ = 0, block_stride_ = 0;
};

}  // namespace samestate
