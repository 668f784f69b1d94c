#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "reports/plots/plots_sweep.h"
#include "reports/plots/plots_timing.h"
#include "reports/records/evidence.h"
#include "reports/records/json_lines.h"

/// The page that a person reads.
namespace samestate {

/// A file of records and the name under which it is shown.
struct ReportSource {
  std::string name;
  RecordFile content;
};

/// Everything from which a report is made.
struct ReportInput {
  std::string title = "samestate report";
  std::vector<ReportSource> sources;
  std::set<std::string> sizes;  ///< the keys of case lines that are sizes of tensors
  std::vector<Evidence> evidence;
  std::vector<TimedEvidence> timings;    ///< from the evidence; those of the sources come after them
  std::string kernel_sources;            ///< the sources of this build; evidence from other sources is stale
  std::optional<std::string> mutants;    ///< JSON of `samestate mutants --json`
  std::optional<std::string> equations;  ///< JSON of `samestate equations --json`
};

/// The same, combined: points without those that were measured again, and all records.
struct ReportData {
  std::vector<std::string> names;
  std::vector<SweepPoint> points;
  std::vector<Record> records;
  std::vector<FigureGroup> groups;
  Figure ratios;
  std::vector<TimedEvidence> timings;
  std::vector<Figure> timing_figures;
};
[[nodiscard]] ReportData report_data(const ReportInput& input);

/// The figures in the order in which `html_text` expects their SVG.
[[nodiscard]] std::vector<Figure> figures_of(const ReportData& data);

/// One self-contained page; `svgs` are those of `figures_of`, or empty for a page without plots. The same
/// input gives the same bytes. Throws Error if the mutants or equations are not the expected JSON.
[[nodiscard]] std::string html_text(const ReportInput& input, const ReportData& data,
                                    const std::vector<std::string>& svgs);

/// A page around sections; it ends with the glossary words that all pages have.
struct PageParts {
  std::string title;
  std::string made_by = {};   ///< HTML for its head: what it was made from
  std::string sections = {};  ///< HTML
  std::vector<std::pair<std::string, std::string>> links =
      {};  ///< id and name of each section; a section that is not in the page has no entry
  std::string commands = "[]";  ///< JSON: the commands that the buttons of points copy
};
[[nodiscard]] std::string html_page(const PageParts& page);

/// Parts of the page, each a <section> or empty.
[[nodiscard]] std::string html_answers(const ReportInput& input, const ReportData& data);
[[nodiscard]] std::string html_sweep(const ReportData& data, const std::vector<std::string>& svgs);
[[nodiscard]] std::string html_points(const ReportData& data);
[[nodiscard]] std::string html_gate(const ReportData& data, const std::string& ratio_svg);
/// One row per kind of failure; empty if none failed.
[[nodiscard]] std::string html_failures(const ReportData& data);
[[nodiscard]] std::string html_evidence(const ReportInput& input, const std::string& timings);
/// For the first section: what came closest to its lower bound on each device.
[[nodiscard]] std::string html_fastest(const ReportData& data);
/// Not a section of its own, but the second half of the one on evidence.
[[nodiscard]] std::string html_timings(const ReportInput& input, const ReportData& data,
                                       const std::vector<std::string>& svgs);
[[nodiscard]] std::string html_listing(const std::string& json, const std::string& id,
                                       const std::string& title, const std::string& intro);
[[nodiscard]] std::string html_figure(const Figure& figure, const std::string& svg);

}  // namespace samestate
