/// Recurrences of few tokens, state space duality by FMA and logits by parts of the depth for the CUDA device: the kernels' own source,
/// executed by threads of the host, against sums in double.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "optimized/cuda/experts/logits.cuh"
#include "optimized/cuda/recurrence/launch.cuh"
#include "optimized/cuda/scan/duality_launch.cuh"
#include "tests/optimized/cuda_operator_calls.h"

namespace samestate::cuda {
namespace {

using testing::Aligned;
using testing::Draw;
using testing::Values;

void expect_sums(const Values& actual, const std::vector<double>& expected, double relative,
                 const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 0.0;
  for (const double x : expected) largest = std::fmax(largest, std::fabs(x));
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_LE(std::fabs(actual[i] - expected[i]), relative * std::fabs(expected[i]) + 4e-6 * largest)
        << what << ' ' << i;
}

template <class Operand>
constexpr double kRounded = sizeof(Operand) == 4 ? 1e-5 : 0x1.02p-8;

/// A recurrence of positive keys and queries and what it gives, of all heads.
struct Recurrence {
  std::int64_t batch, tokens;
  int heads, dk, dv;
  RecurrenceOutput output;
  Values q, k, v, state, sums;
  std::vector<double> o, last, last_sums;

  [[nodiscard]] bool over_sums() const { return output == RecurrenceOutput::over_sums; }
  [[nodiscard]] double gamma(std::int64_t h) const {
    return over_sums() ? 1.0 : 1.0 - std::ldexp(1.0, -5 - static_cast<int>(h));
  }

  void go() {
    o.resize(v.size());
    last.assign(state.begin(), state.end());
    last_sums.assign(sums.begin(), sums.end());
    for (std::int64_t of = 0; of < batch * heads; ++of) go(of / heads, of % heads);
  }
  void go(std::int64_t b, std::int64_t h) {
    const std::int64_t of = b * heads + h;
    double* const S = last.data() + of * dk * dv;
    double* const z = last_sums.data() + of * (over_sums() ? dk : 1);
    const bool over_root = output == RecurrenceOutput::over_root;
    for (int i = 0; over_root && i < dk * dv; ++i) S[i] *= std::sqrt(*z);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = (b * tokens + t) * heads + h;
      double denominator = 0.0;
      if (over_root) *z = gamma(h) * *z + 1.0;
      for (int r = 0; r < dk; ++r) {
        const double key = k[row * dk + r], query = q[row * dk + r];
        for (int c = 0; c < dv; ++c) {
          S[r * dv + c] = gamma(h) * S[r * dv + c] + key * v[row * dv + c];
          o[row * dv + c] += query * S[r * dv + c];
        }
        if (over_sums()) denominator += query * (z[r] += key);
      }
      const double by = over_root ? 1.0 / std::sqrt(*z) : over_sums() ? 1.0 / denominator : 1.0;
      for (int c = 0; c < dv; ++c) o[row * dv + c] *= by;
    }
    for (int i = 0; over_root && i < dk * dv; ++i) S[i] /= std::sqrt(*z);
  }
};

template <class Operand, int quads>
void check_recurrence(RecurrenceOutput output, std::int64_t batch, std::int64_t tokens, int heads, int dk,
                      int dv) {
  Recurrence r{batch, tokens, heads, dk, dv, output, {}, {}, {}, {}, {}, {}, {}, {}};
  Draw draw(static_cast<unsigned>(dk + dv));
  const std::int64_t rows = batch * tokens * heads, states = batch * heads;
  r.q = draw.values<Operand>(rows * dk), r.k = draw.values<Operand>(rows * dk),
  r.v = draw.values<Operand>(rows * dv);
  r.state = draw.values<float>(states * dk * dv);
  r.sums = draw.values<float>(r.over_sums() ? states * dk : states);
  for (Values* const positive : {&r.q, &r.k, &r.sums}) {
    for (float& x : *positive) x = std::fabs(x);
  }
  r.go();
  const Aligned<Operand> q(r.q), k(r.k), v(r.v), o(r.v.size());
  const Aligned<float> state(r.state), sums(r.sums), last(r.state.size()), last_sums(r.sums.size());
  RecurrenceParameters<Operand> p;
  p.q = q.data(), p.k = k.data(), p.v = v.data(), p.state = state.data(), p.sums = sums.data();
  p.o = o.data(), p.final_state = last.data(), p.final_sums = last_sums.data();
  p.batch = batch, p.tokens = tokens, p.heads = heads, p.dk = dk, p.dv = dv;
  p.decays = !r.over_sums(), p.output = output;
  p.segment = tokens > 0 ? tokens : 1;
  p.warps = kSpreadWarps, p.quads = quads, p.stage = 4;
  while (p.rows() < dk) p.row_lanes *= 2;
  RecurrenceSegments<Operand, true, true, kSpreadWarps, quads>::launch(p, nullptr);
  const std::string what = "T " + std::to_string(tokens) + " dk " + std::to_string(dk);
  expect_sums(o.values(), r.o, kRounded<Operand>, what + " o");
  expect_sums(last.values(), r.last, 1e-5, what + " S");
  expect_sums(last_sums.values(), r.last_sums, 1e-5, what + " sums");
}

TEST(CudaRecurrence, RowsThatGoRoundTheWarpsGiveTheRecurrence) {
  check_recurrence<float, 1>(RecurrenceOutput::over_root, 1, 9, 2, 72,
                             70);  // stages, one ragged; no whole access
  check_recurrence<Bf16, 1>(RecurrenceOutput::over_sums, 2, 4, 1, 33,
                            132);  // a lane's rows, tiles of columns
  check_recurrence<Bf16, 2>(RecurrenceOutput::over_root, 1, 13, 1, 136, 72);
  check_recurrence<float, 2>(RecurrenceOutput::over_sums, 1, 5, 2, 72, 66);
  check_recurrence<float, 2>(RecurrenceOutput::over_root, 1, 0, 1, 72, 64);  // the state alone
}

TEST(CudaRecurrence, FewTokensAreSpreadAndManyAreNot) {
  RecurrenceParameters<Bf16> p;
  p.batch = 64, p.heads = 8, p.tokens = 16, p.dk = 256, p.dv = 512;
  plan_recurrence(p);
  EXPECT_EQ(p.warps, kSpreadWarps);
  EXPECT_EQ(p.quads, 2);
  EXPECT_EQ(p.rows(), 256);
  EXPECT_EQ(p.columns(), 32);
  p.batch = 1, p.row_lanes = 1, p.warps = 1, p.quads = 4;
  plan_recurrence(p);
  EXPECT_EQ(p.quads, 1);
  p.tokens = 4096, p.row_lanes = 1, p.warps = 1, p.quads = 4;
  plan_recurrence(p);
  EXPECT_EQ(p.warps, 1);
}

void check_duality(std::int64_t batch, std::int64_t tokens, int H, int G, int P, int N) {
  Draw draw(static_cast<unsigned>(tokens + P + N));
  const std::int64_t rows = batch * tokens;
  const Values x = draw.values<float>(rows * H * P), dt = draw.values<float>(rows * H);
  const Values B = draw.values<float>(rows * G * N), C = draw.values<float>(rows * G * N);
  const Values bias = draw.values<float>(H), rates = draw.values<float>(H), skip = draw.values<float>(H);
  const Values state = draw.values<float>(batch * H * P * N);
  std::vector<double> S(state.begin(), state.end()), y(x.size());
  for (std::int64_t of = 0; of < batch * H; ++of) {
    const std::int64_t b = of / H, h = of % H, group = h / (H / G);
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int64_t row = b * tokens + t;
      const double delta = std::log1p(std::exp(static_cast<double>(dt[row * H + h]) + bias[h]));
      const double kept = std::exp(-delta * std::exp(static_cast<double>(rates[h])));
      for (int c = 0; c < P; ++c) {
        const double element = x[(row * H + h) * P + c];
        double sum = skip[h] * element;
        for (int n = 0; n < N; ++n) {
          double& s = S[(of * P + c) * N + n];
          s = kept * s + delta * element * B[(row * G + group) * N + n];
          sum += s * C[(row * G + group) * N + n];
        }
        y[(row * H + h) * P + c] = sum;
      }
    }
  }
  const Aligned<float> in_x(x), in_dt(dt), in_B(B), in_C(C), in_bias(bias), in_rates(rates), in_skip(skip);
  const Aligned<float> first(state), last(state.size()), out(x.size());
  DualityParameters<float> p;
  p.x = in_x.data(), p.dt = in_dt.data(), p.B = in_B.data(), p.C = in_C.data();
  p.dt_bias = in_bias.data(), p.A_log = in_rates.data(), p.skip = in_skip.data();
  p.state = first.data(), p.last_state = last.data(), p.y = out.data();
  p.batch = batch, p.tokens = tokens, p.H = H, p.G = G, p.P = P, p.N = N;
  p.chunk = kRowTokens;
  const Aligned<float> steps(static_cast<std::size_t>(p.states() * tokens * 4));
  const Aligned<float> products(static_cast<std::size_t>(batch * G * p.chunks() * kRowTokens * kRowTokens));
  p.steps = steps.data(), p.products = products.data();
  launch_duality(p, nullptr);
  const std::string what =
      "T " + std::to_string(tokens) + " P " + std::to_string(P) + " N " + std::to_string(N);
  expect_sums(out.values(), y, 1e-5, what + " y");
  expect_sums(last.values(), S, 1e-5, what + " S");
}

TEST(CudaDuality, ChunksOfSixteenGiveTheRecurrence) {
  check_duality(1, 37, 4, 2, 40,
                72);  // chunks, one ragged; channels beyond the first block; half a lane's states
  check_duality(2, 17, 2, 1, 32, 64);
  check_duality(1, 33, 2, 2, 5, 6);  // no whole access
  check_duality(1, 20, 1, 1, 32, 200);
  check_duality(1, 0, 1, 1, 8, 8);  // the state alone
}

struct Scratch {
  template <class T>
  T* scratch(std::int64_t size) {
    all.push_back(std::make_unique<Aligned<float>>(static_cast<std::size_t>(size)));
    return all.back()->data();
  }
  std::vector<std::unique_ptr<Aligned<float>>> all;
};

template <class Operand>
void check_logits(std::int64_t rows, std::int64_t columns, std::int64_t depth, std::int64_t parts,
                  bool biased) {
  Draw draw(static_cast<unsigned>(rows + columns));
  const Values x = draw.values<Operand>(rows * depth), w = draw.values<Operand>(columns * depth);
  const Values bias = draw.values<float>(columns);
  std::vector<double> expected;
  for (std::int64_t i = 0; i < rows * columns; ++i) {
    double sum = biased ? bias[i % columns] : 0.0;
    for (std::int64_t d = 0; d < depth; ++d)
      sum += static_cast<double>(x[i / columns * depth + d]) * w[i % columns * depth + d];
    expected.push_back(sum);
  }
  const Aligned<Operand> in_x(x), in_w(w), y(expected.size());
  const Aligned<float> in_bias(bias);
  Scratch memory;
  const auto p = LogitsProduct<Operand>::of(in_x.data(), in_w.data(), y.data(),
                                            biased ? in_bias.data() : nullptr, rows, columns, depth, memory);
  EXPECT_EQ(p.parts.count, parts);
  p.launch(nullptr);
  expect_sums(y.values(), expected, kRounded<Operand>, std::to_string(columns) + " columns");
}

TEST(CudaLogits, PartsOfTheDepthAddUp) {
  check_logits<float>(3, 20, 768, 2, true);
  check_logits<Bf16>(3, 18, 2048, 8, true);  // no fours of columns
  check_logits<float>(40, 8, 1024, 4, false);
  check_logits<Bf16>(3, 8, 512, 0, true);  // two parts are not worth it
  check_logits<float>(3, 8, 1000, 0, false);
}

}  // namespace
}  // namespace samestate::cuda
