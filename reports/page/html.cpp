#include "reports/page/html.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "reports/page/html_table.h"
#include "reports/records/summary.h"
#include "reports/text/escape.h"
#include "samestate_assets.h"

namespace samestate {
namespace {

/// Says what made the records, one line per run; runs that say the same are listed once.
std::string made_by(const ReportInput& input) {
  std::vector<std::string> lines;
  for (const ReportSource& source : input.sources) {
    for (const Run& run : source.content.runs) {
      std::string line = html_escaped(source.name) + ": samestate " + html_escaped(run.version);
      const auto add = [&](const char* name, const std::string& value) {
        if (!value.empty()) line += fmt::format(", {} {}", name, html_escaped(value));
      };
      add("commit", run.commit);
      add("device", run.device);
      add("driver", run.driver);
      add("toolkit", run.toolkit);
      add("kernel sources", sources_text(run.kernel_sources));
      add("plugins", run.plugins);
      if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
    }
    for (const std::string& sentence : shortcomings(source.content))
      lines.push_back(fmt::format("<strong class=\"bad\">{}: {}</strong>", html_escaped(source.name),
                                  html_escaped(sentence)));
    if (source.content.cut_lines > 0)
      lines.push_back(
          fmt::format("<strong class=\"bad\">{}: {} line(s) cut off by a crash or a full disk; what was "
                      "whole is shown</strong>",
                      html_escaped(source.name), source.content.cut_lines));
  }
  std::string out = "<ul class=\"runs\">";
  for (const std::string& line : lines) out += "<li>" + line + "</li>";
  return out + "</ul>";
}

/// The text for a <script>, which must contain neither "</script" nor "<!--".
std::string commands_json(const ReportData& data) {
  nlohmann::json commands = nlohmann::json::array();
  for (const SweepPoint& point : data.points) commands.push_back(repro_command(point.measurement.record));
  for (const TimedEvidence& e : data.timings) commands.push_back(bench_command(e.timed.record));
  std::string out;
  for (const char c : commands.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

/// The plots contain the light theme's colours; these rules replace them by a theme's.
std::string theme_rules() {
  std::string out;
  std::string light;
  std::string dark;
  int number = 0;
  const auto add = [&](const PaletteEntry& entry) {
    for (const char* property : {"fill", "stroke", "color"})
      out += fmt::format("figure [{0}=\"{1}\"]{{{0}:var(--p{2})}}", property, entry.light, number);
    light += fmt::format("--p{}:{};", number, entry.light);
    dark += fmt::format("--p{}:{};", number, entry.dark);
    ++number;
  };
  for (const PaletteEntry& entry : palette()) add(entry);
  add(failure_colour());
  for (const PaletteEntry& entry : inks()) add(entry);
  return fmt::format(
      ":root{{{0}}}\n@media(prefers-color-scheme:dark){{:root:not([data-theme=light]){{{1}}}}}\n"
      ":root[data-theme=dark]{{{1}}}\n@media "
      "print{{:root,:root[data-theme=dark],:root:not([data-theme=light]){{{0}}}}}\n{2}\n",
      light, dark, out);
}

constexpr const char* kWordsOfPage = R"(<section id="words"><h2>Words</h2><dl>
<dt>bound</dt><dd>The error that a correct kernel can make on this case's own data under its contract; derived, not tuned.</dd>
<dt>ratio</dt><dd>Error over bound, the worst of the gates (row, head, state, worst case, twin). Above 1 the kernel is wrong, or breaks its contract.</dd>
<dt>contract</dt><dd>What a kernel promises to round and where: fp32 throughout; tf32, bf16 or fp16 operands with fp32 accumulation; bf16_state also keeps its state in bf16.</dd>
<dt>regime</dt><dd>What the inputs are like: normal, slow decay, none, collinear keys and so on.</dd>
<dt>chunk</dt><dd>Tokens that a chunked kernel takes at once; chunk 1 is the recurrence.</dd>
<dt>vacuous</dt><dd>The bound is so wide, or the expectation so empty, that a pass would prove nothing. Never counted as one.</dd>
<dt>case line</dt><dd>All that determines one run, on one line. <code>samestate repro '…'</code> repeats it anywhere; click a dot or a number to copy it.</dd>
</dl></section>
)";

}  // namespace

ReportData report_data(const ReportInput& input) {
  ReportData data;
  std::vector<SweepPoint> all;
  for (std::size_t i = 0; i < input.sources.size(); ++i) {
    const ReportSource& source = input.sources[i];
    data.names.push_back(source.name);
    for (const Measurement& m : source.content.points) all.push_back({m, i});
    data.records.insert(data.records.end(), source.content.records.begin(), source.content.records.end());
  }
  data.points = latest(all);
  data.groups = sweep_figures(data.points, data.names, input.sizes);
  data.ratios = ratio_figure(data.records);
  std::vector<TimedEvidence> timings = input.timings;
  for (const ReportSource& source : input.sources) {
    for (TimedEvidence& e : timings_of(source.content, source.name)) timings.push_back(std::move(e));
  }
  data.timings = latest_timings(timings);
  data.timing_figures = timing_figures(data.timings, std::ssize(data.points));
  return data;
}

std::vector<Figure> figures_of(const ReportData& data) {
  std::vector<Figure> all;
  for (const FigureGroup& group : data.groups)
    all.insert(all.end(), group.figures.begin(), group.figures.end());
  all.insert(all.end(), data.timing_figures.begin(), data.timing_figures.end());
  all.push_back(data.ratios);
  return all;
}

std::string html_figure(const Figure& figure, const std::string& svg) {
  if (svg.empty()) return "";
  std::string out = fmt::format("<figure id=\"{}\" aria-label=\"{}\">\n{}", html_escaped(figure.id),
                                html_escaped(figure.title), svg);
  out += fmt::format("<figcaption>{}", html_escaped(figure.caption));
  if (!figure.cases.empty()) {
    out += " Cases: ";
    for (const auto& [name, point] : figure.cases)
      out += fmt::format("<button class=\"v\" data-point=\"{}\">{}</button> ", point, html_escaped(name));
  }
  return out + "</figcaption></figure>\n";
}

std::string html_text(const ReportInput& input, const ReportData& data,
                      const std::vector<std::string>& svgs) {
  std::string sections = html_answers(input, data);
  sections += html_sweep(data, svgs);
  sections += html_gate(data, svgs.empty() ? "" : svgs.back());
  sections += html_evidence(input, html_timings(input, data, svgs));
  if (input.mutants) {
    sections +=
        html_listing(*input.mutants, "mutants", "Mutants: does the gate see real bugs?",
                     "Each row is a correct kernel with one bug put back that shipped somewhere. Killed: the "
                     "gate failed it, by which check and after how many cases.");
  }
  if (input.equations) {
    sections += html_listing(
        *input.equations, "equations", "The equations of the documents, executed",
        "Each row is a statement of a document, the ledger's verdict on it and what was computed. OK holds "
        "(OK*: "
        "under a premise that is named); of an ERRATUM the printed and the correct form were computed, and "
        "differ; of what is INCOMPLETE, AMBIGUOUS or INCONSISTENT the resolution was; UNTESTABLE is "
        "measurement, "
        "analogy or opinion.");
  }
  sections += html_points(data);
  return html_page({.title = input.title,
                    .made_by = made_by(input),
                    .sections = sections,
                    .links = {{"answers", "In short"},
                              {"sweep", "Error curves"},
                              {"gate", "Gate"},
                              {"evidence", "Evidence"},
                              {"mutants", "Mutants"},
                              {"equations", "Equations"},
                              {"points", "All points"}},
                    .commands = commands_json(data)});
}

std::string html_page(const PageParts& page) {
  std::string links;
  for (const auto& [id, name] : page.links) {
    if (page.sections.find(fmt::format("<section id=\"{}\"", id)) != std::string::npos)
      links += fmt::format("<a href=\"#{}\">{}</a> ", id, name);
  }
  links += "<a href=\"#words\">Words</a> ";
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'; img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n"
      "<title>{0}</title>\n<style>\n{1}{2}</style></head>\n<body>\n<header><h1>{0}</h1>\n"
      "<button id=\"theme\" type=\"button\" aria-label=\"switch between light and dark\">light / "
      "dark</button>\n"
      "{3}<nav>{4}</nav></header>\n<main>\n{5}{6}</main>\n<div id=\"toast\" role=\"status\"></div>\n"
      "<script type=\"application/json\" "
      "id=\"commands\">{7}</script>\n<script>\n{8}</script>\n</body></html>\n",
      html_escaped(page.title), assets::style, theme_rules(), page.made_by, links, page.sections,
      kWordsOfPage, page.commands, assets::script);
}

}  // namespace samestate
