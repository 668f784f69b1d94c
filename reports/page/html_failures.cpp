#include <fmt/format.h>

#include <algorithm>

#include "reports/page/html.h"
#include "reports/page/html_table.h"
#include "reports/records/failure_groups.h"
#include "reports/records/summary.h"

/// Failures of the gate by kind: kernel, form, law and likely cause.
namespace samestate {
namespace {

constexpr std::size_t kMostKinds = 200;

}  // namespace

std::string html_failures(const ReportData& data) {
  const std::vector<FailureGroup> groups = failure_groups(data.records);
  if (groups.empty()) return "";
  std::int64_t cases = 0;
  for (const FailureGroup& group : groups) cases += group.cases;
  HtmlTable table({{"example"},
                   {"cases", true},
                   {"likely cause"},
                   {"only with", false, "keys that each of them has and no case of the kernel that passed"},
                   {"kernel"},
                   {"form"},
                   {"law"},
                   {"largest ratio", true, "error over bound; above 1 fails"},
                   {"what was found"},
                   {"repeat with"}},
                  /*stacked=*/true);
  for (std::size_t i = 0; i < std::min(kMostKinds, groups.size()); ++i) {
    const FailureGroup& group = groups[i];
    const Record& r = data.records[group.example];
    table.row();
    table.copy(repro_command(r));
    table.count(group.cases);
    table.text(group.cause, fmt::format("{} cause", tone_of(r.judgement.verdict)));
    table.text(group.only);
    table.text(group.kernel);
    table.text(group.form);
    table.text(group.law);
    table.number(group.largest);
    table.text(judgement_line(r.judgement), "wide");
    table.command(repro_command(r));
  }
  return fmt::format(
             "<h3 id=\"failures\">Failures</h3>\n<p>{} cases of {} kinds: of each kernel, form, law and "
             "likely cause the "
             "case with "
             "the fewest elements.</p>\n",
             cases, groups.size()) +
         table.html(groups.size() > 10);
}

}  // namespace samestate
