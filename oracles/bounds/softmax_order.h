#pragma once

#include <algorithm>
#include <cstdint>

/// The order in which a kernel evaluates a softmax. It determines where weights are stored, but not how many.
namespace samestate {

/// The number of keys of the call under evaluation that follow the given ones, for calls of which only some
/// tokens are judged: a kernel divides all keys of a call into parts, including those that a causal mask
/// hides from these tokens.
class KeysBehind {
 public:
  explicit KeysBehind(std::int64_t keys) : before_(count()) { count() = keys; }
  ~KeysBehind() { count() = before_; }
  KeysBehind(const KeysBehind&) = delete;
  KeysBehind& operator=(const KeysBehind&) = delete;

  /// The number that evaluations on this thread see.
  static std::int64_t& count() {
    thread_local std::int64_t keys = 0;
    return keys;
  }

 private:
  std::int64_t before_;
};

struct SoftmaxOrder {
  bool divides_last = false;  ///< weights are stored before they are divided by their sum
  std::int64_t key_tile = 0;  ///< and under the largest score of so many keys and the earlier ones; 0 for all
  double lazy_by = 0.0;       ///< a score raises the running maximum only if it exceeds it by more than this
  bool last_keys_first = false;  ///< tiles of keys are taken from the last to the first
  /// Keys are divided into this number of parts of whole tiles (flash decoding), or into parts of this many
  /// keys, each with a maximum of its own; sums and values of the parts are merged in fp32, by e^(m_i - m). 0
  /// means that all keys are one part.
  std::int64_t parts = 0;
  std::int64_t keys_a_part = 0;
  bool largest_of_part =
      false;  ///< weights are stored under the largest score of their part, not of the tiles so far

  /// The number of keys in one part if `keys` are given: a multiple of key_tile, which has to be set; 0 means
  /// all.
  [[nodiscard]] std::int64_t part_of(std::int64_t keys) const {
    if (keys_a_part > 0) return keys_a_part;
    if (parts < 2 || key_tile < 1) return 0;
    const std::int64_t tiles = (keys + KeysBehind::count() + key_tile - 1) / key_tile;
    return std::max<std::int64_t>((tiles + parts - 1) / parts, 1) * key_tile;
  }
  /// The number of keys that are stored under one maximum; 0 means all.
  [[nodiscard]] std::int64_t tile_of(std::int64_t keys) const {
    return largest_of_part ? part_of(keys) : key_tile;
  }

  friend bool operator==(const SoftmaxOrder&, const SoftmaxOrder&) = default;
};

}  // namespace samestate
