#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "optimized/cpu/twin.h"
#include "optimized/cuda/delta/chunk_fma_dense/chain.cuh"
#include "optimized/cuda/delta/chunk_fma_dense/products.cuh"
#include "optimized/cuda/delta/chunk_mma_dense/chain.cuh"
#include "optimized/cuda/delta/chunk_mma_dense/products.cuh"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/units/emulated_run.h"
#include "tests/optimized/call.h"

/// The two launches of simt/ and mma/, their own source, executed by threads of the host.
namespace samestate::cuda {
namespace {

using testing::Call;
using testing::make_call;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

Contract fp32_fused() {
  Contract c;
  c.name = "fp32_fused";
  c.residual = Format::fp32;
  c.beta_v = c.beta_exp_k = c.U = c.W = Format::none;
  c.inverse = Inverse::block8, c.scan = Scan::tree, c.norm = Norm::factor;
  c.scale_in_P = c.reads_old_state = true;
  return c;
}

Contract tf32_fused() {
  Contract c = fp32_fused();
  c.name = "tf32_fused";
  c.qk = c.residual = c.T = c.state_operand = c.v_new = c.v_decayed = c.P = c.inverse_operand = Format::tf32;
  c.accumulator = Accumulator::tensor_core, c.exponential = Exponential::ex2;
  return c;
}

/// A contract and the row of the table that keeps it.
struct Kept {
  Contract contract;
  std::size_t row;
};
const std::vector<Kept> kKept = {{fp32_fused(), kSimtRow}, {tf32_fused(), kMmaRow}};

/// Exactly one `T`, so that a sanitizer sees an overrun; poisoned.
template <class T>
struct SharedMemory {
  SharedMemory() : bytes(::operator new (sizeof(T), std::align_val_t{16})) {
    std::fill_n(static_cast<unsigned char*>(bytes), sizeof(T), static_cast<unsigned char>(0xff));
  }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() { ::operator delete (bytes, std::align_val_t{16}); }
  [[nodiscard]] T& get() { return *static_cast<T*>(bytes); }
  void* bytes;
};

template <template <bool delta, bool norm> class Products, bool delta, bool norm, class Block, class Shared>
void run(const simt::Work& work) {
  for (std::int64_t block = 0; block < work.prepare_blocks(); ++block) {
    SharedMemory<simt::PrepareShared> memory;
    emulation::run_meeting_block(
        simt::kThreads, [&] { simt::PrepareBlock<Products, delta, norm>(work, memory.get()).run(block); },
        block, work.prepare_blocks());
  }
  for (std::int64_t block = 0; block < work.chain_blocks(); ++block) {
    SharedMemory<Shared> memory;
    emulation::run_meeting_block(
        Block::kThreads, [&] { Block(work, memory.get()).run(block); }, block, work.chain_blocks());
  }
}

template <bool delta, bool norm>
void run(const simt::Work& work, std::size_t row) {
  if (row == kMmaRow)
    run<mma::Products, delta, norm, mma::ChainBlock<delta>, mma::ChainShared>(work);
  else
    run<simt::FmaProducts, delta, norm, simt::ChainBlock<delta>, simt::ChainShared>(work);
}

/// As decoding does it, the final state takes the initial one's place where there is one.
void emulate(const cpu::System& system, const Kept& kept, Call& call) {
  const Arguments a = call.arguments();
  ASSERT_EQ(refusal(system, true, a, kept.contract), "");
  ASSERT_EQ(chunked_row(a, kept.contract, system.delta), kept.row);
  Packed<float> packed = pack<float>(a, cpu::checked_sizes(a), kept.contract);
  const auto pointer = [](auto& values) { return values.empty() ? nullptr : values.data(); };
  simt::Work work;
  Parameters<float>& p = work.p = packed.parameters;
  std::vector<float> o(static_cast<std::size_t>(a.o.size()), 0.0F);
  std::vector<float> fresh(static_cast<std::size_t>(a.final_state.size()), kPoison);
  std::vector<float>& final_state = packed.initial_state.empty() ? fresh : packed.initial_state;
  p.q = pointer(packed.q), p.k = pointer(packed.k), p.v = pointer(packed.v);
  p.g = pointer(packed.g), p.beta = pointer(packed.beta), p.initial_state = pointer(packed.initial_state);
  p.cu_seqlens = pointer(packed.cu_seqlens);
  p.o = pointer(o), p.final_state = pointer(final_state);
  work.tokens = a.q.shape[0] * a.q.shape[1];
  std::vector<simt::Prepared> prepared(static_cast<std::size_t>(work.slots() * p.Hv));
  std::fill_n(reinterpret_cast<float*>(prepared.data()), prepared.size() * sizeof(simt::Prepared) / 4,
              kPoison);
  work.prepared = prepared.data();
  if (system.delta)
    p.l2norm ? run<true, true>(work, kept.row) : run<true, false>(work, kept.row);
  else
    p.l2norm ? run<false, true>(work, kept.row) : run<false, false>(work, kept.row);
  scatter(o, a.o);
  scatter(final_state, a.final_state);
}

void expect_twin(const cpu::System& system, const Call& given) {
  emulation::copies_land_late =
      !emulation::copies_land_late;  // of both kernels: one call so, the next the other way
  for (const Kept& kept : kKept) {
    SCOPED_TRACE(std::string(system.name) + " " + kept.contract.name + " T=" + std::to_string(given.shape.T) +
                 " dk=" + std::to_string(given.shape.dk) + " dv=" + std::to_string(given.shape.dv));
    Call call = given;
    Call twin = given;
    ASSERT_EQ(run_twin(system.name, "chunked", twin.arguments(), kept.contract).kind, Outcome::Kind::ran);
    ASSERT_NO_THROW(emulate(system, kept, call));
    EXPECT_EQ(call.o, twin.o);
    EXPECT_EQ(call.final_state, twin.final_state);
  }
}

const std::vector<const cpu::System*> kSystems = {&cpu::GATED_DELTA_RULE, &cpu::DELTA_RULE, &cpu::RETENTION,
                                                  &cpu::LINEAR_ATTENTION};

TEST(CudaSimt, ExactRegimeIsBitForBit) {
  std::uint32_t seed = 1;
  for (const cpu::System* system : kSystems)
    expect_twin(*system, make_call(system->name, {1, 150, 1, 2, 40, 40, {}}, 64, true, ++seed));
}

TEST(CudaSimt, EverySizeAndTail) {
  std::uint32_t seed = 11;
  for (const testing::Shape& shape : {testing::Shape{1, 64, 1, 1, 128, 32, {}},
                                      {1, 65, 1, 1, 17, 9, {}},
                                      {1, 1, 1, 1, 1, 1, {}},
                                      {1, 63, 1, 1, 20, 70, {}}})
    expect_twin(cpu::GATED_DELTA_RULE, make_call("gated_delta_rule", shape, 64, true, ++seed));
  for (const std::int64_t chunk : {1, 16, 33})
    expect_twin(cpu::GATED_DELTA_RULE,
                make_call("gated_delta_rule", {1, 40, 1, 1, 12, 8, {}}, chunk, true, ++seed));
}

TEST(CudaSimt, PackedBatchedAndTiledHeads) {
  Call packed = make_call("gated_delta_rule", {1, 210, 2, 4, 8, 8, {3, 3, 70, 71, 200}}, 64, true, 21);
  expect_twin(cpu::GATED_DELTA_RULE, packed);
  packed.head_map = HeadMap::tiled;
  expect_twin(cpu::GATED_DELTA_RULE, packed);
  Call batched = make_call("retention", {2, 70, 1, 2, 8, 8, {}}, 64, true, 22);
  batched.initial_state.clear();
  expect_twin(cpu::RETENTION, batched);
}

/// Returns the relative distance of x from y.
double distance(const std::vector<float>& x, const std::vector<float>& y) {
  double error = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    error += std::pow(static_cast<double>(x[i]) - static_cast<double>(y[i]), 2.0);
    size += std::pow(static_cast<double>(y[i]), 2.0);
  }
  return std::sqrt(error / size);
}

/// Ordinary data: nothing but the order of sums differs from the twin. In tf32 that turns roundings, so that the kernel
/// is as far from fp32 as its twin.
void expect_near_twin(const cpu::System& system, const Call& given) {
  emulation::copies_land_late = !emulation::copies_land_late;
  Call exact = given;
  ASSERT_EQ(run_twin(system.name, "chunked", exact.arguments(), fp32_fused()).kind, Outcome::Kind::ran);
  for (const Kept& kept : kKept) {
    SCOPED_TRACE(std::string(system.name) + " " + kept.contract.name + " T=" + std::to_string(given.shape.T) +
                 " l2norm=" + std::to_string(static_cast<int>(given.l2norm)));
    Call call = given;
    Call twin = given;
    ASSERT_EQ(run_twin(system.name, "chunked", twin.arguments(), kept.contract).kind, Outcome::Kind::ran);
    ASSERT_NO_THROW(emulate(system, kept, call));
    const auto expect_near = [&](const std::vector<float>& x, const std::vector<float>& y,
                                 const std::vector<float>& in_fp32) {
      if (kept.row == kSimtRow)
        EXPECT_LT(distance(x, y), 1e-6);
      else
        EXPECT_NEAR(distance(x, in_fp32), distance(y, in_fp32), 0.1 * distance(y, in_fp32));
    };
    expect_near(call.o, twin.o, exact.o);
    expect_near(call.final_state, twin.final_state, exact.final_state);
  }
}

TEST(CudaSimt, IsTheTwinsNeighbour) {
  std::uint32_t seed = 41;
  for (const cpu::System* system : kSystems) {
    for (const bool l2norm : {false, true}) {
      Call call = make_call(system->name, {1, 200, 1, 1, 24, 16, {}}, 64, false, ++seed);
      call.l2norm = l2norm;
      expect_near_twin(*system, call);
    }
    Call wide = make_call(system->name, {1, 70, 1, 1, 128, 16, {}}, 64, false, ++seed);
    wide.l2norm = true;
    expect_near_twin(*system, wide);
  }
}

/// Large sums of g before small ones: their differences have the twin's digits only where the sums are made in its order, that of
/// a last, shorter chunk to its last token too.
TEST(CudaSimt, SumsGatesInTheTwinsOrder) {
  for (const std::int64_t tokens : {41, 64}) {
    Call call = make_call("retention", {1, tokens, 1, 8, 8, 8, {}}, 64, false, 51);
    for (std::size_t i = 0; i < 32 * 8; ++i) call.g[i] *= 200.0F;
    expect_near_twin(cpu::RETENTION, call);
  }
}

}  // namespace
}  // namespace samestate::cuda
