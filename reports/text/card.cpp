#include "reports/text/card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/text/aligned.h"

namespace samestate {
namespace {

std::string factor_text(double factor) {
  return factor >= 1e4 ? fmt::format("{:.0e} x", factor) : fmt::format("{:.3g} x", factor);
}

std::string evidence_text(const CardPoint& p) {
  if (p.without > 0.0)
    return fmt::format("{} farther without ({}){}", factor_text(p.without), p.probe,
                       p.likely ? ": likely, not told apart" : "");
  return p.why == "read from the values themselves" ? p.why : "";
}

std::vector<std::string> names_of(const std::vector<CardValue>& values) {
  std::vector<std::string> out;
  for (const CardValue& v : values) out.push_back(v.value);
  return out;
}

/// Returns "several chunks, norm (0.63), keys apart (0.2), ..", the worst first.
std::string unexplained_text(const CardRow& card) {
  std::vector<const CardProbe*> left;
  for (const CardProbe& p : card.probes) {
    if (!p.explained) left.push_back(&p);
  }
  std::ranges::stable_sort(left, std::greater{}, &CardProbe::left);
  constexpr std::size_t kShown = 4;
  std::vector<std::string> out;
  for (std::size_t i = 0; i < std::min(kShown, left.size()); ++i)
    out.push_back(fmt::format("{} ({:.2g})", left[i]->name, left[i]->left));
  return fmt::format("{}{}", fmt::join(out, "; "), left.size() > kShown ? "; .." : "");
}

/// Says in words what the exit code stands for.
std::string verdict_text(const CardRow& card, std::int64_t ran) {
  const auto failed = std::ranges::count_if(card.cases, failed_under_it);
  if (std::ranges::any_of(card.probes, [](const CardProbe& p) { return !p.nonfinite.empty(); }))
    return "outputs are not finite, and no contract explains that: exit 1";
  if (!card.explained)
    return fmt::format(
        "no contract of the grammar explains all probes: exit 1{}",
        card.cases.empty() ? "" : ", whatever the gate's cases say, which allow more than the probes do");
  if (failed > 0) return "the contract explains the probes, and a case of the gate fails under it: exit 1";
  return ran < std::ssize(card.probes)
             ? "the contract explains the probes that have outputs; of the others nothing is known"
             : "the contract explains the probes";
}

}  // namespace

bool failed_under_it(const CardCase& c) {
  return c.verdict == "fail" || c.verdict == "crash" || c.verdict == "timeout" || c.verdict == "flaky";
}

bool card_holds(const CardRow& card) {
  return card.explained && std::ranges::none_of(card.cases, failed_under_it);
}

std::string card_text(const CardRow& card, std::size_t width) {
  std::vector<std::vector<std::string>> rows = {{"point", "found", "evidence"}};
  std::vector<std::vector<std::string>> open = {{"point", "values", "why"}};
  std::int64_t told = 0;
  for (const CardPoint& p : card.points) {
    if (p.told) ++told;
    if (p.like.empty()) {
      if (p.told || p.without > 0.0) rows.push_back({p.name, p.value, evidence_text(p)});
      continue;
    }
    if (p.without > 0.0)
      rows.push_back(
          {p.name, p.value, fmt::format("or {}: {}", fmt::join(names_of(p.like), ", "), evidence_text(p))});
    open.push_back({p.name, fmt::format("{} or {}", p.value, fmt::join(names_of(p.like), ", ")), p.why});
  }
  std::string text = fmt::format("kernel    {} called with contract={}\n{}", card.kernel, card.declared,
                                 card.points.empty() ? "" : aligned(rows, width));
  if (open.size() > 1) text += "cannot be told apart\n" + aligned(open, width);
  const auto ran = std::ranges::count_if(card.probes, [](const CardProbe& p) { return p.refused.empty(); });
  for (const CardProbe& p : card.probes) {
    if (!p.refused.empty()) text += fmt::format("refused   {}: {}\n", p.name, p.refused);
  }
  for (const CardProbe& p : card.probes) {
    if (!p.nonfinite.empty()) text += fmt::format("no number {}: {}\n", p.name, p.nonfinite);
  }
  if (ran < std::ssize(card.probes))
    text += fmt::format("unknown   {} of {} probes have no outputs: what only they show was not asked\n",
                        std::ssize(card.probes) - ran, card.probes.size());
  const auto passed = std::count_if(card.cases.begin(), card.cases.end(),
                                    [](const CardCase& c) { return c.verdict == "pass"; });
  if (std::ssize(card.cases) < card.cases_planned)
    text += fmt::format("gate      interrupted after {} of {} cases, of which {} pass under it\n",
                        card.cases.size(), card.cases_planned, passed);
  else if (!card.cases.empty())
    text += fmt::format("gate      {} of {} cases pass under it\n", passed, card.cases.size());
  for (const CardCase& c : card.cases) {
    if (c.verdict == "pass") continue;
    const std::string by = c.gate.empty() ? "" : fmt::format(" by {} (ratio {:.3g})", c.gate, c.ratio);
    text += fmt::format("          {}{}, twin {:.3g}: {}\n", c.verdict, by, c.twin, c.line);
  }
  if (!card.stopped.empty())
    return text +
           fmt::format("{} after {} twins in {:.1f} s: what stands above is the search so far, and no card\n",
                       card.stopped, card.twins, card.seconds);
  if (card.contract.empty()) return text + fmt::format("verdict   {}\n", verdict_text(card, ran));
  text += fmt::format("fit       at most {:.2g} of the error of the outputs is left{}\n", card.farthest,
                      card.worst.empty() ? "" : fmt::format(" (probe {})", card.worst));
  const auto explained =
      std::ranges::count_if(card.probes, [](const CardProbe& p) { return p.refused.empty() && p.explained; });
  if (!card.explained) {
    text += fmt::format("probes    {} of {} are explained; not {}\n", explained, ran, unexplained_text(card));
    if (!card.twice.empty())
      text += fmt::format(
          "perhaps   {}: the grammar fixes which operand is rounded once and which twice, and has no word "
          "for "
          "the other\n",
          fmt::join(card.twice, ", "));
  }
  if (!card.loads_alone.empty())
    text += fmt::format(
        "perhaps   {} {} rounded to {} as loaded: of data so rounded a contract explains the "
        "outputs, and the grammar has\n          no word for it\n",
        card.loads_alone, card.loads_alone == "q and k" ? "are" : "is", card.loads_alone_format);
  if (!card.loads.empty())
    text += fmt::format(
        "inputs    q, k and v are rounded to {0} as they are loaded: nothing explains the outputs without "
        "it, "
        "and the contract is of\n          data in {0}\n",
        card.loads);
  text += fmt::format("{} of {} points told apart; {} twins in {:.1f} s\n", told, card.points.size(),
                      card.twins, card.seconds);
  text += fmt::format("verdict   {}\n", verdict_text(card, ran));
  return text + fmt::format("contract={}{}\n", card.contract, card.explained ? "" : "+card:nearest");
}

std::string card_json(const CardRow& card) {
  // An interrupted search has no contract to paste.
  const nlohmann::ordered_json contract = card.stopped.empty() && !card.contract.empty()
                                              ? nlohmann::ordered_json(card.contract)
                                              : nlohmann::ordered_json(nullptr);
  nlohmann::ordered_json out = {{"kernel", card.kernel},
                                {"system", card.system},
                                {"form", card.form},
                                {"declared", card.declared},
                                {"contract", contract},
                                {"explained", card.explained},
                                {"holds", card_holds(card)},
                                {"error_left", card.farthest},
                                {"worst_probe", card.worst},
                                {"rounds_inputs", card.loads},
                                {"rounded_twice", card.twice},
                                {"rounds_alone", card.loads_alone},
                                {"rounds_alone_to", card.loads_alone_format},
                                {"cases_planned", card.cases_planned}};
  nlohmann::ordered_json points = nlohmann::ordered_json::array();
  for (const CardPoint& p : card.points) {
    nlohmann::ordered_json like = nlohmann::ordered_json::array();
    for (const CardValue& v : p.like) like.push_back({{"value", v.value}, {"factor", v.factor}});
    points.push_back({{"point", p.name},
                      {"found", p.value},
                      {"told_apart", p.told},
                      {"factor_without", p.without},
                      {"probe", p.probe},
                      {"like", like},
                      {"why", p.why}});
  }
  out["points"] = points;
  nlohmann::ordered_json probes = nlohmann::ordered_json::array();
  for (const CardProbe& p : card.probes) {
    probes.push_back({{"probe", p.name},
                      {"line", p.line},
                      {"refused", p.refused},
                      {"not_finite", p.nonfinite},
                      {"distance", p.distance},
                      {"error", p.error},
                      {"error_left", p.left},
                      {"explained", p.refused.empty() && p.explained}});
  }
  out["probes"] = probes;
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const CardCase& c : card.cases)
    cases.push_back({{"line", c.line},
                     {"verdict", c.verdict},
                     {"gate", c.gate},
                     {"ratio", c.ratio},
                     {"twin_ratio", c.twin}});
  out["cases"] = cases;
  out["twins"] = card.twins;
  out["seconds"] = card.seconds;
  out["stopped"] = card.stopped;
  return out.dump(2) + "\n";
}

}  // namespace samestate
