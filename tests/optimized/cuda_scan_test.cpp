/// State spaces for the CUDA device: the kernels' own source, executed by threads of the host, against the kernels of the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "optimized/cpu/operators/selective_scan.h"
#include "optimized/cuda/scan/scan_token_fma.cuh"
#include "tests/optimized/cuda_operator_calls.h"

namespace samestate::cuda {
namespace {

using testing::Aligned;
using testing::contract_of;
using testing::Draw;
using testing::Values;

/// The recurrence and the CPU's maps round differently after every token.
void expect_close(const Values& actual, const Values& expected, float relative, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  float largest = 0.0F;
  for (const float x : expected) largest = std::fmax(largest, std::fabs(x));
  for (std::size_t i = 0; i < actual.size(); ++i)
    EXPECT_LE(std::fabs(actual[i] - expected[i]), relative * std::fabs(expected[i]) + 4e-6F * largest)
        << what << ' ' << i;
}

template <class Operand, bool hold>
void check_scan(std::int64_t batch, std::int64_t tokens, int D, int N) {
  Draw draw(static_cast<unsigned>(tokens + D + N));
  const std::int64_t rows = batch * tokens, states = batch * D * N;
  const Values u = draw.values<Operand>(rows * D), dt = draw.values<Operand>(rows * D);
  const Values z = draw.values<Operand>(rows * D);
  const Values B = draw.values<Operand>(rows * N), C = draw.values<Operand>(rows * N);
  const Values bias = draw.values<float>(D), skip = draw.values<float>(D), A_log = draw.values<float>(D * N);
  const Values state = draw.values<float>(states);
  Values out(u.size(), NAN), last(state.size(), NAN);
  OperatorArguments call;
  call.inputs = {{"u", {batch, tokens, D}, u.data()}, {"dt", {batch, tokens, D}, dt.data()},
                 {"z", {batch, tokens, D}, z.data()}, {"B", {batch, tokens, N}, B.data()},
                 {"C", {batch, tokens, N}, C.data()}, {"dt_bias", {D}, bias.data()},
                 {"A_log", {D, N}, A_log.data()},     {"skip", {D}, skip.data()},
                 {"h", {batch, D, N}, state.data()}};
  call.outputs = {{"out", {batch, tokens, D}, out.data()}, {"h", {batch, D, N}, last.data()}};
  call.parameters = {{"D", D}, {"N", N}, {"hold", hold ? 1 : 0}};
  call.batch = batch;
  call.tokens = tokens;
  call.chunk = 1;
  ASSERT_EQ(cpu::selective_scan_chunks(call, contract_of<Operand>()).kind, Outcome::Kind::ran);

  const Aligned<Operand> in_u(u), in_dt(dt), in_z(z), in_B(B), in_C(C), y(out.size());
  const Aligned<float> rates(A_log), biases(bias), skips(skip), first(state), final_state(state.size());
  const SelectiveScanParameters<Operand> p{in_u.data(),
                                           in_dt.data(),
                                           in_z.data(),
                                           in_B.data(),
                                           in_C.data(),
                                           rates.data(),
                                           biases.data(),
                                           skips.data(),
                                           first.data(),
                                           final_state.data(),
                                           y.data(),
                                           batch,
                                           tokens,
                                           D,
                                           N};
  launch_selective_scan<Operand, hold>(p, nullptr);
  const std::string what =
      "T " + std::to_string(tokens) + " D " + std::to_string(D) + " N " + std::to_string(N);
  expect_close(y.values(), out, sizeof(Operand) == 4 ? 1e-5F : 0x1.02p-7F, what + " out");
  expect_close(final_state.values(), last, 1e-5F, what + " h");
}

template <class Operand>
void check_sizes() {
  check_scan<Operand, false>(2, 71, 40, 16);  // tiles, one ragged, and channels beyond the first block
  check_scan<Operand, true>(1, 35, 32, 16);
  check_scan<Operand, false>(1, 3, 5, 3);  // no whole access
  check_scan<Operand, false>(3, 1, 8, 8);  // decoding
  check_scan<Operand, false>(1, 0, 8, 8);  // the state alone
}

TEST(CudaScan, SelectiveScanIsThatOfTheCpu) {
  check_sizes<float>();
  check_sizes<Bf16>();
  check_scan<float, false>(1, 18, 16, 24);  // a channel in 16 lanes
  check_scan<Bf16, true>(1, 34, 9, 77);     // and in all 32
}

}  // namespace
}  // namespace samestate::cuda
