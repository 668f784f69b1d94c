#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A key of the case line for a person: what stands beside its row in the table of keys.
struct KeyWords {
  std::string_view name;
  std::string_view takes;  ///< which values
  std::string_view means;
};

/// One for each row of keys(), in its order.
[[nodiscard]] std::span<const KeyWords> key_words();

/// A key in words, or a size that a system alone has, as pages and programs read it.
struct KeyRow {
  std::string name;
  std::string
      of;  ///< whose lines have it: "every system", "the recurrent family", .., or the name of one system
  std::string takes;
  std::string
      standard;  ///< the default: a value, the name of another key whose value it is, or empty where it says nothing
  std::string means;
};

/// Every key, in the order of canonical lines: the sizes of single systems stand between the other sizes and the contract.
[[nodiscard]] std::vector<KeyRow> key_rows();

/// The grammar: version, order, every key with its values, default and meaning, the sizes that systems have of their
/// own, the grammar of filters. The page docs/lookup/case-line.md.
[[nodiscard]] std::string case_line_markdown();

}  // namespace samestate
