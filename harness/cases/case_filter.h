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
    std::string text;  ///< a name, or a pattern with * and ?; as the line has it, or none
    bool range = false;
    double least = 0.0, most = 0.0;  ///< of a range, both ends belonging to it
  };
  std::string key;
  std::vector<Value> any;

  /// False where the case has no such key (dk of rms_norm, chunk of a form without chunks).
  [[nodiscard]] bool holds(const Case& c, std::string_view kernel) const;
};

/// Which cases a verb is about: one grammar for every field of the case line.
///   CONDITION   KEY=VALUE[,VALUE...]: any of the values
///   VALUE       a name or a pattern (*, ?); a number; a range A..B, A.. or ..B with both ends; none: not on the line
///   KEY         system, kernel, a key of the table of keys, or a size that a system alone has
/// Several conditions in one text, with blanks between them, must all hold.
class CaseFilter {
 public:
  /// Keeps the cases of which the text holds; of several texts all must. Throws Error that names what is wrong in
  /// it, what is known and the remedy; `option` is the name that it goes by there.
  void where(std::string_view text, std::string_view option = "--where");
  /// Drops the cases of which the text holds; of several any. Throws as where does.
  void exclude(std::string_view text, std::string_view option = "--exclude");

  [[nodiscard]] bool empty() const { return kept_.empty() && dropped_.empty(); }
  /// Whether a condition is about the kernel, which a line need not name.
  [[nodiscard]] bool reads_kernel() const;
  /// `kernel`: the one that the case runs on; may be empty unless reads_kernel().
  [[nodiscard]] bool takes(const Case& c, std::string_view kernel = {}) const;
  /// What must hold, beside what is excluded.
  [[nodiscard]] const std::vector<KeyCondition>& conditions() const { return kept_; }
  /// As one would type it, for messages and fingerprints; empty where nothing is filtered.
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::vector<KeyCondition> kept_;
  std::vector<std::vector<KeyCondition>> dropped_;
  std::string text_;
};

/// Whether `name` is among `names`: NAME[,NAME...], patterns with * and ? among them; every name is where there are none.
[[nodiscard]] bool is_among(std::string_view names, std::string_view name);
/// Those that are names, not patterns.
[[nodiscard]] std::vector<std::string_view> plain_names(std::string_view names);

/// The names that a condition may give: system, kernel, keys, sizes of all systems; in the order of a line.
[[nodiscard]] std::vector<std::string_view> filter_keys();

/// The names that stand for something in a table: of systems, forms, contracts, regimes or laws. Empty for another
/// key.
[[nodiscard]] std::vector<std::string_view> known_values(std::string_view key);

}  // namespace samestate
