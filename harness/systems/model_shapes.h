#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace samestate {

/// A standard shape of a system of named tensors; sizes that it does not name are the row's defaults.
struct ModelShape {
  std::string_view system;
  std::int64_t B, T;
  std::vector<std::pair<std::string_view, std::int64_t>> sizes;
  bool once = false;  ///< tried under one contract only: it tests indexing and not numerics
};

/// Widths of public models, at least one row per system, with a number of tokens for which data, CPU kernel
/// and judge take seconds: the running error of a layer costs about a hundred times as much as its kernel.
[[nodiscard]] std::span<const ModelShape> model_shapes();

/// Widths of the keys and values of one head of the recurrent family.
struct HeadWidths {
  std::int64_t dk, dv;
};

/// The widths in public models: 128 in Qwen3-Next and Kimi, 64 in RWKV, 256 in Gated DeltaNet, and others in
/// between.
[[nodiscard]] std::span<const HeadWidths> head_widths();

/// Calls of the recurrent family that every plan contains. Each covers faults that no pair of factors finds.
struct FamilyCall {
  enum class Tried : std::uint8_t {
    every_regime,    ///< with the data of each regime in turn
    one_contract,    ///< under one contract each, in turn
    divided_as_well  ///< the same, and also by kernels of a form over ranks
  };
  Tried tried;
  std::string_view part;  ///< part of a case line; keys that it does not name have the row's values
};

/// Whole chunks of 64 tokens, more than 64 tokens in a chunk, and several such chunks; packed prompts, one of
/// which is longer than a chunk; prompts followed by tokens; more than eight sequences; two or three value
/// heads per key head, and more than 64.
[[nodiscard]] std::span<const FamilyCall> family_calls();

}  // namespace samestate
