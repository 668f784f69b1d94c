#include "harness/run/contract_dtypes.h"

#include <gtest/gtest.h>

#include <vector>

#include "harness/run/call_loop.h"
#include "harness/run/sixteen_bit.h"
#include "oracles/contracts.h"
#include "tests/facts.h"

namespace samestate {
namespace {

/// A call of rms_norm on x [1, 2, 3] that lies with gaps of one element between its rows.
struct Norm {
  std::vector<float> x = {1.0F, 2.0F, 3.0F, -7.0F, 0.5F, -0.25F, 8.0F}, weight = {1.0F, 0.3F, 1.0F}, y = x;
  KernelCall call;

  Norm() {
    const auto tensor = [](const char* name, TensorRole role, float* data) {
      return CallTensor{
          .name = name, .role = role, .shape = {1, 2, 1, 3}, .stride = {7, 4, 4, 1}, .data = data};
    };
    call.inputs = {tensor("x", TensorRole::input, x.data())};
    call.inputs.push_back({.name = "weight",
                           .role = TensorRole::weight,
                           .shape = {3},
                           .stride = {1},
                           .data = weight.data(),
                           .axis = Axis::whole});
    call.outputs = {tensor("y", TensorRole::output, y.data())};
    call.tokens = 2;
  }
};

const ContractDtypes& dtypes() {
  static const ContractDtypes of(system_named("rms_norm"));
  return of;
}

TEST(ContractDtypes, TensorsHaveTheFormatsOfTheContract) {
  const CallTensor q{.name = "q"}, g{.name = "g"}, state{.name = "initial_state"}, o{.name = "o"};
  const ContractDtypes of(system_named("gated_delta_rule"));
  EXPECT_EQ(of.of(q, false, contract_named("bf16")), Dtype::bf16);
  EXPECT_EQ(of.of(q, false, contract_named("fp16")), Dtype::fp16);
  EXPECT_EQ(of.of(q, false, contract_named("tf32")), Dtype::fp32);
  EXPECT_EQ(of.of(g, false, contract_named("bf16")), Dtype::fp32);
  EXPECT_EQ(of.of(state, false, contract_named("bf16")), Dtype::fp32);
  EXPECT_EQ(of.of(state, false, contract_named("bf16_state")), Dtype::bf16);
  EXPECT_EQ(of.of(o, true, contract_named("bf16_out_fp32")), Dtype::fp32);
  EXPECT_EQ(of.of(o, true, contract_named("bf16")), Dtype::bf16);
}

TEST(ContractDtypes, ValuesGoThereAndBack) {
  Norm norm;
  ContractCall narrow(norm.call, contract_named("bf16"), dtypes());
  const auto x = narrow.call().view<const std::uint16_t, 4>("x");
  const auto y = narrow.call().view<std::uint16_t, 4>("y");
  const View<const float, 1> weight = narrow.call().view<const float, 1>("weight");
  EXPECT_EQ(weight.data, norm.weight.data()) << "what stays fp32 is the judge's own tensor";
  EXPECT_EQ(value_of(x(0, 1, 0, 1), Dtype::bf16), -0.25F);
  for (std::int64_t i = 0; i < 2; ++i) y(0, 1, 0, i) = bits_of(0.5F, Dtype::bf16);
  narrow.give_back();
  // Elements that were not written, and the gap, are unchanged.
  EXPECT_EQ(norm.y, (std::vector<float>{1.0F, 2.0F, 3.0F, -7.0F, 0.5F, 0.5F, 8.0F}));
}

TEST(ContractDtypes, AnotherTypeIsAnErrorThatNamesBoth) {
  Norm norm;
  const ContractCall narrow(norm.call, contract_named("bf16"), dtypes());
  try {
    (void)narrow.call().view<const float, 4>("x");
    ADD_FAILURE() << "bf16 was read as fp32";
  } catch (const Error& error) {
    EXPECT_EQ(lacking(error.what(), "x bf16 [1, 2, 1, 3] rank 4 bytes"), "") << error.what();
  }
}

TEST(ContractDtypes, WhatIsWrittenBesideATensorIsATrespass) {
  for (const std::int64_t at : {-1, 3, 7}) {  // before it, in its gap, behind it
    Norm norm;
    ContractCall narrow(norm.call, contract_named("bf16"), dtypes());
    narrow.call().view<std::uint16_t, 4>("y").data[at] = 0;
    EXPECT_THROW(narrow.give_back(), Trespass) << at;
  }
}

TEST(ContractDtypes, AnInputThatTheFormatDoesNotHoldIsRefused) {
  Norm norm;
  norm.x[1] = 1.0F / 3;
  EXPECT_THROW((void)ContractCall(norm.call, contract_named("bf16"), dtypes()), Unavailable);
  // The elements between its rows do not belong to the call.
  norm.x[1] = 1.0F, norm.x[3] = 1.0F / 3;
  EXPECT_NO_THROW((void)ContractCall(norm.call, contract_named("bf16"), dtypes()));
}

}  // namespace
}  // namespace samestate
