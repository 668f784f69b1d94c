#include <cmath>

#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/delta/chunk_mma_list.cuh"
#include "optimized/cuda/delta/chunk_wgmma_list.cuh"
#include "optimized/cuda/delta/token_fma_list.cuh"
#include "optimized/cuda/dendritic/mix.cuh"
#include "optimized/cuda/dendritic/windows.cuh"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/pointwise/convolution.cuh"
#include "optimized/cuda/products/projection.cuh"

/// Row of the table: the dendritic layer with injected routing, each branch on the tokens that use it (EQUATIONS 7.3).
namespace samestate::cuda {
namespace {

struct SelectedRow {
  using Parameters = SelectionParameters;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) { return p.shape.rows(); }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t row) { select_branches(p, row); }
};

template <class Operand>
struct BranchOutputParameters {
  DendriticShape shape;
  const int* branch = nullptr;  ///< [B, T, H, slots]
  const Operand* o = nullptr;   ///< [B, T, H, slots, N, dv]
  float* to = nullptr;          ///< [B, T, N, E, H, dv]
};

/// Returns an element of the tap o: zero for a branch that the token does not use, which is also what the
/// mixture takes from it.
template <class Operand>
struct BranchOutput {
  using Parameters = BranchOutputParameters<Operand>;
  static SAMESTATE_HOST_DEVICE std::int64_t items(const Parameters& p) {
    return p.shape.rows() * p.shape.windows * p.shape.branches() * p.shape.values;
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, std::int64_t item) {
    const DendriticShape& s = p.shape;
    const std::int64_t head = item / s.values, branch = head / s.heads, window = branch / s.branches();
    const std::int64_t row = window / s.windows * s.heads + head % s.heads;
    float value = 0.0F;
    for (std::int64_t slot_row = row * s.slots(); slot_row < (row + 1) * s.slots(); ++slot_row) {
      if (p.branch[slot_row] == branch % s.branches())
        value = widen(p.o[(slot_row * s.windows + window % s.windows) * s.values + item % s.values]);
    }
    p.to[item] = value;
  }
};

/// The data that the forms `compacted` and `chunked` each need for the rule, and the launches.
struct CompactedRule {
  using Kept = ChunkTile*;
  template <class Operand>
  static Kept keep(const RuleParameters<Operand>& p, std::int64_t, DeviceTensors<Operand>& tensors) {
    return chunks_of(p, [&](std::int64_t count) { return tensors.template scratch<ChunkTile>(count); });
  }
  template <class Operand>
  static void launch(const RuleParameters<Operand>& p, Kept kept, cudaStream_t stream) {
    launch_rule(p, kept, stream);
  }
};
struct ChunkedRule {
  struct Kept {
    ListTile* tiles = nullptr;
    Bf16* keys = nullptr;
  };
  template <class Operand>
  static Kept keep(const RuleParameters<Operand>& p, std::int64_t chunk, DeviceTensors<Operand>& tensors) {
    if constexpr (sizeof(Operand) == 2) {
      if (chunk == kListChunk && in_list_chunks(p)) {
        const ListChunkParameters of{p};
        return {tensors.template scratch<ListTile>(of.tile_count()),
                tensors.template scratch<Bf16>(of.tile_count() * of.key_elements())};
      }
    }
    return {};
  }
  template <class Operand>
  static void launch(const RuleParameters<Operand>& p, Kept kept, cudaStream_t stream) {
    if constexpr (sizeof(Operand) == 2) {
      if (kept.tiles != nullptr) return launch_list_rule({p, kept.tiles, kept.keys}, stream);
    }
    launch_rule(p, nullptr, stream);
  }
};

template <class Operand, class Rule>
struct DendriticLayerParameters {
  Projection<Operand> q, k, v, z, a, b;  ///< projections of x
  TapLaunches before_pads;               ///< are cleared
  PadParameters<Operand> pads[3];        ///< for q, k and v
  Projection<Operand> expanded_q, expanded_k;
  Projection<Operand> y;
  SelectionParameters selection;
  ListParameters lists;
  ConvolutionParameters<Operand> convolved_v;
  BranchRowParameters<Operand> rows;
  RuleParameters<Operand> rule;
  typename Rule::Kept chunks{};  ///< where the rule runs in chunks
  MixParameters<Operand> mix;
};

template <class Rule>
struct DendriticLayer {
  template <class Operand>
  using Parameters = DendriticLayerParameters<Operand, Rule>;

  static DendriticShape shape_of(const OperatorArguments& call) {
    const auto at = [&](const char* name) { return static_cast<int>(call.parameter(name)); };
    DendriticShape s;
    s.batch = call.batch;
    s.tokens = call.tokens;
    s.heads = at("H");
    s.windows = at("N");
    s.channels = s.windows * at("stride") + at("O");
    // A single window has all channels.
    s.stride = s.windows > 1 ? at("stride") : s.channels;
    s.width = s.windows > 1 ? s.stride + at("O") : s.channels;
    s.values = at("dv");
    s.shared = at("Es");
    s.routed = at("K");
    s.candidates = s.routed + at("idle");
    s.taps = at("W");
    return s;
  }

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const DendriticShape s = shape_of(call);
    const std::int64_t tokens = s.batch * s.tokens, D = call.parameter("D");
    const std::int64_t keys = std::int64_t{s.heads} * s.channels, values = std::int64_t{s.heads} * s.values;
    const std::int64_t merged = std::int64_t{s.branches()} * s.heads;
    const auto operands = [&](std::int64_t size) { return tensors.template scratch<Operand>(size); };
    const auto floats = [&](std::int64_t size) { return tensors.template scratch<float>(size); };
    const Operand* x = tensors.operand("x");
    const float* mask = tensors.fp32("mask");
    Parameters<Operand> p;
    const auto project = [&](const char* weight, std::int64_t columns) {
      return projection<Operand>(x, tensors.operand(weight), operands(tokens * columns), tokens, columns, D);
    };
    p.q = project("q_proj", keys);
    p.k = project("k_proj", keys);
    p.v = project("v_proj", values);
    p.z = project("g_proj", values);
    p.a = project("a_proj", merged);
    p.b = project("b_proj", merged);
    p.pads[0] = {p.q.epilogue.y, mask, tokens, keys};
    p.pads[1] = {p.k.epilogue.y, mask, tokens, keys};
    p.pads[2] = {p.v.epilogue.y, mask, tokens, values};
    const auto expand = [&](const Operand* of, const char* weight) {
      const std::int64_t columns = std::int64_t{s.branches()} * s.channels;
      Projection<Operand> product;
      product.x = of;
      product.w = tensors.operand(weight);
      product.rows = tokens;
      product.columns = columns;
      product.depth = product.w_stride = product.x_batch = s.channels;
      product.x_stride = keys;
      product.batch = s.heads;
      product.w_batch = columns * s.channels;
      product.epilogue = {operands(s.heads * tokens * columns), columns, tokens * columns};
      return product;
    };
    p.expanded_q = expand(p.q.epilogue.y, "q_expansion");
    p.expanded_k = expand(p.k.epilogue.y, "k_expansion");

    p.selection = {s, tensors.fp32("scores"), tensors.template scratch<std::uint32_t>(s.rows()),
                   tensors.template scratch<int>(s.slot_rows()), floats(s.slot_rows())};
    p.lists = {s, p.selection.used, tensors.template scratch<ListEntry>(s.lists() * s.tokens),
               tensors.template scratch<int>(s.lists())};

    p.convolved_v.x = p.v.epilogue.y;
    p.convolved_v.kernel = tensors.operand("v_conv");
    p.convolved_v.past = tensors.operand("conv_v");
    p.convolved_v.y = operands(tokens * values);
    p.convolved_v.carried = tensors.output("conv_v");
    p.convolved_v.batch = s.batch;
    p.convolved_v.tokens = s.tokens;
    p.convolved_v.channels = static_cast<int>(values);
    p.convolved_v.W = s.taps;

    const auto rows = [&](const Operand* expanded, const char* kernel, const char* state) {
      return ExpandedRows<Operand>{expanded,
                                   tensors.operand(kernel),
                                   tensors.operand(state),
                                   tensors.output(state),
                                   operands(s.slot_rows() * s.channels),
                                   floats(s.slot_rows() * s.windows)};
    };
    p.rows = {s, p.selection.branch, rows(p.expanded_q.epilogue.y, "q_conv", "conv_q"),
              rows(p.expanded_k.epilogue.y, "k_conv", "conv_k")};

    p.rule.shape = s;
    p.rule.entries = p.lists.entries;
    p.rule.length = p.lists.length;
    p.rule.q = p.rows.q.y;
    p.rule.k = p.rows.k.y;
    p.rule.q_factor = p.rows.q.factor;
    p.rule.k_factor = p.rows.k.factor;
    p.rule.v = p.convolved_v.y;
    p.rule.a = p.a.epilogue.y;
    p.rule.b = p.b.epilogue.y;
    p.rule.A_log = tensors.fp32("A_log");
    p.rule.dt_bias = tensors.fp32("dt_bias");
    p.rule.mask = mask;
    p.rule.initial = tensors.fp32("S");
    p.rule.final = tensors.fp32_output("S");
    p.rule.o = operands(s.slot_rows() * s.windows * s.values);
    p.rule.scale = 1.0F / std::sqrt(static_cast<float>(s.width));
    p.rule.key_heads = s.heads;

    p.chunks = Rule::keep(p.rule, call.chunk, tensors);

    Operand* const gated = operands(tokens * values);
    p.mix = {s,    p.selection.omega, p.rule.o, p.z.epilogue.y, tensors.fp32("o_norm"), tensors.output("a"),
             gated};
    p.y.x = gated;
    p.y.w = tensors.operand("o_proj");
    p.y.rows = tokens;
    p.y.columns = D;
    p.y.depth = p.y.x_stride = p.y.w_stride = values;
    p.y.epilogue = {tensors.output("y"), D};
    hand_out(p, tensors);
    return p;
  }

  template <class Operand>
  static void hand_out(Parameters<Operand>& p, DeviceTensors<Operand>& tensors) {
    const DendriticShape& s = p.rule.shape;
    const auto all = [](const Projection<Operand>& of) {
      return tap_all<Operand>(of.epilogue.y, of.rows, of.columns);
    };
    tensors.tap("q", {all(p.q)}, &p.before_pads);
    tensors.tap("k", {all(p.k)}, &p.before_pads);
    tensors.tap("v", {all(p.v)});
    tensors.tap("z", {all(p.z)});
    tensors.tap("b", {all(p.b)});
    tensors.tap("a_gate", {all(p.a)});
    const auto expanded = [&](const Projection<Operand>& of) {
      const std::int64_t d = s.channels, E = s.branches();
      return TapParameters<Operand>{
          of.epilogue.y,
          nullptr,
          {{of.rows, E * d, E * s.heads * d}, {E, d, s.heads * d}, {s.heads, of.epilogue.batch, d}},
          d};
    };
    tensors.tap("q_expanded", {expanded(p.expanded_q)});
    tensors.tap("k_expanded", {expanded(p.expanded_k)});
    tensors.tap("v_convolved", {tap_all(p.rule.v, p.v.rows, p.v.columns)});
    if (float* const to = tensors.tapped("o"))
      tensors.taps().template add<BranchOutput<Operand>>({s, p.rows.branch, p.mix.o, to});
    tensors.tap("gated", {tap_all(p.y.x, p.y.rows, p.y.depth)});
  }

  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    constexpr int n = 16 / static_cast<int>(sizeof(Operand));
    const DendriticShape& s = p.rule.shape;
    for (const auto* product : {&p.q, &p.k, &p.v, &p.z, &p.a, &p.b}) project(*product, stream);
    p.before_pads.enqueue(stream);
    for (const auto& of : p.pads) EachWarp<ClearedPad<Operand>>::launch(of, stream);
    for (const auto* product : {&p.expanded_q, &p.expanded_k}) project(*product, stream);
    EachThread<SelectedRow>::launch(p.selection, stream);
    launch<ListBody>(blocks_of(s.lists(), 1), ListBody::kSharedBytes, p.lists, stream);
    launch_convolution(p.convolved_v, stream);
    s.channels % n == 0 ? EachThread<CarriedElements<Operand, n>>::launch(p.rows, stream)
                        : EachThread<CarriedElements<Operand, 1>>::launch(p.rows, stream);
    launch_branch_rows(p.rows, stream);
    Rule::launch(p.rule, p.chunks, stream);
    s.values % n == 0 ? EachWarp<MixedRow<Operand, n>>::launch(p.mix, stream)
                      : EachWarp<MixedRow<Operand, 1>>::launch(p.mix, stream);
    project(p.y, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> dendritic_layer_kernels() {
  const std::vector<std::string> taps = {"q",          "k",          "v",           "z", "b",    "a_gate",
                                         "q_expanded", "k_expanded", "v_convolved", "o", "gated"};
  OperatorKernel chunked = row<DendriticLayer<ChunkedRule>>("dendritic_attention", "chunked",
                                                            {"chunk in 64", "stride <= 96", "O <= 64"}, taps);
  chunked.contracts = {"bf16"};
  return {row<DendriticLayer<CompactedRule>>("dendritic_attention", "compacted", {}, taps),
          std::move(chunked)};
}

}  // namespace samestate::cuda
