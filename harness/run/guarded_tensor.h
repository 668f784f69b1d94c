#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "harness/cases/layout.h"
#include "reference/view.h"

namespace samestate {

/// A strided window of any rank on memory owned elsewhere, strides in elements; data null: absent.
struct StridedTensor {
  float* data = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;

  [[nodiscard]] std::int64_t size() const;
  /// Whether its elements lie together in row-major order.
  [[nodiscard]] bool dense() const;
  /// The elements [begin, end) along dimension `d`; no copy.
  [[nodiscard]] StridedTensor slice(std::size_t d, std::int64_t begin, std::int64_t end) const;
  /// As a view of fixed rank: the first `Rank` dimensions, those beyond them must be 1.
  template <std::size_t Rank>
  [[nodiscard]] View<float, Rank> view() const {
    View<float, Rank> out{data, {}, {}};
    for (std::size_t d = 0; d < Rank; ++d) out.shape[d] = shape.at(d), out.stride[d] = stride.at(d);
    return out;
  }
};

/// A tensor in a buffer of its own with guards around it; padded: with gaps inside it. far: the rows of the
/// first dimension that has two or more, of the first two, lie in address space of their own, the last one
/// more than 2^31 elements after the first; of it only what is touched becomes memory, and 2^31 elements
/// before the first row belong to it, so that an offset wrapped to 32 bits hits no other tensor.
class GuardedTensor {
 public:
  /// Throws Unavailable (harness/run/call_loop.h) where the machine does not give that much address space.
  GuardedTensor(std::vector<std::int64_t> shape, Layout layout);

  /// From and to row-major order.
  void set(const std::vector<float>& dense);
  [[nodiscard]] std::vector<float> get() const;
  [[nodiscard]] bool same_as(const std::vector<float>& dense) const;

  /// Fills an output before a call, and reads it after: elements that were not written are kPoison.
  void spoil();
  [[nodiscard]] std::vector<float> written() const;

  [[nodiscard]] const StridedTensor& tensor() const { return tensor_; }
  template <std::size_t Rank>
  [[nodiscard]] View<float, Rank> view() const {
    return tensor_.view<Rank>();
  }

  /// Throws Trespass (harness/run/call_loop.h) where an element around the tensor changed.
  void check_surroundings(std::string_view name) const;

 private:
  struct Range;
  struct Unmap {
    void operator()(Range* range) const;
  };
  void reserve(std::size_t far);

  std::vector<float> storage_;
  std::unique_ptr<Range, Unmap> range_;
  StridedTensor tensor_;
  std::size_t far_ = 0;  ///< the dimension whose rows are blocks
  /// Consecutive elements with guards around them: one, or one a row.
  std::int64_t blocks_ = 1, block_size_ = 0, block_stride_ = 0;
};

}  // namespace samestate
