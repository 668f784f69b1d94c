#define SAMESTATE_TRACED
#include "optimized/cuda/delta/chunk_wgmma_dense_trace.cuh"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "optimized/cuda/delta/chunk_wgmma_dense/forms.cuh"
#include "optimized/cuda/host/device_memory.cuh"

/// The prefill kernels with waits that record their times (units/waiting.cuh), for `samestate bench --trace`.
namespace samestate::cuda {
namespace {

constexpr std::uint32_t kMostWaits = 1U << 15;  ///< per warp
constexpr int kMostWarps = 32;

/// A ring in shared memory.
struct RingPlace {
  std::size_t begin;
  int stages;
  std::string holds;
};

/// The tasks of the warps of a block, and where its rings are.
struct BlockPlan {
  std::vector<std::string> roles;
  std::vector<RingPlace> rings;
};

void add_roles(BlockPlan& plan, const std::string& role, int warps) {
  plan.roles.insert(plan.roles.end(), static_cast<std::size_t>(warps), role);
}

BlockPlan helper_plan() {
  using S = HelperShared;
  BlockPlan plan;
  plan.roles = {"loads K, Q", "takes gates", "publishes", "publishes"};
  for (int maker = 0; maker < kMakers; ++maker) add_roles(plan, "prepares T, P", 4);
  plan.rings = {{offsetof(S, key_ring), decltype(S::key_ring)::kStages, "K"},
                {offsetof(S, query_ring), decltype(S::query_ring)::kStages, "Q"},
                {offsetof(S, gate_ring), decltype(S::gate_ring)::kStages, "gates"},
                {offsetof(S, made_ring), decltype(S::made_ring)::kStages, "T, P"}};
  return plan;
}

BlockPlan state_plan() {
  using S = StateShared;
  BlockPlan plan;
  plan.roles = {"loads K", "loads T, P", "stores O", "loads V, Q"};
  add_roles(plan, "carries S", 4);
  add_roles(plan, "idle", 4);
  plan.rings = {{offsetof(S, key_ring), decltype(S::key_ring)::kStages, "K"},
                {offsetof(S, made_ring), decltype(S::made_ring)::kStages, "T, P"},
                {offsetof(S, query_ring), decltype(S::query_ring)::kStages, "Q"},
                {offsetof(S, value_ring), decltype(S::value_ring)::kStages, "V"},
                {offsetof(S, o_ring), decltype(S::o_ring)::kStages, "O"}};
  return plan;
}

template <int value_groups, bool delta>
BlockPlan fused_plan() {
  using S = FusedShared<value_groups, delta>;
  BlockPlan plan;
  for (int maker = 0; maker < kMakers; ++maker) add_roles(plan, "loads, prepares T, P", 4);
  for (int group = 0; group < value_groups; ++group) add_roles(plan, "carries S", 4);
  plan.rings = {{offsetof(S, key_ring), decltype(S::key_ring)::kStages, "K"},
                {offsetof(S, query_ring), decltype(S::query_ring)::kStages, "Q"},
                {offsetof(S, value_ring), decltype(S::value_ring)::kStages, "V"},
                {offsetof(S, made_ring), decltype(S::made_ring)::kStages, "T, P"},
                {offsetof(S, o_ring), decltype(S::o_ring)::kStages, "O"}};
  return plan;
}

BlockPlan plan_of(const Prefill& call, std::size_t row, bool delta, std::int64_t block) {
  if (row == kFused128Row) return delta ? fused_plan<2, true>() : fused_plan<2, false>();
  if (row == kFused64Row) return fused_plan<1, false>();
  const int each = kHelpers + call.value_tiles(kTileColumns);
  return block % (call.group * each) < kHelpers * call.group ? helper_plan() : state_plan();
}

/// Returns the name for what a wait records as `what`, in a block whose shared memory begins at `shared`.
std::string name_of(const BlockPlan& plan, std::uint32_t what, std::uint32_t shared) {
  switch (what) {
    case Waiting::kProducts:
      return "products";
    case Waiting::kMeeting:
      return "other warps";
    case Waiting::kStoresRead:
      return "stores read";
    case Waiting::kStores:
      return "stores";
    case Waiting::kCopies:
      return "copies";
    case Waiting::kFlags:
      return "flags";
    default:
      break;
  }
  for (const RingPlace& ring : plan.rings) {
    const std::size_t at = std::size_t{what} - shared - ring.begin;
    const std::size_t half = static_cast<std::size_t>(ring.stages) * sizeof(Barrier);
    if (at < 2 * half) return ring.holds + (at < half ? " full" : " empty");
  }
  return "a barrier";
}

struct Notes {
  DeviceBuffer<WaitNote> waits{std::size_t{kMostWarps} * kMostWaits};
  DeviceBuffer<WarpNote> warps{kMostWarps};
  DeviceBuffer<BlockNote> whole{1};
};

void ask_for(std::int64_t block, const Notes& notes) {
  const TraceNotes asked = {block, kMostWaits, notes.waits.data(), notes.warps.data(), notes.whole.data()};
  check(cudaMemcpyToSymbol(trace_notes, &asked, sizeof asked), "cudaMemcpyToSymbol");
}

}  // namespace

PrefillForm traced_form(std::size_t row, bool delta, bool norm) { return form_of(row, delta, norm); }

KernelTrace trace_launch(const Prefill& call, std::size_t row, bool delta, std::int64_t block,
                         std::int64_t blocks, const std::function<void(cudaStream_t)>& launch) {
  const Notes notes;
  notes.warps.fill(0, nullptr);
  ask_for(-1, notes);
  launch(nullptr), launch(nullptr);
  check_launch("a launch before the traced one");
  ask_for(block, notes);
  launch(nullptr);
  check_launch("the traced launch");
  ask_for(-1, notes);

  const BlockNote whole = notes.whole.download().front();
  const std::vector<WarpNote> warps = notes.warps.download();
  const std::vector<WaitNote> waits = notes.waits.download();
  KernelTrace trace;
  trace.block = block, trace.blocks = blocks;
  const BlockPlan plan = plan_of(call, row, delta, block);
  trace.roles = plan.roles;
  // The timer ticks only every 32 ns or more; over the whole block it calibrates the clock.
  std::uint32_t ticks = 0;
  std::uint64_t nanoseconds = 0;
  for (std::size_t w = 0; w < plan.roles.size(); ++w) {
    ticks = std::max(ticks, warps[w].end - whole.begin);
    nanoseconds = std::max(nanoseconds, warps[w].nanoseconds - whole.nanoseconds);
  }
  if (nanoseconds == 0)
    throw Error("the device's timer stood still in the traced block; trace one of more tokens");
  trace.clock = ticks / (1e-9 * static_cast<double>(nanoseconds));
  const auto seconds = [&](std::uint32_t at) { return (at - whole.begin) / trace.clock; };
  for (std::size_t w = 0; w < plan.roles.size(); ++w) {
    trace.ends.push_back(seconds(warps[w].end));
    trace.complete = trace.complete && warps[w].count < kMostWaits;
    for (std::size_t i = 0; i < std::min(warps[w].count, kMostWaits - 1); ++i) {
      const WaitNote& wait = waits[w * kMostWaits + i];
      trace.waits.push_back({static_cast<int>(w), name_of(plan, wait.what, whole.shared), seconds(wait.begin),
                             seconds(wait.end)});
    }
  }
  return trace;
}

}  // namespace samestate::cuda
