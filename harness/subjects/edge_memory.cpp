#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <type_traits>

#include "harness/run/call_loop.h"
#include "harness/run/sixteen_bit.h"
#include "harness/subjects/edge.h"
#include "harness/subjects/edge_parts.h"

/// The memory of a call: where its tensors lie, what is written before the call, and what is read and checked
/// after it.
namespace samestate {
namespace {

using namespace edge_detail;

/// Alignment of a device's memory; each tensor there has kPackedGap bytes around it, which are compared after
/// the call.
constexpr std::size_t kAlignment = 256, kPackedGap = 65536;
/// NaN in every format, and never an offset of a token.
constexpr int kAroundByte = 0xff;
/// Writes bf16 without checking each element separately; returns false and writes nothing if an element would
/// be rounded or is not a number.
bool write_exact_bf16(const float* values, std::int64_t count, std::byte* to) {
  std::uint32_t rounded = 0, none = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(values[i]);
    rounded |= bits & 0xffffU;
    none |= static_cast<std::uint32_t>((bits & 0x7fffffffU) > 0x7f800000U);
  }
  if ((rounded | none) != 0) return false;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(values[i]) >> 16U);
    std::memcpy(to + i * static_cast<std::int64_t>(sizeof bits), &bits, sizeof bits);
  }
  return true;
}

/// Elements at a constant distance, both in the call's tensor and in the memory.
struct Piece {
  std::int64_t from, to, count, from_step, to_step;
  [[nodiscard]] bool dense() const { return from_step == 1 && to_step == 1; }
};

/// Calls f(Piece) for all pieces in row-major order.
template <class F>
void pieces(const EdgeTensor& x, F&& f, std::size_t d = 0, std::int64_t from = 0, std::int64_t to = 0) {
  const std::vector<std::int64_t>& shape = x.call.shape;
  if (d == 0 && x.call.stride == x.memory_stride && x.call.dense()) {
    f(Piece{0, 0, x.call.size(), 1, 1});
  } else if (d + 1 == shape.size()) {
    f(Piece{from, to, shape[d], x.call.stride[d], x.memory_stride[d]});
  } else {
    for (std::int64_t i = 0; i < shape[d]; ++i)
      pieces(x, f, d + 1, from + i * x.call.stride[d], to + i * x.memory_stride[d]);
  }
}

}  // namespace

/// Places the subject's tensor in its pages as the judge's tensor lies in its own; with layout=page_end it
/// ends with the page's last element.
MemoryPlace EdgeCall::place_of(const EdgeTensor& x) const {
  MemoryPlace place;
  place.element = size_of(x.dtype);
  const auto at = reinterpret_cast<std::uintptr_t>(x.call.data);
  place.ends_page = at % kPageBytes != 0;
  if (keeps_strides_ && at % place.alignment != 0) place.alignment = place.element;
  return place;
}

void EdgeCall::make_regions() {
  std::optional<std::size_t> initial;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    EdgeTensor& x = tensors_[i];
    if (x.name == "final_state" && x.memory_stride.empty() && initial) {  // the final state is in place
      const EdgeTensor& first = tensors_[*initial];
      x.region = first.region, x.stride = first.stride, x.memory_stride = row_major_strides(x.call.shape);
      if (first.call.data != nullptr) x.memory_stride = first.memory_stride;
      regions_[x.region].only_read = false;
      continue;
    }
    x.region = regions_.size();
    if (x.name == "initial_state") initial = i;
    EdgeRegion region{x.name, x.input && !x.output, place_of(x),
                      blocks_of(x.shape, x.stride, size_of(x.dtype))};
    // A tensor that the judge does not have is flush with the opposite side from the tensor before it.
    if (!x.whole_numbers.empty() && i > 0)
      region.place.ends_page = !regions_[tensors_[i - 1].region].place.ends_page;
    // An offset that does not fit 32 bits then hits nothing when it wraps.
    if (region.blocks.size() > 1) region.place.unused_before = std::size_t{1} << 33;
    regions_.push_back(std::move(region));
  }
}

std::size_t EdgeCall::packed_bytes() const {
  std::size_t at = kPackedGap;
  for (const EdgeRegion& region : regions_) {
    const std::size_t size = region.blocks.back().begin + region.blocks.back().bytes;
    at += (size + kAlignment - 1) / kAlignment * kAlignment + kPackedGap;
  }
  return at;
}

std::vector<EdgePlace> EdgeCall::packed(std::span<std::byte> memory) const {
  std::vector<EdgePlace> places;
  std::size_t at = kPackedGap, from = 0;
  for (const EdgeRegion& region : regions_) {
    EdgePlace place{memory.data() + at, at};
    const std::size_t size = region.blocks.back().begin + region.blocks.back().bytes;
    at += (size + kAlignment - 1) / kAlignment * kAlignment + kPackedGap;
    // For blocks that lie apart, this memory has nothing in place of the gap between them.
    for (std::size_t b = 0; b < region.blocks.size(); ++b) {
      const std::size_t to = b + 1 < region.blocks.size() ? place.offset + region.blocks[b + 1].begin : at;
      place.around.push_back(memory.subspan(from, to - from));
      from = to;
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::size_t EdgeCall::in_copy(std::size_t region, std::size_t byte) const {
  const std::vector<MemoryBlock>& blocks = regions_[region].blocks;
  if (blocks.size() == 1) return begins_[region][0] + byte;
  const auto behind = std::ranges::upper_bound(blocks, byte, {}, &MemoryBlock::begin);
  const auto b = static_cast<std::size_t>(behind - blocks.begin()) - 1;
  return begins_[region][b] + byte - blocks[b].begin;
}

void EdgeCall::write(std::span<const EdgePlace> places) {
  for (const EdgePlace& place : places) {
    for (const std::span<std::byte>& around : place.around)
      std::memset(around.data(), kAroundByte, around.size());
  }
  for (const EdgeTensor& x : tensors_) {
    std::byte* const data = places[x.region].data;
    std::byte* const base = data + static_cast<std::size_t>(x.begin) * size_of(x.dtype);
    // Values that must not be read stay NaN; a null state that a kernel starts from is zero.
    if (x.input && null_slot_ == Conventions::NullSlot::none)
      each_null_row(
          x, [&](std::size_t from, std::size_t size) { std::fill_n(data + from, size, std::byte{0}); });
    for (std::size_t i = 0; i < x.whole_numbers.size(); ++i) {
      const std::int64_t wide = x.whole_numbers[i];
      const auto narrow = static_cast<std::int32_t>(wide);
      std::memcpy(base + i * size_of(x.dtype),
                  x.dtype == Dtype::int64 ? static_cast<const void*>(&wide) : &narrow, size_of(x.dtype));
    }
    // The output is another name for the initial state's memory.
    const bool again = !x.input && x.name == "final_state" &&
                       std::any_of(tensors_.begin(), tensors_.end(), [&](const EdgeTensor& other) {
                         return other.input && other.region == x.region;
                       });
    if (!x.whole_numbers.empty() || again) continue;
    if (x.input && x.name == "g" && given_ != Given{})
      put(x, base, [&](float g) { return static_cast<float>(given_.given_g(g)); });
    else if (x.input && x.name == "beta" && given_ != Given{})
      put(x, base, [&](float beta) { return static_cast<float>(given_.given_beta(beta)); });
    else if (x.input && slots_ > 0 && x.name == kSlot)
      put(x, base, [&](float slot) { return given_slot(slot); });
    else if (x.input && x.name == "q" && given_.folded_scale)
      put(x, base, [&](float q) { return static_cast<float>(given_.given_q(q, scale_)); });
    else
      put(x, base, nullptr);
  }
  written_.clear();
  begins_.assign(places.size(), {});
  for (std::size_t r = 0; r < places.size(); ++r) {
    for (std::size_t b = 0; b < places[r].around.size(); ++b) {
      const std::span<std::byte>& around = places[r].around[b];
      const std::byte* const first = places[r].data + regions_[r].blocks[b].begin;
      begins_[r].push_back(written_.size() + static_cast<std::size_t>(first - around.data()));
      written_.insert(written_.end(), around.begin(), around.end());
    }
  }
}

template <class Converted>
void EdgeCall::put(const EdgeTensor& x, std::byte* base, Converted&& converted) {
  constexpr bool kAsItIs = std::is_null_pointer_v<std::decay_t<Converted>>;
  const std::size_t size = size_of(x.dtype);
  pieces(x, [&](const Piece& p) {
    std::byte* const first = base + static_cast<std::size_t>(p.to) * size;
    if (kAsItIs && x.dtype == Dtype::fp32 && p.dense() && x.call.data != nullptr) {
      std::memcpy(first, x.call.data + p.from, static_cast<std::size_t>(p.count) * size);
      return;
    }
    if (kAsItIs && x.dtype == Dtype::bf16 && x.input && p.dense() && x.call.data != nullptr &&
        write_exact_bf16(x.call.data + p.from, p.count, first))
      return;
    for (std::int64_t i = 0; i < p.count; ++i) {
      float value = x.call.data == nullptr ? 0.0F : x.call.data[p.from + i * p.from_step];
      if constexpr (!kAsItIs) value = converted(value);
      std::byte* const place = first + static_cast<std::size_t>(i * p.to_step) * size;
      if (x.dtype == Dtype::fp32) {
        std::memcpy(place, &value, sizeof value);
        continue;
      }
      const std::uint16_t bits = x.input ? bits_of(value, x.dtype) : stale_bits(x.dtype);
      if (x.input && value == value && value_of(bits, x.dtype) != value)
        // This happens if a law halves a value that is already small.
        throw Unavailable({Outcome::Kind::unsupported,
                           fmt::format("{} contains {}, which is not a {}: name it in `dtypes`, as fp32",
                                       x.name, value, name_of(x.dtype))});
      std::memcpy(place, &bits, sizeof bits);
    }
  });
}

void EdgeCall::read(std::span<const EdgePlace> places) {
  for (const EdgeTensor& x : tensors_) {
    if (!x.output) continue;
    const std::size_t size = size_of(x.dtype);
    const std::byte* const memory = places[x.region].data;
    pieces(x, [&](const Piece& p) {
      const std::size_t first = static_cast<std::size_t>(x.begin + p.to) * size;
      if (p.dense()) {
        const std::size_t all = static_cast<std::size_t>(p.count) * size;
        std::memcpy(written_.data() + in_copy(x.region, first), memory + first, all);
        if (x.dtype == Dtype::fp32) {
          if (x.call.data != nullptr) std::memcpy(x.call.data + p.from, memory + first, all);
          return;
        }
      }
      for (std::int64_t i = 0; i < p.count; ++i) {
        const std::size_t place = first + static_cast<std::size_t>(i * p.to_step) * size;
        if (!p.dense()) std::memcpy(written_.data() + in_copy(x.region, place), memory + place, size);
        if (x.call.data == nullptr) continue;
        float& value = x.call.data[p.from + i * p.from_step];
        if (x.dtype == Dtype::fp32) {
          std::memcpy(&value, memory + place, sizeof value);
          continue;
        }
        std::uint16_t bits = 0;
        std::memcpy(&bits, memory + place, sizeof bits);
        // An element that was not written still holds what the judge put there.
        if (x.input || bits != stale_bits(x.dtype)) value = value_of(bits, x.dtype);
      }
    });
    each_null_row(x, [&](std::size_t from, std::size_t bytes) {
      std::memcpy(written_.data() + in_copy(x.region, from), memory + from, bytes);
    });
    if (x.nobodys.count > 0) continue;
    for (const std::int64_t b : without_state_) {
      StridedTensor own = x.call;
      own.data += b * own.stride[0];
      own.shape[0] = 1;
      visit(own, [](float& value) { value = 0.0F; });
    }
  }
  for (std::size_t r = 0; r < places.size(); ++r) check_region(r, places[r]);
}

void EdgeCall::check_region(std::size_t r, const EdgePlace& place) const {
  const EdgeRegion& region = regions_[r];
  for (std::size_t b = 0; b < place.around.size(); ++b) {
    const std::span<const std::byte> now = place.around[b];
    const std::byte* const first = place.data + region.blocks[b].begin;
    const std::byte* const before = written_.data() + begins_[r][b] - (first - now.data());
    if (std::memcmp(before, now.data(), now.size()) == 0) continue;
    const auto at = std::mismatch(now.begin(), now.end(), before).first - now.begin();
    const std::ptrdiff_t byte = now.data() + at - place.data;
    const auto size = static_cast<std::ptrdiff_t>(region.place.element);
    const auto span = static_cast<std::ptrdiff_t>(region.blocks.back().begin + region.blocks.back().bytes);
    const std::ptrdiff_t element = byte >= 0 ? byte / size : -((size - 1 - byte) / size);
    if (region.only_read && byte >= 0 && byte < span)
      throw Trespass(
          fmt::format("the kernel changed its input {}: element {} of its buffer", region.name, element));
    throw Trespass("the kernel wrote " + outside(region.name, element, (span + size - 1) / size));
  }
}

}  // namespace samestate
