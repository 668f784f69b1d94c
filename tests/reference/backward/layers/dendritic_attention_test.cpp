#include "reference/backward/layers/dendritic_attention.h"

#include <gtest/gtest.h>

#include "reference/backward/recurrence.h"
#include "tests/reference/backward/layers/layer_fields.h"

namespace samestate {
namespace {

using test::GradientCheck;
using test::normal;
using test::ScalarOf;
using test::Tensors;

/// D = 3, two heads of d = 5 in two windows that overlap by one column, dv = 2.
DendriticSizes dendritic_sizes(BranchCounts branches) {
  DendriticSizes s;
  s.model_width = 3;
  s.heads = 2;
  s.head_width = 5;
  s.value_width = 2;
  s.branch = branches;
  s.windows = 2;
  s.overlap = 1;
  s.convolution_width = 3;
  return s;
}

const auto kCacheFields = [](auto& cache, auto&& visit) {
  visit(cache.conv_q);
  visit(cache.conv_k);
  visit(cache.conv_v);
  visit(cache.state);
};

template <class Scalar>
std::pair<DendriticParameters<Scalar>, DendriticCache<Scalar>> dendritic_of(const Tensors<Scalar>& x,
                                                                            const DendriticSizes& s) {
  DendriticParameters<Scalar> p;
  p.sizes = s;
  p.q_expansion.resize(static_cast<std::size_t>(s.heads));
  p.k_expansion.resize(static_cast<std::size_t>(s.heads));
  test::FieldReader<Scalar> read(x, 1);
  DendriticParameters<Scalar>::all(p, [&](std::size_t, auto& weight) { read(weight); });
  DendriticCache<Scalar> cache = empty_dendritic_cache<Scalar>(s);
  kCacheFields(cache, read);
  return {std::move(p), std::move(cache)};
}

Tensors<double> dendritic_tensors(const DendriticSizes& s, Index T) {
  Tensors<double> out{normal(T, s.model_width, 1)};
  unsigned seed = 2;
  for (const DendriticWeightShape& w : dendritic_weight_shapes(s)) {
    for (Index copy = 0; copy < w.copies; ++copy) out.push_back(0.7 * normal(w.rows, w.columns, seed++));
  }
  Tensors<double> cache;
  const DendriticCache<double> empty = empty_dendritic_cache<double>(s);
  kCacheFields(empty, test::FieldWriter<double>(cache));
  for (const Matrix<double>& m : cache) out.push_back(normal(m.rows(), m.cols(), seed++));
  return out;
}

auto dendritic_forward(DendriticSizes s, std::vector<bool> real) {
  return [=](const auto& x) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto [p, cache] = dendritic_of(x, s);
    DendriticOptions<Scalar> options;
    options.real = real;
    const auto y = dendritic_attention(p, x[0], cache, options);
    Tensors<Scalar> out{y.output};
    kCacheFields(y.cache, test::FieldWriter<Scalar>(out));
    return out;
  };
}

auto dendritic_backward(DendriticSizes s, std::vector<bool> real) {
  return [=](const auto& x, const auto& d) {
    using Scalar = ScalarOf<decltype(x)>;
    const auto [p, cache] = dendritic_of(x, s);
    DendriticCotangents<Scalar> cotangents{d[0], empty_dendritic_cache<Scalar>(s)};
    kCacheFields(cotangents.cache, test::FieldReader<Scalar>(d, 1));
    const auto g = dendritic_attention_backward(
        p, x[0], cache, cotangents,
        [](const auto& head, const auto& c) { return recurrent_backward<GatedDeltaRule>(head, c); }, real);
    Tensors<Scalar> out{g.x};
    test::FieldWriter<Scalar> write(out);
    DendriticParameters<Scalar>::all(g.parameters, [&](std::size_t, const auto& weight) { write(weight); });
    kCacheFields(g.cache, write);
    return out;
  };
}

TEST(DendriticAttentionBackward, IsTheDerivativeForTheChosenBranches) {
  struct Row {
    BranchCounts branches;
    std::vector<bool> real;
  };
  for (const Row& row : {Row{{4, 1, 2}, {}}, Row{{3, 0, 2}, {false, true, true}}, Row{{2, 2, 0}, {}}}) {
    const DendriticSizes s = dendritic_sizes(row.branches);
    const GradientCheck check(dendritic_tensors(s, 3), dendritic_forward(s, row.real));
    const auto backward = dendritic_backward(s, row.real);
    // The gradient of a convolution state that hardly any window reads is 1e-4 of the others and has their
    // rounding: 2e-14 of its own size, measured.
    test::expect_gradients(check, backward, 3e-14);
    for (std::size_t which = 0; which < 6; which += 2)
      test::expect_seen(check, test::without_cotangent(backward, which), "a cotangent");
    if (row.branches.shared == 1) {
      const auto half = [&](const auto& x, const auto& d) {
        // The 1/2 of R1 lost in the router's gradient.
        auto out = backward(x, d);
        out[8] *= ScalarOf<decltype(x)>(2);
        return out;
      };
      test::expect_seen(check, half, "the half of the routed weights");
    }
  }
}

}  // namespace
}  // namespace samestate
