/// Products of matrices for the CUDA device: their own source, executed by threads of the host, against sums in float64.
#include "optimized/cuda/products/product.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/products/few_rows_product.cuh"

namespace samestate::cuda {
namespace {

template <class Operand>
struct Matrices {
  std::vector<float> values;
  DeviceBuffer<Operand> buffer;
  /// `offset` elements before the first matrix, so that it is not aligned.
  Matrices(std::int64_t size, std::int64_t offset, unsigned seed)
      : values(static_cast<std::size_t>(size)), buffer(static_cast<std::size_t>(size + offset)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const Operand x = stored<Operand>(normal(random));
      values[i] = loaded(x);
      buffer.data()[static_cast<std::size_t>(offset) + i] = x;
    }
  }
};

/// Sums of x, or both sums one after the other; every element once.
template <bool paired>
struct Keep {
  static constexpr bool kPaired = paired;
  double* y = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool groups = false;
  template <int n>
  void operator()(std::int64_t batch, std::int64_t row, std::int64_t column, const float (&sums)[n]) const {
    for (int i = 0; i < n; ++i) write(batch, row, column + i, sums[i]);
  }
  template <int n>
  void operator()(std::int64_t batch, std::int64_t row, std::int64_t column, const float (&sums)[n],
                  const float (&sums2)[n]) const {
    for (int i = 0; i < n; ++i) write(batch, row, column + i, sums[i] + 64.0 * static_cast<double>(sums2[i]));
  }
  void write(std::int64_t batch, std::int64_t row, std::int64_t column, double value) const {
    ASSERT_LT(column, columns);
    double& to = y[((groups ? 0 : batch) * rows + row) * columns + column];
    EXPECT_TRUE(std::isnan(to)) << "written twice: " << row << ' ' << column;
    to = value;
  }
};

struct Sizes {
  std::int64_t rows, columns, depth;
  std::int64_t batch = 1, offset = 0, padding = 0;
  bool gathered = false;
  std::vector<std::int32_t> groups = {};
  ProductTiling tiling = ProductTiling::wide;
  bool few = false;  ///< FewRowsProduct takes it
};

template <class Operand, bool paired>
void check_product(const Sizes& s) {
  const std::int64_t stride = s.depth + s.padding;
  const std::int64_t of_w = s.groups.empty() ? s.batch : std::ssize(s.groups);
  const Matrices<Operand> x(s.batch * s.rows * stride, s.offset, 1),
      w(of_w * s.columns * stride, s.offset, 2);
  const Matrices<Operand> w2(of_w * s.columns * stride, s.offset, 3);
  std::vector<std::int32_t> x_rows;
  for (std::int64_t r = 0; r < s.rows; ++r) x_rows.push_back(static_cast<std::int32_t>((7 * r + 3) % s.rows));
  std::vector<double> y(static_cast<std::size_t>(s.batch * s.rows * s.columns), NAN);
  std::vector<std::int32_t> group_of;
  std::vector<ProductTile> tiles;
  for (std::int32_t g = 0; g < std::ssize(s.groups); ++g) {
    const std::int32_t count = s.groups[static_cast<std::size_t>(g)];
    for (std::int32_t r = 0; r < count; r += static_cast<int>(s.tiling))
      tiles.push_back(
          {g, std::min(count - r, static_cast<std::int32_t>(s.tiling)), std::ssize(group_of) + r});
    group_of.insert(group_of.end(), static_cast<std::size_t>(count), g);
  }
  if (!s.groups.empty()) tiles.push_back({});

  ProductParameters<Operand, Keep<paired>> p;
  p.x = x.buffer.data() + s.offset, p.w = w.buffer.data() + s.offset, p.w2 = w2.buffer.data() + s.offset;
  p.rows = s.rows, p.columns = s.columns, p.depth = s.depth, p.batch = s.batch;
  p.x_stride = p.w_stride = stride, p.x_batch = s.rows * stride, p.w_batch = s.columns * stride;
  if (s.gathered) p.x_rows = x_rows.data();
  if (!s.groups.empty()) p.tiles = tiles.data(), p.tile_count = std::ssize(tiles), p.tiling = s.tiling;
  p.epilogue = {y.data(), s.rows, s.columns, !s.groups.empty()};
  p.in_pieces = product_in_pieces(p);
  EXPECT_EQ(in_few_rows(p, std::ssize(s.groups)), s.few);
  multiply_groups(p, std::ssize(s.groups), nullptr);

  const auto at = [](const std::vector<float>& values, std::int64_t i) {
    return static_cast<double>(values[static_cast<std::size_t>(i)]);
  };
  for (std::int64_t i = 0; i < std::ssize(y); ++i) {
    const std::int64_t b = i / s.columns / s.rows, row = i / s.columns % s.rows, column = i % s.columns;
    const std::int64_t from = s.gathered ? x_rows[static_cast<std::size_t>(row)] : row;
    const std::int64_t of = s.groups.empty() ? b : group_of[static_cast<std::size_t>(row)];
    double sum = 0.0, size = 0.0;
    for (std::int64_t k = 0; k < s.depth; ++k) {
      const std::int64_t in_w = (of * s.columns + column) * stride + k;
      const double term = at(x.values, (b * s.rows + from) * stride + k) *
                          (at(w.values, in_w) + (paired ? 64.0 * at(w2.values, in_w) : 0.0));
      sum += term, size += std::fabs(term);
    }
    EXPECT_NEAR(y[static_cast<std::size_t>(i)], sum, 1e-6 * size)
        << s.rows << " x " << s.columns << " x " << s.depth << ": " << row << ' ' << column;
  }
}

template <class Operand>
void check_products() {
  const bool late = emulation::copies_land_late;
  const std::int64_t slab = 128 / static_cast<std::int64_t>(sizeof(Operand));
  check_product<Operand, false>({5, 19, 3 * 8 * slab + 8});            // skinny: more stages than one
  check_product<Operand, true>({17, 11, 40, 1, 0, 8});                 // two tiles of rows, rows apart
  check_product<Operand, false>({3, 4, 21, 2, 1});                     // element by element, a batch
  check_product<Operand, false>({70, 9, 3 * slab + 8});                // few tiles: skinny
  if (!late) check_product<Operand, false>({66, 5, 3 * slab + 8, 9});  // medium
  check_product<Operand, true>({33, 9, 2 * slab, 2, 0, 0, true});      // gathered
  check_product<Operand, false>({2, 3, 0});
  check_product<Operand, false>({0, 3, 5});
  for (const ProductTiling tiling : {ProductTiling::skinny, ProductTiling::medium, ProductTiling::wide})
    check_product<Operand, true>({66, 7, slab + 8, 1, 0, 0, true, {3, 0, 40, 23}, tiling});
  if (!late) check_product<Operand, false>({130, 130, 3 * slab + 8, 25});  // wide, as many tiles as it takes
}

TEST(CudaProduct, SumsAreThoseOfFloat64) {
  for (const bool late : {false, true}) {
    emulation::copies_land_late = late;
    check_products<float>();
    check_products<Bf16>();
  }
  emulation::copies_land_late = false;
}

template <class Operand>
void check_few_rows() {
  const std::int64_t depth =
      2 * 512 / static_cast<std::int64_t>(sizeof(Operand)) + 8;  // lanes without a last piece
  const auto check = [&](Sizes s) {
    s.few = true;
    check_product<Operand, false>(s);
    check_product<Operand, true>(s);
  };
  check({8, 19, depth, 1, 0, 8, true, {1, 0, 3, 2, 0, 2}, ProductTiling::skinny});  // a ragged edge
  check({8, 16, depth, 1, 0, 0, true, {6, 0, 0, 0, 2}, ProductTiling::skinny});  // more rows than at a time
  check({4, 5, 8, 2});
  Sizes more{5, 5, 8};
  check_product<Operand, true>(more);
  more = {9, 5, 8, 1, 0, 0, true, {9, 0, 0, 0}, ProductTiling::skinny};
  check_product<Operand, true>(more);
}

TEST(CudaProduct, FewRowsAreMultipliedWithoutTheUnit) {
  check_few_rows<float>();
  check_few_rows<Bf16>();
}

TEST(CudaProduct, StoresRoundOnceWhateverTheAlignment) {
  const Matrices<Bf16> x(3 * 8, 0, 1), w(6 * 8, 0, 2);
  const std::vector<float> bias{1.0F, 2.0F, 3.0F, 4.0F, 5.0F, 6.0F};
  for (const std::int64_t stride : {6, 7, 8}) {
    const DeviceBuffer<float> exact(static_cast<std::size_t>(3 * stride));
    const DeviceBuffer<Bf16> rounded(static_cast<std::size_t>(3 * stride));
    const auto launch = [&](auto operand, auto* y) {
      using Out = decltype(operand);
      ProductParameters<Bf16, StoreProduct<Out>> p;
      p.x = x.buffer.data(), p.w = w.buffer.data(), p.x_stride = p.w_stride = p.depth = 8;
      p.rows = 3, p.columns = 6, p.epilogue = {y, stride, 0, bias.data()};
      Product<Bf16, StoreProduct<Out>>::launch(p, nullptr);
    };
    launch(float{}, exact.data());
    launch(Bf16{}, rounded.data());
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t column = 0; column < 6; ++column) {
        double sum = static_cast<double>(bias[static_cast<std::size_t>(column)]);
        for (std::int64_t k = 0; k < 8; ++k)
          sum += static_cast<double>(x.values[static_cast<std::size_t>(8 * row + k)]) *
                 static_cast<double>(w.values[static_cast<std::size_t>(8 * column + k)]);
        EXPECT_NEAR(exact.data()[row * stride + column], sum, 1e-5);
        EXPECT_EQ(loaded(rounded.data()[row * stride + column]),
                  loaded(stored<Bf16>(exact.data()[row * stride + column])));
      }
    }
  }
}

}  // namespace
}  // namespace samestate::cuda
