#include "oracles/contract_points.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "oracles/named_points.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Values = std::vector<std::string_view>;
using Text = std::string_view;

constexpr std::array<std::pair<Format, Text>, 8> kFormats = {{{Format::none, "none"},
                                                              {Format::fp64, "fp64"},
                                                              {Format::fp32, "fp32"},
                                                              {Format::tf32, "tf32"},
                                                              {Format::tf32_truncated, "tf32_truncated"},
                                                              {Format::bf16, "bf16"},
                                                              {Format::fp16, "fp16"},
                                                              {Format::tf32x3, "tf32x3"}}};
constexpr std::array<std::pair<Inverse, Text>, 4> kInverses = {{{Inverse::substitution, "substitution"},
                                                                {Inverse::block16, "block16"},
                                                                {Inverse::neumann, "neumann"},
                                                                {Inverse::block8, "block8"}}};

template <class Enum, std::size_t Count>
std::string named(const std::array<std::pair<Enum, Text>, Count>& names, Enum value) {
  for (const auto& [key, name] : names) {
    if (key == value) return std::string(name);
  }
  return "";
}

template <class Enum, std::size_t Count>
Enum valued(const std::array<std::pair<Enum, Text>, Count>& names, Text name) {
  for (const auto& [key, known] : names) {
    if (known == name) return key;
  }
  throw Error(fmt::format("{}: no such value", name));
}

const Values kStored = {"fp32", "bf16", "fp16"};
const Values kOperand = {"fp32", "tf32x3", "tf32", "tf32_truncated", "bf16", "fp16"};
const Values kOptional = {"none", "fp32", "tf32x3", "tf32", "tf32_truncated", "bf16", "fp16"};

template <Format Contract::*field>
ContractPoint format_point(Text name, Text means, Values values) {
  return {name, means, std::move(values), [](const Contract& c) { return named(kFormats, c.*field); },
          [](Contract& c, Text v) { c.*field = valued(kFormats, v); }};
}

/// An enumeration or a flag with two or three values, in the order of `values`.
template <auto Contract::*field>
ContractPoint setting(Text name, Text means, Values values) {
  using Type = std::remove_reference_t<decltype(std::declval<Contract>().*field)>;
  static const Values known = values;
  return {name, means, std::move(values),
          [](const Contract& c) { return std::string(known[static_cast<std::size_t>(c.*field)]); },
          [](Contract& c, Text v) {
            c.*field = static_cast<Type>(std::find(known.begin(), known.end(), v) - known.begin());
          }};
}

ContractPoint inverse_point() {
  Values values = {"substitution"};
  for (const Text text :
       {"block16/fp32", "block16/tf32x3", "block16/tf32", "block16/tf32_truncated", "block16/bf16",
        "block16/fp16", "block8/fp32", "block8/tf32", "block8/tf32_truncated", "block8/bf16", "block8/fp16",
        "neumann/fp32", "neumann/tf32", "neumann/tf32_truncated", "neumann/bf16"})
    values.push_back(text);
  return {
      "inverse",
      "T = (I + A)^-1: rows in fp32, or diagonal blocks and merges (or doubling) with operands of a format",
      std::move(values),
      [](const Contract& c) {
        const std::string kind = named(kInverses, c.inverse);
        return c.inverse == Inverse::substitution ? kind : kind + "/" + named(kFormats, c.inverse_operand);
      },
      [](Contract& c, Text v) {
        const std::size_t slash = std::min(v.find('/'), v.size());
        c.inverse = valued(kInverses, v.substr(0, slash));
        c.inverse_operand = slash == v.size() ? Format::fp32 : valued(kFormats, v.substr(slash + 1));
      }};
}

ContractPoint recurrent(ContractPoint point) {
  point.recurrent = true;
  return point;
}

ContractPoint of_delta(ContractPoint point) {
  point.delta = true;
  return point;
}

std::vector<ContractPoint> make_points() {
  using C = Contract;
  return {
      recurrent(format_point<&C::input>("input", "q, k and v, as oracle and kernel both read them", kStored)),
      recurrent(setting<&C::norm>("norm",
                                  "in-kernel l2norm: x r is rounded to qk, or where inputs are 16 bit to "
                                  "their format; r multiplies fp32 sums; x r stays in fp32",
                                  {"operand", "factor", "unrounded"})),
      recurrent(format_point<&C::qk>("qk", "q and k as operands", kOperand)),
      setting<&C::scan>(
          "scan",
          "order of the sum of g in a chunk; the sum of all of them, in the decay to its end, may be another",
          {"sequential", "tree"}),
      recurrent(setting<&C::exponential>("exponential", "expf, or 2^(x log2 e)", {"exact", "ex2"})),
      setting<&C::log2e>("log2e", "what log2 e multiplies: G_i - G_j, each g before the sum, or the sum G",
                         {"difference", "gate", "sum"}),
      of_delta(format_point<&C::beta_k>("beta_k", "beta k as operand of K K^T; none: beta multiplies the sum",
                                        kOptional)),
      of_delta(format_point<&C::A>("A", "storage of A", kOperand)),
      of_delta(inverse_point()),
      of_delta(setting<&C::merges>("merges", "order in which blocks of the inverse are merged",
                                   {"pairwise", "rows"})),
      of_delta(format_point<&C::T>("T", "the stored inverse", kOperand)),
      of_delta(setting<&C::beta_in_T>("beta_in_T", "beta multiplies T, not v and k", {"no", "yes"})),
      of_delta(format_point<&C::beta_v>("beta_v", "operand beta v of U = T beta V", kOptional)),
      of_delta(format_point<&C::beta_exp_k>(
          "beta_exp_k", "operand beta e^G k of W = T beta e^G K, rounded once, after its factors",
          kOptional)),
      of_delta(format_point<&C::U>("U", "storage of U", kOptional)),
      of_delta(format_point<&C::W>("W", "storage of W", kOptional)),
      format_point<&C::state_operand>("state_operand", "S as operand", kOperand),
      of_delta(format_point<&C::residual>(
          "residual", "R = beta V - beta e^G K S as operand of V' = T R; none: V' = U - W S", kOptional)),
      format_point<&C::v_new>("v_new", "V' as operand of P V'", kOperand),
      format_point<&C::P>("P", "P = Q K^T o E as operand", kOperand),
      setting<&C::scale_in_P>("scale_in_P", "the scale multiplies P and e^G Q S before their sum",
                              {"no", "yes"}),
      format_point<&C::q_decayed>("q_decayed", "e^G q as operand; none: e^G multiplies the sum", kOptional),
      format_point<&C::v_decayed>("v_decayed", "e^{G_C - G} V' as operand of the state", kOperand),
      format_point<&C::k_decayed>("k_decayed", "e^{G_C - G} k as operand of the state; none: V' is decayed",
                                  kOptional),
      recurrent(format_point<&C::state>("state", "S stored between chunks or steps", kStored)),
      recurrent(setting<&C::reads_old_state>(
          "reads_old_state", "decode: o = e^g S^T q + u (k . q) of the state before the token",
          {"no", "yes"})),
      recurrent(format_point<&C::output>("output", "o", kStored)),
      setting<&C::accumulator>("accumulator", "sums in fp32 in any order, or of a tensor core",
                               {"fp32", "tensor_core"}),
      recurrent(setting<&C::nearest>(
          "card",
          "exact: the twin gates; nearest: its distance is reported, bounds, laws and exact regimes gate",
          {"exact", "nearest"})),
  };
}

[[noreturn]] void fail(Text text, const std::string& why) {
  throw Error(fmt::format("contract={}: {}", text, why));
}

/// An error that `read` throws is attributed to that contract's text.
void within(Text text, const std::function<void()>& read) {
  try {
    read();
  } catch (const Error& error) {
    fail(text, error.what());
  }
}

/// "; nearest: a, b", or empty.
std::string near_text(Text name, std::span<const Text> known) {
  const Values near = nearest_names(name, known);
  return near.empty() ? "" : fmt::format("; nearest: {}", fmt::join(near, ", "));
}

std::size_t edits(Text a, Text b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t kept = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({kept, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// Says why a point's value is not possible together with the others; empty if it is possible.
std::string beside(const Contract& c, Text point) {
  if (point == "merges") return "inverse:" + contract_point("inverse").value(c);
  if (point == "log2e") return "exponential:exact";
  if (point == "v_decayed") return "k_decayed:" + named(kFormats, c.k_decayed);
  return "residual:" + named(kFormats, c.residual);
}

/// True if the fields are equal, whatever points of systems are switched.
bool same_fields(const Contract& a, const Contract& b) {
  return std::all_of(contract_points().begin(), contract_points().end(),
                     [&](const ContractPoint& point) { return point.value(a) == point.value(b); });
}

/// Combinations that no bound covers.
std::string uncovered(const Contract& c) {
  // Products of keys in fp16 may overflow, or lose small elements, if the inputs and the norm do not limit
  // their size.
  const std::pair<Text, Format> points[] = {
      {"qk", c.qk}, {"beta_k", c.beta_k}, {"k_decayed", c.k_decayed}, {"q_decayed", c.q_decayed}};
  for (const auto& [name, format] : points) {
    if (format == Format::fp16 && (c.input != Format::fp16 || c.norm == Norm::factor))
      return fmt::format("{}:fp16 needs input:fp16 and another norm than factor", name);
  }
  return "";
}

}  // namespace

std::span<const ContractPoint> contract_points() {
  static const std::vector<ContractPoint> points = make_points();
  return points;
}

const ContractPoint& contract_point(Text name) {
  Values known;
  for (const ContractPoint& point : contract_points()) {
    if (point.name == name) return point;
    known.push_back(point.name);
  }
  std::string near = near_text(name, known);
  if (near.empty()) {
    const std::vector<std::string> of_systems = nearest_points(name);
    if (!of_systems.empty()) near = fmt::format("; nearest: {}", fmt::join(of_systems, ", "));
  }
  throw Error(
      fmt::format("no rounding point '{}'{}; points: {}; `samestate list points` has those of systems", name,
                  near, fmt::join(known, ", ")));
}

void settle(Contract& c) {
  for (Format Contract::*field : {&Contract::beta_v, &Contract::beta_exp_k, &Contract::U, &Contract::W}) {
    if (c.residual != Format::none) {
      c.*field = Format::none;
    } else if (c.*field == Format::none) {
      c.*field = Format::fp32;
    }
  }
  if (c.inverse == Inverse::substitution) c.inverse_operand = Format::fp32;
  if (c.inverse == Inverse::substitution || c.inverse == Inverse::neumann) c.merges = MergeOrder::pairwise;
  if (c.exponential == Exponential::exact) c.log2e = Log2e::difference;
  if (c.k_decayed != Format::none) c.v_decayed = c.v_new;
}

bool same_points(const Contract& a, const Contract& b) {
  return same_fields(a, b) && switched_points(a.name) == switched_points(b.name);
}

bool changed(Contract& c, Text point, Text value, std::string* why) {
  const ContractPoint& row = contract_point(point);
  Contract out = c;
  row.set(out, value);
  settle(out);
  std::string no = row.value(out) != value ? fmt::format("has no place beside {}", beside(out, point)) : "";
  if (no.empty()) no = uncovered(out);
  if (why != nullptr) *why = no;
  if (no.empty()) c = std::move(out);
  return no.empty();
}

Contract parse_contract(Text text, std::span<const Contract> bases) {
  // The quoted part must remain short enough to be read as a line.
  constexpr std::size_t kLongest = 512;
  if (text.size() > kLongest)
    throw Error(fmt::format("contract of {} characters: at most {} are read; write BASE+POINT:VALUE+..",
                            text.size(), kLongest));
  for (const char c : text) {
    if (c <= 0x20 || c >= 0x7f)
      throw Error(fmt::format("contract holds byte {:#04x}: write printable ASCII without blanks",
                              static_cast<unsigned>(static_cast<unsigned char>(c))));
  }
  const std::size_t first = std::min(text.find('+'), text.size());
  const Text base = text.substr(0, first);
  const auto at = std::find_if(bases.begin(), bases.end(), [&](const Contract& c) { return c.name == base; });
  if (at == bases.end()) {
    Values names;
    for (const Contract& c : bases) names.emplace_back(c.name);
    fail(text, fmt::format("no such contract{}{}; known: {}, each with changes as in bf16+beta_k:bf16",
                           first == text.size() ? "" : fmt::format(" '{}'", base), near_text(base, names),
                           fmt::join(names, ", ")));
  }
  Contract c = *at;
  c.name.clear();
  std::vector<std::pair<const ContractPoint*, Text>> changes;
  std::set<Text> seen;
  std::vector<std::pair<Point, Text>> switched;
  for (Text rest = text.substr(first); !rest.empty();) {
    rest.remove_prefix(1);
    const Text change = rest.substr(0, rest.find('+'));
    rest.remove_prefix(change.size());
    const std::size_t colon = change.find(':');
    if (colon == Text::npos || colon == 0 || colon + 1 == change.size())
      fail(text, fmt::format("'{}' is no change; write POINT:VALUE, as beta_k:bf16", change));
    const Text name = change.substr(0, colon);
    const Text value = change.substr(colon + 1);
    const ContractPoint* point = nullptr;
    const bool of_system = name.find('.') != Text::npos;
    within(text, [&] {
      if (of_system) {
        switched.emplace_back(require_point(name), value);
      } else {
        point = &contract_point(name);
      }
    });
    if (!seen.insert(name).second) fail(text, fmt::format("{} is changed twice", name));
    if (of_system) continue;
    if (std::find(point->values.begin(), point->values.end(), value) == point->values.end()) {
      fail(text, fmt::format("{}:{}: no such value{}; {} takes {}", name, value,
                             near_text(value, point->values), name, fmt::join(point->values, ", ")));
    }
    changes.emplace_back(point, value);
    point->set(c, value);
  }
  settle(c);
  for (const auto& [point, value] : changes) {
    if (point->value(c) != value)
      fail(text, fmt::format("{}:{} has no place beside {}", point->name, value, beside(c, point->name)));
  }
  if (const std::string no = uncovered(c); !no.empty()) fail(text, no);
  within(text, [&] {
    for (const auto& [point, value] : switched) {
      if (switches(c, point, value)) c.name += fmt::format("+{}:{}", point.name(), switched_value(c, point));
    }
  });
  return c;
}

std::string format_contract(const Contract& c, std::span<const Contract> bases) {
  std::optional<std::vector<std::string>> least;
  Text base;
  for (const Contract& b : bases) {
    std::vector<std::string> changes;
    Contract again = b;
    for (const ContractPoint& point : contract_points()) {
      if (point.value(c) == point.value(b)) continue;
      point.set(again, point.value(c));
      changes.push_back(fmt::format("{}:{}", point.name, point.value(c)));
    }
    // Changes that follow from another change are omitted.
    std::erase_if(changes, [&](const std::string& change) {
      const ContractPoint& point = contract_point(change.substr(0, change.find(':')));
      Contract without = again;
      point.set(without, point.value(b));
      settle(without);
      return same_fields(without, c);
    });
    if (least && changes.size() >= least->size()) continue;
    least = std::move(changes);
    base = b.name;
  }
  std::string text(base);
  for (const Text name : switched_points(c.name)) {
    // A point at which these formats round nothing cannot be switched.
    const Point point = require_point(name);
    if (format_at(c, point.row().use) != Format::none)
      least->push_back(fmt::format("{}:{}", name, switched_value(c, point)));
  }
  std::sort(least->begin(), least->end());
  for (const std::string& change : *least) text += "+" + change;
  return text;
}

Values nearest_names(Text name, std::span<const Text> known, std::size_t most) {
  std::vector<std::pair<std::size_t, Text>> near;
  for (const Text other : known) {
    const std::size_t far = edits(name, other);
    const bool part = name.size() >= 2 && (other.find(name) != Text::npos || name.find(other) != Text::npos);
    if (part || 2 * far <= std::max(name.size(), other.size())) near.emplace_back(far, other);
  }
  std::stable_sort(near.begin(), near.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  Values out;
  for (const auto& [far, other] : near) {
    if (out.size() < most) out.push_back(other);
  }
  return out;
}

Text name_of(Format format) {
  for (const auto& [key, name] : kFormats) {
    if (key == format) return name;
  }
  return "";
}

bool holds(Format outer, Format inner) {
  if (outer == inner || outer == Format::none || outer == Format::fp64) return true;
  if (outer == Format::fp32) return inner != Format::fp64 && inner != Format::none;
  const bool tf32 = outer == Format::tf32 || outer == Format::tf32_truncated || outer == Format::tf32x3;
  return tf32 && (inner == Format::bf16 || inner == Format::fp16 || inner == Format::tf32 ||
                  inner == Format::tf32_truncated);
}

}  // namespace samestate
