#pragma once

#include <cstdint>
#include <vector>

#include "optimized/cpu/fused_sums.h"
#include "optimized/cpu/rounding.h"

/// The unit that computes an operator's products: tensor cores take tf32 operands of fp32 data, rounded to
/// nearest or truncated.
namespace samestate::cpu {

/// FusedSums of operands that are first rounded to `operand`.
struct MatrixUnit {
  Format operand = Format::
      none;  ///< none if nothing is rounded; 16-bit operands are stored in their format before they are
             ///< multiplied

  /// The unit of a contract with fp32 storage whose operands q and k are tf32.
  [[nodiscard]] static MatrixUnit of(const Contract& contract) {
    const bool tf32 =
        contract.qk == Format::tf32 || contract.qk == Format::tf32_truncated || contract.qk == Format::tf32x3;
    return {tf32 && contract.input == Format::fp32 ? contract.qk : Format::none};
  }

  /// c [rows, columns] = a [rows, inner] b [inner, columns]; columns is a multiple of kPanel.
  void multiply(const float* a, std::int64_t lda, const float* b, std::int64_t ldb, float* c,
                std::int64_t ldc, std::int64_t rows, std::int64_t columns, std::int64_t inner) const {
    if (keeps_fp32(operand)) return FusedSums{}.multiply(a, lda, b, ldb, c, ldc, rows, columns, inner);
    thread_local std::vector<float> left, right;
    left.resize(static_cast<std::size_t>(rows * inner));
    right.resize(static_cast<std::size_t>(inner * columns));
    for (std::int64_t i = 0; i < rows; ++i)
      round_values(a + i * lda, left.data() + i * inner, inner, operand);
    for (std::int64_t l = 0; l < inner; ++l)
      round_values(b + l * ldb, right.data() + l * columns, columns, operand);
    FusedSums{}.multiply(left.data(), inner, right.data(), columns, c, ldc, rows, columns, inner);
  }
};

}  // namespace samestate::cpu
