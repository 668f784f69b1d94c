#include "reports/records/failure_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <regex>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "oracles/reasons.h"

namespace samestate {
namespace {

constexpr std::size_t kLongestReason = 120;
/// With fewer cases on either side, a key that only one side has counts as chance.
constexpr std::int64_t kLeastOfEach = 3;

constexpr std::array kSeverity = {Verdict::crash, Verdict::timeout, Verdict::fail, Verdict::flaky};

/// Matches a number that stands by itself, with its sign: not a digit of bf16 or of a name. A signal or an
/// exit code counts as a name.
const std::regex& numbers() {
  static const std::regex of(
      R"((signal|code)?((?:^|[^\w.+-])[-+]?)(0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf|nan)(?!\w))",
      std::regex::optimize);
  return of;
}

/// Phrases for reasons that contain a number, N, and mean the same without it.
constexpr std::pair<std::string_view, std::string_view> kPhrases[] = {
    {"differ by N, more than the sum of their bounds N", "differ by more than the sum of their bounds"},
    {"no answer after N s", "no answer in time"},
    {"after the N cases that", "after the cases that"},
    {"error N > N", "too large an error"},
    {" is N and must be N", " is not what it must be"},
    {"element N is N and must stay N", "an element did not stay what it was"},
    {" is N and must be its initial state N", " is not its initial state"},
    {"the ratio was N in the baseline and may grow by a factor of at most N",
     "the ratio grew since the baseline"},
};

/// After this a crash quotes what its process printed last, which differs from call to call of one fault.
constexpr std::string_view kLastPrinted = "; it last printed ";

/// Returns the reason without its numbers, so that reasons that differ only in numbers become equal.
std::string without_numbers(std::string_view reason) {
  std::string out;
  const std::string text(reason.substr(0, reason.find(kLastPrinted)));
  std::size_t end = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), numbers()), none; at != none; ++at) {
    out += text.substr(end, static_cast<std::size_t>(at->position()) - end);
    end = static_cast<std::size_t>(at->position() + at->length());
    if ((*at)[1].matched) {
      out += at->str();
      continue;
    }
    std::string before = (*at)[2].str();
    while (!before.empty() && (before.back() == '-' || before.back() == '+')) before.pop_back();
    out += before + "N";
  }
  out += text.substr(end);
  for (const auto& [from, to] : kPhrases) {
    for (std::size_t at = 0; (at = out.find(from, at)) != out.npos; at += to.size())
      out.replace(at, from.size(), to);
  }
  if (out.size() > kLongestReason) out = out.substr(0, kLongestReason) + " ...";
  return out;
}

/// Whole numbers of a case line that are not sizes.
constexpr std::string_view kNoSizes[] = {"seed",   "chunk", "prefill", "repeat",
                                         "l2norm", "lead",  "slack",   "scale"};

/// Returns the sizes that a line names; for a packed line T is the sum of its lengths.
std::map<std::string, double, std::less<>> sizes_of(std::string_view line) {
  std::map<std::string, double, std::less<>> out;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    const std::string_view word = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
    const std::size_t equals = word.find('=');
    if (equals == word.npos) continue;
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (std::find(std::begin(kNoSizes), std::end(kNoSizes), key) != std::end(kNoSizes)) continue;
    double sum = 0.0;
    std::int64_t number = 0;
    const char* at = value.data();
    const char* const last = value.data() + value.size();
    bool whole = !value.empty();
    while (whole) {
      const auto [next, error] = std::from_chars(at, last, number);
      whole = error == std::errc{} && (next == last || (key == "lengths" && *next == ','));
      sum += static_cast<double>(number);
      if (!whole || next == last) break;
      at = next + 1;
    }
    if (whole) out[key == "lengths" ? "T" : std::string(key)] = sum;
  }
  return out;
}

/// Estimates the number of elements of a line's tensors, for comparing lines of one kernel: the product of
/// all sizes that any of the lines names, with the case line's defaults for those that this one omits.
double elements_of(std::string_view line, const std::set<std::string, std::less<>>& named) {
  const auto sizes = sizes_of(line);
  const auto size = [&](std::string_view key, std::string_view instead) {
    const auto at = sizes.find(key);
    if (at != sizes.end()) return at->second;
    const auto other = sizes.find(instead);
    return other != sizes.end() ? other->second : key.starts_with('B') || key.starts_with('H') ? 1.0 : 64.0;
  };
  double elements = 1.0;
  for (const std::string& key : named)
    elements *= std::max(1.0, size(key, key == "dv" ? "dk" : key == "Hv" ? "Hk" : ""));
  return elements;
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

/// Returns the judgement as if its process had run nothing before.
Judgement without_process(Judgement j) {
  if (is_confirmed(j)) return j;
  const std::size_t at = j.reason.rfind(kSeenAfter);
  j.reason.resize(at < 2 ? 0 : at - 2);
  return j;
}

using Key = std::tuple<std::ptrdiff_t, std::string, std::string, std::string, std::string>;

}  // namespace

bool is_confirmed(const Judgement& j) {
  return !j.reason.ends_with(kNotRunAgain) || j.reason.rfind(kSeenAfter) == j.reason.npos;
}

std::string likely_cause(const Judgement& j) {
  if (const std::size_t at = j.reason.rfind(kWithOtherTuning); at != j.reason.npos) {
    Judgement own = j;
    own.reason.resize(at < 2 ? 0 : at - 2);
    return likely_cause(own);
  }
  if (!is_confirmed(j)) return likely_cause(without_process(j));
  if (const std::size_t keeps = j.reason.find(kKeepsSomething);
      keeps != j.reason.npos && j.reason.starts_with(kOnlyAfter)) {
    Judgement own = j;
    own.reason.erase(0, keeps + kKeepsSomething.size());
    return "only after other cases in one process: " + likely_cause(own);
  }
  for (const std::string_view behind : {kOnlyInStage, kInNoStage}) {
    if (!j.reason.ends_with(behind)) continue;
    Judgement own = j;
    own.reason.resize(own.reason.size() - behind.size());
    return likely_cause(own);
  }
  if (const std::string of = "stage " + j.stage + ": "; !j.stage.empty() && j.reason.starts_with(of)) {
    Judgement own = j;
    own.stage.clear();
    own.reason.erase(0, of.size());
    return of + likely_cause(own);
  }
  if (j.verdict == Verdict::crash || j.verdict == Verdict::timeout || j.verdict == Verdict::flaky)
    return fmt::format("{}: {}", name_of(j.verdict), without_numbers(j.reason));
  if (j.reason.starts_with("within the bound, but the ratio was "))
    return "the ratio grew since the baseline";
  if (j.gate == kBetweenDevices) return j.reason.substr(0, j.reason.find(':'));
  std::string_view gate = j.gate;
  if (gate.starts_with("segment ")) gate.remove_prefix(8);
  const bool state = gate.ends_with("state");
  if (gate.starts_with("exact"))
    return fmt::format("{} is wrong where no operation rounds", state ? "the state" : "o");
  if (gate.starts_with("range"))
    return fmt::format("{} is not finite, although every exact value fits", state ? "the state" : "o");
  if (gate == "element")
    return j.reason.substr(0, j.reason.find(':')) +
           " is beyond its worst case: no rounding of the contract explains it";
  if (gate == "law" && j.reason.starts_with("the two runs "))
    return "o: " + without_numbers(j.reason);  // what is said of final states begins with kFinalState
  if (gate == "row" || gate == "head" || gate == "hard" || state) {
    const std::string_view what = state ? "the state" : "o";
    return j.hard_ratio > 1.0
               ? fmt::format("{} is beyond its worst case: no rounding of the contract explains it", what)
               : fmt::format("{} has more error than the contract's roundings make", what);
  }
  if (gate == "sampled slope")
    return j.reason.substr(0, j.reason.find(':')) + " is off by a factor that roundings do not make";
  if (gate.starts_with("sampled"))
    return j.reason.substr(0, j.reason.find(':')) + " has more error than the contract's roundings make";
  if (gate.starts_with("twin")) {
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
    // Memory comes first: what a kernel did outside its tensors may be the cause of all that follows.
    const auto rank = r.judgement.gate == "memory"
                          ? -1
                          : std::find(kSeverity.begin(), kSeverity.end(), verdict) - kSeverity.begin();
    found[{rank, r.kernel, r.form, r.law, likely_cause(r.judgement)}].of.push_back(i);
  }
  std::vector<std::pair<std::ptrdiff_t, FailureGroup>> ranked;
  for (const auto& [key, members] : found) {
    const auto& [rank, kernel, form, law, cause] = key;
    FailureGroup group{kernel, form, law, cause, std::ssize(members.of), members.of, members.of.front(),
                       0.0,    ""};
    std::set<std::string> common = keys_of(records[members.of.front()].line);
    std::set<std::string, std::less<>> sizes;
    for (const std::size_t i : members.of) {
      for (const auto& [key, size] : sizes_of(records[i].line)) sizes.insert(key);
    }
    const auto smallness = [&](std::size_t i) {
      return std::tuple(!is_confirmed(records[i].judgement), records[i].retuned.empty(),
                        elements_of(records[i].line, sizes), records[i].line.size());
    };
    for (const std::size_t i : members.of) {
      const Record& r = records[i];
      const std::set<std::string> keys = keys_of(r.line);
      if (smallness(i) < smallness(group.example)) group.example = i;
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
        // The group's name already contains form and law.
        if (key == "form=" + form || key == "law=" + law) continue;
        group.only += (group.only.empty() ? "" : " ") + key;
      }
    }
    ranked.emplace_back(rank, std::move(group));
  }
  const auto place = [&](const auto& one) {
    const bool known = records[one.second.example].looks_like.find(kOfMutant) != std::string::npos;
    return std::tuple(one.first, !known, -one.second.cases);
  };
  std::stable_sort(ranked.begin(), ranked.end(),
                   [&](const auto& a, const auto& b) { return place(a) < place(b); });
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
