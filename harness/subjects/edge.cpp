#include "harness/subjects/edge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "harness/cases/system.h"
#include "harness/run/call_loop.h"
#include "harness/subjects/edge_parts.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;
using namespace edge_detail;

Format format_of(Dtype dtype) {
  return dtype == Dtype::bf16 ? Format::bf16 : dtype == Dtype::fp16 ? Format::fp16 : Format::fp32;
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

/// Rearranges heads h = k R + r as [R, Hk], which is the order of the other head map, or back.
void split_heads(StridedTensor& x, std::size_t axis, std::int64_t outer, std::int64_t inner) {
  const std::int64_t step = x.stride[axis];
  const auto at = static_cast<std::ptrdiff_t>(axis);
  x.shape[axis] = inner;
  x.stride[axis] = step;
  x.shape.insert(x.shape.begin() + at + 1, outer);
  x.stride.insert(x.stride.begin() + at + 1, inner * step);
}

/// Repeats each key head once for every value head that reads it.
void repeat_heads(StridedTensor& x, std::size_t axis, std::int64_t times, bool tiled) {
  const auto at = static_cast<std::ptrdiff_t>(axis) + (tiled ? 0 : 1);
  x.shape.insert(x.shape.begin() + at, times);
  x.stride.insert(x.stride.begin() + at, 0);
}

/// The family's tensors in the order of axes that the subject uses.
class FamilyEdge {
 public:
  FamilyEdge(const Arguments& call, const Conventions& conventions)
      : call_(call), conventions_(conventions), key_heads_(call.q.shape[2]), value_heads_(call.v.shape[2]) {
    const bool tiled = call.head_map == HeadMap::tiled;
    reorders_ = key_heads_ < value_heads_ && key_heads_ > 1 &&
                ((conventions.heads == Conventions::Heads::interleaved && tiled) ||
                 (conventions.heads == Conventions::Heads::tiled && !tiled));
  }

  /// Returns true if the subject's head map is tiled.
  [[nodiscard]] bool tiled() const {
    if (conventions_.heads == Conventions::Heads::interleaved) return false;
    if (conventions_.heads == Conventions::Heads::tiled) return true;
    return conventions_.heads == Conventions::Heads::both && call_.head_map == HeadMap::tiled;
  }

  /// Returns a tensor with tokens, [B, T, H] or [B, T, H, D].
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

  /// Returns a state, [N, Hv, dk, dv].
  template <class T>
  EdgeTensor state(std::string name, const View<T, 4>& view) const {
    EdgeTensor x{.name = std::move(name), .call = strided(view)};
    // Kernels that keep [N, Hv, dv, dk] expect contiguous states: a dense state is not passed as a transposed
    // view.
    x.dense = x.call.stride == row_major_strides(x.call.shape);
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
      // Interleaved means h = k R + r, tiled means h = r Hk + k.
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
    return fmt::format("its scale is {:g}, as it declares, but this call asks for {:g}", own, call.scale);
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
  // Subjects that accept strides see tokens that belong to no sequence as part of the tensors.
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
  // If no token belongs to a sequence, there is no element that a view could point at.
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
      // One region serves both: the initial state is written into it, and the final one, wanted or not, is
      // read from it.
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
  if (x.call.data != nullptr && keeps_strides_ && !merged && !x.dense) {
    x.stride = x.memory_stride = x.call.stride;
  } else {
    x.memory_stride = row_major_strides(x.call.shape);
    x.stride = row_major_strides(x.shape);
  }
  tensors_.push_back(std::move(x));
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

}  // namespace samestate
