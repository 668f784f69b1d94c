#include "optimized/cuda/attention/latent.cuh"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "optimized/cuda/attention/latent_chunk_wgmma.cuh"
#include "optimized/cuda/cuda_operator_kernels.h"
#include "optimized/cuda/host/call.cuh"
#include "optimized/cuda/products/column_product.cuh"
#include "optimized/cuda/products/projection.cuh"

/// Rows of the table: latent attention and its cache.
namespace samestate::cuda {
namespace {

/// One product for the latent and the rotary key, followed by the norm and rotation of its rows.
struct LatentCache {
  template <class Operand>
  struct Parameters {
    Projection<Operand> down;
    LatentNormParameters<Operand> norm;
    TurnParameters<Operand> turn;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t rows = call.batch * call.tokens, D = call.parameter("D");
    const std::int64_t dc = call.parameter("dc"), dr = call.parameter("dr");
    auto* const both = tensors.template scratch<Operand>(rows * (dc + dr));
    Parameters<Operand> p;
    p.down = projection(tensors.operand("x"), tensors.operand("kv_down"), both, rows, dc + dr, D);
    p.norm = {both, tensors.fp32("kv_norm"), tensors.output("c"), rows, dc + dr, static_cast<int>(dc)};
    tensors.tap("projected", {tap_all(p.norm.x, rows, dc + dr)});
    if (dr == 0) return p;
    p.turn.x = both + dc, p.turn.x_stride = dc + dr;
    p.turn.cosine = tensors.fp32("cos"), p.turn.sine = tensors.fp32("sin");
    p.turn.y = tensors.output("kr"), p.turn.y_stride = dr;
    p.turn.rows = rows, p.turn.pairs = static_cast<int>(dr / 2);
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    project(p.down, stream);
    norm_latent(p.norm, stream);
    EachThread<TurnedPair<Operand>>::launch(p.turn, stream);
  }
};

/// The queries of all heads: compressed and normalised if the layer does so, with the rotary columns rotated.
template <class Operand>
struct LatentQueries {
  Projection<Operand> down;  ///< without rows where queries come straight from x
  LatentNormParameters<Operand> norm;
  Projection<Operand> up;
  TurnParameters<Operand> turn;  ///< moves the rotary columns to where the attention reads them
  TapLaunches before_turn;       ///< which may be in place

  LatentQueries() = default;
  /// q is [rows, H (dn + dr)], whose rotary columns are rotated in place unless `turn` is given another y.
  LatentQueries(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const std::int64_t rows = call.batch * call.tokens, D = call.parameter("D"), H = call.parameter("H");
    const std::int64_t dn = call.parameter("dn"), dr = call.parameter("dr");
    const std::int64_t compressed = call.parameter("q_lora");
    const Operand* from = tensors.operand("x");
    if (compressed > 0) {
      auto* const raw = tensors.template scratch<Operand>(rows * compressed);
      auto* const normed = tensors.template scratch<Operand>(rows * compressed);
      down = projection(from, tensors.operand("q_down"), raw, rows, compressed, D);
      norm = {raw, tensors.fp32("q_norm"), normed, rows, compressed, static_cast<int>(compressed)};
      from = normed;
    }
    const std::int64_t columns = H * (dn + dr);
    auto* const q = tensors.template scratch<Operand>(rows * columns);
    up = projection(from, tensors.operand("q_up"), q, rows, columns, compressed > 0 ? compressed : D);
    if (dr == 0) return;
    turn.x = turn.y = q + dn, turn.x_stride = turn.y_stride = dn + dr;
    turn.cosine = tensors.fp32("cos"), turn.sine = tensors.fp32("sin");
    turn.rows = rows * H, turn.heads = static_cast<int>(H), turn.pairs = static_cast<int>(dr / 2);
  }
  [[nodiscard]] Operand* q() const { return up.epilogue.y; }
  /// Call this once it is known where the rotary columns go.
  void hand_out(DeviceTensors<Operand>& tensors) {
    tensors.tap("compressed", {tap_all(norm.x, norm.rows, norm.width)});
    tensors.tap("compressed_normed", {tap_all(up.x, up.rows, up.depth)});
    tensors.tap("q", {tap_all<Operand>(q(), up.rows, up.columns)}, &before_turn);
    tensors.tap("q_rotary",
                {tap_rows<Operand>(turn.y, turn.rows, 2 * turn.pairs, turn.y_stride, 2 * turn.pairs)});
  }

  void enqueue(cudaStream_t stream) const {
    enqueue_products(stream);
    EachThread<TurnedPair<Operand>>::launch(turn, stream);
  }
  void enqueue_products(cudaStream_t stream) const {
    if (down.rows > 0) {
      project(down, stream);
      norm_latent(norm, stream);
    }
    project(up, stream);
    before_turn.enqueue(stream);
  }
};

/// Computes both parts of a query in one launch: the first blocks compute its latent, the others its rotary
/// columns.
template <class Operand, int kRows>
struct LatentOfQueries {
  struct Parameters {
    ColumnProductParameters<Operand> latent;
    TurnParameters<Operand> turn;
  };
  using Product = ColumnProduct<Operand, kRows>;
  static constexpr int kThreads = Product::kThreads;
  static void launch(const Parameters& p, cudaStream_t stream) {
    const std::int64_t pairs = TurnedPair<Operand>::items(p.turn);
    cuda::launch<LatentOfQueries>(blocks_of(Product::blocks(p.latent) + (pairs + kThreads - 1) / kThreads, 1),
                                  Product::shared_bytes(p.latent), p, stream);
  }
  static SAMESTATE_DEVICE void run(const Parameters& p, unsigned char* shared) {
    const std::int64_t behind = block_index() - Product::blocks(p.latent);
    if (behind < 0) return Product::run(p.latent, shared);
    const std::int64_t pair = behind * kThreads + thread_index();
    if (pair < TurnedPair<Operand>::items(p.turn)) TurnedPair<Operand>::run(p.turn, pair);
  }
};

/// Multiplies every head by rows of a matrix of its own.
template <class Operand>
Projection<Operand> of_heads(Projection<Operand> p, std::int64_t heads, std::int64_t x_batch,
                             std::int64_t w_batch, std::int64_t y_batch) {
  p.batch = heads, p.x_batch = x_batch, p.w_batch = w_batch, p.epilogue.batch = y_batch;
  return p;
}

/// The part that both forms share: sizes, cache, the attention without its tensors, and the projection after
/// it.
template <class Operand>
struct LatentCall {
  std::int64_t rows, keys, H, dn, dr, dv, dc;
  const Operand* c;
  const Operand* kr;  ///< null without rotary columns
  const Operand* kv_up;

  LatentCall(const OperatorArguments& call, DeviceTensors<Operand>& tensors)
      : rows(call.batch * call.tokens),
        keys(call.input("c").extent(1)),
        H(call.parameter("H")),
        dn(call.parameter("dn")),
        dr(call.parameter("dr")),
        dv(call.parameter("dv")),
        dc(call.parameter("dc")),
        c(tensors.operand("c")),
        kr(dr > 0 ? tensors.operand("kr") : nullptr),
        kv_up(tensors.operand("kv_up")) {}

  [[nodiscard]] AttentionParameters<Operand> attention(const OperatorArguments& call) const {
    AttentionParameters<Operand> p;
    p.batch = call.batch, p.tokens = call.tokens, p.keys = keys;
    p.chunk = std::max<std::int64_t>(keys, 1);  // weights are rounded under the largest score of all keys
    p.scale = 1.0F / std::sqrt(static_cast<float>(dn + dr));
    return p;
  }
  [[nodiscard]] Projection<Operand> out(const OperatorArguments& call, DeviceTensors<Operand>& tensors,
                                        const Operand* heads) const {
    return projection(heads, tensors.operand("output"), tensors.output("y"), rows, call.parameter("D"),
                      H * dv);
  }
};

/// The keys and values of all heads are restored from the latent, which suits many tokens.
struct NaiveLatentAttention {
  template <class Operand>
  struct Parameters {
    LatentQueries<Operand> queries;
    Projection<Operand> k, v, out;
    CopyParameters<Operand> rotary;
    AttentionParameters<Operand> attention;
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const LatentCall<Operand> of(call, tensors);
    const std::int64_t cached = call.batch * of.keys, width = of.dn + of.dr;
    Parameters<Operand> p;
    p.queries = LatentQueries<Operand>(call, tensors);
    auto* const k = tensors.template scratch<Operand>(cached * of.H * width);
    auto* const v = tensors.template scratch<Operand>(cached * of.H * of.dv);
    auto* const heads = tensors.template scratch<Operand>(of.rows * of.H * of.dv);
    const std::int64_t up = (of.dn + of.dv) * of.dc;
    p.k = of_heads(projection(of.c, of.kv_up, k, cached, of.dn, of.dc), of.H, 0, up, width);
    p.k.epilogue.stride = of.H * width;
    p.v = of_heads(projection(of.c, of.kv_up + of.dn * of.dc, v, cached, of.dv, of.dc), of.H, 0, up, of.dv);
    p.v.epilogue.stride = of.H * of.dv;
    p.rotary = {
        of.kr, k + of.dn, cached * of.H, of.dr, width, static_cast<int>(of.H), static_cast<int>(of.dr)};
    AttentionParameters<Operand>& attention = p.attention = of.attention(call);
    attention.key_heads = static_cast<int>(of.H);
    attention.width = static_cast<int>(width), attention.value_width = static_cast<int>(of.dv);
    attention.key_stride = of.H * width, attention.value_stride = of.H * of.dv;
    attention.q = p.queries.q(), attention.k = k, attention.v = v, attention.o = heads;
    prepare_attention(attention, tensors);
    p.out = of.out(call, tensors, heads);
    p.queries.hand_out(tensors);
    tensors.tap("heads", {tap_all(p.out.x, of.rows, of.H * of.dv)});
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    p.queries.enqueue(stream);
    project(p.k, stream);
    project(p.v, stream);
    copy_columns(p.rotary, stream);
    enqueue_attention(p.attention, stream);
    project(p.out, stream);
  }
};

/// W_UK is applied to the query and W_UV after the sum: all heads read one row [c | k^R] per token, which is
/// the least for few tokens.
struct AbsorbedLatentAttention {
  template <class Operand>
  struct Parameters {
    LatentQueries<Operand> queries;
    ColumnProductParameters<Operand> few;
    TransposeParameters<Operand> key_up;  ///< without x where `few` is multiplied
    Projection<Operand> q_latent, v_up, out;
    CopyParameters<Operand> latent, rotary;  ///< to one row a token, for the kernels that know no other
    AttentionParameters<Operand> attention;
    LatentParameters tiles;  ///< without rows where those take it
  };

  template <class Operand>
  static Parameters<Operand> parameters(const OperatorArguments& call, DeviceTensors<Operand>& tensors) {
    const LatentCall<Operand> of(call, tensors);
    const std::int64_t cached = call.batch * of.keys, width = of.dc + of.dr;
    Parameters<Operand> p;
    p.queries = LatentQueries<Operand>(call, tensors);
    auto* const q = tensors.template scratch<Operand>(of.rows * of.H * width);
    auto* const mixed = tensors.template scratch<Operand>(of.rows * of.H * of.dc);
    auto* const heads = tensors.template scratch<Operand>(of.rows * of.H * of.dv);
    const std::int64_t up = (of.dn + of.dv) * of.dc;
    const auto count = [](std::int64_t n) { return static_cast<int>(n); };
    p.few.x = p.queries.q(), p.few.w = of.kv_up, p.few.y = q, p.few.rows = of.rows;
    p.few.x_stride = of.H * (of.dn + of.dr), p.few.x_head = of.dn + of.dr, p.few.w_head = up;
    p.few.y_stride = of.H * width, p.few.y_head = width;
    p.few.heads = count(of.H), p.few.depth = count(of.dn), p.few.columns = count(of.dc);
    if (!in_column_product(p.few)) {
      auto* const key_up = tensors.template scratch<Operand>(of.H * of.dc * of.dn);
      p.key_up = {of.kv_up, key_up, up, count(of.H), count(of.dn), count(of.dc)};
      p.q_latent = of_heads(projection<Operand>(p.queries.q(), key_up, q, of.rows, of.dc, of.dn), of.H,
                            of.dn + of.dr, of.dc * of.dn, width);
      p.q_latent.x_stride = of.H * (of.dn + of.dr), p.q_latent.epilogue.stride = of.H * width;
    }
    p.queries.turn.y = q + of.dc, p.queries.turn.y_stride = width;
    AttentionParameters<Operand>& attention = p.attention = of.attention(call);
    attention.group = count(of.H);
    attention.width = count(width), attention.value_width = count(of.dc);
    attention.q = q, attention.o = mixed;
    if constexpr (std::is_same_v<Operand, Bf16>) {
      if (in_latent_tiles(of.dc, of.dr)) {
        attention.k = attention.v = of.c, attention.key_stride = attention.value_stride = of.dc;
        p.tiles.p = attention, p.tiles.rotary = of.kr;
        prepare_latent(p.tiles, tensors);
      }
    }
    if (p.tiles.p.q == nullptr) {
      auto* const k = tensors.template scratch<Operand>(cached * width);
      p.latent = {of.c, k, cached, of.dc, width, 1, count(of.dc)};
      p.rotary = {of.kr, k + of.dc, cached, of.dr, width, 1, count(of.dr)};
      attention.k = attention.v = k, attention.key_stride = attention.value_stride = width;
      prepare_attention(attention, tensors);
    }
    p.v_up = of_heads(projection<Operand>(mixed, of.kv_up + of.dn * of.dc, heads, of.rows, of.dv, of.dc),
                      of.H, of.dc, up, of.dv);
    p.v_up.x_stride = of.H * of.dc, p.v_up.epilogue.stride = of.H * of.dv;
    p.out = of.out(call, tensors, heads);
    p.queries.hand_out(tensors);
    tensors.tap("q_latent", {tap_rows(attention.q, of.rows * of.H, of.dc, width, of.dc)});
    tensors.tap("mixed", {tap_all(p.v_up.x, of.rows * of.H, of.dc)});
    tensors.tap("heads", {tap_all(p.out.x, of.rows, of.H * of.dv)});
    return p;
  }
  template <class Operand>
  static void enqueue(const Parameters<Operand>& p, cudaStream_t stream) {
    if (p.key_up.x == nullptr) {
      p.queries.enqueue_products(stream);
      with_column_rows(p.few, [&]<int rows>() {
        LatentOfQueries<Operand, rows>::launch({p.few, p.queries.turn}, stream);
      });
    } else {
      p.queries.enqueue(stream);
      transpose(p.key_up, stream);
      project(p.q_latent, stream);
    }
    if (p.tiles.p.q != nullptr) {
      enqueue_latent(p.tiles, stream);
    } else {
      copy_columns(p.latent, stream);
      copy_columns(p.rotary, stream);
      enqueue_attention(p.attention, stream);
    }
    project(p.v_up, stream);
    project(p.out, stream);
  }
};

}  // namespace

std::vector<OperatorKernel> latent_kernels() {
  // A block holds 32 queries in shared memory.
  return {row<LatentCache>("latent_cache", "direct", {}, {"projected"}),
          row<NaiveLatentAttention>("latent_attention", "naive", {},
                                    {"compressed", "compressed_normed", "q", "q_rotary", "heads"}),
          row<AbsorbedLatentAttention>(
              "latent_attention", "absorbed", {"dc <= 768"},
              {"compressed", "compressed_normed", "q", "q_rotary", "q_latent", "mixed", "heads"})};
}

}  // namespace samestate::cuda
