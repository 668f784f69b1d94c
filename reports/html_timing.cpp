#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/html.h"
#include "reports/html_table.h"
#include "reports/summary.h"

/// What benches recorded: a table a device, and the plots.
namespace samestate {
namespace {

/// An empty cell where there is no number.
void measured(HtmlTable& table, double value) {
  if (std::isnan(value)) {
    table.linked(value, -1);
  } else {
    table.number(value);
  }
}

/// Whole microseconds above a thousand: nobody reads 1.235e+04.
void time_cell(HtmlTable& table, double seconds) {
  const double microseconds = 1e6 * seconds;
  if (microseconds >= 1000.0 && microseconds < 1e15) {
    table.count(std::llround(microseconds));
  } else {
    measured(table, microseconds);
  }
}

HtmlTable table_of(const ReportInput& input, const std::vector<TimedEvidence>& all,
                   const std::string& device) {
  constexpr double kPercent = 100.0;
  HtmlTable table({{"case"},
                   {"kernel"},
                   {"contract"},
                   {"B", true, "sequences"},
                   {"T", true, "tokens of each"},
                   {"heads", false, "of keys/of values"},
                   {"dk x dv"},
                   {"chunk", true},
                   {"verdict", false, "of what the last timed call wrote; a wrong kernel has no time"},
                   {"judged", false, "(sequence, head) pairs that the oracle judged, of all"},
                   {"median, us", true},
                   {"p10, us", true},
                   {"p90, us", true},
                   {"timed", false,
                    "events or graph: launches alone, by the device's clock; call: the wall clock around a "
                    "whole call, with copies to a device"},
                   {"memory floor, us", true, "bytes that every evaluation moves, over the rate of a copy"},
                   {"compute floor, us", true, "operations of this form, over the rate of a matrix product"},
                   {"of the floor, %", true, "the larger floor over the median: 100 is the best possible"},
                   {"peer"},
                   {"peer, us", true},
                   {"peer / kernel", true, "above 1 the kernel is faster than the peer"},
                   {"sources", false, "fresh while the kernel sources are those that ran"},
                   {"file"},
                   {"time again with"}});
  for (const TimedEvidence& e : all) {
    const TimedCase& t = e.timed;
    if (t.record.device != device) continue;
    const Verdict verdict = t.record.judgement.verdict;
    const bool fresh = e.kernel_sources == input.kernel_sources;
    table.row();
    table.copy(bench_command(t.record));
    table.text(t.record.kernel);
    table.text(t.record.contract);
    table.count(t.B);
    table.count(t.T);
    table.text(fmt::format("{}/{}", t.Hk, t.Hv));
    table.text(fmt::format("{}x{}", t.dk, t.dv));
    measured(table, t.chunk > 0 ? static_cast<double>(t.chunk) : std::numeric_limits<double>::quiet_NaN());
    table.text(name_of(verdict), verdict == Verdict::pass                                ? "tag good"
                                 : verdict == Verdict::fail || verdict == Verdict::crash ? "tag bad"
                                                                                         : "tag warn");
    table.text(fmt::format("{}/{}", t.heads_judged, t.heads));
    for (const double value : {t.time.median, t.time.p10, t.time.p90}) time_cell(table, value);
    table.text(t.timed);
    time_cell(table, t.memory_floor);
    time_cell(table, t.compute_floor);
    measured(table, kPercent * t.share);
    table.text(t.peer.empty() ? t.peer_note : t.peer);
    time_cell(table, t.peer_time.median);
    measured(table, t.peer_ratio);
    // The hash is of the CUDA kernels.
    if (device == "cpu") {
      table.text("-");
    } else {
      table.text(fresh ? "fresh" : "stale", fresh ? "tag good" : "tag warn");
    }
    table.text(e.file);
    table.command(bench_command(t.record));
  }
  return table;
}

/// Rates of a device, as its runs measured them; what several runs say alike stands once.
std::string ceilings_of(const std::vector<TimedEvidence>& all, const std::string& device) {
  std::vector<std::string> lines;
  for (const TimedEvidence& e : all) {
    const TimedCase& t = e.timed;
    if (t.record.device != device || t.ceilings.empty()) continue;
    const std::string line = html_escaped(fmt::format("{}: {}", e.file, t.ceilings));
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
  }
  std::string out;
  for (const std::string& line : lines) out += "<li>" + line + "</li>";
  return out.empty() ? out : "<ul class=\"runs\">" + out + "</ul>\n";
}

std::vector<std::string> devices_of(const std::vector<TimedEvidence>& all) {
  std::vector<std::string> devices;
  for (const TimedEvidence& e : all) {
    const std::string& device = e.timed.record.device;
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) devices.push_back(device);
  }
  return devices;
}

}  // namespace

std::string html_fastest(const ReportData& data) {
  if (data.timings.empty()) return "";
  std::string out = "<h3>How fast?</h3>\n";
  for (const std::string& device : devices_of(data.timings)) {
    std::int64_t cases = 0;
    std::int64_t untimed = 0;
    std::int64_t best = -1;
    for (std::size_t i = 0; i < data.timings.size(); ++i) {
      const TimedCase& t = data.timings[i].timed;
      if (t.record.device != device) continue;
      ++cases;
      untimed += std::isnan(t.time.median) ? 1 : 0;
      if (t.share > (best < 0 ? 0.0 : data.timings[static_cast<std::size_t>(best)].timed.share))
        best = static_cast<std::int64_t>(i);
    }
    out += fmt::format("<p>{}: {} cases, {} of them without a time", html_escaped(device), cases, untimed);
    if (best >= 0) {
      const TimedCase& t = data.timings[static_cast<std::size_t>(best)].timed;
      out += fmt::format(
          "; closest to its floor: {} {} with B = {}, T = {}, at <button class=\"v\" "
          "data-point=\"{}\">{:.3g} %</button>",
          html_escaped(t.record.kernel), html_escaped(t.record.contract), t.B, t.T,
          std::ssize(data.points) + best, 100.0 * t.share);
    }
    out += " <a href=\"#evidence\">All times</a></p>\n";
  }
  return out;
}

std::string html_timings(const ReportInput& input, const ReportData& data,
                         const std::vector<std::string>& svgs) {
  if (data.timings.empty()) return "";
  std::string out =
      "<h3>Time, against the floor and a peer</h3>\n<p>Medians of timed calls. The floor is the larger of "
      "two "
      "times that no kernel of this form goes below: the bytes of its inputs and outputs at the rate of a "
      "copy, and its operations at the rate of a large matrix product, both measured in the same run. The "
      "peer "
      "is timed in turns with the kernel on the same machine; its outputs are not judged.</p>\n";
  std::size_t next = 0;
  for (const FigureGroup& group : data.groups) next += group.figures.size();
  std::string figures;
  for (const Figure& figure : data.timing_figures) {
    figures += html_figure(figure, next < svgs.size() ? svgs[next] : "");
    ++next;
  }
  if (!figures.empty()) out += "<div class=\"grid\">\n" + figures + "</div>\n";
  for (const std::string& device : devices_of(data.timings)) {
    out += fmt::format("<h4>{}</h4>\n{}{}", html_escaped(device), ceilings_of(data.timings, device),
                       table_of(input, data.timings, device).html(true));
  }
  return out;
}

}  // namespace samestate
