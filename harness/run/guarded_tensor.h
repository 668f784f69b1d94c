#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "harness/cases/layout.h"
#include "oracles/systems/operator.h"
#include "reference/view.h"

namespace samestate {

/// A strided window of any rank on memory that it does not own, with strides in elements; absent if data is
/// null.
struct StridedTensor {
  float* data = nullptr;
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> stride;

  [[nodiscard]] std::int64_t size() const;
  /// True if its elements are contiguous in row-major order.
  [[nodiscard]] bool dense() const;
  /// The elements [begin, end) along dimension `d`; no copy.
  [[nodiscard]] StridedTensor slice(std::size_t d, std::int64_t begin, std::int64_t end) const;
  /// The tensor as a view of fixed rank, its first `Rank` dimensions; the others must be 1.
  template <std::size_t Rank>
  [[nodiscard]] View<float, Rank> view() const {
    View<float, Rank> out{data, {}, {}};
    for (std::size_t d = 0; d < Rank; ++d) out.shape[d] = shape.at(d), out.stride[d] = stride.at(d);
    return out;
  }
};

/// Calls visitor(element) in row-major order.
template <class Visitor>
void visit(const StridedTensor& x, Visitor&& visitor, std::size_t d = 0, std::int64_t offset = 0) {
  if (d == 0 && x.dense()) {
    for (std::int64_t i = 0, size = x.size(); i < size; ++i) visitor(x.data[i]);
  } else if (d == x.shape.size()) {
    visitor(x.data[offset]);
  } else if (d + 1 == x.shape.size()) {
    for (std::int64_t i = 0; i < x.shape[d]; ++i) visitor(x.data[offset + i * x.stride[d]]);
  } else {
    for (std::int64_t i = 0; i < x.shape[d]; ++i) visit(x, visitor, d + 1, offset + i * x.stride[d]);
  }
}

/// The memory that a tensor needs.
struct TensorPlace {
  std::vector<std::int64_t> shape;
  Axis axis = Axis::state;
  bool batched = true;
  std::int64_t lead = 0, slack = 0;  ///< how many of its first and last tokens belong to no sequence
};

/// A tensor in pages of its own (harness/run/guarded_memory.h) and, depending on its layout, with gaps inside
/// it or other tensors between its rows. Elements of the pages that belong neither to it nor to another
/// tensor are kOutside, and so are those of tokens that belong to no sequence. It starts at its first page or
/// ends at its last one, depending on its number and the turn; with page_end it ends exactly there. With far,
/// the rows of one dimension (batch, tokens or heads, for states the first two; chosen by number and extents)
/// have separate address ranges, the last more than 2^31 elements after the first, and 2^31 elements before
/// the first row belong to it, so that an offset wrapped to 32 bits hits no other tensor.
class GuardedTensor {
 public:
  /// In a buffer of its own. Throws Unavailable (harness/run/call_loop.h) if the machine does not provide
  /// that much address space.
  GuardedTensor(std::vector<std::int64_t> shape, Layout layout)
      : GuardedTensor(TensorPlace{std::move(shape)}, layout, 0) {}
  /// The tensor with that number among those of a call (Layout::mixed). `turn` determines the side on which
  /// it borders inaccessible pages.
  GuardedTensor(const TensorPlace& place, Layout layout, std::size_t number, std::uint64_t turn = 0);

  /// Copies from and to row-major order. Tokens that belong to no sequence are left out, here and below.
  void set(const std::vector<float>& dense);
  [[nodiscard]] std::vector<float> get() const;
  [[nodiscard]] bool same_as(const std::vector<float>& dense) const;

  /// Declares it an input with that name and makes its memory read-only: a kernel that writes to it is
  /// detected even if it restores the old value before it returns.
  void close_input(std::string_view name);
  /// Declares it an output with that name.
  void open_output(std::string_view name);

  /// Fills an output with stale values before a call, and reads it afterwards: elements that were not written
  /// are kPoison.
  void spoil();
  [[nodiscard]] std::vector<float> written() const;

  /// The tensor as the kernel sees it.
  [[nodiscard]] const StridedTensor& tensor() const { return tensor_; }
  template <std::size_t Rank>
  [[nodiscard]] View<float, Rank> view() const {
    return tensor_.view<Rank>();
  }

  /// Throws Trespass (harness/run/call_loop.h) if the kernel touched inaccessible address space or wrote to
  /// an input, or if an element around the tensor or one of a token that belongs to no sequence has changed.
  /// For tensors in one buffer, the first one checks for all.
  void check_surroundings(std::string_view name) const;

 private:
  friend std::vector<GuardedTensor> guarded_tensors(const std::vector<TensorPlace>& places, Layout layout,
                                                    std::size_t first, std::uint64_t turn);
  struct Buffer;
  GuardedTensor() = default;
  [[nodiscard]] std::shared_ptr<Buffer> far_rows(std::size_t far, bool ends_page);
  void own(const TensorPlace& place);
  void lie_in(std::shared_ptr<Buffer> buffer, std::int64_t offset);
  void name(std::string_view name, bool input);
  void check_unowned(std::string_view name) const;

  std::shared_ptr<Buffer> buffer_;
  StridedTensor tensor_;
  StridedTensor owned_;              ///< the part of it that holds the tokens of sequences
  std::size_t token_dimension_ = 0;  ///< used if there are tokens of no sequence
  std::size_t far_ = 0;              ///< the dimension whose rows are blocks
};

/// The tensors on one side of a call, in order; `first` is the number of the first one among all tensors of
/// the call.
[[nodiscard]] std::vector<GuardedTensor> guarded_tensors(const std::vector<TensorPlace>& places,
                                                         Layout layout, std::size_t first,
                                                         std::uint64_t turn = 0);

}  // namespace samestate
