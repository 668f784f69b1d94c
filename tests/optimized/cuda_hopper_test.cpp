#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "optimized/cuda/units/wgmma.cuh"

/// The emulated names of compute capability 9.0a: each does what the device does, and each mistake that the device
/// would let pass by luck is found.
namespace samestate::cuda {
namespace {

constexpr int kTile = kTileBytes / 2;

struct alignas(1024) Tiles {
  std::array<Bf16, kTile> a, b;
  Barrier barrier;
};

float number(int row, int column) { return static_cast<float>((7 * row + 3 * column) % 13 - 6); }

/// A tensor [64, 1, 64] of number(row, column).
std::vector<Bf16> numbers(int first = 0) {
  std::vector<Bf16> x(kTile);
  for (int r = 0; r < 64; ++r)
    for (int c = 0; c < 64; ++c) x[static_cast<std::size_t>(64 * r + c)] = narrow<Bf16>(number(r + first, c));
  return x;
}

TensorMap map_of(std::vector<Bf16>& x) { return {x.data(), 64, 1, 64}; }

/// Runs a block of one warpgroup with patience of a fifth of a second; its failure, or nothing.
std::string failure(const std::function<void()>& body) {
  emulation::patience = std::chrono::milliseconds(200);
  std::string what;
  try {
    emulation::run_block(128, body);
  } catch (const Error& e) {
    what = e.what();
  }
  emulation::patience = emulation::kPatience;
  return what;
}

/// Loads both tiles by copies, as a kernel would.
void load_both(Tiles& s, const TensorMap& a, const TensorMap& b) {
  if (thread_index() == 0) {
    s.barrier.init(1);
    barriers_ready();
  }
  block_barrier();
  if (thread_index() == 0) {
    s.barrier.expect(2 * kTileBytes);
    load_tile(s.a.data(), a, s.barrier, 0, 0, 0);
    load_tile(s.b.data(), b, s.barrier, 0, 0, 0);
  }
  s.barrier.wait(0);
}

/// Element (row, column) of the thread's c[i].
int row_of(int i) { return 16 * (thread_index() / 32) + lane_index() / 4 + 8 * (i % 4 / 2); }
int column_of(int i) { return 8 * (i / 4) + 2 * (lane_index() % 4) + i % 2; }

float sum_over(const std::function<float(int)>& term) {
  float sum = 0.0F;
  for (int k = 0; k < 64; ++k) sum += term(k);
  return sum;
}

TEST(CudaHopper, ProductsReadTilesByRowsAndByColumns) {
  Tiles s;
  std::vector<Bf16> x = numbers(), y = numbers(5);
  const TensorMap mx = map_of(x), my = map_of(y);
  std::atomic<int> wrong{0};
  EXPECT_EQ(failure([&] {
              load_both(s, mx, my);
              float shared[32], rows[32], columns[32];
              std::uint32_t a[4][4];
              for (int step = 0; step < 4; ++step) {
                for (int r = 0; r < 4; ++r) {
                  const int column = 16 * step + 8 * (r / 2) + 2 * (lane_index() % 4);
                  a[step][r] =
                      pack(number(row_of(2 * (r % 2)), column), number(row_of(2 * (r % 2)), column + 1));
                }
              }
              products_begin();
              for (int step = 0; step < 4; ++step) {
                multiply(shared, by_rows(s.a.data(), step), by_rows(s.b.data(), step), step > 0);
                multiply(rows, a[step], by_rows(s.b.data(), step), step > 0);
                multiply(columns, a[step], by_columns(s.b.data(), step), step > 0);
              }
              products_commit();
              products_wait<0>();
              for (int i = 0; i < 32; ++i) {
                const int r = row_of(i), c = column_of(i);
                const float by_row = sum_over([&](int k) { return number(r, k) * number(c + 5, k); });
                const float by_column = sum_over([&](int k) { return number(r, k) * number(k + 5, c); });
                if (shared[i] != by_row || rows[i] != by_row || columns[i] != by_column) ++wrong;
              }
            }),
            "");
  EXPECT_EQ(wrong, 0);
}

TEST(CudaHopper, TilesAreWrittenWhereTheyAreRead) {
  Tiles s;
  std::vector<Bf16> x = numbers(), back(kTile, Bf16{0x7fff});
  const TensorMap mx = map_of(x), mback = map_of(back);
  EXPECT_EQ(failure([&] {
              load_both(s, mx, mx);
              const int warp = thread_index() / 32, matrix = lane_index() / 8, r = lane_index() % 8;
              // A warp carries its 16 columns, four matrices a step, through registers and a transposition twice.
              for (int step = 0; step < 4; ++step) {
                const int offset =
                    (8 * (matrix / 2) + r) * 128 + ((32 * warp + 16 * (matrix % 2)) ^ (r * 16)) + 2048 * step;
                std::uint32_t v[4];
                load_matrices<true>(v, s.a.data() + offset / 2);
                store_matrices<true>(s.b.data(), offset, words(v[0], v[1], v[2], v[3]));
              }
              fence_async();
              block_barrier();
              if (thread_index() == 0) store_tile(mback, s.b.data(), 0, 0, 0), commit_stores(), wait_stores();
            }),
            "");
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(back[i].bits, x[i].bits) << i;
}

TEST(CudaHopper, CopiesFillWithZerosAndClip) {
  Tiles s;
  std::vector<Bf16> x = numbers(), out(kTile, Bf16{0x3f80});
  TensorMap narrow_map{x.data(), 32, 1, 40};
  TensorMap out_map{out.data(), 32, 1, 40};
  EXPECT_EQ(failure([&] {
              load_both(s, narrow_map, narrow_map);
              if (thread_index() == 0)
                store_tile(out_map, s.a.data(), 0, 0, 8), commit_stores(), wait_stores();
            }),
            "");
  for (int r = 0; r < 64; ++r) {
    for (int c = 0; c < 64; ++c) {
      Bf16 y;
      std::memcpy(&y, reinterpret_cast<unsigned char*>(s.a.data()) + swizzled(r, 2 * c), 2);
      const bool inside = r < 40 && c < 32;
      EXPECT_EQ(y.bits, inside ? x[static_cast<std::size_t>(32 * r + c)].bits : 0);
    }
  }
  EXPECT_EQ(out[8 * 32].bits, x[0].bits);
  EXPECT_EQ(out[40 * 32].bits, 0x3f80) << "past the tensor's end";
  EXPECT_EQ(out[0].bits, 0x3f80) << "before the tile";
}

TEST(CudaHopper, StoresAreCommittedAndWaitedFor) {
  for (const bool late : {false, true}) {
    emulation::copies_land_late = late;
    SCOPED_TRACE(late);
    Tiles s;
    std::vector<Bf16> out(kTile);
    int flag = 0;
    const auto after_a_store = [&](const std::function<void()>& body) {
      return failure([&] {
        if (thread_index() != 0) return;
        s.a[0] = Bf16{1};
        store_bytes(out.data(), s.a.data(), 16);
        body();
      });
    };
    EXPECT_NE(after_a_store([] {}).find("not committed"), std::string::npos);
    EXPECT_NE(after_a_store([] { commit_stores(); }).find("still read"), std::string::npos);
    EXPECT_NE(after_a_store([&] {
                commit_stores(), wait_stores_read();
                publish(&flag, 1);
              }).find("publishes"),
              std::string::npos);
    EXPECT_EQ(after_a_store([&] {
                commit_stores(), wait_stores();
                publish(&flag, 1);
              }),
              "");
    out[0] = Bf16{9};
    EXPECT_EQ(after_a_store([&] {
                commit_stores();
                s.a[0] = Bf16{2};
                wait_stores_read();
              }),
              "");
    EXPECT_EQ(out[0].bits, late ? 2 : 1) << "what is overwritten before it was read may be what is stored";
  }
  emulation::copies_land_late = false;
}

/// One product into c, then what `after` does.
std::string one_product(const std::function<void(Tiles&, float (&)[32])>& before,
                        const std::function<void(Tiles&, float (&)[32])>& after) {
  Tiles s;
  std::vector<Bf16> x = numbers();
  const TensorMap mx = map_of(x);
  return failure([&] {
    load_both(s, mx, mx);
    float c[32] = {};
    before(s, c);
    products_begin();
    multiply(c, by_rows(s.a.data(), 0), by_rows(s.b.data(), 0), false);
    products_commit();
    after(s, c);
  });
}

TEST(CudaHopper, AccumulatorsAreNaNUntilWaitedFor) {
  std::atomic<int> early{0}, late{0}, first{0}, second{0};
  EXPECT_EQ(one_product([](Tiles&, float(&)[32]) {},
                        [&](Tiles& s, float(&c)[32]) {
                          float d[32] = {};
                          if (std::isnan(c[5])) ++early;
                          multiply(d, by_rows(s.a.data(), 0), by_rows(s.b.data(), 0), false);
                          products_commit();
                          products_wait<1>();
                          if (std::isnan(c[5])) ++first;
                          if (std::isnan(d[5])) ++second;
                          products_wait<0>();
                          if (std::isnan(d[5])) ++late;
                        }),
            "");
  EXPECT_EQ(early, 128);
  EXPECT_EQ(first, 0);
  EXPECT_EQ(second, 128) << "a wait too few leaves NaN";
  EXPECT_EQ(late, 0);
  EXPECT_NE(one_product([](Tiles&, float(&)[32]) {},
                        [](Tiles&, float(&c)[32]) {
                          c[3] = 1.0F;
                          products_wait<0>();
                        })
                .find("an accumulator was written"),
            std::string::npos);
}

TEST(CudaHopper, UnfencedStoresAreFound) {
  const auto store = [](Tiles& s, float(&)[32]) {
    store_words(s.a.data(), 16 * thread_index(), words(0, 0, 0, 0));
  };
  const auto wait = [](Tiles&, float(&)[32]) { products_wait<0>(); };
  EXPECT_NE(
      one_product([&](Tiles& s, float(&c)[32]) { store(s, c), block_barrier(); }, wait).find("fence_async"),
      std::string::npos);
  EXPECT_NE(one_product(
                [&](Tiles& s, float(&c)[32]) {
                  store(s, c);
                  if (thread_index() != 77) fence_async();
                  block_barrier();
                },
                wait)
                .find("fence_async"),
            std::string::npos)
      << "every writer fences its own";
  EXPECT_EQ(one_product([&](Tiles& s, float(&c)[32]) { store(s, c), fence_async(), block_barrier(); }, wait),
            "");
}

TEST(CudaHopper, ATileOverwrittenUnderAProductIsFound) {
  EXPECT_NE(one_product([](Tiles&, float(&)[32]) {},
                        [](Tiles& s, float(&)[32]) {
                          block_barrier();
                          if (thread_index() == 0) store_words(s.b.data(), 0, words(9, 9, 9, 9));
                          block_barrier();
                          products_wait<0>();
                        })
                .find("a tile changed"),
            std::string::npos);
}

TEST(CudaHopper, BarriersCountArrivalsBytesAndPhases) {
  const auto with = [](int arrivals, const std::function<void(Barrier&)>& body) {
    Barrier barrier{};
    return failure([&] {
      if (thread_index() == 0) barrier.init(arrivals);
      block_barrier();
      body(barrier);
    });
  };
  EXPECT_EQ(with(4,
                 [](Barrier& b) {
                   for (int phase = 0; phase < 5; ++phase) {
                     b.arrive_warp();
                     b.wait(phase);
                     block_barrier();
                   }
                 }),
            "");
  EXPECT_EQ(with(1, [](Barrier& b) { b.wait(-1); }), "") << "the phase before the first is done";
  EXPECT_NE(with(5, [](Barrier& b) { b.arrive_warp(), b.wait(0); }).find("does not complete"),
            std::string::npos);
  EXPECT_NE(with(4, [](Barrier& b) { b.arrive_warp(), b.wait(1); }).find("phase"), std::string::npos)
      << "a phase that is off by one";
  EXPECT_NE(with(4, [](Barrier& b) { b.wait(1); }).find("before the one before it"), std::string::npos)
      << "its parity is that of phase -1, and the device would go on";
  EXPECT_NE(with(4,
                 [](Barrier& b) {
                   for (int phase = 0; phase < 2; ++phase) b.arrive_warp(), block_barrier();
                   b.wait(0);
                 })
                .find("after the next one"),
            std::string::npos)
      << "its parity is that of phase 2, and the device would wait";
  EXPECT_NE(with(1,
                 [](Barrier& b) {
                   if (thread_index() == 0) b.expect(16);
                   b.wait(0);
                 })
                .find("does not complete"),
            std::string::npos)
      << "bytes that never come";
  EXPECT_NE(with(1,
                 [](Barrier& b) {
                   if (thread_index() == 0) b.expect(16), b.arrive();
                 })
                .find("one arrival too many"),
            std::string::npos);
}

TEST(CudaHopper, NamedBarriersWantOneNumberOfThreads) {
  EXPECT_NE(failure([] { named_barrier(1, thread_index() < 64 ? 128 : 96); }), "");
  EXPECT_EQ(failure([] { named_barrier(1 + warp_index() / 2, 64); }), "");
}

/// A thread that comes to a barrier after another thread has failed ends too: nothing wakes those who come
/// later.
TEST(CudaHopper, LateComersToABarrierEndWithAFailedBlock) {
  const auto late = [](auto&& barrier) {
    return failure([&] {
      if (thread_index() == 0) emulation::fail("the first thread fails");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      barrier();
    });
  };
  EXPECT_NE(late([] { block_barrier(); }).find("the first thread fails"), std::string::npos);
  EXPECT_NE(late([] { named_barrier(1, 128); }).find("the first thread fails"), std::string::npos);
  EXPECT_NE(late([] { warp_barrier(); }).find("the first thread fails"), std::string::npos);
}

TEST(CudaHopper, FlagsAreAwaited) {
  int flags[4] = {0, 3, 2, 3};
  const auto awaited = [&](int value) {
    return await_some(&flags[lane_index() % 4], lane_index() < 4, value);
  };
  EXPECT_EQ(failure([&] {
              if (thread_index() == 32) publish(&flags[0], 3);
              if (warp_index() == 0 && awaited(3) != 2) emulation::fail("two are there one after the other");
            }),
            "");
  EXPECT_NE(failure([&] { awaited(4); }).find("awaits a flag"), std::string::npos);
}

/// tf32 operands are cut to 10 fraction bits, and tf32() rounds them first, ties away from zero.
TEST(CudaHopper, TensorFloats) {
  const float x = 1.0F + 0x1p-11F;
  EXPECT_EQ(emulation::from_bits(tf32(x) & 0xffffe000U), 1.0F + 0x1p-10F);
  EXPECT_EQ(emulation::from_bits(tf32(-x) & 0xffffe000U), -1.0F - 0x1p-10F);
  EXPECT_EQ(failure([&] {
              float c[4] = {};
              const std::uint32_t one = emulation::to_bits(1.0F);
              multiply_tf32(c, {emulation::to_bits(x), 0, 0, 0}, one, 0);
              if (c[0] != 4.0F) emulation::fail("operands are not cut: " + std::to_string(c[0]));
            }),
            "");
}

}  // namespace
}  // namespace samestate::cuda
