#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/verdict.h"

/// Pieces of the page. All text from a record goes through `html_escaped`.
namespace samestate {

/// The class of a verdict's tag: good, bad for what a reader must look at, warn for what was not judged.
[[nodiscard]] std::string_view tone_of(Verdict verdict);

/// Four significant digits, for a person. The full value is in the attribute that sorting uses.
[[nodiscard]] std::string short_number(double value);

/// A table that sorts when a header is clicked.
class HtmlTable {
 public:
  struct Column {
    std::string name;
    bool number = false;
    std::string hint = {};  ///< the meaning of the column, shown as a tooltip
  };

  /// `stacked`: on a telephone each row becomes a block, with its cells below one another after the names of
  /// their columns, and nothing scrolls sideways; for tables with few and long rows.
  explicit HtmlTable(std::vector<Column> columns, bool stacked = false)
      : columns_(std::move(columns)), stacked_(stacked) {}

  /// Starts a row; the cells follow in the order of the columns.
  void row(std::string_view css_class = {});
  void text(std::string_view value, std::string_view css_class = {});
  void number(double value);
  void count(std::int64_t value);
  /// A number that may be missing: "-" for NaN.
  void measured(double value);
  /// The value of a point as a button that copies its case; without a button for -1.
  void linked(double value, std::int64_t point);
  /// The full command of a case.
  void command(std::string_view command);
  /// A button that copies the command.
  void copy(std::string_view command);

  [[nodiscard]] bool empty() const { return rows_ == 0; }
  /// The table in a box that scrolls sideways in a narrow window. `filter` adds a field that hides rows.
  [[nodiscard]] std::string html(bool filter = false) const;

 private:
  /// Starts a cell; the tag stays open for attributes.
  void open_cell();

  std::vector<Column> columns_;
  bool stacked_;
  std::size_t column_ = 0;  ///< the column of the next cell
  std::string body_;
  std::int64_t rows_ = 0;
};

}  // namespace samestate
