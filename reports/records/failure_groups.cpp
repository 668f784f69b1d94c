#include "reports/records/failure_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

namespace samestate {
namespace {

constexpr std::size_t kLongestReason = 120;
/// Cases on either side below which a key that only one side has is chance.
constexpr std::int64_t kLeastOfEach = 3;

constexpr std::array kSeverity = {Verdict::crash, Verdict::timeout, Verdict::fail, Verdict::flaky};

/// The reason with a # for each number, so that reasons that differ in numbers alone are one.
std::string without_numbers(std::string_view reason) {
  std::string out;
  for (const char c : reason) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0;
    if (digit && !out.empty() && out.back() == '#') continue;
    // The sign and the point of a number, and its exponent.
    if (!digit && (c == '.' || c == '-' || c == '+' || c == 'e') && !out.empty() && out.back() == '#' &&
        &c != &reason.back() && std::isdigit(static_cast<unsigned char>(*(&c + 1))) != 0) {
      continue;
    }
    out += digit ? '#' : c;
  }
  if (out.size() > kLongestReason) out = out.substr(0, kLongestReason) + " ...";
  return out;
}

std::set<std::string> keys_of(std::string_view line) {
  std::set<std::string> out;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    if (word.find('=') != word.npos && !word.starts_with("seed=") && !word.starts_with("kernel="))
      out.emplace(word);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return out;
}

using Key = std::tuple<std::ptrdiff_t, std::string, std::string, std::string, std::string>;

}  // namespace

std::string likely_cause(const Judgement& j) {
  if (j.verdict == Verdict::crash || j.verdict == Verdict::timeout || j.verdict == Verdict::flaky)
    return fmt::format("{}: {}", name_of(j.verdict), without_numbers(j.reason));
  std::string_view gate = j.gate;
  if (gate.starts_with("segment ")) gate.remove_prefix(8);
  const bool state = gate.ends_with("state");
  if (gate.starts_with("exact"))
    return fmt::format("{} is wrong where no operation rounds", state ? "the state" : "o");
  if (gate.starts_with("range"))
    return fmt::format("{} is not finite, although every exact value fits", state ? "the state" : "o");
  if (gate == "element")
    return j.reason.substr(0, j.reason.find(':')) + " is beyond its worst case: no rounding explains it";
  if (gate == "row" || gate == "head" || gate == "hard" || state) {
    const std::string_view what = state ? "the state" : "o";
    return j.hard_ratio > 1.0 ? fmt::format("{} is beyond its worst case: no rounding explains it", what)
                              : fmt::format("{} has more error than the contract's roundings make", what);
  }
  if (gate == "sampled slope")
    return j.reason.substr(0, j.reason.find(':')) + " is off by a factor that roundings do not make";
  if (gate.starts_with("sampled"))
    return j.reason.substr(0, j.reason.find(':')) + " has more error than the contract's roundings make";
  if (gate == "twin") {
    const std::size_t colon = j.reason.rfind(": ");
    return "rounds otherwise than the contract says: " +
           (colon == std::string::npos ? without_numbers(j.reason) : j.reason.substr(colon + 2));
  }
  return j.reason.empty() ? j.gate : without_numbers(j.reason);
}

std::vector<FailureGroup> failure_groups(std::span<const Record> records) {
  struct Members {
    std::vector<std::size_t> of;
  };
  std::map<Key, Members> found;
  std::map<std::string, std::vector<std::size_t>> passed;  // by kernel
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& r = records[i];
    const Verdict verdict = r.judgement.verdict;
    if (verdict == Verdict::pass) passed[r.kernel].push_back(i);
    if (!is_failure(verdict)) continue;
    const auto rank = std::find(kSeverity.begin(), kSeverity.end(), verdict) - kSeverity.begin();
    found[{rank, r.kernel, r.form, r.law, likely_cause(r.judgement)}].of.push_back(i);
  }
  std::vector<std::pair<std::ptrdiff_t, FailureGroup>> ranked;
  for (const auto& [key, members] : found) {
    const auto& [rank, kernel, form, law, cause] = key;
    FailureGroup group{kernel, form, law, cause, std::ssize(members.of), members.of.front(), 0.0, ""};
    std::set<std::string> common = keys_of(records[members.of.front()].line);
    for (const std::size_t i : members.of) {
      const Record& r = records[i];
      const std::set<std::string> keys = keys_of(r.line);
      if (keys.size() < keys_of(records[group.example].line).size()) group.example = i;
      if (std::isnan(r.judgement.ratio) || r.judgement.ratio > group.largest)
        group.largest = r.judgement.ratio;
      std::erase_if(common, [&](const std::string& key) { return !keys.contains(key); });
    }
    const std::vector<std::size_t>& good = passed[kernel];
    for (const std::size_t i : good) {
      if (common.empty()) break;
      for (const std::string& key : keys_of(records[i].line)) common.erase(key);
    }
    if (group.cases >= kLeastOfEach && std::ssize(good) >= kLeastOfEach) {
      for (const std::string& key : common) {
        // Form and law stand in the group's name.
        if (key == "form=" + form || key == "law=" + law) continue;
        group.only += (group.only.empty() ? "" : " ") + key;
      }
    }
    ranked.emplace_back(rank, std::move(group));
  }
  std::stable_sort(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : a.second.cases > b.second.cases;
  });
  std::vector<FailureGroup> out;
  for (auto& [rank, group] : ranked) out.push_back(std::move(group));
  return out;
}

std::string group_line(const FailureGroup& group) {
  return fmt::format("{} of {}, form {}{}: {}{}", group.cases, group.kernel, group.form,
                     group.law.empty() ? "" : ", law " + group.law, group.cause,
                     group.only.empty() ? "" : fmt::format(" (only with {})", group.only));
}

}  // namespace samestate
