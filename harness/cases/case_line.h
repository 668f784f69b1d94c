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

/// The cuts of packed and decoded calls in the form that divides value heads: even cuts of these.
inline constexpr std::string_view kCutHeads = "heads";

/// The names of systems that give gradients end with this; a line writes `pass=backward` instead.
inline constexpr std::string_view kBackward = ".backward";

/// Everything that determines one run, including its data: the unit of reproduction (DESIGN 6). A member's
/// initial value is the default of its key, which the canonical line omits.
struct Case {
  std::string system;  ///< a system of the table of systems; of pass=backward, with kBackward at its end
  std::string form =
      "chunked";  ///< recurrent, chunked, parallel, sequence_parallel, head_parallel, decode, packed
  std::int64_t chunk = 64;   ///< chunked; in decode and packed, 0 uses the recurrent kernel
  std::int64_t prefill = 0;  ///< decode: tokens of the first call
  std::int64_t step = 1;     ///< decode, named tensors: tokens of each call after the first
  bool cached = false;       ///< decode: the first call is not made; the state that it would leave is given
  std::int64_t ranks = 1;  ///< the number of ranks among which the tokens or heads of a call with chunks are
                           ///< divided
  std::string cuts = "even";          ///< how they are divided: even or drawn (oracles/path.h), or kCutHeads
  std::vector<std::int64_t> lengths;  ///< packed: tokens of each sequence, which may be zero; T is their sum
  std::int64_t B = 1;
  std::int64_t T = 64;
  std::int64_t Hk = 1;
  std::int64_t Hv = 1;  ///< default: Hk
  std::int64_t dk = 64;
  std::int64_t dv = 64;  ///< default: dk
  HeadMap heads = HeadMap::interleaved;
  bool l2norm = false;          ///< the kernel normalises q and k
  std::optional<double> scale;  ///< default: dk^-1/2, or the next power of two above it in the exact regimes
  std::string contract = "fp32";
  std::string regime = "normal";
  std::string state = "none";         ///< none or random
  std::string layout = "dense";       ///< the memory layout of the tensors that the kernel sees (Layout)
  std::string final_state = "apart";  ///< where it is written: apart, none or in_place (FinalState)
  /// packed: tokens before the first and after the last sequence that belong to no sequence.
  std::int64_t lead = 0, slack = 0;
  std::string cotangent =
      "both";  ///< pass=backward: the cotangents that are given, of both outputs or of one
  std::string cotangents = "normal";  ///< pass=backward: their values (cotangent_kinds)
  bool repeat = false;                ///< each call is made after others on the same memory, and twice
  bool taps = false;   ///< a layer's kernel hands out the tensors between its stages, as far as it supports
                       ///< that
  std::string law;     ///< empty means a comparison with the oracle
  std::string kernel;  ///< empty means the CPU kernel of this system
  std::uint64_t seed = 0;
  /// All sizes that only this system has (System::sizes).
  Sizes parameters;

  bool operator==(const Case&) const = default;
};

/// True if a line of the system of that name has pass=backward.
[[nodiscard]] inline bool is_backward(std::string_view system) { return system.ends_with(kBackward); }
/// The name of the system whose equation the passes share, as a line has it.
[[nodiscard]] inline std::string_view forward_name(std::string_view system) {
  return is_backward(system) ? system.substr(0, system.size() - kBackward.size()) : system;
}

/// The number of sequences of the case: those of a packed batch, else the batch.
[[nodiscard]] inline std::int64_t sequences_of(const Case& c) {
  return c.lengths.empty() ? c.B : static_cast<std::int64_t>(c.lengths.size());
}
/// The tokens of one sequence.
[[nodiscard]] inline std::int64_t tokens_of(const Case& c, std::int64_t sequence) {
  return c.lengths.empty() ? c.T : c.lengths[static_cast<std::size_t>(sequence)];
}
/// Where the packed sequences of the case start, and where the last one ends; tokens that belong to no
/// sequence are not counted.
[[nodiscard]] std::vector<std::int64_t> offsets_of(const Case& c);

/// Reads `v1 SYSTEM key=value ...`, with keys in any order. Throws Error that names the key or value, the
/// limit and the remedy: for another version, an unknown or repeated key, a value that does not parse, or a
/// line that is not a valid case (Resolved).
[[nodiscard]] Case parse_case(std::string_view line);

/// The canonical line: fixed order of keys, defaults omitted. parse_case(format_case(c)) == c.
[[nodiscard]] std::string format_case(const Case& c);

/// The largest number of elements of a tensor that a case may ask for (4 GiB of fp32).
inline constexpr std::int64_t kLargestCase = std::int64_t{1} << 30;

}  // namespace samestate
