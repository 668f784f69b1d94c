#include <cmath>

#include "optimized/cuda/operators/call.cuh"
#include "optimized/cuda/operators/convolution.cuh"
#include "optimized/cuda/operators/delta_net.cuh"
#include "optimized/cuda/operators/dendritic_chunks.cuh"
#include "optimized/cuda/operators/kernels.h"
#include "optimized/cuda/operators/norms.cuh"
#include "optimized/cuda/operators/projection.cuh"

/// Row of the table: the Gated DeltaNet layer (EQUATIONS 5.6), prefill and decode with its caches. Its rule is the dendritic
/// layer's on lists of all tokens, q and k of a key head for all value heads that it serves.
namespace samestate::cuda {
namespace {

template <class Operand>
struct DeltaNetLayerParameters {
  ProductParameters<Operand, StoreGrouped<Operand, 4>> qkvz;
  ProductParameters<Operand, StoreGrouped<Operand, 2>> ba;
  ConvolutionParameters<Operand> convolved[3];  ///< q, k, v
  KeyLengthParameters<Operand> lengths;
  WholeListParameters lists;
  RuleParameters<Operand> rule;
  ChunkTile* chunks = nullptr;  ///< where the rule runs in chunks
  NormParameters<Operand> norm;
  Projection<Operand> y;
};

struct DeltaNetLayer {
  template <class Operand>
  using Parameters = DeltaNetLayerParameters<Operand>;

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const auto at = [&](const char* name) { return static_cast<int>(call.parameter(name)); };
    const DeltaNetShape s{call.batch, call.tokens, at("Hk"), at("R"), at("dk"), at("dv")};
    const std::int64_t rows = s.rows(), D = call.parameter("D");
    const auto operands = [&](std::int64_t columns) {
      return tensors.template scratch<Operand>(rows * columns);
    };
    const auto floats = [&](std::int64_t size) { return tensors.template scratch<float>(size); };
    const Operand* const x = tensors.operand("x");
    const float* const mask = tensors.fp32("mask");
    Parameters<Operand> p;
    const auto project_groups = [&](auto& product, const char* weight, auto... widths) {
      product.x = x;
      product.w = tensors.operand(weight);
      product.rows = rows;
      product.columns = std::int64_t{s.key_heads} * (widths + ...);
      product.depth = product.x_stride = product.w_stride = D;
      product.epilogue = {
          {operands(std::int64_t{s.key_heads} * widths)...}, {widths...}, s.key_heads, mask, true};
      for (const int width : {widths...})
        product.epilogue.in_fours = product.epilogue.in_fours && width % 4 == 0;
    };
    project_groups(p.qkvz, "in_proj_qkvz", s.dk, s.dk, s.served * s.dv, s.served * s.dv);
    project_groups(p.ba, "in_proj_ba", s.served, s.served);

    const int W = at("W"), channels[] = {s.keys(), s.keys(), s.values()};
    const Operand *const kernel = tensors.operand("conv1d"), *const past = tensors.operand("convolution");
    Operand* const carried = tensors.output("convolution");
    int first = 0;
    for (int i = 0; i < 3; first += channels[i++]) {
      ConvolutionParameters<Operand>& c = p.convolved[i];
      c.x = p.qkvz.epilogue.to[i];
      c.kernel = kernel + std::int64_t{first} * W;
      c.past = past + first;
      c.carried = carried + first;
      c.state_stride = s.channels();
      c.y = operands(channels[i]);
      c.batch = s.batch;
      c.tokens = s.tokens;
      c.channels = channels[i];
      c.W = W;
    }

    const std::int64_t key_rows = rows * s.key_heads;
    p.lengths = {p.convolved[0].y, p.convolved[1].y, floats(key_rows), floats(key_rows), key_rows, s.dk};

    DendriticShape& lists = p.rule.shape;
    lists.batch = s.batch;
    lists.tokens = s.tokens;
    lists.heads = s.heads();
    lists.stride = lists.width = lists.channels = s.dk;
    lists.values = s.dv;
    p.lists = {lists, tensors.template scratch<ListEntry>(lists.lists() * s.tokens),
               tensors.template scratch<int>(lists.lists())};
    // No pad of its own: a pad's state decays on, and its projections are zero already.
    p.rule.entries = p.lists.entries;
    p.rule.length = p.lists.length;
    p.rule.q = p.lengths.q;
    p.rule.k = p.lengths.k;
    p.rule.q_factor = p.lengths.q_factor;
    p.rule.k_factor = p.lengths.k_factor;
    p.rule.v = p.convolved[2].y;
    p.rule.b = p.ba.epilogue.to[0];
    p.rule.a = p.ba.epilogue.to[1];
    p.rule.A_log = tensors.fp32("A_log");
    p.rule.dt_bias = tensors.fp32("dt_bias");
    p.rule.initial = tensors.fp32("S");
    p.rule.final = tensors.fp32_output("S");
    p.rule.o = tensors.output("core");
    p.rule.scale = 1.0F / std::sqrt(static_cast<float>(s.dk));
    p.rule.group = s.served;
    p.rule.key_heads = s.key_heads;
    p.chunks =
        chunks_of(p.rule, [&](std::int64_t count) { return tensors.template scratch<ChunkTile>(count); });

    p.norm.x = p.rule.o;
    p.norm.second = p.qkvz.epilogue.to[3];
    p.norm.weight = tensors.fp32("norm");
    p.norm.y = operands(s.values());
    p.norm.rows = rows * s.heads();
    p.norm.width = s.dv;
    p.y =
        projection<Operand>(p.norm.y, tensors.operand("out_proj"), tensors.output("y"), rows, D, s.values());
    return p;
  }

  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    Product<Operand, StoreGrouped<Operand, 4>>::launch(p.qkvz, stream);
    Product<Operand, StoreGrouped<Operand, 2>>::launch(p.ba, stream);
    for (const auto& part : p.convolved) launch_convolution(part, stream);
    p.lengths.width % n == 0 ? EachWarp<KeyLength<Operand, n>>::launch(p.lengths, stream)
                             : EachWarp<KeyLength<Operand, 1>>::launch(p.lengths, stream);
    EachThread<WholeList>::launch(p.lists, stream);
    launch_rule(p.rule, p.chunks, stream);
    launch_norm<RowNorm::gated>(p.norm, stream);
    project(p.y, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> delta_net_layer_kernels() {
  return {row<DeltaNetLayer>("gated_delta_net", "recurrent")};
}

}  // namespace samestate::cuda
