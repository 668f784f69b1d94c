#pragma once

#include <algorithm>
#include <cstdint>

/// In which order a kernel takes a softmax, which moves where its weights are stored but not their number.
namespace samestate {

/// Keys of the call under evaluation that lie behind those that are given, as where only some of its tokens are judged: a kernel
/// divides all keys of a call into parts, of those too that a causal mask hides from the tokens.
class KeysBehind {
 public:
  explicit KeysBehind(std::int64_t keys) : before_(count()) { count() = keys; }
  ~KeysBehind() { count() = before_; }
  KeysBehind(const KeysBehind&) = delete;
  KeysBehind& operator=(const KeysBehind&) = delete;

  /// The number that this thread's evaluations see.
  static std::int64_t& count() {
    thread_local std::int64_t keys = 0;
    return keys;
  }

 private:
  std::int64_t before_;
};

struct SoftmaxOrder {
  bool divides_last = false;     ///< weights are stored before they are divided by their sum,
  std::int64_t key_tile = 0;     ///< and under the largest score of so many keys and those before; 0: of all
  double lazy_by = 0.0;          ///< a score raises the running maximum where it exceeds it by more than this
  bool last_keys_first = false;  ///< tiles of keys are taken from the last to the first
  /// Keys are taken in so many parts of whole tiles (flash decoding), or in parts of so many keys, each under a maximum of its own;
  /// sums and values of the parts are merged in fp32, by e^(m_i - m). 0: all keys are one part.
  std::int64_t parts = 0;
  std::int64_t keys_a_part = 0;
  bool largest_of_part =
      false;  ///< weights are stored under the largest score of their part, not of its tiles so far

  /// Keys of one part where `keys` are given: a multiple of key_tile, which has to be set; 0: all.
  [[nodiscard]] std::int64_t part_of(std::int64_t keys) const {
    if (keys_a_part > 0) return keys_a_part;
    if (parts < 2 || key_tile < 1) return 0;
    const std::int64_t tiles = (keys + KeysBehind::count() + key_tile - 1) / key_tile;
    return std::max<std::int64_t>((tiles + parts - 1) / parts, 1) * key_tile;
  }
  /// Keys that are stored under one maximum; 0: all.
  [[nodiscard]] std::int64_t tile_of(std::int64_t keys) const {
    return largest_of_part ? part_of(keys) : key_tile;
  }

  friend bool operator==(const SoftmaxOrder&, const SoftmaxOrder&) = default;
};

}  // namespace samestate
