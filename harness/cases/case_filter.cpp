#include "harness/cases/case_filter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <span>

#include "harness/cases/keys.h"
#include "harness/cases/system.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::string_view kNone = "none";
constexpr std::string_view kHowToRange = "write 64, 64..4096, 64.., ..4096 or 1,2,5";

bool is_pattern(std::string_view text) { return text.find_first_of("*?") != std::string_view::npos; }

bool matches(std::string_view pattern, std::string_view text) {
  return fnmatch(std::string(pattern).c_str(), std::string(text).c_str(), 0) == 0;
}

std::optional<double> number(std::string_view text) {
  if (text.starts_with("0x")) {
    std::uint64_t whole = 0;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), whole, 16);
    if (error != std::errc{} || end != text.data() + text.size()) return {};
    return static_cast<double>(whole);
  }
  double value = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) return {};
  return value;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  while (true) {
    const std::size_t end = std::min(text.find(at), text.size());
    out.push_back(text.substr(0, end));
    if (end == text.size()) return out;
    text.remove_prefix(end + 1);
  }
}

/// Returns true if the values of a key are numbers: the standard value is one, or the key's row accepts
/// nothing else.
bool is_numeric(std::string_view name) {
  if (name == "system") return false;
  const Key* key = key_named(name);
  if (key == nullptr) return true;  // the key is a size
  Case scratch;
  if (const std::string standard = key->value(scratch); !standard.empty())
    return number(split(standard, ',').front()).has_value();
  try {
    key->parse(scratch, "name");
    return false;
  } catch (const Error&) {
    return true;
  }
}

/// Returns true if the case's form reads the key.
bool form_reads(const Case& c, const System& system, std::string_view key) {
  const CaseForm* form = system.form(c.form);
  if (form == nullptr) return true;
  if (key == "chunk") return form->chunked;
  if (key == "prefill" || key == "step" || key == "cached") return form->decodes;
  if (key == "ranks" || key == "cuts") return form->ranked || c.ranks > 1;
  return true;
}

/// Returns "; nearest: a, b", or an empty text.
std::string near_text(std::string_view name, std::span<const std::string_view> known) {
  const std::vector<std::string_view> near = nearest_names(name, known);
  return near.empty() ? "" : fmt::format("; nearest: {}", fmt::join(near, ", "));
}

/// Quotes a condition as the user gave it: an option named after the key has only the value.
std::string given(std::string_view option, std::string_view key, std::string_view value) {
  if (option.starts_with("--") && option.substr(2) == key) return fmt::format("{} {}", option, value);
  return fmt::format("{} {}={}", option, key, value);
}

KeyCondition::Value range_of(std::string_view key, std::string_view text, std::string_view option) {
  const std::size_t dots = text.find("..");
  const std::string_view first = text.substr(0, dots);
  const std::string_view last = text.substr(dots + 2);
  const std::optional<double> least = first.empty() ? -kInfinity : number(first);
  const std::optional<double> most = last.empty() ? kInfinity : number(last);
  if (!least || !most || (first.empty() && last.empty())) {
    throw Error(fmt::format("{} {}={}: no range of numbers; {}", option, key, text, kHowToRange));
  }
  if (*least > *most) {
    throw Error(fmt::format("{} {}={}: an empty range; write {}..{}", option, key, text, last, first));
  }
  return {std::string(text), true, *least, *most};
}

/// Reads a name and checks that it is known under the key.
KeyCondition::Value name_of(std::string_view key, std::string_view text, std::string_view option) {
  const auto looked_up = [&](const auto& name) -> KeyCondition::Value {
    try {
      return {std::string(name()), false, 0.0, 0.0};
    } catch (const Error& error) {
      const std::string_view why = error.what();
      throw Error(fmt::format("{}{}", given(option, key, text), why.substr(why.find(": "))));
    }
  };
  // A contract may have changes, or be a pattern of such contracts: the grammar decides which ones exist.
  if (key == "contract" && text != kNone && (!is_pattern(text) || text.find('+') != std::string_view::npos)) {
    if (is_pattern(text)) return {std::string(text), false, 0.0, 0.0};
    return looked_up([&] { return contract_named(text).name; });
  }
  if (key == "system" && !is_pattern(text)) return looked_up([&] { return system_named(text).name; });
  const std::vector<std::string_view> known = known_values(key);
  const bool found = std::any_of(known.begin(), known.end(), [&](std::string_view name) {
    return is_pattern(text) ? matches(text, name) : name == text;
  });
  if (!known.empty() && !found && !(text == kNone && key == "law")) {
    throw Error(fmt::format("{}: no such {}{}; known: {}", given(option, key, text), key,
                            near_text(text, known), fmt::join(known, ", ")));
  }
  if (known.empty() && key != "kernel" && !is_pattern(text) && text != kNone) {
    Case scratch;
    key_named(key)->parse(scratch, text);
  }
  return {std::string(text), false, 0.0, 0.0};
}

KeyCondition condition_of(std::string_view text, std::string_view option) {
  const std::size_t equals = text.find('=');
  const std::string_view key = text.substr(0, equals);
  const std::vector<std::string_view> known = filter_keys();
  if (equals == std::string_view::npos) {
    throw Error(fmt::format("{} {}: write KEY=VALUE, as T=64..4096 or contract=bf16; keys: {}", option, text,
                            fmt::join(known, ", ")));
  }
  if (std::find(known.begin(), known.end(), key) == known.end()) {
    throw Error(fmt::format("{} {}: unknown key '{}'{}; known keys: {}", option, text, key,
                            meant_key(key, known), fmt::join(known, ", ")));
  }
  KeyCondition out{std::string(key), {}};
  for (const std::string_view value : split(text.substr(equals + 1), ',')) {
    if (value.empty()) {
      throw Error(fmt::format("{} {}: key '{}' has an empty value; write {}=VALUE, or {}=none", option, text,
                              key, key, key));
    }
    if (!is_numeric(key)) {
      out.any.push_back(name_of(key, value, option));
    } else if (value == kNone) {
      out.any.push_back({std::string(value), false, 0.0, 0.0});
    } else if (value.find("..") != std::string_view::npos) {
      out.any.push_back(range_of(key, value, option));
    } else if (const std::optional<double> one = number(value)) {
      out.any.push_back({std::string(value), true, *one, *one});
    } else {
      throw Error(fmt::format("{} {}={}: no number; {}", option, key, value, kHowToRange));
    }
  }
  return out;
}

std::vector<KeyCondition> conditions_of(std::string_view text, std::string_view option) {
  // The limits of a case line apply here too: a quoted condition must stay one readable line and must not
  // control a terminal.
  constexpr std::size_t kLongest = 4096;
  if (text.size() > kLongest)
    throw Error(fmt::format("{}: {} characters, at most {} are read", option, text.size(), kLongest));
  for (const char c : text) {
    if (c < 0x20 || c >= 0x7f)
      throw Error(fmt::format("{} contains byte {:#04x}: write printable ASCII", option,
                              static_cast<unsigned>(static_cast<unsigned char>(c))));
  }
  std::vector<KeyCondition> out;
  for (const std::string_view word : split(text, ' ')) {
    if (!word.empty()) out.push_back(condition_of(word, option));
  }
  if (out.empty()) {
    throw Error(fmt::format("{}: nothing in it; write KEY=VALUE, as T=64..4096; keys: {}", option,
                            fmt::join(filter_keys(), ", ")));
  }
  return out;
}

void append(std::string& to, std::string_view option, std::string_view text) {
  // As in given().
  if (option.starts_with("--") && text.starts_with(fmt::format("{}=", option.substr(2))))
    text.remove_prefix(option.size() - 1);
  to += fmt::format("{}{} '{}'", to.empty() ? "" : " ", option, text);
}

}  // namespace

bool KeyCondition::holds(const Case& c, std::string_view kernel) const {
  const auto is = [&](std::string_view value) {
    return std::any_of(any.begin(), any.end(), [&](const Value& v) {
      if (v.text == kNone && (value.empty() || value == kNone)) return true;
      if (value.empty()) return false;  // an absent value matches no pattern, not even *
      if (!v.range) return is_pattern(v.text) ? matches(v.text, value) : v.text == value;
      const std::optional<double> x = value.empty() ? std::optional<double>() : number(value);
      return x && v.least <= *x && *x <= v.most;
    });
  };
  if (key == "system") return is(c.system) || is(forward_name(c.system));
  if (key == "kernel") return is(kernel.empty() ? std::string_view(c.kernel) : kernel);
  if (const auto own = c.parameters.find(key); own != c.parameters.end())
    return is(std::to_string(own->second));
  const System& system = system_named(c.system);
  if (!system.has_key(key) || !form_reads(c, system, key)) return false;
  const std::string value = key_named(key)->value(c);
  if (value.empty()) return is(value);
  // A list, such as lengths, matches if any element does.
  const std::vector<std::string_view> elements = split(value, ',');
  return std::any_of(elements.begin(), elements.end(), is);
}

void CaseFilter::where(std::string_view text, std::string_view option) {
  for (KeyCondition& condition : conditions_of(text, option)) kept_.push_back(std::move(condition));
  append(text_, option, text);
}

void CaseFilter::exclude(std::string_view text, std::string_view option) {
  dropped_.push_back(conditions_of(text, option));
  append(text_, option, text);
}

bool CaseFilter::reads_kernel() const {
  const auto reads = [](const KeyCondition& condition) { return condition.key == "kernel"; };
  return std::any_of(kept_.begin(), kept_.end(), reads) ||
         std::any_of(dropped_.begin(), dropped_.end(),
                     [&](const auto& all) { return std::any_of(all.begin(), all.end(), reads); });
}

bool CaseFilter::takes(const Case& c, std::string_view kernel) const {
  const auto holds = [&](const KeyCondition& condition) { return condition.holds(c, kernel); };
  return std::all_of(kept_.begin(), kept_.end(), holds) &&
         std::none_of(dropped_.begin(), dropped_.end(),
                      [&](const auto& all) { return std::all_of(all.begin(), all.end(), holds); });
}

bool is_among(std::string_view names, std::string_view name) {
  if (names.empty()) return true;
  const std::vector<std::string_view> all = split(names, ',');
  return std::any_of(all.begin(), all.end(), [&](std::string_view one) { return matches(one, name); });
}

std::vector<std::string_view> plain_names(std::string_view names) {
  std::vector<std::string_view> plain;
  for (const std::string_view one : split(names, ',')) {
    if (!one.empty() && !is_pattern(one)) plain.push_back(one);
  }
  return plain;
}

std::vector<std::string_view> filter_keys() {
  std::vector<std::string_view> out = {"system"};
  for (const Key& key : keys()) {
    if (key.name != "contract") {
      out.push_back(key.name);
      continue;
    }
    std::set<std::string_view> sizes;
    for (const System* system : systems()) {
      for (const CaseSize& size : system->sizes) {
        if (size.own) sizes.insert(size.name);
      }
    }
    for (const std::string_view size : sizes) {
      if (key_named(size) == nullptr) out.push_back(size);
    }
    out.push_back(key.name);
  }
  return out;
}

std::vector<std::string_view> known_values(std::string_view key) {
  std::vector<std::string_view> out;
  const auto add = [&](std::string_view name) {
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  };
  if (key == "contract") {
    for (const NamedContract& row : contracts()) add(row.contract.name);
  }
  for (const System* system : systems()) {
    if (key == "system") add(system->name);
    if (key == "form") {
      for (const CaseForm& form : system->forms) add(form.name);
    }
    if (key == "regime") {
      for (const Regime* regime : system->regimes) add(regime->name);
    }
    if (key == "law") {
      for (const Law* law : system->laws) add(law->name);
    }
  }
  return out;
}

}  // namespace samestate
