#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {

/// A key of the case line in words, one for each row of the table of keys.
struct KeyWords {
  std::string_view name;
  std::string_view takes;  ///< the values it takes
  std::string_view means;
};

/// One for each row of keys(), in its order.
[[nodiscard]] std::span<const KeyWords> key_words();

/// A key in words, or a size that only one system has, as pages and programs read it.
struct KeyRow {
  std::string name;
  std::string
      of;  ///< the systems whose lines have it: "every system", "the recurrent family", .., or the name of
           ///< one system
  std::string takes;
  std::string
      standard;  ///< the default: a value, the name of another key whose value it takes, or empty if the line
                 ///< then says nothing
  std::string means;
};

/// Every key, in the order of canonical lines: the sizes of single systems come between the other sizes and
/// the contract.
[[nodiscard]] std::vector<KeyRow> key_rows();

/// The grammar as the page docs/case-line.md: version, order, every key with its values, default and meaning,
/// the sizes that single systems have, and the grammar of filters.
[[nodiscard]] std::string case_line_markdown();

}  // namespace samestate
