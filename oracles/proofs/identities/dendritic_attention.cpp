#include <algorithm>
#include <array>

#include "oracles/proofs/identities/dendritic_draw.h"
#include "oracles/proofs/identities/dendritic_loops.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/costs/dendritic.h"
#include "reference/scalars.h"

/// The dendritic layer against itself on other paths: forms, splits, batches, permutations, padding, plain
/// loops and a layer without any branches. dendritic_invariants.cpp holds what is true inside one run.
namespace samestate {
namespace {

/// E/Es/K/N/O = 4/1/2/2/2, 5/2/2/2/2, 4/0/2/3/2, 4/2/0/1/0, 3/1/2/4/4, on which 7.7 was tried.
std::array<DendriticSizes, 5> toy_sizes() {
  return {{{5, 2, 8, 4, {4, 1, 2}, 2, 2, 4},
           {5, 2, 8, 4, {5, 2, 2}, 2, 2, 4},
           {5, 2, 8, 4, {4, 0, 2}, 3, 2, 4},
           {5, 2, 8, 4, {4, 2, 0}, 1, 0, 4},
           {5, 2, 8, 4, {3, 1, 2}, 4, 4, 4}}};
}

/// The layer on the pieces that `cuts` make, each from the cache of the one before; the chunk of each piece
/// in turn.
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

/// The compacted chunks hold other tokens than the dense ones.
template <class Scalar>
double compacted_chunks(std::uint64_t seed) {
  return compacted_difference<Scalar>(seed, 4);
}

template <class Scalar>
double chunked_layer(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  const DendriticResult<Scalar> recurrent = run_dendritic(c.p, c.x);
  double d = 0.0;
  for (const Index chunk : {1, 4, 16}) {
    DendriticOptions<Scalar> options;
    options.chunk = chunk;
    d = std::max(d, layer_difference(run_dendritic(c.p, c.x, options), recurrent));
  }
  return d;
}

template <class Scalar>
double token_decode(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  return layer_difference(run_in_parts(c, {1, 2, 3, 4, 5, 6, 7, 8}), run_dendritic(c.p, c.x));
}

template <class Scalar>
double any_split(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  const DendriticResult<Scalar> whole = run_dendritic(c.p, c.x);
  double d = 0.0;
  for (const Index cut : {1, 2, 5}) d = std::max(d, layer_difference(run_in_parts(c, {cut}), whole));
  return d;
}

/// Pieces in turn recurrent and chunked, one of them empty, two shorter than the convolution.
template <class Scalar>
double mixed_split(std::uint64_t seed) {
  double d = 0.0;
  for (const DendriticSizes& s : toy_sizes()) {
    const DendriticCase<Scalar> c(seed, s);
    d = std::max(d, layer_difference(run_in_parts(c, {4, 4, 5, 7}, {3, 0}), run_dendritic(c.p, c.x)));
  }
  return d;
}

/// E copies of the values, each convolved by itself, beside the one that the layer convolves.
template <class Scalar>
double value_copies(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  const Index E = c.p.sizes.branches();
  const Matrix<Scalar> v = linear(c.x, c.p.v_proj);
  const Matrix<Scalar> copies = v.replicate(1, E);
  const Matrix<Scalar> kernels = c.p.v_conv.replicate(E, 1);
  const Convolved<Scalar> each = short_convolution(
      copies, kernels, {}, empty_convolution_state<Scalar>(c.p.sizes.convolution_width, copies.cols()));
  const Convolved<Scalar> one = short_convolution(
      v, c.p.v_conv, {}, empty_convolution_state<Scalar>(c.p.sizes.convolution_width, v.cols()));
  return std::max(relative_difference(each.y, one.y.replicate(1, E).eval()),
                  relative_difference(each.state, one.state.replicate(1, E).eval()));
}

/// Unmasked values of every branch and window, as they enter the recurrence.
template <class Scalar>
double values_of_branches(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  const DendriticSizes& s = c.p.sizes;
  DendriticOptions<Scalar> options;
  options.compacted = true;
  const DendriticCoreInput<Scalar> in =
      dendritic_core_input(c.p, c.x, empty_dendritic_cache<Scalar>(s), options);
  const Matrix<Scalar> v = linear(c.x, c.p.v_proj);
  const Matrix<Scalar> y =
      short_convolution(v, c.p.v_conv, {}, empty_convolution_state<Scalar>(s.convolution_width, v.cols())).y;
  double d = 0.0;
  for (Index i = 0; i < s.virtual_heads(); ++i) {
    const Matrix<Scalar> head = y.middleCols(i % s.heads * s.value_width, s.value_width);
    d = std::max(d, relative_difference(in.heads[static_cast<std::size_t>(i)].v, head));
  }
  return d;
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

template <class Scalar>
double plain_loops(std::uint64_t seed) {
  double d = 0.0;
  for (const DendriticSizes& s : toy_sizes()) d = std::max(d, loops_difference<Scalar>(seed, s, 1));
  return d;
}

template <class Scalar>
double batch_rows(std::uint64_t seed) {
  return loops_difference<Scalar>(seed, small_dendritic_sizes(), 3);
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

/// Outputs before token 5 do not know what comes from token 5 on.
template <class Scalar>
double causality(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  IdentityDraw<Scalar> draw(seed + 1);
  Matrix<Scalar> other = c.x;
  other.bottomRows(4) = draw.normal(4, c.x.cols());
  const DendriticResult<Scalar> a = run_dendritic(c.p, c.x), b = run_dendritic(c.p, other);
  return std::max(relative_difference(a.output.topRows(5).eval(), b.output.topRows(5).eval()),
                  relative_difference(a.a.topRows(5).eval(), b.a.topRows(5).eval()));
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

/// Branch order[e] in the place of e; `order` keeps the shared ones among themselves.
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

template <class Scalar>
double routed_order(std::uint64_t seed) {
  return branch_order<Scalar>(seed, {0, 1, 4, 2, 3});
}

template <class Scalar>
double shared_order(std::uint64_t seed) {
  return branch_order<Scalar>(seed, {1, 0, 2, 3, 4});
}

template <class Scalar>
double head_order(std::uint64_t seed) {
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
}

/// Tokens, and pads of arbitrary content before or after them.
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

/// Real tokens as without pads, pad rows zero, and decode continues.
template <class Scalar>
double left_padding(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  const Matrix<Scalar> head = c.x.topRows(6), tail = c.x.bottomRows(3);
  const Padded<Scalar> padded(head, 5, true, seed);
  DendriticResult<Scalar> a = run_dendritic(c.p, padded.x, padded.options);
  const DendriticResult<Scalar> b = run_dendritic(c.p, head);
  const double pads = std::max(relative_difference(a.output.topRows(5).eval(), Matrix<Scalar>::Zero(5, 5)),
                               relative_difference(a.a.topRows(5).eval(), Matrix<Scalar>::Zero(5, 8)));
  a.output = a.output.bottomRows(6).eval();
  a.a = a.a.bottomRows(6).eval();
  for (Matrix<Scalar>& o : a.o) o = o.bottomRows(6).eval();
  return std::max(
      {pads, layer_difference(a, b),
       layer_difference(dendritic_attention(c.p, tail, a.cache), dendritic_attention(c.p, tail, b.cache))});
}

/// Real tokens and recurrent states as without pads; the convolution states are not.
template <class Scalar>
double right_padding(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  const Padded<Scalar> padded(c.x, 5, false, seed);
  const DendriticResult<Scalar> a = run_dendritic(c.p, padded.x, padded.options);
  const DendriticResult<Scalar> b = run_dendritic(c.p, c.x);
  return std::max({relative_difference(a.output.topRows(9).eval(), b.output),
                   relative_difference(a.a.topRows(9).eval(), b.a),
                   relative_difference(stacked(a.cache.state), stacked(b.cache.state))});
}

/// Decode from a right-padded prefill, the guard put out of action.
template <class Scalar>
double decode_after_right_padding(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  const Matrix<Scalar> head = c.x.topRows(6), tail = c.x.bottomRows(3);
  const Padded<Scalar> padded(head, 2, false, seed);
  DendriticResult<Scalar> a = run_dendritic(c.p, padded.x, padded.options);
  a.cache.padded_inside = false;
  return relative_difference(dendritic_attention(c.p, tail, a.cache).a,
                             run_dendritic(c.p, c.x).a.bottomRows(3).eval());
}

/// Numbers of document 003's layer: the shapes of the weights, the caches of two sequences, the cost model.
template <class Scalar>
double counts(std::uint64_t) {
  const DendriticSizes s{2048, 8, 256, 512, {8, 1, 2}, 2, 64, 4};
  Index parameters = 0;
  for (const DendriticWeightShape& w : dendritic_weight_shapes(s))
    parameters += w.copies * w.rows * w.columns;
  const Index state = 2 * s.virtual_heads() * s.split().width * s.value_width;
  const Index convolution =
      2 * s.branches() * s.heads * (2 * s.head_width + s.value_width) * s.convolution_width;
  const costs::DendriticConfig cost;
  const bool right = parameters == 42'240'384 && state == 20'971'520 && convolution == 524'288 &&
                     costs::parameters(cost).total() == parameters && costs::state_elements(cost) == state &&
                     costs::convolution_cache_elements(cost, 4) == convolution;
  return right ? 0.0 : 1.0;
}

/// The layer before its norm against the loops with a mistake (8.1: the norm hides factors).
template <class Scalar, DendriticMistake mistake>
double mistaken(std::uint64_t seed) {
  const DendriticCase<Scalar> c(seed);
  return relative_difference(dendritic_loops(c.p, {c.x}, mistake).a.front(), run_dendritic(c.p, c.x).a);
}

}  // namespace

std::vector<Identity> dendritic_attention_identities() {
  using enum Expectation;
  using enum DendriticMistake;
  constexpr std::string_view s = "dendritic_attention";
  return {
      {"EQ-22", "dendritic_compacted", s, "dense masked = gathered active tokens, token by token", exact,
       &compacted<double>, &compacted<Decimal50>},
      {"EQ-23", "dendritic_decode", s, "one pass = token by token with caches", equal, &token_decode<double>,
       &token_decode<Decimal50>},
      {"EQ-23", "dendritic_split", s, "one pass = split at 1, 2 or 5 with caches", equal, &any_split<double>,
       &any_split<Decimal50>},
      {"EQ-23", "dendritic_chunked", s, "recurrent = chunks of 1, 4 and 16", equal, &chunked_layer<double>,
       &chunked_layer<Decimal50>},
      {"EQ-24", "dendritic_value_copies", s, "E convolutions of E copies of v = one, broadcast", exact,
       &value_copies<double>, &value_copies<Decimal50>},
      {"EQ-25", "dendritic_plain_loops", s,
       "layer = plain loops with the index formulas of 7.2, five layouts", equal, &plain_loops<double>,
       &plain_loops<Decimal50>},
      {"EQ-26", "dendritic_plain_layer", s, "one branch, one window, identity expansions = the layer of 5.5",
       exact, &plain_layer<double>, &plain_layer<Decimal50>},
      {"P-06", "dendritic_compacted_chunks", s, "dense masked = gathered active tokens, in chunks of 4",
       equal, &compacted_chunks<double>, &compacted_chunks<Decimal50>},
      {"P-07", "dendritic_causality", s, "outputs before token 5 do not depend on tokens from 5 on", exact,
       &causality<double>, &causality<Decimal50>},
      {"P-08", "dendritic_batch_rows", s, "a batch in plain loops = its rows one by one, in another order",
       equal, &batch_rows<double>, &batch_rows<Decimal50>},
      {"P-09", "dendritic_mixed_split", s,
       "one pass = pieces chunked and recurrent in turn, one of them empty; five layouts", equal,
       &mixed_split<double>, &mixed_split<Decimal50>},
      {"P-10", "dendritic_routed_order", s, "routed branches renumbered: same output", equal,
       &routed_order<double>, &routed_order<Decimal50>},
      {"P-10", "dendritic_shared_order", s, "shared branches renumbered: same output", equal,
       &shared_order<double>, &shared_order<Decimal50>},
      {"P-11", "dendritic_head_order", s, "heads renumbered in every weight: same output", equal,
       &head_order<double>, &head_order<Decimal50>},
      {"P-20", "dendritic_without_branches", s, "E = Es = N = 1, K = 0, identity expansions = 5.5", exact,
       &plain_layer<double>, &plain_layer<Decimal50>},
      {"P-23", "dendritic_left_padding", s,
       "padded on the left = not padded: real tokens, caches, decode; pad rows 0", equal,
       &left_padding<double>, &left_padding<Decimal50>},
      {"P-23", "dendritic_right_padding", s, "padded on the right = not padded: real tokens and S", equal,
       &right_padding<double>, &right_padding<Decimal50>},
      {"P-24", "dendritic_shared_values", s,
       "v after the convolution is the same for every branch and window", exact, &values_of_branches<double>,
       &values_of_branches<Decimal50>},
      {"P-26", "dendritic_counts", s,
       "document 003: 42,240,384 parameters, 20,971,520 state and 524,288 convolution numbers", exact,
       &counts<double>, &counts<Decimal50>},
      {"NC-dendritic-mask-before-convolution", "dendritic_mask_before_convolution", s,
       "branch mask before the convolution (A-12)", differs, &mistaken<double, mask_before_convolution>,
       &mistaken<Decimal50, mask_before_convolution>},
      {"NC-dendritic-l2norm-before-windowing", "dendritic_l2norm_before_windowing", s,
       "l2norm over d before windowing (A-04)", differs, &mistaken<double, l2norm_before_windowing>,
       &mistaken<Decimal50, l2norm_before_windowing>},
      {"NC-dendritic-interleaved-values", "dendritic_interleaved_values", s,
       "v, g, beta repeated by repeat_interleave, not tiled (DEND-28)", differs,
       &mistaken<double, interleaved_values>, &mistaken<Decimal50, interleaved_values>},
      {"NC-dendritic-equal-thirds", "dendritic_equal_thirds", s,
       "the normalised mask as weights (DEND-42, E-09)", differs, &mistaken<double, equal_thirds>,
       &mistaken<Decimal50, equal_thirds>},
      {"NC-dendritic-literal-weights", "dendritic_literal_weights", s,
       "R2: probabilities not renormalised before the shared weight joins (DEND-10)", differs,
       &mistaken<double, literal_weights>, &mistaken<Decimal50, literal_weights>},
      {"NC-dendritic-no-delta-term", "dendritic_no_delta_term", s, "S + beta k v^T (DEND-31, E-01)", differs,
       &mistaken<double, no_delta_term>, &mistaken<Decimal50, no_delta_term>},
      {"NC-dendritic-decay-as-multiplier", "dendritic_decay_as_multiplier", s,
       "g S, not e^g S (DEND-31, E-02)", differs, &mistaken<double, decay_as_multiplier>,
       &mistaken<Decimal50, decay_as_multiplier>},
      {"NC-dendritic-scale-of-head-width", "dendritic_scale_of_head_width", s, "d^-1/2, not w^-1/2 (A-05)",
       differs, &mistaken<double, scale_of_head_width>, &mistaken<Decimal50, scale_of_head_width>},
      {"NC-dendritic-mean-over-windows", "dendritic_mean_over_windows", s, "mean, not sum of windows (A-16)",
       differs, &mistaken<double, mean_over_windows>, &mistaken<Decimal50, mean_over_windows>},
      {"NC-dendritic-unshifted-index", "dendritic_unshifted_index", s,
       "routed index not shifted by Es before the scatter (DEND-9, A-09)", differs,
       &mistaken<double, routed_index_not_shifted>, &mistaken<Decimal50, routed_index_not_shifted>},
      {"NC-dendritic-right-padded-decode", "dendritic_decode_after_right_padding", s,
       "decode from a right-padded prefill (7.4)", differs, &decode_after_right_padding<double>,
       &decode_after_right_padding<Decimal50>},
  };
}

}  // namespace samestate
