#include <fmt/format.h>

#include <algorithm>
#include <cmath>

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

std::string shape_of(const TimedCase& t) {
  return fmt::format("B{} T{} H{}/{} d{}x{}{}", t.B, t.T, t.Hk, t.Hv, t.dk, t.dv,
                     t.chunk > 0 ? fmt::format(" C{}", t.chunk) : "");
}

std::string verdict_of(const TimedCase& t) {
  std::string text(name_of(t.record.judgement.verdict));
  if (t.heads_judged > 0 && t.heads_judged < t.heads)
    text += fmt::format(", {} of {} heads", t.heads_judged, t.heads);
  return text;
}

HtmlTable table_of(const ReportInput& input, const std::vector<TimedEvidence>& all,
                   const std::string& device) {
  constexpr double kMicroseconds = 1e6;
  constexpr double kPercent = 100.0;
  HtmlTable table({{"case"},
                   {"kernel"},
                   {"contract"},
                   {"shape", false, "sequences, tokens, key heads/value heads, dk x dv, chunk"},
                   {"verdict", false, "of what the last timed call wrote; a wrong kernel has no time"},
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
    table.text(shape_of(t));
    table.text(verdict_of(t), verdict == Verdict::pass                                ? "tag good"
                              : verdict == Verdict::fail || verdict == Verdict::crash ? "tag bad"
                                                                                      : "tag warn");
    for (const double value : {t.time.median, t.time.p10, t.time.p90}) measured(table, kMicroseconds * value);
    table.text(t.timed);
    measured(table, kMicroseconds * t.memory_floor);
    measured(table, kMicroseconds * t.compute_floor);
    measured(table, kPercent * t.share);
    table.text(t.peer.empty() ? t.peer_note : t.peer);
    measured(table, kMicroseconds * t.peer_time.median);
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

}  // namespace

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
  std::vector<std::string> devices;
  for (const TimedEvidence& e : data.timings) {
    const std::string& device = e.timed.record.device;
    if (std::find(devices.begin(), devices.end(), device) != devices.end()) continue;
    devices.push_back(device);
    out += fmt::format("<h4>{}</h4>\n{}{}", html_escaped(device), ceilings_of(data.timings, device),
                       table_of(input, data.timings, device).html(true));
  }
  return out;
}

}  // namespace samestate
