/// Every CPU row of the table, against the equations in double and against itself.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "optimized/cpu/l2norm.h"
#include "optimized/cpu/rounding.h"
#include "optimized/cpu/twin.h"
#include "optimized/kernel.h"
#include "reference/error.h"
#include "tests/optimized/call.h"

namespace samestate {
namespace {

using testing::Call;
using testing::Expected;
using testing::expected_of;
using testing::has_decay;
using testing::has_delta;
using testing::make_call;
using testing::relative_error;
using testing::rounding_allowance;
using testing::Shape;

std::vector<std::string> cpu_kernels(bool decay_only = false) {
  std::vector<std::string> names;
  for (const Kernel& kernel : kernels()) {
    if (kernel.device == "cpu" && (!decay_only || has_decay(kernel.system))) names.push_back(kernel.name);
  }
  return names;
}

class CpuKernel : public ::testing::TestWithParam<std::string> {
 protected:
  const Kernel& kernel = testing::kernel_named(GetParam());

  Call call(const Shape& shape, std::int64_t chunk, bool exact = false) const {
    return make_call(kernel.system, shape, kernel.form != "recurrent" ? chunk : 0, exact);
  }

  Call ran(Call call, const Contract& contract = {}) const {
    const Outcome outcome = call.run(kernel, contract);
    EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
    return call;
  }

  void check(const Call& call) const {
    const Expected expected = expected_of(call, has_delta(kernel.system));
    const double allowance = rounding_allowance(call);
    EXPECT_LE(relative_error(call.o, expected.o), allowance) << call.shape.T << " / " << call.chunk;
    EXPECT_LE(relative_error(call.final_state, expected.state), allowance)
        << call.shape.T << " / " << call.chunk;
  }
};

std::string plain_name(const ::testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Table, CpuKernel, ::testing::ValuesIn(cpu_kernels()), plain_name);

class CpuKernelWithDecay : public CpuKernel {};
INSTANTIATE_TEST_SUITE_P(Table, CpuKernelWithDecay, ::testing::ValuesIn(cpu_kernels(true)), plain_name);

TEST(KernelTable, HasBothFormsOfEverySystemOnTheCpu) {
  std::set<std::string> names;
  for (const Kernel& kernel : kernels()) {
    EXPECT_TRUE(names.insert(kernel.name).second);
    EXPECT_EQ(kernel.name, kernel.device + "." + kernel.system + "." + kernel.form);
    EXPECT_NE(kernel.run, nullptr);
    EXPECT_FALSE(kernel.contracts.empty());
  }
  std::set<std::string> systems;
  for (const Kernel& kernel : kernels()) {
    if (kernel.device == "cpu") systems.insert(kernel.system);
  }
  EXPECT_FALSE(systems.empty());
  for (const std::string& system : systems) {
    for (const char* form : {".recurrent", ".chunked"})
      EXPECT_TRUE(names.contains("cpu." + system + form)) << system << form;
  }
}

TEST_P(CpuKernel, AgreesWithTheEquations) {
  for (const std::int64_t chunk : {1, 2, 3, 7, 16, 33, 64, 100}) {
    for (const std::int64_t T :
         {std::int64_t{1}, std::max<std::int64_t>(1, chunk - 1), chunk, chunk + 1, 3 * chunk + 2}) {
      check(ran(call({.B = 2, .T = T, .Hk = 1, .Hv = 2, .dk = 9, .dv = 12}, chunk)));
    }
  }
  for (const auto& [dk, dv] : {std::pair{1, 1}, {1, 40}, {40, 1}, {16, 70}, {130, 17}, {64, 129}}) {
    check(ran(call({.T = 50, .dk = dk, .dv = dv}, 16)));
  }
  check(ran(call({.T = 300, .dk = 64, .dv = 64}, 128)));
}

TEST_P(CpuKernel, ADroppedTermShows) {
  // The allowance must be far below what each mistake does: no delta term, no decay, state forgotten, head
  // swapped.
  Call good = ran(call({.T = 50, .Hk = 2, .Hv = 4, .dk = 9, .dv = 12}, 16));
  const auto shows = [&](Call wrong, bool delta) {
    EXPECT_GT(relative_error(good.o, expected_of(wrong, delta).o), 100 * rounding_allowance(good));
  };
  const bool delta = has_delta(kernel.system);
  shows(good, !delta);
  Call wrong = good;
  wrong.initial_state.clear();
  shows(wrong, delta);
  wrong = good;
  wrong.head_map = HeadMap::tiled;
  shows(wrong, delta);
  if (has_decay(kernel.system)) {
    wrong = good;
    wrong.g.clear();
    shows(wrong, delta);
  }
}

TEST_P(CpuKernel, NoTokensCopyTheState) {
  for (const bool initial : {true, false}) {
    Call empty = call({.B = 2, .T = 0, .Hk = 1, .Hv = 3, .dk = 5, .dv = 4}, 16);
    if (!initial) empty.initial_state.clear();
    empty = ran(empty);
    const std::vector<float> zeros(empty.final_state.size(), 0.0F);
    EXPECT_EQ(empty.final_state, initial ? empty.initial_state : zeros);
  }
}

TEST_P(CpuKernel, SmallIntegersAreExact) {
  for (const std::int64_t chunk : {1, 5, 16, 64}) {
    const Call exact = ran(call({.B = 2, .T = 61, .Hk = 2, .Hv = 4, .dk = 12, .dv = 10}, chunk, true));
    const Expected expected = expected_of(exact, has_delta(kernel.system));
    EXPECT_EQ(relative_error(exact.o, expected.o), 0.0);
    EXPECT_EQ(relative_error(exact.final_state, expected.state), 0.0);
  }
}

TEST_P(CpuKernel, PackedSequencesAreSeparateCallsBitForBit) {
  const std::vector<std::int64_t> offsets = {2, 2, 19, 20, 20, 53, 60};
  Call packed = call({.T = 64, .Hk = 2, .Hv = 4, .dk = 9, .dv = 70, .offsets = offsets}, 16);
  packed = ran(packed);
  check(packed);
  const std::int64_t state_size = 4 * 9 * 70;
  for (std::size_t n = 0; n + 1 < offsets.size(); ++n) {
    Call one = packed;
    one.shape.offsets.clear();
    one.shape.T = offsets[n + 1] - offsets[n];
    const auto part = [&](std::vector<float>& x, std::int64_t width) {
      if (x.empty()) return;
      x = std::vector<float>(x.begin() + offsets[n] * width, x.begin() + offsets[n + 1] * width);
    };
    part(one.q, 2 * 9);
    part(one.k, 2 * 9);
    part(one.v, 4 * 70);
    part(one.g, 4);
    part(one.beta, 4);
    const auto first = static_cast<std::int64_t>(n) * state_size;
    one.initial_state = std::vector<float>(packed.initial_state.begin() + first,
                                           packed.initial_state.begin() + first + state_size);
    one = ran(one);
    EXPECT_TRUE(std::equal(one.o.begin(), one.o.end(), packed.o.begin() + offsets[n] * 4 * 70));
    EXPECT_TRUE(
        std::equal(one.final_state.begin(), one.final_state.end(), packed.final_state.begin() + first));
  }
}

TEST_P(CpuKernel, StateInPlaceAndAnyThreadsGiveTheSameBits) {
  const Shape shape{.B = 3, .T = 40, .Hk = 2, .Hv = 4, .dk = 9, .dv = 150};
  const Call apart = ran(call(shape, 16));
  Call in_place = apart;
  Arguments arguments = in_place.arguments();
  in_place.final_state = in_place.initial_state;
  arguments.initial_state = arguments.final_state;
  ASSERT_EQ(kernel.run(arguments, {}).kind, Outcome::Kind::ran);
  EXPECT_EQ(in_place.o, apart.o);
  EXPECT_EQ(in_place.final_state, apart.final_state);
  for (const int threads : {2, 3, 64}) {
    Call threaded = apart;
    threaded.threads = threads;
    threaded = ran(threaded);
    EXPECT_EQ(threaded.o, apart.o);
    EXPECT_EQ(threaded.final_state, apart.final_state);
  }
}

TEST_P(CpuKernel, SplitAndResumeAtChunksIsOneCallBitForBit) {
  const std::int64_t heads_dk = 2 * 7;
  const Call whole = ran(call({.T = 50, .Hk = 2, .Hv = 2, .dk = 7, .dv = 7}, 16));
  for (const std::int64_t split : {16, 32, 48}) {
    Call head = whole;
    Call tail = whole;
    head.shape.T = split;
    tail.shape.T = 50 - split;
    for (std::vector<float>* x : {&tail.q, &tail.k, &tail.v})
      x->erase(x->begin(), x->begin() + split * heads_dk);
    for (std::vector<float>* x : {&tail.g, &tail.beta}) {
      if (!x->empty()) x->erase(x->begin(), x->begin() + split * 2);
    }
    head = ran(head);
    tail.initial_state = head.final_state;
    tail = ran(tail);
    EXPECT_TRUE(std::equal(head.o.begin(), head.o.end(), whole.o.begin()));
    EXPECT_TRUE(std::equal(tail.o.begin(), tail.o.end(), whole.o.begin() + split * heads_dk));
    EXPECT_EQ(tail.final_state, whole.final_state);
  }
}

TEST_P(CpuKernel, TokensThatDoNothingChangeNoBit) {
  // k = v = beta = g = 0 after token 20: the state stays, in the middle of a chunk and past its end.
  Call padded = call({.T = 45, .dk = 9, .dv = 12}, 16);
  Call shorter = padded;
  shorter.shape.T = 20;
  shorter = ran(shorter);
  std::fill(padded.k.begin() + 20 * 9, padded.k.end(), 0.0F);
  std::fill(padded.v.begin() + 20 * 12, padded.v.end(), 0.0F);
  if (!padded.g.empty()) std::fill(padded.g.begin() + 20, padded.g.end(), 0.0F);
  if (!padded.beta.empty()) std::fill(padded.beta.begin() + 20, padded.beta.end(), 0.0F);
  padded = ran(padded);
  EXPECT_EQ(padded.final_state, shorter.final_state);
  EXPECT_TRUE(std::equal(shorter.o.begin(), shorter.o.end(), padded.o.begin()));
}

TEST_P(CpuKernel, TheFutureDoesNotReachBack) {
  const Call before = ran(call({.T = 40, .dk = 9, .dv = 12}, 16));
  for (const std::int64_t t : {1, 13, 30}) {
    Call after = before;
    for (std::int64_t i = t * 9; i < 40 * 9; ++i) after.q[i] = after.k[i] = 0.25F;
    for (std::int64_t i = t * 12; i < 40 * 12; ++i) after.v[i] = 3.0F;
    for (std::int64_t i = t; i < 40; ++i) {
      if (!after.g.empty()) after.g[i] = -2.0F;
      if (!after.beta.empty()) after.beta[i] = 0.5F;
    }
    after = ran(after);
    EXPECT_TRUE(std::equal(before.o.begin(), before.o.begin() + t * 12, after.o.begin()));
    EXPECT_NE(after.final_state, before.final_state);
  }
}

TEST_P(CpuKernel, NormalisesKeysAndQueries) {
  Call raw = call({.T = 40, .Hk = 2, .Hv = 4, .dk = 19, .dv = 12}, 16);
  for (std::size_t i = 0; i < raw.k.size(); ++i) raw.k[i] *= 0.01F * static_cast<float>(i % 600 / 19 + 1);
  std::fill(raw.k.begin(), raw.k.begin() + 19, 0.0F);
  std::fill(raw.k.begin() + 19, raw.k.begin() + 38, 1e-4F);  // the 1e-6 under the root matters here
  raw.l2norm = true;
  raw = ran(raw);
  check(raw);
  Call wrong = raw;
  wrong.l2norm = false;
  EXPECT_GT(relative_error(raw.o, expected_of(wrong, has_delta(kernel.system)).o), 0.01);
}

TEST_P(CpuKernel, NormalisedKeysAreRoundedWhereTheContractSaysSo) {
  Call inside = call({.T = 40, .dk = 19, .dv = 12}, 16);
  Call outside = inside;
  for (std::vector<float>* x : {&outside.q, &outside.k}) {
    for (std::size_t t = 0; t < 40; ++t) cpu::l2_normalise(x->data() + t * 19, 19);
    cpu::round_values(x->data(), x->data(), 40 * 19, Format::bf16);
  }
  outside = ran(outside);
  inside.l2norm = true;
  Contract contract;
  const Call fp32 = ran(inside, contract);
  contract.qk = Format::bf16;
  inside = ran(inside, contract);
  EXPECT_EQ(inside.o, outside.o);
  EXPECT_EQ(inside.final_state, outside.final_state);
  EXPECT_NE(inside.o, fp32.o);
}

TEST_P(CpuKernel, HeadsStartFromZeroWithoutAnInitialState) {
  Call fresh = call({.B = 3, .T = 20, .Hk = 1, .Hv = 2, .dk = 9, .dv = 12}, 16);
  fresh.initial_state.clear();
  check(ran(fresh));
}

TEST_P(CpuKernel, TiledHeads) {
  Call tiled = call({.T = 20, .Hk = 2, .Hv = 6, .dk = 5, .dv = 4}, 16);
  tiled.head_map = HeadMap::tiled;
  check(ran(tiled));
}

TEST_P(CpuKernel, StridedTensorsGiveTheBitsOfDenseOnes) {
  // Memory [B, H, T, D + 2]: strides of their own in every dimension but the last, inputs and outputs.
  constexpr std::int64_t B = 2, T = 21, H = 3, D = 5;
  const Call dense = ran(call({.B = B, .T = T, .Hk = H, .Hv = H, .dk = D, .dv = D}, 8));
  Call strided = dense;
  Arguments arguments = strided.arguments();
  std::vector<std::vector<float>> memory;
  const auto spread = [&](auto& view, const std::vector<float>& from) {
    constexpr std::int64_t kRow = D + 2;
    memory.emplace_back(B * H * T * kRow, std::numeric_limits<float>::quiet_NaN());
    view.data = memory.back().data();
    view.stride = {H * T * kRow, kRow, T * kRow, 1};
    for (std::size_t i = 0; i < from.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t h = at / D % H, t = at / D / H % T, b = at / D / H / T;
      memory.back()[b * view.stride[0] + t * view.stride[1] + h * view.stride[2] + at % D] = from[i];
    }
  };
  memory.reserve(8);
  spread(arguments.q, dense.q);
  spread(arguments.k, dense.k);
  spread(arguments.v, dense.v);
  spread(arguments.o, std::vector<float>(dense.o.size(), NAN));
  ASSERT_EQ(kernel.run(arguments, {}).kind, Outcome::Kind::ran);
  for (std::int64_t i = 0; i < B * T * H * D; ++i) {
    ASSERT_EQ(arguments.o(i / D / H / T, i / D / H % T, i / D % H, i % D), dense.o[i]);
  }
  EXPECT_EQ(strided.final_state, dense.final_state);
}

TEST_P(CpuKernelWithDecay, AHardResetForgetsAndLaterTokensStayAccurate) {
  Call reset = call({.T = 60, .dk = 9, .dv = 12}, 32);
  reset.g[5] = -1e38F;
  reset.g[40] = -HUGE_VALF;
  reset = ran(reset);
  const Expected expected = expected_of(reset, has_delta(kernel.system));
  // The cumulative sums reach -128 - 0.1 C, whose unit in the last place is 2^-16: differences carry a few
  // halves.
  const double allowance = kernel.form != "recurrent" ? 4 * 0x1p-17 : rounding_allowance(reset);
  EXPECT_LE(relative_error(reset.o, expected.o), allowance);
  EXPECT_LE(relative_error(reset.final_state, expected.state), allowance);
  Call other = reset;
  for (float& x : other.initial_state) x += 1.0F;
  other = ran(other);
  EXPECT_EQ(other.final_state, reset.final_state);
}

TEST_P(CpuKernelWithDecay, StrongDecaysStayFinite) {
  Call strong = call({.T = 60, .dk = 9, .dv = 12}, 64);
  for (std::size_t t = 0; t < strong.g.size(); ++t) strong.g[t] = t % 3 == 0 ? -80.0F : -1e-3F;
  strong = ran(strong);
  const Expected expected = expected_of(strong, has_delta(kernel.system));
  // G reaches -80 T / 3 = -1600, whose unit in the last place is 2^-13; neighbours differ by a few halves.
  EXPECT_LE(relative_error(strong.o, expected.o),
            kernel.form != "recurrent" ? 4 * 0x1p-14 : rounding_allowance(strong));
}

TEST_P(CpuKernel, EveryDeclaredContractRoundsAndTheTwinAgrees) {
  Contract bf16{.name = "bf16"};
  bf16.T = bf16.beta_v = bf16.beta_exp_k = bf16.U = bf16.W = bf16.state_operand = bf16.v_new =
      bf16.v_decayed = bf16.P = bf16.output = Format::bf16;
  bf16.accumulator = Accumulator::tensor_core;
  const Call exact = ran(call({.T = 40, .dk = 24, .dv = 12}, 16));
  const Call low = ran(exact, bf16);
  EXPECT_GT(relative_error(low.o, exact.o), 0x1p-11);
  EXPECT_LT(relative_error(low.o, exact.o), 8 * 0x1p-8);
  for (const float value : low.o) ASSERT_EQ(std::bit_cast<std::uint32_t>(value) & 0xffffU, 0U);
  Call twin = low;
  ASSERT_EQ(run_twin(kernel.system, kernel.form, twin.arguments(), bf16).kind, Outcome::Kind::ran);
  // Sums that differ in the last fp32 bits flip few roundings: far fewer than an undeclared rounding would.
  EXPECT_LT(relative_error(twin.o, low.o), 0.1 * relative_error(low.o, exact.o));
}

TEST_P(CpuKernel, ImpossibleAndUnsupportedCalls) {
  Call wrong = call({.T = 4, .dk = 3, .dv = 2}, 2);
  Contract fp64;
  fp64.state = Format::fp64;
  EXPECT_EQ(wrong.run(kernel, fp64).kind, Outcome::Kind::unsupported);
  if (!has_decay(kernel.system)) {
    Call gated = wrong;
    gated.g.assign(4, 0.0F);
    EXPECT_EQ(gated.run(kernel).kind, Outcome::Kind::unsupported);
  }
  wrong.threads = 0;
  EXPECT_THROW((void)wrong.run(kernel), Error);
  if (kernel.form != "recurrent") {
    wrong.threads = 1;
    wrong.chunk = 0;
    EXPECT_THROW((void)wrong.run(kernel), Error);
    Call huge = call({.T = 9000, .dk = 1, .dv = 1}, 9000);
    const Outcome outcome = huge.run(kernel);
    EXPECT_EQ(outcome.kind, Outcome::Kind::unsupported);
    EXPECT_NE(outcome.reason.find("8192"), std::string::npos);
    // The chunk that counts is the longest one that occurs.
    check(ran(call({.T = 9000, .dk = 1, .dv = 1, .offsets = {0, 100, 150}}, 9000)));
  }
}

}  // namespace
}  // namespace samestate
