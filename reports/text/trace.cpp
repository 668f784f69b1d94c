#include "reports/text/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "reports/plots/plots.h"
#include "reports/text/aligned.h"
#include "reports/text/escape.h"

namespace samestate {
namespace {

constexpr double kMicro = 1e6;

/// A stretch of time of a warp; if `what` is empty the warp is working.
struct Stretch {
  std::string what;
  double begin, end;
};

/// Returns all of the time of every warp, in order.
std::vector<std::vector<Stretch>> stretches_of(const BlockTrace& trace) {
  std::vector<std::vector<Stretch>> all(trace.roles.size());
  std::vector<double> until(trace.roles.size(), 0.0);
  for (const WarpWait& wait : trace.waits) {
    const auto w = static_cast<std::size_t>(wait.warp);
    if (wait.begin > until[w]) all[w].push_back({"", until[w], wait.begin});
    all[w].push_back({wait.what, wait.begin, wait.end});
    until[w] = wait.end;
  }
  for (std::size_t w = 0; w < all.size(); ++w) {
    if (trace.ends[w] > until[w]) all[w].push_back({"", until[w], trace.ends[w]});
  }
  return all;
}

/// Returns adjacent warps with the same role as [first, last].
std::vector<std::pair<std::size_t, std::size_t>> groups_of(const BlockTrace& trace) {
  constexpr std::size_t kWarpgroup = 4;
  std::vector<std::pair<std::size_t, std::size_t>> groups;
  for (std::size_t w = 0; w < trace.roles.size(); ++w) {
    if (w % kWarpgroup != 0 && trace.roles[w] == trace.roles[w - 1])
      groups.back().second = w;
    else
      groups.push_back({w, w});
  }
  return groups;
}

/// Assigns a colour to each thing that is waited for, by name; all pictures of one kernel use the same
/// colours.
std::map<std::string, std::size_t> colours_of(const BlockTrace& trace) {
  std::map<std::string, std::size_t> colours;
  for (const WarpWait& wait : trace.waits) colours.emplace(wait.what, 0);
  std::size_t next = 0;
  for (auto& [what, colour] : colours) colour = next++;
  return colours;
}

/// Returns the fill for a colour's index; indices beyond the palette get lighter versions of its colours.
std::string fill_of(std::size_t index) {
  const std::size_t size = palette().size();
  return fmt::format("fill=\"{}\"{}", palette()[index % size].light,
                     index < size ? "" : " fill-opacity=\"0.5\"");
}

std::string work_fill() { return fmt::format("fill=\"{}\"", inks()[2].light); }

}  // namespace

std::string trace_text(const BlockTrace& trace, std::size_t width) {
  const auto all = stretches_of(trace);
  const double length = trace.ends.empty() ? 0.0 : *std::max_element(trace.ends.begin(), trace.ends.end());
  std::string text = fmt::format("Block {} of {}{}{}: {:.1f} us", trace.block, trace.blocks,
                                 trace.variant.empty() ? "" : ", ", trace.variant, kMicro * length);
  if (!std::isnan(trace.clock)) text += fmt::format(" at {:.0f} MHz", 1e-6 * trace.clock);
  text += "\n";
  std::vector<std::vector<std::string>> rows = {{"warps", "role", "us", "works", "waits for"}};
  for (const auto& [first, last] : groups_of(trace)) {
    std::map<std::string, double> times;
    double sum = 0.0, end = 0.0;
    for (std::size_t w = first; w <= last; ++w) {
      for (const Stretch& s : all[w]) times[s.what] += s.end - s.begin, sum += s.end - s.begin;
      end = std::max(end, trace.ends[w]);
    }
    std::vector<std::pair<double, std::string>> waits;
    for (const auto& [what, seconds] : times) {
      if (!what.empty()) waits.push_back({seconds, what});
    }
    std::sort(waits.rbegin(), waits.rend());
    std::string waited;
    for (const auto& [seconds, what] : waits)
      waited += fmt::format("{}{} {:.0f} %", waited.empty() ? "" : ", ", what, 100.0 * seconds / sum);
    rows.push_back({first == last ? std::to_string(first) : fmt::format("{}-{}", first, last),
                    trace.roles[first], fmt::format("{:.1f}", kMicro * end),
                    sum > 0.0 ? fmt::format("{:.0f} %", 100.0 * times[""] / sum) : "-",
                    waited.empty() ? "-" : waited});
  }
  text += aligned(rows, width);
  if (!trace.complete) text += "Later waits of some warps were not kept: trace a shorter call.\n";
  return text;
}

std::string trace_events(const BlockTrace& trace) {
  nlohmann::json events = nlohmann::json::array();
  const auto all = stretches_of(trace);
  for (std::size_t w = 0; w < all.size(); ++w) {
    events.push_back({{"ph", "M"},
                      {"pid", trace.block},
                      {"tid", w},
                      {"name", "thread_name"},
                      {"args", {{"name", fmt::format("warp {:02} {}", w, trace.roles[w])}}}});
    for (const Stretch& s : all[w])
      events.push_back({{"ph", "X"},
                        {"pid", trace.block},
                        {"tid", w},
                        {"name", s.what.empty() ? "work" : s.what},
                        {"cat", s.what.empty() ? "work" : "wait"},
                        {"ts", kMicro * s.begin},
                        {"dur", kMicro * (s.end - s.begin)}});
  }
  nlohmann::json other = {{"variant", trace.variant}, {"block", trace.block}, {"blocks", trace.blocks}};
  if (!std::isnan(trace.clock)) other["clock_hz"] = trace.clock;
  const nlohmann::json file = {{"traceEvents", events}, {"displayTimeUnit", "ns"}, {"otherData", other}};
  return file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string trace_svg(const BlockTrace& trace, double begin, double end) {
  constexpr int kLeft = 190, kWidth = 900, kRow = 20, kTop = 26, kSwatch = 150, kSwatches = 7;
  const auto all = stretches_of(trace);
  const std::map<std::string, std::size_t> colours = colours_of(trace);
  const auto fill = [&](const std::string& what) {
    return what.empty() ? work_fill() : fill_of(colours.at(what));
  };
  const auto x = [&](double seconds) { return kLeft + kWidth * (seconds - begin) / (end - begin); };
  const int rows = static_cast<int>(all.size());
  const int axis = kTop + rows * kRow, legend = axis + 34;
  const int lines = (static_cast<int>(colours.size()) + 1 + kSwatches - 1) / kSwatches;
  std::string svg = fmt::format(
      "<svg viewBox=\"0 0 {} {}\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\">\n"
      "<g font-size=\"12\" fill=\"{}\">\n",
      kLeft + kWidth + 40, legend + 20 * lines, inks()[0].light);
  svg += fmt::format("<text x=\"{}\" y=\"16\">Block {} of {}{}{}</text>\n", kLeft, trace.block, trace.blocks,
                     trace.variant.empty() ? "" : ": ", html_escaped(trace.variant));
  for (int w = 0; w < rows; ++w) {
    const int y = kTop + w * kRow;
    const auto warp = static_cast<std::size_t>(w);
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{} · {}</text>\n", kLeft - 8, y + 14,
                       html_escaped(trace.roles[warp]), w);
    for (const Stretch& s : all[warp]) {
      const double from = std::max(s.begin, begin), to = std::min(s.end, end);
      if (to <= from) continue;
      svg += fmt::format(
          "<rect x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{}\" {}><title>{} {:.3f} "
          "µs</title></rect>\n",
          x(from), y + 2, std::max(x(to) - x(from), 0.1), kRow - 4, fill(s.what),
          s.what.empty() ? "work" : html_escaped(s.what), kMicro * (s.end - s.begin));
    }
  }
  constexpr int kTicks = 6;
  for (int i = 0; i <= kTicks; ++i) {
    const double at = begin + (end - begin) * i / kTicks;
    svg += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.2f}{}</text>\n", x(at),
                       axis + 14, kMicro * at, i == kTicks ? " µs" : "");
  }
  int place = 0;
  const auto swatch = [&](const std::string& filled, const std::string& name) {
    const int at = 20 + place % kSwatches * kSwatch, y = legend + place / kSwatches * 20;
    svg += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"12\" height=\"12\" {}/><text x=\"{}\" y=\"{}\">{}</text>\n", at,
        y - 10, filled, at + 18, y, html_escaped(name));
    ++place;
  };
  swatch(work_fill(), "works");
  for (const auto& [what, index] : colours) swatch(fill_of(index), "waits: " + what);
  return svg_file(svg + "</g>\n</svg>\n");
}

}  // namespace samestate
