/// Softmax attention's CUDA kernels: their own source, executed by threads of the host, against the kernels of the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optimized/cpu/operators/softmax_attention.h"
#include "optimized/cuda/attention/launch.cuh"
#include "optimized/cuda/host/tensors.h"
#include "tests/optimized/contracts.h"

namespace samestate::cuda {
namespace {

using Values = std::vector<float>;

struct Shape {
  std::int64_t batch, tokens, keys;
  int key_heads, group, width, value_width;
  std::int64_t chunk;

  [[nodiscard]] std::string words() const {
    return std::to_string(tokens) + " of " + std::to_string(keys) + " tokens, widths " +
           std::to_string(width) + ' ' + std::to_string(value_width) + ", chunk " + std::to_string(chunk);
  }
};

template <class Operand>
std::vector<Operand> drawn(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Operand> out(static_cast<std::size_t>(count));
  for (Operand& x : out) x = stored<Operand>(normal(random));
  return out;
}

template <class Operand>
Values values(const std::vector<Operand>& x) {
  Values out;
  for (const Operand e : x) out.push_back(loaded(e));
  return out;
}

/// Memory between two launches, NaN at first.
struct Scratch {
  template <class T>
  T* scratch(std::int64_t size) {
    buffers.push_back(std::make_unique<DeviceBuffer<float>>(static_cast<std::size_t>(size)));
    buffers.back()->fill(0xff, nullptr);
    return buffers.back()->data();
  }
  std::vector<std::unique_ptr<DeviceBuffer<float>>> buffers;
};

template <class Operand>
void check(const Shape& n, bool running) {
  SCOPED_TRACE(n.words() + (running ? ", running" : ""));
  const std::int64_t heads = std::int64_t{n.key_heads} * n.group;
  const auto q = drawn<Operand>(n.batch * n.tokens * heads * n.width, 1);
  const auto k = drawn<Operand>(n.batch * n.keys * n.key_heads * n.width, 2);
  const auto v = drawn<Operand>(n.batch * n.keys * n.key_heads * n.value_width, 3);
  const Values in_q = values(q), in_k = values(k), in_v = values(v);
  Values expected(static_cast<std::size_t>(n.batch * n.tokens * heads * n.value_width), NAN);
  OperatorArguments call;
  call.inputs = {{"q", {n.batch, n.tokens, heads * n.width}, in_q.data()},
                 {"k", {n.batch, n.keys, n.key_heads * n.width}, in_k.data()},
                 {"v", {n.batch, n.keys, n.key_heads * n.value_width}, in_v.data()}};
  call.outputs = {{"o", {n.batch, n.tokens, heads * n.value_width}, expected.data()}};
  call.parameters = {{"H", heads}, {"Hkv", n.key_heads}, {"d", n.width}, {"dv", n.value_width}};
  call.batch = n.batch, call.tokens = n.tokens, call.chunk = n.chunk;
  constexpr bool kFp32 = sizeof(Operand) == sizeof(float);
  const Contract contract = kFp32 ? Contract{} : testing::bf16();
  const auto cpu = running ? cpu::softmax_attention_tiles : cpu::softmax_attention_split_keys;
  ASSERT_EQ(cpu(call, contract).kind, Outcome::Kind::ran);

  const DeviceBuffer<Operand> on_q(q), on_k(k), on_v(v), o(expected.size());
  o.fill(0xff, nullptr);
  AttentionParameters<Operand> p;
  p.q = on_q.data(), p.k = on_k.data(), p.v = on_v.data(), p.o = o.data();
  p.batch = n.batch, p.tokens = n.tokens, p.keys = n.keys, p.key_heads = n.key_heads, p.group = n.group;
  p.width = n.width, p.value_width = n.value_width;
  p.key_stride = std::int64_t{n.key_heads} * n.width;
  p.value_stride = std::int64_t{n.key_heads} * n.value_width;
  p.chunk = n.chunk, p.running = running;
  p.scale = 1.0F / std::sqrt(static_cast<float>(n.width));
  Scratch scratch;
  prepare_attention(p, scratch);
  enqueue_attention(p, nullptr);
  const Values found = values(o.download());
  for (std::size_t i = 0; i < found.size(); ++i)
    // Rounded once: the next number of bf16 at most.
    ASSERT_NEAR(found[i], expected[i], kFp32 ? 1e-5 : 1e-3 + 0x1p-7 * std::fabs(expected[i])) << i;
}

template <class Operand>
void check_both(const Shape& n) {
  check<Operand>(n, true);
  check<Operand>(n, false);
}

/// Copies that land as late as they may: a wait too few reads the tile before.
struct LateCopies {
  LateCopies() { emulation::copies_land_late = true; }
  ~LateCopies() { emulation::copies_land_late = false; }
};

TEST(CudaAttention, TilesAreThoseOfTheCpu) {
  const LateCopies late;
  check_both<Bf16>({1, 1, 300, 1, 8, 64, 64, 64});     // decode, split over its keys
  check_both<Bf16>({2, 3, 150, 2, 3, 24, 40, 24});     // chunks within a tile, widths within one
  check_both<Bf16>({1, 33, 140, 1, 2, 72, 128, 100});  // many rows, chunks of two tiles
  check_both<Bf16>({1, 25, 90, 1, 2, 136, 256, 64});
}

void check_prefill(const Shape& n) {
  AttentionParameters<Bf16> p;
  p.tokens = n.tokens, p.keys = n.keys, p.key_heads = n.key_heads, p.group = n.group, p.chunk = n.chunk;
  p.width = n.width, p.value_width = n.value_width, p.key_stride = n.width, p.value_stride = n.value_width;
  p.running = true;
  EXPECT_TRUE(in_prefill(p)) << n.words();
  check<Bf16>(n, true);
}

TEST(CudaAttention, PrefillIsThatOfTheCpu) {
  {
    const LateCopies late;
    check_prefill({2, 75, 139, 1, 2, 24, 40,
                   64});  // keys before the queries, a group without a row, the last tile ragged
    check_prefill({1, 130, 130, 1, 1, 72, 64, 128});  // tiles of 128 keys
  }
  check_prefill({1, 49, 65, 1, 1, 136, 200, 64});
  check_prefill({1, 60, 60, 1, 1, 64, 8, 200});  // one chunk, shorter than a tile
}

TEST(CudaAttention, PrefillTakesChunksOfATile) {
  AttentionParameters<Bf16> p;
  p.tokens = p.keys = 300, p.width = 128, p.key_stride = p.value_stride = 128, p.running = true;
  const auto takes = [&](std::int64_t chunk, int width) {
    p.chunk = chunk, p.value_width = width;
    return in_prefill(p);
  };
  EXPECT_TRUE(takes(64, 128) && takes(64, 256) && takes(128, 128));
  EXPECT_FALSE(takes(128, 136) || takes(32, 128) || takes(256, 128) || takes(64, 260) || takes(64, 264));
  p.running = false;
  EXPECT_FALSE(takes(64, 128));
  p.running = true, p.tokens = 48;
  EXPECT_FALSE(takes(64, 128));
}

void check_decode(const Shape& n) {
  AttentionParameters<Bf16> p;
  p.tokens = n.tokens, p.keys = n.keys, p.key_heads = n.key_heads, p.group = n.group, p.chunk = n.chunk;
  p.width = n.width, p.value_width = n.value_width, p.key_stride = n.width, p.value_stride = n.value_width;
  EXPECT_TRUE(in_decode(p)) << n.words();
  check_both<Bf16>(n);
}

TEST(CudaAttention, DecodeIsThatOfTheCpu) {
  {
    const LateCopies late;
    check_decode({1, 1, 300, 1, 8, 64, 64, 64});  // the last tile ragged
    check_decode({2, 3, 150, 2, 3, 24, 40, 64});  // rows that see less, widths within a panel, two key heads
    check_decode({1, 17, 140, 1, 2, 72, 128, 64});  // three tiles of rows, the last ragged
  }
  check_decode({1, 1, 900, 1, 3, 136, 256, 64});  // more tiles than the ring has, more parts than are few
  check_decode({1, 1, 4200, 1, 1, 8, 8, 64});     // more parts than a thread asks for at first
  check_decode({2, 1, 40, 1, 2, 64, 8, 200});     // one chunk, shorter than a tile
  check<Bf16>({1, 0, 0, 1, 1, 8, 8, 64}, false);
}

TEST(CudaAttention, DecodeSplitsWhereBlocksAreFew) {
  AttentionParameters<Bf16> p;
  p.tokens = 1, p.keys = 4096, p.group = 8, p.chunk = 64;
  p.width = p.value_width = 256, p.key_stride = p.value_stride = 256;
  const auto parts = [&](std::int64_t batch, int key_heads) {
    p.batch = batch, p.key_heads = key_heads;
    split_decode(p);
    return p.parts;
  };
  EXPECT_EQ(parts(1, 1), 64);
  EXPECT_EQ(parts(16, 2), 4);
  EXPECT_EQ(parts(32, 2), 1);
  p.width = p.value_width = 64;
  EXPECT_EQ(parts(32, 2), 4);
  p.running = true;
  EXPECT_EQ(parts(1, 1), 1);
}

TEST(CudaAttention, RowsAreThoseOfTheCpu) {
  check_both<float>({1, 9, 140, 2, 4, 33, 7, 64});
  check_both<float>({1, 1, 70, 1, 1, 5, 260, 16});
  check_both<Bf16>({2, 5, 20, 1, 2, 9, 3, 8});
  check_both<float>({1, 0, 0, 1, 1, 4, 4, 8});
}

}  // namespace
}  // namespace samestate::cuda
