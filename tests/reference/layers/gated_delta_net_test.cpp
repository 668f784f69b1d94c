#include "reference/layers/gated_delta_net.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::relative;

const auto kRecurrent = [](const Sequence<double>& x) { return recurrent<GatedDeltaRule>(x); };
const auto kChunked = [](const Sequence<double>& x) { return chunked<GatedDeltaRule>(x, 4); };

struct Case {
  GatedDeltaNetShape shape{2, 4, 3, 5};
  GatedDeltaNetWeights<double> weights;
  Matrix<double> x;
};

Case draw_case(Index T, Index hidden = 6, Index W = 4) {
  std::mt19937_64 engine(5);
  std::normal_distribution<double> normal;
  const auto fill = [&](Index rows, Index columns, double scale) {
    Matrix<double> m(rows, columns);
    for (Index i = 0; i < m.size(); ++i) m.data()[i] = scale * normal(engine);
    return m;
  };
  Case c;
  const GatedDeltaNetShape& s = c.shape;
  c.weights.in_proj_qkvz = fill(2 * s.keys() + 2 * s.values(), hidden, 0.5);
  c.weights.in_proj_ba = fill(2 * s.value_heads, hidden, 0.5);
  c.weights.conv1d = fill(s.channels(), W, 0.5);
  c.weights.A_log = fill(s.value_heads, 1, 0.5);
  c.weights.dt_bias = Vector<double>::Ones(s.value_heads);
  c.weights.norm = fill(s.value_width, 1, 1.0);
  c.weights.out_proj = fill(hidden, s.values(), 0.5);
  c.x = fill(T, hidden, 1.0);
  return c;
}

template <class Run>
GatedDeltaNetOutput<double> run(const Case& c, const Matrix<double>& x, const Run& form,
                                const std::vector<bool>& real = {}) {
  return gated_delta_net(x, c.weights, c.shape, empty_gated_delta_net_cache(c.shape, c.weights), form, real);
}

// Two key heads of width 1 with two value heads each of width 1: columns q0 k0 v0 v1 z0 z1 | q1 k1 v2 v3 z2
// z3 and b0 b1 a0 a1 | b2 b3 a2 a3.
TEST(GatedDeltaNet, GroupedColumns) {
  const GatedDeltaNetShape shape{2, 4, 1, 1};
  Matrix<double> qkvz(1, 12);
  qkvz << 10, 20, 30, 31, 40, 41, 11, 21, 32, 33, 42, 43;
  Matrix<double> ba(1, 8);
  ba << 50, 51, 60, 61, 52, 53, 62, 63;
  const GatedDeltaNetProjections<double> p = split_projections(qkvz, ba, shape);
  EXPECT_EQ(p.mixed, (Matrix<double>(1, 8) << 10, 11, 20, 21, 30, 31, 32, 33).finished());
  EXPECT_EQ(p.z, (Matrix<double>(1, 4) << 40, 41, 42, 43).finished());
  EXPECT_EQ(p.b, (Matrix<double>(1, 4) << 50, 51, 52, 53).finished());
  EXPECT_EQ(p.a, (Matrix<double>(1, 4) << 60, 61, 62, 63).finished());

  GatedDeltaNetShape flat = shape;
  flat.layout = ProjectionLayout::flat;
  const GatedDeltaNetProjections<double> f = split_projections(qkvz, ba, flat);
  EXPECT_EQ(f.mixed, qkvz.leftCols(8));
  EXPECT_EQ(f.z, qkvz.rightCols(4));
  EXPECT_EQ(f.b, ba.leftCols(4));
  EXPECT_EQ(f.a, ba.rightCols(4));
  EXPECT_THROW(static_cast<void>(split_projections(ba, ba, shape)), Error);
}

// GDN-9: interleave serves 0 0 1 1, tile 0 1 0 1.
TEST(GatedDeltaNet, HeadMap) {
  GatedDeltaNetShape shape{2, 4, 1, 1};
  for (Index h = 0; h < 4; ++h) EXPECT_EQ(shape.key_head(h), h / 2);
  shape.head_map = HeadMap::tiled;
  for (Index h = 0; h < 4; ++h) EXPECT_EQ(shape.key_head(h), h % 2);
}

// One token of width-1 heads, by hand, with a kernel of one column: q = k = v = silu(1), z = 2, b = a = 0,
// A_log = dt_bias = 0 give beta = 1/2 and, by GDN-47, g = -ln 2.
TEST(GatedDeltaNet, OneTokenByHand) {
  const GatedDeltaNetShape shape{1, 1, 1, 1};
  GatedDeltaNetWeights<double> w;
  w.in_proj_qkvz = (Matrix<double>(4, 1) << 1, 1, 1, 2).finished();
  w.in_proj_ba = Matrix<double>::Zero(2, 1);
  w.conv1d = Matrix<double>::Ones(3, 1);
  w.A_log = Vector<double>::Zero(1);
  w.dt_bias = Vector<double>::Zero(1);
  w.norm = Vector<double>::Constant(1, 3.0);
  w.out_proj = Matrix<double>::Constant(1, 1, 10.0);
  w.epsilon = 0.0;
  GatedDeltaNetCache<double> cache = empty_gated_delta_net_cache(shape, w);
  EXPECT_EQ(cache.convolution.rows(), 0);
  cache.state[0](0, 0) = 4.0;
  const auto out = gated_delta_net<double>(Matrix<double>::Ones(1, 1), w, shape, cache, kRecurrent);
  const double v = silu(1.0);
  const double key = v / std::sqrt(v * v + 1e-6);
  const double state = 2.0 + 0.5 * key * (v - key * 2.0);
  EXPECT_EQ(out.beta(0, 0), 0.5);
  EXPECT_NEAR(out.g(0, 0), -std::log(2.0), 1e-16);
  EXPECT_NEAR(out.cache.state[0](0, 0), state, 1e-15);
  EXPECT_NEAR(out.core(0, 0), key * state, 1e-15);
  EXPECT_NEAR(out.gated(0, 0), 3.0 * silu(2.0), 1e-15);
  EXPECT_NEAR(out.y(0, 0), 30.0 * silu(2.0), 1e-14);
}

// CONV-5: fewer tokens than the kernel is wide leave zeros in front.
TEST(GatedDeltaNet, StoredConvolutionState) {
  const Matrix<double> empty = Matrix<double>::Zero(1, 4);
  const Matrix<double> two = (Matrix<double>(2, 1) << 1, 2).finished();
  const Matrix<double> after = stored_convolution_state(empty, two);
  EXPECT_EQ(after, (Matrix<double>(1, 4) << 0, 0, 1, 2).finished());
  const Matrix<double> more = (Matrix<double>(3, 1) << 3, 4, 5).finished();
  EXPECT_EQ(stored_convolution_state(after, more), (Matrix<double>(1, 4) << 2, 3, 4, 5).finished());
  EXPECT_THROW(static_cast<void>(stored_convolution_state(Matrix<double>(Matrix<double>::Zero(2, 4)), two)),
               Error);
}

// The cache of a split is W - 1 columns of the stored one, whatever the split.
TEST(GatedDeltaNet, CacheIsTheTailOfTheStoredState) {
  const Case c = draw_case(7);
  for (const Index T : {0, 1, 2, 3, 7}) {
    const auto out = run(c, c.x.topRows(T), kRecurrent);
    const Matrix<double> stored =
        stored_convolution_state<double>(Matrix<double>::Zero(c.shape.channels(), 4), out.mixed);
    EXPECT_EQ(out.cache.convolution, stored.rightCols(3).transpose()) << T;
  }
}

TEST(GatedDeltaNet, NoTokensReturnTheCache) {
  const Case c = draw_case(5);
  const auto before = run(c, c.x, kRecurrent).cache;
  for (const bool chunks : {false, true}) {
    const Matrix<double> none(0, 6);
    const auto out = chunks ? gated_delta_net(none, c.weights, c.shape, before, kChunked)
                            : gated_delta_net(none, c.weights, c.shape, before, kRecurrent);
    EXPECT_EQ(out.y.rows(), 0);
    EXPECT_EQ(out.y.cols(), 6);
    EXPECT_EQ(out.cache.convolution, before.convolution);
    for (std::size_t h = 0; h < 4; ++h) EXPECT_EQ(out.cache.state[h], before.state[h]);
  }
}

// A token whose value is masked is not a token: garbage under the mask is not read.
TEST(GatedDeltaNet, MaskHidesWhatItCovers) {
  const Case c = draw_case(6);
  const std::vector<bool> real{false, false, true, true, true, true};
  Matrix<double> garbage = c.x;
  garbage.topRows(2).setConstant(1e6);
  EXPECT_EQ(run(c, garbage, kChunked, real).y, run(c, c.x, kChunked, real).y);
  EXPECT_GT(relative(run(c, garbage, kChunked).y, run(c, c.x, kChunked).y), 1e-3);
  // All padding: no output, no state.
  const auto nothing = run(c, c.x, kRecurrent, std::vector<bool>(6, false));
  EXPECT_EQ(nothing.y, (Matrix<double>::Zero(6, 6)));
  EXPECT_EQ(nothing.cache.state[3], (Matrix<double>::Zero(3, 5)));
}

// E-16: the norm after the rule is plain, so a weight of 0 gives 0 (a zero-centred one would not).
TEST(GatedDeltaNet, NormIsPlain) {
  Case c = draw_case(3);
  c.weights.norm.setZero();
  const auto out = run(c, c.x, kRecurrent);
  EXPECT_EQ(out.y, (Matrix<double>::Zero(3, 6)));
  EXPECT_GT(out.core.cwiseAbs().maxCoeff(), 1e-3);
}

// EQUATIONS 8.1: with epsilon 0 a factor on the core is gone after the norm; the pre-norm tensor shows it.
TEST(GatedDeltaNet, NormHidesScale) {
  Case c = draw_case(5);
  c.weights.epsilon = 0.0;
  const auto unscaled = [](Sequence<double> x) {
    x.scale = 1.0;
    return recurrent<GatedDeltaRule>(x);
  };
  const auto right = run(c, c.x, kRecurrent);
  const auto wrong = run(c, c.x, unscaled);
  EXPECT_LE(relative(wrong.y, right.y), 1e-14);
  EXPECT_GT(relative(wrong.core, right.core), 0.5);
}

TEST(GatedDeltaNet, BadInput) {
  const Case good = draw_case(3);
  const auto throws = [&](const auto& change) {
    Case c = good;
    change(c);
    EXPECT_THROW(static_cast<void>(run(c, c.x, kRecurrent)), Error);
  };
  throws([](Case& c) { c.shape.value_heads = 3; });  // not a multiple of the key heads
  throws([](Case& c) { c.shape.key_heads = 0; });
  throws([](Case& c) { c.shape.key_width = 4; });
  throws([](Case& c) { c.weights.in_proj_ba.resize(7, 6); });
  throws([](Case& c) { c.weights.in_proj_ba = Matrix<double>::Zero(8, 5); });
  throws([](Case& c) { c.weights.conv1d.resize(8, 4); });
  throws([](Case& c) { c.weights.conv1d.resize(c.shape.channels(), 0); });
  throws([](Case& c) { c.weights.A_log.resize(2); });
  throws([](Case& c) { c.weights.dt_bias.resize(2); });
  throws([](Case& c) { c.weights.norm.resize(20); });
  throws([](Case& c) { c.weights.out_proj.resize(6, 5); });
  throws([](Case& c) { c.x = Matrix<double>::Zero(3, 5); });
  EXPECT_THROW(static_cast<void>(run(good, good.x, kRecurrent, {true, false})), Error);

  GatedDeltaNetCache<double> cache = empty_gated_delta_net_cache(good.shape, good.weights);
  cache.state.pop_back();
  const auto with = [&] { return gated_delta_net(good.x, good.weights, good.shape, cache, kRecurrent); };
  EXPECT_THROW(static_cast<void>(with()), Error);
  cache.state.push_back(Matrix<double>::Zero(3, 4));
  EXPECT_THROW(static_cast<void>(with()), Error);
  cache.state.back() = Matrix<double>::Zero(3, 5);
  cache.convolution.resize(4, good.shape.channels());  // W columns, as public code stores it
  EXPECT_THROW(static_cast<void>(with()), Error);
}

}  // namespace
}  // namespace samestate
