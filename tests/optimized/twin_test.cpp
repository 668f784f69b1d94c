#include "optimized/cpu/twin.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>

#include "reference/error.h"
#include "tests/optimized/call.h"

namespace samestate {
namespace {

using testing::Call;
using testing::make_call;

Call twin_of(Call call, std::string_view form, const Contract& contract) {
  const Outcome outcome = run_twin("gated_delta_rule", form, call.arguments(), contract);
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  return call;
}

Contract sixteen_bit(Format format) {
  Contract c;
  c.T = c.beta_v = c.beta_exp_k = c.U = c.W = c.state_operand = c.v_new = c.v_decayed = c.P = c.output =
      format;
  c.accumulator = Accumulator::tensor_core;
  c.exponential = Exponential::ex2;
  return c;
}

template <class Change>
Contract with(Contract c, const Change& change) {
  change(c);
  return c;
}

/// Inputs that are bf16 numbers by a formula, T = 80, dk = 5, dv = 3, a chunk of 56 and a tail of 24.
Call formula_call() {
  Call call = make_call("gated_delta_rule", {.T = 80, .dk = 5, .dv = 3}, 56);
  const auto fill = [](std::vector<float>& x, int factor, int first, int period, int centre, float unit) {
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>((factor * static_cast<int>(i) + first) % period - centre) * unit;
    }
  };
  fill(call.q, 37, 11, 63, 31, 1.0F / 32);
  fill(call.k, 29, 5, 61, 30, 1.0F / 64);
  fill(call.v, 41, 3, 59, 29, 1.0F / 16);
  fill(call.g, 13, 7, 17, 0, -1.0F / 64);
  fill(call.beta, 19, 2, 31, -1, 1.0F / 32);
  fill(call.initial_state, 23, 1, 37, 18, 1.0F / 16);
  call.scale = 0.5F;
  return call;
}

TEST(Twin, GivesTheBitsOfTheNumpyPrototype) {
  // Last row of o and first row of the state as another implementation of BOUNDS 1 computes them (la.py,
  // sim_chunk).
  const Contract bf16 = sixteen_bit(Format::bf16);
  const Contract tf32 = with(sixteen_bit(Format::tf32), [](Contract& c) {
    c.qk = c.inverse_operand = Format::tf32;
    c.inverse = Inverse::block16;
    c.U = c.output = Format::fp32;
  });
  const struct {
    const char* name;
    Contract contract;
    std::array<float, 3> o, state;
  } rows[] = {
      {"fp16",
       sixteen_bit(Format::fp16),
       {0x1.02p-3F, -0x1.508p-5F, -0x1.044p-2F},
       {0x1.16609ep-3F, -0x1.700688p-3F, -0x1.1adf4cp-2F}},
      {"bf16",
       bf16,
       {0x1.04p-3F, -0x1.5ap-5F, -0x1.02p-2F},
       {0x1.14c7ccp-3F, -0x1.6ff6p-3F, -0x1.1ac18ap-2F}},
      {"tf32_block16",
       tf32,
       {0x1.022a92p-3F, -0x1.520e14p-5F, -0x1.048f0ap-2F},
       {0x1.1633b8p-3F, -0x1.6fb2cap-3F, -0x1.1adb9cp-2F}},
      {"bf16_beta_in_T",
       with(bf16, [](Contract& c) { c.beta_in_T = true; }),
       {0x1.02p-3F, -0x1.5ap-5F, -0x1.04p-2F},
       {0x1.167f54p-3F, -0x1.6f5c28p-3F, -0x1.1a127p-2F}},
      {"bf16_k_decayed",
       with(bf16, [](Contract& c) { c.k_decayed = c.q_decayed = c.beta_k = Format::bf16; }),
       {0x1.04p-3F, -0x1.5ap-5F, -0x1.04p-2F},
       {0x1.158adap-3F, -0x1.72ed4cp-3F, -0x1.1a95dep-2F}},
      {"bf16_block16_bf16",
       with(bf16, [](Contract& c) { c.inverse = Inverse::block16, c.inverse_operand = Format::bf16; }),
       {0x1.06p-3F, -0x1.5ap-5F, -0x1.02p-2F},
       {0x1.13f49cp-3F, -0x1.6fe69p-3F, -0x1.1ac948p-2F}},
      {"bf16_state_out_fp32",
       with(bf16, [](Contract& c) { c.state = Format::bf16, c.output = Format::fp32; }),
       {0x1.046dd4p-3F, -0x1.597d58p-5F, -0x1.02b46ap-2F},
       {0x1.14p-3F, -0x1.7p-3F, -0x1.1ap-2F}},
  };
  for (const auto& row : rows) {
    const Call call = twin_of(formula_call(), "chunked", row.contract);
    for (std::size_t c = 0; c < 3; ++c) {
      EXPECT_EQ(call.o[79 * 3 + c], row.o[c]) << row.name << " column " << c;
      EXPECT_EQ(call.final_state[c], row.state[c]) << row.name << " column " << c;
    }
  }
}

struct Point {
  const char* name;
  std::function<void(Contract&)> change;
  bool recurrent;  ///< the recurrent form has this rounding point too
};

std::vector<Point> rounding_points() {
  return {
      {"qk", [](Contract& c) { c.qk = Format::tf32; }, true},
      {"beta_k", [](Contract& c) { c.beta_k = Format::bf16; }, false},
      {"A", [](Contract& c) { c.A = Format::bf16; }, false},
      {"block16",
       [](Contract& c) {
         c.inverse = Inverse::block16;
         c.inverse_operand = Format::bf16;
       },
       false},
      {"neumann",
       [](Contract& c) {
         c.inverse = Inverse::neumann;
         c.inverse_operand = Format::bf16;
       },
       false},
      {"block8",
       [](Contract& c) {
         c.inverse = Inverse::block8;
         c.inverse_operand = Format::tf32;
       },
       false},
      {"T", [](Contract& c) { c.T = Format::bf16; }, false},
      {"residual", [](Contract& c) { c.residual = Format::bf16; }, false},
      {"scale_in_P", [](Contract& c) { c.scale_in_P = true; }, false},
      {"beta_v", [](Contract& c) { c.beta_v = Format::bf16; }, false},
      {"beta_exp_k", [](Contract& c) { c.beta_exp_k = Format::bf16; }, false},
      {"beta_in_T", [](Contract& c) { c.beta_in_T = true; }, false},
      {"U", [](Contract& c) { c.U = Format::bf16; }, false},
      {"W", [](Contract& c) { c.W = Format::bf16; }, false},
      {"state_operand", [](Contract& c) { c.state_operand = Format::bf16; }, false},
      {"v_new", [](Contract& c) { c.v_new = Format::bf16; }, false},
      {"v_decayed", [](Contract& c) { c.v_decayed = Format::bf16; }, false},
      {"k_decayed", [](Contract& c) { c.k_decayed = Format::bf16; }, false},
      {"P", [](Contract& c) { c.P = Format::bf16; }, false},
      {"q_decayed", [](Contract& c) { c.q_decayed = Format::bf16; }, false},
      {"state", [](Contract& c) { c.state = Format::bf16; }, true},
      {"output", [](Contract& c) { c.output = Format::bf16; }, true},
      {"accumulator", [](Contract& c) { c.accumulator = Accumulator::tensor_core; }, true},
      {"exponential", [](Contract& c) { c.exponential = Exponential::ex2; }, true},
      {"scan", [](Contract& c) { c.scan = Scan::tree; }, false},
      {"reads_old_state", [](Contract& c) { c.reads_old_state = true; }, true},
  };
}

TEST(Twin, EveryRoundingPointActsInTheFormsThatHaveIt) {
  const Call call = make_call("gated_delta_rule", {.T = 70, .dk = 20, .dv = 12}, 32);
  for (const std::string_view form : {"chunked", "recurrent"}) {
    const Call base = twin_of(call, form, {});
    for (const Point& point : rounding_points()) {
      const Call changed = twin_of(call, form, with(Contract{}, point.change));
      const bool acts = changed.o != base.o || changed.final_state != base.final_state;
      const bool chunked = std::string_view(point.name) != "reads_old_state";
      EXPECT_EQ(acts, form == "chunked" ? chunked : point.recurrent) << form << " " << point.name;
    }
  }
}

TEST(Twin, AnUndeclaredRoundingStandsOutOfTheDistanceToTheKernel) {
  // The kernel, whose sums differ from the twin's, is nearer to it than a twin with one rounding more or
  // less.
  const Call call = make_call("gated_delta_rule", {.T = 70, .dk = 20, .dv = 12}, 32);
  const Contract contract = with(sixteen_bit(Format::bf16), [](Contract& c) { c.output = Format::fp32; });
  const Call twin = twin_of(call, "chunked", contract);
  Call kernel = call;
  ASSERT_EQ(kernel.run(testing::kernel_named("cpu.gated_delta_rule.chunked"), contract).kind,
            Outcome::Kind::ran);
  const double distance = testing::relative_error(kernel.o, twin.o);
  EXPECT_GT(distance, 0.0);
  for (const auto& change : std::vector<std::function<void(Contract&)>>{
           [](Contract& c) { c.beta_k = Format::bf16; }, [](Contract& c) { c.state = Format::bf16; },
           [](Contract& c) { c.qk = Format::bf16; }, [](Contract& c) { c.U = Format::fp32; },
           [](Contract& c) { c.T = Format::fp32; }, [](Contract& c) { c.P = Format::fp32; }}) {
    EXPECT_GT(testing::relative_error(twin_of(call, "chunked", with(contract, change)).o, twin.o),
              3 * distance);
  }
}

TEST(Twin, TheCpuKernelIsWithinAFewRoundingsInFp32) {
  for (const std::string_view system : {"gated_delta_rule", "delta_rule", "retention", "linear_attention"}) {
    for (const std::string form : {"recurrent", "chunked"}) {
      const Call call =
          make_call(system, {.T = 70, .Hk = 1, .Hv = 2, .dk = 20, .dv = 12}, form == "chunked" ? 32 : 0);
      Call kernel = call;
      Call twin = call;
      ASSERT_EQ(kernel.run(testing::kernel_named("cpu." + std::string(system) + "." + form)).kind,
                Outcome::Kind::ran);
      ASSERT_EQ(run_twin(system, form, twin.arguments(), {}).kind, Outcome::Kind::ran);
      EXPECT_LE(testing::relative_error(twin.o, kernel.o), 2 * testing::rounding_allowance(call));
      EXPECT_NE(twin.o, kernel.o) << system << " " << form << ": one order of summation, not two";
    }
  }
}

TEST(Twin, UnknownNamesAreErrors) {
  Call call = make_call("delta_rule", {.T = 4, .dk = 3, .dv = 2}, 2);
  EXPECT_THROW((void)run_twin("mamba", "chunked", call.arguments(), {}), Error);
  EXPECT_THROW((void)run_twin("delta_rule", "parallel", call.arguments(), {}), Error);
}

}  // namespace
}  // namespace samestate
