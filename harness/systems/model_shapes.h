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

/// What every regime of the recurrent family meets: whole chunks of 64 tokens and more than 64 in one, several of them, widths
/// of models, more value heads than key heads, packed. Parts of case lines.
[[nodiscard]] std::span<const std::string_view> regime_calls();

/// Calls of the recurrent family as models make them, parts of case lines: heads of their widths, chunks of 64 and
/// 128 tokens and more than one of them, packed prompts of which one is longer than a chunk, prompts that are followed
/// by tokens, more value heads than 64. Each is tried under one contract, they take turns.
[[nodiscard]] std::span<const std::string_view> family_calls();

/// Calls as they are served, likewise: more sequences than eight, some of several chunks, more than one key head, with two or three
/// value heads each. Forms over ranks have them too.
[[nodiscard]] std::span<const std::string_view> served_calls();

}  // namespace samestate
