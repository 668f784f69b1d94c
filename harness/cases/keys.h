#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/case_line.h"

namespace samestate {

/// Whose case lines have a key: every system's, the recurrent family's alone, those of systems with packed batches, or those of layers
/// whose stages are judged.
enum class KeyOf { every, family, packed, layers };

/// One key of the case line, all that is known of it: a new key is a row here.
struct Key {
  std::string_view name;
  KeyOf of = KeyOf::family;
  /// Sets the member from the value of a line. Throws Error that names key, value, limit and remedy; of a case
  /// that was made in code too, whose values Resolved has read again.
  void (*parse)(Case& c, std::string_view value) = nullptr;
  /// The value as a line has it, default or not; empty where the key says nothing (no law, no scale of its own).
  std::string (*value)(const Case& c) = nullptr;
  /// What shrinking may put in its place, boldest first; each needs one member alone to change. Keys that
  /// hang together (form, T and chunk, heads) have their steps in fuzz/search/shrink_steps.cpp.
  std::vector<Case> (*smaller)(const Case& c) = nullptr;
  bool setting = false;  ///< no size: a person has to keep it in mind, so that its absence is a gain
  std::vector<std::string_view> values = {};  ///< what plans and drawers may put, beside the default
  std::int64_t odds = 0;                      ///< one drawn case in so many takes one of them
  std::int64_t Case::*size = nullptr;         ///< the member, of keys that are sizes of tensors
  /// The default where it hangs on other keys (T, Hv, dv); null: that of an empty line.
  std::int64_t (*standard)(const Case& c) = nullptr;

  /// The value; empty at the default, which the canonical line omits.
  [[nodiscard]] std::string print(const Case& c) const;
};

/// All of them but the sizes that a system alone has, in canonical order.
[[nodiscard]] std::span<const Key> keys();

/// Null where there is none of that name.
[[nodiscard]] const Key* key_named(std::string_view name);

/// The keys of a system of named tensors, `layer`: whose stages are judged, `packed`: with packed batches; and those of the recurrent
/// family, in canonical order.
[[nodiscard]] std::vector<std::string_view> common_keys(bool layer = false, bool packed = false);
[[nodiscard]] std::vector<std::string_view> family_keys();

/// The keys of a part of a line, as "dk=3 dv=70", put into the case; sizes that are keys of their own too.
/// Throws Error for what does not parse; whether the result is a case, Resolved says.
[[nodiscard]] Case with_keys(Case c, std::string_view part);

/// The size of that name: the system's own where the case has one, else the key's. Throws Error where it has
/// none.
[[nodiscard]] std::int64_t& size_in(Case& c, std::string_view name);
[[nodiscard]] const std::int64_t& size_in(const Case& c, std::string_view name);

/// For an unknown key: "; perhaps contract=", by the names that other programs have for keys (dtype, batch_size, seq_len ..)
/// and by what is spelt nearly alike among `known`; empty where nothing is near.
[[nodiscard]] std::string meant_key(std::string_view name, std::span<const std::string_view> known);

/// A whole number of the line. Throws Error.
[[nodiscard]] std::int64_t whole_number(std::string_view key, std::string_view text, std::int64_t least,
                                        std::int64_t most);

/// The most ranks that a line may ask for.
inline constexpr std::int64_t kMostRanks = 4096;

/// The largest extent of a tensor that a line may ask for.
inline constexpr std::int64_t kLargestExtent = std::int64_t{1} << 24;

}  // namespace samestate
