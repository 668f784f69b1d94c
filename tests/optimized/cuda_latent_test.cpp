/// Latent attention's CUDA grids: their own source, executed on the host, against the kernel of fused multiply-adds.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optimized/cuda/attention/latent.cuh"
#include "optimized/cuda/attention/latent_chunk_wgmma.cuh"
#include "optimized/cuda/host/tensors.h"
#include "optimized/cuda/products/column_product.cuh"

namespace samestate::cuda {
namespace {

struct Shape {
  std::int64_t batch, tokens, keys;
  int heads, columns, rotary;

  [[nodiscard]] std::string words() const {
    return std::to_string(batch) + " of " + std::to_string(tokens) + " of " + std::to_string(keys) +
           " tokens, " + std::to_string(heads) + " heads, " + std::to_string(columns) + " + " +
           std::to_string(rotary) + " columns";
  }
};

/// `size` is that of a number.
std::vector<Bf16> drawn(std::int64_t count, unsigned seed, float size) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<Bf16> out(static_cast<std::size_t>(count));
  for (Bf16& x : out) x = stored<Bf16>(normal(random));
  return out;
}

/// Memory between two launches, NaN at first.
struct Scratch {
  template <class T>
  T* scratch(std::int64_t size) {
    buffers.push_back(std::make_unique<DeviceBuffer<float>>(static_cast<std::size_t>(size)));
    return buffers.back()->data();
  }
  std::vector<std::unique_ptr<DeviceBuffer<float>>> buffers;
};

struct Call {
  explicit Call(const Shape& shape)
      : n(shape),
        width(shape.columns + shape.rotary),
        q(drawn(shape.batch * shape.tokens * shape.heads * width, 1, 1.5F)),
        c(drawn(shape.batch * shape.keys * shape.columns, 2, 1.5F)),
        rotary(drawn(shape.batch * shape.keys * shape.rotary, 3, 1.5F)),
        on_q(q),
        on_c(c),
        on_rotary(rotary) {
    p.batch = n.batch, p.tokens = n.tokens, p.keys = n.keys, p.group = n.heads;
    p.width = width, p.value_width = n.columns;
    p.key_stride = p.value_stride = n.columns;
    p.chunk = n.keys;
    p.scale = 1.0F / std::sqrt(static_cast<float>(width));
    p.q = on_q.data(), p.k = p.v = on_c.data();
  }
  [[nodiscard]] std::size_t results() const {
    return static_cast<std::size_t>(n.batch * n.tokens * n.heads * n.columns);
  }

  Shape n;
  int width;
  std::vector<Bf16> q, c, rotary;
  DeviceBuffer<Bf16> on_q, on_c, on_rotary;
  AttentionParameters<Bf16> p;
};

std::vector<Bf16> by_rows_of_keys(const Call& call) {
  const Shape& n = call.n;
  std::vector<Bf16> k;
  for (std::int64_t row = 0; row < n.batch * n.keys; ++row) {
    k.insert(k.end(), call.c.begin() + row * n.columns, call.c.begin() + (row + 1) * n.columns);
    k.insert(k.end(), call.rotary.begin() + row * n.rotary, call.rotary.begin() + (row + 1) * n.rotary);
  }
  const DeviceBuffer<Bf16> on_k(k), o(call.results());
  AttentionParameters<Bf16> p = call.p;
  p.k = p.v = on_k.data(), p.o = o.data();
  p.key_stride = p.value_stride = call.width;
  Scratch scratch;
  prepare_attention(p, scratch);
  AttentionRows<Bf16>::launch(p, nullptr);
  if (p.parts > 1) MergeParts<Bf16>::launch(p, nullptr);
  return o.download();
}

/// Returns the parts into which the keys were split.
std::int64_t check(const Shape& n) {
  SCOPED_TRACE(n.words());
  const Call call(n);
  const DeviceBuffer<Bf16> o(call.results());
  LatentParameters of;
  of.p = call.p, of.p.o = o.data(), of.rotary = call.on_rotary.data();
  EXPECT_TRUE(in_latent_tiles(n.columns, n.rotary));
  Scratch scratch;
  prepare_latent(of, scratch);
  enqueue_latent(of, nullptr);
  const std::vector<Bf16> found = o.download(), expected = by_rows_of_keys(call);
  std::size_t other = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const float x = loaded(expected[i]);
    EXPECT_NEAR(loaded(found[i]), x, 1e-3F + 0x1p-7F * std::fabs(x)) << i;
    if (::testing::Test::HasFailure()) return 0;
    other += loaded(found[i]) != x ? 1 : 0;
  }
  // Weights rounded under another base have other errors: a tenth of the results are then the next number of bf16.
  EXPECT_LE(other, 1 + found.size() / 40);
  return of.p.parts;
}

/// Copies that land as late as they may: a wait too few reads the tile before.
struct LateCopies {
  LateCopies() { emulation::copies_land_late = true; }
  ~LateCopies() { emulation::copies_land_late = false; }
};

TEST(CudaLatentAttention, IsThatOfFusedMultiplyAdds) {
  EXPECT_EQ(check({1, 5, 200, 16, 512, 64}), 1);  // two row tiles, of which one is ragged, as the keys are
  EXPECT_EQ(check({2, 3, 70, 12, 264, 0}),
            1);  // no rotary columns, panels of zeros, the next sequence behind the keys
  EXPECT_EQ(check({1, 2, 2, 20, 448, 24}), 1);  // rows that see one key
}

TEST(CudaLatentAttention, WaitsForWhatLandsLate) {
  const LateCopies late;
  check({1, 3, 330, 44, 512, 64});
}

TEST(CudaLatentAttention, SplitsTheKeysOfFewRows) {
  EXPECT_EQ(check({1, 1, 300, 40, 512, 64}), 3);
  EXPECT_EQ(check({1, 1, 260, 80, 512, 64}), 3);
  EXPECT_EQ(check({1, 150, 300, 1, 256, 8}), 3);  // rows that see nothing of the last part
}

/// Rows of outputs that no kernel was asked for come after the others: a tile's worth, each with this value.
constexpr float kBehind = 96.0F;

DeviceBuffer<Bf16> room_for(const Call& call) {
  const std::size_t behind = 32 * static_cast<std::size_t>(call.n.columns);
  return DeviceBuffer<Bf16>(std::vector<Bf16>(call.results() + behind, stored<Bf16>(kBehind)));
}

/// Returns the outputs, after checking that nothing was written after them.
std::vector<Bf16> outputs_in(const DeviceBuffer<Bf16>& room, const Call& call) {
  std::vector<Bf16> found = room.download();
  EXPECT_TRUE(std::all_of(found.begin() + static_cast<std::ptrdiff_t>(call.results()), found.end(),
                          [](Bf16 x) { return loaded(x) == kBehind; }))
      << "rows behind the last were written";
  found.resize(call.results());
  return found;
}

/// Returns the exact result of LatentDecode, without rounding any weight.
std::vector<float> in_float64(const Call& call) {
  const Shape& n = call.n;
  std::vector<float> out;
  const auto part = [](const std::vector<Bf16>& x, std::int64_t at) {
    return static_cast<double>(loaded(x[static_cast<std::size_t>(at)]));
  };
  for (std::int64_t row = 0; row < n.batch * n.tokens * n.heads; ++row) {
    const std::int64_t b = row / (n.tokens * n.heads), token = row / n.heads % n.tokens;
    std::vector<double> scores;
    for (std::int64_t key = b * n.keys; key <= b * n.keys + n.keys - n.tokens + token; ++key) {
      double score = 0.0;
      for (int i = 0; i < n.columns; ++i)
        score += part(call.q, row * call.width + i) * part(call.c, key * n.columns + i);
      for (int i = 0; i < n.rotary; ++i)
        score += part(call.q, row * call.width + n.columns + i) * part(call.rotary, key * n.rotary + i);
      scores.push_back(score * static_cast<double>(call.p.scale));
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double weights = 0.0;
    for (double& x : scores) weights += x = std::exp(x - most);
    for (int i = 0; i < n.columns; ++i) {
      double sum = 0.0;
      for (std::size_t key = 0; key < scores.size(); ++key)
        sum += scores[key] * part(call.c, (b * n.keys + static_cast<std::int64_t>(key)) * n.columns + i);
      out.push_back(static_cast<float>(sum / weights));
    }
  }
  return out;
}

/// `part_keys`: of a part, or 0 as the kernel chooses. Returns the parts.
std::int64_t check_few(const Shape& n, std::int64_t part_keys = 0) {
  SCOPED_TRACE(n.words());
  const Call call(n);
  const DeviceBuffer<Bf16> o = room_for(call);
  LatentParameters of;
  of.p = call.p, of.p.o = o.data(), of.rotary = call.on_rotary.data();
  EXPECT_TRUE(in_latent_decode(of.p));
  Scratch scratch;
  prepare_latent(of, scratch);
  if (part_keys > 0) of.p.part_keys = part_keys, of.p.parts = (n.keys + part_keys - 1) / part_keys;
  enqueue_latent(of, nullptr);
  const std::vector<Bf16> found = outputs_in(o, call);
  const std::vector<float> expected = in_float64(call);
  std::size_t other = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(loaded(found[i]), expected[i], 1e-5F + 0x1.02p-8F * std::fabs(expected[i])) << i;
    if (::testing::Test::HasFailure()) return 0;
    other += loaded(found[i]) != loaded(stored<Bf16>(expected[i])) ? 1 : 0;
  }
  // With weights in a single bf16 number, a tenth of the outputs would be the next number.
  EXPECT_LE(other, 1 + found.size() / 200);
  return of.p.parts;
}

TEST(CudaLatentAttention, TakesFewRowsInOnePass) {
  EXPECT_EQ(check_few({1, 1, 300, 16, 512, 64}), 10);
  EXPECT_EQ(check_few({2, 3, 70, 8, 264, 0}),
            3);  // two row tiles, columns of zeros, the next sequence behind the keys
  EXPECT_EQ(check_few({1, 2, 2, 1, 448, 24}), 1);  // rows that see one key
  check_few({1, 5, 200, 3, 512, 64}, 96);          // tiles of a part, parts whose last tile few rows see
  check_few({1, 32, 40, 1, 512, 8}, 64);           // rows that see nothing of the last tile
  check_few({1, 1, 1, 32, 512, 64});
}

TEST(CudaLatentAttention, FewRowsWaitForWhatLandsLate) {
  const LateCopies late;
  check_few({2, 2, 330, 7, 512, 64}, 352);
}

TEST(CudaLatentAttention, SplitsForWholeRoundsOfBlocks) {
  const auto parts = [](std::int64_t keys, std::int64_t blocks) {
    const std::int64_t of_part = latent_part_keys(keys, blocks, 2, 1);
    EXPECT_EQ(of_part % kLatentPartKeys, 0);
    return (keys + of_part - 1) / of_part;
  };
  EXPECT_EQ(parts(8192, 132), 1);
  EXPECT_EQ(parts(8192, 128), 1);
  EXPECT_EQ(parts(128, 1), 1);
  EXPECT_EQ(parts(8192, 66), 2);
  EXPECT_EQ(parts(1 << 20, 2), 66);
  EXPECT_EQ(parts(1, 1), 1);
}

TEST(CudaLatentAttention, TakesWhatItsTilesHold) {
  EXPECT_TRUE(in_latent_tiles(512, 64) && in_latent_tiles(512, 0) && in_latent_tiles(200, 64));
  EXPECT_FALSE(in_latent_tiles(520, 0) || in_latent_tiles(512, 72) || in_latent_tiles(508, 64) ||
               in_latent_tiles(512, 4));
  EXPECT_FALSE(in_latent_tiles(192, 64));  // AttentionTiles' widest
}

template <class Operand>
std::vector<Operand> numbers(std::int64_t count, unsigned seed) {
  std::vector<Operand> out;
  for (const Bf16 x : drawn(count, seed, 1.0F)) out.push_back(stored<Operand>(loaded(x)));
  return out;
}

/// Rows of x and of y between others, and what lies between those of y is not touched.
template <class Operand>
void check_columns(int rows, int heads, int depth, int columns) {
  SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(heads) + " heads, " + std::to_string(depth) +
               " x " + std::to_string(columns));
  const int x_head = depth + 3, y_head = columns + 5, w_head = (depth + 1) * columns;
  const auto x = numbers<Operand>(rows * heads * x_head, 1), w = numbers<Operand>(heads * w_head, 2);
  const DeviceBuffer<Operand> on_x(x), on_w(w), on_y(std::vector<Operand>(rows * heads * y_head, Operand{}));
  ColumnProductParameters<Operand> p;
  p.x = on_x.data(), p.w = on_w.data(), p.y = on_y.data(), p.rows = rows;
  p.heads = heads, p.depth = depth, p.columns = columns;
  p.x_head = x_head, p.x_stride = heads * x_head, p.w_head = w_head;
  p.y_head = y_head, p.y_stride = heads * y_head;
  ASSERT_TRUE(in_column_product(p));
  with_column_rows(p,
                   [&]<int rows_of_block>() { ColumnProduct<Operand, rows_of_block>::launch(p, nullptr); });
  const std::vector<Operand> y = on_y.download();
  for (int row = 0; row < rows; ++row) {
    for (int head = 0; head < heads; ++head) {
      for (int column = 0; column < y_head; ++column) {
        double sum = 0.0;
        for (int k = 0; column < columns && k < depth; ++k)
          sum += static_cast<double>(loaded(x[(row * heads + head) * x_head + k])) *
                 loaded(w[head * w_head + k * columns + column]);
        ASSERT_NEAR(loaded(y[(row * heads + head) * y_head + column]), sum,
                    (sizeof(Operand) == 2 ? 0x1p-8 : 0x1p-20) * (std::fabs(sum) + 1.0))
            << row << ' ' << head << ' ' << column;
      }
    }
  }
}

TEST(CudaLatentAttention, MultipliesFewRowsWithColumns) {
  check_columns<Bf16>(1, 2, 128, 512);
  check_columns<Bf16>(17, 1, 37, 72);
  check_columns<float>(3, 2, 130, 36);
  check_columns<float>(5, 1, 1, 4);
  ColumnProductParameters<Bf16> p;
  p.columns = 72, p.depth = 16, p.rows = 65;
  EXPECT_FALSE(in_column_product(p));
  p.rows = 64, p.columns = 73;
  EXPECT_FALSE(in_column_product(p));
}

template <class Operand>
void check_transposed(int heads, int rows, int columns) {
  const std::int64_t between = rows * columns + 7;
  const auto x = numbers<Operand>(heads * between, 4);
  const DeviceBuffer<Operand> on_x(x), on_y(static_cast<std::size_t>(heads * rows * columns));
  transpose(TransposeParameters<Operand>{on_x.data(), on_y.data(), between, heads, rows, columns}, nullptr);
  const std::vector<Operand> y = on_y.download();
  for (int head = 0; head < heads; ++head) {
    for (int row = 0; row < rows; ++row) {
      for (int column = 0; column < columns; ++column)
        ASSERT_EQ(loaded(y[(head * columns + column) * rows + row]),
                  loaded(x[head * between + row * columns + column]));
    }
  }
}

TEST(CudaLatentAttention, TurnsMatricesOver) {
  check_transposed<Bf16>(3, 65, 130);
  check_transposed<float>(2, 7, 64);
  check_transposed<Bf16>(1, 64, 1);
}

}  // namespace
}  // namespace samestate::cuda
