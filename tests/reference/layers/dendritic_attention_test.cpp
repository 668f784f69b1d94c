#include "reference/layers/dendritic_attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "oracles/proofs/identities/dendritic_draw.h"
#include "oracles/proofs/identities/dendritic_loops.h"
#include "reference/scalars.h"

namespace samestate {
namespace {

std::string message_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const auto& call, const std::string& part) {
  const std::string message = message_of(call);
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

/// One channel everywhere, one tap, no decay (exp(-1000) = 0) and a write strength that rounds to 1:
/// S <- S + k (v - k S) with k^2 = n just below 1.
DendriticParameters<double> one_channel(const BranchCounts& branch) {
  DendriticParameters<double> p;
  p.sizes = {1, 1, 1, 1, branch, 1, 0, 1};
  const std::vector<DendriticWeightShape> shapes = dendritic_weight_shapes(p.sizes);
  p.q_expansion.resize(1);
  p.k_expansion.resize(1);
  DendriticParameters<double>::all(
      p, [&](std::size_t i, auto& weight) { weight.setOnes(shapes[i].rows, shapes[i].columns); });
  p.A_log.setConstant(-1000.0);
  p.b_proj.setConstant(1000.0);
  return p;
}

double silu_of(double x) { return x / (1.0 + std::exp(-x)); }

// The same token twice (E-01): reading gives n v and n (2 - n) v, which is nearly v again and not 2 v.
TEST(DendriticAttention, SecondWriteOfTheSamePairChangesNothing) {
  const DendriticParameters<double> p = one_channel({1, 1, 0});
  const DendriticResult<double> r = run_dendritic<double>(p, Matrix<double>::Ones(2, 1));
  const double c = silu_of(1.0);
  const double n = c * c / (c * c + 1e-6);
  EXPECT_NEAR(r.a(0, 0), n * c, 1e-15);
  EXPECT_NEAR(r.a(1, 0), n * (2.0 - n) * c, 1e-15);
  EXPECT_NEAR(r.cache.state[0](0, 0), std::sqrt(n) * (2.0 - n) * c, 1e-15);
  // a / |a| times the gate, up to the epsilon of the norm
  EXPECT_NEAR(r.output(0, 0), n * c / std::sqrt(n * c * n * c + 1e-5) * c, 1e-15);
}

// beta = 1/2. The positive token takes the first candidate, the negative one the second; their expansions are
// 2 and 3, the shared one's 1.
TEST(DendriticAttention, WritesAndReadsTheChosenBranchesAlone) {
  DendriticParameters<double> p = one_channel({3, 1, 1});
  p.b_proj.setZero();
  p.router << 1.0, -1.0;
  p.q_expansion[0] << 1.0, 2.0, 3.0;
  p.k_expansion[0] << 1.0, 2.0, 3.0;
  Matrix<double> x(2, 1);
  x << 1.0, -2.0;
  const DendriticResult<double> r = run_dendritic(p, x);
  EXPECT_EQ(r.routing[0].weights, (Matrix<double>(2, 3) << 0.5, 0.5, 0.0, 0.5, 0.0, 0.5).finished());
  const auto n = [](double c) { return c * c / (c * c + 1e-6); };
  const double v = silu_of(1.0);
  EXPECT_NEAR(r.a(0, 0), 0.25 * v * (n(silu_of(1.0)) + n(silu_of(2.0))), 1e-15);
  // branch 1 wrote at the first token and is off at the second; branch 2 the other way round
  EXPECT_NEAR(r.cache.state[1](0, 0), 0.5 * v * std::sqrt(n(silu_of(2.0))), 1e-15);
  EXPECT_NEAR(r.cache.state[2](0, 0), -0.5 * silu_of(-2.0) * std::sqrt(n(silu_of(-6.0))), 1e-15);
  EXPECT_EQ(r.o[1](1, 0), 0.0);
  EXPECT_EQ(r.o[2](0, 0), 0.0);
}

// The configurations of EQUATIONS 8.4, compacted and in chunks, against the plain loops.
TEST(DendriticAttention, SmallestConfigurations) {
  const DendriticSizes base{16, 2, 8, 16, {4, 1, 2}, 2, 2, 4};
  std::vector<DendriticSizes> all(7, base);
  all[1].branch.shared = 0;
  all[2].branch.shared = 2;
  all[3].branch.routed = 0;
  all[4].branch.routed = 3;
  all[5].windows = 3;
  all[6].overlap = 0;
  all.push_back(base);
  all.back().windows = 1;
  DendriticOptions<double> options;
  options.compacted = true;
  options.chunk = 8;
  for (std::size_t i = 0; i < all.size(); ++i) {
    for (const Index T : {1, 2, 19}) {
      const DendriticCase<double> c(5, all[i], T);
      const DendriticResult<double> r = run_dendritic(c.p, c.x, options);
      const DendriticLoopResult<double> loops = dendritic_loops<double>(c.p, {c.x});
      EXPECT_LT(relative_difference(r.output, loops.output[0]), 1e-13) << "configuration " << i << " T " << T;
      EXPECT_LT(relative_difference(r.a, loops.a[0]), 1e-13) << "configuration " << i << " T " << T;
      EXPECT_LT(relative_difference(stacked(r.cache.state), stacked(loops.state[0])), 1e-13);
    }
  }
}

// Upstream changes from the recurrent to the chunked form between 64 and 65 tokens.
TEST(DendriticAttention, ChunkOf64AtItsEdge) {
  for (const Index T : {64, 65}) {
    const DendriticCase<double> c(6, small_dendritic_sizes(), T);
    DendriticOptions<double> options;
    options.chunk = 64;
    EXPECT_LT(layer_difference(run_dendritic(c.p, c.x, options), run_dendritic(c.p, c.x)), 1e-13) << T;
  }
}

TEST(DendriticAttention, NoTokensLeaveTheCacheAlone) {
  const DendriticCase<double> c(7);
  const DendriticCache<double> cache = run_dendritic(c.p, c.x).cache;
  const DendriticResult<double> r = dendritic_attention<double>(c.p, Matrix<double>(0, 5), cache);
  EXPECT_EQ(r.output.rows(), 0);
  EXPECT_EQ(r.output.cols(), 5);
  EXPECT_EQ(stacked(r.cache.state), stacked(cache.state));
  EXPECT_EQ(stacked(r.cache.conv_q), stacked(cache.conv_q));
}

// A zero token has no logits to tell its branches apart: the lower candidates, with equal weights (8.2).
TEST(DendriticAttention, ZeroTokenIsRoutedByTheTieRule) {
  DendriticCase<double> c(8);
  c.x.row(3).setZero();
  const DendriticRouting<double> r = run_dendritic(c.p, c.x).routing[1];
  EXPECT_EQ(r.selected.row(3), (Matrix<Index>(1, 2) << 0, 1).finished());
  EXPECT_EQ(r.weights.row(3), (Matrix<double>(1, 4) << 0.5, 0.25, 0.25, 0.0).finished());
}

TEST(DendriticAttention, UsesInjectedRouting) {
  const DendriticCase<double> c(9);
  const DendriticResult<double> own = run_dendritic(c.p, c.x);
  DendriticOptions<double> options;
  options.routing = &own.routing;
  EXPECT_EQ(run_dendritic(c.p, c.x, options).output, own.output);

  // Head 1 sent to the third candidate and the first: head 0 does not notice.
  std::vector<DendriticRouting<double>> other = own.routing;
  const Index T = c.x.rows();
  Matrix<Index> chosen(T, 2);
  chosen.col(0).setConstant(2);
  chosen.col(1).setConstant(0);
  other[1] = injected_routing<double>(chosen, Matrix<double>::Ones(T, 2), c.p.sizes.branch);
  options.routing = &other;
  const DendriticResult<double> r = run_dendritic(c.p, c.x, options);
  EXPECT_EQ(r.a.leftCols(4), own.a.leftCols(4));
  EXPECT_GT((r.a.rightCols(4) - own.a.rightCols(4)).norm(), 1e-3);
  EXPECT_EQ(r.routing[1].logits, own.routing[1].logits);
  EXPECT_TRUE(r.cache.state[static_cast<std::size_t>(c.p.sizes.virtual_head(0, 2, 1))].isZero());
}

TEST(DendriticAttention, PadsBeforeTheFirstTokenMayComeInSeveralCalls) {
  const DendriticCase<double> c(10);
  DendriticOptions<double> pads;
  pads.real.assign(9, false);
  const DendriticResult<double> nothing = run_dendritic(c.p, c.x, pads);
  EXPECT_TRUE(nothing.output.isZero(0.0));
  EXPECT_TRUE(stacked(nothing.cache.state).isZero(0.0));
  DendriticOptions<double> mixed;
  mixed.real = {false, false, true, true, true, true, true, true, true};
  const DendriticResult<double> r = dendritic_attention(c.p, c.x, nothing.cache, mixed);
  const Matrix<double> tokens = c.x.bottomRows(7);
  EXPECT_LT(relative_difference(r.output.bottomRows(7).eval(), run_dendritic(c.p, tokens).output), 1e-14);
  EXPECT_NO_THROW((void)dendritic_attention(c.p, c.x, r.cache));
}

TEST(DendriticAttention, DoesNotContinueAfterAPadThatFollowsAToken) {
  const DendriticCase<double> c(11);
  for (const std::vector<bool>& real :
       {std::vector<bool>{true, true, true, true, true, true, true, true, false},
        std::vector<bool>{false, true, false, true, true, true, true, true, true}}) {
    DendriticOptions<double> options;
    options.real = real;
    const DendriticResult<double> r = run_dendritic(c.p, c.x, options);
    expect_refused([&] { (void)dendritic_attention(c.p, c.x, r.cache); }, "pad on the left");
  }
  // The same where token and pad come in different calls.
  DendriticOptions<double> pads;
  pads.real.assign(9, false);
  const DendriticResult<double> later = dendritic_attention(c.p, c.x, run_dendritic(c.p, c.x).cache, pads);
  expect_refused([&] { (void)dendritic_attention(c.p, c.x, later.cache); }, "pad on the left");
}

TEST(DendriticAttention, RefusesSizesThatMakeNoLayer) {
  const auto refused = [](const auto& change, const std::string& part) {
    DendriticSizes s = small_dendritic_sizes();
    change(s);
    expect_refused([&] { require_dendritic_sizes(s); }, part);
    expect_refused([&] { (void)empty_dendritic_cache<double>(s); }, part);
  };
  refused([](DendriticSizes& s) { s.model_width = 0; }, "model_width=0: must be at least 1");
  refused([](DendriticSizes& s) { s.heads = 0; }, "heads=0");
  refused([](DendriticSizes& s) { s.head_width = -1; }, "head_width=-1");
  refused([](DendriticSizes& s) { s.value_width = 0; }, "value_width=0");
  refused([](DendriticSizes& s) { s.convolution_width = 0; }, "convolution_width=0");
  refused([](DendriticSizes& s) { s.windows = 0; }, "0 windows");
  refused([](DendriticSizes& s) { s.windows = 4; }, "must divide channels - overlap = 6");
  refused([](DendriticSizes& s) { s.overlap = 8; }, "the overlap must lie in 0..7");
  refused([](DendriticSizes& s) { s.branch.branches = 2; }, "at least shared + routed");
  refused([](DendriticSizes& s) { s.branch.routed = -1; }, "must not be negative");
  refused([](DendriticSizes& s) { s.branch = {4, 0, 0}; }, "no branch is active");
}

TEST(DendriticAttention, RefusesEveryWeightOfAnotherShape) {
  const DendriticCase<double> c(12);
  const std::vector<DendriticWeightShape> shapes = dendritic_weight_shapes(c.p.sizes);
  for (std::size_t wrong = 0; wrong < shapes.size(); ++wrong) {
    DendriticParameters<double> p = c.p;
    DendriticParameters<double>::all(p, [&](std::size_t i, auto& weight) {
      if (i == wrong) weight.conservativeResize(weight.rows() + 1, weight.cols());
    });
    expect_refused([&] { (void)run_dendritic(p, c.x); }, std::string(shapes[wrong].name) + " is ");
  }
  DendriticParameters<double> p = c.p;
  p.k_expansion.pop_back();
  expect_refused([&] { (void)run_dendritic(p, c.x); }, "2 and 1 expansions for 2 heads");
}

TEST(DendriticAttention, RefusesInputsAndCachesOfAnotherShape) {
  const DendriticCase<double> c(13);
  expect_refused([&] { (void)run_dendritic<double>(c.p, Matrix<double>::Ones(3, 6)); }, "must be T x 5");
  DendriticOptions<double> options;
  options.real.assign(4, true);
  expect_refused([&] { (void)run_dendritic(c.p, c.x, options); }, "a mask of 4 tokens");
  options = {};
  options.chunk = -1;
  expect_refused([&] { (void)run_dendritic(c.p, c.x, options); }, "chunk=-1");

  const std::vector<DendriticRouting<double>> routing = run_dendritic(c.p, c.x).routing;
  std::vector<DendriticRouting<double>> given{routing[0]};
  options = {};
  options.routing = &given;
  expect_refused([&] { (void)run_dendritic(c.p, c.x, options); }, "routing for 1 heads");
  given = routing;
  given[1].mask.conservativeResize(8, 4);
  expect_refused([&] { (void)run_dendritic(c.p, c.x, options); }, "of head 1");

  const DendriticCache<double> empty = empty_dendritic_cache<double>(c.p.sizes);
  const auto refused = [&](const auto& change, const std::string& part) {
    DendriticCache<double> cache = empty;
    change(cache);
    expect_refused([&] { (void)dendritic_attention(c.p, c.x, cache); }, part);
  };
  // One input a channel (CONV-4) is not enough.
  refused([](auto& cache) { cache.conv_v = Matrix<double>::Zero(1, 8); },
          "cache conv_v is 1 x 8, must be 3 x 8");
  refused([](auto& cache) { cache.conv_q[2] = Matrix<double>::Zero(4, 16); }, "cache conv_q");
  refused([](auto& cache) { cache.conv_k[0] = Matrix<double>::Zero(3, 15); }, "cache conv_k");
  refused([](auto& cache) { cache.state[15] = Matrix<double>::Zero(8, 4); },
          "cache state is 8 x 4, must be 5 x 4");
  refused([](auto& cache) { cache.state.pop_back(); }, "15 virtual heads, must be 4 and 16");
  refused([](auto& cache) { cache.conv_k.clear(); }, "4 and 0 branches");
}

// The same template on intervals encloses what 50 digits give.
TEST(DendriticAttention, RunsOnIntervals) {
  const DendriticCase<Interval> wide(14, small_dendritic_sizes(), 5);
  const DendriticCase<Decimal50> narrow(14, small_dendritic_sizes(), 5);
  const DendriticResult<Interval> a = run_dendritic(wide.p, wide.x);
  const DendriticResult<Decimal50> b = run_dendritic(narrow.p, narrow.x);
  for (Index i = 0; i < b.output.size(); ++i) {
    const Interval& enclosure = a.output.data()[i];
    const Decimal50 middle = median(enclosure).convert_to<Decimal50>();
    const Decimal50 radius = width(enclosure).convert_to<Decimal50>();
    EXPECT_LT(static_cast<double>(radius), 1e-40);
    EXPECT_LE(abs(Decimal50(b.output.data()[i] - middle)), radius + Decimal50(1e-45));
  }
}

}  // namespace
}  // namespace samestate
