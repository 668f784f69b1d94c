/// The CUDA kernels of named tensors: their own source, executed by threads of the host, against the kernels of the CPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <new>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "optimized/cpu/operators/activation_gates.h"
#include "optimized/cpu/operators/dendritic_parts.h"
#include "optimized/cpu/operators/norms.h"
#include "optimized/cpu/operators/rotary_embedding.h"
#include "optimized/cpu/operators/short_convolution.h"
#include "optimized/cuda/dendritic/dendritic.cuh"
#include "optimized/cuda/host/tensors.h"
#include "optimized/cuda/pointwise/convolution.cuh"
#include "optimized/cuda/pointwise/norms.cuh"
#include "optimized/cuda/pointwise/rotation.cuh"
#include "optimized/cuda/recurrence/recurrence.cuh"
#include "tests/optimized/cuda_operator_calls.h"

namespace samestate::cuda {
namespace {

using testing::Aligned;
using testing::contract_of;
using testing::Draw;
using testing::expect_near;
using testing::Values;

/// Rows of one width by the grid that takes it, against the CPU's.
template <class Operand, RowNorm norm>
void check_norm(Outcome (*cpu)(const OperatorArguments&, const Contract&), std::int64_t rows, int width) {
  Draw draw(static_cast<unsigned>(width));
  const Values x = draw.values<Operand>(rows * width);
  const Values second = draw.values<Operand>(rows * width);
  const Values weight = draw.values<float>(width);
  Values expected(x.size(), NAN), expected_sum(x.size(), NAN);
  OperatorArguments call;
  const std::vector<std::int64_t> shape{1, rows, 1, width};
  call.inputs = {{"x", shape, x.data()}};
  if (has_second(norm))
    call.inputs.push_back({norm == RowNorm::residual ? "residual" : "z", shape, second.data()});
  if (norm != RowNorm::l2) call.inputs.push_back({"weight", {width}, weight.data()});
  call.outputs = {{"y", shape, expected.data()}};
  if (norm == RowNorm::residual) call.outputs.push_back({"sum", shape, expected_sum.data()});
  call.parameters = {{"H", 1}, {"D", width}};
  call.tokens = rows;
  ASSERT_EQ(cpu(call, contract_of<Operand>()).kind, Outcome::Kind::ran);

  const Aligned<Operand> given(x), other(second);
  const Aligned<float> weights(weight);
  const Aligned<Operand> y(x.size()), sum(x.size());
  const NormParameters<Operand> p{given.data(), other.data(), weights.data(), y.data(),
                                  sum.data(),   rows,         width};
  launch_norm<norm>(p, nullptr);
  const std::string what = "width " + std::to_string(width);
  expect_near<Operand>(y.values(), expected, what);
  if (norm == RowNorm::residual) expect_near<Operand>(sum.values(), expected_sum, what + " sum");
}

template <class Operand, RowNorm norm>
void check_widths(Outcome (*cpu)(const OperatorArguments&, const Contract&)) {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  for (const int accesses : {1, 8, 13, 61, 128, 256}) check_norm<Operand, norm>(cpu, 7, accesses * n);
  for (const int width : {1, 5, 77, 511}) check_norm<Operand, norm>(cpu, 3, width);
  // A block a row: all of it in registers, and more than they hold.
  for (const int accesses : {257, 512, 513, 2048, 2051}) check_norm<Operand, norm>(cpu, 2, accesses * n);
  for (const int width : {513, 4097, 4099}) check_norm<Operand, norm>(cpu, 2, width);
}

template <RowNorm norm>
void check_formats(Outcome (*cpu)(const OperatorArguments&, const Contract&)) {
  check_widths<float, norm>(cpu);
  check_widths<Bf16, norm>(cpu);
}

TEST(CudaOperators, NormsAreThoseOfTheCpu) {
  check_formats<RowNorm::plain>(cpu::rms_norm_fused);
  check_formats<RowNorm::zero_centred>(cpu::zero_centred_rms_norm_fused);
  check_formats<RowNorm::residual>(cpu::residual_rms_norm_fused);
  check_formats<RowNorm::gated>(cpu::gated_rms_norm_fused);
  check_formats<RowNorm::gate_first>(cpu::gate_first_rms_norm_fused);
  check_formats<RowNorm::l2>(cpu::l2norm_fused);
}

/// Rows that retention has not divided: their squares are beyond fp32, or below it, the rows themselves are not.
TEST(CudaOperators, RowsOfAnySizeAreScaled) {
  constexpr int kWidth = 5;
  for (const float size : {0x1p-100F, 0x1p-60F, 1.0F, 0x1p63F, 0x1p100F, 0x1p126F}) {
    Values x{0.5F, -1.0F, 0.25F, 1.0F, 0.0F};
    float squares = 0.0F;
    for (const float e : x) squares += e * e / kWidth;
    Values expected;
    for (float& e : x) expected.push_back(e / std::sqrt(squares)), e *= size;
    const Aligned<float> given(x), y(x.size());
    EachWarp<ScaleRows<float>>::launch({given.data(), y.data(), 1, kWidth}, nullptr);
    expect_near<float>(y.values(), expected, "times " + std::to_string(size));
  }
}

template <class Operand, int n>
void check_gates(std::int64_t tokens, int heads) {
  Draw draw(3);
  Values a = draw.values<Operand>(tokens * heads), b = draw.values<Operand>(tokens * heads);
  const Values A_log = draw.values<float>(heads), dt_bias = draw.values<float>(heads);
  a[0] = 90.0F, a[1] = -90.0F, b[0] = 100.0F, b[1] = -100.0F;  // where e^x overflows and where it is nothing
  Values g(a.size(), NAN), beta(a.size(), NAN);
  OperatorArguments call;
  call.inputs = {{"a", {1, tokens, heads}, a.data()},
                 {"b", {1, tokens, heads}, b.data()},
                 {"A_log", {heads}, A_log.data()},
                 {"dt_bias", {heads}, dt_bias.data()}};
  call.outputs = {{"g", {1, tokens, heads}, g.data()}, {"beta", {1, tokens, heads}, beta.data()}};
  call.parameters = {{"H", heads}};
  call.tokens = tokens;
  (void)cpu::activation_gates_branchless(call, contract_of<Operand>());
  const Aligned<Operand> in_a(a), in_b(b), out_g(a.size()), out_beta(a.size());
  const Aligned<float> rate(A_log), bias(dt_bias);
  const GateParameters<Operand> p{in_a.data(),  in_b.data(),     rate.data(),    bias.data(),
                                  out_g.data(), out_beta.data(), tokens * heads, heads};
  using Item = GateItem<Operand, n>;
  emulation::run_block(64, [&] {
    for (std::int64_t i = thread_index(); i < Item::items(p); i += 64) Item::run(p, i);
  });
  expect_near<Operand>(out_g.values(), g, "g");
  expect_near<Operand>(out_beta.values(), beta, "beta");
}

TEST(CudaOperators, GatesAreThoseOfTheCpu) {
  for (const std::int64_t tokens : {1, 2, 4, 9}) {
    check_gates<float, 1>(tokens, 5);
    check_gates<Bf16, 1>(tokens, 5);
    check_gates<float, 4>(tokens, 12);
    check_gates<Bf16, 8>(tokens, 16);
  }
}

template <class Operand, int vector_width>
void check_convolution(std::int64_t batch, std::int64_t tokens, int channels, int W, bool bias,
                       bool activation) {
  Draw draw(static_cast<unsigned>(W + channels));
  const Values x = draw.values<Operand>(batch * tokens * channels);
  const Values kernel = draw.values<Operand>(static_cast<std::int64_t>(channels) * W);
  const Values offsets = draw.values<float>(channels);
  const Values past = draw.values<Operand>(batch * (W - 1) * channels);
  Values y(x.size(), NAN), carried(past.size(), NAN);
  OperatorArguments call;
  call.inputs = {{"x", {batch, tokens, channels}, x.data()},
                 {"kernel", {channels, W}, kernel.data()},
                 {"state", {batch, W - 1, channels}, past.data()}};
  if (bias) call.inputs.push_back({"bias", {channels}, offsets.data()});
  call.outputs = {{"y", {batch, tokens, channels}, y.data()},
                  {"state", {batch, W - 1, channels}, carried.data()}};
  call.parameters = {{"C", channels}, {"W", W}, {"bias", bias ? 1 : 0}, {"activation", activation ? 1 : 0}};
  call.batch = batch;
  call.tokens = tokens;
  (void)cpu::short_convolution_scatter(call, contract_of<Operand>());

  const Aligned<Operand> in(x), weights(kernel), before(past), out(y.size()), after(past.size());
  const Aligned<float> add(offsets);
  const ConvolutionParameters<Operand> p{in.data(),
                                         weights.data(),
                                         bias ? add.data() : nullptr,
                                         before.data(),
                                         out.data(),
                                         after.data(),
                                         batch,
                                         tokens,
                                         channels,
                                         W,
                                         activation};
  using Part = ConvolvedPart<Operand, vector_width>;
  emulation::run_block(64, [&] {
    for (std::int64_t i = thread_index(); i < Part::items(p); i += 64) Part::run(p, i);
  });
  const std::string what = "tokens " + std::to_string(tokens) + " W " + std::to_string(W);
  // Sums of four products that cancel.
  const Values found = out.values();
  for (std::size_t i = 0; i < y.size(); ++i)
    EXPECT_NEAR(found[i], y[i], 2e-6 + (std::is_same_v<Operand, float> ? 1e-6 : 0x1.02p-7) * std::fabs(y[i]))
        << what;
  EXPECT_EQ(after.values(), carried) << what;
}

template <class Operand>
void check_convolutions() {
  for (const std::int64_t tokens : {0, 1, 2, 3, 31, 32, 33, 70}) {
    check_convolution<Operand, 4>(2, tokens, 24, 4, true, true);
    check_convolution<Operand, 3>(1, tokens, 8, 3, false, false);
    check_convolution<Operand, 2>(1, tokens, 16, 2, false, true);
    check_convolution<Operand, 0>(2, tokens, 5, 4, true, true);
    check_convolution<Operand, 0>(1, tokens, 3, 1, false, true);
    check_convolution<Operand, 0>(1, tokens, 3, 9, false, false);
  }
}

TEST(CudaOperators, ConvolutionsAreThoseOfTheCpu) {
  check_convolutions<float>();
  check_convolutions<Bf16>();
}

template <class Operand, int n>
void check_rotation(int heads, int width, int pairs, bool interleaved) {
  constexpr std::int64_t kTokens = 5;
  Draw draw(static_cast<unsigned>(width + pairs));
  const Values x = draw.values<Operand>(kTokens * heads * width);
  const Values cosine = draw.values<float>(kTokens * pairs), sine = draw.values<float>(kTokens * pairs);
  Values expected(x.size(), NAN);
  OperatorArguments call;
  const std::vector<std::int64_t> shape{1, kTokens, std::int64_t{heads} * width};
  call.inputs = {{"x", shape, x.data()},
                 {"cosine", {1, kTokens, pairs}, cosine.data()},
                 {"sine", {1, kTokens, pairs}, sine.data()}};
  call.outputs = {{"y", shape, expected.data()}};
  call.parameters = {{"H", heads}, {"d", width}, {"pairs", pairs}, {"interleaved", interleaved ? 1 : 0}};
  call.tokens = kTokens;
  (void)cpu::rotary_embedding_full_width(call, contract_of<Operand>());
  const Aligned<Operand> in(x), y(x.size());
  const Aligned<float> c(cosine), s(sine);
  const RotationParameters<Operand> p{in.data(), c.data(), s.data(), y.data(),   kTokens,
                                      heads,     width,    pairs,    interleaved};
  using Halves = RotatedHalves<Operand>;
  const bool halves = n > 1 && !interleaved;
  const auto items = halves ? Halves::items(p) : static_cast<std::int64_t>(x.size()) / n;
  emulation::run_block(64, [&] {
    for (std::int64_t i = thread_index(); i < items; i += 64)
      halves ? Halves::run(p, i) : rotate<Operand, n>(p, i * n);
  });
  const Values found = y.values();
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i],
                2e-6 + (std::is_same_v<Operand, float> ? 0.0 : 0x1.02p-7) * std::fabs(expected[i]))
        << width << ' ' << pairs << ' ' << interleaved << ' ' << i;
}

template <class Operand>
void check_rotations() {
  constexpr int n = 16 / static_cast<int>(sizeof(Operand));
  check_rotation<Operand, n>(3, 6 * n, 2 * n, false);
  check_rotation<Operand, n>(2, 4 * n, 2 * n, false);
  check_rotation<Operand, n>(3, 7 * n, n, false);
  check_rotation<Operand, n>(2, 4 * n, n + 1, true);
  check_rotation<Operand, 1>(3, 11, 3, false);
  check_rotation<Operand, 1>(3, 11, 5, true);
}

TEST(CudaOperators, RotationsAreThoseOfTheCpu) {
  check_rotations<float>();
  check_rotations<Bf16>();
}

template <class Operand, int n>
void check_windows(int count, int stride, int overlap) {
  constexpr std::int64_t kTokens = 6;
  const int channels = count * stride + overlap;
  const int width = count > 1 ? stride + overlap : channels;
  Draw draw(static_cast<unsigned>(channels));
  const Values x = draw.values<Operand>(kTokens * channels),
               parts = draw.values<Operand>(kTokens * count * width);
  Values windows(parts.size(), NAN), sum(x.size(), NAN);
  OperatorArguments call;
  const std::vector<std::int64_t> whole{1, kTokens, channels}, split{1, kTokens, std::int64_t{count} * width};
  call.inputs = {{"x", whole, x.data()}, {"parts", split, parts.data()}};
  call.outputs = {{"windows", split, windows.data()}, {"sum", whole, sum.data()}};
  call.parameters = {{"N", count}, {"stride", stride}, {"O", overlap}};
  call.tokens = kTokens;
  (void)cpu::overlap_windows_channels(call, contract_of<Operand>());
  const Aligned<Operand> in(x), given(parts), out(parts.size()), added(x.size());
  const WindowParameters<Operand> p{in.data(),    given.data(), out.data(),
                                    added.data(), kTokens,      channels,
                                    count,        width,        count > 1 ? stride : channels};
  emulation::run_block(64, [&] {
    for (std::int64_t i = thread_index(); i < WindowItem<Operand, n>::items(p); i += 64)
      WindowItem<Operand, n>::run(p, i);
  });
  EXPECT_EQ(out.values(), windows) << count;
  EXPECT_EQ(added.values(), sum) << count << " windows, " << stride << ", " << overlap;
}

TEST(CudaOperators, WindowsAreThoseOfTheCpuBitForBit) {
  check_windows<float, 4>(3, 8, 4);
  check_windows<float, 4>(2, 4, 12);  // a channel in four windows
  check_windows<Bf16, 8>(5, 16, 8);
  check_windows<Bf16, 8>(1, 16, 8);
  check_windows<float, 1>(3, 5, 2);
  check_windows<Bf16, 1>(4, 1, 7);
  check_windows<Bf16, 1>(3, 5, 0);
}

template <class Operand>
void check_router(int width, int shared, int routed, int idle, bool equal) {
  constexpr std::int64_t kTokens = 12, kHeads = 2;
  const int candidates = routed + idle;
  Draw draw(static_cast<unsigned>(width + routed));
  Values q = draw.values<Operand>(kTokens * kHeads * width);
  Values router = draw.values<Operand>(static_cast<std::int64_t>(candidates) * width);
  // Logits that are equal in any arithmetic: of the candidates in pairs, of whole tokens.
  if (equal) {
    for (int c = 0; c + 1 < candidates; c += 2)
      std::copy_n(router.begin() + std::ptrdiff_t{c} * width, width,
                  router.begin() + std::ptrdiff_t{c + 1} * width);
    std::fill_n(q.begin(), 2 * width, 0.0F);
  }
  const std::int64_t branches = shared + candidates;
  Values omega(static_cast<std::size_t>(kTokens * kHeads * branches), NAN), mask(omega.size(), NAN);
  OperatorArguments call;
  const std::vector<std::int64_t> out{1, kTokens, kHeads * branches};
  call.inputs = {{"q", {1, kTokens, kHeads * width}, q.data()},
                 {"router", {candidates, width}, router.data()}};
  call.outputs = {{"omega", out, omega.data()}, {"mask", out, mask.data()}};
  call.parameters = {{"H", kHeads}, {"d", width}, {"Es", shared}, {"K", routed}, {"idle", idle}};
  call.tokens = kTokens;
  (void)cpu::dendritic_router_chosen(call, contract_of<Operand>());
  const Aligned<Operand> in(q), weights(router), o(omega.size()), m(omega.size());
  const RouterParameters<Operand> p{in.data(), weights.data(), o.data(), m.data(), kTokens * kHeads,
                                    width,     candidates,     shared,   routed};
  emulation::run_block(64, [&] {
    for (std::int64_t row = warp_index(); row < p.rows; row += 2) route(p, row);
  });
  const std::string what = "width " + std::to_string(width) + " candidates " + std::to_string(candidates);
  EXPECT_EQ(m.values(), mask) << what;
  expect_near<Operand>(o.values(), omega, what, 2e-5F);  // logits of 30 and more
}

TEST(CudaOperators, RoutersChooseWhatTheCpuChooses) {
  for (const bool equal : {false, true}) {
    check_router<float>(160, 1, 3, 4, equal);
    check_router<float>(33, 0, 16, 64, equal);
    check_router<float>(5, 40, 1, 32, equal);
    check_router<float>(512, 2, 2, 0, equal);
    check_router<float>(7, 3, 0, 5, equal);
    check_router<Bf16>(160, 1, 3, 4, equal);
  }
}

TEST(CudaOperators, TensorsGoThereAndBackThroughTheirStrides) {
  Values memory(100);
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<float>(i);
  const NamedTensor<const float> x{"x", {2, 3, 2}, memory.data(), {40, 7, 1}};
  const Values expected{0, 1, 7, 8, 14, 15, 40, 41, 47, 48, 54, 55};
  EXPECT_EQ(dense<float>(x), expected);
  EXPECT_EQ(dense<float>(NamedTensor<const float>{"x", {2, 2}, memory.data()}), (Values{0, 1, 2, 3}));
  EXPECT_TRUE(dense<float>(NamedTensor<const float>{"x", {2, 0, 2}, memory.data()}).empty());
  Values to(100, -1.0F);
  scatter(expected, NamedTensor<float>{"y", {2, 3, 2}, to.data(), {40, 7, 1}});
  for (std::size_t i = 0; i < to.size(); ++i) {
    const bool inside = std::find(expected.begin(), expected.end(), static_cast<float>(i)) != expected.end();
    EXPECT_EQ(to[i], inside ? static_cast<float>(i) : -1.0F) << i;
  }
}

}  // namespace
}  // namespace samestate::cuda
