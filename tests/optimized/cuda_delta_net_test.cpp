/// One token of the Gated DeltaNet layer between its projections, and readers of projections in the order of a checkpoint: their
/// own source, executed by threads of the host.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "optimized/cuda/delta/delta_net_token.cuh"
#include "optimized/cuda/pointwise/convolution.cuh"
#include "optimized/cuda/products/projection.cuh"
#include "tests/optimized/cuda_operator_calls.h"

namespace samestate::cuda {
namespace {

using testing::Aligned;
using testing::Draw;
using testing::expect_close;
using testing::expect_near;
using testing::Values;

double silu_of(double x) { return x / (1.0 + std::exp(-x)); }

template <class Operand>
double rounded(double x) {
  return static_cast<double>(loaded(stored<Operand>(static_cast<float>(x))));
}

struct Sizes {
  int key_heads, served, dk, dv, W;
  [[nodiscard]] int group() const { return 2 * (dk + served * dv); }
  [[nodiscard]] int heads() const { return key_heads * served; }
  [[nodiscard]] int keys() const { return key_heads * dk; }
  [[nodiscard]] int channels() const { return 2 * keys() + heads() * dv; }
};

/// The inputs of a token of `b` sequences, and the results in float64, rounded where the layer stores.
template <class Operand>
struct Token {
  Sizes s;
  std::int64_t batch;
  Values qkvz, b, a, mask, kernel, past, A_log, dt_bias, norm, initial;
  Values carried, core, gated, final;

  Token(const Sizes& sizes, std::int64_t sequences) : s(sizes), batch(sequences) {
    Draw draw(static_cast<unsigned>(s.dk * 31 + s.dv));
    qkvz = draw.values<Operand>(batch * s.key_heads * s.group());
    b = draw.values<Operand>(batch * s.heads()), a = draw.values<Operand>(batch * s.heads());
    kernel = draw.values<Operand>(std::int64_t{s.channels()} * s.W);
    past = draw.values<Operand>(batch * (s.W - 1) * s.channels());
    A_log = draw.values<float>(s.heads()), dt_bias = draw.values<float>(s.heads());
    norm = draw.values<float>(s.dv);
    initial = draw.values<float>(batch * s.heads() * s.dk * s.dv);
    mask.assign(static_cast<std::size_t>(batch), 1.0F);
    if (batch > 1) mask[1] = 0.0F;  // whose projections are any number
    carried.assign(past.size(), NAN), final.assign(initial.size(), NAN);
    core.assign(static_cast<std::size_t>(batch * s.heads() * s.dv), NAN), gated = core;
    for (std::int64_t i = 0; i < batch; ++i) evaluate(i);
  }

 private:
  static double at(const Values& x, std::int64_t i) {
    return static_cast<double>(x[static_cast<std::size_t>(i)]);
  }

  double projected(std::int64_t i, int key_head, int column) const {
    return at(mask, i) == 0.0 ? 0.0 : at(qkvz, (i * s.key_heads + key_head) * s.group() + column);
  }
  double convolved(std::int64_t i, int channel, double x) {
    double y = 0.0;
    const auto row = [&](int j) { return (i * (s.W - 1) + j) * s.channels() + channel; };
    for (int j = 0; j < s.W; ++j) {
      const double input = j + 1 < s.W ? at(past, row(j)) : x;
      y += at(kernel, std::int64_t{channel} * s.W + j) * input;
      if (j > 0) carried[static_cast<std::size_t>(row(j - 1))] = static_cast<float>(input);
    }
    return rounded<Operand>(silu_of(y));
  }

  void evaluate(std::int64_t i) {
    for (int h = 0; h < s.heads(); ++h) {
      const int key_head = h / s.served, of = h % s.served;
      std::vector<double> q, k, v, S, o;
      double qq = 1e-6, kk = 1e-6;
      for (int c = 0; c < s.dk; ++c) {
        q.push_back(convolved(i, key_head * s.dk + c, projected(i, key_head, c)));
        k.push_back(convolved(i, s.keys() + key_head * s.dk + c, projected(i, key_head, s.dk + c)));
        qq += q.back() * q.back(), kk += k.back() * k.back();
      }
      for (int c = 0; c < s.dv; ++c)
        v.push_back(
            convolved(i, 2 * s.keys() + h * s.dv + c, projected(i, key_head, 2 * s.dk + of * s.dv + c)));
      const std::int64_t head = i * s.heads() + h;
      const double alpha =
          std::exp(-std::exp(at(A_log, h)) * std::log1p(std::exp(at(a, head) + at(dt_bias, h))));
      const double beta = 1.0 / (1.0 + std::exp(-at(b, head)));
      double squares = 0.0;
      for (int c = 0; c < s.dv; ++c) {
        const auto state = [&](int r) { return (head * s.dk + r) * s.dv + c; };
        double read = 0.0, out = 0.0;
        for (int r = 0; r < s.dk; ++r)
          read += alpha * at(initial, state(r)) * k[static_cast<std::size_t>(r)] / std::sqrt(kk);
        const double u = beta * (v[static_cast<std::size_t>(c)] - read);
        for (int r = 0; r < s.dk; ++r) {
          const double x = alpha * at(initial, state(r)) + k[static_cast<std::size_t>(r)] / std::sqrt(kk) * u;
          final[static_cast<std::size_t>(state(r))] = static_cast<float>(x);
          out += x * q[static_cast<std::size_t>(r)] / std::sqrt(qq);
        }
        o.push_back(rounded<Operand>(out / std::sqrt(s.dk)));
        core[static_cast<std::size_t>(head * s.dv + c)] = static_cast<float>(o.back());
        squares += o.back() * o.back();
      }
      for (int c = 0; c < s.dv; ++c) {
        const double z = projected(i, key_head, 2 * s.dk + (s.served + of) * s.dv + c);
        gated[static_cast<std::size_t>(head * s.dv + c)] = static_cast<float>(
            o[static_cast<std::size_t>(c)] / std::sqrt(squares / s.dv + 1e-6) * at(norm, c) * silu_of(z));
      }
    }
  }
};

template <class Operand>
void check_token(const Sizes& s, std::int64_t batch) {
  const Token<Operand> expected(s, batch);
  const Aligned<Operand> qkvz(expected.qkvz), b(expected.b), a(expected.a), kernel(expected.kernel),
      past(expected.past), carried(expected.past.size()), core(expected.core.size()),
      gated(expected.core.size());
  const Aligned<float> mask(expected.mask), A_log(expected.A_log), dt_bias(expected.dt_bias),
      norm(expected.norm), initial(expected.initial), final(expected.initial.size());
  DeltaDecodeParameters<Operand> p;
  p.shape = {batch, 1, s.key_heads, s.served, s.dk, s.dv};
  p.W = s.W;
  p.qkvz = qkvz.data(), p.b = b.data(), p.a = a.data(), p.mask = mask.data();
  p.kernel = kernel.data(), p.past = past.data(), p.carried = carried.data();
  p.A_log = A_log.data(), p.dt_bias = dt_bias.data(), p.norm = norm.data();
  p.initial = initial.data(), p.final = final.data(), p.core = core.data(), p.gated = gated.data();
  p.scale = 1.0F / std::sqrt(static_cast<float>(s.dk));
  launch_delta_decode(p, nullptr);
  const std::string what = std::to_string(s.dk) + " x " + std::to_string(s.dv) + " W " + std::to_string(s.W);
  EXPECT_EQ(carried.values(), expected.carried) << what;
  expect_close<Operand>(final.values(), expected.final, what + " S");
  expect_close<Operand>(core.values(), expected.core, what + " core");
  if (decodes_whole_heads(p.shape)) expect_close<Operand>(gated.values(), expected.gated, what + " gated");
}

template <class Operand>
void check_tokens() {
  check_token<Operand>({2, 2, 16, 16, 4}, 2);
  check_token<Operand>({1, 3, 5, 7, 1}, 2);  // element by element, no state of the convolution
  check_token<Operand>({1, 1, 128, 128, 4}, 1);
  check_token<Operand>({1, 2, 100, 72, 6}, 1);  // rows and columns beyond, a wide kernel
  check_token<Operand>({1, 1, 130, 64, 3}, 1);  // keys of more than 128 columns
  check_token<Operand>({1, 1, 33, 250, 2}, 1);  // two blocks a head
}

TEST(CudaDeltaNet, OneTokenIsThatOfFloat64) {
  check_tokens<float>();
  check_tokens<Bf16>();
}

/// Groups of three parts, of which the convolution reads the second and a norm the third.
template <class Operand>
void check_grouped(int width) {
  constexpr int kGroups = 3, kTokens = 5, kRows = 2;
  const int group = 4 + width + kRows * width;
  Draw draw(7);
  const Values x = draw.values<Operand>(kTokens * kGroups * group);
  const Values weight = draw.values<Operand>(kGroups * width * 4),
               past = draw.values<Operand>(3 * kGroups * width);
  const Values rows = draw.values<Operand>(kTokens * kGroups * kRows * width),
               scale = draw.values<float>(width);
  Values parts, seconds;
  for (int i = 0; i < kTokens * kGroups; ++i) {
    const auto from = x.begin() + i * group + 4;
    parts.insert(parts.end(), from, from + width);
    seconds.insert(seconds.end(), from + width, from + width + kRows * width);
  }
  const Aligned<Operand> grouped(x), dense(parts), z(seconds), kernel(weight), state(past), h(rows);
  const Aligned<float> norm(scale);
  const auto convolve = [&](const Operand* of, int of_group) {
    const Aligned<Operand> y(parts.size()), carried(past.size());
    ConvolutionParameters<Operand> p;
    p.x = of, p.kernel = kernel.data(), p.past = state.data(), p.y = y.data(), p.carried = carried.data();
    p.tokens = kTokens, p.channels = kGroups * width, p.W = 4;
    if (of_group > 0) p.group = width, p.group_stride = of_group;
    launch_convolution(p, nullptr);
    Values all = y.values();
    const Values last = carried.values();
    all.insert(all.end(), last.begin(), last.end());
    return all;
  };
  EXPECT_EQ(convolve(grouped.data() + 4, group), convolve(dense.data(), 0));
  const auto normed = [&](const Operand* second, int stride) {
    const Aligned<Operand> y(rows.size());
    NormParameters<Operand> p;
    p.x = h.data(), p.second = second, p.weight = norm.data(), p.y = y.data();
    p.rows = kTokens * kGroups * kRows, p.width = width;
    if (stride > 0) p.second_rows = kRows, p.second_stride = stride;
    launch_norm<RowNorm::gated>(p, nullptr);
    return y.values();
  };
  const Values strided = normed(grouped.data() + 4 + width, group);
  if (width % 8 == 0) {  // else the order of a row's sum is another
    EXPECT_EQ(strided, normed(z.data(), 0));
  } else {
    expect_near<Operand>(strided, normed(z.data(), 0), "strided");
  }
}

TEST(CudaDeltaNet, GroupsAreReadWhereTheyLie) {
  for (const int width : {4, 5, 12}) {
    check_grouped<float>(width);
    check_grouped<Bf16>(width);
  }
}

TEST(CudaDeltaNet, PadsAreClearedAndNothingElse) {
  const Values y{1, 2, 3, 4, 5, 6}, mask{1, 0, 2};
  const Aligned<Bf16> of(y);
  const Aligned<float> real(mask);
  EachWarp<ClearedPad<Bf16>>::launch({of.data(), real.data(), 3, 2}, nullptr);
  EXPECT_EQ(of.values(), (Values{1, 2, 0, 0, 5, 6}));
}

/// A library takes one matrix per batch, stored as it is, with rows at 16 bytes.
TEST(CudaDeltaNet, PlainProductsAreTold) {
  const Aligned<Bf16> x(64 * 64), w(64 * 64), y(64 * 64);
  const auto plain = [&](auto&& change) {
    Projection<Bf16> p = projection<Bf16>(x.data(), w.data(), y.data(), 3, 8, 16);
    change(p);
    return plain_product(p);
  };
  const auto found =
      plain([](auto& p) { p.batch = 2, p.x_batch = 48, p.w_batch = 128, p.epilogue.batch = 24; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->x, x.data());
  EXPECT_EQ(found->w, w.data());
  EXPECT_EQ(found->y, y.data());
  EXPECT_TRUE(found->bf16 && found->y_bf16);
  PlainProduct same = *found;
  EXPECT_TRUE(same.shape() == found->shape());
  same.w_batch += 8;
  EXPECT_FALSE(same.shape() == found->shape());
  const std::int32_t rows[3] = {};
  const ProductTile tiles[1] = {};
  const float bias[8] = {};
  EXPECT_FALSE(plain([&](auto& p) { p.x_rows = rows; }));
  EXPECT_FALSE(plain([&](auto& p) { p.tiles = tiles; }));
  EXPECT_FALSE(plain([&](auto& p) { p.epilogue.bias = bias; }));
  EXPECT_FALSE(plain([&](auto& p) { p.x += 1; }));
  EXPECT_FALSE(plain([&](auto& p) { p.w += 4; }));
  EXPECT_FALSE(plain([&](auto& p) { p.epilogue.y += 2; }));
  EXPECT_FALSE(plain([&](auto& p) { p.x_stride = 20; }));
  EXPECT_FALSE(plain([&](auto& p) { p.w_batch = 4; }));
  EXPECT_FALSE(plain([&](auto& p) { p.x_stride = 8; }));  // rows overlap
  EXPECT_FALSE(plain([&](auto& p) { p.rows = 0; }));
  EXPECT_FALSE(plain([&](auto& p) { p.depth = 0; }));
  EXPECT_TRUE(plain([&](auto& p) { p.x_stride = 24; }));
}

}  // namespace
}  // namespace samestate::cuda
