#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/systems/sizes.h"
#include "reference/contract.h"

namespace samestate {

/// The cuts of packed and decoded calls of the form that divides value heads: even ones of them.
inline constexpr std::string_view kCutHeads = "heads";

/// Everything that determines one run, data included: the unit of reproduction (DESIGN 6). A member's initial
/// value is the key's default, which the canonical line omits.
struct Case {
  std::string system;  ///< a row of the table of systems
  std::string form =
      "chunked";  ///< recurrent, chunked, parallel, sequence_parallel, head_parallel, decode, packed
  std::int64_t chunk = 64;            ///< chunked; decode and packed: 0 runs them on the recurrent kernel
  std::int64_t prefill = 0;           ///< decode: tokens of the first call
  std::int64_t step = 1;              ///< decode, named tensors: tokens of each call behind the first
  bool cached = false;                ///< decode: the first call is not made, what it would leave is given
  std::int64_t ranks = 1;             ///< among which the tokens or heads of a call with chunks are divided
  std::string cuts = "even";          ///< how: even or drawn (oracles/path.h), or kCutHeads
  std::vector<std::int64_t> lengths;  ///< packed: tokens of each sequence, zeros included; T is their sum
  std::int64_t B = 1;
  std::int64_t T = 64;
  std::int64_t Hk = 1;
  std::int64_t Hv = 1;  ///< default: Hk
  std::int64_t dk = 64;
  std::int64_t dv = 64;  ///< default: dk
  HeadMap heads = HeadMap::interleaved;
  bool l2norm = false;          ///< the kernel normalises q and k
  std::optional<double> scale;  ///< default: dk^-1/2, or the power of two above it in the exact regimes
  std::string contract = "fp32";
  std::string regime = "normal";
  std::string state = "none";         ///< none or random
  std::string layout = "dense";       ///< as the kernel sees the tensors (Layout)
  std::string final_state = "apart";  ///< where it goes: apart, none or in_place (FinalState)
  /// packed: tokens before the first and after the last sequence that belong to none.
  std::int64_t lead = 0, slack = 0;
  bool repeat = false;  ///< each call after others on the same memory, and twice
  bool taps = false;    ///< a layer's kernel hands out what lies between its stages, as far as it does
  std::string law;      ///< empty: against the oracle
  std::string kernel;   ///< empty: the CPU kernel of this system
  std::uint64_t seed = 0;
  /// The sizes that the system alone has (System::sizes), all of them.
  Sizes parameters;

  bool operator==(const Case&) const = default;
};

/// Sequences of the case: of a packed batch its lengths, else the batch.
[[nodiscard]] inline std::int64_t sequences_of(const Case& c) {
  return c.lengths.empty() ? c.B : static_cast<std::int64_t>(c.lengths.size());
}
/// The tokens of one of them.
[[nodiscard]] inline std::int64_t tokens_of(const Case& c, std::int64_t sequence) {
  return c.lengths.empty() ? c.T : c.lengths[static_cast<std::size_t>(sequence)];
}
/// Where the packed sequences of the case begin, and where the last one ends; without those tokens that belong to none.
[[nodiscard]] std::vector<std::int64_t> offsets_of(const Case& c);

/// Reads `v1 SYSTEM key=value ...`, keys in any order. Throws Error that names the key or value, the limit
/// and the remedy: another version, an unknown or repeated key, a value that does not parse, or a line that
/// is no case (Resolved).
[[nodiscard]] Case parse_case(std::string_view line);

/// The canonical line: fixed key order, defaults omitted. parse_case(format_case(c)) == c.
[[nodiscard]] std::string format_case(const Case& c);

/// Elements of the largest tensor that a case may ask for (4 GiB of fp32).
inline constexpr std::int64_t kLargestCase = std::int64_t{1} << 30;

}  // namespace samestate
