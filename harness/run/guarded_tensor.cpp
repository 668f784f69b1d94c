#include "harness/run/guarded_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include "harness/run/call_loop.h"
#include "harness/run/guard.h"
#include "harness/run/guarded_memory.h"

namespace samestate {
namespace {

/// Returns the index of the first element that is not kOutside; `all.size()` if there is none.
std::size_t first_touched(std::span<const float> all) {
  constexpr std::size_t kAtOnce = kPageBytes / sizeof(float);
  static const std::vector<float> outside(kAtOnce, kOutside);
  for (std::size_t begin = 0; begin < all.size(); begin += kAtOnce) {
    const std::span<const float> part = all.subspan(begin, std::min(kAtOnce, all.size() - begin));
    if (std::memcmp(part.data(), outside.data(), part.size_bytes()) == 0) continue;
    for (std::size_t i = 0; i < part.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(part[i]) != std::bit_cast<std::uint32_t>(kOutside)) return begin + i;
    }
  }
  return all.size();
}

constexpr std::int64_t kOverflow = std::int64_t{1} << 31;  // the first offset that an int cannot hold
constexpr std::int64_t kPage = kPageBytes / sizeof(float);

std::int64_t whole_pages(std::int64_t elements) { return (elements + kPage - 1) / kPage * kPage; }

/// An empty dimension counts as one in the strides, as in PyTorch: otherwise the batch's stride would be 0
/// without tokens.
std::int64_t extent_of(const std::vector<std::int64_t>& shape, std::size_t d) {
  return std::max<std::int64_t>(shape[d], 1);
}

/// In the mixed layout every second tensor is dense, by its number and extents: a kernel that checks one
/// tensor for contiguous rows and assumes the answer for all then meets both kinds side by side, either way
/// round.
bool is_dense(Layout layout, std::size_t number, const std::vector<std::int64_t>& shape) {
  if (layout != Layout::mixed) return false;
  std::uint64_t hash = 0x9e3779b97f4a7c15U * (number + 1);
  for (const std::int64_t extent : shape)
    hash = (hash ^ static_cast<std::uint64_t>(extent)) * 0xbf58476d1ce4e5b9U;
  return (hash >> 40 & 1) != 0;
}

/// Returns the elements between the rows of dimension d of tensor `number` of a call; `columns` means that d
/// is the innermost.
std::int64_t gap_of(Layout layout, std::size_t number, std::size_t d, bool columns) {
  if (layout == Layout::padded) return 3;
  // The rows of every second tensor stay aligned, as for a kernel that moves 16 bytes at a time.
  if (layout == Layout::sliced) return !columns ? 0 : number % 2 == 0 ? 8 : 3;
  // 5 generates the numbers modulo 11, so that no two of eleven tensors have the same gap.
  return layout == Layout::mixed ? static_cast<std::int64_t>((5 * number + 3 * d + 1) % 11) : 0;
}

/// Returns the dimensions from the slowest to the fastest.
std::vector<std::size_t> order_of(const TensorPlace& place, Layout layout) {
  std::vector<std::size_t> order(place.shape.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (layout != Layout::permuted || order.size() < 3) return order;
  const bool heads = place.batched && (place.axis == Axis::tokens || place.axis == Axis::prefix);
  const std::size_t first = heads && order.size() > 3 ? 1 : 0;
  std::swap(order[first], order[first + 1]);
  return order;
}

std::vector<std::int64_t> strides_of(const TensorPlace& place, Layout layout, std::size_t number) {
  const std::vector<std::size_t> order = order_of(place, layout);
  const bool dense = is_dense(layout, number, place.shape);
  std::vector<std::int64_t> stride(order.size(), 1);
  for (std::size_t i = order.size(); i-- > 1;) {
    const std::size_t inner = order[i];
    stride[order[i - 1]] = extent_of(place.shape, inner) * stride[inner] +
                           (dense ? 0 : gap_of(layout, number, inner, i + 1 == order.size()));
  }
  return stride;
}

/// Returns the dimension whose rows are far apart: batch, tokens or heads, or a state's sequences or heads,
/// with two rows or more. The tensor's number and extents choose among several, so that the tensors of one
/// call differ.
std::optional<std::size_t> far_dimension(const TensorPlace& place, std::size_t number) {
  const std::size_t leading = place.axis == Axis::state ? 2 : 3;
  std::vector<std::size_t> fit;
  // It is never the innermost one: what a kernel reads at once lies together.
  for (std::size_t d = 0; d < leading && d + 1 < place.shape.size(); ++d) {
    if (place.shape[d] > 1) fit.push_back(d);
  }
  if (fit.empty()) return {};
  const std::int64_t extents = std::reduce(place.shape.begin(), place.shape.end());
  return fit[(number + static_cast<std::size_t>(extents)) % fit.size()];
}

/// Returns the elements from the first to just past the last.
std::int64_t span_of(const StridedTensor& x) {
  if (x.size() == 0) return 0;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < x.shape.size(); ++d) last += (x.shape[d] - 1) * x.stride[d];
  return last + 1;
}

/// Returns how many leading dimensions a tensor shares with others in the rows of one buffer; 0 if it shares
/// none.
std::size_t shared_dimensions(const TensorPlace& place) {
  const std::size_t shared = place.axis == Axis::tokens && place.batched ? 2
                             : place.axis == Axis::state                 ? 1
                                                                         : 0;
  return place.shape.size() > shared ? shared : 0;
}

std::int64_t product(const std::vector<std::int64_t>& shape, std::size_t begin, std::size_t end) {
  std::int64_t size = 1;
  for (std::size_t d = begin; d < end; ++d) size *= extent_of(shape, d);
  return size;
}

std::vector<MemoryBlock> one_block(std::int64_t elements) {
  return {{0, static_cast<std::size_t>(elements) * sizeof(float)}};
}

/// With page_end the tensor ends at the page's last element; otherwise it is aligned as allocators align
/// memory.
MemoryPlace place_of(Layout layout, bool ends_page) {
  MemoryPlace place;
  place.ends_page = ends_page;
  if (layout == Layout::page_end) place.alignment = sizeof(float);
  return place;
}

}  // namespace

std::int64_t StridedTensor::size() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

bool StridedTensor::dense() const {
  if (size() == 0) return true;
  std::int64_t step = 1;
  for (std::size_t d = shape.size(); d-- > 0; step *= shape[d]) {
    if (shape[d] > 1 && stride[d] != step) return false;
  }
  return true;
}

StridedTensor StridedTensor::slice(std::size_t d, std::int64_t begin, std::int64_t end) const {
  StridedTensor part = *this;
  if (part.data) part.data += begin * stride.at(d);
  part.shape.at(d) = end - begin;
  return part;
}

/// The memory of one tensor, or of several tensors whose rows lie side by side.
struct GuardedTensor::Buffer {
  Buffer(std::vector<MemoryBlock> blocks, const MemoryPlace& place) : memory(std::move(blocks), place) {
    for (std::size_t i = 0; i < memory.blocks().size(); ++i) std::ranges::fill(elements(i), kOutside);
  }
  /// Returns the pages of block i.
  [[nodiscard]] std::span<float> elements(std::size_t i) const {
    const std::span<std::byte> pages = memory.pages(i);
    return {reinterpret_cast<float*>(pages.data()), pages.size() / sizeof(float)};
  }
  [[nodiscard]] float* first() const { return reinterpret_cast<float*>(memory.data()); }

  GuardedMemory memory;
  std::vector<StridedTensor> owned;
  std::string names;
};

GuardedTensor::GuardedTensor(const TensorPlace& place, Layout layout, std::size_t number,
                             std::uint64_t turn) {
  tensor_.shape = place.shape;
  tensor_.stride = strides_of(place, layout, number);
  const bool ends_page = layout == Layout::page_end || ((number + turn) & 1) != 0;
  std::optional<std::size_t> far;
  if (layout == Layout::far && tensor_.size() > 0) far = far_dimension(place, number);
  lie_in(far ? far_rows(*far, ends_page)
             : std::make_shared<Buffer>(one_block(span_of(tensor_)), place_of(layout, ends_page)),
         0);
  own(place);
}

void GuardedTensor::lie_in(std::shared_ptr<Buffer> buffer, std::int64_t offset) {
  buffer_ = std::move(buffer);
  tensor_.data = buffer_->first() + offset;
}

void GuardedTensor::own(const TensorPlace& place) {
  owned_ = tensor_;
  if ((place.axis == Axis::tokens || place.axis == Axis::prefix) && place.lead + place.slack > 0) {
    token_dimension_ = place.batched ? 1 : 0;
    owned_ = tensor_.slice(token_dimension_, place.lead, tensor_.shape[token_dimension_] - place.slack);
  }
  buffer_->owned.push_back(owned_);
}

std::vector<GuardedTensor> guarded_tensors(const std::vector<TensorPlace>& places, Layout layout,
                                           std::size_t first, std::uint64_t turn) {
  std::vector<GuardedTensor> out;
  out.reserve(places.size());
  for (std::size_t i = 0; i < places.size(); ++i) {
    const TensorPlace& place = places[i];
    const std::size_t shared = shared_dimensions(place);
    if (layout != Layout::fused || shared == 0) {
      out.push_back(GuardedTensor(place, layout, first + i, turn));
      continue;
    }
    // Where this tensor's row begins in the row of all tensors, and how long it is.
    std::int64_t row = 0, begin = 0;
    std::size_t leader = i;
    for (std::size_t j = 0; j < places.size(); ++j) {
      const std::vector<std::int64_t>& other = places[j].shape;
      if (shared_dimensions(places[j]) != shared ||
          !std::equal(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(shared),
                      place.shape.begin()))
        continue;
      leader = std::min(leader, j);
      if (j == i) begin = row;
      row += product(other, shared, other.size());
    }
    GuardedTensor x;
    x.tensor_.shape = place.shape;
    x.tensor_.stride = strides_of(place, Layout::dense, 0);
    x.tensor_.stride[shared - 1] = row;
    if (shared == 2) x.tensor_.stride[0] = extent_of(place.shape, 1) * row;
    x.lie_in(leader == i
                 ? std::make_shared<GuardedTensor::Buffer>(one_block(product(place.shape, 0, shared) * row),
                                                           place_of(layout, ((first + i + turn) & 1) != 0))
                 : out[leader].buffer_,
             begin);
    x.own(place);
    out.push_back(std::move(x));
  }
  return out;
}

std::shared_ptr<GuardedTensor::Buffer> GuardedTensor::far_rows(std::size_t far, bool ends_page) {
  const std::int64_t rows = tensor_.shape[far];
  far_ = far;
  // One row of it is a block, with the other dimensions in their order.
  std::int64_t size = 1;
  for (std::size_t d = tensor_.shape.size(); d-- > 0;) {
    if (d == far) continue;
    tensor_.stride[d] = size;
    size *= tensor_.shape[d];
  }
  // The last row begins beyond 2^31 elements; for the batch dimension every row after the first does.
  const std::int64_t step =
      whole_pages(size + 2 * kPage) + whole_pages(far == 0 ? kOverflow : kOverflow / (rows - 1));
  tensor_.stride[far] = step;
  std::vector<MemoryBlock> blocks(static_cast<std::size_t>(rows));
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i] = {i * static_cast<std::size_t>(step) * sizeof(float),
                 static_cast<std::size_t>(size) * sizeof(float)};
  MemoryPlace place = place_of(Layout::far, ends_page);
  place.unused_before = static_cast<std::size_t>(kOverflow) * sizeof(float);
  return std::make_shared<Buffer>(std::move(blocks), place);
}

void GuardedTensor::set(const std::vector<float>& dense) {
  std::size_t from = 0;
  visit(owned_, [&](float& x) { x = dense[from++]; });
}

void GuardedTensor::name(std::string_view name, bool input) {
  buffer_->names += (buffer_->names.empty() ? "" : ", ") + std::string(name);
  buffer_->memory.named(buffer_->names, input);
}

void GuardedTensor::close_input(std::string_view name) {
  this->name(name, true);
  buffer_->memory.close();
}

void GuardedTensor::open_output(std::string_view name) { this->name(name, false); }

std::vector<float> GuardedTensor::get() const {
  std::vector<float> dense;
  dense.reserve(static_cast<std::size_t>(owned_.size()));
  visit(owned_, [&](float& x) { dense.push_back(x); });
  return dense;
}

bool GuardedTensor::same_as(const std::vector<float>& dense) const {
  const std::vector<float> now = get();
  return now.size() == dense.size() &&
         (now.empty() || std::memcmp(now.data(), dense.data(), now.size() * sizeof(float)) == 0);
}

void GuardedTensor::spoil() {
  std::int64_t i = 0;
  visit(owned_, [&](float& x) { x = stale(i++); });
}

std::vector<float> GuardedTensor::written() const {
  std::vector<float> dense = get();
  mark_unwritten(dense);
  return dense;
}

void GuardedTensor::check_unowned(std::string_view name) const {
  const std::size_t d = token_dimension_;
  if (tensor_.shape[d] == owned_.shape[d]) return;
  const std::int64_t lead = (owned_.data - tensor_.data) / tensor_.stride[d];
  for (std::int64_t t = 0; t < tensor_.shape[d]; ++t) {
    if (t >= lead && t < lead + owned_.shape[d]) continue;
    visit(tensor_.slice(d, t, t + 1), [&](const float& x) {
      if (std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(kOutside)) return;
      throw Trespass(fmt::format("the kernel wrote {} of token {}, which belongs to no sequence", name, t));
    });
  }
}

void GuardedTensor::check_surroundings(std::string_view name) const {
  if (const std::string what = buffer_->memory.trespass(); !what.empty())
    throw Trespass("the kernel " + what);
  if (!tensor_.shape.empty()) check_unowned(name);
  if (buffer_->owned.front().data != owned_.data) return;
  const float* const first = buffer_->first();
  const MemoryBlock& last = buffer_->memory.blocks().back();
  const auto span = static_cast<std::int64_t>((last.begin + last.bytes) / sizeof(float));
  const auto check = [&](std::span<const float> around, const float* where) {
    const std::size_t i = first_touched(around);
    if (i == around.size()) return;
    const std::string shares = buffer_->owned.size() > 1 ? " and what shares its rows" : "";
    throw Trespass("the kernel wrote " +
                   outside(std::string(name) + shares, where + static_cast<std::ptrdiff_t>(i) - first, span));
  };
  const std::vector<MemoryBlock>& blocks = buffer_->memory.blocks();
  std::vector<float> copy;
  for (std::size_t b = 0; b < blocks.size(); ++b) {
    const std::span<float> all = buffer_->elements(b);
    const float* const begin = first + blocks[b].begin / sizeof(float);
    const auto size = static_cast<std::ptrdiff_t>(blocks[b].bytes / sizeof(float));
    check({all.data(), begin}, all.data());
    check({begin + size, all.data() + all.size()}, begin + size);
    if (blocks.size() == 1 && owned_.size() == size) continue;
    // These are gaps and tokens of no sequence.
    copy.assign(begin, begin + size);
    const auto leave_out = [&](StridedTensor inside, std::ptrdiff_t at) {
      inside.data = copy.data() + at;
      visit(inside, [](float& x) { x = kOutside; });
    };
    if (blocks.size() > 1) {
      StridedTensor row = tensor_;
      row.shape[far_] = 1;
      leave_out(std::move(row), 0);
    } else {
      for (const StridedTensor& inside : buffer_->owned) leave_out(inside, inside.data - begin);
    }
    check(copy, begin);
  }
}

}  // namespace samestate
