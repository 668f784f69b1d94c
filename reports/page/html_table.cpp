#include "reports/page/html_table.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "reports/text/escape.h"

namespace samestate {

std::string_view tone_of(Verdict verdict) {
  if (is_failure(verdict)) return "tag bad";
  return verdict == Verdict::pass ? "tag good" : "tag warn";
}

std::string short_number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "∞" : "-∞";
  return fmt::format("{:.4g}", value);
}

void HtmlTable::row(std::string_view css_class) {
  if (rows_ > 0) body_ += "</tr>\n";
  ++rows_;
  column_ = 0;
  body_ += css_class.empty() ? "<tr>" : fmt::format("<tr class=\"{}\">", html_escaped(css_class));
}

void HtmlTable::open_cell() {
  const std::size_t column = column_++;
  body_ += stacked_ && column < columns_.size()
               ? fmt::format("<td data-column=\"{}\"", html_escaped(columns_[column].name))
               : "<td";
}

void HtmlTable::text(std::string_view value, std::string_view css_class) {
  open_cell();
  if (css_class.empty()) {
    body_ += fmt::format(">{}</td>", html_escaped(value));
  } else {
    body_ += fmt::format("><span class=\"{}\">{}</span></td>", html_escaped(css_class), html_escaped(value));
  }
}

void HtmlTable::number(double value) {
  open_cell();
  body_ += fmt::format(" class=\"n\" data-v=\"{}\">{}</td>", value, short_number(value));
}

void HtmlTable::count(std::int64_t value) {
  open_cell();
  body_ += fmt::format(" class=\"n\" data-v=\"{}\">{}</td>", value, value);
}

void HtmlTable::measured(double value) {
  if (std::isnan(value)) {
    open_cell();
    body_ += " class=\"n\" data-v=\"nan\">-</td>";
  } else {
    number(value);
  }
}

void HtmlTable::linked(double value, std::int64_t point) {
  if (point < 0) {
    measured(std::numeric_limits<double>::quiet_NaN());
    return;
  }
  open_cell();
  body_ += fmt::format(" class=\"n\" data-v=\"{}\"><button class=\"v\" data-point=\"{}\">{}</button></td>",
                       value, point, short_number(value));
}

void HtmlTable::command(std::string_view command) {
  open_cell();
  body_ += fmt::format(" class=\"c\"><code>{}</code></td>", html_escaped(command));
}

void HtmlTable::copy(std::string_view command) {
  open_cell();
  body_ += fmt::format(" class=\"c\"><button class=\"v\" data-copy=\"{}\">copy</button></td>",
                       html_escaped(command));
}

std::string HtmlTable::html(bool filter) const {
  std::string out = "<div class=\"table\">\n";
  if (filter)
    out +=
        "<label class=\"filter\">Rows that hold <input type=\"search\" placeholder=\"for example bf16 "
        "slow\"></label>\n";
  out += fmt::format("<div class=\"scroll\"><table{}>\n<thead><tr>", stacked_ ? " class=\"stacked\"" : "");
  for (const Column& column : columns_) {
    out += fmt::format("<th{}{}><button>{}</button></th>", column.number ? " class=\"n\"" : "",
                       column.hint.empty() ? "" : fmt::format(" title=\"{}\"", html_escaped(column.hint)),
                       html_escaped(column.name));
  }
  out += "</tr></thead>\n<tbody>\n" + body_ + (rows_ > 0 ? "</tr>\n" : "") + "</tbody></table></div>\n";
  // A hint shows under a pointer alone, which a telephone and a printed page do not have.
  std::string words;
  for (const Column& column : columns_) {
    if (!column.hint.empty())
      words += fmt::format("<dt>{}</dt><dd>{}</dd>\n", html_escaped(column.name), html_escaped(column.hint));
  }
  if (!words.empty())
    out += "<details class=\"hints\"><summary>What the columns say</summary><dl>\n" + words +
           "</dl></details>\n";
  return out + "</div>\n";
}

}  // namespace samestate
