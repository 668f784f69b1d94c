#include "harness/subjects/edge.h"

#include <fmt/format.h>

#include <Eigen/Core>
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <type_traits>

#include "harness/cases/system.h"
#include "harness/run/call_loop.h"
#include "harness/run/guard.h"
#include "harness/subjects/edge_parts.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;
using namespace edge_detail;

constexpr std::size_t kAlignment = 256;
/// NaN in every format, and no offset of a token.
constexpr int kAroundByte = 0xff;
/// What 16-bit outputs hold before the call.
constexpr std::uint16_t kStaleBf16 = 0x7fc5, kStaleFp16 = 0x7e5a;

Format format_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? Format::bf16 : dtype == Dtype::fp16 ? Format::fp16 : Format::fp32;
}

std::uint16_t bits_of(float x, Dtype dtype) {
  return dtype == Dtype::bf16 ? Eigen::bfloat16_impl::float_to_bfloat16_rtne<false>(x).value
                              : Eigen::half_impl::float_to_half_rtne(x).x;
}

float value_of(std::uint16_t bits, Dtype dtype) {
  if (dtype == Dtype::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
  return Eigen::half_impl::half_to_float(Eigen::half_impl::raw_uint16_to_half(bits));
}

/// Elements that follow each other at one distance, in the call's tensor and in the memory.
struct Piece {
  std::int64_t from, to, count, from_step, to_step;
  [[nodiscard]] bool dense() const { return from_step == 1 && to_step == 1; }
};

/// Calls f(Piece) for all of them, in row-major order.
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

template <class T, std::size_t Rank>
StridedTensor strided(const View<T, Rank>& view) {
  return {const_cast<float*>(view.data),
          {view.shape.begin(), view.shape.end()},
          {view.stride.begin(), view.stride.end()}};
}

void swap_axes(StridedTensor& x, std::size_t a, std::size_t b) {
  std::swap(x.shape[a], x.shape[b]);
  std::swap(x.stride[a], x.stride[b]);
}

/// Heads h = k R + r as [R, Hk], which is the order of the other map; or back.
void split_heads(StridedTensor& x, std::size_t axis, std::int64_t outer, std::int64_t inner) {
  const std::int64_t step = x.stride[axis];
  const auto at = static_cast<std::ptrdiff_t>(axis);
  x.shape[axis] = inner;
  x.stride[axis] = step;
  x.shape.insert(x.shape.begin() + at + 1, outer);
  x.stride.insert(x.stride.begin() + at + 1, inner * step);
}

/// Each key head as many times as value heads read it.
void repeat_heads(StridedTensor& x, std::size_t axis, std::int64_t times, bool tiled) {
  const auto at = static_cast<std::ptrdiff_t>(axis) + (tiled ? 0 : 1);
  x.shape.insert(x.shape.begin() + at, times);
  x.stride.insert(x.stride.begin() + at, 0);
}

/// The family's tensors in the subject's order of axes.
class FamilyEdge {
 public:
  FamilyEdge(const Arguments& call, const Conventions& conventions)
      : call_(call), conventions_(conventions), key_heads_(call.q.shape[2]), value_heads_(call.v.shape[2]) {
    const bool tiled = call.head_map == HeadMap::tiled;
    reorders_ = key_heads_ < value_heads_ && key_heads_ > 1 &&
                ((conventions.heads == Conventions::Heads::interleaved && tiled) ||
                 (conventions.heads == Conventions::Heads::tiled && !tiled));
  }

  /// Whether the subject's map of heads is tiled.
  [[nodiscard]] bool tiled() const {
    if (conventions_.heads == Conventions::Heads::interleaved) return false;
    if (conventions_.heads == Conventions::Heads::tiled) return true;
    return conventions_.heads == Conventions::Heads::both && call_.head_map == HeadMap::tiled;
  }

  /// A tensor with tokens, [B, T, H] or [B, T, H, D].
  template <class T, std::size_t Rank>
  EdgeTensor tokens(std::string name, const View<T, Rank>& view, bool keys, std::int64_t begin,
                    std::int64_t end) const {
    EdgeTensor x{.name = std::move(name), .call = strided(view.slice(1, begin, end))};
    x.shape = x.call.shape;
    std::size_t heads = 2;
    if (conventions_.layout == Conventions::Tokens::BHTD) {
      swap_axes(x.call, 1, 2);
      std::swap(x.shape[1], x.shape[2]);
      heads = 1;
    }
    order_heads(x, heads, keys);
    if (conventions_.layout == Conventions::Tokens::THD) {
      x.shape[1] *= x.shape[0];
      x.shape.erase(x.shape.begin());
    }
    return x;
  }

  /// [N, Hv, dk, dv].
  template <class T>
  EdgeTensor state(std::string name, const View<T, 4>& view) const {
    EdgeTensor x{.name = std::move(name), .call = strided(view)};
    if (conventions_.values_first) swap_axes(x.call, 2, 3);
    x.shape = x.call.shape;
    order_heads(x, 1, false);
    return x;
  }

 private:
  void order_heads(EdgeTensor& x, std::size_t axis, bool keys) const {
    const std::int64_t times = value_heads_ / key_heads_;
    if (keys && conventions_.heads == Conventions::Heads::repeated && times > 1) {
      x.shape[axis] = value_heads_;
      repeat_heads(x.call, axis, times, call_.head_map == HeadMap::tiled);
    } else if (!keys && reorders_) {
      // Interleaved h = k R + r, tiled h = r Hk + k.
      const bool from_tiled = call_.head_map == HeadMap::tiled;
      split_heads(x.call, axis, from_tiled ? times : key_heads_, from_tiled ? key_heads_ : times);
    }
  }

  const Arguments& call_;
  const Conventions& conventions_;
  std::int64_t key_heads_, value_heads_;
  bool reorders_ = false;
};

}  // namespace

Given given_of(const Conventions& conventions, const Contract& contract) {
  Given given;
  given.decay = conventions.decay;
  given.strength = conventions.beta;
  given.norm = conventions.norm_place;
  given.norm_epsilon = conventions.norm_epsilon;
  given.folded_scale = conventions.scale == Conventions::Scale::folded;
  given.g = format_of(dtype_for(conventions, "g", Format::fp32));
  given.beta = format_of(dtype_for(conventions, "beta", Format::fp32));
  given.q = format_of(dtype_for(conventions, "q", contract.input));
  return given;
}

std::string refusal_of(const Arguments& call, const Conventions& conventions) {
  using enum Conventions::Norm;
  if (call.l2norm && (conventions.l2norm == outside || conventions.scale == Conventions::Scale::folded))
    return "it does not normalise q and k, as its l2norm and scale declare";
  if (!call.l2norm && conventions.l2norm == in_kernel)
    return "it normalises q and k whenever it is called, as its l2norm declares";
  const std::int64_t width = conventions.scale == Conventions::Scale::dk   ? call.q.shape[3]
                             : conventions.scale == Conventions::Scale::dv ? call.v.shape[3]
                                                                           : 0;
  const auto own = static_cast<float>(1.0 / std::sqrt(static_cast<double>(width)));
  if (width > 0 && own != call.scale)
    return fmt::format("its scale is {:g}, as it declares, and this call asks for {:g}", own, call.scale);
  if (conventions.beta != Given::Strength::logit || !call.beta.present()) return "";
  bool beyond = false;
  visit(strided(call.beta), [&](float beta) { beyond = beyond || beta > 1.0F; });
  return beyond ? "beta is above 1, which no logit gives" : "";
}

EdgeCall::EdgeCall(const Arguments& call, const Contract& contract, const Declaration& declaration)
    : given_(given_of(declaration.conventions, contract)),
      scale_(call.scale),
      keeps_strides_(declaration.strided) {
  const Conventions& conventions = declaration.conventions;
  const FamilyEdge family(call, conventions);
  const bool packed = call.cu_seqlens.present();
  const std::int64_t B = call.q.shape[0];
  std::int64_t begin = 0, end = call.q.shape[1];
  // Tokens that belong to no sequence are shown to those who take strides, as part of the tensors.
  if (packed && !declaration.strided)
    begin = call.cu_seqlens(0), end = call.cu_seqlens(call.cu_seqlens.shape[0] - 1);
  const auto put = [&](EdgeTensor x, Format format, bool output) {
    x.dtype = dtype_for(conventions, x.name, format);
    (output ? x.output : x.input) = true;
    add(std::move(x));
  };
  put(family.tokens("q", call.q, true, begin, end), contract.input, false);
  put(family.tokens("k", call.k, true, begin, end), contract.input, false);
  put(family.tokens("v", call.v, false, begin, end), contract.input, false);
  // Where no token belongs to a sequence there is no element that a view could point at.
  View<const float, 3> g = call.g, beta = call.beta;
  const Family& system = family_named(declaration.system);
  const std::array<std::int64_t, 3> gates{B, call.q.shape[1], call.v.shape[2]};
  if (system.gated && !g.present()) g = row_major<const float, 3>(nullptr, gates);
  if (system.delta && !beta.present()) beta = row_major<const float, 3>(nullptr, gates);
  const auto there = [](const View<const float, 3>& x) { return x.present() || x.shape[0] > 0; };
  if (there(g)) put(family.tokens("g", g, false, begin, end), Format::fp32, false);
  if (there(beta)) put(family.tokens("beta", beta, false, begin, end), Format::fp32, false);
  put(family.tokens("o", call.o, false, begin, end), contract.output, true);
  // States.
  const std::int64_t N = call.sequences();
  const std::array<std::int64_t, 4> shape{N, call.v.shape[2], call.q.shape[3], call.v.shape[3]};
  const bool in_place = conventions.state == Conventions::State::in_place;
  const bool shared = call.final_state.present() && call.initial_state.present() &&
                      call.final_state.data == call.initial_state.data;
  View<const float, 4> initial = call.initial_state;
  if (!initial.present() && conventions.state != Conventions::State::optional)
    initial = row_major<const float>(nullptr, shape);
  if (initial.present() || initial.shape[0] > 0) {
    EdgeTensor x = family.state("initial_state", initial);
    x.output = shared;
    put(std::move(x), contract.state, false);
  }
  if (!shared && (call.final_state.present() || in_place)) {
    EdgeTensor x = family.state(
        "final_state", call.final_state.present() ? call.final_state : row_major<float>(nullptr, shape));
    if (in_place) {
      // One region: the initial state is written into it, and the final one, wanted or not, read from it.
      x.dtype = dtype_for(conventions, "initial_state", contract.state);
      x.output = true;
      tensors_.push_back(std::move(x));
    } else {
      put(std::move(x), contract.state, true);
    }
  }
  if (packed || conventions.layout == Conventions::Tokens::THD) {
    EdgeTensor x{.name = "cu_seqlens", .dtype = conventions.offsets, .shape = {N + 1}, .input = true};
    for (std::int64_t n = 0; n <= N; ++n)
      x.whole_numbers.push_back(packed ? call.cu_seqlens(n) - begin : n * (end - begin));
    x.stride = {1};
    tensors_.push_back(std::move(x));
  }
  make_regions();
  if (shared) {
    EdgeTensor x = *std::find_if(tensors_.begin(), tensors_.end(),
                                 [](const EdgeTensor& other) { return other.name == "initial_state"; });
    x.name = "final_state";
    x.input = false;
    tensors_.push_back(std::move(x));
  }
  Json head{{"type", "run"},
            {"contract", contract.name},
            {"batch", B},
            {"tokens", end - begin},
            {"chunk", call.chunk},
            {"scale", call.scale},
            {"heads", family.tiled() ? "tiled" : "interleaved"},
            {"l2norm", call.l2norm},
            {"threads", call.threads},
            {"parameters",
             {{"Hk", conventions.heads == Conventions::Heads::repeated ? shape[1] : call.q.shape[2]},
              {"Hv", shape[1]},
              {"dk", shape[2]},
              {"dv", shape[3]}}}};
  if (call.cuts.present()) {
    Json cuts = Json::array();
    const CaseForm* form = system_named(declaration.system).form(declaration.form);
    const bool heads = form != nullptr && form->by_heads;
    for (std::int64_t r = 0; r < call.cuts.shape[0]; ++r)
      cuts.push_back(heads ? call.cuts(r) : std::clamp(call.cuts(r) - begin, std::int64_t{0}, end - begin));
    head["cuts"] = std::move(cuts);
  }
  if (given_.folded_scale) head["scale"] = 1.0;
  head_ = head.dump();
}

void EdgeCall::add(EdgeTensor x) {
  const bool merged = x.call.shape.size() != x.shape.size();
  if (x.call.data != nullptr && keeps_strides_ && !merged) {
    x.stride = x.memory_stride = x.call.stride;
  } else {
    x.memory_stride = row_major_strides(x.call.shape);
    x.stride = row_major_strides(x.shape);
  }
  tensors_.push_back(std::move(x));
}

/// As the judge's tensor lies in its pages, so does the subject's in its own; layout=page_end ends with the last one to the
/// element.
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
    if (x.name == "final_state" && x.memory_stride.empty() && initial) {  // in place
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
    // What is no tensor of the judge's is flush with the other side than the tensor before it.
    if (!x.whole_numbers.empty() && i > 0)
      region.place.ends_page = !regions_[tensors_[i - 1].region].place.ends_page;
    // An offset that 32 bits do not hold, wrapped, hits nothing.
    if (region.blocks.size() > 1) region.place.unused_before = std::size_t{1} << 33;
    regions_.push_back(std::move(region));
  }
}

std::size_t EdgeCall::packed_bytes() const {
  std::size_t at = kAlignment;
  for (const EdgeRegion& region : regions_) {
    const std::size_t size = region.blocks.back().begin + region.blocks.back().bytes;
    at += (size + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
  }
  return at;
}

std::vector<EdgePlace> EdgeCall::packed(std::span<std::byte> memory) const {
  std::vector<EdgePlace> places;
  std::size_t at = kAlignment, from = 0;
  for (const EdgeRegion& region : regions_) {
    EdgePlace place{memory.data() + at, at};
    const std::size_t size = region.blocks.back().begin + region.blocks.back().bytes;
    at += (size + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
    // Blocks that lie apart have nothing to stand for what is between them here.
    for (std::size_t b = 0; b < region.blocks.size(); ++b) {
      const std::size_t to = b + 1 < region.blocks.size() ? place.offset + region.blocks[b + 1].begin : at;
      place.around.push_back(memory.subspan(from, to - from));
      from = to;
    }
    places.push_back(std::move(place));
  }
  return places;
}

std::string EdgeCall::message(std::int64_t id, const std::string& kernel, std::size_t memory,
                              std::span<const EdgePlace> places) const {
  Json json = Json::parse(head_);
  json["id"] = id;
  json["kernel"] = kernel;
  json["bytes"] = memory;
  json["inputs"] = json["outputs"] = Json::array();
  for (const EdgeTensor& x : tensors_) {
    const Json one{{"name", x.name},
                   {"dtype", name_of(x.dtype)},
                   {"shape", x.shape},
                   {"strides", x.stride},
                   {"offset", places[x.region].offset}};
    json[x.input ? "inputs" : "outputs"].push_back(one);
  }
  return json.dump();
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
    // What is not to be read stays NaN; a state of nobody's that a kernel goes on from is zero.
    if (x.input && null_slot_ == Conventions::NullSlot::none)
      each_null_row(
          x, [&](std::size_t from, std::size_t size) { std::fill_n(data + from, size, std::byte{0}); });
    for (std::size_t i = 0; i < x.whole_numbers.size(); ++i) {
      const std::int64_t wide = x.whole_numbers[i];
      const auto narrow = static_cast<std::int32_t>(wide);
      std::memcpy(base + i * size_of(x.dtype),
                  x.dtype == Dtype::int64 ? static_cast<const void*>(&wide) : &narrow, size_of(x.dtype));
    }
    // Another name for the initial state's memory.
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
    for (std::int64_t i = 0; i < p.count; ++i) {
      float value = x.call.data == nullptr ? 0.0F : x.call.data[p.from + i * p.from_step];
      if constexpr (!kAsItIs) value = converted(value);
      std::byte* const place = first + static_cast<std::size_t>(i * p.to_step) * size;
      if (x.dtype == Dtype::fp32) {
        std::memcpy(place, &value, sizeof value);
        continue;
      }
      const std::uint16_t bits = x.input                  ? bits_of(value, x.dtype)
                                 : x.dtype == Dtype::bf16 ? kStaleBf16
                                                          : kStaleFp16;
      if (x.input && value == value && value_of(bits, x.dtype) != value)
        // As where a law halves what is small already.
        throw Unavailable({Outcome::Kind::unsupported,
                           fmt::format("{} holds {}, which is no {}: name it in `dtypes`, as fp32", x.name,
                                       value, name_of(x.dtype))});
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
        std::memcpy(written_.data() + in_copy(x.region, place), memory + place, size);
        if (x.call.data == nullptr) continue;
        float& value = x.call.data[p.from + i * p.from_step];
        if (x.dtype == Dtype::fp32) {
          std::memcpy(&value, memory + place, sizeof value);
          continue;
        }
        std::uint16_t bits = 0;
        std::memcpy(&bits, memory + place, sizeof bits);
        // What was not written stays what the judge put there.
        if (x.input || bits != (x.dtype == Dtype::bf16 ? kStaleBf16 : kStaleFp16))
          value = value_of(bits, x.dtype);
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
