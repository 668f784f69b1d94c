#include <cmath>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/delta/chunk_mma_list.cuh"
#include "optimized/cuda/delta/delta_net.cuh"
#include "optimized/cuda/delta/delta_net_token.cuh"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/pointwise/convolution.cuh"
#include "optimized/cuda/pointwise/norms.cuh"
#include "optimized/cuda/products/projection.cuh"

/// Row of the table: the Gated DeltaNet layer (EQUATIONS 5.6), prefill and decode with its caches. Its rule is the dendritic
/// layer's on lists of all tokens, q and k of a key head for all value heads that it serves. A token alone has kernels of its own.
namespace samestate::cuda {
namespace {

template <class Operand>
struct DeltaNetLayerParameters {
  Projection<Operand> qkvz;  ///< in the order of a checkpoint, which its readers know
  PadParameters<Operand> pads;
  ProductParameters<Operand, StoreGrouped<Operand, 2>> ba;
  ConvolutionParameters<Operand> convolved[3];  ///< q, k, v
  KeyLengthParameters<Operand> lengths;
  WholeListParameters lists;
  RuleParameters<Operand> rule;
  ChunkTile* chunks = nullptr;            ///< where the rule runs in chunks
  DeltaDecodeParameters<Operand> decode;  ///< for one token, in place of all between here and the projections
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
    const int group = 2 * (s.dk + s.served * s.dv);
    const std::int64_t grouped = std::int64_t{s.key_heads} * group;
    p.qkvz = projection<Operand>(x, tensors.operand("in_proj_qkvz"), operands(grouped), rows, grouped, D);
    Operand* const qkvz = p.qkvz.epilogue.y;
    p.pads = {qkvz, mask, rows, grouped};
    p.ba.x = x;
    p.ba.w = tensors.operand("in_proj_ba");
    p.ba.rows = rows;
    p.ba.columns = 2 * s.heads();
    p.ba.depth = p.ba.x_stride = p.ba.w_stride = D;
    Operand *const to_b = operands(s.heads()), *const to_a = operands(s.heads());
    p.ba.epilogue = {{to_b, to_a}, {s.served, s.served}, s.key_heads, mask, s.served % 4 == 0};

    const int W = at("W"), channels[] = {s.keys(), s.keys(), s.values()};
    const Operand *const kernel = tensors.operand("conv1d"), *const past = tensors.operand("convolution");
    Operand* const carried = tensors.output("convolution");
    int first = 0;
    for (int i = 0; i < 3; first += channels[i++]) {
      ConvolutionParameters<Operand>& c = p.convolved[i];
      c.x = qkvz + i * s.dk;
      c.group = i < 2 ? s.dk : s.served * s.dv;
      c.group_stride = group;
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
    // It has no pad of its own: the state decays through a pad, whose projections are zero already.
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
    p.norm.second = qkvz + group - s.served * s.dv;
    p.norm.second_rows = s.served;
    p.norm.second_stride = group;
    p.norm.weight = tensors.fp32("norm");
    p.norm.y = operands(s.values());
    p.norm.rows = rows * s.heads();
    p.norm.width = s.dv;
    DeltaDecodeParameters<Operand>& d = p.decode;
    d.shape = s;
    d.W = W;
    d.qkvz = qkvz, d.b = to_b, d.a = to_a, d.mask = mask;
    d.kernel = kernel, d.past = past, d.carried = carried;
    d.A_log = p.rule.A_log, d.dt_bias = p.rule.dt_bias, d.norm = p.norm.weight;
    d.initial = p.rule.initial, d.final = p.rule.final;
    d.core = p.rule.o, d.gated = p.norm.y;
    d.scale = p.rule.scale;
    p.y =
        projection<Operand>(p.norm.y, tensors.operand("out_proj"), tensors.output("y"), rows, D, s.values());
    hand_out(p, tensors);
    return p;
  }

  template <class Operand>
  static void hand_out(const Parameters<Operand>& p, DeviceTensors<Operand>& tensors) {
    const DeltaNetShape& s = p.decode.shape;
    const std::int64_t rows = s.rows(), grouped = p.pads.columns, served = s.served * s.dv;
    // Copies the columns from `first` on of each key head side by side; the pads of a decoding token are not
    // cleared.
    const auto part = [&](int from, std::int64_t columns, std::int64_t width, std::int64_t first) {
      return TapParameters<Operand>{p.decode.qkvz + from,
                                    nullptr,
                                    {{rows, grouped, width}, {s.key_heads, p.decode.group(), columns}},
                                    columns,
                                    first,
                                    nullptr,
                                    p.decode.mask};
    };
    tensors.tap("mixed", {part(0, s.dk, s.channels(), 0), part(s.dk, s.dk, s.channels(), s.keys()),
                          part(2 * s.dk, served, s.channels(), 2 * s.keys())});
    tensors.tap("z", {part(p.decode.group() - static_cast<int>(served), served, s.values(), 0)});
    tensors.tap("b", {tap_all(p.decode.b, rows, s.heads())});
    tensors.tap("a", {tap_all(p.decode.a, rows, s.heads())});
    const auto convolved = [&](int i, std::int64_t first) {
      const ConvolutionParameters<Operand>& c = p.convolved[i];
      return tap_rows<Operand>(c.y, rows, c.channels, c.channels, s.channels(), first);
    };
    tensors.tap("convolved", {convolved(0, 0), convolved(1, s.keys()), convolved(2, 2 * s.keys())});
    tensors.tap("gated", {tap_all(p.y.x, rows, s.values())});
  }

  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    project(p.qkvz, stream);
    Product<Operand, StoreGrouped<Operand, 2>>::launch(p.ba, stream);
    if (p.decode.shape.tokens == 1) {
      launch_delta_decode(p.decode, stream);
      if (!decodes_whole_heads(p.decode.shape)) {
        EachWarp<ClearedPad<Operand>>::launch(p.pads, stream);
        launch_norm<RowNorm::gated>(p.norm, stream);
      }
      return project(p.y, stream);
    }
    EachWarp<ClearedPad<Operand>>::launch(p.pads, stream);
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
  // A decoded token is convolved where its rule reads it.
  return {row<DeltaNetLayer>("gated_delta_net", "recurrent", {},
                             {"mixed", "z", "b", "a", "convolved if T != 1", "gated"})};
}

}  // namespace samestate::cuda
