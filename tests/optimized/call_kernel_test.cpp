#include "optimized/call_kernel.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "optimized/cpu/backward/kernels.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/backward/backward_kernels.h"
#endif
#include "optimized/plugin.h"
#include "optimized/subject.h"
#include "tests/optimized/call.h"

namespace samestate {
namespace {

using testing::kernel_named;

std::string error_of(const auto& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Row-major.
CallTensor tensor(std::string_view name, void* data, std::vector<std::int64_t> shape,
                  TensorRole role = TensorRole::input) {
  CallTensor x{.name = name, .role = role, .shape = std::move(shape)};
  x.stride.assign(x.shape.size(), 1);
  for (std::size_t d = x.shape.size(); d-- > 1;) x.stride[d - 1] = x.stride[d] * x.shape[d];
  x.data = data;
  return x;
}

// C libraries and plugins that were built before are called through these layouts, on every machine of 64 bits.
static_assert(sizeof(samestate_tensor) == 40 && offsetof(samestate_tensor, dtype) == 36);
static_assert(sizeof(samestate_parameter) == 16 && offsetof(samestate_parameter, value) == 8);
static_assert(sizeof(samestate_call) == 168 && offsetof(samestate_call, chunk) == 88 &&
              offsetof(samestate_call, reason) == 120 && offsetof(samestate_call, cuts) == 136 &&
              offsetof(samestate_call, memory) == 152 && offsetof(samestate_call, stream) == 160);

TEST(KernelCall, ViewsAreAskedForByNameRankAndType) {
  std::vector<float> values(24), state(8);
  std::vector<std::uint16_t> halves(24);
  KernelCall call;
  call.inputs = {tensor("g", values.data(), {2, 3, 4, 1}), tensor("x", halves.data(), {2, 3, 4}),
                 tensor("state", state.data(), {2, 4})};
  call.inputs[1].dtype = Dtype::bf16;
  call.outputs = {tensor("state", values.data(), {2, 4}, TensorRole::output)};
  const auto g = call.view<const float, 3>("g");
  EXPECT_EQ(g.data, values.data());
  EXPECT_EQ(g.shape, (std::array<std::int64_t, 3>{2, 3, 4}));
  EXPECT_EQ(g.stride, (std::array<std::int64_t, 3>{12, 4, 1}));
  EXPECT_EQ((call.view<const std::uint16_t, 3>("x").data), halves.data());
  // One name on both sides: what is read is the input.
  EXPECT_EQ((call.view<const float, 2>("state").data), state.data());
  EXPECT_EQ((call.view<float, 2>("state").data), values.data());
  EXPECT_FALSE((call.view<const float, 3>("beta").present()));
  // A gate per channel is not a gate per head, and bits of bf16 are not floats.
  call.inputs[0] = tensor("g", values.data(), {2, 3, 2, 2});
  EXPECT_EQ(error_of([&] { (void)call.view<const float, 3>("g"); }),
            "tensor g is fp32 [2, 3, 2, 2], and the kernel asks for rank 3 of elements of 4 bytes; ask for "
            "its own rank and "
            "type, or declare a limit");
  EXPECT_NE(error_of([&] { (void)call.view<const float, 3>("x"); }), "");
  EXPECT_NE(error_of([&] { (void)call.view<const float, 3>("state"); }), "");
  EXPECT_EQ((call.view<const float, 4>("g").shape[3]), 2);
}

TEST(KernelCall, SettingsHaveNamesAndStandards) {
  KernelCall call;
  for (const CallSetting& row : kCallSettings) EXPECT_EQ(call.setting(row.name), row.standard) << row.name;
  call.set("scale", 3.0);
  call.set("scale", static_cast<double>(0.1F));
  EXPECT_EQ(call.scale(), 0.1F);
  EXPECT_EQ(call.settings.size(), 1U);
  EXPECT_NE(error_of([&] { (void)call.setting("scael"); }), "");
  EXPECT_NE(error_of([&] { call.set("scael", 1.0); }), "");
  EXPECT_NE(error_of([&] { (void)call.parameter("dk"); }), "");
}

/// A call of the recurrent family on memory of `of`.
KernelCall call_of(testing::Call& of) {
  const Arguments a = of.arguments();
  KernelCall call;
  const auto view = [](std::string_view name, const auto& v, TensorRole role) {
    CallTensor x{.name = name, .role = role};
    x.shape.assign(v.shape.begin(), v.shape.end());
    x.stride.assign(v.stride.begin(), v.stride.end());
    x.data = const_cast<float*>(v.data);
    return x;
  };
  const auto input = [&](std::string_view name, const auto& v) {
    if (v.present()) call.inputs.push_back(view(name, v, TensorRole::input));
  };
  input("q", a.q), input("k", a.k), input("v", a.v), input("g", a.g), input("beta", a.beta);
  input("initial_state", a.initial_state);
  call.outputs = {view("o", a.o, TensorRole::output), view("final_state", a.final_state, TensorRole::output)};
  call.cu_seqlens = a.cu_seqlens;
  call.batch = of.shape.B;
  call.tokens = of.shape.T;
  call.parameters = {{"Hk", of.shape.Hk}, {"Hv", of.shape.Hv}, {"dk", of.shape.dk}, {"dv", of.shape.dv}};
  call.threads = a.threads;
  call.set("scale", static_cast<double>(a.scale));
  call.set("chunk", static_cast<double>(a.chunk));
  call.set("tiled", a.head_map == HeadMap::tiled ? 1.0 : 0.0);
  call.set("l2norm", a.l2norm ? 1.0 : 0.0);
  return call;
}

testing::Call some_call() {
  testing::Call of = testing::make_call(
      "gated_delta_rule", {.B = 1, .T = 9, .Hk = 2, .Hv = 4, .dk = 3, .dv = 5, .offsets = {0, 4, 9}}, 4);
  of.scale = 0.3F;
  of.chunk = 4;
  of.head_map = HeadMap::tiled;
  of.l2norm = true;
  of.threads = 2;
  return of;
}

TEST(KernelCall, AKernelOfArgumentsIsGivenAllOfTheCall) {
  testing::Call of = some_call();
  KernelCall call = call_of(of);
  call.cuts = {0, 5, 9};
  const Arguments a = arguments_of(call), expected = of.arguments();
  for (const auto& [mine, theirs] : {std::pair{a.q, expected.q},
                                     {a.k, expected.k},
                                     {a.v, expected.v},
                                     {a.initial_state, expected.initial_state}}) {
    EXPECT_EQ(mine.data, theirs.data);
    EXPECT_EQ(mine.shape, theirs.shape);
    EXPECT_EQ(mine.stride, theirs.stride);
  }
  EXPECT_EQ(a.g.data, expected.g.data);
  EXPECT_EQ(a.beta.stride, expected.beta.stride);
  EXPECT_EQ(a.o.data, expected.o.data);
  EXPECT_EQ(a.final_state.data, expected.final_state.data);
  EXPECT_EQ(a.cu_seqlens.data, expected.cu_seqlens.data);
  EXPECT_EQ(a.scale, 0.3F);
  EXPECT_EQ(a.chunk, 4);
  EXPECT_EQ(a.head_map, HeadMap::tiled);
  EXPECT_TRUE(a.l2norm);
  EXPECT_EQ(a.threads, 2);
  ASSERT_TRUE(a.cuts.present());
  EXPECT_EQ(a.cuts(1), 5);
  EXPECT_FALSE(arguments_of(call_of(of)).cuts.present());
}

// The adapters refuse what the older structs have no place for; they do not leave it out in silence.
TEST(KernelCall, WhatTheOlderStructsCannotSayIsRefused) {
  testing::Call of = some_call();
  KernelCall call = call_of(of);
  call.set("backward", 1.0);
  EXPECT_NE(error_of([&] { (void)arguments_of(call); }).find("backward"), std::string::npos);
  EXPECT_NE(error_of([&] { (void)operator_arguments_of(call); }), "");
  call.outputs.front().name = "d.q";
  EXPECT_EQ(error_of([&] { (void)operator_arguments_of(call); }), "");
  call = call_of(of);
  const auto g = std::ranges::find(call.inputs, "g", &CallTensor::name);
  g->shape.push_back(3), g->stride.push_back(0);
  EXPECT_NE(error_of([&] { (void)arguments_of(call); }).find("tensor g"), std::string::npos);
  // Named tensors take any rank, in fp32.
  call.settings.clear();
  EXPECT_EQ(operator_arguments_of(call).input("g").shape.back(), 3);
  call.inputs.front().dtype = Dtype::fp16;
  EXPECT_NE(error_of([&] { (void)operator_arguments_of(call); }).find("tensor q is not fp32"),
            std::string::npos);
}

TEST(CallKernels, TheTableHasEveryRowOfTheLists) {
  const std::span<const CallKernel> table = call_kernels();
  std::vector<CallKernel> backward = cpu::backward_kernels();
#ifdef SAMESTATE_HAVE_CUDA
  for (CallKernel& row : cuda::backward_kernels()) backward.push_back(std::move(row));
#endif
  ASSERT_EQ(table.size(), kernels().size() + operator_kernels().size() + backward.size());
  std::size_t i = 0;
  for (const Kernel& row : kernels()) {
    EXPECT_EQ(table[i].name, row.name);
    EXPECT_EQ(table[i].contracts, row.contracts);
    EXPECT_EQ(table[i].limits, row.limits);
    EXPECT_EQ(table[i].time == nullptr, row.time == nullptr);
    EXPECT_EQ(table[i].trace == nullptr, row.trace == nullptr);
    EXPECT_TRUE(table[i].packed && table[i].strided);
    EXPECT_EQ(table[i++].listed_by, kFamilyRows);
  }
  for (const OperatorKernel& row : operator_kernels()) {
    EXPECT_EQ(table[i].name, row.name);
    EXPECT_EQ(table[i].taps, row.taps);
    EXPECT_EQ(table[i].packed, row.packed);
    EXPECT_EQ(table[i].strided, row.strided);
    EXPECT_EQ(table[i++].listed_by, kTensorRows);
  }
  EXPECT_TRUE(by_call(Kernel()).run == nullptr);
  for (const CallKernel& row : backward) {
    EXPECT_EQ(table[i].name, row.name);
    EXPECT_EQ(table[i++].listed_by, kCallRows);
  }
}

TEST(CallKernels, ACallGivesTheBitsOfItsArguments) {
  for (const char* name : {"cpu.gated_delta_rule.chunked", "cpu.gated_delta_rule.recurrent"}) {
    const Kernel& kernel = kernel_named(name);
    testing::Call of = some_call(), again = some_call();
    if (kernel.form == "recurrent") of.chunk = again.chunk = 0;
    ASSERT_EQ(kernel.run(of.arguments(), {}).kind, Outcome::Kind::ran);
    ASSERT_EQ(by_call(kernel).run(call_of(again), {}).kind, Outcome::Kind::ran);
    EXPECT_EQ(of.o, again.o) << name;
    EXPECT_EQ(of.final_state, again.final_state) << name;
  }
}

}  // namespace
}  // namespace samestate
