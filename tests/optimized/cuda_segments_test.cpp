#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "optimized/cpu/twin.h"
#include "optimized/cuda/delta/chunk_wgmma_dense/segments_plan.h"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/units/emulated_run.h"
#include "tests/optimized/call.h"

/// The kernel of segments: its index arithmetic, and its own source executed by threads of the host.
namespace samestate::cuda {
namespace {

using samestate::testing::Call;
using samestate::testing::make_call;
using samestate::testing::Shape;

using Cuts = std::vector<std::int64_t>;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

Contract bf16_fused() {
  Contract c;
  c.name = "bf16_fused";
  c.input = c.T = c.state_operand = c.v_new = c.v_decayed = c.P = c.output = c.residual = Format::bf16;
  c.beta_v = c.beta_exp_k = c.U = c.W = Format::none;
  c.inverse = Inverse::block8, c.inverse_operand = Format::tf32;
  c.accumulator = Accumulator::tensor_core, c.exponential = Exponential::ex2, c.scan = Scan::tree;
  c.log2e = Log2e::gate;
  c.norm = Norm::factor;
  c.scale_in_P = c.reads_old_state = true;
  return c;
}

Arguments arguments_of(Call& call, const Cuts& cuts) {
  Arguments a = call.arguments();
  a.cuts = row_major<const std::int64_t, 1>(cuts.data(), {std::ssize(cuts)});
  return a;
}

SegmentPlan plan_of(Call call, const Cuts& cuts) {
  const Arguments a = arguments_of(call, cuts);
  return plan_segments(a, calls::checked_sizes(a));
}

/// Exactly one `T`, so that a sanitizer sees an overrun; poisoned.
template <class T>
struct SharedMemory {
  SharedMemory() : bytes(::operator new (sizeof(T), std::align_val_t{1024})) {
    std::fill_n(static_cast<unsigned char*>(bytes), sizeof(T), static_cast<unsigned char>(0xff));
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { ::operator delete (bytes, std::align_val_t{1024}); }
  [[nodiscard]] T& get() { return *static_cast<T*>(bytes); }
  void* bytes;
};

/// The faults that a test plants.
struct Faults {
  std::function<void(SegmentPlan&)> plan = [](SegmentPlan&) {};
  std::function<void(SegmentCall&, std::vector<float>&)> maps = [](SegmentCall&, std::vector<float>&) {};
};

/// The call with memory of the host, block by block in the order of the grid.
void emulate(Call& call, const Cuts& cuts, int launches = 1, const Faults& faults = {}) {
  const Arguments a = arguments_of(call, cuts);
  const calls::Sizes sizes = calls::checked_sizes(a);
  Packed<Bf16> packed = pack<Bf16>(a, sizes, bf16_fused());
  SegmentPlan plan = plan_segments(a, sizes);
  faults.plan(plan);
  Parameters<Bf16> p = packed.parameters;
  const auto pointer = [](auto& values) { return values.empty() ? nullptr : values.data(); };
  std::vector<Bf16> o(static_cast<std::size_t>(a.o.size()), stored<Bf16>(0.0F));
  std::vector<float> final_state(static_cast<std::size_t>(a.final_state.size()), kPoison);
  p.q = pointer(packed.q), p.k = pointer(packed.k), p.v = pointer(packed.v);
  p.g = pointer(packed.g), p.beta = pointer(packed.beta);
  p.o = pointer(o), p.final_state = pointer(final_state);
  SegmentCall x = segment_call(plan, p, plan.offsets.data());
  const SegmentMemory memory = segment_memory(plan, p, sizes.sequences);
  std::vector<float> M(memory.M, kPoison), N(memory.N, kPoison), reached(memory.reached, kPoison);
  std::vector<float> incoming(memory.incoming, 0.0F);
  if (!packed.initial_state.empty()) incoming = packed.initial_state;
  std::vector<float> unit(static_cast<std::size_t>(p.dk * p.dk), 0.0F);
  for (int i = 0; i < p.dk; ++i) unit[static_cast<std::size_t>(i * p.dk + i)] = 1.0F;
  const std::int64_t tokens = a.q.shape[0] * a.q.shape[1];
  std::vector<Prepared> prepared(static_cast<std::size_t>(Prefill::slots(x.prefill.p, tokens)));
  std::fill_n(reinterpret_cast<unsigned char*>(prepared.data()), prepared.size() * sizeof(Prepared),
              static_cast<unsigned char>(0xff));
  std::vector<int> ready(prepared.size(), 0);
  int counts[2] = {0, 0};
  x.prefill.prepared = prepared.data(), x.prefill.ready = ready.data(), x.prefill.launches = counts;
  x.numbers = pointer(plan.numbers), x.places = pointer(plan.places), x.sequences = pointer(plan.sequences);
  x.unit = unit.data(), x.M = pointer(M), x.N = pointer(N), x.reached = reached.data();
  const Maps maps{{packed.q.data(), p.dk, p.Hk, tokens},
                  {packed.k.data(), p.dk, p.Hk, tokens},
                  {packed.v.data(), p.dv, p.Hv, tokens},
                  {o.data(), p.dv, p.Hv, tokens}};
  for (int launch = 0; launch < launches; ++launch) {
    for (std::int64_t block = 0; block < map_grid_blocks(x); ++block) {
      SharedMemory<MapGridShared> shared;
      emulation::run_meeting_block(kSplitThreads, [&] {
        if (p.l2norm)
          map_grid_block<true>(shared.get(), x, maps, block);
        else
          map_grid_block<false>(shared.get(), x, maps, block);
      });
    }
    faults.maps(x, M);
    ranks::Compose<true>::launch(composition(x, plan.chains.data(), plan.order.data(), sizes.sequences,
                                             incoming.data(), reached.data()),
                                 nullptr);
    for (std::int64_t block = 0; block < output_grid_blocks(x); ++block) {
      SharedMemory<StateShared> shared;
      emulation::run_meeting_block(kSplitThreads, [&] { output_grid_block(shared.get(), x, maps, block); });
    }
  }
  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(counts[1], launches);
  scatter_tokens(o, a);
  if (a.final_state.present()) scatter(final_state, a.final_state);
}

Call twin_of(const calls::System& system, Call call, const Cuts& cuts) {
  const Outcome outcome = run_twin(system.name, "sequence_parallel", arguments_of(call, cuts), bf16_fused());
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  return call;
}

void expect_twin(const calls::System& system, Call call, const Cuts& cuts, int launches = 1) {
  SCOPED_TRACE(std::string(system.name) + " T=" + std::to_string(call.shape.T) +
               " dk=" + std::to_string(call.shape.dk) + " segments " + std::to_string(cuts.size() - 1));
  emulation::copies_land_late = !emulation::copies_land_late;
  emulation::take_next_schedule();
  const Call twin = twin_of(system, call, cuts);
  ASSERT_NO_THROW(emulate(call, cuts, launches));
  EXPECT_EQ(call.o, twin.o);
  EXPECT_EQ(call.final_state, twin.final_state);
}

// Integers: bit for bit; cuts at whole chunks, anywhere, and of ranks without tokens. With resets M is 0, without gates it is not.
TEST(CudaSegments, ExactDataGiveTheTwinsBits) {
  const Call gated = make_call("gated_delta_rule", {1, 260, 1, 2, 128, 128, {}}, 64, true, 3);
  for (const Cuts& cuts : {Cuts{0, 260}, Cuts{0, 64, 192, 260}})
    expect_twin(calls::GATED_DELTA_RULE, gated, cuts);
  expect_twin(calls::DELTA_RULE, make_call("delta_rule", {1, 260, 1, 1, 128, 128, {}}, 64, true, 3),
              {0, 5, 5, 133, 260, 260});
}

TEST(CudaSegments, EverySizePackedBatchedAndTiledHeads) {
  const auto& gated = calls::GATED_DELTA_RULE;
  const auto call = [&](const Shape& shape, std::int64_t chunk, std::uint32_t seed) {
    Call out = make_call(gated.name, shape, chunk, true, seed);
    out.g.clear();  // resets would make every M zero
    return out;
  };
  expect_twin(gated, call({1, 130, 1, 1, 17, 9, {}}, 64, 4), {0, 64, 130});
  expect_twin(gated, call({1, 90, 1, 1, 96, 136, {}}, 64, 5), {0, 33, 90});
  expect_twin(gated, call({1, 70, 1, 1, 24, 16, {}}, 16, 6), {0, 30, 50, 70});
  expect_twin(gated, call({2, 140, 1, 2, 16, 16, {}}, 64, 7), {0, 70, 100, 140});
  Call packed = call({1, 210, 2, 4, 16, 16, {3, 3, 70, 71, 190}}, 64, 8);
  packed.head_map = HeadMap::tiled;
  expect_twin(gated, packed, {0, 20, 100, 150, 210});
  Call alone = call({1, 140, 1, 1, 16, 16, {}}, 64, 9);
  alone.initial_state.clear();
  expect_twin(gated, alone, {0, 70, 140});
}

// Rings turn several times; flags of the launch before are not this one's.
TEST(CudaSegments, LongSegmentsAndLaunchesInARow) {
  expect_twin(calls::GATED_DELTA_RULE,
              make_call("gated_delta_rule", {1, 1300, 1, 1, 16, 16, {}}, 64, true, 11), {0, 650, 1300});
  expect_twin(calls::GATED_DELTA_RULE,
              make_call("gated_delta_rule", {1, 200, 1, 1, 16, 16, {}}, 64, true, 12), {0, 64, 128, 200}, 3);
}

// Ordinary data with normalised rows: sums in another order move a rounding to bf16 now and then.
TEST(CudaSegments, IsTheTwinsNeighbour) {
  for (const bool l2norm : {false, true}) {
    Call call = make_call("gated_delta_rule", {1, 330, 1, 1, 72, 40, {}}, 64, false, 13);
    for (auto* values : {&call.q, &call.k, &call.v})
      for (float& x : *values) x = loaded(stored<Bf16>(x));
    call.l2norm = l2norm;
    const Cuts cuts = {0, 128, 256, 330};
    const Call twin = twin_of(calls::GATED_DELTA_RULE, call, cuts);
    emulate(call, cuts);
    EXPECT_LT(samestate::testing::relative_error(call.o, twin.o), 0x1p-8) << l2norm;
    EXPECT_LT(samestate::testing::relative_error(call.final_state, twin.final_state), 0x1p-8) << l2norm;
  }
}

// A fault in only the segments shows in the comparison above.
TEST(CudaSegments, FaultsShow) {
  Call call = make_call("gated_delta_rule", {1, 100, 1, 1, 16, 16, {}}, 16, true, 14);
  call.g.clear();  // resets would make every M zero
  const Cuts cuts = {0, 16, 32, 64, 100};
  const Call twin = twin_of(calls::GATED_DELTA_RULE, call, cuts);
  const auto differs = [&](const Faults& faults) {
    Call wrong = call;
    emulate(wrong, cuts, 1, faults);
    return wrong.o != twin.o;
  };
  EXPECT_FALSE(differs({}));
  Faults neighbour;
  neighbour.plan = [](SegmentPlan& plan) { std::swap(plan.places[0], plan.places[1]); };
  EXPECT_TRUE(differs(neighbour)) << "a segment's map is its neighbour's";
  Faults early;
  early.plan = [](SegmentPlan& plan) {
    std::rotate(plan.numbers.begin() + 1, plan.numbers.begin(), plan.numbers.end() - 1);
  };
  EXPECT_TRUE(differs(early)) << "outputs begin from the state one fix-up early";
  Faults shorter;
  shorter.plan = [](SegmentPlan& plan) { --plan.offsets.back(); };
  EXPECT_TRUE(differs(shorter)) << "the last segment is short of a token";
  Faults twice;
  twice.maps = [](SegmentCall&, std::vector<float>& M) {
    for (float& m : M) m *= 0.5F;
  };
  EXPECT_TRUE(differs(twice)) << "M has a decay twice";
}

// Segments in the order of their tokens, with numbers below `passing` where another follows.
TEST(CudaSegments, PlanCoversEveryTokenOnce) {
  const Call packed =
      make_call("gated_delta_rule", {1, 210, 1, 2, 16, 16, {3, 3, 70, 71, 190}}, 64, true, 15);
  const SegmentPlan plan = plan_of(packed, {0, 20, 100, 150, 210});
  EXPECT_EQ(plan.offsets, (Cuts{3, 3, 20, 70, 71, 100, 150, 190}));
  EXPECT_EQ(plan.sequences, (std::vector<int>{0, 1, 1, 2, 3, 3, 3}));
  EXPECT_EQ(plan.passing(), 3);
  std::set<int> numbers(plan.numbers.begin(), plan.numbers.end());
  EXPECT_EQ(std::ssize(numbers), plan.segments());
  EXPECT_EQ(*numbers.begin(), 0);
  EXPECT_EQ(*numbers.rbegin(), plan.segments() - 1);
  for (std::size_t i = 0; i < plan.numbers.size(); ++i) {
    const bool goes_on = i + 1 < plan.numbers.size() && plan.sequences[i + 1] == plan.sequences[i];
    EXPECT_EQ(plan.numbers[i] < plan.passing(), goes_on) << i;
    if (!goes_on) continue;
    EXPECT_EQ(plan.places[static_cast<std::size_t>(plan.numbers[i])], static_cast<int>(i));
  }
}

// 2/8 heads in 8 segments: every grid fits 132 multiprocessors at once; memory as the kernel indexes it.
TEST(CudaSegments, GridsAndMemory) {
  const Call call = make_call("gated_delta_rule", {1, 8, 2, 8, 1, 1, {}}, 1, true, 16);
  const SegmentPlan plan = plan_of(call, {0, 1, 2, 3, 4, 5, 6, 7, 8});
  Parameters<Bf16> p;
  p.sequences = 1, p.T = 8192, p.Hk = 2, p.Hv = 8, p.dk = p.dv = 128, p.chunk = 64;
  const SegmentCall x = segment_call(plan, p, plan.offsets.data());
  EXPECT_EQ(segment_helpers(x), 128);
  EXPECT_EQ(map_grid_blocks(x), 128 + 7 * 8 * 2);
  EXPECT_EQ(output_grid_blocks(x), 128);
  const SegmentMemory memory = segment_memory(plan, p, 1);
  EXPECT_EQ(memory.M, 7U * 8U * 128U * 128U);
  EXPECT_EQ(memory.N, memory.M);
  EXPECT_EQ(memory.reached, 8U * 8U * 128U * 128U);
  EXPECT_EQ(memory.incoming, 8U * 128U * 128U);
  // Each of M, and each 128 columns of N, of each passing segment and head, is made by one block.
  for (const int dv : {40, 128, 300}) {
    p.dv = dv;
    const SegmentCall y = segment_call(plan, p, plan.offsets.data());
    std::set<std::vector<std::int64_t>> made;
    for (std::int64_t block = 0; block < map_grid_blocks(y) - segment_helpers(y); ++block) {
      const MapTask t = map_task(y, block);
      EXPECT_LT(t.number, 7);
      EXPECT_LT(t.head, 8);
      EXPECT_LT(t.column, t.values ? dv : 1);
      EXPECT_EQ(t.column % kMapColumns, 0);
      made.insert({t.number, t.head, t.values, t.column});
    }
    EXPECT_EQ(std::ssize(made), 7 * 8 * (1 + (dv + kMapColumns - 1) / kMapColumns));
  }
}

// No two chunks of a head have one slot, wherever the cuts lie.
TEST(CudaSegments, ChunksHaveSlotsOfTheirOwn) {
  const Call call = make_call("gated_delta_rule", {1, 300, 1, 2, 1, 1, {2, 40, 290}}, 16, true, 17);
  for (const Cuts& cuts : {Cuts{0, 300}, Cuts{0, 1, 2, 3, 17, 33, 34, 250, 300}, Cuts{0, 39, 41, 289, 300}}) {
    const SegmentPlan plan = plan_of(call, cuts);
    Parameters<Bf16> p;
    p.sequences = 2, p.T = 300, p.Hk = 1, p.Hv = 2, p.chunk = 16;
    const SegmentCall x = segment_call(plan, p, plan.offsets.data());
    std::set<std::int64_t> slots;
    std::int64_t chunks = 0;
    for (std::int64_t item = 0; item < x.prefill.items(); ++item) {
      Task t;
      assign(t, x.prefill, item);
      for (int n = 0; n < t.chunks; ++n, ++chunks) slots.insert(t.slot + n * p.Hv);
    }
    EXPECT_EQ(std::ssize(slots), chunks);
    EXPECT_GE(*slots.begin(), 0);
    EXPECT_LT(*slots.rbegin(), Prefill::slots(x.prefill.p, 300));
  }
}

}  // namespace
}  // namespace samestate::cuda
