#include "reports/text/card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/text/aligned.h"

namespace samestate {
namespace {

std::string factor_text(double factor) {
  return factor >= 1e4 ? fmt::format("{:.0e} x", factor) : fmt::format("{:.3g} x", factor);
}

std::string evidence_text(const CardPoint& p) {
  if (p.without > 0.0) return fmt::format("{} farther without ({})", factor_text(p.without), p.probe);
  return p.why == "read from the values themselves" ? p.why : "";
}

std::vector<std::string> names_of(const std::vector<CardValue>& values) {
  std::vector<std::string> out;
  for (const CardValue& v : values) out.push_back(v.value);
  return out;
}

}  // namespace

std::string card_text(const CardRow& card) {
  std::vector<std::vector<std::string>> rows = {{"point", "found", "evidence"}};
  std::vector<std::vector<std::string>> open;
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
  std::string text =
      fmt::format("kernel    {} called with contract={}\n{}", card.kernel, card.declared, aligned(rows));
  if (!open.empty()) text += "cannot be told apart\n" + aligned(open);
  for (const CardProbe& p : card.probes) {
    if (!p.refused.empty()) text += fmt::format("refused   {}: {}\n", p.name, p.refused);
  }
  const auto passed = std::count_if(card.cases.begin(), card.cases.end(),
                                    [](const CardCase& c) { return c.verdict == "pass"; });
  if (!card.cases.empty())
    text += fmt::format("gate      {} of {} cases pass under it\n", passed, card.cases.size());
  for (const CardCase& c : card.cases) {
    if (c.verdict != "pass")
      text += fmt::format("          {}, twin {:.3g}: {}\n", c.verdict, c.twin, c.line);
  }
  if (!card.stopped.empty())
    return text +
           fmt::format("{} after {} twins in {:.1f} s: what stands above is the search so far, and no card\n",
                       card.stopped, card.twins, card.seconds);
  text += fmt::format(
      "fit       at most {:.2g} of the error of the outputs is left{}\n", card.farthest,
      card.explained ? "" : ": no contract of the grammar explains them, this one is the nearest");
  text += fmt::format("{} of {} points told apart; {} twins in {:.1f} s\n", told, card.points.size(),
                      card.twins, card.seconds);
  return text + fmt::format("contract={}{}\n", card.contract, card.explained ? "" : "+card:nearest");
}

std::string card_json(const CardRow& card) {
  nlohmann::ordered_json out = {{"kernel", card.kernel},      {"system", card.system},
                                {"form", card.form},          {"declared", card.declared},
                                {"contract", card.contract},  {"explained", card.explained},
                                {"error_left", card.farthest}};
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
                      {"distance", p.distance},
                      {"error", p.error}});
  }
  out["probes"] = probes;
  nlohmann::ordered_json cases = nlohmann::ordered_json::array();
  for (const CardCase& c : card.cases)
    cases.push_back({{"line", c.line}, {"verdict", c.verdict}, {"twin_ratio", c.twin}});
  out["cases"] = cases;
  out["twins"] = card.twins;
  out["seconds"] = card.seconds;
  out["stopped"] = card.stopped;
  return out.dump(2) + "\n";
}

}  // namespace samestate
