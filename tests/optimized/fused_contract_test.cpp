/// The points of the fused contracts in the CPU kernels and their twins.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "optimized/cpu/twin.h"
#include "tests/optimized/call.h"

namespace samestate {
namespace {

using testing::Call;
using testing::Expected;
using testing::expected_of;
using testing::has_delta;
using testing::make_call;
using testing::relative_error;
using testing::rounding_allowance;
using testing::Shape;

/// As oracles/contracts.cpp has them.
Contract fused(Format format) {
  Contract c;
  c.name = "fused";
  c.beta_v = c.beta_exp_k = c.U = c.W = Format::none;
  c.residual = c.T = c.state_operand = c.v_new = c.v_decayed = c.P = c.output = format;
  c.inverse = Inverse::block8;
  c.scan = Scan::tree;
  c.norm = Norm::factor;
  c.scale_in_P = c.reads_old_state = true;
  if (format != Format::fp32) {
    c.inverse_operand = Format::tf32;
    c.accumulator = Accumulator::tensor_core;
    c.exponential = Exponential::ex2;
  }
  return c;
}

/// q, k, v as bf16 numbers: what a kernel of 16-bit inputs is given.
Call on_bf16_grid(Call call) {
  for (std::vector<float>* x : {&call.q, &call.k, &call.v}) {
    for (float& value : *x) {
      const auto bits = std::bit_cast<std::uint32_t>(value);
      value = std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16U) & 1U)) & 0xffff0000U);
    }
  }
  return call;
}

class FusedContract : public ::testing::TestWithParam<std::string> {
 protected:
  const Kernel& kernel = testing::kernel_named(GetParam());

  [[nodiscard]] Call call(const Shape& shape, std::int64_t chunk, bool exact = false) const {
    return make_call(kernel.system, shape, kernel.form != "recurrent" ? chunk : 0, exact);
  }
  [[nodiscard]] Call ran(Call call, const Contract& contract) const {
    const Outcome outcome = call.run(kernel, contract);
    EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
    return call;
  }
  [[nodiscard]] Call twin(Call call, const Contract& contract) const {
    const Outcome outcome = run_twin(kernel.system, kernel.form, call.arguments(), contract);
    EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
    return call;
  }
};

std::vector<std::string> cpu_kernels() {
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels()) {
    if (kernel.device == "cpu") names.push_back(kernel.name);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Table, FusedContract, ::testing::ValuesIn(cpu_kernels()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
});

TEST_P(FusedContract, AgreesWithTheEquationsInFp32) {
  const auto check = [&](Call given) {
    for (const bool l2norm : {false, true}) {
      given.l2norm = l2norm;
      const Expected expected = expected_of(given, has_delta(kernel.system));
      for (const Call& done : {ran(given, fused(Format::fp32)), twin(given, fused(Format::fp32))}) {
        const double allowance = 2 * rounding_allowance(given);
        EXPECT_LE(relative_error(done.o, expected.o), allowance) << given.shape.T << " / " << given.chunk;
        EXPECT_LE(relative_error(done.final_state, expected.state), allowance)
            << given.shape.T << " / " << given.chunk;
      }
    }
  };
  for (const std::int64_t chunk : {1, 7, 8, 16, 33, 64}) {
    for (const std::int64_t T : {std::int64_t{1}, chunk, chunk + 1, 3 * chunk + 2}) {
      check(call({.B = 2, .T = T, .Hk = 1, .Hv = 2, .dk = 9, .dv = 12}, chunk));
    }
  }
  check(call({.T = 60, .Hk = 2, .Hv = 4, .dk = 40, .dv = 70, .offsets = {3, 3, 20, 59}}, 16));
}

TEST_P(FusedContract, IsExactOnIntegers) {
  for (const std::int64_t chunk : {5, 16, 64}) {
    const Call given = call({.T = 2 * chunk + 3, .Hk = 1, .Hv = 2, .dk = 8, .dv = 4}, chunk, true);
    const Expected expected = expected_of(given, has_delta(kernel.system));
    for (const Format format : {Format::fp32, Format::tf32, Format::bf16}) {
      const Call done = ran(given, fused(format));
      EXPECT_EQ(relative_error(done.o, expected.o), 0.0) << chunk;
      EXPECT_EQ(relative_error(done.final_state, expected.state), 0.0) << chunk;
    }
  }
}

TEST_P(FusedContract, ReadOfTheOldStateIsAnotherOrderOfSums) {
  const Call given = call({.T = 50, .dk = 24, .dv = 12}, 16);
  Contract before = fused(Format::fp32);
  Contract after = before;
  after.reads_old_state = false;
  const bool acts = ran(given, before).o != ran(given, after).o;
  EXPECT_EQ(acts, kernel.form == "recurrent");
}

TEST_P(FusedContract, FactorOfTheNormRoundsNoOperand) {
  if (kernel.form == "recurrent") return;
  // Keys whose factor is a power of two normalise to themselves scaled: operand and factor then agree, and a
  // rounding of the normalised key to bf16 would change nothing. Others must not be rounded.
  Call given = on_bf16_grid(call({.T = 40, .dk = 24, .dv = 12}, 16));
  given.l2norm = true;
  Contract factor = fused(Format::bf16);
  factor.output = Format::fp32;
  Contract operand = factor;
  operand.norm = Norm::operand;
  operand.qk = Format::bf16;
  const Contract exact = fused(Format::fp32);
  const Call reference = ran(given, exact);
  EXPECT_LT(relative_error(ran(given, factor).o, reference.o),
            relative_error(ran(given, operand).o, reference.o));
  // The formats of the recurrent form and of q and k themselves are not the factor's business.
  Contract all_fp32 = exact;
  all_fp32.norm = Norm::operand;
  EXPECT_LE(relative_error(ran(given, all_fp32).o, reference.o), 2 * rounding_allowance(given));
}

struct Point {
  const char* name;
  Format Contract::*field;
};
constexpr Point kPoints[] = {{"residual", &Contract::residual},
                             {"T", &Contract::T},
                             {"inverse_operand", &Contract::inverse_operand},
                             {"state_operand", &Contract::state_operand},
                             {"v_new", &Contract::v_new},
                             {"v_decayed", &Contract::v_decayed},
                             {"P", &Contract::P},
                             {"output", &Contract::output}};

/// How far `o` and the state are from the twin's, each relative to its size.
double distance(const Call& call, const Call& twin) {
  return std::max(relative_error(call.o, twin.o), relative_error(call.final_state, twin.final_state));
}

TEST(FusedTwin, AKernelWithoutOneRoundingPointIsTenTimesFarther) {
  // The kernel that keeps the contract differs from its twin in the order of sums alone.
  Call given = on_bf16_grid(make_call("gated_delta_rule", {.T = 512, .dk = 64, .dv = 64}, 64));
  given.l2norm = true;
  const Kernel& kernel = testing::kernel_named("cpu.gated_delta_rule.chunked");
  for (const Point& point : kPoints) {
    Contract contract = fused(Format::bf16);
    // Output rounding hides the order of sums; it is judged by itself.
    if (point.field != &Contract::output) contract.output = Format::fp32;
    Call twin = given, kept = given, removed = given;
    ASSERT_EQ(run_twin("gated_delta_rule", "chunked", twin.arguments(), contract).kind, Outcome::Kind::ran);
    ASSERT_EQ(kept.run(kernel, contract).kind, Outcome::Kind::ran);
    Contract without = contract;
    without.*point.field = Format::fp32;
    ASSERT_EQ(removed.run(kernel, without).kind, Outcome::Kind::ran);
    const double factor = distance(removed, twin) / distance(kept, twin);
    RecordProperty(point.name, std::to_string(factor));
    EXPECT_GE(factor, 10.0) << point.name;
  }
}

}  // namespace
}  // namespace samestate
