#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "optimized/cpu/twin.h"
#include "reference/error.h"
#include "tests/optimized/call.h"
#include "tests/optimized/contracts.h"

/// The CUDA kernels on a device; without one, that they say so and touch nothing.
namespace samestate {
namespace {

using testing::bf16;
using testing::Call;
using testing::make_call;
using testing::old_state;

std::vector<Contract> contracts_of(const Kernel& kernel) {
  std::vector<Contract> contracts = {Contract{}, bf16()};
  if (kernel.form == "recurrent") {
    contracts.push_back(old_state(Format::fp32));
    contracts.push_back(old_state(Format::bf16));
    contracts.push_back(old_state(Format::bf16, Format::bf16));
  }
  return contracts;
}

float rounded(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7fffU + ((bits >> 16) & 1U)) & 0xffff0000U);
}

class CudaKernel : public ::testing::TestWithParam<Kernel> {
 protected:
  /// Runs the kernel; returns false if there is no device, after checking that the outputs were left alone.
  bool ran(Call& call, const Contract& contract) {
    const Outcome outcome = call.run(GetParam(), contract);
    if (outcome.kind == Outcome::Kind::no_device) {
      EXPECT_FALSE(cuda_device().has_value());
      EXPECT_EQ(outcome.reason.rfind("no CUDA device: ", 0), 0U) << outcome.reason;
      Call untouched = call;
      (void)untouched.arguments();
      for (std::size_t i = 0; i < call.o.size(); ++i)
        EXPECT_EQ(std::bit_cast<std::uint32_t>(call.o[i]), std::bit_cast<std::uint32_t>(untouched.o[i])) << i;
      return false;
    }
    EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
    EXPECT_TRUE(cuda_device().has_value());
    return true;
  }

  /// The kernel against its twin, bit for bit.
  void expect_twin(Call call, const Contract& contract) {
    Call twin = call;
    ASSERT_EQ(run_twin(GetParam().system, GetParam().form, twin.arguments(), contract).kind,
              Outcome::Kind::ran);
    if (!ran(call, contract)) GTEST_SKIP() << "no device";
    EXPECT_EQ(call.o, twin.o) << contract.name << " T=" << call.shape.T << " chunk=" << call.chunk;
    EXPECT_EQ(call.final_state, twin.final_state) << contract.name << " T=" << call.shape.T;
  }
};

/// Where data make every intermediate an integer, every form and contract gives the same bits.
TEST_P(CudaKernel, ExactRegimeIsBitForBit) {
  for (const Contract& contract : contracts_of(GetParam())) {
    for (const std::int64_t T : {0, 1, 15, 16, 64, 65, 150}) {
      expect_twin(make_call(GetParam().system, {2, T, 2, 4, 40, 24, {}}, 64, true, 3), contract);
    }
    expect_twin(make_call(GetParam().system, {1, 70, 1, 3, 128, 128, {}}, 64, true, 4), contract);
    expect_twin(make_call(GetParam().system, {1, 70, 1, 1, 256, 256, {}}, 64, true, 5), contract);
    expect_twin(make_call(GetParam().system, {1, 33, 1, 1, 7, 5, {}}, 3, true, 6), contract);
    Call packed = make_call(GetParam().system, {1, 90, 2, 4, 33, 17, {0, 0, 1, 40, 88, 88}}, 32, true, 7);
    packed.head_map = HeadMap::tiled;
    expect_twin(packed, contract);
  }
}

TEST_P(CudaKernel, StateInPlaceDecodes) {
  Call whole = make_call(GetParam().system, {1, 9, 1, 2, 20, 12, {}}, 4, true, 8);
  if (!ran(whole, {})) GTEST_SKIP() << "no device";
  Call step = whole;
  std::vector<float> state = whole.initial_state;
  for (std::int64_t t = 0; t < 9; ++t) {
    Arguments a = step.arguments();
    for (auto* view : {&a.q, &a.k, &a.v}) *view = view->slice(1, t, t + 1);
    if (a.g.present()) a.g = a.g.slice(1, t, t + 1);
    if (a.beta.present()) a.beta = a.beta.slice(1, t, t + 1);
    a.o = a.o.slice(1, t, t + 1);
    a.final_state = row_major<float, 4>(state.data(), {1, 2, 20, 12});
    a.initial_state = a.final_state;
    ASSERT_EQ(GetParam().run(a, {}).kind, Outcome::Kind::ran);
    for (std::int64_t c = 0; c < 24; ++c) {
      const auto at = static_cast<std::size_t>(24 * t + c);
      EXPECT_EQ(step.o[at], whole.o[at]) << "token " << t;
    }
  }
  EXPECT_EQ(state, whole.final_state);
}

/// A grid of more blocks than the y or z axis would take (BUGS M39).
TEST_P(CudaKernel, ManySequences) {
  expect_twin(make_call(GetParam().system, {70000, 1, 1, 1, 3, 2, {}}, 1, true, 9), {});
}

/// Ordinary bf16 data: the tensor core sums in another way than its emulation, so a rounding may now and then
/// fall the other way. It is the twin's neighbour all the same: nearer than the same twin without one
/// rounding.
TEST_P(CudaKernel, Bf16RoundsWhereTheContractSays) {
  Call call = make_call(GetParam().system, {1, 200, 1, 2, 64, 64, {}}, 64, false, 10);
  for (auto* values : {&call.q, &call.k, &call.v}) {
    for (float& x : *values) x = rounded(x);
  }
  const auto twin_of = [&](const Contract& contract) {
    Call twin = call;
    EXPECT_EQ(run_twin(GetParam().system, GetParam().form, twin.arguments(), contract).kind,
              Outcome::Kind::ran);
    return twin.o;
  };
  const std::vector<float> declared = twin_of(bf16());
  Contract without = bf16();
  without.output = Format::fp32;
  const std::vector<float> undeclared = twin_of(without);
  if (!ran(call, bf16())) GTEST_SKIP() << "no device";
  const auto distance = [&](const std::vector<float>& other) {
    double sum = 0.0;
    for (std::size_t i = 0; i < other.size(); ++i) {
      sum += std::pow(static_cast<double>(call.o[i]) - static_cast<double>(other[i]), 2.0);
    }
    return std::sqrt(sum);
  };
  EXPECT_LT(distance(declared), distance(undeclared));
}

/// The timed calls are the same as the others: the same bits, dense and packed, short calls in a graph and
/// long ones not.
TEST_P(CudaKernel, TimesWhatItRuns) {
  const TimingRequest request{.seconds = 1e-3, .least_samples = 3, .most_samples = 8, .warm_up = 1};
  for (const Contract& contract : contracts_of(GetParam())) {
    for (Call call :
         {make_call(GetParam().system, {2, 65, 2, 4, 40, 24, {}}, 64, true, 11),
          make_call(GetParam().system, {1, 90, 2, 4, 33, 17, {0, 0, 1, 40, 88, 88}}, 32, true, 12),
          make_call(GetParam().system, {1, 4000, 2, 4, 64, 64, {}}, 64, true, 13)}) {
      Call timed = call;
      const Timing timing = GetParam().time(timed.arguments(), contract, request);
      if (!ran(call, contract)) {
        EXPECT_EQ(timing.outcome.kind, Outcome::Kind::no_device);
        GTEST_SKIP() << "no device";
      }
      ASSERT_EQ(timing.outcome.kind, Outcome::Kind::ran) << timing.outcome.reason;
      EXPECT_EQ(timed.o, call.o);
      EXPECT_EQ(timed.final_state, call.final_state);
      EXPECT_GE(timing.seconds.size(), 3U);
      EXPECT_LE(timing.seconds.size(), 8U);
      for (const double seconds : timing.seconds) {
        EXPECT_GT(seconds, 0.0);
        EXPECT_LT(seconds, 1.0);
      }
      EXPECT_EQ(timing.how, timing.calls_per_sample > 1 ? "graph" : "events");
      EXPECT_GT(timing.copies, 1) << "such tensors fit the cache";
    }
  }
}

/// Every row of the table that takes the call, chosen or not, launched programmatically one after the other as
/// it is when it is timed.
TEST_P(CudaKernel, EveryVariantIsTheTwin) {
  if (!cuda_device()) GTEST_SKIP() << "no device";
  if (GetParam().form != "recurrent") GTEST_SKIP() << "these are calls of the recurrent form";
  for (const Contract& contract : contracts_of(GetParam())) {
    for (const testing::Shape& shape :
         {testing::Shape{3, 1, 2, 4, 128, 128, {}}, testing::Shape{2, 1, 1, 3, 40, 72, {}},
          testing::Shape{2, 5, 1, 2, 256, 64, {}}, testing::Shape{2, 1, 1, 1, 33, 17, {}}}) {
      Call twin = make_call(GetParam().system, shape, 0, true, 15);
      ASSERT_EQ(run_twin(GetParam().system, "recurrent", twin.arguments(), contract).kind,
                Outcome::Kind::ran);
      int rows = 0;
      for (const Variant& variant : GetParam().variants) {
        Call call = make_call(GetParam().system, shape, 0, true, 15);
        const TimingRequest request{
            .seconds = 1e-3, .least_samples = 3, .most_samples = 20, .warm_up = 1, .variant = variant.name};
        const Timing timing = GetParam().time(call.arguments(), contract, request);
        if (timing.outcome.kind == Outcome::Kind::unsupported) continue;
        ++rows;
        EXPECT_EQ(timing.variant, variant.name);
        EXPECT_EQ(call.o, twin.o) << contract.name << " " << variant.name << " dv=" << shape.dv;
        EXPECT_EQ(call.final_state, twin.final_state) << contract.name << " " << variant.name;
      }
      EXPECT_GE(rows, GetParam().variants.empty() ? 0 : 1) << contract.name;
    }
  }
}

TEST_P(CudaKernel, TimesNothingThatItRefuses) {
  Call call = make_call(GetParam().system, {1, 9, 1, 1, 8, 8, {}}, 4, true, 14);
  Contract other;
  other.output = Format::fp16;
  const Timing timing = GetParam().time(call.arguments(), other, {});
  EXPECT_EQ(timing.outcome.kind, Outcome::Kind::unsupported);
  EXPECT_TRUE(timing.seconds.empty());
}

INSTANTIATE_TEST_SUITE_P(Table, CudaKernel, ::testing::ValuesIn(cuda_kernels()), [](const auto& row) {
  std::string name = row.param.name;
  for (char& c : name) c = c == '.' ? '_' : c;
  return name;
});

TEST(CudaKernels, EveryRowIsNamedForWhatItIs) {
  EXPECT_FALSE(cuda_kernels().empty());
  for (const Kernel& row : cuda_kernels()) {
    EXPECT_EQ(row.name, "cuda." + row.system + "." + row.form);
    const std::vector<std::string> chunked = {"bf16_fused", "tf32_fused", "fp32_fused", "fp32", "bf16"};
    const std::vector<std::string> all = {"fp32_fused",       "tf32_fused", "bf16_fused",
                                          "bf16_fused_state", "fp32",       "bf16"};
    EXPECT_EQ(row.contracts, row.form == "recurrent" ? all : chunked);
    EXPECT_FALSE(row.variants.empty());
    EXPECT_NE(row.time, nullptr);
  }
}

TEST(CudaKernels, CeilingsAreThoseOfADevice) {
  if (!cuda_device()) {
    EXPECT_THROW((void)measure_ceilings(), Error);
    GTEST_SKIP() << "no device";
  }
  const DeviceCeilings ceilings = measure_ceilings();
  EXPECT_GT(ceilings.copy, 1e11);
  EXPECT_LT(ceilings.copy, 1e14);
  EXPECT_EQ(ceilings.bf16 > 0.0, ceilings.fp32 > 0.0) << ceilings.note;
  EXPECT_GE(ceilings.bf16, 2.0 * ceilings.fp32);
}

TEST(CudaKernels, ProbeSaysWhatItFoundOrWhyNot) {
  EXPECT_EQ(probe_json().find("no_device") == std::string::npos, cuda_device().has_value());
}

}  // namespace
}  // namespace samestate
#endif
