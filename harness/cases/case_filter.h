#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "harness/cases/case_line.h"

namespace samestate {

/// Conditions on one key of the case line, any of which is enough: "T=64..4096", "contract=bf16,fp32".
struct KeyCondition {
  struct Value {
    std::string text;  ///< a name, or a pattern with * and ?; as in the line, or "none"
    bool range = false;
    double least = 0.0, most = 0.0;  ///< for a range, including both ends
  };
  std::string key;
  std::vector<Value> any;

  /// False if the case has no such key (dk of rms_norm, chunk of a form without chunks).
  [[nodiscard]] bool holds(const Case& c, std::string_view kernel) const;
};

/// Selects the cases that a verb works on, with one grammar for every field of the case line.
///   CONDITION   KEY=VALUE[,VALUE...]: any of the values
///   VALUE       a name or a pattern (*, ?); a number; a range A..B, A.. or ..B including its ends; none: not in the line
///   KEY         system, kernel, a key of the table of keys, or a size that only one system has
/// Several conditions in one text, separated by blanks, must all hold.
class CaseFilter {
 public:
  /// Keeps the cases that fulfil the text; if called several times, all texts must hold. Throws Error that
  /// says what is wrong in it, what is known and the remedy; `option` is the name of the option in messages.
  void where(std::string_view text, std::string_view option = "--where");
  /// Drops the cases that fulfil the text; if called several times, any of them. Throws Error as where does.
  void exclude(std::string_view text, std::string_view option = "--exclude");

  [[nodiscard]] bool empty() const { return kept_.empty() && dropped_.empty(); }
  /// True if a condition is about the kernel, which a line need not name.
  [[nodiscard]] bool reads_kernel() const;
  /// `kernel` is the one that the case runs on; it may be empty unless reads_kernel().
  [[nodiscard]] bool takes(const Case& c, std::string_view kernel = {}) const;
  /// The conditions that must hold, without those of exclude().
  [[nodiscard]] const std::vector<KeyCondition>& conditions() const { return kept_; }
  /// The filter as one would type it, for messages and fingerprints; empty if nothing is filtered.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::vector<KeyCondition> kept_;
  std::vector<std::vector<KeyCondition>> dropped_;
  std::string text_;
};

/// True if `name` is among `names`: NAME[,NAME...], which may include patterns with * and ?; an empty list
/// includes every name.
[[nodiscard]] bool is_among(std::string_view names, std::string_view name);
/// The entries that are names and not patterns.
[[nodiscard]] std::vector<std::string_view> plain_names(std::string_view names);

/// The names that a condition may use: system, kernel, keys, sizes of all systems; in the order of a line.
[[nodiscard]] std::vector<std::string_view> filter_keys();

/// The names that stand for a table row: of systems, forms, contracts, regimes or laws. Empty for any other
/// key.
[[nodiscard]] std::vector<std::string_view> known_values(std::string_view key);

}  // namespace samestate
