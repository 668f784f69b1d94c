#include "optimized/cuda/experts/experts.cuh"

#include <algorithm>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/experts/routing.cuh"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/products/few_rows_product.cuh"

/// Rows of the table: mixtures of experts.
namespace samestate::cuda {
namespace {

template <class Operand>
using GatedUnit = ProductParameters<Operand, StoreGatedUnit<Operand>>;
template <class Operand>
using Plain = ProductParameters<Operand, StoreProduct<Operand>>;

/// y = x w^T for the whole batch.
template <class Operand>
Plain<Operand> product_of(const Operand* x, const Operand* w, Operand* y, std::int64_t rows,
                          std::int64_t columns, std::int64_t depth) {
  Plain<Operand> p;
  p.x = x, p.w = w;
  p.rows = rows, p.columns = columns, p.depth = depth;
  p.x_stride = p.w_stride = depth;
  p.epilogue = {y, columns};
  return p;
}
template <class Operand>
GatedUnit<Operand> gated_unit(const Operand* x, const Operand* gate, const Operand* up, Operand* y,
                              std::int64_t rows, std::int64_t columns, std::int64_t depth) {
  GatedUnit<Operand> p;
  p.x = x, p.w = gate, p.w2 = up;
  p.rows = rows, p.columns = columns, p.depth = depth;
  p.x_stride = p.w_stride = depth;
  p.epilogue = {y, columns};
  return p;
}

template <class Operand>
struct MixtureParameters {
  RoutingParameters<Operand> routing;
  AssignmentParameters order;
  GatedUnit<Operand> hidden;
  Plain<Operand> down;
  CombineParameters<Operand> combine;
};

template <class Operand>
MixtureParameters<Operand> mixture_of(const OperatorArguments& call, DeviceTensors<Operand>& tensors,
                                      const Operand* x, const Operand* logits) {
  const std::int64_t tokens = call.batch * call.tokens, D = call.parameter("D"), F = call.parameter("F");
  const std::int64_t N = call.parameter("N"), K = call.parameter("K");
  MixtureParameters<Operand> p;
  p.routing.logits = logits;
  p.routing.tokens = tokens;
  p.routing.experts = static_cast<int>(N);
  p.routing.chosen = static_cast<int>(K);
  p.routing.choice = tensors.template scratch<std::int32_t>(tokens * K);
  p.routing.share = tensors.template scratch<float>(tokens * K);

  AssignmentParameters& a = p.order;
  a.choice = p.routing.choice;
  a.assignments = tokens * K;
  a.experts = p.routing.experts;
  a.chosen = p.routing.chosen;
  // One warp adds up the parts of an expert.
  constexpr std::int64_t kParts = 256, kLeast = 256;
  a.part = std::max((a.assignments + kParts - 1) / kParts, kLeast);
  a.parts = (a.assignments + a.part - 1) / a.part;
  a.before = tensors.template scratch<std::int32_t>(a.parts * N);
  a.total = tensors.template scratch<std::int32_t>(N);
  a.first = tensors.template scratch<std::int32_t>(N);
  a.token_at = tensors.template scratch<std::int32_t>(a.assignments);
  a.place_of = tensors.template scratch<std::int32_t>(a.assignments);
  const ProductTiling tiling = product_tiling(a.assignments, N);
  a.tile_rows = static_cast<int>(tiling);
  a.tile_count = product_tiles(a.assignments, N, tiling);
  a.tiles = tensors.template scratch<ProductTile>(a.tile_count);

  auto* const hidden = tensors.template scratch<Operand>(a.assignments * F);
  auto* const z = tensors.template scratch<Operand>(a.assignments * D);
  p.hidden = gated_unit(x, tensors.operand("gate"), tensors.operand("up"), hidden, a.assignments, F, D);
  p.hidden.x_rows = a.token_at;
  p.down = product_of<Operand>(hidden, tensors.operand("down"), z, a.assignments, D, F);
  p.hidden.w_batch = p.down.w_batch = F * D;
  p.hidden.tiles = p.down.tiles = a.tiles;
  p.hidden.tile_count = p.down.tile_count = a.tile_count;
  p.hidden.tiling = p.down.tiling = tiling;

  p.combine.z = z;
  p.combine.place_of = a.place_of;
  p.combine.share = p.routing.share;
  p.combine.y = tensors.output("y");
  p.combine.tokens = tokens;
  p.combine.chosen = p.routing.chosen;
  p.combine.width = static_cast<int>(D);
  tensors.tap("experts", {tap_all(a.choice, tokens, K)});
  tensors.tap("weights", {tap_all(p.combine.share, tokens, K)});
  // Reads from where an assignment is in the order of experts.
  const auto by_rank = [&](const Operand* rows, std::int64_t columns) {
    TapParameters<Operand> part = tap_all(rows, a.assignments, columns);
    part.place_of = a.place_of;
    return part;
  };
  tensors.tap("hidden", {by_rank(p.down.x, F)});
  tensors.tap("outputs", {by_rank(p.combine.z, D)});
  return p;
}

template <class Operand>
void enqueue_mixture(const MixtureParameters<Operand>& p, cudaStream_t stream) {
  if (p.routing.tokens == 0) return;
  route_tokens<true>(p.routing, stream);
  order_assignments(p.order, stream);
  multiply_groups(p.hidden, p.order.experts, stream);
  multiply_groups(p.down, p.order.experts, stream);
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  if (p.combine.width % n == 0) {
    EachThread<CombinedElements<Operand, n>>::launch(p.combine, stream);
  } else {
    EachThread<CombinedElements<Operand, 1>>::launch(p.combine, stream);
  }
}

struct MixtureOfExperts {
  template <class Operand>
  using Parameters = MixtureParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    return mixture_of<Operand>(call, tensors, tensors.operand("x"), tensors.operand("logits"));
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    enqueue_mixture(p, stream);
  }
};

/// The mixture after a router of its own, and a shared expert with a gate.
struct Qwen3NextMoe {
  template <class Operand>
  struct Parameters {
    Plain<Operand> logits;
    OpenParameters<Operand> open;
    GatedUnit<Operand> hidden;
    Plain<Operand> down;
    MixtureParameters<Operand> mixture;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t tokens = call.batch * call.tokens, D = call.parameter("D"), N = call.parameter("N");
    const std::int64_t F = call.parameter("Fs");
    const Operand* const x = tensors.operand("x");
    auto* const logits = tensors.template scratch<Operand>(tokens * N);
    auto* const hidden = tensors.template scratch<Operand>(tokens * F);
    auto* const shared = tensors.template scratch<Operand>(tokens * D);
    Parameters<Operand> p;
    p.logits = product_of<Operand>(x, tensors.operand("router"), logits, tokens, N, D);
    p.open = {x, tensors.operand("shared_gate"), tensors.template scratch<float>(tokens), tokens,
              static_cast<int>(D)};
    p.hidden = gated_unit(x, tensors.operand("shared_gate_proj"), tensors.operand("shared_up"), hidden,
                          tokens, F, D);
    p.down = product_of<Operand>(hidden, tensors.operand("shared_down"), shared, tokens, D, F);
    p.mixture = mixture_of<Operand>(call, tensors, x, logits);
    p.mixture.combine.shared = shared;
    p.mixture.combine.open = p.open.open;
    tensors.tap("logits", {tap_all(p.mixture.routing.logits, tokens, N)});
    tensors.tap("shared_hidden", {tap_all(p.down.x, tokens, F)});
    tensors.tap("shared", {tap_all(p.mixture.combine.shared, tokens, D)});
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    Product<Operand, StoreProduct<Operand>>::launch(p.logits, stream);
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    if (p.open.width % n == 0) {
      EachWarp<OpenedToken<Operand, n>>::launch(p.open, stream);
    } else {
      EachWarp<OpenedToken<Operand, 1>>::launch(p.open, stream);
    }
    multiply_groups(p.hidden, 1, stream);
    multiply_groups(p.down, 1, stream);
    enqueue_mixture(p.mixture, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> expert_kernels() {
  return {
      row<MixtureOfExperts>("mixture_of_experts", "sorted", {}, {"experts", "weights", "hidden", "outputs"}),
      row<Qwen3NextMoe>("qwen3_next_moe", "sorted", {},
                        {"logits", "experts", "weights", "hidden", "outputs", "shared_hidden", "shared"})};
}

}  // namespace samestate::cuda
