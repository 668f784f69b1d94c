#include "reference/layers/gated_delta_net.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/scalars.h"

namespace samestate::gated_delta_net_identities {
namespace {

constexpr Index kTokens = 13;
constexpr Index kHidden = 6;
constexpr Index kKernel = 4;
constexpr Index kChunk = 5;

/// A layer of two key heads with two value heads each, and a sequence.
template <class Scalar>
struct Layer {
  GatedDeltaNetShape shape{2, 4, 3, 5};
  GatedDeltaNetWeights<Scalar> w;
  Matrix<Scalar> x;
  explicit Layer(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    w.in_proj_qkvz = draw.normal(2 * shape.keys() + 2 * shape.values(), kHidden, 0.5);
    w.in_proj_ba = draw.normal(2 * shape.value_heads, kHidden, 0.5);
    w.conv1d = draw.normal(shape.channels(), kKernel, 0.5);
    w.A_log = draw.normal_vector(shape.value_heads, 0.5);
    w.dt_bias = draw.uniform_vector(shape.value_heads, -1.0, 1.0);
    w.norm = draw.uniform_vector(shape.value_width, 0.5, 1.5);
    w.out_proj = draw.normal(kHidden, shape.values(), 0.5);
    x = draw.normal(kTokens, kHidden);
  }
};

/// The rule, token by token or in chunks.
struct Recurrent {
  template <class Scalar>
  Trajectory<Scalar> operator()(const Sequence<Scalar>& x) const {
    return recurrent<GatedDeltaRule>(x);
  }
};
struct Chunked {
  template <class Scalar>
  Trajectory<Scalar> operator()(const Sequence<Scalar>& x) const {
    return chunked<GatedDeltaRule>(x, kChunk);
  }
};

template <class Run, class Scalar>
GatedDeltaNetOutput<Scalar> run(const Layer<Scalar>& layer, const std::vector<bool>& real = {}) {
  return gated_delta_net(layer.x, layer.w, layer.shape, empty_gated_delta_net_cache(layer.shape, layer.w),
                         Run{}, real);
}

template <class Scalar>
double cache_difference(const GatedDeltaNetCache<Scalar>& a, const GatedDeltaNetCache<Scalar>& b) {
  double worst = relative_difference(a.convolution, b.convolution);
  for (std::size_t h = 0; h < a.state.size(); ++h)
    worst = std::max(worst, relative_difference(a.state[h], b.state[h]));
  return worst;
}

/// The difference of the output, of the part that the norm hides (EQUATIONS 8.1), and of both caches.
template <class Scalar>
double difference(const GatedDeltaNetOutput<Scalar>& a, const GatedDeltaNetOutput<Scalar>& b) {
  return std::max({relative_difference(a.y, b.y), relative_difference(a.core, b.core),
                   cache_difference(a.cache, b.cache)});
}

/// Evaluates segments one after the other, carrying the caches; cuts as for `resumed`.
template <class Scalar, class Run>
GatedDeltaNetOutput<Scalar> resume(const Layer<Scalar>& layer, std::vector<Index> cuts, const Run& run) {
  GatedDeltaNetOutput<Scalar> out;
  out.y.resize(kTokens, kHidden);
  out.core.resize(kTokens, layer.shape.values());
  out.cache = empty_gated_delta_net_cache(layer.shape, layer.w);
  cuts.push_back(kTokens);
  Index begin = 0;
  for (const Index end : cuts) {
    const Matrix<Scalar> segment = layer.x.middleRows(begin, end - begin);
    const auto part = gated_delta_net(segment, layer.w, layer.shape, out.cache, run);
    out.y.middleRows(begin, end - begin) = part.y;
    out.core.middleRows(begin, end - begin) = part.core;
    out.cache = part.cache;
    begin = end;
  }
  return out;
}

// ---- projection layouts and the fused convolution (EQ-21)

template <class Scalar>
Matrix<Scalar> picked_rows(const Matrix<Scalar>& weight, const std::vector<Index>& rows) {
  Matrix<Scalar> picked(weight.rows(), weight.cols());
  for (Index i = 0; i < weight.rows(); ++i) picked.row(i) = weight.row(rows[static_cast<std::size_t>(i)]);
  return picked;
}

/// The same layer with its projections' rows in the flat order.
template <class Scalar>
Layer<Scalar> flat(const Layer<Scalar>& layer) {
  const ProjectionRows rows = grouped_rows(layer.shape);
  Layer<Scalar> other = layer;
  other.shape.layout = ProjectionLayout::flat;
  other.w.in_proj_qkvz = picked_rows(layer.w.in_proj_qkvz, rows.qkvz);
  other.w.in_proj_ba = picked_rows(layer.w.in_proj_ba, rows.ba);
  return other;
}

/// Key heads copied out by repeat_interleave, in the weights, so that each value head has its own (GDN-26).
template <class Scalar>
double repeated_key_heads(std::uint64_t seed, bool tiled) {
  const Layer<Scalar> layer = flat(Layer<Scalar>(seed));
  const GatedDeltaNetShape& s = layer.shape;
  Layer<Scalar> wide = layer;
  wide.shape.key_heads = s.value_heads;
  const Index more = wide.shape.channels() - s.channels();
  wide.w.in_proj_qkvz.resize(layer.w.in_proj_qkvz.rows() + more, kHidden);
  wide.w.conv1d.resize(wide.shape.channels(), kKernel);
  for (Index part = 0; part < 2; ++part) {
    for (Index h = 0; h < s.value_heads; ++h) {
      const Index head = tiled ? h % s.key_heads : h / (s.value_heads / s.key_heads);
      const Index to = part * wide.shape.keys() + h * s.key_width;
      const Index from = part * s.keys() + head * s.key_width;
      wide.w.in_proj_qkvz.middleRows(to, s.key_width) = layer.w.in_proj_qkvz.middleRows(from, s.key_width);
      wide.w.conv1d.middleRows(to, s.key_width) = layer.w.conv1d.middleRows(from, s.key_width);
    }
  }
  wide.w.in_proj_qkvz.bottomRows(2 * s.values()) = layer.w.in_proj_qkvz.bottomRows(2 * s.values());
  wide.w.conv1d.bottomRows(s.values()) = layer.w.conv1d.bottomRows(s.values());
  Layer<Scalar> narrow = layer;
  if (tiled) narrow.shape.head_map = HeadMap::tiled;
  const GatedDeltaNetOutput<Scalar> a = run<Recurrent>(wide);
  const GatedDeltaNetOutput<Scalar> b = run<Recurrent>(narrow);
  double worst = std::max(relative_difference(a.y, b.y), relative_difference(a.core, b.core));
  for (std::size_t h = 0; h < a.cache.state.size(); ++h)
    worst = std::max(worst, relative_difference(a.cache.state[h], b.cache.state[h]));
  return worst;
}

// ---- invariants of 7.7 at the layer

/// Adds `pads` masked tokens of garbage before or after the sequence.
template <class Scalar>
GatedDeltaNetOutput<Scalar> padded(const Layer<Scalar>& layer, Index pads, bool left) {
  IdentityDraw<Scalar> draw(99);
  Layer<Scalar> wide = layer;
  const Matrix<Scalar> garbage = draw.normal(pads, kHidden);
  wide.x.resize(kTokens + pads, kHidden);
  if (left) {
    wide.x << garbage, layer.x;
  } else {
    wide.x << layer.x, garbage;
  }
  std::vector<bool> real(static_cast<std::size_t>(kTokens + pads), true);
  for (Index i = 0; i < pads; ++i) real[static_cast<std::size_t>(left ? i : kTokens + i)] = false;
  return run<Recurrent>(wide, real);
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kSystem = "gated_delta_net";
  return {
      {"EQ-02", "gdn_layer_chunked", kSystem,
       "layer with the rule in chunks = token by token; output, core, caches", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         return difference(run<Chunked>(layer), run<Recurrent>(layer));
       }},
      {"EQ-21", "gdn_layer_flat_layout", kSystem,
       "grouped projections = flat ones with permuted rows (GDN-23, GDN-24)", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         return difference(run<Recurrent>(flat(layer)), run<Recurrent>(layer));
       }},
      {"EQ-21", "gdn_layer_three_convolutions", kSystem, "one convolution over (q, k, v) = three", exact,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedDeltaNetShape& s = layer.shape;
         const Matrix<Scalar> mixed = run<Recurrent>(layer).mixed;
         IdentityDraw<Scalar> draw(seed + 1);
         const Matrix<Scalar> before = draw.normal(kKernel - 1, s.channels());
         Convolved<Scalar> apart{Matrix<Scalar>(kTokens, s.channels()),
                                 Matrix<Scalar>(kKernel - 1, s.channels())};
         Index from = 0;
         for (const Index width : {s.keys(), s.keys(), s.values()}) {
           const Convolved<Scalar> part = short_convolution<Scalar>(mixed.middleCols(from, width),
                                                                    layer.w.conv1d.middleRows(from, width),
                                                                    {}, before.middleCols(from, width));
           apart.y.middleCols(from, width) = part.y;
           apart.state.middleCols(from, width) = part.state;
           from += width;
         }
         const Convolved<Scalar> fused = short_convolution<Scalar>(mixed, layer.w.conv1d, {}, before);
         return std::max(relative_difference(apart.y, fused.y),
                         relative_difference(apart.state, fused.state));
       }},
      {"EQ-21", "gdn_layer_interleaved_key_heads", kSystem,
       "Hk key heads read h / 2 = key heads repeated in the weights (GDN-26)", equal,
       []<class Scalar>(std::uint64_t seed) { return repeated_key_heads<Scalar>(seed, false); }},
      {"EQ-21", "gdn_layer_tiled_key_heads", kSystem,
       "the tiled map = key heads tiled in the weights (GDN-9, as a map of its own)", equal,
       []<class Scalar>(std::uint64_t seed) { return repeated_key_heads<Scalar>(seed, true); }},
      {"P-07", "gdn_layer_causal", kSystem, "core before t does not see x from t on, both forms", exact,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         Layer<Scalar> changed = layer;
         changed.x.bottomRows(6) = Layer<Scalar>(seed + 1).x.bottomRows(6);
         double worst = 0.0;
         const auto head = [](const Matrix<Scalar>& y) { return Matrix<Scalar>(y.topRows(kTokens - 6)); };
         worst = std::max(worst, relative_difference(head(run<Recurrent>(changed).core),
                                                     head(run<Recurrent>(layer).core)));
         return std::max(
             worst, relative_difference(head(run<Chunked>(changed).core), head(run<Chunked>(layer).core)));
       }},
      {"P-09", "gdn_layer_decode", kSystem, "chunked prefill = token by token with both caches", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         std::vector<Index> cuts;
         for (Index t = 1; t < kTokens; ++t) cuts.push_back(t);
         return difference(resume(layer, cuts, Recurrent{}), run<Chunked>(layer));
       }},
      // Any two cuts, also into segments of no token and shorter than the convolution's memory.
      {"P-09", "gdn_layer_any_split", kSystem, "one pass = any two cuts, also into less than W - 1 tokens",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedDeltaNetOutput<Scalar> whole = run<Recurrent>(layer);
         double worst = 0.0;
         for (Index first = 0; first <= kTokens; first += 3) {
           for (const Index length : {0, 1, 2, 6}) {
             const Index second = std::min(first + length, kTokens);
             worst = std::max(worst, difference(resume(layer, {first, second}, Chunked{}), whole));
           }
         }
         return worst;
       }},
      {"P-11", "gdn_layer_permuted_heads", kSystem,
       "key heads and what they serve in another order: same output", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedDeltaNetShape& s = layer.shape;
         Layer<Scalar> other = layer;
         const Index served = s.value_heads / s.key_heads;
         const Index group = 2 * s.key_width + 2 * served * s.value_width;
         const auto swap = [](auto& into, const auto& from, Index begin, Index rows) {
           into.middleRows(begin, rows) = from.middleRows(begin + rows, rows);
           into.middleRows(begin + rows, rows) = from.middleRows(begin, rows);
         };
         swap(other.w.in_proj_qkvz, layer.w.in_proj_qkvz, 0, group);
         swap(other.w.in_proj_ba, layer.w.in_proj_ba, 0, 2 * served);
         swap(other.w.conv1d, layer.w.conv1d, 0, s.key_width);
         swap(other.w.conv1d, layer.w.conv1d, s.keys(), s.key_width);
         swap(other.w.conv1d, layer.w.conv1d, 2 * s.keys(), served * s.value_width);
         swap(other.w.A_log, layer.w.A_log, 0, served);
         swap(other.w.dt_bias, layer.w.dt_bias, 0, served);
         const Index columns = served * s.value_width;
         other.w.out_proj << layer.w.out_proj.rightCols(columns), layer.w.out_proj.leftCols(columns);
         return relative_difference(run<Recurrent>(other).y, run<Recurrent>(layer).y);
       }},
      {"P-14", "gdn_layer_zero_input", kSystem, "x = 0 gives y = 0 and zero caches", exact,
       []<class Scalar>(std::uint64_t seed) {
         Layer<Scalar> layer(seed);
         layer.x.setZero();
         const GatedDeltaNetOutput<Scalar> out = run<Chunked>(layer);
         const Matrix<Scalar> zero = Matrix<Scalar>::Zero(kTokens, kHidden);
         return std::max(relative_difference(out.y, zero),
                         cache_difference(out.cache, empty_gated_delta_net_cache(layer.shape, layer.w)));
       }},
      // 0 <= beta <= 1 (1 only by rounding), g <= 0 (P-15): how far outside.
      {"P-15", "gdn_layer_gate_ranges", kSystem, "0 <= beta <= 1 and g <= 0", holds,
       []<class Scalar>(std::uint64_t seed) {
         Layer<Scalar> layer(seed);
         layer.x *= Scalar(8);  // up to the ends of both ranges
         const GatedDeltaNetOutput<Scalar> out = run<Recurrent>(layer);
         double worst = 0.0;
         for (Index i = 0; i < out.g.size(); ++i) {
           const Scalar beta = out.beta.data()[i];
           worst = std::max({worst, static_cast<double>(out.g.data()[i]), static_cast<double>(Scalar(-beta)),
                             static_cast<double>(Scalar(beta - Scalar(1)))});
         }
         return worst;
       }},
      {"P-22", "gdn_layer_closed_gate", kSystem, "z = 0, or v = 0, gives y = 0 (E-06)", exact,
       []<class Scalar>(std::uint64_t seed) {
         Layer<Scalar> no_gate = flat(Layer<Scalar>(seed));
         const Index values = no_gate.shape.values();
         no_gate.w.in_proj_qkvz.bottomRows(values).setZero();
         Layer<Scalar> no_values = flat(Layer<Scalar>(seed));
         no_values.w.in_proj_qkvz.middleRows(2 * no_values.shape.keys(), values).setZero();
         const Matrix<Scalar> zero = Matrix<Scalar>::Zero(kTokens, kHidden);
         return std::max(relative_difference(run<Recurrent>(no_gate).y, zero),
                         relative_difference(run<Recurrent>(no_values).y, zero));
       }},
      {"P-23", "gdn_layer_left_padding", kSystem,
       "masked tokens in front: same outputs and caches, pads give 0", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedDeltaNetOutput<Scalar> plain = run<Recurrent>(layer);
         const GatedDeltaNetOutput<Scalar> wide = padded(layer, 3, true);
         const Matrix<Scalar> pads = wide.y.topRows(3);
         return std::max({relative_difference(Matrix<Scalar>(wide.y.bottomRows(kTokens)), plain.y),
                          relative_difference(Matrix<Scalar>(wide.core.bottomRows(kTokens)), plain.core),
                          relative_difference(pads, Matrix<Scalar>(Matrix<Scalar>::Zero(3, kHidden))),
                          cache_difference(wide.cache, plain.cache)});
       }},
      {"P-23", "gdn_layer_right_padding_outputs", kSystem,
       "masked tokens behind: same core of the real tokens", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         return relative_difference(Matrix<Scalar>(padded(layer, 3, false).core.topRows(kTokens)),
                                    run<Recurrent>(layer).core);
       }},

      // ---- mistakes that must be visible

      // Its state is not that of the last real token: the state has decayed, and the convolution has stored
      // the padding.
      {"NC-right-padded-cache", "gdn_layer_right_padding_state", kSystem,
       "cache after right padding against that of the last real token", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         return cache_difference(padded(layer, 3, false).cache, run<Recurrent>(layer).cache);
       }},
      {"NC-tile-for-interleave", "gdn_layer_tiled", kSystem,
       "repeat in place of repeat_interleave (E-08, GDN-9)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         Layer<Scalar> tiled = layer;
         tiled.shape.head_map = HeadMap::tiled;
         return relative_difference(run<Recurrent>(tiled).core, run<Recurrent>(layer).core);
       }},
      {"NC-grouped-as-flat", "gdn_layer_grouped_as_flat", kSystem,
       "checkpoint rows read in the flat order (E-15)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         Layer<Scalar> wrong = layer;
         wrong.shape.layout = ProjectionLayout::flat;
         return relative_difference(run<Recurrent>(wrong).y, run<Recurrent>(layer).y);
       }},
      // Heads of `core` normed after the gate, then projected (against RMS-1).
      {"NC-layer-norm-after-gate", "gdn_layer_norm_after_gate", kSystem,
       "norm(o silu(z)) in place of norm(o) silu(z) (RMS-1)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedDeltaNetOutput<Scalar> out = run<Recurrent>(layer);
         const Index dv = layer.shape.value_width;
         Matrix<Scalar> gated(kTokens, layer.shape.values());
         for (Index h = 0; h < layer.shape.value_heads; ++h) {
           gated.middleCols(h * dv, dv) = rms_norm_of_gated<Scalar>(
               out.core.middleCols(h * dv, dv), out.z.middleCols(h * dv, dv), layer.w.norm, layer.w.epsilon);
         }
         return relative_difference(linear(gated, layer.w.out_proj), out.y);
       }},
      {"NC-core-projected", "gdn_layer_core_projected", kSystem,
       "W_o h^core in place of W_o h^out (GDN-51, E-06)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedDeltaNetOutput<Scalar> out = run<Recurrent>(layer);
         return relative_difference(linear(out.core, layer.w.out_proj), out.y);
       }},
      // The scale dk^-1/2 left out (E-10): the core, since the norm would hide it.
      {"NC-no-scale", "gdn_layer_no_scale", kSystem, "dk^-1/2 left out, seen before the norm (E-10, 8.1)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const auto unscaled = [](Sequence<Scalar> x) {
           x.scale = Scalar(1);
           return recurrent<GatedDeltaRule>(x);
         };
         const auto cache = empty_gated_delta_net_cache(layer.shape, layer.w);
         return relative_difference(gated_delta_net(layer.x, layer.w, layer.shape, cache, unscaled).core,
                                    run<Recurrent>(layer).core);
       }},
      // beta = silu(b), the document calling silu sigma (ACT-2, E-05).
      {"NC-silu-write-strength", "gdn_layer_silu_write_strength", kSystem,
       "beta = silu(b) in place of sigma(b) (E-05, GDN-45)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const Matrix<Scalar> b = split_projections(linear(layer.x, layer.w.in_proj_qkvz),
                                                    linear(layer.x, layer.w.in_proj_ba), layer.shape)
                                      .b;
         return relative_difference(silu(b), write_strength(b));
       }},
      // softplus without dt_bias (GDN-12).
      {"NC-decay-without-bias", "gdn_layer_decay_without_bias", kSystem,
       "softplus(a) in place of softplus(a + dt_bias) (E-04)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         Layer<Scalar> wrong = layer;
         wrong.w.dt_bias.setZero();
         return relative_difference(run<Recurrent>(wrong).g, run<Recurrent>(layer).g);
       }},
      // Decode that starts the convolution anew at each token, the states carried.
      {"NC-layer-convolution-cache", "gdn_layer_convolution_cache_lost", kSystem,
       "decode that carries the states alone", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Layer<Scalar> layer(seed);
         const GatedDeltaNetOutput<Scalar> whole = run<Recurrent>(layer);
         GatedDeltaNetCache<Scalar> cache = empty_gated_delta_net_cache(layer.shape, layer.w);
         Matrix<Scalar> core(kTokens, layer.shape.values());
         for (Index t = 0; t < kTokens; ++t) {
           const auto one = gated_delta_net<Scalar>(layer.x.row(t), layer.w, layer.shape, cache, Recurrent{});
           core.row(t) = one.core;
           cache.state = one.cache.state;
         }
         return relative_difference(core, whole.core);
       }},
  };
}

}  // namespace samestate::gated_delta_net_identities
