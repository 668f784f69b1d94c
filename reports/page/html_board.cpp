#include "reports/page/html_board.h"

#include <fmt/format.h>

#include "reports/page/html.h"
#include "reports/page/html_table.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

std::string changes_section(const std::vector<BoardChange>& changes) {
  std::string out = "<section id=\"changes\"><h2>What changed</h2>\n";
  if (changes.empty()) return out + "<p>Nothing.</p></section>\n";
  HtmlTable table({{"change"}, {"kernel"}, {"device"}, {"contract"}}, /*stacked=*/true);
  for (const BoardChange& c : changes) {
    table.row();
    table.text(c.text, c.worse ? "bad wide" : "wide");
    for (const std::string* text : {&c.kernel, &c.device, &c.contract}) table.text(*text);
  }
  return out + table.html(changes.size() > 10) + "</section>\n";
}

std::string rows_section(const Board& board) {
  HtmlTable table({{"kernel"},
                   {"versions"},
                   {"device"},
                   {"contract"},
                   {"card", false, "exact: the twin gates; nearest: the distance to it is reported"},
                   {"cases", true},
                   {"pass", true},
                   {"fail", true},
                   {"vacuous", true, "nothing could be judged: no pass"},
                   {"unsupported", true, "outside of what the kernel takes"},
                   {"median ratio", true, "error over bound, of the cases that passed"},
                   {"worst", true, "of the cases that passed and of the failures"},
                   {"beyond the twin", true},
                   {"date"},
                   {"the worst"}});
  for (const BoardRow& row : board.rows) {
    table.row();
    table.text(row.kernel, row.failed > 0 ? "bad" : "good");
    table.text(row.versions, "wide");
    table.text(row.device);
    table.text(row.contract, "wide");
    table.text(row.nearest() ? "nearest" : "exact");
    for (const std::int64_t count : {row.cases, row.passed, row.failed, row.vacuous, row.unsupported})
      table.count(count);
    table.measured(row.median);
    table.measured(row.worst);
    table.count(row.beyond);
    table.text(row.date);
    table.copy(row.worst_line);
  }
  return "<section id=\"kernels\"><h2>Kernels</h2>\n" + table.html(board.rows.size() > 10) + "</section>\n";
}

std::string defects_section(const Board& board) {
  HtmlTable table({{"example"},
                   {"kernel"},
                   {"device"},
                   {"contract"},
                   {"of"},
                   {"cases", true},
                   {"what was found"},
                   {"line"}},
                  /*stacked=*/true);
  for (const BoardRow& row : board.rows) {
    for (const BoardDefect& d : row.defects) {
      const std::string line = d.lines.empty() ? "" : d.lines.front();
      table.row();
      table.copy(line);
      table.text(row.newest ? row.kernel
                            : fmt::format("{}, an older version ({})", row.kernel, row.versions));
      for (const std::string* text : {&row.device, &row.contract, &d.what}) table.text(*text);
      table.count(std::ssize(d.lines));
      table.text(d.reason, "wide");
      table.command(line);
    }
  }
  if (table.empty()) return "";
  return "<section id=\"defects\"><h2>Known defects</h2>\n" + table.html() + "</section>\n";
}

}  // namespace

std::string board_html(const Board& board, const std::vector<BoardChange>& changes, bool compared,
                       const std::string& title) {
  std::string sections = compared ? changes_section(changes) : "";
  sections += rows_section(board) + defects_section(board);
  std::string notes;
  for (const std::string& note : board.notes) notes += "<li>" + html_escaped(note) + "</li>";
  return html_page(
      {.title = title,
       .made_by = notes.empty() ? ""
                                : fmt::format("<details><summary>Runs that were cut off, or cover little "
                                              "<span class=\"dim\">{} files</span></summary><ul "
                                              "class=\"runs\">{}</ul></details>\n",
                                              board.incomplete, notes),
       .sections = sections,
       .links = {{"changes", "What changed"}, {"kernels", "Kernels"}, {"defects", "Known defects"}}});
}

}  // namespace samestate
