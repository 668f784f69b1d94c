#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/case_line.h"

namespace samestate {

/// Which case lines have a key: those of every system; of the recurrent family, in its forward pass only or in
/// both; of backward passes, of those with the cotangents of two kinds of outputs, or of systems that have one; of
/// systems with packed batches; or of layers whose stages are judged.
enum class KeyOf { every, family_forward, family, backward, two_cotangents, passes, packed, layers };

/// Everything that is known of one key of the case line; a new key is a row here.
struct Key {
  std::string_view name;
  KeyOf of = KeyOf::family;
  /// Sets the member from the value in a line. Throws Error that names key, value, limit and remedy. Resolved
  /// also uses it to check the values of cases that were made in code.
  void (*parse)(Case& c, std::string_view value) = nullptr;
  /// The value as a line has it, default or not; empty if the key says nothing (no law, no scale of its own).
  std::string (*value)(const Case& c) = nullptr;
  /// The values that shrinking may try instead, the boldest first; each changes one member only. Keys that
  /// depend on each other (form, T and chunk, heads) have their steps in fuzz/search/shrink_steps.cpp.
  std::vector<Case> (*smaller)(const Case& c) = nullptr;
  bool setting = false;  ///< not a size: a person has to keep it in mind, so leaving it out is an improvement
  std::vector<std::string_view> values = {};  ///< values that plans and drawers may use besides the default
  std::int64_t odds = 0;                      ///< one in this many drawn cases uses one of them
  std::int64_t Case::*size = nullptr;         ///< the member, for keys that are sizes of tensors
  /// The default if it depends on other keys (T, Hv, dv); null if it is that of an empty line.
  std::int64_t (*standard)(const Case& c) = nullptr;

  /// The value; empty if it is the default, which the canonical line omits.
  [[nodiscard]] std::string print(const Case& c) const;
};

/// All keys in canonical order, without the sizes that only one system has.
[[nodiscard]] std::span<const Key> keys();

/// Null if there is none of that name.
[[nodiscard]] const Key* key_named(std::string_view name);

/// The keys that belong to `every` system or to one of these, in canonical order.
[[nodiscard]] std::vector<std::string_view> keys_of(std::initializer_list<KeyOf> those);

/// Sets the keys of a part of a line, such as "dk=3 dv=70", in the case, including sizes that only its system
/// has. Throws Error for what does not parse; Resolved decides if the result is a valid case.
[[nodiscard]] Case with_keys(Case c, std::string_view part);

/// The size of that name: the system's own if the case has one, else that of the key. Throws Error if there
/// is none.
[[nodiscard]] std::int64_t& size_in(Case& c, std::string_view name);
[[nodiscard]] const std::int64_t& size_in(const Case& c, std::string_view name);

/// Returns a hint for an unknown key: "; perhaps contract=", found by the names that other programs have for
/// keys (dtype, batch_size, seq_len ..) and by similar spelling among `known`; empty if nothing is similar.
[[nodiscard]] std::string meant_key(std::string_view name, std::span<const std::string_view> known);

/// Reads a whole number of the line. Throws Error.
[[nodiscard]] std::int64_t whole_number(std::string_view key, std::string_view text, std::int64_t least,
                                        std::int64_t most);

/// The largest number of ranks that a line may ask for.
inline constexpr std::int64_t kMostRanks = 4096;

/// The largest extent of a tensor that a line may ask for.
inline constexpr std::int64_t kLargestExtent = std::int64_t{1} << 24;

}  // namespace samestate
