#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// The constants of a unit's arithmetic that can be learnt from its results alone (BOUNDS 13, items 8 and 9;
/// the crafted sums are those of Fasi, Higham, Mikaitis and Pranesh 2021). This needs no device: the unit is
/// a function.
namespace samestate::cuda {

/// D = A B + C for a batch of problems, A [n, 16, terms], B [n, terms, 8], C and D [n, 16, 8], row-major.
using Multiply = std::function<std::vector<float>(const std::vector<float>& A, const std::vector<float>& B,
                                                  const std::vector<float>& C)>;

struct SumProbe {
  std::string instruction;
  int terms = 0;        ///< number of products in one result
  int exact_block = 0;  ///< number of products that are aligned and added at once; 2 means two or fewer
  bool accumulator_in_block = false;  ///< C is aligned with the first block and not added afterwards
  std::string rounding;  ///< how the sum is rounded to fp32: toward zero, to nearest, away, up or down
  int extra_bits = 0;    ///< bits kept below the last fp32 bit of the largest term; at most 8 are looked for
  double worst_error = 0.0;  ///< |error| / (2^-23 sum |terms|), the worst of the random sums
  double mean_error = 0.0;   ///< mean of |error| / (2^-23 sum |terms|)
  bool subnormal_inputs = false, subnormal_products = false,
       subnormal_accumulators = false;  ///< subnormal accumulators are kept, not flushed
};

namespace detail {

struct Sum {
  std::vector<float> products;  ///< powers of two, or numbers with few bits: exact in the input format
  float accumulator = 0.0F;
};

/// Evaluates each sum as element (0, 0) of a separate problem: A holds the products, B ones.
inline std::vector<float> evaluate(const Multiply& multiply, int terms, const std::vector<Sum>& sums) {
  const auto n = static_cast<std::size_t>(terms);
  std::vector<float> A(sums.size() * 16 * n);
  const std::vector<float> B(sums.size() * 8 * n, 1.0F);
  std::vector<float> C(sums.size() * 16 * 8);
  for (std::size_t s = 0; s < sums.size(); ++s) {
    for (std::size_t l = 0; l < sums[s].products.size(); ++l) A[s * 16 * n + l] = sums[s].products[l];
    C[s * 16 * 8] = sums[s].accumulator;
  }
  const std::vector<float> D = multiply(A, B, C);
  std::vector<float> results(sums.size());
  for (std::size_t s = 0; s < sums.size(); ++s) results[s] = D[s * 16 * 8];
  return results;
}

inline float power(int exponent) { return std::ldexp(1.0F, exponent); }

}  // namespace detail

/// Finds which products are aligned together: 2^30 and -2^30 at i and j, 1 at m. The 1 survives only if the
/// pair cancels before it is added; the block that is summed first shows the most survivors. Returns its
/// members, with i and j first.
inline std::vector<int> first_block(const Multiply& multiply, int terms) {
  std::vector<int> block;
  for (int i = 0; i < terms; ++i) {
    for (int j = i + 1; j < terms; ++j) {
      std::vector<detail::Sum> sums;
      for (int m = 0; m < terms; ++m) {
        detail::Sum sum{std::vector<float>(static_cast<std::size_t>(terms)), 0.0F};
        sum.products[static_cast<std::size_t>(m)] = 1.0F;
        sum.products[static_cast<std::size_t>(i)] = detail::power(30);
        sum.products[static_cast<std::size_t>(j)] = -detail::power(30);
        sums.push_back(sum);
      }
      const std::vector<float> results = detail::evaluate(multiply, terms, sums);
      std::vector<int> members{i, j};
      for (int m = 0; m < terms; ++m) {
        if (m != i && m != j && results[static_cast<std::size_t>(m)] == 0.0F) members.push_back(m);
      }
      if (block.empty() || members.size() < block.size()) block = members;
    }
  }
  return block;
}

/// Probes one instruction. `random(exponents)` draws a value that the input format can represent, with
/// exponents spread over that many binades.
inline SumProbe probe_sums(std::string instruction, int terms, const Multiply& multiply,
                           const std::function<float(int)>& random, int problems) {
  using detail::power;
  SumProbe found;
  found.instruction = std::move(instruction);
  found.terms = terms;
  const std::vector<int> block = first_block(multiply, terms);
  found.exact_block = static_cast<int>(block.size());
  const auto sum = [&](const std::vector<float>& products, float accumulator = 0.0F) {
    detail::Sum crafted{std::vector<float>(static_cast<std::size_t>(terms)), accumulator};
    for (std::size_t l = 0; l < products.size() && l < block.size(); ++l) {
      crafted.products[static_cast<std::size_t>(block[l])] = products[l];
    }
    return detail::evaluate(multiply, terms, {crafted})[0];
  };

  found.accumulator_in_block = sum({power(30), -power(30)}, 1.0F) == 0.0F;

  // 2 + 3 2^-23 is halfway between 2 + 2^-22 and 2 + 2^-21; all its terms are multiples of the last bit of 1.
  const bool up = sum({1.0F, 1.0F + power(-7), -power(-7), 3.0F * power(-23)}) > 2.0F + power(-22);
  const bool negative_up =
      sum({-1.0F, -1.0F - power(-7), power(-7), -3.0F * power(-23)}) < -2.0F - power(-22);
  const bool tie_up = sum({1.0F, 1.0F + power(-7), -power(-7), power(-23)}) > 2.0F;
  found.rounding =
      up ? (negative_up ? (tie_up ? "away" : "to nearest") : "up") : (negative_up ? "down" : "toward zero");

  // Under truncation, 2^-24 + ... + 2^-(23+b) + 2^-(23+b) makes one last bit of 1 only if the last two terms
  // are kept. Under rounding to nearest, 1 + 2^-24 is a tie that a kept 2^-(23+b) decides.
  for (int b = 1; b <= 8; ++b) {
    std::vector<float> products{1.0F};
    if (found.rounding == "to nearest") {
      products.insert(products.end(), {power(-24), power(-23 - b)});
    } else {
      for (int e = 1; e <= b; ++e) products.push_back(power(-23 - e));
      products.push_back(power(-23 - b));
    }
    if (products.size() > block.size() || !(sum(products) > 1.0F)) break;
    found.extra_bits = b;
  }

  found.subnormal_inputs = sum({power(-130)}) != 0.0F || sum({power(-127)}) != 0.0F;
  found.subnormal_accumulators = sum({}, power(-140)) != 0.0F;

  const auto n = static_cast<std::size_t>(terms);
  const auto count = static_cast<std::size_t>(problems);
  std::vector<float> A(count * 16 * n);
  std::vector<float> B(count * n * 8);
  std::vector<float> C(count * 16 * 8);
  for (float& x : A) x = random(8);
  for (float& x : B) x = random(8);
  for (float& x : C) x = random(16);
  A[0] = power(-70), B[0] = power(-70), C[0] = 0.0F;  // a single subnormal product
  for (std::size_t l = 1; l < n; ++l) A[l] = 0.0F;
  const std::vector<float> D = multiply(A, B, C);
  found.subnormal_products = D[0] != 0.0F;
  for (std::size_t e = 1; e < D.size(); ++e) {
    const std::size_t problem = e / 128;
    const std::size_t row = e % 128 / 8;
    const std::size_t column = e % 8;
    if (problem == 0 && row == 0) continue;
    long double exact = C[e];
    long double size = std::fabs(C[e]);
    for (std::size_t l = 0; l < n; ++l) {
      const long double product = static_cast<long double>(A[(problem * 16 + row) * n + l]) *
                                  static_cast<long double>(B[(problem * n + l) * 8 + column]);
      exact += product;
      size += std::fabs(product);
    }
    const auto error =
        static_cast<double>(std::fabs(static_cast<long double>(D[e]) - exact) / size * 0x1p23L);
    found.worst_error = std::fmax(found.worst_error, error);
    found.mean_error += error / static_cast<double>(D.size());
  }
  return found;
}

/// Relative errors of exponentials in units of 2^-24, the worst over a sweep.
struct ExponentialProbe {
  double ex2 = 0.0, ex2_at = 0.0;    ///< ex2.approx.ftz against 2^x, x in [-126, 0]
  double expf = 0.0, expf_at = 0.0;  ///< expf against e^x, x in [-87, 0]
  double fast = 0.0, fast_at = 0.0;  ///< ex2.approx.ftz(x log2 e), x in [-87, 0]
  double fast_share = 0.0;  ///< the same divided by the bound 3 + 1.5 |x| (BOUNDS 4); above 1 the bound is
                            ///< too small
  double ex2_ulps = 0.0, expf_ulps = 0.0,
         fast_ulps = 0.0;    ///< the same in units in the last place of the result
  bool ex2_flushes = false;  ///< 2^-127 becomes 0
  bool fma_flushes = false;  ///< 2^-127 * 1 + 0 becomes 0
};

}  // namespace samestate::cuda
