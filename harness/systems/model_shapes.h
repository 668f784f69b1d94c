#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace samestate {

/// A standard shape of a system of named tensors; sizes that it does not name are the row's standard ones.
struct ModelShape {
  std::string_view system;
  std::int64_t B, T;
  std::vector<std::pair<std::string_view, std::int64_t>> sizes;
  bool once = false;  ///< under one contract: for its index, not for its numbers
};

/// Widths of public models, a row or more a system, and so many tokens that data, CPU kernel and judge take
/// seconds: the running error of a layer costs some hundred times what its kernel does.
[[nodiscard]] std::span<const ModelShape> model_shapes();

/// Widths of the keys and values of one head of the recurrent family.
struct HeadWidths {
  std::int64_t dk, dv;
};

/// Those of public models: Qwen3-Next's and Kimi's 128, RWKV's 64, Gated DeltaNet's 256, and others between.
[[nodiscard]] std::span<const HeadWidths> head_widths();

/// Calls of the recurrent family that every plan contains. Each stands for faults that no pair of factors finds.
struct FamilyCall {
  enum class Tried : std::uint8_t {
    every_regime,    ///< with the data of every regime in turn
    one_contract,    ///< under one contract, in turn
    divided_as_well  ///< the same, and by kernels of a form over ranks too
  };
  Tried tried;
  std::string_view part;  ///< of a case line; what it does not name is the row's
};

/// Whole chunks of 64 tokens, more than 64 in one and several of them; packed prompts of which one is longer than a chunk; prompts
/// that are followed by tokens; more sequences than eight; two or three value heads a key head, and more than 64.
[[nodiscard]] std::span<const FamilyCall> family_calls();

}  // namespace samestate
