#include "fuzz/plan/call_coverage.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "fuzz/plan/ordinary_calls.h"

namespace samestate {

CallCoverage::CallCoverage(const Plan& plan) : kept_(plan.thinned_to), total_(plan.total) {
  for (const PlannedCall& call : plan.calls) {
    const std::string_view kernel = call.kernel->name;
    Pair& pair = pairs_[{kernel, call.model, call.kind}];
    if (call.line.empty()) {
      pair.why = call.why;
      continue;
    }
    ++pair.planned;
    pair.left_out += call.left_out ? 1 : 0;
    lines_.emplace(std::pair(call.line, kernel), Line{&pair, call.smaller});
  }
}

void CallCoverage::add(const std::string& line, std::string_view kernel) {
  const auto found = lines_.find({line, kernel});
  if (found == lines_.end()) return;
  ++found->second.pair->judged;
  if (!found->second.smaller) ++found->second.pair->whole;
}

std::string CallCoverage::why(const Pair& pair) const {
  if (!pair.why.empty()) return std::string(pair.why);
  if (pair.left_out == pair.planned)
    return fmt::format("left out by --max-cases ({} of {} planned cases)", kept_, total_);
  return "planned, but vacuous or not run";
}

std::string CallCoverage::text(std::size_t most) const {
  std::int64_t judged = 0, whole = 0, met = 0, possible = 0;
  std::set<std::string_view> models, kinds;
  for (const auto& [key, pair] : pairs_) {
    judged += pair.judged;
    whole += pair.whole;
    met += pair.judged > 0;
    possible += pair.why != kNoSuchCall;
    if (pair.judged > 0) models.insert(key.model), kinds.insert(key.kind);
  }
  if (possible == 0) return "";
  std::string out = fmt::format(
      "ordinary calls: {} judged, {} of them at all sizes of their model; {} of {} pairs of model and kind "
      "of call; {} models, "
      "{} kinds\n",
      judged, whole, met, possible, models.size(), kinds.size());
  std::size_t shown = 0;
  for (const auto& [key, pair] : pairs_) {
    if (pair.judged > 0 || pair.why == kNoSuchCall) continue;
    if (shown++ == most) {
      out += "  ... --coverage FILE lists all of them\n";
      break;
    }
    out += fmt::format("  none judged: {} of {} on {}: {}\n", key.kind, key.model, key.kernel, why(pair));
  }
  return out;
}

std::string CallCoverage::json() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const auto& [key, pair] : pairs_) {
    rows.push_back({{"kernel", key.kernel},
                    {"model", key.model},
                    {"kind", key.kind},
                    {"planned", pair.planned},
                    {"judged", pair.judged},
                    {"whole", pair.whole}});
    if (pair.judged == 0) rows.back()["why"] = why(pair);
  }
  return rows.dump(1);
}

}  // namespace samestate
