#pragma once

#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include "optimized/cuda/units/emulated_hopper.h"

/// The products of wgmma.cuh on the host: c is NaN from the issue until the wait that covers it, and a tile
/// must be fenced when the product is issued and hold the same bits when it is waited for.
namespace samestate::cuda {

struct ByRows {
  const unsigned char* start;
};
struct ByColumns {
  const unsigned char* start;
};

inline ByRows by_rows(const Bf16* tile, int step) {
  return {reinterpret_cast<const unsigned char*>(tile) + 32 * step};
}
inline ByColumns by_columns(const Bf16* tile, int step) {
  return {reinterpret_cast<const unsigned char*>(tile) + 2048 * step};
}

namespace emulation {

/// The unit's addressing: groups of eight rows are 1024 bytes apart, then bits 4 to 6 are xored with bits 7
/// to 9.
inline float tile_element(const unsigned char* start, int row, int column) {
  const std::uintptr_t linear = reinterpret_cast<std::uintptr_t>(start) +
                                static_cast<std::uintptr_t>(row / 8 * 1024 + row % 8 * 128 + 2 * column);
  return widen(*reinterpret_cast<const Bf16*>(linear ^ (linear >> 7 & 7) << 4));
}

using Operand = std::array<std::array<float, 16>, kTileRows>;

inline Operand elements(ByRows x) {
  Operand y;
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t k = 0; k < 16; ++k)
      y[i][k] = tile_element(x.start, static_cast<int>(i), static_cast<int>(k));
  return y;
}
inline Operand elements(ByColumns x) {
  Operand y;
  for (std::size_t i = 0; i < y.size(); ++i)
    for (std::size_t k = 0; k < 16; ++k)
      y[i][k] = tile_element(x.start, static_cast<int>(k), static_cast<int>(i));
  return y;
}
inline void expect_clean(ByRows x) {
  expect_clean(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(x.start) / 1024 * 1024),
               kTileBytes, "a product");
}
inline void expect_clean(ByColumns x) { expect_clean(x.start, 2048, "a product"); }

inline bool same_bits(const Operand& a, const Operand& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

/// The value of the thread's elements of c once the group is waited for. a[i][k]: rows l / 4 + 8 i of the
/// warp's 16.
inline Product& accumulate(float (&c)[32], const std::array<std::array<float, 16>, 2>& a, const Operand& b,
                           bool add) {
  Asynchronous& mine = asynchronous();
  auto product = mine.products.begin();
  while (product != mine.products.end() && product->c != c) ++product;
  if (product == mine.products.end()) {
    mine.products.push_back({c, 0, std::vector<float>(c, c + 32), {}});
    product = mine.products.end() - 1;
  }
  product->group = mine.groups;
  const int lane = thread_index() % 32;
  for (int n = 0; n < 32; ++n) {
    const auto& row = a[static_cast<std::size_t>(n % 4 / 2)];
    const auto& column = b[static_cast<std::size_t>(8 * (n / 4) + 2 * (lane % 4) + n % 2)];
    double sum = add ? static_cast<double>(product->sums[static_cast<std::size_t>(n)]) : 0.0;
    for (std::size_t k = 0; k < 16; ++k) sum += static_cast<double>(row[k]) * static_cast<double>(column[k]);
    product->sums[static_cast<std::size_t>(n)] = truncated(sum);
    c[n] = std::numeric_limits<float>::quiet_NaN();
  }
  return *product;
}

/// One lane per warp watches the tiles.
template <class Tile>
void watch(Product& product, Tile tile, const Operand& at_issue) {
  expect_clean(tile);
  if (thread_index() % 32 != 0) return;
  product.recheck.push_back({product.group, [tile, at_issue] {
                               if (!same_bits(elements(tile), at_issue))
                                 fail("a tile changed while a product was reading it");
                             }});
}

template <class Tile>
void multiply_registers(float (&c)[32], const std::uint32_t (&a)[4], Tile b, bool add) {
  const auto word = [](std::uint32_t low, std::uint32_t high) {
    return low | static_cast<std::uint64_t>(high) << 32;
  };
  const auto& table = exchange({word(a[0], a[1]), word(a[2], a[3])});
  std::array<std::array<float, 16>, 2> rows;
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 16; ++k) {
      const std::uint64_t pair = table[static_cast<std::size_t>(thread_index() % 32 / 4 * 4 + k % 8 / 2)]
                                      [static_cast<std::size_t>(k / 8)];
      const auto both = static_cast<std::uint32_t>(pair >> (32 * i));
      rows[static_cast<std::size_t>(i)][static_cast<std::size_t>(k)] =
          from_bits(k % 2 == 0 ? both << 16 : both & 0xffff0000U);
    }
  }
  const Operand columns = elements(b);
  watch(accumulate(c, rows, columns, add), b, columns);
}

template <class Tile>
void multiply_tiles(float (&c)[32], ByRows a, Tile b, bool add) {
  const Operand rows = elements(a), columns = elements(b);
  const auto row = static_cast<std::size_t>(16 * (thread_index() / 32 % 4) + thread_index() % 32 / 4);
  Product& product = accumulate(c, {rows[row], rows[row + 8]}, columns, add);
  watch(product, a, rows);
  watch(product, b, columns);
}

}  // namespace emulation

inline void products_begin() { warp_barrier(); }
inline void products_commit() { ++emulation::asynchronous().groups; }

template <int n>
void products_wait() {
  emulation::Asynchronous& mine = emulation::asynchronous();
  // Gives other threads the time to overwrite what products in flight still read. This happens only now and
  // then, because otherwise the others would be late as well.
  const unsigned turn = static_cast<unsigned>(mine.groups + 37 * (thread_index() / 32)) * 2654435761U >> 16;
  if (emulation::self().block->late && !mine.products.empty() && turn % 4 == 0) {
    if (emulation::self().step_aside != nullptr) {
      ++emulation::self().block->phases;  // it continues by itself
      emulation::self().step_aside();
    } else {
      std::this_thread::sleep_for(emulation::lateness / 2);
    }
  }
  std::vector<emulation::Product> still;
  for (emulation::Product& product : mine.products) {
    std::erase_if(product.recheck, [&](const emulation::Product::Check& check) {
      const bool done = check.group < mine.groups - n;
      if (done) check.run();
      return done;
    });
    if (product.group >= mine.groups - n) {
      still.push_back(std::move(product));
      continue;
    }
    for (int i = 0; i < 32; ++i) {
      if (!std::isnan(product.c[i]))
        emulation::fail("an accumulator was written while a product was in flight");
      product.c[i] = product.sums[static_cast<std::size_t>(i)];
    }
  }
  mine.products = std::move(still);
}

inline void multiply(float (&c)[32], const std::uint32_t (&a)[4], ByRows b, bool add) {
  emulation::multiply_registers(c, a, b, add);
}
inline void multiply(float (&c)[32], const std::uint32_t (&a)[4], ByColumns b, bool add) {
  emulation::multiply_registers(c, a, b, add);
}
inline void multiply(float (&c)[32], ByRows a, ByRows b, bool add) {
  emulation::multiply_tiles(c, a, b, add);
}
/// Used only by the wide products (wgmma_wide.cuh).
inline void multiply(float (&c)[32], ByRows a, ByColumns b, bool add) {
  emulation::multiply_tiles(c, a, b, add);
}

}  // namespace samestate::cuda
