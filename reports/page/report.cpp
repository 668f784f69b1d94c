#include "reports/page/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "reference/error.h"
#include "reports/records/files.h"
#include "reports/text/csv.h"

namespace samestate {

namespace {

/// Readers would mistake tables and plots of an earlier report in this folder for this report's.
void remove_stale(const std::filesystem::path& folder, const std::vector<std::string>& written) {
  std::error_code code;
  std::vector<std::string> old = {"points.csv", "profiles.csv", "cases.csv", "timings.csv"};
  for (const auto& entry : std::filesystem::directory_iterator(folder / "plots", code)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("plot-") && name.ends_with(".svg")) old.push_back("plots/" + name);
  }
  for (const std::string& name : old) {
    if (std::find(written.begin(), written.end(), name) == written.end())
      std::filesystem::remove(folder / name, code);
  }
}

}  // namespace

ReportFiles write_report(const std::filesystem::path& folder, const ReportInput& input, bool plots) {
  std::error_code code;
  if (std::filesystem::exists(folder, code) && !std::filesystem::is_directory(folder, code))
    throw Error(fmt::format("{}: is a file; name a folder", folder.string()));
  const ReportData data = report_data(input);
  const std::vector<Figure> figures = figures_of(data);
  const std::vector<std::string> svgs = plots ? draw(figures) : std::vector<std::string>();
  ReportFiles files;
  const auto write = [&](const std::string& name, const std::string& text) {
    write_atomically(folder / name, text);
    files.names.push_back(name);
  };
  const std::string page = html_text(input, data, svgs);
  files.page_bytes = static_cast<std::int64_t>(page.size());
  write("index.html", page);
  const std::array tables = {points_table(data.points, data.names), profiles_table(data.points),
                             cases_table(data.records), timings_table(data.timings)};
  for (const DataTable& table : tables) {
    if (!table.rows.empty()) write(table.name + ".csv", csv_text(table));
  }
  write("report.json", json_text(tables));
  for (std::size_t i = 0; i < svgs.size(); ++i) {
    if (svgs[i].empty()) continue;
    write("plots/" + figures[i].id + ".svg", svg_file(svgs[i]));
    ++files.plots;
  }
  remove_stale(folder, files.names);
  files.points = std::ssize(data.points);
  files.cases = std::ssize(data.records);
  files.timings = std::ssize(data.timings);
  return files;
}

}  // namespace samestate
