/// The serving step of Gated DeltaNet: its own source, executed by threads of the host.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "optimized/cpu/operators/gated_delta_step.h"
#include "optimized/cuda/delta/token_fma_pool.cuh"
#include "tests/optimized/cuda_operator_calls.h"

namespace samestate::cuda {
namespace {

using testing::Aligned;
using testing::contract_of;
using testing::Draw;
using testing::expect_close;
using testing::Values;

struct StepSizes {
  std::int64_t tokens, slots;
  int key_heads, heads, dk, dv;
  bool normalises;
  [[nodiscard]] std::int64_t of_slot() const { return std::int64_t{heads} * dk * dv; }
};

/// Values that an engine's memory may have where no request has a state: numbers that a copy keeps and
/// arithmetic does not.
constexpr std::uint32_t kNobodys[] = {0x7fc12345, 0x7f812345, 0x80000000, 0x00000001, 0xff800000, 0x7f7fffff};

/// A serving step of several requests on the kernel's own source, against the one on the CPU.
template <class Operand>
class Step {
 public:
  Step(const StepSizes& sizes, Values slots) : s(sizes), batch(std::ssize(slots)), slot(std::move(slots)) {
    Draw draw(static_cast<unsigned>(s.dk * 31 + s.dv));
    const std::int64_t rows = batch * s.tokens;
    q = draw.values<Operand>(rows * s.key_heads * s.dk), k = draw.values<Operand>(rows * s.key_heads * s.dk);
    if (!s.normalises) {
      for (float& x : k) x = loaded(stored<Operand>(x / std::sqrt(static_cast<float>(s.dk))));
    }
    v = draw.values<Operand>(rows * s.heads * s.dv);
    a = draw.values<Operand>(rows * s.heads), b = draw.values<Operand>(rows * s.heads);
    A_log = draw.values<float>(s.heads), dt_bias = draw.values<float>(s.heads);
    pool = draw.values<float>(batch * s.slots * s.of_slot());
    for (std::int64_t i = 0; i < std::ssize(pool); ++i) {
      if (!owned(i))
        pool[static_cast<std::size_t>(i)] = std::bit_cast<float>(kNobodys[i % std::ssize(kNobodys)]);
    }
  }

  /// Returns true if element i of the pools belongs to its request's state.
  [[nodiscard]] bool owned(std::int64_t i) const {
    const std::int64_t row = i / s.of_slot();
    return static_cast<float>(row % s.slots) == slot[static_cast<std::size_t>(row / s.slots)];
  }

  void run_emulated() {
    const Aligned<Operand> of_q(q), of_k(k), of_v(v), of_a(a), of_b(b), of_o(v.size());
    const Aligned<float> of_A_log(A_log), of_dt_bias(dt_bias), of_slot(slot), of_pool(pool),
        of_next(pool.size());
    GatedDeltaStepParameters<Operand> p;
    p.q = of_q.data(), p.k = of_k.data(), p.v = of_v.data(), p.a = of_a.data(), p.b = of_b.data();
    p.A_log = of_A_log.data(), p.dt_bias = of_dt_bias.data(), p.slot = of_slot.data(),
    p.pool = of_pool.data();
    p.o = of_o.data(), p.next = of_next.data();
    p.batch = batch, p.tokens = s.tokens, p.slots = s.slots;
    p.key_heads = s.key_heads, p.heads = s.heads, p.dk = s.dk, p.dv = s.dv;
    p.scale = 1.0F / std::sqrt(static_cast<float>(s.dk));
    p.normalises = s.normalises;
    launch_gated_delta_step(p, nullptr);
    o = of_o.values(), next = of_next.values();
  }

  void run_on_the_cpu() {
    OperatorArguments call;
    call.batch = batch, call.tokens = s.tokens;
    o.assign(v.size(), NAN), next.assign(pool.size(), NAN);
    const std::int64_t B = batch, T = s.tokens, P = s.slots, Hk = s.key_heads, Hv = s.heads, dk = s.dk,
                       dv = s.dv;
    call.inputs = {{"q", {B, T, Hk, dk}, q.data()},
                   {"k", {B, T, Hk, dk}, k.data()},
                   {"v", {B, T, Hv, dv}, v.data()},
                   {"a", {B, T, Hv}, a.data()},
                   {"b", {B, T, Hv}, b.data()},
                   {"A_log", {Hv}, A_log.data()},
                   {"dt_bias", {Hv}, dt_bias.data()},
                   {"slot", {B, 1}, slot.data()},
                   {"pool", {B, P, Hv, dk, dv}, pool.data()}};
    call.outputs = {{"o", {B, T, Hv, dv}, o.data()}, {"pool", {B, P, Hv, dk, dv}, next.data()}};
    call.parameters = {{"P", P},   {"Hk", Hk}, {"Hv", Hv},
                       {"dk", dk}, {"dv", dv}, {"l2norm", s.normalises ? 1 : 0}};
    (void)cpu::gated_delta_step_expanded(call, contract_of<Operand>());
  }

  /// Returns the states of requests from the pools.
  [[nodiscard]] Values states() const {
    Values out;
    for (std::int64_t i = 0; i < std::ssize(next); ++i) {
      if (owned(i)) out.push_back(next[static_cast<std::size_t>(i)]);
    }
    return out;
  }

  StepSizes s;
  std::int64_t batch;
  Values slot, q, k, v, a, b, A_log, dt_bias, pool;
  Values o, next;
};

template <class Operand>
void check_steps() {
  const StepSizes all[] = {{3, 3, 2, 4, 16, 16, true},   {1, 2, 1, 3, 5, 7, true},  // element by element
                           {2, 2, 1, 1, 128, 128, true}, {4, 2, 1, 2, 100, 72, false},
                           {2, 3, 1, 1, 130, 64, true},  {2, 2, 1, 1, 33, 250, false},  // four blocks a head
                           {0, 2, 1, 1, 16, 16, true},   {3, 1, 2, 2, 256, 12, true}};
  for (const StepSizes& s : all) {
    const std::string what = std::to_string(s.dk) + " x " + std::to_string(s.dv);
    const Values slots{static_cast<float>(s.slots - 1), -1.0F, 0.0F};
    Step<Operand> actual(s, slots), expected(s, slots);
    actual.run_emulated();
    expected.run_on_the_cpu();
    expect_close<Operand>(actual.o, expected.o, what + " o");
    expect_close<float>(actual.states(), expected.states(), what + " states");
  }
}

TEST(CudaDeltaNet, StepIsThatOfTheCpu) {
  check_steps<float>();
  check_steps<Bf16>();
}

TEST(CudaDeltaNet, StepLeavesTheRowsOfNobodyBitForBit) {
  for (const StepSizes& s : {StepSizes{2, 4, 1, 2, 16, 16, true}, StepSizes{2, 3, 1, 1, 5, 7, true},
                             StepSizes{1, 2, 1, 1, 128, 128, true}, StepSizes{0, 3, 1, 1, 8, 8, true}}) {
    Step<Bf16> step(s, {0.0F, -1.0F, static_cast<float>(s.slots - 1), 1.0F});
    step.run_emulated();
    std::int64_t kept = 0;
    for (std::int64_t i = 0; i < std::ssize(step.pool); ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (step.owned(i)) {
        EXPECT_TRUE(std::isfinite(step.next[at])) << i;
        continue;
      }
      ++kept;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(step.next[at]), std::bit_cast<std::uint32_t>(step.pool[at]))
          << i;
    }
    EXPECT_EQ(kept, (4 * s.slots - 3) * s.of_slot());
    const std::int64_t of_request = s.tokens * s.heads * s.dv;
    for (std::int64_t i = 0; i < of_request; ++i)  // the second has no slot
      EXPECT_EQ(std::bit_cast<std::uint32_t>(step.o[static_cast<std::size_t>(of_request + i)]), 0U) << i;
  }
}

}  // namespace
}  // namespace samestate::cuda
