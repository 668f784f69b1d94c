#include "harness/explain/explain_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "harness/cases/keys.h"
#include "harness/cases/regimes.h"
#include "harness/cases/resolved.h"
#include "harness/run/run_case.h"
#include "reference/error.h"

namespace samestate {
namespace {

bool power_of_two(std::int64_t n) { return n > 0 && std::has_single_bit(static_cast<std::uint64_t>(n)); }

/// Lists the first few values that fail, or with `wanted` false those that pass.
std::string listed(const FailsWith& fails, bool wanted) {
  constexpr std::size_t kShown = 5;
  std::vector<std::string> some;
  for (const auto& [value, failed] : fails) {
    if (failed != wanted) continue;
    if (some.size() == kShown) {
      some.emplace_back("..");
      break;
    }
    some.push_back(fmt::format("{}", value));
  }
  return fmt::format("{}", fmt::join(some, ", "));
}

/// Returns the largest value below `failing` that passes and the smallest above it that passes; nullopt if
/// there is none.
std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>> passes_around(const FailsWith& fails,
                                                                                  std::int64_t failing) {
  std::optional<std::int64_t> below, above;
  for (const auto& [value, failed] : fails) {
    if (failed) continue;
    if (value < failing) below = value;
    if (value > failing && !above) above = value;
  }
  return {below, above};
}

}  // namespace

namespace {

/// A rule that holds for fewer values than this, on either side of what it separates, may be chance.
constexpr std::ptrdiff_t kLeastOfEach = 3;

/// Returns true if the values at the low end that are at most `last` are enough for a rule: kLeastOfEach of them, or all
/// that there are from 1 on.
bool enough_up_to(std::int64_t last, const FailsWith& fails) {
  const auto tried = std::distance(fails.begin(), fails.upper_bound(last));
  return tried >= kLeastOfEach || (tried == last && fails.begin()->first == 1);
}

std::string rule_without_exception(std::string_view key, std::int64_t failing, const FailsWith& fails,
                                   const std::vector<std::pair<std::int64_t, std::string>>& units) {
  if (std::ranges::all_of(fails, [](const auto& x) { return x.second; })) return "";
  const auto separates = [&](const std::function<bool(std::int64_t)>& fault) {
    return std::ranges::all_of(fails, [&](const auto& x) { return fault(x.first) == x.second; });
  };
  const auto [below, above] = passes_around(fails, failing);
  const std::string tried =
      fmt::format(": passes with {}={}, fails with {}", key, listed(fails, false), listed(fails, true));
  const auto failures = std::ranges::count_if(fails, [](const auto& x) { return x.second; });
  const auto passes = std::ssize(fails) - failures;
  // A bound on one side is the simplest rule, although nothing is known about the values between its two
  // ends.
  if (below && failures >= kLeastOfEach && enough_up_to(*below, fails) &&
      separates([&](std::int64_t n) { return n > *below; })) {
    for (const auto& [unit, name] : units) {
      if (*below == unit)
        return fmt::format("only where {} is larger than {} ({}){}", key, unit, name, tried);
    }
    const auto first = std::ranges::find_if(fails, [](const auto& x) { return x.second; })->first;
    return fmt::format("only from {} = {} on{}", key, first, tried);
  }
  const auto last = std::find_if(fails.rbegin(), fails.rend(), [](const auto& x) { return x.second; })->first;
  if (above && passes >= kLeastOfEach && enough_up_to(last, fails) &&
      separates([&](std::int64_t n) { return n < *above; })) {
    if (failures == 1) return fmt::format("only {} = {}{}", key, failing, tried);
    for (const auto& [unit, name] : units) {
      if (*above == unit) return fmt::format("only where {} is less than {} ({}){}", key, unit, name, tried);
    }
    return fmt::format("only up to {} = {}{}", key, last, tried);
  }
  // Where one value fails, values on both sides of it pass.
  if (failures == 1 && passes >= kLeastOfEach && below && above)
    return fmt::format("only {} = {}{}", key, failing, tried);
  const std::string depends = fmt::format("depends on {}{}", key, tried);
  if (failures < kLeastOfEach || passes < kLeastOfEach) return depends;
  for (const auto& [unit, name] : units) {
    if (unit < 2) continue;
    if (separates([&](std::int64_t n) { return n % unit != 0; }))
      return fmt::format("only where {} is no multiple of {} ({}){}", key, unit, name, tried);
    if (separates([&](std::int64_t n) { return n % unit == 0; }))
      return fmt::format("only where {} is a multiple of {} ({}){}", key, unit, name, tried);
    if (separates([&](std::int64_t n) { return n > unit && n % unit != 0; }))
      return fmt::format("only where {0} is larger than {1} ({2}) and no multiple of it{3}", key, unit, name,
                         tried);
    if (separates([&](std::int64_t n) { return n > unit && n % unit == 0; }))
      return fmt::format("only where {0} is a multiple of {1} ({2}) larger than it{3}", key, unit, name,
                         tried);
  }
  if (separates([](std::int64_t n) { return !power_of_two(n); }))
    return fmt::format("only where {} is no power of two{}", key, tried);
  if (separates(power_of_two)) return fmt::format("only where {} is a power of two{}", key, tried);
  if (separates([](std::int64_t n) { return n % 2 != 0; }))
    return fmt::format("only where {} is odd{}", key, tried);
  for (const std::int64_t unit : {2, 3, 4, 8, 16, 32, 64, 128}) {
    if (separates([&](std::int64_t n) { return n % unit != 0; }))
      return fmt::format("only where {} is no multiple of {}{}", key, unit, tried);
    if (separates([&](std::int64_t n) { return n % unit == 0; }))
      return fmt::format("only where {} is a multiple of {}{}", key, unit, tried);
  }
  if (below && above && separates([&](std::int64_t n) { return n > *below && n < *above; }))
    return fmt::format("only where {} lies between {} and {}{}", key, *below, *above, tried);
  return depends;
}

}  // namespace

std::string rule_of(std::string_view key, std::int64_t failing, const FailsWith& fails,
                    const std::vector<std::pair<std::int64_t, std::string>>& units) {
  std::string rule = rule_without_exception(key, failing, fails, units);
  // With one token or one channel, much that is wrong elsewhere is right: nothing is carried, and there is
  // nothing to mix.
  const auto one = fails.find(1);
  if (!rule.starts_with("depends on ") || one == fails.end() || one->second) return rule;
  FailsWith others = fails;
  others.erase(1);
  if (std::string better = rule_without_exception(key, failing, others, units);
      !better.empty() && !better.starts_with("depends on "))
    return fmt::format("{}, and with 1 it passes too", better);
  return rule;
}

namespace {

/// Returns values of a size that distinguish rules, the most telling first: its neighbours, the multiples
/// around it, powers of two, and one.
std::vector<std::int64_t> values_around(std::int64_t now,
                                        const std::vector<std::pair<std::int64_t, std::string>>& units) {
  std::vector<std::int64_t> out;
  const auto put = [&](std::initializer_list<std::int64_t> values) {
    for (const std::int64_t value : values) {
      if (value >= 1 && value != now && std::ranges::find(out, value) == out.end()) out.push_back(value);
    }
  };
  for (const auto& [unit, name] : units) {
    if (unit < 2) continue;
    const std::int64_t floor = now / unit * unit;
    put({floor, floor + unit, floor + unit + 1, unit, unit - 1, unit + 1, floor - unit});
  }
  put({1, now - 1, now + 1, 2, 2 * now, now / 2, 3, 4});
  const auto n = static_cast<std::uint64_t>(std::max<std::int64_t>(now, 1));
  put({static_cast<std::int64_t>(std::bit_floor(n)), static_cast<std::int64_t>(std::bit_ceil(n + 1))});
  for (const std::int64_t unit : {4, 8, 16}) {
    if (now > unit / 2) put({now / unit * unit, (now / unit + 1) * unit});
  }
  return out;
}

class Trials {
 public:
  Trials(const Case& failing, const KernelTable& table, Reruns& reruns)
      : failing_(failing),
        table_(table),
        reruns_(reruns),
        // Larger sizes are tried as far as the case then costs about as much, so that it still runs within
        // the caller's patience.
        most_(4.0 * size_of_case(Resolved(failing)) + 65536.0) {}

  KeyRules operator()() {
    const Resolved r(failing_);
    using Units = std::vector<std::pair<std::int64_t, std::string>>;
    std::vector<std::function<void()>> keys;
    const Units chunk = r.form->chunked && failing_.chunk > 1 ? Units{{failing_.chunk, "chunk"}} : Units{};
    if (failing_.lengths.empty())
      keys.emplace_back([=, this] { size("T", failing_.T, chunk, [](Case& c, auto v) { c.T = v; }); });
    if (!chunk.empty())
      keys.emplace_back([this] {
        size("chunk", failing_.chunk, {{failing_.T, "T"}}, [](Case& c, auto v) { c.chunk = v; });
      });
    if (r.form->decodes)
      keys.emplace_back(
          [=, this] { size("prefill", failing_.prefill, chunk, [](Case& c, auto v) { c.prefill = v; }); });
    if (failing_.lengths.empty())
      keys.emplace_back([this] { size("B", failing_.B, {}, [](Case& c, auto v) { c.B = v; }); });
    if (failing_.lengths.size() > 1) keys.emplace_back([this] { sequences(); });
    for (const CaseSize& of : r.system->sizes) keys.emplace_back([this, &r, &of] { own_size(r, of); });
    keys.emplace_back([this, &r] { regimes(r); });
    keys.emplace_back([this] { others(); });
    keys.emplace_back([this, &r] { forms(r); });
    keys.emplace_back([this] { without_law(); });
    keys.emplace_back([this] { contracts(); });
    keys.emplace_back([this] { seeds(); });
    for (std::size_t i = 0; i < keys.size(); ++i) {
      reruns_.slice(1.0 / static_cast<double>(keys.size() - i));
      keys[i]();
    }
    std::ranges::move(bounds_, std::back_inserter(out_.rules));
    return std::move(out_);
  }

 private:
  /// Returns whether the case fails; nullopt if it is invalid, if it is not judged, or if no run is left.
  std::optional<bool> fails(const Case& c) {
    const std::optional<Resolved> r = resolved(c);
    if (!r || size_of_case(*r) > most_ || !reruns_.start()) return std::nullopt;
    try {
      const Verdict verdict = run_case(c, table_).judgement.verdict;
      if (verdict == Verdict::fail) return true;
      if (verdict == Verdict::pass) return false;
    } catch (const Error&) {  // no kernel of the table runs the case
    }
    return std::nullopt;
  }
  [[nodiscard]] bool passes(const Case& c) { return fails(c) == std::optional(false); }

  /// Tries other values of a size that is a parameter of the system.
  void own_size(const Resolved& r, const CaseSize& of) {
    const std::int64_t unit = of.multiple_of.empty() ? 1 : size_in(failing_, of.multiple_of);
    std::vector<std::pair<std::int64_t, std::string>> multiples;
    if (unit > 1) multiples.emplace_back(unit, of.multiple_of);
    size(of.name, size_in(failing_, of.name), multiples, [&](Case& c, std::int64_t v) {
      // A size that must be a multiple of this one keeps its factor.
      for (const CaseSize& other : r.system->sizes) {
        if (other.multiple_of != of.name) continue;
        std::int64_t& follows = size_in(c, other.name);
        follows = follows / size_in(failing_, of.name) * v;
      }
      size_in(c, of.name) = v;
    });
  }

  template <class Set>
  void size(std::string_view key, std::int64_t now,
            const std::vector<std::pair<std::int64_t, std::string>>& units, Set set) {
    if (now < 1) return;
    FailsWith found{{now, true}};
    const auto attempt = [&](std::int64_t value) {
      Case c = failing_;
      set(c, value);
      c.prefill = std::min(c.prefill, c.T);
      if (const std::optional<bool> failed = fails(c)) found[value] = *failed;
      return found.contains(value);
    };
    for (const std::int64_t value : values_around(now, units)) attempt(value);
    bisect(found, attempt);
    take(key, found, rule_of(key, now, found, units));
  }

  /// If all values above a passing one fail, finds the first that fails; the same downwards.
  template <class Attempt>
  static void bisect(FailsWith& found, const Attempt& attempt) {
    const auto monotone = [&] {
      int turns = 0;
      for (auto it = found.begin(); std::next(it) != found.end(); ++it)
        turns += it->second != std::next(it)->second ? 1 : 0;
      return turns == 1;
    };
    for (int i = 0; i < 8 && found.size() > 1 && monotone(); ++i) {
      const auto turn = std::adjacent_find(found.begin(), found.end(),
                                           [](const auto& a, const auto& b) { return a.second != b.second; });
      const std::int64_t low = turn->first, high = std::next(turn)->first;
      if (high - low < 2 || !attempt(low + (high - low) / 2)) return;
    }
  }

  /// Keeps only the first few sequences of a packed batch.
  void sequences() {
    const auto now = std::ssize(failing_.lengths);
    FailsWith found{{now, true}};
    const auto attempt = [&](std::int64_t count) {
      Case c = failing_;
      c.lengths.resize(static_cast<std::size_t>(count));
      c.T = 0;
      for (const std::int64_t length : c.lengths) c.T += length;
      if (const std::optional<bool> failed = fails(c)) found[count] = *failed;
      return found.contains(count);
    };
    for (const std::int64_t count : std::set<std::int64_t>{1, 2, 3, now / 2, now - 1}) {
      if (count >= 1 && count < now) attempt(count);
    }
    bisect(found, attempt);
    take("sequences", found, rule_of("sequences", now, found, {}));
  }

  void regimes(const Resolved& r) {
    constexpr std::size_t kTried = 6;
    std::vector<std::string> passes, others;
    std::size_t tried = 0;
    for (const Regime* regime : r.system->regimes) {
      if (regime->name == failing_.regime || tried == kTried) continue;
      Case c = failing_;
      c.regime = regime->name;
      const std::optional<bool> failed = fails(c);
      if (!failed) continue;
      ++tried;
      (*failed ? others : passes).emplace_back(regime->name);
    }
    // If only one or two of many regimes pass, that may be because of their data.
    if (std::ssize(passes) >= kLeastOfEach && others.empty())
      out_.rules.push_back(
          fmt::format("only with regime={}: passes with {}", failing_.regime, fmt::join(passes, ", ")));
  }

  /// Replaces keys that are neither sizes nor settings by the values that shrinking would use.
  void others() {
    for (const Key& key : keys()) {
      if (key.setting || key.smaller == nullptr || key.name == "B" || key.print(failing_).empty()) continue;
      for (const Case& c : key.smaller(failing_)) {
        if (key.value(c) == key.value(failing_) || !passes(c)) continue;
        out_.rules.push_back(fmt::format("only with {0}={1}: passes with {0}={2}", key.name,
                                         key.value(failing_), key.value(c)));
        break;
      }
    }
  }

  /// Tries other forms that the same kernel runs.
  void forms(const Resolved& r) {
    const std::string kernel = table_.choose(r).named->name;
    std::vector<std::string_view> passing;
    for (const CaseForm& form : r.system->forms) {
      if (form.name == failing_.form) continue;
      Case c = failing_;
      c.form = form.name;
      c.kernel = kernel;
      if (!form.decodes) c.prefill = Case{}.prefill, c.step = Case{}.step;
      if (!form.packed) c.lengths.clear();
      if (passes(c)) passing.push_back(form.name);
    }
    if (!passing.empty())
      out_.weak.push_back(
          fmt::format("passes in form={}, and fails in form={}", fmt::join(passing, ", "), failing_.form));
  }

  void without_law() {
    if (failing_.law.empty()) return;
    Case c = failing_;
    c.law.clear();
    if (passes(c)) out_.weak.push_back(fmt::format("passes without law={}, on the same data", failing_.law));
  }

  /// Tries a contract with fewer roundings, which allows smaller errors.
  void contracts() {
    Case c = failing_;
    c.contract = "fp32";
    if (c.contract != failing_.contract && passes(c))
      out_.weak.push_back(
          fmt::format("passes with contract={}, and fails with contract={}", c.contract, failing_.contract));
  }

  /// Tries other data of the same kind.
  void seeds() {
    constexpr std::uint64_t kSeeds = 6;
    std::uint64_t passed = 0, tried = 0;
    for (std::uint64_t i = 1; i <= kSeeds; ++i) {
      Case c = failing_;
      c.seed += 3 * i;  // this seed chooses the same number of threads
      const std::optional<bool> failed = fails(c);
      if (!failed) continue;
      ++tried;
      passed += *failed ? 0 : 1;
    }
    if (passed > 0)
      out_.weak.push_back(
          fmt::format("on some data alone: {} of {} other seeds pass, all else the same", passed, tried));
  }

  /// A threshold at one or two is typical of anything that is wrong with what is carried or shared.
  void take(std::string_view key, const FailsWith& found, std::string rule) {
    if (rule.empty()) return;
    const bool from = rule.starts_with("only from ") || rule.find(" is larger than ") != rule.npos;
    const bool several = from && !found.begin()->second && key != "sequences" && key != "B" &&
                         std::ranges::none_of(found, [](const auto& x) { return x.first > 2 && !x.second; });
    if (several || rule.starts_with("depends on ")) {
      out_.weak.push_back(std::move(rule));
    } else if (from || rule.starts_with("only up to ") || rule.find(" is less than ") != rule.npos) {
      bounds_.push_back(std::move(rule));
    } else {
      out_.rules.push_back(std::move(rule));
    }
  }

  const Case& failing_;
  const KernelTable& table_;
  Reruns& reruns_;
  double most_;
  KeyRules out_;
  std::vector<std::string>
      bounds_;  ///< rules with one end only, which come after those that are more telling
};

}  // namespace

KeyRules keys_that_matter(const Case& failing, const KernelTable& table, Reruns& reruns) {
  return Trials(failing, table, reruns)();
}

}  // namespace samestate
