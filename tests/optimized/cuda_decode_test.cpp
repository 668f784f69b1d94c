#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimized/cpu/layout.h"
#include "optimized/cpu/twin.h"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/delta/token_dense_table.h"
#include "optimized/cuda/delta/token_fma_dense.cuh"
#include "tests/optimized/call.h"
#include "tests/optimized/contracts.h"

/// The decoding kernel's own source, executed by threads of the host, and the table that chooses it.
namespace samestate::cuda {
namespace {

using testing::Call;
using testing::make_call;
using testing::old_state;

const std::vector<std::string> kSystems = {"gated_delta_rule", "delta_rule", "retention", "linear_attention"};

/// A fault that only such a kernel can have: one step of the block, replaced.
template <class Block>
struct Right : Block {
  using Block::Block;
};
/// A warp's partial sums do not reach the others.
template <class Block>
struct LastWarpDropped : Block {
  using Block::Block;
  void gather_sums() {
    float all[Block::sums] = {};
    float dots[4] = {};
    for (int w = 0; w + 1 < block_warps(); ++w) {
      Block::clear_sums();
      this->add_sums(this->shared + (this->turn % 2 * block_warps() + w) * Block::warp_words);
      for (int i = 0; i < Block::sums; ++i) all[i] += this->sum[i];
      for (int i = 0; i < 4; ++i) dots[i] += this->dot[i];
    }
    for (int i = 0; i < Block::sums; ++i) this->sum[i] = all[i];
    for (int i = 0; i < 4; ++i) this->dot[i] = dots[i];
  }
};
/// A tile at the end of dv is taken to be whole.
template <class Block>
struct PastTheColumns : Block {
  using Block::Block;
  void place(std::int64_t sequence, std::int64_t value_head, int tile) {
    Block::place(sequence, value_head, tile);
    this->inside = true;
  }
};
/// Row groups are handed their neighbour's keys.
template <class Block>
struct NextGroupsKeys : Block {
  using Block::Block;
  void load_token(std::int64_t t) {
    Block::load_token(t);
    this->k = shuffle(this->k, (lane_index() + 1) % 32);
  }
};
/// The output reads the state after the write, and adds u (k . q) all the same.
template <class Block>
struct WrittenBeforeRead : Block {
  using Block::Block;
  void update() {
    Block::update();
    for (int c = 0; c < Block::width; ++c) {
      const float kq = this->dot[0];
      this->o[c] += this->p.scale * this->u[c] * kq;
    }
  }
};
/// The first warp reads a token's sums only when the others have shared those of the next one: the schedule for
/// which the sums have two halves. With one half it reads some of the next token's.
template <class Block, bool one_half>
struct SlowWarp : Block {
  using Block::Block;
  static inline std::atomic<int> shared_sums{0};
  unsigned token = 0;
  void share_sums() {
    token = this->turn;
    if (one_half) this->turn = 0;
    Block::share_sums();
    if (lane_index() == 0) ++shared_sums;
  }
  void gather_sums() {
    const int others_next = static_cast<int>(token + 1) * block_warps() + block_warps() - 1;
    while (warp_index() == 0 && token + 1 < this->tokens && shared_sums < others_next)
      std::this_thread::yield();
    Block::gather_sums();
    this->turn = token;
  }
};
template <class Block>
using TwoHalves = SlowWarp<Block, false>;
template <class Block>
using OneHalf = SlowWarp<Block, true>;
/// Inputs are read before the grids before have ended.
template <class Block>
struct NoWait : Block {
  using Block::Block;
  void wait_for_inputs() {}
};

std::unique_ptr<unsigned char[], void (*)(unsigned char*)> shared_memory(std::size_t bytes) {
  auto* memory = static_cast<unsigned char*>(::operator new (bytes, std::align_val_t{16}));
  std::fill_n(memory, bytes, static_cast<unsigned char>(0xff));
  return {memory, [](unsigned char* p) { ::operator delete (p, std::align_val_t{16}); }};
}

template <template <class> class Fault, class Operand, class State, bool delta, std::size_t row>
void run_blocks(const Parameters<Operand, State>& p) {
  constexpr DecodeTile tile = kDecodeTiles[row];
  if constexpr (tile.state_bytes == sizeof(State)) {
    const int warps = (p.dk + kWarpKeys - 1) / kWarpKeys;
    const auto shared =
        shared_memory(sizeof(float) * static_cast<std::size_t>(decode_words(tile, delta, warps)));
    emulation::run_block(32 * warps, [&] {
      Fault<DecodeBlock<Operand, State, delta, tile>> block(p, reinterpret_cast<float*>(shared.get()));
      for (std::int64_t n = 0; n < p.sequences; ++n)
        for (std::int64_t h = 0; h < p.Hv; ++h)
          for (int c = 0; c * tile.columns < p.dv; ++c) decode(block, n, h, c);
    });
  }
}

template <template <class> class Fault, class Operand, class State, std::size_t... row>
void run_row(const Parameters<Operand, State>& p, bool delta, std::size_t wanted,
             std::index_sequence<row...>) {
  ((row == wanted ? (delta ? run_blocks<Fault, Operand, State, true, row>(p)
                           : run_blocks<Fault, Operand, State, false, row>(p))
                  : void()),
   ...);
}

constexpr int kPadding = 4096;
constexpr float kSentinel = 0x1.5p+40F;
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();
bool trespasses = false;  ///< true if the last evaluation wrote behind its outputs

/// As token_fma_dense.cu launches row `row`, in place.
template <template <class> class Fault, class Operand, class State>
void evaluate(const Arguments& a, const Contract& contract, bool delta, std::size_t row) {
  Packed<Operand, State> packed = pack<Operand, State>(a, cpu::checked_sizes(a), contract);
  Parameters<Operand, State> p = packed.parameters;
  std::vector<Operand> o(static_cast<std::size_t>(a.o.size()), stored<Operand>(0.0F));
  // A kernel that goes past the end does so within memory, and is seen by what it leaves there.
  const auto pad = [](auto& values, float value) {
    using Value = typename std::remove_reference_t<decltype(values)>::value_type;
    if (!values.empty()) values.resize(values.size() + kPadding, stored<Value>(value));
  };
  const auto touched = [](const auto& values, float value) {
    if (values.empty()) return false;
    return std::any_of(values.end() - kPadding, values.end(), [&](auto x) { return loaded(x) != value; });
  };
  pad(packed.v, kPoison), pad(packed.initial_state, kSentinel), pad(o, kSentinel);
  const auto pointer = [](auto& values) { return values.empty() ? nullptr : values.data(); };
  p.q = pointer(packed.q), p.k = pointer(packed.k), p.v = pointer(packed.v);
  p.g = pointer(packed.g), p.beta = pointer(packed.beta);
  p.cu_seqlens = pointer(packed.cu_seqlens);
  p.o = pointer(o);
  std::vector<State> final_state(static_cast<std::size_t>(a.final_state.size()));
  p.initial_state = pointer(packed.initial_state);
  p.final_state = packed.initial_state.empty() ? pointer(final_state) : pointer(packed.initial_state);
  p.inverse_heads = 1.0F / static_cast<float>(p.tiled_heads ? p.Hk : p.Hv / p.Hk);
  run_row<Fault>(p, delta, row, std::make_index_sequence<kDecodeTileCount>());
  trespasses = touched(packed.initial_state, kSentinel) || touched(o, kSentinel);
  scatter(o, a.o);
  scatter(packed.initial_state.empty() ? final_state : packed.initial_state, a.final_state);
}

template <template <class> class Fault = Right>
void emulate(const std::string& system, Call& call, const Contract& contract, std::size_t row) {
  const Arguments a = call.arguments();
  const bool delta = testing::has_delta(system);
  if (contract.state == Format::bf16) return evaluate<Fault, Bf16, Bf16>(a, contract, delta, row);
  contract.output == Format::bf16 ? evaluate<Fault, Bf16, float>(a, contract, delta, row)
                                  : evaluate<Fault, float, float>(a, contract, delta, row);
}

std::size_t row_of(std::string_view kernel) { return row_named(recurrent_rows(), kernel); }

std::size_t chosen(Call& call, const Contract& contract) {
  return recurrent_row(call.arguments(), contract, false);
}

/// Elements that are not the twin's, bit for bit.
template <template <class> class Fault = Right>
std::size_t differing(const std::string& system, Call call, const Contract& contract, std::size_t row) {
  Call twin = call;
  EXPECT_EQ(run_twin(system, "recurrent", twin.arguments(), contract).kind, Outcome::Kind::ran);
  emulate<Fault>(system, call, contract, row);
  std::size_t count = 0;
  for (std::size_t i = 0; i < call.o.size(); ++i) count += call.o[i] == twin.o[i] ? 0 : 1;
  for (std::size_t i = 0; i < call.final_state.size(); ++i)
    count += call.final_state[i] == twin.final_state[i] ? 0 : 1;
  return count + (trespasses ? 1 : 0);
}

const std::vector<Contract> kContracts = {old_state(Format::fp32), old_state(Format::bf16),
                                          old_state(Format::bf16, Format::bf16)};

/// Every row that keeps the contract and takes the shape, whether it would be chosen or not.
TEST(CudaDecode, ExactRegimeIsBitForBitInEveryRow) {
  std::uint32_t seed = 1;
  for (const std::string& system : kSystems) {
    for (const Contract& contract : kContracts) {
      for (const std::int64_t T : {1, 2}) {
        const Call call = make_call(system, {1, T, 1, 2, 40, 24, {}}, 0, true, ++seed);
        const CallShape shape{1, T, 2, 40, 24, 0, false, false};
        int rows = 0;
        for (std::size_t row = 0; row < kGenericRow; ++row) {
          if (!recurrent_rows()[row].takes(shape, contract)) continue;
          ++rows;
          EXPECT_EQ(differing(system, call, contract, row), 0U)
              << system << " " << contract.name << " T=" << T << " " << recurrent_rows()[row].kernel;
        }
        EXPECT_GE(rows, T > 1 ? 2 : contract.state == Format::bf16 ? 3 : 4) << contract.name;
      }
    }
  }
}

/// Every sequence of a batch starts from its own state, in every row.
TEST(CudaDecode, BatchedStatesInEveryRow) {
  std::uint32_t seed = 70;
  for (const std::string& system : kSystems) {
    for (const Contract& contract : kContracts) {
      const Call call = make_call(system, {3, 1, 1, 2, 40, 24, {}}, 0, true, ++seed);
      const CallShape shape{3, 1, 2, 40, 24, 0, false, false};
      int rows = 0;
      for (std::size_t row = 0; row < kGenericRow; ++row) {
        if (!recurrent_rows()[row].takes(shape, contract)) continue;
        ++rows;
        EXPECT_EQ(differing(system, call, contract, row), 0U)
            << system << " " << contract.name << " " << recurrent_rows()[row].kernel;
      }
      EXPECT_GE(rows, 3) << contract.name;
    }
  }
}

/// Keys that fill the last warp or not, tiles that end with dv or not, odd widths.
TEST(CudaDecode, EveryWidth) {
  std::uint32_t seed = 100;
  for (const std::int64_t dk : {1, 31, 33, 128, 256}) {
    for (const std::int64_t dv : {1, 8, 72}) {
      for (const Contract& contract : kContracts) {
        Call call = make_call("gated_delta_rule", {1, 1, 1, 1, dk, dv, {}}, 0, true, ++seed);
        const std::size_t row = chosen(call, contract);
        ASSERT_LT(row, kGenericRow);
        EXPECT_EQ(differing("gated_delta_rule", call, contract, row), 0U) << dk << " " << dv;
      }
    }
  }
}

TEST(CudaDecode, PackedBatchedTiledAndWithoutAState) {
  Call packed = make_call("gated_delta_rule", {1, 9, 2, 4, 20, 12, {0, 0, 1, 7, 7}}, 0, true, 7);
  packed.head_map = HeadMap::tiled;
  EXPECT_EQ(chosen(packed, kContracts[0]), row_of("decode, 32 columns, tokens"));
  EXPECT_EQ(differing("gated_delta_rule", packed, kContracts[0], chosen(packed, kContracts[0])), 0U);
  Call batched = make_call("retention", {3, 1, 2, 6, 20, 12, {}}, 0, true, 8);
  batched.initial_state.clear();
  EXPECT_EQ(differing("retention", batched, kContracts[1], chosen(batched, kContracts[1])), 0U);
  batched.head_map = HeadMap::tiled;
  EXPECT_EQ(differing("retention", batched, kContracts[1], chosen(batched, kContracts[1])), 0U);
  Call none = make_call("delta_rule", {2, 0, 1, 1, 12, 4, {}}, 0, true, 9);
  EXPECT_EQ(differing("delta_rule", none, kContracts[0], chosen(none, kContracts[0])), 0U);
}

/// ||a - b|| / ||b||, o and state, the larger.
double distance(const Call& a, const Call& b) {
  return std::max(testing::relative_error(a.o, b.o), testing::relative_error(a.final_state, b.final_state));
}

Call ordinary(const std::string& system, const Contract& contract, std::uint32_t seed) {
  Call call = make_call(system, {1, 1, 1, 2, 128, 64, {}}, 0, false, seed);
  call.l2norm = true;
  const auto round = [](std::vector<float>& values) {
    for (float& x : values) x = loaded(stored<Bf16>(x));
  };
  if (contract.input == Format::bf16) round(call.q), round(call.k), round(call.v);
  if (contract.state == Format::bf16) round(call.initial_state);
  return call;
}

/// fp32: sums of n terms in another order differ by at most 2 n u |terms| (BOUNDS 2, det), n = dk here.
TEST(CudaDecode, OrdinaryDataAreTheTwinsUpToTheOrderOfSums) {
  std::uint32_t seed = 31;
  for (const std::string& system : kSystems) {
    Call call = ordinary(system, kContracts[0], ++seed);
    Call twin = call;
    ASSERT_EQ(run_twin(system, "recurrent", twin.arguments(), kContracts[0]).kind, Outcome::Kind::ran);
    emulate(system, call, kContracts[0], chosen(call, kContracts[0]));
    EXPECT_LT(distance(call, twin), 2.0 * 128 * 0x1p-24) << system;
  }
}

/// Output and state are rounded to bf16 where the contract says so, and nowhere else.
TEST(CudaDecode, Bf16RoundsWhereTheContractSays) {
  std::uint32_t seed = 41;
  for (const std::string& system : kSystems) {
    for (const Contract& contract : {kContracts[1], kContracts[2]}) {
      Call call = ordinary(system, contract, ++seed);
      emulate(system, call, contract, chosen(call, contract));
      const auto from = [&](Contract other) {
        Call twin = call;
        EXPECT_EQ(run_twin(system, "recurrent", twin.arguments(), other).kind, Outcome::Kind::ran);
        return distance(call, twin);
      };
      const double all = from(contract);
      Contract without = contract;
      without.output = Format::fp32;
      EXPECT_GT(from(without), 10.0 * all) << system;
      if (contract.state == Format::fp32) continue;
      without = contract;
      without.state = Format::fp32;
      EXPECT_GT(from(without), 10.0 * all) << system;
    }
  }
}

TEST(CudaDecode, FaultsAreSeen) {
  const Contract& contract = kContracts[0];
  Call call = make_call("gated_delta_rule", {1, 1, 1, 1, 96, 24, {}}, 0, true, 51);
  const std::size_t row = chosen(call, contract);
  EXPECT_EQ(differing<Right>("gated_delta_rule", call, contract, row), 0U);
  EXPECT_GT(differing<LastWarpDropped>("gated_delta_rule", call, contract, row), 0U);
  EXPECT_GT(differing<NextGroupsKeys>("gated_delta_rule", call, contract, row), 0U);
  EXPECT_GT(differing<WrittenBeforeRead>("gated_delta_rule", call, contract, row), 0U);
  EXPECT_GT(differing<PastTheColumns>("gated_delta_rule", call, contract, row), 0U);
  Call tokens = make_call("gated_delta_rule", {1, 3, 1, 1, 96, 8, {}}, 0, true, 53);
  const std::size_t several = chosen(tokens, contract);
  EXPECT_EQ(differing<TwoHalves>("gated_delta_rule", tokens, contract, several), 0U);
  EXPECT_GT(differing<OneHalf>("gated_delta_rule", tokens, contract, several), 0U);
}

TEST(CudaDecode, InputsAreReadAfterTheGridsBefore) {
  Call call = make_call("gated_delta_rule", {1, 1, 1, 1, 40, 24, {}}, 0, true, 61);
  for (const std::size_t row : {std::size_t{0}, row_of("decode, 32 columns, tokens")}) {
    emulation::accesses_before_wait = 0;
    emulate("gated_delta_rule", call, kContracts[0], row);
    EXPECT_EQ(emulation::accesses_before_wait, 0);
    emulate<NoWait>("gated_delta_rule", call, kContracts[0], row);
    EXPECT_GT(emulation::accesses_before_wait, 0);
  }
}

TEST(CudaDecode, DividesHeadsExactly) {
  for (const int d : {1, 2, 3, 5, 7, 8, 12, 31, 64, 127, 1000, 65535})
    for (int x = 0; x <= 1 << 17; ++x)
      ASSERT_EQ(divided(x, 1.0F / static_cast<float>(d)), x / d) << x << " / " << d;
}

TEST(CudaDecode, TheTableTakesEveryShape) {
  for (const Contract& contract : kContracts) {
    for (const std::int64_t sequences : {0, 1, 8, 256, 70000})
      for (const std::int64_t tokens : {0, 1, 2, 4096})
        for (const std::int64_t dk : {1, 96, 128, 256})
          for (const std::int64_t dv : {1, 4, 8, 128, 512})
            for (const bool packed : {false, true}) {
              const CallShape shape{sequences, tokens, 32, dk, dv, 0, packed, false};
              EXPECT_LT(choose(recurrent_rows(), shape, contract), kGenericRow);
              EXPECT_EQ(choose(recurrent_rows(), shape, Contract{}), kGenericRow);
            }
  }
  EXPECT_EQ(choose(recurrent_rows(), {1, 1, 32, 128, 128, 0, false}, kContracts[0]), 0U);
  EXPECT_EQ(choose(recurrent_rows(), {64, 1, 32, 128, 128, 0, false}, kContracts[0]),
            row_of("decode, 64 columns"));
  EXPECT_EQ(recurrent_rows().size(), kDecodeTileCount + 1);
}

TEST(CudaDispatch, LimitsAsTextAndAsAnswers) {
  Limits limits;
  EXPECT_EQ(text(limits), "any shape");
  limits.tokens = {1, 1}, limits.columns = {0, 8192}, limits.dk = {1, 256}, limits.dv_multiple = 4;
  limits.packed = false;
  EXPECT_EQ(text(limits), "tokens = 1, columns <= 8192, dk 1 .. 256, dv % 4 = 0, not packed");
  EXPECT_TRUE(limits.hold({2, 1, 32, 128, 128, 0, false}));
  EXPECT_FALSE(limits.hold({2, 2, 32, 128, 128, 0, false}));
  EXPECT_FALSE(limits.hold({3, 1, 32, 128, 128, 0, false}));
  EXPECT_FALSE(limits.hold({2, 1, 32, 257, 128, 0, false}));
  EXPECT_FALSE(limits.hold({2, 1, 32, 128, 126, 0, false}));
  EXPECT_FALSE(limits.hold({2, 1, 32, 128, 128, 0, true}));
}

}  // namespace
}  // namespace samestate::cuda
