#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <future>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "optimized/cpu/twin.h"
#include "optimized/cuda/delta/chunk_wgmma_dense/plan.h"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/units/emulated_run.h"
#include "tests/optimized/call.h"

/// The prefill kernels' own source, executed by threads of the host.
namespace samestate::cuda {
namespace {

using testing::Call;
using testing::make_call;

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

/// The schedule of the split form's blocks: one after the other, beginning with helpers; or all at once, with
/// helpers last.
enum class Schedule { in_turn, helpers_last };

/// How a kernel is run.
struct Run {
  int launches = 1;
  int multiprocessors = 4;
  Schedule schedule = Schedule::in_turn;
};

template <bool delta, bool norm>
void run_split(const Prefill& c, const Maps& maps, Schedule schedule) {
  const auto run = [&](std::int64_t block) {
    SharedMemory<SplitShared> memory;
    const auto body = [&] { split_block<delta, norm>(memory.get(), c, maps, block); };
    schedule == Schedule::in_turn ? emulation::run_meeting_block(kSplitThreads, body)
                                  : emulation::run_block(kSplitThreads, body);
  };
  std::vector<std::future<void>> together;
  for (std::int64_t block = 0; block < split_blocks(c); ++block) {
    if (schedule == Schedule::in_turn) {
      run(block);
    } else {
      together.push_back(std::async(std::launch::async, [&, block] {
        if (split_task(c, block).helper) std::this_thread::sleep_for(std::chrono::milliseconds(100));
        run(block);
      }));
    }
  }
  for (std::future<void>& block : together) block.get();
}

template <int value_groups, bool delta, bool norm>
void run_fused(const Prefill& c, const Maps& maps) {
  for (std::int64_t block = 0; block < fused_blocks<value_groups>(c); ++block) {
    SharedMemory<FusedShared<value_groups, delta>> memory;
    emulation::run_meeting_block(kFusedThreads<value_groups>, [&] {
      fused_block<value_groups, delta, norm>(memory.get(), c, maps, block);
    });
  }
}

template <bool delta, bool norm>
void run_row(std::size_t row, const Prefill& c, const Maps& maps, Schedule schedule) {
  if (row == kFused128Row)
    run_fused<2, delta, norm>(c, maps);
  else if (row == kSplitRow)
    run_split<delta, norm>(c, maps, schedule);
  else if constexpr (!delta)
    run_fused<1, delta, norm>(c, maps);
}

/// Evaluates the call with row `row` of chunked_rows().
void emulate(const cpu::System& system, Call& call, std::size_t row, const Run& run = {}) {
  const Arguments a = call.arguments();
  Packed<Bf16> packed = pack<Bf16>(a, cpu::checked_sizes(a), bf16_fused());
  Parameters<Bf16> p = packed.parameters;
  const auto pointer = [](auto& values) { return values.empty() ? nullptr : values.data(); };
  std::vector<Bf16> o(static_cast<std::size_t>(a.o.size()), stored<Bf16>(0.0F));
  std::vector<float> final_state(static_cast<std::size_t>(a.final_state.size()), kPoison);
  p.q = pointer(packed.q), p.k = pointer(packed.k), p.v = pointer(packed.v);
  p.g = pointer(packed.g), p.beta = pointer(packed.beta), p.initial_state = pointer(packed.initial_state);
  p.cu_seqlens = pointer(packed.cu_seqlens);
  p.o = pointer(o), p.final_state = pointer(final_state);
  Prefill c = plan_prefill(p, run.multiprocessors);
  const std::vector<int> order = longest_first(packed.cu_seqlens);
  c.order = pointer(order);
  const std::int64_t tokens = a.q.shape[0] * a.q.shape[1];
  std::vector<Prepared> prepared(static_cast<std::size_t>(Prefill::slots(p, tokens)));
  std::fill_n(reinterpret_cast<unsigned char*>(prepared.data()), prepared.size() * sizeof(Prepared),
              static_cast<unsigned char>(0xff));
  std::vector<int> ready(prepared.size(), 0);
  int counts[2] = {0, 0};
  c.prepared = prepared.data(), c.ready = ready.data(), c.launches = counts;
  const Maps maps{{packed.q.data(), p.dk, p.Hk, tokens},
                  {packed.k.data(), p.dk, p.Hk, tokens},
                  {packed.v.data(), p.dv, p.Hv, tokens},
                  {o.data(), p.dv, p.Hv, tokens}};
  for (int launch = 0; launch < run.launches; ++launch) {
    if (system.delta)
      p.l2norm ? run_row<true, true>(row, c, maps, run.schedule)
               : run_row<true, false>(row, c, maps, run.schedule);
    else
      p.l2norm ? run_row<false, true>(row, c, maps, run.schedule)
               : run_row<false, false>(row, c, maps, run.schedule);
  }
  EXPECT_EQ(counts[1], row == kSplitRow ? run.launches : 0);
  scatter(o, a.o);
  scatter(final_state, a.final_state);
}

const std::vector<const cpu::System*> kSystems = {&cpu::GATED_DELTA_RULE, &cpu::DELTA_RULE, &cpu::RETENTION,
                                                  &cpu::LINEAR_ATTENTION};

std::vector<std::size_t> rows_of(const cpu::System& system) {
  if (system.delta) return {kFused128Row, kSplitRow};
  return {kFused128Row, kFused64Row, kSplitRow};
}

/// Every row against the twin, bit for bit.
void expect_twin(const cpu::System& system, Call call, const Run& run = {}) {
  // For every row, one call goes this way and the next one the other way.
  emulation::copies_land_late = !emulation::copies_land_late;
  emulation::take_next_schedule();
  Call twin = call;
  const Outcome outcome = run_twin(system.name, "chunked", twin.arguments(), bf16_fused());
  ASSERT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  for (const std::size_t row : rows_of(system)) {
    SCOPED_TRACE(std::string(chunked_rows()[row].kernel) + " " + std::string(system.name) +
                 " T=" + std::to_string(call.shape.T) + " dk=" + std::to_string(call.shape.dk));
    ASSERT_NO_THROW(emulate(system, call, row, run));
    EXPECT_EQ(call.o, twin.o);
    EXPECT_EQ(call.final_state, twin.final_state);
  }
}

TEST(CudaPrefill, ExactRegimeIsBitForBit) {
  std::uint32_t seed = 1;
  for (const cpu::System* system : kSystems)
    expect_twin(*system, make_call(system->name, {1, 200, 1, 2, 128, 128, {}}, 64, true, ++seed));
}

/// These sizes are not multiples of a tile, of a row of 16 bytes or of a chunk; some chunks are shorter than
/// a tile.
TEST(CudaPrefill, EverySizeAndTail) {
  std::uint32_t seed = 11;
  for (const testing::Shape& shape : {testing::Shape{1, 64, 1, 1, 64, 64, {}},
                                      {1, 65, 1, 1, 96, 40, {}},
                                      {1, 1, 1, 1, 8, 8, {}},
                                      {1, 130, 1, 1, 17, 9, {}},
                                      {1, 63, 1, 1, 128, 136, {}}})
    expect_twin(cpu::GATED_DELTA_RULE, make_call("gated_delta_rule", shape, 64, true, ++seed));
  for (const std::int64_t chunk : {1, 16, 33})
    expect_twin(cpu::GATED_DELTA_RULE,
                make_call("gated_delta_rule", {1, 70, 1, 1, 24, 16, {}}, chunk, true, ++seed));
  expect_twin(cpu::RETENTION, make_call("retention", {1, 100, 1, 1, 72, 33, {}}, 64, true, ++seed));
}

/// A tile across a sequence's end would bring in, and overwrite, its neighbour's rows.
TEST(CudaPrefill, PackedBatchedAndTiledHeads) {
  Call packed = make_call("gated_delta_rule", {1, 200, 2, 4, 16, 16, {0, 0, 70, 71, 200}}, 64, true, 21);
  packed.head_map = HeadMap::tiled;
  expect_twin(cpu::GATED_DELTA_RULE, packed);
  // There is NaN before the first sequence and after the last, where tiles end.
  expect_twin(cpu::GATED_DELTA_RULE,
              make_call("gated_delta_rule", {1, 210, 1, 2, 16, 16, {3, 3, 70, 71, 190}}, 64, true, 24));
  expect_twin(cpu::RETENTION, make_call("retention", {1, 110, 1, 1, 16, 16, {3, 70, 101}}, 64, true, 25));
  expect_twin(cpu::DELTA_RULE, make_call("delta_rule", {2, 70, 1, 2, 16, 16, {}}, 64, true, 22));
  Call alone = make_call("linear_attention", {2, 66, 1, 1, 16, 16, {}}, 64, true, 23);
  alone.initial_state.clear();
  expect_twin(cpu::LINEAR_ATTENTION, alone);
}

/// Segments carry S by themselves: of one sequence, of packed ones shorter than there are segments, with gates that are
/// the keys' norms.
TEST(CudaPrefill, SegmentsOfASequence) {
  Call alone = make_call("retention", {1, 700, 1, 1, 16, 16, {}}, 64, true, 26);
  expect_twin(cpu::RETENTION, alone);
  alone.l2norm = true;
  Call split = alone;
  ASSERT_NO_THROW(emulate(cpu::RETENTION, split, kSplitRow));
  ASSERT_NO_THROW(emulate(cpu::RETENTION, alone, kFused64Row));
  EXPECT_EQ(alone.o, split.o);
  EXPECT_EQ(alone.final_state, split.final_state);
  expect_twin(cpu::LINEAR_ATTENTION,
              make_call("linear_attention", {1, 400, 1, 1, 8, 8, {0, 1, 301, 400}}, 64, true, 27));
  // Segments of two sequences; a segment without chunks.
  expect_twin(cpu::RETENTION, make_call("retention", {1, 640, 1, 1, 16, 16, {0, 520, 640}}, 64, true, 28));
  expect_twin(cpu::RETENTION, make_call("retention", {1, 320, 1, 1, 16, 16, {}}, 64, true, 29));
}

TEST(CudaPrefill, SegmentsEndTogetherAndTheLongestBeginsFirst) {
  Parameters<Bf16> p;
  p.sequences = 1, p.Hk = p.Hv = 32, p.dk = p.dv = 128, p.T = 32768, p.chunk = 64;
  const Prefill c = plan_prefill(p, 132);
  ASSERT_EQ(c.segments, 2);
  double ends[2];
  int begins = 0;
  for (int i = 0; i < 2; ++i) {
    Task x = fused_task<1>(c, 2 * i);
    EXPECT_EQ(x.first, begins);
    EXPECT_EQ(x.last, i == 1);
    begins = x.chunks;
    ends[i] = kAbsorbed[2] * x.first + (x.chunks - x.first);
  }
  EXPECT_EQ(begins, 512);
  EXPECT_NEAR(ends[0], ends[1], 4.0);
  float state = 0.0F;
  p.initial_state = p.final_state = &state;
  EXPECT_EQ(plan_prefill(p, 132).segments, 1);
  p.final_state = nullptr, p.sequences = 2;
  EXPECT_EQ(plan_prefill(p, 132).segments, 1);
  EXPECT_EQ(longest_first(std::vector<std::int64_t>{0, 3, 3, 10, 13}), (std::vector<int>{2, 0, 3, 1}));
  EXPECT_TRUE(longest_first({}).empty());
}

/// The count of launches in device memory tells a flag of this launch from one of the launch before.
TEST(CudaPrefill, LaunchesFollowOneAnother) {
  expect_twin(cpu::GATED_DELTA_RULE, make_call("gated_delta_rule", {1, 130, 1, 1, 16, 16, {}}, 64, true, 31),
              {.launches = 3});
}

/// While it lives, what is late is so for longer than a chunk takes.
struct Late {
  Late() { emulation::lateness = std::chrono::milliseconds(200); }
  Late(const Late&) = delete;
  Late& operator=(const Late&) = delete;
  ~Late() { emulation::lateness = before; }
  std::chrono::microseconds before = emulation::lateness;
};

/// Every stage of every ring is used anew several times, with copies that land early and late; late enough for a
/// chunk to be made meanwhile.
TEST(CudaPrefill, RingsTurnSeveralTimes) {
  const Late late;
  for (const std::uint32_t seed : {71U, 72U})
    expect_twin(cpu::GATED_DELTA_RULE,
                make_call("gated_delta_rule", {1, 1100, 1, 1, 16, 16, {}}, 64, true, seed));
}

/// More helpers than a sequence has chunks; packed sequences that begin within a chunk's slot.
TEST(CudaPrefill, HelpersOfPackedSequences) {
  expect_twin(cpu::GATED_DELTA_RULE,
              make_call("gated_delta_rule", {1, 210, 1, 2, 16, 16, {0, 3, 70, 71, 210}}, 64, true, 73),
              {.multiprocessors = 16});
}

/// The state's block may run before any helper has published.
TEST(CudaPrefill, StateBlocksWaitForTheirHelpers) {
  const Late late;
  for (const int launches : {1, 2})
    expect_twin(cpu::GATED_DELTA_RULE,
                make_call("gated_delta_rule", {1, 200, 1, 1, 16, 16, {}}, 64, true, 74),
                {.launches = launches, .schedule = Schedule::helpers_last});
}

float bf16_of(float x) { return loaded(stored<Bf16>(x)); }

/// Elements of o that are not the twin's under `contract`.
std::size_t differing(const cpu::System& system, Call call, std::size_t row, const Contract& contract) {
  Call twin = call;
  EXPECT_EQ(run_twin(system.name, "chunked", twin.arguments(), contract).kind, Outcome::Kind::ran);
  emulate(system, call, row);
  std::size_t count = 0;
  for (std::size_t i = 0; i < call.o.size(); ++i) count += bf16_of(twin.o[i]) == call.o[i] ? 0 : 1;
  return count;
}

/// Ordinary data: every rounding point is where the contract says. The twin without one of them differs in ten times as
/// many outputs as the twin with all of them, at least: sums in another order move a rounding now and then.
TEST(CudaPrefill, RoundsWhereTheContractSays) {
  struct Point {
    const char* name;
    Format Contract::*field;
    bool delta;
  };
  const std::vector<Point> points = {{"residual", &Contract::residual, true},
                                     {"T", &Contract::T, true},
                                     {"v_new", &Contract::v_new, true},
                                     {"v_decayed", &Contract::v_decayed, false},
                                     {"P", &Contract::P, false},
                                     {"state_operand", &Contract::state_operand, false}};
  std::uint32_t seed = 41;
  for (const cpu::System* system : {&cpu::GATED_DELTA_RULE, &cpu::RETENTION}) {
    for (const bool l2norm : {false, true}) {
      Call call = make_call(system->name, {1, 100, 1, 1, 24, 16, {}}, 64, false, ++seed);
      for (auto* values : {&call.q, &call.k, &call.v})
        for (float& x : *values) x = bf16_of(x);
      call.l2norm = l2norm;
      const std::size_t all = differing(*system, call, kSplitRow, bf16_fused());
      for (const Point& point : points) {
        if (point.delta && !system->delta) continue;
        Contract without = bf16_fused();
        without.*point.field = Format::fp32;
        EXPECT_GT(differing(*system, call, kSplitRow, without), 10 * all)
            << system->name << " " << point.name << " l2norm=" << l2norm << " all=" << all;
      }
    }
  }
}

// Each g times log2 e and then the sum, not the sum of g times log2 e or a difference of sums: fp32, of which the state keeps
// more than a rounded output.
TEST(CudaPrefill, Log2eMultipliesEachGate) {
  Call call = make_call("gated_delta_rule", {1, 64, 1, 1, 16, 64, {}}, 64, false, 45);
  for (auto* values : {&call.q, &call.k, &call.v})
    for (float& x : *values) x = bf16_of(x);
  Call ours = call;
  emulate(cpu::GATED_DELTA_RULE, ours, kSplitRow);
  const auto apart = [&](Log2e log2e) {
    Contract c = bf16_fused();
    c.log2e = log2e;
    Call twin = call;
    EXPECT_EQ(run_twin("gated_delta_rule", "chunked", twin.arguments(), c).kind, Outcome::Kind::ran);
    return std::inner_product(ours.final_state.begin(), ours.final_state.end(), twin.final_state.begin(), 0,
                              std::plus<>(), std::not_equal_to<>());
  };
  const int same = apart(Log2e::gate);
  EXPECT_GT(apart(Log2e::difference), 2 * same);
  EXPECT_GT(apart(Log2e::sum), 2 * same);
}

/// Norms of rows of every width that tiles have: a panel, part of it, two of them.
TEST(CudaPrefill, NormsSumTheWholeRow) {
  std::uint32_t seed = 81;
  for (const cpu::System* system : {&cpu::GATED_DELTA_RULE, &cpu::RETENTION}) {
    for (const std::int64_t dk : {64, 72, 128}) {
      Call call = make_call(system->name, {1, 100, 1, 1, dk, 16, {}}, 64, false, ++seed);
      for (auto* values : {&call.q, &call.k, &call.v})
        for (float& x : *values) x = bf16_of(x);
      call.l2norm = true;
      Call twin = call;
      ASSERT_EQ(run_twin(system->name, "chunked", twin.arguments(), bf16_fused()).kind, Outcome::Kind::ran);
      for (const std::size_t row : rows_of(*system)) {
        emulate(*system, call, row);
        // Sums in another order turn a rounding to bf16 now and then: less than one unit of it, of all.
        EXPECT_LT(testing::relative_error(call.o, twin.o), 0x1p-9) << system->name << " " << dk;
        EXPECT_LT(testing::relative_error(call.final_state, twin.final_state), 0x1p-9)
            << system->name << " " << dk;
      }
    }
  }
}

/// Which form a shape of the plan or of the bench takes.
TEST(CudaPrefill, FormByShape) {
  const auto form = [](std::int64_t sequences, std::int64_t heads, std::int64_t dv, bool delta) {
    return choose(chunked_rows(), CallShape{sequences, 4096, heads, 128, dv, 64, false, delta}, bf16_fused());
  };
  EXPECT_EQ(form(1, 32, 128, true), kSplitRow);
  EXPECT_EQ(form(2, 33, 128, true), kSplitRow);
  EXPECT_EQ(form(1, 67, 128, true), kFused128Row);
  EXPECT_EQ(form(8, 32, 128, true), kFused128Row);
  EXPECT_EQ(form(1, 32, 128, false), kFused64Row);
  EXPECT_EQ(form(2, 33, 128, false), kFused64Row);
  EXPECT_EQ(form(8, 32, 128, false), kFused128Row);
  // 32,768 tokens in 8 sequences: of one length; one of them half of all.
  const auto packed = [](std::int64_t longest, bool delta) {
    return choose(chunked_rows(), CallShape{8, longest, 32, 128, 128, 64, true, delta, 32768}, bf16_fused());
  };
  EXPECT_EQ(packed(4096, true), kFused128Row);
  EXPECT_EQ(packed(16384, true), kSplitRow);
  EXPECT_EQ(packed(16384, false), kFused64Row);
  CallShape wide{1, 64, 1, 129, 64, 64, false, true};
  EXPECT_EQ(choose(chunked_rows(), wide, bf16_fused()), chunked_rows().size());
}

/// Ordinary data: the forms differ in their schedule alone.
TEST(CudaPrefill, FormsAreEqualBitForBit) {
  std::uint32_t seed = 61;
  for (const cpu::System* system : kSystems) {
    for (const bool l2norm : {false, true}) {
      Call call = make_call(system->name, {1, 200, 1, 1, 72, 128, {}}, 64, false, ++seed);
      for (auto* values : {&call.q, &call.k, &call.v})
        for (float& x : *values) x = bf16_of(x);
      call.l2norm = l2norm;
      Call split = call;
      ASSERT_NO_THROW(emulate(*system, split, kSplitRow));
      for (const std::size_t row : rows_of(*system)) {
        ASSERT_NO_THROW(emulate(*system, call, row));
        EXPECT_EQ(call.o, split.o) << system->name << " l2norm=" << l2norm << " row " << row;
        EXPECT_EQ(call.final_state, split.final_state)
            << system->name << " l2norm=" << l2norm << " row " << row;
      }
    }
  }
}

}  // namespace
}  // namespace samestate::cuda
