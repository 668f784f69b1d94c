#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/verdict.h"

/// Pieces of the page. Whatever comes from a record goes through `html_escaped`.
namespace samestate {

/// The class of a verdict's tag: good, bad for what a reader must look at, warn for what was not judged.
[[nodiscard]] std::string_view tone_of(Verdict verdict);

/// Four significant digits: what a person reads. The full value stands in the attribute that sorting uses.
[[nodiscard]] std::string short_number(double value);

/// A table that sorts when a head is clicked.
class HtmlTable {
 public:
  struct Column {
    std::string name;
    bool number = false;
    std::string hint = {};  ///< what the column means; shown where it is pointed at
  };

  /// `stacked`: on a telephone each row is a block, a cell below the other behind the name of its column, and nothing scrolls
  /// sideways; for tables of few and long rows.
  explicit HtmlTable(std::vector<Column> columns, bool stacked = false)
      : columns_(std::move(columns)), stacked_(stacked) {}

  /// A row begins; the cells follow in the order of the columns.
  void row(std::string_view css_class = {});
  void text(std::string_view value, std::string_view css_class = {});
  void number(double value);
  void count(std::int64_t value);
  /// A number that need not be there: "-" for NaN.
  void measured(double value);
  /// The value of a point, a button that copies its case; "-" for -1.
  void linked(double value, std::int64_t point);
  /// The command of a case, in full.
  void command(std::string_view command);
  /// A button that copies it.
  void copy(std::string_view command);

  [[nodiscard]] bool empty() const { return rows_ == 0; }
  /// In a box that scrolls sideways where the window is narrow. `filter` adds a field that hides rows.
  [[nodiscard]] std::string html(bool filter = false) const;

 private:
  /// A cell begins; the tag is open for attributes.
  void open_cell();

  std::vector<Column> columns_;
  bool stacked_;
  std::size_t column_ = 0;  ///< of the next cell
  std::string body_;
  std::int64_t rows_ = 0;
};

}  // namespace samestate
