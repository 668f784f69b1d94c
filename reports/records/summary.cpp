#include "reports/records/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "oracles/reasons.h"

namespace samestate {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// Verdicts in order of severity: what a reader must see first.
constexpr std::array kSeverity = {Verdict::crash,   Verdict::timeout, Verdict::fail,        Verdict::flaky,
                                  Verdict::vacuous, Verdict::pass,    Verdict::unsupported, Verdict::skipped};

std::ptrdiff_t rank_of(Verdict verdict) {
  return std::find(kSeverity.begin(), kSeverity.end(), verdict) - kSeverity.begin();
}

struct Collected {
  std::int64_t cases = 0;
  std::int64_t failures = 0;
  std::vector<double> ratios;
  std::vector<double> medians;
};

}  // namespace

bool less_or_unknown(double a, double b) { return std::isnan(a) ? false : std::isnan(b) || a < b; }

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {kNaN, kNaN, kNaN};
  std::sort(values.begin(), values.end(), less_or_unknown);
  const auto nearest_rank = [&](std::size_t percent) {
    return values[(values.size() * percent + 99) / 100 - 1];
  };
  return {nearest_rank(50), nearest_rank(90), values.back()};
}

Summary summarise(std::span<const Record> records) {
  Summary summary;
  std::map<std::tuple<std::string, std::string, std::string>, Collected> groups;
  std::map<std::string, std::vector<double>> regimes;
  std::map<std::pair<std::string, std::string>, Collected> stages;
  std::map<std::pair<Verdict, std::string>, std::int64_t> not_judged;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    const Judgement& judgement = record.judgement;
    ++summary.cases;
    ++summary.counts[static_cast<std::size_t>(judgement.verdict)];
    summary.zeros += judgement.verdict == Verdict::vacuous && judgement.gate == kZeroGate;
    summary.refused += judgement.verdict == Verdict::unsupported && judgement.gate == kRefused;
    summary.seconds += record.seconds;
    Collected& group = groups[{record.system, record.form, record.contract}];
    ++group.cases;
    if (is_failure(judgement.verdict)) {
      ++group.failures;
      summary.failures.push_back(i);
    } else if (judgement.verdict != Verdict::pass) {
      ++not_judged[{judgement.verdict, judgement.reason}];
    }
    for (const StageFinding& found : judgement.stages) {
      if (!is_judged(found.verdict)) continue;
      Collected& stage = stages[{record.system, found.stage}];
      stage.failures += is_failure(found.verdict) ? 1 : 0;
      stage.ratios.push_back(found.ratio);
    }
    if (is_judged(judgement.verdict)) {
      ++summary.judged;
      group.ratios.push_back(judgement.ratio);
      group.medians.push_back(judgement.median_ratio);
      regimes[record.regime].push_back(judgement.ratio);
    }
  }

  const auto worse = [&](std::size_t a, std::size_t b) {
    return less_or_unknown(records[b].judgement.ratio, records[a].judgement.ratio);
  };
  std::stable_sort(summary.failures.begin(), summary.failures.end(), [&](std::size_t a, std::size_t b) {
    const auto rank_a = rank_of(records[a].judgement.verdict);
    const auto rank_b = rank_of(records[b].judgement.verdict);
    return rank_a != rank_b ? rank_a < rank_b : worse(a, b);
  });

  for (const auto& [key, group] : groups) {
    const auto& [system, form, contract] = key;
    summary.groups.push_back({system, form, contract, group.cases,
                              static_cast<std::int64_t>(group.ratios.size()), group.failures,
                              spread_of(group.ratios).max, spread_of(group.medians).p50});
  }
  // A group in which nothing was judged has no ratio and comes last.
  std::stable_sort(summary.groups.begin(), summary.groups.end(), [](const Group& a, const Group& b) {
    const bool any_a = a.judged > 0;
    const bool any_b = b.judged > 0;
    return any_a != any_b ? any_a : less_or_unknown(b.worst_ratio, a.worst_ratio);
  });
  for (const auto& [regime, ratios] : regimes) {
    summary.regimes.push_back({regime, static_cast<std::int64_t>(ratios.size()), spread_of(ratios)});
  }
  std::stable_sort(
      summary.regimes.begin(), summary.regimes.end(),
      [](const RegimeSpread& a, const RegimeSpread& b) { return less_or_unknown(b.ratio.max, a.ratio.max); });
  for (const auto& [key, stage] : stages) {
    summary.stages.push_back({key.first, key.second, static_cast<std::int64_t>(stage.ratios.size()),
                              stage.failures, spread_of(stage.ratios)});
  }
  std::stable_sort(
      summary.stages.begin(), summary.stages.end(), [](const StageSpread& a, const StageSpread& b) {
        return a.system != b.system ? a.system < b.system : less_or_unknown(b.ratio.max, a.ratio.max);
      });
  for (const auto& [key, cases] : not_judged) summary.not_judged.push_back({key.first, key.second, cases});
  std::stable_sort(summary.not_judged.begin(), summary.not_judged.end(),
                   [](const NotJudged& a, const NotJudged& b) { return a.cases > b.cases; });
  return summary;
}

std::string counts_line(const Summary& summary) {
  std::string text;
  const auto put = [&](std::string_view name, std::int64_t count) {
    if (count > 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, count);
  };
  for (Verdict verdict : kSeverity) {
    const bool refused = verdict == Verdict::unsupported;
    if (refused) put(kRefused, summary.refused);
    put(name_of(verdict), summary.count(verdict) - (refused ? summary.refused : 0));
  }
  return text.empty() ? "no case" : text;
}

std::string counted(std::int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

namespace {

/// Quotes a case line as one word of a shell.
std::string quoted_line(const std::string& line) {
  std::string quoted;
  for (char c : line) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return "'" + quoted + "'";
}

}  // namespace

std::string repro_command(const Record& record) {
  std::string after;
  for (const std::string& line : record.after) after += " --after " + quoted_line(line);
  if (record.options.starts_with(kOfClient))
    return fmt::format("samestate serve{}{} --case {}", record.options.substr(kOfClient.size()), after,
                       quoted_line(record.line));
  return fmt::format("samestate repro{}{} {}", record.options, after, quoted_line(record.line));
}

std::string bench_command(const Record& record) {
  return fmt::format("samestate bench{} --case {}", record.options, quoted_line(record.line));
}

namespace {

bool of_state(std::string_view gate) { return gate.ends_with("state"); }

/// Returns true if the worst place is a row of an output of named tensors, whatever the output's extents before
/// the last are; if its head is known, its row is a token.
bool of_output(const Judgement& j) {
  if (j.worst.head >= 0) return false;
  return j.gate == "element" || j.gate.starts_with("sampled") || j.gate.starts_with("twin ") ||
         j.gate == "law" || !j.stage.empty();
}

}  // namespace

std::string place_of(const Judgement& judgement) {
  const Location& location = judgement.worst;
  const bool rows = of_state(judgement.gate) || of_output(judgement);
  std::string text;
  const auto add = [&](const char* name, std::int64_t value) {
    if (value >= 0) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  };
  add("sequence", location.sequence);
  add("head", location.head);
  if (judgement.gate == "law" && judgement.reason.starts_with(kFinalState)) {
    add("element", location.channel);
    return text + " of the final state";
  }
  add(rows ? "row" : "token", location.token);
  add(rows ? "column" : "channel", location.channel);
  return text + (of_state(judgement.gate) && location.token >= 0 ? " of the state" : "");
}

std::string_view measure_of(std::string_view gate) {
  if (gate.starts_with("segment ")) gate.remove_prefix(8);
  if (gate.starts_with("exact") || gate == "element" || gate == "law") return "of the element";
  if (gate.ends_with("state")) return "Frobenius norm of the state's error";
  if (gate == "row" || gate == "hard") return "2-norm of the row's error";
  if (gate == "head") return "RMS of the head's rows, each by the 2-norm of its error";
  if (gate.starts_with("sampled ")) return "in standard deviations of the drawn roundings";
  if (gate == "twin element") return "of the element, from the twin";
  if (gate == "twin share") return "share of the errors that is not the twin's, mean over rows";
  if (gate == "twin") return "2-norm of the row's distance from the twin";
  if (gate == "twin median")
    return "median over rows of the distance from the twin, in units of the predicted RMS error";
  if (gate == "twin RMS") return "how far the ratio of the RMS error to the twin's is from 1";
  return "";
}

std::string judgement_line(const Judgement& judgement) {
  std::string text(name_of(judgement.verdict));
  if (is_judged(judgement.verdict)) {
    const std::string_view measure = measure_of(judgement.gate);
    text += fmt::format(": ratio {:.4g} ({}{}), error {:.4g}{}{}{}, bound {:.4g}", judgement.ratio,
                        judgement.gate, judgement.stage.empty() ? "" : " of stage " + judgement.stage,
                        judgement.error, measure.empty() ? "" : " (", measure, measure.empty() ? "" : ")",
                        judgement.bound);
    const std::string place = place_of(judgement);
    if (!place.empty()) text += ", worst at " + place;
    if (!std::isnan(judgement.expected) || !std::isnan(judgement.actual)) {
      text += fmt::format(": expected {:.9g}, actual {:.9g}", judgement.expected, judgement.actual);
    }
  }
  if (!judgement.reason.empty()) text += ": " + judgement.reason;
  return text;
}

}  // namespace samestate
