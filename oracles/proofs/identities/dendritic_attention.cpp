#include <algorithm>
#include <array>

#include "oracles/proofs/identities/dendritic_draw.h"
#include "oracles/proofs/identities/dendritic_loops.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/costs/dendritic.h"
#include "reference/scalars.h"

/// The dendritic layer compared with itself on other paths: forms, splits, batches, permutations, padding,
/// plain loops, and a layer without branches. dendritic_invariants.cpp has the properties of a single run.
namespace samestate::dendritic_attention_identities {
namespace {

/// E/Es/K/N/O = 4/1/2/2/2, 5/2/2/2/2, 4/0/2/3/2, 4/2/0/1/0, 3/1/2/4/4, on which 7.7 was tried.
std::array<DendriticSizes, 5> toy_sizes() {
  return {{{5, 2, 8, 4, {4, 1, 2}, 2, 2, 4},
           {5, 2, 8, 4, {5, 2, 2}, 2, 2, 4},
           {5, 2, 8, 4, {4, 0, 2}, 3, 2, 4},
           {5, 2, 8, 4, {4, 2, 0}, 1, 0, 4},
           {5, 2, 8, 4, {3, 1, 2}, 4, 4, 4}}};
}

/// The layer on the pieces that `cuts` make, each starting from the cache of the one before; the pieces use
/// the chunks in turn.
template <class Scalar>
DendriticResult<Scalar> run_in_parts(const DendriticCase<Scalar>& c, std::vector<Index> cuts,
                                     const std::vector<Index>& chunks = {0}) {
  cuts.push_back(c.x.rows());
  DendriticResult<Scalar> whole;
  DendriticCache<Scalar> cache = empty_dendritic_cache<Scalar>(c.p.sizes);
  Index begin = 0;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    const Matrix<Scalar> piece = c.x.middleRows(begin, cuts[i] - begin);
    DendriticOptions<Scalar> options;
    options.chunk = chunks[i % chunks.size()];
    DendriticResult<Scalar> part = dendritic_attention(c.p, piece, cache, options);
    cache = part.cache;
    if (i == 0) {
      whole = std::move(part);
    } else {
      whole.output = stacked<Scalar>({whole.output, part.output});
      whole.a = stacked<Scalar>({whole.a, part.a});
      for (std::size_t h = 0; h < whole.o.size(); ++h) whole.o[h] = stacked<Scalar>({whole.o[h], part.o[h]});
    }
    begin = cuts[i];
  }
  whole.cache = cache;
  return whole;
}

template <class Scalar>
double compacted_difference(std::uint64_t seed, Index chunk) {
  double d = 0.0;
  for (const DendriticSizes& s : toy_sizes()) {
    const DendriticCase<Scalar> c(seed, s);
    DendriticOptions<Scalar> options;
    options.chunk = chunk;
    const DendriticResult<Scalar> dense = run_dendritic(c.p, c.x, options);
    options.compacted = true;
    d = std::max(d, layer_difference(run_dendritic(c.p, c.x, options), dense));
  }
  return d;
}

template <class Scalar>
double compacted(std::uint64_t seed) {
  return compacted_difference<Scalar>(seed, 0);
}

/// A batch of `B` in the plain loops against the layer row by row, the rows of the batch in another order.
template <class Scalar>
double loops_difference(std::uint64_t seed, const DendriticSizes& s, Index B) {
  IdentityDraw<Scalar> draw(seed);
  const DendriticParameters<Scalar> p = draw_dendritic(draw, s);
  std::vector<Matrix<Scalar>> batch;
  for (Index b = 0; b < B; ++b) batch.push_back(draw.normal(6, s.model_width));
  const DendriticLoopResult<Scalar> loops = dendritic_loops(p, batch);
  double d = 0.0;
  for (std::size_t b = batch.size(); b-- > 0;) {
    const DendriticResult<Scalar> row = run_dendritic(p, batch[b]);
    d = std::max({d, relative_difference(row.output, loops.output[b]), relative_difference(row.a, loops.a[b]),
                  relative_difference(stacked(row.cache.state), stacked(loops.state[b]))});
  }
  return d;
}

/// One branch, always on, one window, expansions that change nothing: the layer of 5.5 written out.
template <class Scalar>
double plain_layer(std::uint64_t seed) {
  using std::sqrt;
  DendriticSizes s = small_dendritic_sizes();
  s.branch = {1, 1, 0};
  s.windows = 1;
  DendriticCase<Scalar> c(seed, s);
  for (auto* expansion : {&c.p.q_expansion, &c.p.k_expansion}) {
    for (Matrix<Scalar>& weight : *expansion) {
      weight = Matrix<Scalar>::Identity(s.head_width, s.head_width);
    }
  }
  const auto convolved = [&](const Matrix<Scalar>& weight, const Matrix<Scalar>& kernel) {
    const Matrix<Scalar> y = linear(c.x, weight);
    return short_convolution(y, kernel, {}, empty_convolution_state<Scalar>(s.convolution_width, y.cols())).y;
  };
  const Matrix<Scalar> q = convolved(c.p.q_proj, c.p.q_conv);
  const Matrix<Scalar> k = convolved(c.p.k_proj, c.p.k_conv);
  const Matrix<Scalar> v = convolved(c.p.v_proj, c.p.v_conv);
  const Matrix<Scalar> z = linear(c.x, c.p.g_proj);
  const Matrix<Scalar> beta = write_strength(linear(c.x, c.p.b_proj));
  const Matrix<Scalar> g = log_decay(linear(c.x, c.p.a_proj), c.p.A_log, c.p.dt_bias);
  Matrix<Scalar> y(v.rows(), v.cols());
  std::vector<Matrix<Scalar>> states;
  for (Index h = 0; h < s.heads; ++h) {
    const Index d = s.head_width, dv = s.value_width;
    const Matrix<Scalar> qh = q.middleCols(h * d, d), kh = k.middleCols(h * d, d),
                         zh = z.middleCols(h * dv, dv);
    const Sequence<Scalar> head{l2norm(qh),
                                l2norm(kh),
                                v.middleCols(h * dv, dv),
                                g.col(h),
                                beta.col(h),
                                Scalar(1) / sqrt(Scalar(static_cast<double>(d))),
                                Matrix<Scalar>::Zero(d, dv)};
    const Trajectory<Scalar> core = recurrent<GatedDeltaRule>(head);
    y.middleCols(h * dv, dv) = rms_norm_gated(core.o, zh, c.p.o_norm, c.p.norm_epsilon);
    states.push_back(core.state);
  }
  const DendriticResult<Scalar> layer = run_dendritic(c.p, c.x);
  return std::max(relative_difference(layer.output, linear(y, c.p.o_proj)),
                  relative_difference(stacked(layer.cache.state), stacked(states)));
}

/// The blocks of `block` rows of w in another order.
template <class M>
M reordered(const M& w, const std::vector<Index>& order, Index block) {
  M out = w;
  for (std::size_t i = 0; i < order.size(); ++i) {
    out.middleRows(static_cast<Index>(i) * block, block) = w.middleRows(order[i] * block, block);
  }
  return out;
}

/// Puts branch order[e] in the place of e; `order` permutes the shared ones among themselves.
template <class Scalar>
DendriticParameters<Scalar> with_branches(const DendriticParameters<Scalar>& p,
                                          const std::vector<Index>& order) {
  const DendriticSizes& s = p.sizes;
  DendriticParameters<Scalar> out = p;
  for (auto* w : {&out.a_proj, &out.b_proj}) *w = reordered(*w, order, s.heads);
  for (auto* w : {&out.A_log, &out.dt_bias}) *w = reordered(*w, order, s.heads);
  for (auto* list : {&out.q_expansion, &out.k_expansion}) {
    for (Matrix<Scalar>& w : *list) w = reordered(w, order, s.head_width);
  }
  std::vector<Index> routed;
  for (auto e = static_cast<std::size_t>(s.branch.shared); e < order.size(); ++e) {
    routed.push_back(order[e] - s.branch.shared);
  }
  out.router = reordered(p.router, routed, 1);
  return out;
}

template <class Scalar>
double branch_order(std::uint64_t seed, const std::vector<Index>& order) {
  DendriticSizes s = small_dendritic_sizes();
  s.branch = {5, 2, 2};
  const DendriticCase<Scalar> c(seed, s);
  const DendriticResult<Scalar> a = run_dendritic(with_branches(c.p, order), c.x);
  const DendriticResult<Scalar> b = run_dendritic(c.p, c.x);
  return std::max(relative_difference(a.output, b.output), relative_difference(a.a, b.a));
}

/// Tokens, with pads of arbitrary content before or after them.
template <class Scalar>
struct Padded {
  Matrix<Scalar> x;
  DendriticOptions<Scalar> options;
  Padded(const Matrix<Scalar>& tokens, Index pads, bool left, std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed + 1);
    const Matrix<Scalar> junk = draw.normal(pads, tokens.cols());
    x = left ? stacked<Scalar>({junk, tokens}) : stacked<Scalar>({tokens, junk});
    options.real.assign(static_cast<std::size_t>(x.rows()), true);
    const auto first = options.real.begin() + (left ? 0 : tokens.rows());
    std::fill(first, first + pads, false);
  }
};

/// The layer before its norm against the loops with a mistake (8.1: the norm hides factors).
template <class Scalar>
double mistaken(std::uint64_t seed, DendriticMistake mistake) {
  const DendriticCase<Scalar> c(seed);
  return relative_difference(dendritic_loops(c.p, {c.x}, mistake).a.front(), run_dendritic(c.p, c.x).a);
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  using enum DendriticMistake;
  constexpr std::string_view kSystem = "dendritic_attention";
  return {
      {"EQ-22", "dendritic_compacted", kSystem, "dense masked = gathered active tokens, token by token",
       exact, []<class Scalar>(std::uint64_t seed) { return compacted<Scalar>(seed); }},
      {"EQ-23", "dendritic_decode", kSystem, "one pass = token by token with caches", equal,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         return layer_difference(run_in_parts(c, {1, 2, 3, 4, 5, 6, 7, 8}), run_dendritic(c.p, c.x));
       }},
      {"EQ-23", "dendritic_split", kSystem, "one pass = split at 1, 2 or 5 with caches", equal,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         const DendriticResult<Scalar> whole = run_dendritic(c.p, c.x);
         double d = 0.0;
         for (const Index cut : {1, 2, 5}) d = std::max(d, layer_difference(run_in_parts(c, {cut}), whole));
         return d;
       }},
      {"EQ-23", "dendritic_chunked", kSystem, "recurrent = chunks of 1, 4 and 16", equal,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         const DendriticResult<Scalar> recurrent = run_dendritic(c.p, c.x);
         double d = 0.0;
         for (const Index chunk : {1, 4, 16}) {
           DendriticOptions<Scalar> options;
           options.chunk = chunk;
           d = std::max(d, layer_difference(run_dendritic(c.p, c.x, options), recurrent));
         }
         return d;
       }},
      // E copies of the values, each convolved by itself, are compared with the one that the layer convolves.
      {"EQ-24", "dendritic_value_copies", kSystem, "E convolutions of E copies of v = one, broadcast", exact,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         const Index E = c.p.sizes.branches();
         const Matrix<Scalar> v = linear(c.x, c.p.v_proj);
         const Matrix<Scalar> copies = v.replicate(1, E);
         const Matrix<Scalar> kernels = c.p.v_conv.replicate(E, 1);
         const Convolved<Scalar> each =
             short_convolution(copies, kernels, {},
                               empty_convolution_state<Scalar>(c.p.sizes.convolution_width, copies.cols()));
         const Convolved<Scalar> one = short_convolution(
             v, c.p.v_conv, {}, empty_convolution_state<Scalar>(c.p.sizes.convolution_width, v.cols()));
         return std::max(relative_difference(each.y, one.y.replicate(1, E).eval()),
                         relative_difference(each.state, one.state.replicate(1, E).eval()));
       }},
      {"EQ-25", "dendritic_plain_loops", kSystem,
       "layer = plain loops with the index formulas of 7.2, five layouts", equal,
       []<class Scalar>(std::uint64_t seed) {
         double d = 0.0;
         for (const DendriticSizes& s : toy_sizes()) d = std::max(d, loops_difference<Scalar>(seed, s, 1));
         return d;
       }},
      {"EQ-26 P-20", "dendritic_plain_layer", kSystem,
       "one branch, one window, identity expansions = the layer of 5.5", exact,
       []<class Scalar>(std::uint64_t seed) { return plain_layer<Scalar>(seed); }},
      // The compacted chunks hold other tokens than the dense ones.
      {"P-06", "dendritic_compacted_chunks", kSystem, "dense masked = gathered active tokens, in chunks of 4",
       equal, []<class Scalar>(std::uint64_t seed) { return compacted_difference<Scalar>(seed, 4); }},
      {"P-07", "dendritic_causality", kSystem, "outputs before token 5 do not depend on tokens from 5 on",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         IdentityDraw<Scalar> draw(seed + 1);
         Matrix<Scalar> other = c.x;
         other.bottomRows(4) = draw.normal(4, c.x.cols());
         const DendriticResult<Scalar> a = run_dendritic(c.p, c.x), b = run_dendritic(c.p, other);
         return std::max(relative_difference(a.output.topRows(5).eval(), b.output.topRows(5).eval()),
                         relative_difference(a.a.topRows(5).eval(), b.a.topRows(5).eval()));
       }},
      {"P-08", "dendritic_batch_rows", kSystem,
       "a batch in plain loops = its rows one by one, in another order", equal,
       []<class Scalar>(std::uint64_t seed) {
         return loops_difference<Scalar>(seed, small_dendritic_sizes(), 3);
       }},
      // Pieces in turn recurrent and chunked, one of them empty, two shorter than the convolution.
      {"P-09", "dendritic_mixed_split", kSystem,
       "one pass = pieces chunked and recurrent in turn, one of them empty; five layouts", equal,
       []<class Scalar>(std::uint64_t seed) {
         double d = 0.0;
         for (const DendriticSizes& s : toy_sizes()) {
           const DendriticCase<Scalar> c(seed, s);
           d = std::max(d, layer_difference(run_in_parts(c, {4, 4, 5, 7}, {3, 0}), run_dendritic(c.p, c.x)));
         }
         return d;
       }},
      {"P-10", "dendritic_routed_order", kSystem, "routed branches renumbered: same output", equal,
       []<class Scalar>(std::uint64_t seed) {
         return branch_order<Scalar>(seed, {0, 1, 4, 2, 3});
       }},
      {"P-10", "dendritic_shared_order", kSystem, "shared branches renumbered: same output", equal,
       []<class Scalar>(std::uint64_t seed) {
         return branch_order<Scalar>(seed, {1, 0, 2, 3, 4});
       }},
      {"P-11", "dendritic_head_order", kSystem, "heads renumbered in every weight: same output", equal,
       []<class Scalar>(std::uint64_t seed) {
         DendriticSizes s = small_dendritic_sizes();
         s.heads = 3;
         const DendriticCase<Scalar> c(seed, s);
         const std::vector<Index> order{2, 0, 1};
         DendriticParameters<Scalar> p = c.p;
         for (auto* w : {&p.q_proj, &p.k_proj, &p.q_conv, &p.k_conv}) *w = reordered(*w, order, s.head_width);
         for (auto* w : {&p.v_proj, &p.g_proj, &p.v_conv}) *w = reordered(*w, order, s.value_width);
         p.o_proj = reordered(Matrix<Scalar>(p.o_proj.transpose()), order, s.value_width).transpose().eval();
         std::vector<Index> merged;
         for (Index e = 0; e < s.branches(); ++e) {
           for (const Index h : order) merged.push_back(s.merged_head(e, h));
         }
         for (auto* w : {&p.a_proj, &p.b_proj}) *w = reordered(*w, merged, 1);
         for (auto* w : {&p.A_log, &p.dt_bias}) *w = reordered(*w, merged, 1);
         for (auto* list : {&p.q_expansion, &p.k_expansion}) *list = {(*list)[2], (*list)[0], (*list)[1]};
         return relative_difference(run_dendritic(p, c.x).output, run_dendritic(c.p, c.x).output);
       }},
      // Real tokens as without pads, pad rows zero, and decode continues.
      {"P-23", "dendritic_left_padding", kSystem,
       "padded on the left = not padded: real tokens, caches, decode; pad rows 0", equal,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         const Matrix<Scalar> head = c.x.topRows(6), tail = c.x.bottomRows(3);
         const Padded<Scalar> padded(head, 5, true, seed);
         DendriticResult<Scalar> a = run_dendritic(c.p, padded.x, padded.options);
         const DendriticResult<Scalar> b = run_dendritic(c.p, head);
         const double pads =
             std::max(relative_difference(a.output.topRows(5).eval(), Matrix<Scalar>::Zero(5, 5)),
                      relative_difference(a.a.topRows(5).eval(), Matrix<Scalar>::Zero(5, 8)));
         a.output = a.output.bottomRows(6).eval();
         a.a = a.a.bottomRows(6).eval();
         for (Matrix<Scalar>& o : a.o) o = o.bottomRows(6).eval();
         return std::max({pads, layer_difference(a, b),
                          layer_difference(dendritic_attention(c.p, tail, a.cache),
                                           dendritic_attention(c.p, tail, b.cache))});
       }},
      // Real tokens and recurrent states as without pads; the convolution states are not.
      {"P-23", "dendritic_right_padding", kSystem, "padded on the right = not padded: real tokens and S",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         const Padded<Scalar> padded(c.x, 5, false, seed);
         const DendriticResult<Scalar> a = run_dendritic(c.p, padded.x, padded.options);
         const DendriticResult<Scalar> b = run_dendritic(c.p, c.x);
         return std::max({relative_difference(a.output.topRows(9).eval(), b.output),
                          relative_difference(a.a.topRows(9).eval(), b.a),
                          relative_difference(stacked(a.cache.state), stacked(b.cache.state))});
       }},
      // Unmasked values of every branch and window, as they enter the recurrence.
      {"P-24", "dendritic_shared_values", kSystem,
       "v after the convolution is the same for every branch and window", exact,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         const DendriticSizes& s = c.p.sizes;
         DendriticOptions<Scalar> options;
         options.compacted = true;
         const DendriticCoreInput<Scalar> in =
             dendritic_core_input(c.p, c.x, empty_dendritic_cache<Scalar>(s), options);
         const Matrix<Scalar> v = linear(c.x, c.p.v_proj);
         const Matrix<Scalar> y =
             short_convolution(v, c.p.v_conv, {},
                               empty_convolution_state<Scalar>(s.convolution_width, v.cols()))
                 .y;
         double d = 0.0;
         for (Index i = 0; i < s.virtual_heads(); ++i) {
           const Matrix<Scalar> head = y.middleCols(i % s.heads * s.value_width, s.value_width);
           d = std::max(d, relative_difference(in.heads[static_cast<std::size_t>(i)].v, head));
         }
         return d;
       }},
      // Numbers of document 003's layer: the shapes of the weights, the caches of two sequences, the cost model.
      {"P-26", "dendritic_counts", kSystem,
       "document 003: 42,240,384 parameters, 20,971,520 state and 524,288 convolution numbers", exact,
       []<class Scalar>(std::uint64_t) {
         const DendriticSizes s{2048, 8, 256, 512, {8, 1, 2}, 2, 64, 4};
         Index parameters = 0;
         for (const DendriticWeightShape& w : dendritic_weight_shapes(s))
           parameters += w.copies * w.rows * w.columns;
         const Index state = 2 * s.virtual_heads() * s.split().width * s.value_width;
         const Index convolution =
             2 * s.branches() * s.heads * (2 * s.head_width + s.value_width) * s.convolution_width;
         const costs::DendriticConfig cost;
         const bool right = parameters == 42'240'384 && state == 20'971'520 && convolution == 524'288 &&
                            costs::parameters(cost).total() == parameters &&
                            costs::state_elements(cost) == state &&
                            costs::convolution_cache_elements(cost, 4) == convolution;
         return right ? 0.0 : 1.0;
       }},
      {"NC-dendritic-mask-before-convolution", "dendritic_mask_before_convolution", kSystem,
       "branch mask before the convolution (A-12)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, mask_before_convolution); }},
      {"NC-dendritic-l2norm-before-windowing", "dendritic_l2norm_before_windowing", kSystem,
       "l2norm over d before windowing (A-04)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, l2norm_before_windowing); }},
      {"NC-dendritic-interleaved-values", "dendritic_interleaved_values", kSystem,
       "v, g, beta repeated by repeat_interleave, not tiled (DEND-28)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, interleaved_values); }},
      {"NC-dendritic-equal-thirds", "dendritic_equal_thirds", kSystem,
       "the normalised mask as weights (DEND-42, E-09)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, equal_thirds); }},
      {"NC-dendritic-literal-weights", "dendritic_literal_weights", kSystem,
       "R2: probabilities not renormalised before the shared weight joins (DEND-10)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, literal_weights); }},
      {"NC-dendritic-no-delta-term", "dendritic_no_delta_term", kSystem, "S + beta k v^T (DEND-31, E-01)",
       differs, []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, no_delta_term); }},
      {"NC-dendritic-decay-as-multiplier", "dendritic_decay_as_multiplier", kSystem,
       "g S, not e^g S (DEND-31, E-02)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, decay_as_multiplier); }},
      {"NC-dendritic-scale-of-head-width", "dendritic_scale_of_head_width", kSystem,
       "d^-1/2, not w^-1/2 (A-05)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, scale_of_head_width); }},
      {"NC-dendritic-mean-over-windows", "dendritic_mean_over_windows", kSystem,
       "mean, not sum of windows (A-16)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, mean_over_windows); }},
      {"NC-dendritic-unshifted-index", "dendritic_unshifted_index", kSystem,
       "routed index not shifted by Es before the scatter (DEND-9, A-09)", differs,
       []<class Scalar>(std::uint64_t seed) { return mistaken<Scalar>(seed, routed_index_not_shifted); }},
      // Decode from a right-padded prefill, the guard put out of action.
      {"NC-dendritic-right-padded-decode", "dendritic_decode_after_right_padding", kSystem,
       "decode from a right-padded prefill (7.4)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const DendriticCase<Scalar> c(seed);
         const Matrix<Scalar> head = c.x.topRows(6), tail = c.x.bottomRows(3);
         const Padded<Scalar> padded(head, 2, false, seed);
         DendriticResult<Scalar> a = run_dendritic(c.p, padded.x, padded.options);
         a.cache.padded_inside = false;
         return relative_difference(dendritic_attention(c.p, tail, a.cache).a,
                                    run_dendritic(c.p, c.x).a.bottomRows(3).eval());
       }},
  };
}

}  // namespace samestate::dendritic_attention_identities
