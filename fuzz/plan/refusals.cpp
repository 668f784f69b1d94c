#include "fuzz/plan/refusals.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "harness/cases/declared_limits.h"
#include "harness/cases/system.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Sizes come first, since a function that refuses a call usually refuses a size.
std::vector<std::string> keys_of(const System& system) {
  std::vector<std::string> keys;
  for (const CaseSize& size : system.sizes) keys.emplace_back(size.name);
  for (const char* size : {"T", "B", "chunk"}) keys.emplace_back(size);
  for (const std::string_view key : system.keys) keys.emplace_back(key);
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    // A law says how a case calls a kernel; the kernel sees only single calls.
    if (key == "law" || std::ranges::find(out, key) != out.end()) continue;
    try {
      require_call_key(key, system, "limit");
    } catch (const Error&) {
      continue;
    }
    out.push_back(key);
  }
  return out;
}

std::optional<std::int64_t> whole(const std::string& text) {
  if (text.empty() || text.find_first_not_of("0123456789") != text.npos || text.size() > 15) return {};
  return std::stoll(text);
}

/// Returns the tightest conditions on one key that all these values satisfy.
std::vector<std::string> met_by_all(const std::string& key, const std::set<std::string>& values) {
  std::vector<std::string> out;
  if (values.size() == 1) {
    const std::string& only = *values.begin();
    out.push_back(fmt::format("{} = {}", key, only));
    return out;
  }
  std::vector<std::int64_t> numbers;
  for (const std::string& text : values) {
    if (const std::optional<std::int64_t> number = whole(text)) numbers.push_back(*number);
  }
  constexpr std::size_t kMostListed = 6;
  const bool counts = numbers.size() == values.size();
  if (counts) {
    out.push_back(fmt::format("{} <= {}", key, *std::ranges::max_element(numbers)));
    out.push_back(fmt::format("{} >= {}", key, *std::ranges::min_element(numbers)));
    for (const std::int64_t m : {2, 4, 8, 16, 32, 64, 128, 256}) {
      if (std::ranges::all_of(numbers, [&](std::int64_t n) { return n % m == 0; }))
        out.push_back(fmt::format("{} % {} = 0", key, m));
    }
  }
  if (values.size() <= kMostListed) {
    if (counts) {
      std::ranges::sort(numbers);
      out.push_back(fmt::format("{} in {}", key, fmt::join(numbers, " ")));
    } else {
      out.push_back(fmt::format("{} in {}", key, fmt::join(values, " ")));
    }
  }
  return out;
}

std::vector<std::string> candidates(const System& system, std::span<const Case> taken) {
  const std::vector<std::string> keys = keys_of(system);
  std::vector<std::string> out;
  for (const std::string& key : keys) {
    std::set<std::string> values;
    for (const Case& c : taken) values.insert(call_value(c, key));
    for (std::string& text : met_by_all(key, values)) out.push_back(std::move(text));
  }
  // Two sizes with only one value each may be equal, or different, by chance.
  const auto varies = [&](const CaseSize& size) {
    return std::ranges::any_of(taken, [&](const Case& c) {
      return call_value(c, size.name) != call_value(taken.front(), size.name);
    });
  };
  for (const CaseSize& a : system.sizes) {
    for (const CaseSize& b : system.sizes) {
      if (&a == &b || !varies(a) || !varies(b)) continue;
      for (const char* sign : {"=", "<="}) out.push_back(fmt::format("{} {} {}", a.name, sign, b.name));
    }
  }
  return out;
}

/// Returns the reason with every number replaced by #, so that refusals at other sizes compare equal.
std::string alike(const std::string& reason) {
  std::string out;
  for (const char c : reason) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit || out.empty() || out.back() != '#') out += digit ? '#' : c;
  }
  return out;
}

/// Returns the key with which a condition begins.
std::string key_in(const std::string& limit) { return limit.substr(0, limit.find(' ')); }

}  // namespace

bool names_key(const std::string& limits, const std::string& limit) {
  const std::string key = key_in(limit);
  for (std::size_t at = limits.find(key); at != limits.npos; at = limits.find(key, at + 1)) {
    const auto is_word = [&](std::size_t i) {
      return i < limits.size() &&
             (std::isalnum(static_cast<unsigned char>(limits[i])) != 0 || limits[i] == '_');
    };
    if ((at == 0 || !is_word(at - 1)) && !is_word(at + key.size())) return true;
  }
  return false;
}

std::vector<std::string> separating_limits(std::span<const Case> refused, std::span<const Case> taken) {
  if (refused.empty() || taken.empty()) return {};
  const System& system = system_named(refused.front().system);
  struct Limit {
    std::string text;
    std::size_t values;        ///< number of values of its key in accepted cases
    std::vector<bool> breaks;  ///< per refused case
  };
  std::vector<Limit> usable;
  for (const std::string& text : candidates(system, taken)) {
    try {
      const DeclaredLimits limits(std::array{text}, system);
      if (!std::ranges::all_of(taken, [&](const Case& c) { return limits.hold(c); })) continue;
      std::set<std::string> values;
      for (const Case& c : taken) values.insert(call_value(c, key_in(text)));
      Limit limit{text, values.size(), {}};
      for (const Case& c : refused) limit.breaks.push_back(!limits.hold(c));
      usable.push_back(std::move(limit));
    } catch (const Error&) {
      continue;  // no limit can contain this value
    }
  }
  constexpr std::size_t kMost = 6;
  std::vector<std::string> out;
  std::vector<bool> broken(refused.size());
  while (out.size() < kMost) {
    // If two separate equally many cases, the one whose key was tried at more values is less likely to do so
    // by chance.
    const Limit* best = nullptr;
    std::pair<std::ptrdiff_t, std::size_t> most{0, 0};
    for (const Limit& limit : usable) {
      std::ptrdiff_t fresh = 0;
      for (std::size_t i = 0; i < broken.size(); ++i) fresh += limit.breaks[i] && !broken[i] ? 1 : 0;
      if (const std::pair now{fresh, limit.values}; fresh > 0 && now > most) best = &limit, most = now;
    }
    if (best == nullptr) return {};
    out.push_back(best->text);
    for (std::size_t i = 0; i < broken.size(); ++i) broken[i] = broken[i] || best->breaks[i];
    if (std::ranges::all_of(broken, std::identity())) return out;
  }
  return {};
}

std::vector<Refusals> find_refusals(std::span<const Record> records,
                                    const std::function<std::string(const std::string& kernel)>& limits_of) {
  std::map<std::pair<std::string, std::string>, Refusals> groups;
  std::map<std::string, std::vector<Case>> taken;
  for (std::size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    if (record.judgement.verdict == Verdict::crash && record.judgement.gate == kRefusal) {
      Refusals& group = groups[{record.kernel, alike(record.judgement.reason)}];
      if (group.records.empty()) group.kernel = record.kernel, group.reason = record.judgement.reason;
      group.records.push_back(i);
    } else if (record.spent.calls > 0 &&
               (is_judged(record.judgement.verdict) || record.judgement.verdict == Verdict::vacuous)) {
      taken[record.kernel].push_back(parse_case(record.line));
    }
  }
  std::vector<Refusals> out;
  for (auto& [key, group] : groups) {
    if (group.records.size() < kAlike) continue;
    std::vector<Case> refused;
    for (const std::size_t i : group.records) refused.push_back(parse_case(records[i].line));
    group.limits = separating_limits(refused, taken[group.kernel]);
    const std::string declared = limits_of(group.kernel);
    group.declared = std::ranges::any_of(
        group.limits, [&](const std::string& limit) { return names_key(declared, limit); });
    out.push_back(std::move(group));
  }
  return out;
}

std::vector<std::string> count_as_refused(std::vector<Record>& records, std::span<const Refusals> refusals) {
  std::vector<std::string> sentences;
  for (const Refusals& group : refusals) {
    if (group.limits.empty() || group.declared) continue;
    for (const std::size_t i : group.records) {
      Judgement& j = records[i].judgement;
      j.verdict = Verdict::unsupported;
      j.gate = kRefused;
    }
    const bool one = group.limits.size() == 1;
    sentences.push_back(
        fmt::format("{} refused {} cases: {}; what it took meets {}, and every refused case breaks {}: "
                    "declare the limit{} {}, "
                    "and the gate draws none outside",
                    group.kernel, group.records.size(), group.reason, fmt::join(group.limits, " and "),
                    one ? "it" : "one of them", one ? "" : "s", fmt::join(group.limits, "; ")));
  }
  return sentences;
}

}  // namespace samestate
