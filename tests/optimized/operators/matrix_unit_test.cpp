#include "optimized/cpu/operators/matrix_unit.h"

#include <gtest/gtest.h>

#include "optimized/cpu/products.h"
#include "tests/optimized/contracts.h"

namespace samestate::cpu {
namespace {

TEST(MatrixUnit, IsThatOfAContractThatStoresFp32) {
  Contract c;
  EXPECT_EQ(MatrixUnit::of(c).operand, Format::none);
  for (const Format format : {Format::tf32, Format::tf32_truncated}) {
    c.qk = format;
    c.input = Format::fp32;
    EXPECT_EQ(MatrixUnit::of(c).operand, format);
    c.input = Format::bf16;
    EXPECT_EQ(MatrixUnit::of(c).operand, Format::none) << "operands are stored in 16 bit";
  }
  EXPECT_EQ(MatrixUnit::of(testing::bf16()).operand, Format::none);
}

/// [3, 5] times [5, 20], operands that tf32 rounds up and cuts down.
TEST(MatrixUnit, RoundsBothOperandsAndNoSum) {
  Block a, b, c;
  a.resize(3, 5);
  b.resize(5, 20);
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t l = 0; l < 5; ++l) a.row(i)[l] = l == i ? 1.0F + 0x1.8p-11F : 0.0F;
  }
  for (std::int64_t l = 0; l < 5; ++l) {
    for (std::int64_t j = 0; j < 20; ++j) b.row(l)[j] = 1.0F + 0x1p-13F;
  }
  const auto made = [&](const MatrixUnit& unit) {
    product(unit, a, b, c);
    for (std::int64_t i = 0; i < 3; ++i) {
      for (std::int64_t j = 0; j < 20; ++j) EXPECT_EQ(c.row(i)[j], c.row(0)[0]);
    }
    return c.row(0)[0];
  };
  EXPECT_EQ(made({Format::none}), (1.0F + 0x1.8p-11F) * (1.0F + 0x1p-13F));
  EXPECT_EQ(made({Format::tf32}), 1.0F + 0x1p-10F);
  EXPECT_EQ(made({Format::tf32_truncated}), 1.0F);
  EXPECT_EQ(a.row(0)[0], 1.0F + 0x1.8p-11F) << "what it reads stays";
}

}  // namespace
}  // namespace samestate::cpu
