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

/// What a tensor asks of memory.
struct TensorPlace {
  std::vector<std::int64_t> shape;
  Axis axis = Axis::state;
  bool batched = true;
  std::int64_t lead = 0, slack = 0;  ///< of its tokens, the first and the last: they belong to no sequence
};

/// A tensor in pages of its own (harness/run/guarded_memory.h) and, by its layout, with gaps inside it or other tensors
/// beside its rows. Elements of the pages that are neither its own nor another tensor's are kOutside, those of tokens that
/// belong to no sequence too. It begins with its first page or ends with its last one, by its number and the turn;
/// page_end: it ends with it, to the element. far: the rows of one dimension (batch, tokens or heads, of states the first two;
/// by number and extents) lie in address space of their own, the last more than 2^31 elements after the first, and 2^31
/// elements before the first row belong to it, so that an offset wrapped to 32 bits hits no other tensor.
class GuardedTensor {
 public:
  /// In a buffer of its own. Throws Unavailable (harness/run/call_loop.h) where the machine does not give that
  /// much address space.
  GuardedTensor(std::vector<std::int64_t> shape, Layout layout)
      : GuardedTensor(TensorPlace{std::move(shape)}, layout, 0) {}
  /// The one of that number among the tensors of a call (Layout::mixed). `turn`: which side of its pages it is flush with.
  GuardedTensor(const TensorPlace& place, Layout layout, std::size_t number, std::uint64_t turn = 0);

  /// From and to row-major order. Tokens that belong to no sequence are left out, here and below.
  void set(const std::vector<float>& dense);
  [[nodiscard]] std::vector<float> get() const;
  [[nodiscard]] bool same_as(const std::vector<float>& dense) const;

  /// It is an input of that name, and from now on its memory can only be read: a kernel that writes to it is seen, even one
  /// that puts the old value back before it returns.
  void close_input(std::string_view name);
  /// It is an output of that name.
  void open_output(std::string_view name);

  /// Fills an output before a call, and reads it after: elements that were not written are kPoison.
  void spoil();
  [[nodiscard]] std::vector<float> written() const;

  /// What a kernel sees.
  [[nodiscard]] const StridedTensor& tensor() const { return tensor_; }
  template <std::size_t Rank>
  [[nodiscard]] View<float, Rank> view() const {
    return tensor_.view<Rank>();
  }

  /// Throws Trespass (harness/run/call_loop.h) where the kernel touched closed address space or wrote to an input, where an
  /// element around the tensor changed, or one of a token that belongs to no sequence. Of tensors in one buffer the first
  /// speaks for all.
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
  StridedTensor owned_;              ///< of it, the tokens of sequences
  std::size_t token_dimension_ = 0;  ///< where those are fewer
  std::size_t far_ = 0;              ///< the dimension whose rows are blocks
};

/// The tensors of one side of a call, in their order; `first`: the number of the first among all of the call.
[[nodiscard]] std::vector<GuardedTensor> guarded_tensors(const std::vector<TensorPlace>& places,
                                                         Layout layout, std::size_t first,
                                                         std::uint64_t turn = 0);

}  // namespace samestate
