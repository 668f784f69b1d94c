#include "harness/cases/declared_limits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <limits>
#include <optional>

#include "fixtures/quote.h"
#include "harness/cases/keys.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr std::string_view kGrammar =
    "write KEY <= N, KEY >= N, KEY = V, KEY != V, KEY % N = R, KEY in V V .. or KEY in N..M, optionally "
    "followed by `if "
    "CONDITION`";

/// The value of `law` for a case that is judged against the oracle alone.
constexpr const char* kNoLaw = "none";

/// Keys of a run that no call can see.
constexpr std::array<std::string_view, 6> kUnseen = {"prefill", "step",   "cached",
                                                     "lengths", "kernel", "seed"};

/// Returns the member for a size (T, B, chunk or ranks), or null for other keys.
template <class AnyCase>
auto number_in(AnyCase& c, std::string_view key) -> decltype(&c.T) {
  if (key == "T") return &c.T;
  if (key == "B") return &c.B;
  if (key == "chunk") return &c.chunk;
  if (key == "ranks") return &c.ranks;
  if (const auto own = c.parameters.find(key); own != c.parameters.end()) return &own->second;
  for (const Key& row : keys()) {
    if (row.name == key && row.size != nullptr) return &(c.*row.size);
  }
  return nullptr;
}

std::optional<std::int64_t> number_of(const Case& c, std::string_view key) {
  if (key == "sequences") return sequences_of(c);
  if (key == "shortest") return c.lengths.empty() ? c.T : std::ranges::min(c.lengths);
  if (key == "longest") return c.lengths.empty() ? c.T : std::ranges::max(c.lengths);
  // This is the recurrent family's key; a system of named tensors may have a size of that name.
  if (key == "l2norm" && !c.parameters.contains(key)) return c.l2norm ? 1 : 0;
  const std::int64_t* number = number_in(c, key);
  return number != nullptr ? std::optional(*number) : std::nullopt;
}

/// Returns what a line says for the key, or the default's name if the line omits it.
std::string word_of(const Case& c, std::string_view key) {
  if (key == "cuts" && c.cuts == kCutHeads) return Case{}.cuts;  // even ones
  for (const Key& row : keys()) {
    if (row.name != key) continue;
    if (std::string text = row.print(c); !text.empty()) return text;
  }
  return key == "heads"      ? "interleaved"
         : key == "contract" ? Case{}.contract
         : key == "state"    ? Case{}.state
         : key == "layout"   ? Case{}.layout
         : key == "cuts"     ? Case{}.cuts
         : key == "law"      ? kNoLaw
                             : "default";
}

/// Returns nullopt if the text is not a 64-bit integer.
std::optional<std::int64_t> whole(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || text.empty() || end != text.data() + text.size() || value < 0) return {};
  return value;
}

/// Splits a condition into words, numbers and operators.
std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> out;
  const auto in_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.';
  };
  const auto in_operator = [](char c) { return std::string_view("<>=!%").find(c) != std::string_view::npos; };
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ') {
      ++i;
      continue;
    }
    std::size_t end = i + 1;
    const bool negative =
        text[i] == '-' && end < text.size() && std::isdigit(static_cast<unsigned char>(text[end]));
    if (negative || in_word(text[i])) {
      while (end < text.size() && in_word(text[end])) ++end;
    } else if (in_operator(text[i])) {
      while (end < text.size() && in_operator(text[end])) ++end;
    }
    out.emplace_back(text.substr(i, end - i));
    i = end;
  }
  return out;
}

/// Returns the system's sizes and the other keys that its calls show.
std::vector<std::string_view> call_keys(const System& system) {
  std::vector<std::string_view> known;
  for (const CaseSize& size : system.sizes) known.push_back(size.name);
  for (const std::string_view other : system.keys) {
    const bool size = std::find(known.begin(), known.end(), other) != known.end();
    const bool seen = std::find(kUnseen.begin(), kUnseen.end(), other) == kUnseen.end();
    if (seen && !size) known.push_back(other);
  }
  for (const char* counted : {"sequences", "shortest", "longest"}) known.emplace_back(counted);
  return known;
}

}  // namespace

std::string call_value(const Case& call, std::string_view key) {
  const std::optional<std::int64_t> number = number_of(call, key);
  return number ? std::to_string(*number) : word_of(call, key);
}

void require_call_key(std::string_view key, const System& system, std::string_view what) {
  const std::vector<std::string_view> known = call_keys(system);
  if (std::find(known.begin(), known.end(), key) != known.end()) return;
  const bool of_run = std::find(kUnseen.begin(), kUnseen.end(), key) != kUnseen.end();
  throw Error(fmt::format("{}: {} {}: name one of {}", what, quote(key),
                          of_run ? "belongs to a run and is not visible to a call"
                                 : fmt::format("is not a key of {}", system.name),
                          fmt::join(known, ", ")));
}

class DeclaredLimits::Reader {
 public:
  Reader(const std::string& text, const System& system)
      : text_(text), system_(system), tokens_(tokens_of(text)), standard_(system.standard()) {}

  [[nodiscard]] Row read() {
    Row row{text_, {condition()}};
    if (at_ < tokens_.size()) {
      if (next("`if`") != "if") fail(fmt::format("{} comes after its end", quote(tokens_[at_ - 1])));
      row.parts.push_back(condition());
    }
    if (at_ < tokens_.size()) fail(fmt::format("{} comes after its end", quote(tokens_[at_])));
    return row;
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw Error(fmt::format("limit {}: {}; {}", quote(text_), why, kGrammar));
  }

  std::string next(std::string_view wanted) {
    if (at_ == tokens_.size()) fail(fmt::format("it ends where {} is needed", wanted));
    return tokens_[at_++];
  }

  [[nodiscard]] bool is_number(const std::string& key) const { return number_of(standard_, key).has_value(); }

  std::string key() {
    std::string name = next("a key");
    require_call_key(name, system_, fmt::format("limit {}", quote(text_)));
    return name;
  }

  /// Returns the name if it is one of the rows' names; for laws kNoLaw counts too.
  template <class Row>
  std::string listed(const std::string& key, const std::string& text,
                     const std::vector<const Row*>& rows) const {
    std::vector<std::string_view> names;
    if (key == "law") names.emplace_back(kNoLaw);
    for (const Row* row : rows) names.emplace_back(row->name);
    if (std::find(names.begin(), names.end(), text) != names.end()) return text;
    throw Error(fmt::format("limit {}: {}={}: those of {} are {}", quote(text_), key, text, system_.name,
                            fmt::join(names, ", ")));
  }

  /// Reads a value of the key as a line may write it.
  std::string value(const std::string& name) {
    std::string text = next("a value");
    if (is_number(name)) {
      if (!whole(text)) fail(fmt::format("{}={}: not a whole number", name, text));
      return text;
    }
    if (name == "form") {
      const CaseForm* form = system_.form(text);
      const auto taken = [&](const CaseForm& row) {
        return row.packed || system_.native(row.name) || row.of_any_form();
      };
      if (form != nullptr && taken(*form)) return text;
      std::vector<std::string_view> forms;
      for (const CaseForm& row : system_.forms) {
        if (taken(row)) forms.push_back(row.name);
      }
      throw Error(fmt::format("limit {}: form={}: calls of {} are {}", quote(text_), text, system_.name,
                              fmt::join(forms, ", ")));
    }
    if (name == "scale" && text == "default") return text;
    if (name == "law") return listed(name, text, system_.laws);
    if (name == "regime") return listed(name, text, system_.regimes);
    try {
      Case c = standard_;
      for (const Key& row : keys()) {
        if (row.name == name) row.parse(c, text);
      }
      if (name == "contract") text = contract_named(text).name;
    } catch (const Error& error) {
      throw Error(fmt::format("limit {}: {}", quote(text_), error.what()));
    }
    return text;
  }

  /// Reads a number, or the name of a size to compare with.
  void bound(Condition& c) {
    const std::string text = next("a number");
    if (const std::optional<std::int64_t> number = whole(text)) {
      c.number = *number;
    } else if (text[0] >= '0' && text[0] <= '9') {
      fail(fmt::format("{} is not a whole number of 64 bits", quote(text)));
    } else {
      --at_;
      c.size = key();
      if (!is_number(c.size)) fail(fmt::format("{} is not a number", quote(text)));
    }
  }

  std::int64_t number(std::string_view wanted) {
    const std::string text = next(wanted);
    const std::optional<std::int64_t> read = whole(text);
    if (!read) fail(fmt::format("{} is given where {} is needed", quote(text), wanted));
    return *read;
  }

  Condition condition() {
    Condition c;
    c.key = key();
    const std::string sign = next("a comparison");
    const bool counts = is_number(c.key);
    if ((sign == "<=" || sign == ">=" || sign == "%") && !counts)
      fail(fmt::format("{} has no order: list its values, {} in V V ..", quote(c.key), c.key));
    if (sign == "<=" || sign == ">=") {
      c.test = sign == "<=" ? Test::at_most : Test::at_least;
      bound(c);
    } else if (sign == "=" && counts) {
      bound(c);
    } else if (sign == "=" || sign == "!=") {
      c.test = sign == "=" ? Test::listed : Test::unequal;
      c.values.push_back(value(c.key));
    } else if (sign == "%") {
      c.test = Test::remainder;
      c.number = number("a divisor");
      if (c.number < 1) fail("a divisor is at least 1");
      if (next("`=`") != "=") fail("a remainder is written KEY % N = R");
      c.other = number("a remainder");
    } else if (sign == "in") {
      list(c);
    } else {
      fail(fmt::format("{} is not a comparison", quote(sign)));
    }
    return c;
  }

  void list(Condition& c) {
    const std::string first = next("a value");
    if (const std::size_t dots = first.find(".."); dots != std::string::npos) {
      const auto least = whole(std::string_view(first).substr(0, dots));
      const auto most = whole(std::string_view(first).substr(dots + 2));
      if (!is_number(c.key))
        fail(fmt::format("{} cannot be a range of {}, which has no order: list its values, {} in V V ..",
                         quote(first), quote(c.key), c.key));
      if (!least || !most || *least > *most)
        fail(fmt::format("{} is not a range of whole numbers with the smaller one first", quote(first)));
      c.test = Test::between;
      c.number = *least, c.other = *most;
      return;
    }
    c.test = Test::listed;
    --at_;
    do {
      c.values.push_back(value(c.key));
    } while (at_ < tokens_.size() && tokens_[at_] != "if");
  }

  const std::string& text_;
  const System& system_;
  std::vector<std::string> tokens_;
  Case standard_;
  std::size_t at_ = 0;
};

DeclaredLimits::DeclaredLimits(std::span<const std::string> conditions, const System& system) {
  for (const std::string& text : conditions) conditions_.push_back(Reader(text, system).read());
}

bool DeclaredLimits::holds(const Condition& condition, const Case& call) {
  const std::optional<std::int64_t> number = number_of(call, condition.key);
  const auto listed = [&] {
    const std::string now = number ? std::to_string(*number) : word_of(call, condition.key);
    return std::find_if(condition.values.begin(), condition.values.end(), [&](const std::string& value) {
             return number ? whole(value) == number : value == now;
           }) != condition.values.end();
  };
  const std::int64_t limit =
      condition.size.empty() ? condition.number : number_of(call, condition.size).value_or(condition.number);
  switch (condition.test) {
    case Test::at_most:
      return *number <= limit;
    case Test::at_least:
      return *number >= limit;
    case Test::equal:
      return *number == limit;
    case Test::remainder:
      return *number % condition.number == condition.other;
    case Test::between:
      return condition.number <= *number && *number <= condition.other;
    case Test::listed:
      return listed();
    case Test::unequal:
      return !listed();
  }
  return false;
}

std::string_view DeclaredLimits::broken_by(const Case& call) const {
  for (const Row& row : conditions_) {
    const bool asked = row.parts.size() == 1 || holds(row.parts[1], call);
    if (asked && !holds(row.parts[0], call)) return row.text;
  }
  return {};
}

void DeclaredLimits::move(const Condition& condition, Case& c) {
  std::int64_t* number = number_in(c, condition.key);
  if (number == nullptr || holds(condition, c)) return;
  const std::int64_t limit =
      condition.size.empty() ? condition.number : number_of(c, condition.size).value_or(*number);
  switch (condition.test) {
    case Test::at_most:
    case Test::at_least:
    case Test::equal:
      *number = limit;
      return;
    case Test::between:
      *number = std::clamp(*number, condition.number, condition.other);
      return;
    case Test::remainder: {
      const std::int64_t below = *number - (*number % condition.number) + condition.other;
      // Go to the next value below, unless no size is that small.
      *number = below <= *number ? below : below - condition.number;
      if (*number < 1) *number += condition.number;
      return;
    }
    case Test::listed: {
      std::int64_t nearest = *number;
      std::int64_t least = std::numeric_limits<std::int64_t>::max();
      for (const std::string& value : condition.values) {
        const std::int64_t listed = whole(value).value_or(*number);
        const std::int64_t apart = listed > *number ? listed - *number : *number - listed;
        if (apart < least) least = apart, nearest = listed;
      }
      *number = nearest;
      return;
    }
    case Test::unequal:
      ++*number;
      return;
  }
}

Case DeclaredLimits::nearest(Case c) const {
  for (const Row& row : conditions_) {
    if (row.parts.size() == 1) move(row.parts[0], c);
  }
  return c;
}

std::string DeclaredLimits::text() const {
  std::vector<std::string_view> texts;
  for (const Row& row : conditions_) texts.push_back(row.text);
  return texts.empty() ? "none" : fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace samestate
