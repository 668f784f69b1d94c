#include <gtest/gtest.h>

#include <cfenv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "optimized/cuda/host/probe.h"
#include "optimized/cuda/units/intrinsics.cuh"

/// The probe against units whose arithmetic is known, since each of its findings must be able to come out
/// otherwise.
namespace samestate::cuda {
namespace {

/// A unit that adds blocks of `block` products in turn. In a block, terms are cut off `extra_bits` below the
/// last fp32 bit of the largest one, summed exactly, and rounded to fp32 in direction `rounding` (FE_*).
struct Unit {
  int terms, block, extra_bits, rounding;
  bool accumulator_in_block, flush;

  [[nodiscard]] float add(std::vector<double> values) const {
    int largest = -1000;
    for (double& x : values) {
      if (flush && std::fabs(x) < 0x1p-126) x = 0.0;
      if (x != 0.0) largest = std::max(largest, std::ilogb(x));
    }
    double sum = 0.0;
    for (const double x : values) {
      const int last = largest - 23 - extra_bits;
      sum += std::ldexp(std::trunc(std::ldexp(x, -last)), last);
    }
    const int mode = std::fegetround();
    std::fesetround(rounding);
    volatile double exact = sum;
    const volatile float rounded = static_cast<float>(exact);
    std::fesetround(mode);
    return flush && std::fabs(rounded) < 0x1p-126F ? 0.0F : rounded;
  }

  [[nodiscard]] std::vector<float> operator()(const std::vector<float>& A, const std::vector<float>& B,
                                              const std::vector<float>& C) const {
    std::vector<float> D = C;
    for (std::size_t e = 0; e < D.size(); ++e) {
      const auto n = static_cast<std::size_t>(terms);
      for (std::size_t first = 0; first < n; first += static_cast<std::size_t>(block)) {
        std::vector<double> values;
        for (std::size_t l = first; l < first + static_cast<std::size_t>(block); ++l) {
          values.push_back(static_cast<double>(A[e / 8 * n + l]) *
                           static_cast<double>(B[(e / 128 * n + l) * 8 + e % 8]));
        }
        if (accumulator_in_block) {
          values.push_back(static_cast<double>(D[e]));
          D[e] = add(values);
        } else {
          D[e] = add({static_cast<double>(add(values)), static_cast<double>(D[e])});
        }
      }
    }
    return D;
  }
};

SumProbe probe(const Multiply& unit, int terms, int problems) {
  std::mt19937 generator(3);
  const auto random = [&](int exponents) {
    const auto mantissa = static_cast<float>(128 + generator() % 128);
    const int exponent = static_cast<int>(generator() % static_cast<unsigned>(exponents)) - exponents / 2;
    return std::ldexp(generator() % 2 ? mantissa : -mantissa, exponent - 7);
  };
  return probe_sums("unit", terms, unit, random, problems);
}

TEST(CudaProbe, FindsBlockRoundingAndExtraBits) {
  struct Row {
    Unit unit;
    const char* rounding;
  };
  for (const Row& row :
       {Row{{16, 16, 2, FE_TOWARDZERO, true, false}, "toward zero"},
        Row{{16, 8, 0, FE_TOWARDZERO, true, false}, "toward zero"},
        Row{{8, 4, 1, FE_TOWARDZERO, false, false}, "toward zero"},
        Row{{16, 16, 3, FE_TONEAREST, true, true}, "to nearest"},
        Row{{8, 8, 2, FE_DOWNWARD, true, true}, "down"}, Row{{8, 8, 2, FE_UPWARD, true, false}, "up"}}) {
    const SumProbe found = probe(row.unit, row.unit.terms, 8);
    EXPECT_EQ(found.exact_block, row.unit.block);
    EXPECT_EQ(found.rounding, row.rounding);
    EXPECT_EQ(found.accumulator_in_block, row.unit.accumulator_in_block);
    if (row.unit.rounding == FE_TOWARDZERO || row.unit.rounding == FE_TONEAREST) {
      EXPECT_EQ(found.extra_bits, row.unit.extra_bits);
    }
    EXPECT_EQ(found.subnormal_products, !row.unit.flush);
    EXPECT_EQ(found.subnormal_inputs, !row.unit.flush);
    EXPECT_EQ(found.subnormal_accumulators, !row.unit.flush);
    EXPECT_GT(found.worst_error, found.mean_error);
  }
}

/// Truncating every term costs more than truncating the sum, which stays within one last bit.
TEST(CudaProbe, WorstErrorTellsUnitsApart) {
  const double exact_block = probe(Unit{16, 16, 20, FE_TOWARDZERO, true, false}, 16, 64).worst_error;
  const double no_bits = probe(Unit{16, 16, 0, FE_TOWARDZERO, true, false}, 16, 64).worst_error;
  EXPECT_LE(exact_block, 1.0);
  EXPECT_GT(no_bits, exact_block);
}

/// The emulated matrix unit keeps the model of BOUNDS 2 (16 products and the accumulator exact, then
/// truncated: within one last bit of the sum) and reads its fragments where the device's kernels put them.
TEST(CudaProbe, EmulatedUnitKeepsTheModel) {
  const Multiply emulated = [](const std::vector<float>& A, const std::vector<float>& B,
                               const std::vector<float>& C) {
    std::vector<float> D(C.size());
    emulation::run_block(32, [&] {
      const int row = lane_index() / 4;
      const int pair = 2 * (lane_index() % 4);
      const auto at = [](int i) { return static_cast<std::size_t>(i); };
      const auto packed = [](float low, float high) {
        return static_cast<std::uint32_t>(narrow<Bf16>(low).bits) |
               static_cast<std::uint32_t>(narrow<Bf16>(high).bits) << 16;
      };
      for (int problem = 0; at(128 * problem) < C.size(); ++problem) {
        std::uint32_t a[4];
        std::uint32_t b[2];
        float c[4];
        for (int i = 0; i < 4; ++i) {
          const std::size_t from = at((16 * problem + row + 8 * (i % 2)) * 16 + pair + 8 * (i / 2));
          a[i] = packed(A[from], A[from + 1]);
          c[i] = C[at(128 * problem + (row + 8 * (i / 2)) * 8 + pair + i % 2)];
        }
        for (int i = 0; i < 2; ++i) {
          const std::size_t from = at((16 * problem + pair + 8 * i) * 8 + row);
          b[i] = packed(B[from], B[from + 8]);
        }
        multiply_bf16(c, a, b[0], b[1]);
        for (int i = 0; i < 4; ++i) D[at(128 * problem + (row + 8 * (i / 2)) * 8 + pair + i % 2)] = c[i];
      }
    });
    return D;
  };
  EXPECT_LE(probe(emulated, 16, 4).worst_error, 1.0);
}

}  // namespace
}  // namespace samestate::cuda
