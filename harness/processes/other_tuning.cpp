#include "harness/processes/other_tuning.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "oracles/reasons.h"

namespace samestate {
namespace {

/// Splits it into the setting before the first colon and the configurations after it.
std::pair<std::string, std::string> parts_of(const std::string& tuned) {
  const std::size_t colon = tuned.find(": ");
  if (colon == tuned.npos) return {};
  return {tuned.substr(0, colon), tuned.substr(colon + 2)};
}

std::string_view verb_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::pass:
    case Verdict::vacuous:
      return "passes";
    case Verdict::fail:
      return "fails";
    case Verdict::crash:
      return "crashes";
    case Verdict::timeout:
      return "does not end in time";
    default:
      return "is not judged";
  }
}

bool passes(Verdict verdict) { return verdict == Verdict::pass || verdict == Verdict::vacuous; }

/// Appends a sentence to the reason.
void add_to(std::string& reason, const std::string& setting, const std::string& sentence) {
  reason += fmt::format("{}{}{} {}", reason.empty() ? "" : "; ", kWithOtherTuning, setting, sentence);
}

std::string sentence_of(const Record& failure, Verdict came, const std::string& chosen) {
  const auto [own, configurations] = parts_of(failure.tuned);
  if (chosen == configurations)
    return fmt::format("it {}, and the configuration is the same: {}", verb_of(came), chosen);
  return fmt::format("it {} ({}), with {} it {} ({})", verb_of(came), chosen, own,
                     verb_of(failure.judgement.verdict), configurations);
}

}  // namespace

std::string other_tuning_of(const Record& record) {
  const Judgement& j = record.judgement;
  if ((j.verdict != Verdict::fail && j.verdict != Verdict::crash) || j.gate == kRefusal) return "";
  const std::string own = parts_of(record.tuned).first;
  if (own == "full") return "first";
  return own == "first" || own == "cached" ? "full" : "";
}

bool add_retuned(Record& record, const std::string& setting, const CaseResult& repeat) {
  auto [by, chosen] = parts_of(repeat.tuned);
  const Verdict came = repeat.judgement.verdict;
  // A process that ended, or had to be ended, could not report what it had chosen.
  if (by.empty() && (came == Verdict::crash || came == Verdict::timeout)) by = setting, chosen = "not told";
  if (by != setting) return false;
  add_to(record.judgement.reason, setting, sentence_of(record, came, chosen));
  record.retuned = fmt::format("{}: {}: {}", setting, name_of(came), chosen);
  return true;
}

std::string configuration_to_blame(const Record& record) {
  const auto [setting, rest] = parts_of(record.retuned);
  const auto [verdict, chosen] = parts_of(rest);
  const auto [own, configurations] = parts_of(record.tuned);
  if ((verdict != name_of(Verdict::pass) && verdict != name_of(Verdict::vacuous)) || chosen == configurations)
    return "";
  return fmt::format("only with the configuration of --autotune {} ({}): passes with that of {} ({})", own,
                     configurations, setting, chosen);
}

bool OtherTuning::begin(std::size_t index, const Record& record, bool time_left) {
  const std::string setting = other_tuning_of(record);
  if (setting.empty() || fixed_.contains(record.kernel)) return false;
  if (!begun_.insert(record.kernel).second && !time_left) return false;
  open_.insert_or_assign(index, Open{record, setting});
  return true;
}

std::string OtherTuning::setting(std::size_t index) const {
  const Open& open = open_.at(index);
  return open.other ? parts_of(open.record.tuned).first : open.setting;
}

std::optional<Record> OtherTuning::take(std::size_t index, const CaseResult& result) {
  Open& open = open_.at(index);
  if (!open.other && open.record.judgement.verdict == Verdict::crash && passes(result.judgement.verdict)) {
    open.other = result;
    return {};
  }
  if (open.other && passes(result.judgement.verdict)) {
    add_to(open.record.judgement.reason, setting(index),
           "it passes in a process of its own: it comes and goes");
  } else if (!add_retuned(open.record, open.setting, open.other ? *open.other : result)) {
    fixed_.insert(open.record.kernel);
  }
  return give_up(index);
}

Record OtherTuning::give_up(std::size_t index) {
  Record record = std::move(open_.at(index).record);
  open_.erase(index);
  return record;
}

}  // namespace samestate
