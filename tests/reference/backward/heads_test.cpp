#include "reference/backward/heads.h"

#include <gtest/gtest.h>

#include "reference/backward/chunk.h"
#include "reference/backward/recurrence.h"
#include "reference/gated_delta_rule.h"
#include "tests/reference/backward/gradient_check.h"
#include "tests/reference/draw.h"

namespace samestate {
namespace {

using test::ScalarOf;
using test::Tensors;

constexpr Index kKeyHeads = 2;
constexpr Index kValueHeads = 4;

/// [q of each key head, k of each, v, g, beta and initial state of each value head].
Tensors<double> drawn_heads(double length_of_keys = 1.0) {
  Tensors<double> q, k, v, g, beta, state;
  for (unsigned h = 0; h < kValueHeads; ++h) {
    const Sequence<double> x = test::draw(7, 4, 3, 31 + h);
    if (h < kKeyHeads) {
      q.push_back(x.q);
      k.push_back(length_of_keys * x.k);
    }
    v.push_back(x.v);
    g.emplace_back(x.g);
    beta.emplace_back(x.beta);
    state.push_back(x.initial_state);
  }
  Tensors<double> out;
  for (const Tensors<double>& list : {q, k, v, g, beta, state})
    out.insert(out.end(), list.begin(), list.end());
  return out;
}

template <class Scalar>
Heads<Scalar> heads_of(const Tensors<Scalar>& x, HeadMap map) {
  Heads<Scalar> out;
  auto next = [&, i = std::size_t{0}]() mutable -> const Matrix<Scalar>& { return x[i++]; };
  for (Index h = 0; h < kKeyHeads; ++h) out.q.push_back(next());
  for (Index h = 0; h < kKeyHeads; ++h) out.k.push_back(next());
  for (Index h = 0; h < kValueHeads; ++h) out.v.push_back(next());
  for (Index h = 0; h < kValueHeads; ++h) out.g.emplace_back(next().col(0));
  for (Index h = 0; h < kValueHeads; ++h) out.beta.emplace_back(next().col(0));
  for (Index h = 0; h < kValueHeads; ++h) out.initial_state.push_back(next());
  out.key_of = key_heads_of(kKeyHeads, kValueHeads, map);
  out.scale = Scalar(0.375);
  return out;
}

auto heads_forward(HeadMap map, bool normalises) {
  return [=](const auto& x) {
    using Scalar = ScalarOf<decltype(x)>;
    Heads<Scalar> heads = heads_of(x, map);
    for (std::size_t h = 0; normalises && h < heads.q.size(); ++h) {
      heads.q[h] = l2norm(heads.q[h]);
      heads.k[h] = l2norm(heads.k[h]);
    }
    Tensors<Scalar> o, state;
    for (std::size_t h = 0; h < heads.v.size(); ++h) {
      const Trajectory<Scalar> y = recurrent<GatedDeltaRule>(heads.head(h));
      o.push_back(y.o);
      state.push_back(y.state);
    }
    o.insert(o.end(), state.begin(), state.end());
    return o;
  };
}

template <class Scalar>
std::vector<HeadCotangents<Scalar>> cotangents_of(const Tensors<Scalar>& d) {
  std::vector<HeadCotangents<Scalar>> out;
  for (std::size_t h = 0; h < kValueHeads; ++h) out.push_back({d[h], d[h + kValueHeads]});
  return out;
}

template <class Scalar>
Tensors<Scalar> tensors_of(const HeadsGradients<Scalar>& d) {
  Tensors<Scalar> out;
  for (const auto* list : {&d.q, &d.k, &d.v}) out.insert(out.end(), list->begin(), list->end());
  for (const auto* list : {&d.g, &d.beta}) out.insert(out.end(), list->begin(), list->end());
  out.insert(out.end(), d.initial_state.begin(), d.initial_state.end());
  return out;
}

/// By the chunked form, so that both parts of dk are summed over a group.
auto heads_reverse(HeadMap map, bool normalises) {
  return [=](const auto& x, const auto& d) {
    return tensors_of(heads_backward(
        heads_of(x, map), cotangents_of(d),
        [](const auto& head, const auto& c) { return chunked_backward_parts<GatedDeltaRule>(head, c, 4); },
        normalises));
  };
}

TEST(HeadsBackward, IsTheDerivativeUnderBothMapsOfHeads) {
  for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
    const test::GradientCheck check(drawn_heads(), heads_forward(map, false));
    // The adjoint identity compares two evaluations in float64 over eight tensors of heads: measured 1.02e-15.
    test::expect_gradients(check, heads_reverse(map, false), 1.5e-15);
    // The other map of heads; one head of each group.
    const HeadMap other = map == HeadMap::tiled ? HeadMap::interleaved : HeadMap::tiled;
    test::expect_seen(check, heads_reverse(other, false), "the other map");
    const auto first_head_only = [&](const auto& x, const auto& d) {
      auto one = d;
      const std::vector<Index> key_of = key_heads_of(kKeyHeads, kValueHeads, map);
      for (std::size_t h = 1; h < key_of.size(); ++h) {
        const bool first = std::find(key_of.begin(), key_of.begin() + static_cast<Index>(h), key_of[h]) ==
                           key_of.begin() + static_cast<Index>(h);
        if (!first) one[h].setZero();
        if (!first) one[h + kValueHeads].setZero();
      }
      auto whole = heads_reverse(map, false)(x, d);
      const auto part = heads_reverse(map, false)(x, one);
      std::copy(part.begin(), part.begin() + 2 * kKeyHeads, whole.begin());
      return whole;
    };
    test::expect_seen(check, first_head_only, "one head of a group");
  }
}

TEST(HeadsBackward, IsTheDerivativeWithTheNormInside) {
  const test::GradientCheck check(drawn_heads(1.7), heads_forward(HeadMap::interleaved, true));
  test::expect_gradients(check, heads_reverse(HeadMap::interleaved, true));
  const auto without_norm = [](const auto& x, const auto& d) {
    auto normed = x;
    for (std::size_t h = 0; h < 2 * kKeyHeads; ++h) normed[h] = l2norm(x[h]);
    return heads_reverse(HeadMap::interleaved, false)(normed, d);
  };
  test::expect_seen(check, without_norm, "the norm's own backward pass");
}

TEST(HeadsBackward, ChunkedIsRecurrent) {
  const Tensors<double> x = drawn_heads(1.7);
  const auto heads = heads_of(x, HeadMap::interleaved);
  const auto d = cotangents_of(test::normal_like(heads_forward(HeadMap::interleaved, false)(x), 3));
  const auto recurrent_form = heads_backward(
      heads, d, [](const auto& s, const auto& c) { return recurrent_backward<GatedDeltaRule>(s, c); }, true);
  const auto chunked_form = heads_backward(
      heads, d, [](const auto& s, const auto& c) { return chunked_backward_parts<GatedDeltaRule>(s, c, 3); },
      true);
  // Both have errors of their own, and the norm's backward pass cancels the larger part of dk.
  EXPECT_LE(test::worst(test::cast<Decimal100>(tensors_of(chunked_form)),
                        test::cast<Decimal100>(tensors_of(recurrent_form))),
            2e-15);
}

TEST(HeadsBackward, RefusesHeadsThatDisagree) {
  const auto heads = heads_of(drawn_heads(), HeadMap::interleaved);
  const auto run = [](const auto& s, const auto& c) { return recurrent_backward<GatedDeltaRule>(s, c); };
  EXPECT_THROW((void)heads_backward(heads, {}, run), Error);
  Heads<double> idle = heads;
  idle.key_of = {0, 0, 0, 0};
  const std::vector<HeadCotangents<double>> d(4, {test::normal(7, 3, 1), {}});
  EXPECT_THROW((void)heads_backward(idle, d, run), Error);
}

}  // namespace
}  // namespace samestate
