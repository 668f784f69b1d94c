#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "optimized/cpu/sequence_parallel.h"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/delta/ranks/compose.cuh"
#include "optimized/cuda/delta/ranks/shares.h"
#include "optimized/cuda/units/emulated_run.h"
#include "tests/optimized/call.h"

/// The form over ranks of several devices: who holds what, the composition's own source and the chunked kernel's, executed
/// by threads of the host.
namespace samestate::cuda::ranks {
namespace {

using samestate::testing::Call;
using samestate::testing::make_call;
using samestate::testing::Shape;

using Cuts = std::vector<std::int64_t>;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
constexpr std::array kSystems = {&calls::GATED_DELTA_RULE, &calls::DELTA_RULE, &calls::RETENTION,
                                 &calls::LINEAR_ATTENTION};

Arguments arguments_of(Call& call, const Cuts& cuts) {
  Arguments a = call.arguments();
  a.cuts = row_major<const std::int64_t, 1>(cuts.data(), {std::ssize(cuts)});
  return a;
}

template <bool delta>
void run_chunked(Parameters<float> p) {
  p.tile = 16;
  const ChunkLayout layout = chunk_layout<float>(p.chunk, p.dk, p.tile, 16, delta);
  const auto shared = std::make_unique<std::max_align_t[]>(
      static_cast<std::size_t>(layout.bytes) / sizeof(std::max_align_t) + 1);
  emulation::run_meeting_block(64, [&] {
    for (std::int64_t item = 0; item < p.items(); ++item)
      ChunkedBlock<float, delta>(p, layout, reinterpret_cast<unsigned char*>(shared.get())).run(item);
  });
}

/// DeviceShare with memory of the host.
template <bool delta>
struct EmulatedShare {
  EmulatedShare(const Share& held, const Packed<float>& packed) : share(held), p(packed.parameters) {
    const auto tokens = [&](const std::vector<float>& from, std::int64_t width) {
      std::vector<float> to;
      for (const Held& x : share.parts) {
        if (!from.empty())
          to.insert(to.end(), from.begin() + x.row * width,
                    from.begin() + (x.row + x.part.end - x.part.begin) * width);
      }
      return to;
    };
    q = tokens(packed.q, p.Hk * p.dk), k = tokens(packed.k, p.Hk * p.dk);
    v = tokens(packed.v, p.Hv * p.dv);
    g = tokens(packed.g, p.Hv), beta = tokens(packed.beta, p.Hv);
    state = p.Hv * p.dk * p.dv;
    const auto poisoned = [](std::int64_t count, float value = kPoison) {
      return std::vector<float>(static_cast<std::size_t>(count), value);
    };
    incoming = poisoned(std::ssize(share.chains) * state), outgoing = incoming;
    for (std::size_t i = 0; i < share.chains.size(); ++i) {
      if (!share.begins[i]) continue;
      for (std::int64_t e = 0; e < state; ++e) {
        const auto from = static_cast<std::size_t>(share.sequences[i] * state + e);
        incoming[i * static_cast<std::size_t>(state) + static_cast<std::size_t>(e)] =
            packed.initial_state.empty() ? 0.0F : packed.initial_state[from];
      }
    }
    reached = poisoned(std::ssize(share.parts) * state), final_state = reached;
    N = poisoned(share.passing * state);
    columns = delta ? p.dk : 1;
    unit = poisoned(share.passing * p.Hv * p.dk * columns);
    M = std::make_unique<DeviceBuffer<float>>(unit.size());
    o = poisoned(share.tokens() * p.Hv * p.dv);
    p.q = q.data(), p.k = k.data(), p.cu_seqlens = share.offsets.data();
    if (!g.empty()) p.g = g.data();
    if (!beta.empty()) p.beta = beta.data();
  }

  void maps() {
    EachThread<Unit>::launch({unit.data(), share.passing * p.Hv, p.dk, columns}, nullptr);
    Parameters<float> n = p;
    n.sequences = share.passing;
    n.v = v.data(), n.o = o.data(), n.final_state = N.data();
    run_chunked<delta>(n);
    const auto size =
        static_cast<std::size_t>(share.offsets[static_cast<std::size_t>(share.passing)] * p.Hv * columns);
    std::vector<float> no_values(size, 0.0F), no_output(size, kPoison);
    n.dv = static_cast<int>(columns);
    n.v = no_values.data(), n.o = no_output.data();
    n.initial_state = unit.data(), n.final_state = M->data();
    run_chunked<delta>(n);
  }

  void compose() {
    ComposeParameters c;
    c.chains = share.chains.data(), c.order = share.order.data();
    c.M = M->data(), c.N = N.data(), c.incoming = incoming.data();
    c.reached = reached.data(), c.outgoing = outgoing.data();
    c.count = std::ssize(share.chains), c.passing = share.passing;
    c.Hv = p.Hv, c.dk = p.dk, c.dv = p.dv;
    Compose<delta>::launch(c, nullptr);
  }

  void outputs() {
    Parameters<float> n = p;
    n.sequences = std::ssize(share.parts);
    n.v = v.data(), n.o = o.data();
    n.initial_state = reached.data(), n.final_state = final_state.data();
    run_chunked<delta>(n);
  }

  Share share;
  Parameters<float> p;
  std::int64_t state = 0, columns = 1;
  std::unique_ptr<DeviceBuffer<float>> M;  ///< must not be read beyond its end
  std::vector<float> q, k, v, g, beta, unit, N, incoming, outgoing, reached, final_state, o;
};

template <bool delta>
void run_on(std::size_t devices, const Arguments& a, Call& call) {
  const calls::Sizes sizes = calls::checked_sizes(a);
  const Division division = divide(a, sizes, calls::checked_cuts(a, sizes), devices);
  const Packed<float> packed = pack<float>(a, sizes, {});
  std::vector<EmulatedShare<delta>> shares;
  for (const Share& share : division.shares) shares.emplace_back(share, packed).maps();
  auto next = division.handovers.begin();
  for (std::size_t d = 0; d < devices; ++d) {
    for (; next != division.handovers.end() && next->to == d; ++next) {
      const auto state = static_cast<std::size_t>(shares[d].state);
      const float* from = shares[next->from].outgoing.data() + next->sent * shares[d].state;
      std::copy_n(from, state, shares[d].incoming.data() + next->received * shares[d].state);
    }
    shares[d].compose();
  }
  EXPECT_EQ(next, division.handovers.end());
  for (EmulatedShare<delta>& x : shares) {
    x.outputs();
    const std::int64_t width = x.p.Hv * x.p.dv;
    for (std::size_t i = 0; i < x.share.parts.size(); ++i) {
      const Held& held = x.share.parts[i];
      std::copy_n(x.o.begin() + x.share.offsets[i] * width, (held.part.end - held.part.begin) * width,
                  call.o.begin() + held.row * width);
      if (!held.part.passes_on)
        std::copy_n(x.final_state.begin() + static_cast<std::int64_t>(i) * x.state, x.state,
                    call.final_state.begin() + held.part.sequence * x.state);
    }
  }
}

Call on_devices(Call call, const calls::System& system, const Cuts& cuts, std::size_t devices) {
  const Arguments a = arguments_of(call, cuts);
  system.delta ? run_on<true>(devices, a, call) : run_on<false>(devices, a, call);
  return call;
}

const std::vector<Cuts> kCuts = {{0, 37}, {0, 16, 32, 37}, {0, 0, 5, 5, 23, 37, 37}, {0, 1, 36, 37}};
const Shape kDense{.B = 2, .T = 37, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3};
const Shape kPacked{.B = 1, .T = 37, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3, .offsets = {3, 3, 20, 21, 35}};

// Integers: whatever the cuts and devices, every bit is the recurrence's, and rows of no sequence stay as they were.
TEST(CudaRanks, ExactDataGiveTheSameBitsOnAnyNumberOfDevices) {
  for (const calls::System* system : kSystems) {
    for (const Shape& shape : {kDense, kPacked}) {
      const Call call = make_call(system->name, shape, 8, true);
      const samestate::testing::Expected expected = samestate::testing::expected_of(call, system->delta);
      for (const Cuts& cuts : kCuts) {
        for (const std::size_t devices : {1U, 2U, 3U}) {
          if (devices > cuts.size() - 1) continue;
          SCOPED_TRACE(std::string(system->name) + ", " + std::to_string(cuts.size() - 1) + " ranks, " +
                       std::to_string(devices) + " devices");
          const Call out = on_devices(call, *system, cuts, devices);
          EXPECT_EQ(samestate::testing::relative_error(out.o, expected.o), 0.0);
          EXPECT_EQ(samestate::testing::relative_error(out.final_state, expected.state), 0.0);
        }
      }
    }
  }
}

// Ordinary data, wider than a block's columns and a warp's rows: the CPU's neighbour, and the same bits on any number of devices.
TEST(CudaRanks, IsTheCpuKernelsNeighbour) {
  for (const calls::System* system : kSystems) {
    for (const std::int64_t dk : {68, 71}) {
      const Call call =
          make_call(system->name, {.B = 1, .T = 37, .Hk = 1, .Hv = 2, .dk = dk, .dv = 41}, 8, false, 3);
      const Cuts cuts = {0, 9, 9, 24, 37};
      Call expected = call;
      ASSERT_EQ(cpu::run_sequence_parallel_in(*system, arguments_of(expected, cuts), {}, {}).kind,
                Outcome::Kind::ran);
      const Call one = on_devices(call, *system, cuts, 1);
      EXPECT_LT(samestate::testing::relative_error(one.o, expected.o), 1e-6) << system->name << dk;
      EXPECT_LT(samestate::testing::relative_error(one.final_state, expected.final_state), 1e-6);
      const Call three = on_devices(call, *system, cuts, 3);
      EXPECT_EQ(one.o, three.o);
      EXPECT_EQ(one.final_state, three.final_state);
    }
  }
}

// A sequence that skips the ranks of a device is handed past it.
TEST(CudaRanks, StatesSkipADeviceWithoutTokens) {
  Call call = make_call("retention", {.B = 1, .T = 12, .Hk = 1, .Hv = 1, .dk = 2, .dv = 2}, 4);
  const Cuts cuts = {0, 6, 6, 12};
  const Arguments a = arguments_of(call, cuts);
  const calls::Sizes sizes = calls::checked_sizes(a);
  const Division division = divide(a, sizes, calls::checked_cuts(a, sizes), 3);
  ASSERT_EQ(division.handovers.size(), 1U);
  EXPECT_EQ(division.handovers[0].from, 0U);
  EXPECT_EQ(division.handovers[0].to, 2U);
  EXPECT_TRUE(division.shares[1].parts.empty());
}

// Parts that pass on come first, so that the maps are a packed call of the first of them.
TEST(CudaRanks, PartsThatPassOnComeFirst) {
  Call call = make_call("retention", kPacked, 4);
  const Cuts cuts = {0, 10, 20, 21, 30, 37};
  const Arguments a = arguments_of(call, cuts);
  const calls::Sizes sizes = calls::checked_sizes(a);
  const Division division = divide(a, sizes, calls::checked_cuts(a, sizes), 2);
  std::int64_t tokens = 0;
  for (const Held& x : division.shares[0].parts) EXPECT_LT(x.part.rank, 3);
  for (const Held& x : division.shares[1].parts) EXPECT_GE(x.part.rank, 3);
  for (const Share& share : division.shares) {
    ASSERT_EQ(std::ssize(share.offsets), std::ssize(share.parts) + 1);
    for (std::size_t i = 0; i < share.parts.size(); ++i)
      EXPECT_EQ(share.parts[i].part.passes_on, static_cast<std::int64_t>(i) < share.passing);
    tokens += share.tokens();
  }
  EXPECT_EQ(tokens, 32);
}

}  // namespace
}  // namespace samestate::cuda::ranks
