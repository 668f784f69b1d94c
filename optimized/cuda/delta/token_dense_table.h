#pragma once

#include <array>

#include "optimized/cuda/delta/token_fma_dense_tile.h"
#include "optimized/cuda/host/dispatch.h"

/// Chooses the kernel that evaluates a call of the recurrent form (docs/kernels.md, Decode, has the
/// measurements).
namespace samestate::cuda {

/// The generic kernel: o is read from the new state; fp32 (FFMA, expf) or bf16 (fp32 arithmetic, ex2.approx,
/// bf16 output, normalised q and k rounded if the contract rounds them).
[[nodiscard]] inline bool reads_new_state(const Contract& c) {
  const bool bf16 = c.output == Format::bf16;
  const Format operand = bf16 ? Format::bf16 : Format::fp32;
  return !c.reads_old_state && c.norm == Norm::operand && c.output == operand && c.input == operand &&
         c.state == Format::fp32 && (c.qk == Format::fp32 || c.qk == operand) &&
         c.exponential == (bf16 ? Exponential::ex2 : Exponential::exact);
}

/// The decoding kernel: o is read from the old state, the l2norm is a factor of fp32 sums.
template <Format state>
[[nodiscard]] bool decodes(const Contract& c) {
  const bool operands = c.output == c.input &&
                        (c.output == Format::bf16 || (c.output == Format::fp32 && state == Format::fp32));
  return c.reads_old_state && c.norm == Norm::factor && operands && c.qk == Format::fp32 && c.state == state;
}

/// First the rows of kDecodeTiles, in its order; then the generic kernel.
inline constexpr std::size_t kGenericRow = kDecodeTileCount;

[[nodiscard]] inline std::span<const DispatchRow> recurrent_rows() {
  static constexpr Range kGrid{0, 65535};  // limit of the second and third axis of a grid
  static constexpr Range kKeys{1, std::int64_t{kWarpKeys} * kMostWarps};
  static constexpr Range kOne{1, 1};
  static constexpr std::string_view kOld = "fp32_fused tf32_fused bf16_fused";
  static constexpr std::string_view kOldBf16 = "bf16_fused_state";
  const auto single = [](Range columns, std::int64_t multiple) {
    Limits limits;
    limits.tokens = kOne, limits.sequences = limits.heads = kGrid, limits.columns = columns;
    limits.dk = kKeys, limits.dv_multiple = multiple, limits.packed = false;
    return limits;
  };
  const auto several = [](Range columns, std::int64_t multiple) {
    Limits limits;
    limits.columns = columns, limits.dk = kKeys, limits.dv_multiple = multiple;
    return limits;
  };
  Limits wide = single({16385, Range::kAny}, 8);
  wide.dv = {65, Range::kAny};
  static const std::array<DispatchRow, kDecodeTileCount + 1> rows = {{
      {"decode, 16 columns", kOld, decodes<Format::fp32>, single({0, 8192}, 4),
       "latency: most blocks, the next grid started at once; B 1 in 2.4 us"},
      {"decode, 64 columns, early", kOld, decodes<Format::fp32>, single({0, 16384}, 4),
       "loads of a grid under the stores of the one before; B 4 in 6.3 us"},
      {"decode, 64 columns, once", kOld, decodes<Format::fp32>, single({0, 49152}, 4),
       "one wave of blocks that leave the cache to the next grid; B 8 in 11.9 to 12.2 us"},
      {"decode, 64 columns", kOld, decodes<Format::fp32>, single({}, 4),
       "256 bytes of a row at the rate of a copy from B 32 on"},
      {"decode, 32 columns, tokens", kOld, decodes<Format::fp32>, several({0, 16384}, 4),
       "several tokens or packed: the state stays in registers"},
      {"decode, 64 columns, tokens", kOld, decodes<Format::fp32>, several({}, 4),
       "several tokens or packed: the state stays in registers"},
      {"decode, 1 column a lane", kOld, decodes<Format::fp32>, several({}, 1), "rows that are not aligned"},
      {"decode, 128 columns of bf16", kOldBf16, decodes<Format::bf16>, wide,
       "256 bytes of a row; at the rate of a copy from B 64 on"},
      {"decode, 64 columns of bf16", kOldBf16, decodes<Format::bf16>, single({}, 8),
       "latency: B 1 in 2.2 us"},
      {"decode, 64 columns of bf16, tokens", kOldBf16, decodes<Format::bf16>, several({}, 8),
       "several tokens or packed: the state stays in registers"},
      {"decode, 1 column of bf16 a lane", kOldBf16, decodes<Format::bf16>, several({}, 1),
       "rows that are not aligned"},
      {"recurrent", "fp32 bf16", reads_new_state, several({}, 1), "reads the new state; every shape"},
  }};
  return rows;
}

}  // namespace samestate::cuda
