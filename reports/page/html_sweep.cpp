#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "reports/page/html.h"
#include "reports/page/html_table.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"
#include "reports/records/surprise.h"
#include "reports/text/escape.h"

/// The answers come first, then the curves, and every point at the end.
namespace samestate {
namespace {

/// Says in a sentence whether it passed; `cut` means that some of the plan was not run, or that too little
/// was judged.
std::string headline(const Summary& summary, const char* what, bool cut = false) {
  const bool failed = !summary.failures.empty();
  const char* tone = failed ? "bad" : summary.judged == 0 || cut ? "warn" : "good";
  std::string verdict =
      failed ? fmt::format("{} of {} {} failed", summary.failures.size(), summary.cases, what)
      : summary.judged == 0
          ? fmt::format("nothing was judged ({} {})", summary.cases, what)
          : fmt::format("{} of {} {} judged, none failed", summary.judged, summary.cases, what);
  return fmt::format("<p class=\"big {}\">{}{}</p><p class=\"dim\">{}.</p>\n", tone, verdict,
                     cut ? "; not complete" : "", counts_line(summary));
}

constexpr std::size_t kMostShown = 5;

/// Returns the case farthest above its group for each kernel and contract: neighbours of a point say nothing
/// new.
std::string standing_out(std::span<const Record> records, const char* what) {
  const Surprises surprises = surprises_of(records);
  HtmlTable table({{"case"},
                   {"tail", true, "0 is the median of the group, 1 its ninth decile"},
                   {"ratio", true, "error over bound; above 1 fails"},
                   {"group's median", true, "ratio; - in a group of fewer than 8"},
                   {"gate", false, "which comparison decided"},
                   {"verdict"},
                   {"kernel"},
                   {"contract"},
                   {"regime"},
                   {"repeat with"}},
                  /*stacked=*/true);
  std::vector<std::pair<std::string, std::string>> shown;
  for (const Surprise& surprise : surprises.ranked) {
    const Record& r = records[surprise.record];
    if (std::find(shown.begin(), shown.end(), std::pair(r.kernel, r.contract)) != shown.end()) continue;
    shown.emplace_back(r.kernel, r.contract);
    if (shown.size() > kMostShown) continue;
    table.row();
    table.copy(repro_command(r));
    table.measured(std::isnan(surprise.median) ? surprise.median : surprise.tail);
    table.number(r.judgement.ratio);
    table.measured(surprise.median);
    table.text(r.judgement.gate);
    table.text(name_of(r.judgement.verdict), tone_of(r.judgement.verdict));
    table.text(r.kernel);
    table.text(r.contract);
    table.text(r.regime);
    table.command(repro_command(r));
  }
  if (table.empty()) return "";
  const std::string attained = attained_line(surprises, what);
  return fmt::format(
             "<h3>Which {0}s stand out from their groups?</h3>\n<p>Of each kernel and contract the {0} whose "
             "ratio lies farthest above those of the same system, form, contract, law and gate, the farthest "
             "first: {1} of {2}{3}.</p>\n",
             what, std::min(kMostShown, shown.size()), shown.size(),
             attained.empty() ? "" : "; " + attained) +
         table.html();
}

std::string advice_table(const ReportData& data) {
  const std::vector<ChunkAdvice> all = chunk_advice(data.points);
  if (all.empty()) return "";
  HtmlTable table(
      {{"system"},
       {"kernel"},
       {"contract"},
       {"regime"},
       {"least RMS error", true, "of the output, over its RMS, least of all chunks"},
       {"at chunk", true},
       {"flat up to chunk", true, "the largest chunk whose RMS error is within 1.25 of the least"},
       {"least FLOPs at", true, "chunk with the fewest operations a token, by the cost model"},
       {"least bytes at", true, "chunk with the least traffic a token, by the cost model"},
       {"worst ratio", true, "error over bound, over all chunks"},
       {"worst condition", true, "of the triangular system of a chunk"}},
      /*stacked=*/true);
  const auto at = [&](std::int64_t i) -> const Measurement& {
    return data.points[static_cast<std::size_t>(i)].measurement;
  };
  const auto chunk = [&](std::int64_t i) { table.linked(i < 0 ? 0.0 : at(i).x, i); };
  for (const ChunkAdvice& a : all) {
    table.row();
    table.text(a.system);
    table.text(a.failing > 0 ? fmt::format("{} (fails at {} of its points)", a.kernel, a.failing) : a.kernel,
               a.failing > 0 ? tone_of(Verdict::fail) : "");
    table.text(a.contract);
    table.text(a.regime);
    table.linked(a.least_error < 0 ? 0.0 : at(a.least_error).rms_error / at(a.least_error).size,
                 a.least_error);
    chunk(a.least_error);
    chunk(a.flat_to);
    chunk(a.least_flops);
    chunk(a.least_bytes);
    table.linked(at(a.worst_ratio).record.judgement.ratio, a.worst_ratio);
    table.linked(a.worst_condition < 0 ? 0.0 : at(a.worst_condition).condition, a.worst_condition);
  }
  return "<h3>Which chunk?</h3>\n<p>Up to the chunk in <em>flat up to</em> a larger chunk costs no accuracy "
         "(RMS error "
         "within 1.25 of the least that was measured); beyond it error is the price of less traffic. A "
         "kernel that fails is marked: what is said of it is no advice.</p>\n" +
         table.html();
}

std::vector<Record> records_of(const ReportData& data) {
  std::vector<Record> records;
  for (const SweepPoint& point : data.points) records.push_back(point.measurement.record);
  return records;
}

}  // namespace

std::string html_answers(const ReportInput& input, const ReportData& data) {
  std::string out = "<section id=\"answers\"><h2>In short</h2>\n";
  if (data.points.empty() && data.records.empty() && data.timings.empty() && input.evidence.empty())
    out += "<p class=\"big warn\">No case and no point was recorded.</p>\n";
  if (!data.records.empty()) {
    const Summary summary = summarise(data.records);
    const bool cut = std::any_of(input.sources.begin(), input.sources.end(), [](const ReportSource& source) {
      return !shortcomings(source.content).empty();
    });
    out += "<h3>Did the gate pass?</h3>\n" + headline(summary, "cases", cut);
    if (!summary.failures.empty())
      out += "<p><a href=\"#failures\">The failures by kind, each with an example</a></p>\n";
    if (const std::string absent = without_device(data.records); !absent.empty())
      out += fmt::format("<p class=\"warn\">{}.</p>\n", html_escaped(absent));
    out += standing_out(data.records, "case");
  }
  if (!data.points.empty()) {
    const std::vector<Record> records = records_of(data);
    const Summary summary = summarise(records);
    // The answer to the question comes before remarkable points, because a telephone shows only one of them
    // on its first screen.
    out += "<h3>Did the sweep pass?</h3>\n" + headline(summary, "points") + advice_table(data) +
           standing_out(records, "point");
  }
  return out + html_fastest(data) + "</section>\n";
}

std::string html_sweep(const ReportData& data, const std::vector<std::string>& svgs) {
  if (data.groups.empty()) return "";
  std::string out = "<section id=\"sweep\"><h2>Error curves</h2>\n";
  if (svgs.empty())
    out +=
        "<p class=\"warn\">Drawn without plots; the numbers are under <a href=\"#points\">All "
        "points</a>.</p>\n";
  out +=
      "<p>Colour is the contract; dots are RMS errors, squares the largest element, dashes the bound: the "
      "RMS error that it predicts, or of an operator the RMS of the worst case. Errors are over the RMS of "
      "the "
      "exact output. Every mark copies the command that repeats its case.</p>\n";
  std::size_t next = 0;
  std::string series;
  for (const FigureGroup& group : data.groups) {
    const bool first = group.series != series;
    if (first) {
      series = group.series;
      out += fmt::format("<h3 id=\"series-{}\">{}</h3>\n", html_escaped(series), html_escaped(group.heading));
    }
    out += fmt::format("<details{}><summary>{} <span class=\"dim\">{}</span></summary>\n",
                       first ? " open" : "", html_escaped(group.title), html_escaped(group.about));
    std::string shown;
    std::string details;
    for (const Figure& figure : group.figures) {
      const std::string svg = next < svgs.size() ? svgs[next] : "";
      ++next;
      (figure.detail ? details : shown) += html_figure(figure, svg);
    }
    out += "<div class=\"grid\">\n" + shown + "</div>\n";
    if (!details.empty())
      out +=
          "<details><summary>One contract at a time <span class=\"dim\">on a linear axis: where error stops "
          "being "
          "flat</span></summary><div class=\"grid\">\n" +
          details + "</div></details>\n";
    out += "</details>\n";
  }
  return out + "</section>\n";
}

std::string html_points(const ReportData& data) {
  if (data.points.empty()) return "";
  HtmlTable table({{"case"},
                   {"series"},
                   {"system"},
                   {"contract"},
                   {"regime"},
                   {"x", true, "the varied quantity"},
                   {"verdict"},
                   {"ratio", true, "error over bound, worst gate"},
                   {"RMS error", true, "of the output"},
                   {"over its RMS", true, "RMS error over the RMS of the output"},
                   {"largest error", true, "of the output"},
                   {"RMS bound", true, "predicted RMS error of the output"},
                   {"state RMS error", true},
                   {"state tolerance", true},
                   {"condition", true},
                   {"FLOP", true, "per token and head"},
                   {"bytes", true, "per token and head"},
                   {"repeat with"}});
  for (const SweepPoint& point : data.points) {
    const Measurement& m = point.measurement;
    const Record& r = m.record;
    table.row();
    table.copy(repro_command(r));
    table.text(m.series);
    table.text(r.system);
    table.text(r.contract);
    table.text(r.regime);
    table.number(m.x);
    table.text(name_of(r.judgement.verdict), tone_of(r.judgement.verdict));
    for (const double value : {r.judgement.ratio, m.rms_error, m.rms_error / m.size, m.max_error})
      table.number(value);
    // Systems without a state, a triangular system or a cost have none of these.
    for (const double value : {m.rms_bound, m.state_rms, m.state_bound, m.condition, m.flops, m.bytes})
      table.measured(value);
    table.command(repro_command(r));
  }
  return fmt::format(
             "<section id=\"points\"><h2>All points</h2>\n<p>{} points. Click a head to sort; every number "
             "at full "
             "precision stands in points.csv and report.json beside this page, the profiles over tokens, "
             "chunk "
             "positions and heads in profiles.csv.</p>\n",
             data.points.size()) +
         table.html(true) + "</section>\n";
}

}  // namespace samestate
