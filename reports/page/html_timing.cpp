#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "reports/page/html.h"
#include "reports/page/html_table.h"
#include "reports/records/summary.h"
#include "reports/text/escape.h"

/// The timings that benches recorded: one table per device, and the plots.
namespace samestate {
namespace {

/// Above a thousand microseconds it prints whole numbers, since 1.235e+04 is hard to read.
void time_cell(HtmlTable& table, double seconds) {
  const double microseconds = 1e6 * seconds;
  if (microseconds >= 1000.0 && microseconds < 1e15) {
    table.count(std::llround(microseconds));
  } else {
    table.measured(microseconds);
  }
}

HtmlTable table_of(const ReportInput& input, const std::vector<TimedEvidence>& all,
                   const std::string& device) {
  constexpr double kPercent = 100.0;
  // The decisive columns come first: the rest lies beyond the edge of a window.
  HtmlTable table(
      {{"case"},
       {"kernel"},
       {"contract"},
       {"B", true, "sequences"},
       {"T", true, "tokens of each"},
       {"heads", false, "of keys/of values"},
       {"dk x dv", false, "of a system of named tensors its own sizes"},
       {"median, us", true},
       {"of the floor, %", true, "the larger floor over the median: 100 is the best possible"},
       {"peer, us", true},
       {"peer / kernel", true, "time over time: above 1 the kernel is faster than the peer"},
       {"verdict", false, "of what the last timed call wrote; a wrong kernel has no time"},
       {"peer"},
       {"the peer says", false, "what it ran, where that differs from the case, or why it did not"},
       {"judged", false, "(sequence, head) pairs that the oracle judged, of all"},
       {"chunk", true},
       {"ranks", false, "among which the tokens or value heads are divided, and how"},
       {"p10, us", true},
       {"p90, us", true},
       {"timed", false,
        "events or graph: launches alone, by the device's clock; call: the wall clock around a "
        "whole call, with copies to a device"},
       {"clock, MHz", true, "of the device's multiprocessors meanwhile, the median of readings"},
       {"power, W", true},
       {"slowed by", false, "what held the clock back: power, heat"},
       {"memory floor, us", true, "bytes that every evaluation moves, over the rate of a copy"},
       {"compute floor, us", true, "operations of this form, over the rate of a matrix product"},
       {"sources", false, "fresh while the kernel sources are those that ran"},
       {"file"},
       {"time again with"}});
  for (const TimedEvidence& e : all) {
    const TimedCase& t = e.timed;
    if (e.device != device) continue;
    const Verdict verdict = t.record.judgement.verdict;
    const bool fresh = is_fresh(e.kernel_sources, input.kernel_sources, e.timed.record.kernel);
    table.row();
    table.copy(bench_command(t.record));
    table.text(t.record.kernel);
    table.text(t.record.contract);
    table.count(t.B);
    table.count(t.T);
    table.text(t.sizes.empty() ? fmt::format("{}/{}", t.Hk, t.Hv) : "-");
    table.text(t.sizes.empty() ? fmt::format("{}x{}", t.dk, t.dv) : t.sizes);
    time_cell(table, t.time.median);
    table.measured(kPercent * t.share);
    time_cell(table, t.peer_time.median);
    table.measured(t.peer_ratio);
    table.text(name_of(verdict), tone_of(verdict));
    table.text(t.peer);
    table.text(t.peer_note, t.peer_note.size() > 60 ? "wide" : "");
    table.text(fmt::format("{}/{}", t.heads_judged, t.heads));
    table.measured(t.chunk > 0 ? static_cast<double>(t.chunk) : std::numeric_limits<double>::quiet_NaN());
    table.text(ranks_text(t));
    time_cell(table, t.time.p10);
    time_cell(table, t.time.p90);
    table.text(t.timed);
    table.measured(1e-6 * t.clock);
    table.measured(t.power);
    table.text(t.slowed);
    time_cell(table, t.memory_floor);
    time_cell(table, t.compute_floor);
    // The hash covers only the CUDA kernels.
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

/// Returns the rates of a device as its runs measured them; what several runs agree on is printed once.
std::string ceilings_of(const std::vector<TimedEvidence>& all, const std::string& device) {
  std::vector<std::string> lines;
  for (const TimedEvidence& e : all) {
    const TimedCase& t = e.timed;
    if (e.device != device || t.ceilings.empty()) continue;
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
    const std::string& device = e.device;
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
    std::int64_t timed = 0;
    std::int64_t faster = 0;
    std::vector<double> ratios;
    std::int64_t nearest = -1;
    std::int64_t farthest = -1, carried = 0;
    const auto at = [&](std::int64_t i) -> const TimedCase& {
      return data.timings[static_cast<std::size_t>(i)].timed;
    };
    for (std::int64_t i = 0; i < std::ssize(data.timings); ++i) {
      const TimedCase& t = at(i);
      if (data.timings[static_cast<std::size_t>(i)].device != device) continue;
      ++cases;
      carried += data.timings[static_cast<std::size_t>(i)].carried;
      timed += std::isnan(t.time.median) ? 0 : 1;
      if (!std::isnan(t.peer_ratio)) {
        ratios.push_back(t.peer_ratio);
        faster += t.peer_ratio > 1.0 ? 1 : 0;
      }
      if (std::isnan(t.share)) continue;
      if (nearest < 0 || t.share > at(nearest).share) nearest = i;
      if (farthest < 0 || t.share < at(farthest).share) farthest = i;
    }
    const auto share = [&](std::int64_t i) {
      const TimedCase& t = at(i);
      return fmt::format("<button class=\"v\" data-point=\"{}\">{:.3g} %</button> ({} {}, B = {}, T = {})",
                         std::ssize(data.points) + i, 100.0 * t.share, html_escaped(t.record.kernel),
                         html_escaped(t.record.contract), t.B, t.T);
    };
    const std::string_view of = carried == cases
                                    ? ", recorded earlier and kept as evidence, none in these files"
                                : carried > 0 ? ", some of them recorded earlier and kept as evidence"
                                              : "";
    out += fmt::format("<p>{}: {} of {} cases have a time{}", html_escaped(device), timed, cases, of);
    if (nearest >= 0) {
      out += "; of the speed that the floor allows they reach " + share(farthest);
      if (farthest != nearest) out += " to " + share(nearest);
    }
    if (!ratios.empty()) {
      out += fmt::format("; {} of {} beside a peer are faster than it, peer / kernel {:.3g} to {:.3g}",
                         faster, ratios.size(), *std::min_element(ratios.begin(), ratios.end()),
                         *std::max_element(ratios.begin(), ratios.end()));
    }
    out += ".";
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
      "times that no kernel of this form and contract goes below: the bytes of its inputs and outputs at the "
      "rate of a copy, and its operations at the rate of a large matrix product, both measured in the same "
      "run. The peer is timed in turns with the kernel on the same machine; <em>peer / kernel</em> is its "
      "time over the kernel's: above 1 the kernel is faster.</p>\n";
  if (std::any_of(data.timings.begin(), data.timings.end(),
                  [](const TimedEvidence& e) { return !e.timed.peer.empty(); }))
    out +=
        "<p class=\"warn\">A peer's outputs are not judged and its contract is not known: given float32 "
        "tensors "
        "it may multiply in tf32, as Triton's matrix products do unless told otherwise, where contract fp32 "
        "here means fp32 throughout and its floor is that of fp32 products. The ratios of fp32 chunked cases "
        "then compare unlike arithmetic; those of bf16 cases have no such difference.</p>\n";
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
