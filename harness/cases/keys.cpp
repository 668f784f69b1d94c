#include "harness/cases/keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <ranges>
#include <type_traits>
#include <utility>

#include "harness/cases/draws.h"
#include "harness/cases/layout.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

std::uint64_t seed_value(std::string_view text) {
  const bool hexadecimal = text.starts_with("0x") || text.starts_with("0X");
  const std::string_view digits = hexadecimal ? text.substr(2) : text;
  std::uint64_t value = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), value, hexadecimal ? 16 : 10);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.empty()) {
    throw Error(fmt::format("seed={}: a 64-bit number is needed, as 42 or 0x2a", text));
  }
  return value;
}

double real(std::string_view key, std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(value)) {
    throw Error(fmt::format("{}={}: a finite number is needed", key, text));
  }
  if (static_cast<double>(static_cast<float>(value)) != value) {
    throw Error(fmt::format("{}={}: must be representable in fp32, since kernels take it so; nearest: {}",
                            key, text, static_cast<double>(static_cast<float>(value))));
  }
  return value;
}

std::string_view one_of(std::string_view key, std::string_view text,
                        const std::vector<std::string_view>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  throw Error(fmt::format("{}={}: must be one of {}", key, text, fmt::join(allowed, ", ")));
}

std::vector<std::int64_t> whole_numbers(std::string_view key, std::string_view text) {
  std::vector<std::int64_t> out;
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    out.push_back(whole_number(key, text.substr(0, comma), 0, kLargestExtent));
    if (comma == text.size()) return out;
    text.remove_prefix(comma + 1);
  }
}

/// Reads a member that must be at least `least`.
template <auto member, std::int64_t least>
void extent(std::string_view key, Case& c, std::string_view text) {
  c.*member = whole_number(key, text, least, kLargestExtent);
}

/// The member as a line has it. Not by fmt: a plan asks for these texts at every step.
template <auto member>
std::string text(const Case& c) {
  if constexpr (std::is_same_v<std::remove_cvref_t<decltype(c.*member)>, std::string>) {
    return c.*member;
  } else {
    return std::to_string(c.*member);
  }
}

/// The members' initial values are the defaults.
const Case& standard() {
  static const Case c;
  return c;
}

/// Returns the case once for each of `values`, with the member set to it.
template <auto member, class... Values>
std::vector<Case> with(const Case& c, Values... values) {
  std::vector<Case> out;
  const auto put = [&](const auto& value) {
    out.push_back(c);
    out.back().*member = value;
  };
  (put(values), ...);
  return out;
}

std::vector<Case> nothing(const Case&) { return {}; }

// The lengths of a packed line add up to its tokens, so it needs no key for them.
std::int64_t standard_tokens(const Case& c) {
  return c.lengths.empty() ? standard().T : std::reduce(c.lengths.begin(), c.lengths.end(), std::int64_t{0});
}

using Text = std::string_view;

const std::vector<Key>& table() {
  using enum KeyOf;
  static const std::vector<Key> rows = {
      {"pass", passes,
       [](Case& c, Text v) {
         const bool backward = one_of("pass", v, {"forward", "backward"}) == "backward";
         c.system = std::string(forward_name(c.system)).append(backward ? kBackward : "");
       },
       [](const Case& c) { return std::string(is_backward(c.system) ? "backward" : "forward"); }, nothing},
      {"form", every, [](Case& c, Text v) { c.form = v; }, text<&Case::form>, nothing},
      {"chunk", every, [](Case& c, Text v) { extent<&Case::chunk, 0>("chunk", c, v); }, text<&Case::chunk>,
       nothing},
      {"prefill", every, [](Case& c, Text v) { extent<&Case::prefill, 0>("prefill", c, v); },
       text<&Case::prefill>, nothing},
      {"step", every, [](Case& c, Text v) { extent<&Case::step, 1>("step", c, v); }, text<&Case::step>,
       [](const Case& c) { return with<&Case::step>(c, 1, 2); }},
      {"cached", every, [](Case& c, Text v) { c.cached = whole_number("cached", v, 0, 1) == 1; },
       [](const Case& c) { return std::string(c.cached ? "1" : "0"); },
       [](const Case& c) { return with<&Case::cached>(c, false); }},
      {"ranks",
       family_forward,
       [](Case& c, Text v) { c.ranks = whole_number("ranks", v, 1, kMostRanks); },
       text<&Case::ranks>,
       [](const Case& c) { return with<&Case::ranks>(c, 1, 2, 3); },
       true,
       // More ranks than the plan's cases have chunks, so that some ranks are empty.
       {"1", "2", "3", "7"},
       2},
      {"cuts",
       family_forward,
       [](Case& c, Text v) {
         c.cuts = one_of("cuts", v, {"even", "drawn", kCutHeads});
       },
       text<&Case::cuts>,
       // A cut that divides heads does not divide anything else.
       [](const Case& c) { return c.cuts == kCutHeads ? nothing(c) : with<&Case::cuts>(c, "even"); },
       true,
       {"drawn"},
       2},
      {"lengths", KeyOf::packed, [](Case& c, Text v) { c.lengths = whole_numbers("lengths", v); },
       [](const Case& c) { return fmt::format("{}", fmt::join(c.lengths, ",")); }, nothing},
      {"B",
       every,
       [](Case& c, Text v) { extent<&Case::B, 1>("B", c, v); },
       text<&Case::B>,
       [](const Case& c) { return with<&Case::B>(c, 1, 2); },
       false,
       {"2", "3"},
       4},
      {"T",
       every,
       [](Case& c, Text v) { extent<&Case::T, 0>("T", c, v); },
       text<&Case::T>,
       nothing,
       false,
       {},
       0,
       nullptr,
       standard_tokens},
      {"Hk",
       family,
       [](Case& c, Text v) { extent<&Case::Hk, 1>("Hk", c, v); },
       text<&Case::Hk>,
       nothing,
       false,
       {},
       0,
       &Case::Hk},
      {"Hv",
       family,
       [](Case& c, Text v) { extent<&Case::Hv, 1>("Hv", c, v); },
       text<&Case::Hv>,
       nothing,
       false,
       {},
       0,
       &Case::Hv,
       [](const Case& c) { return c.Hk; }},
      {"dk",
       family,
       [](Case& c, Text v) { extent<&Case::dk, 1>("dk", c, v); },
       text<&Case::dk>,
       nothing,
       false,
       {},
       0,
       &Case::dk},
      {"dv",
       family,
       [](Case& c, Text v) { extent<&Case::dv, 1>("dv", c, v); },
       text<&Case::dv>,
       nothing,
       false,
       {},
       0,
       &Case::dv,
       [](const Case& c) { return c.dk; }},
      {"heads",
       family,
       [](Case& c, Text v) {
         const bool tiled = one_of("heads", v, {"interleaved", "tiled"}) == "tiled";
         c.heads = tiled ? HeadMap::tiled : HeadMap::interleaved;
       },
       [](const Case& c) { return std::string(c.heads == HeadMap::tiled ? "tiled" : "interleaved"); },
       [](const Case& c) { return with<&Case::heads>(c, HeadMap::interleaved); },
       true,
       {"tiled"},
       5},
      {"l2norm",
       family,
       [](Case& c, Text v) { c.l2norm = whole_number("l2norm", v, 0, 1) == 1; },
       [](const Case& c) { return std::string(c.l2norm ? "1" : "0"); },
       [](const Case& c) { return with<&Case::l2norm>(c, false); },
       true,
       {"1"},
       6},
      {"scale",
       family,
       [](Case& c, Text v) { c.scale = real("scale", v); },
       [](const Case& c) { return c.scale ? fmt::format("{}", *c.scale) : ""; },
       [](const Case& c) { return with<&Case::scale>(c, std::nullopt); },
       true,
       // Both signs, and powers of two far from 1/sqrt(dk) on both sides. Not 0, since o would then hide the
       // rest of the case.
       {"1", "-0.5", "-1", "0.0001220703125", "16"},
       20},
      {"contract", every, [](Case& c, Text v) { c.contract = contract_named(v).name; }, text<&Case::contract>,
       nothing},
      {"regime", every, [](Case& c, Text v) { c.regime = v; }, text<&Case::regime>,
       [](const Case& c) { return with<&Case::regime>(c, "normal"); }, true},
      {"state",
       family,
       [](Case& c, Text v) {
         c.state = one_of("state", v, {"none", "random"});
       },
       text<&Case::state>,
       [](const Case& c) { return with<&Case::state>(c, "none"); },
       true,
       {"none", "random"},
       1},
      {"cotangent",
       two_cotangents,
       [](Case& c, Text v) {
         c.cotangent = one_of("cotangent", v, {"both", "o", "state"});
       },
       text<&Case::cotangent>,
       [](const Case& c) { return with<&Case::cotangent>(c, "both", "o"); },
       true,
       {"o", "state"},
       4},
      {"cotangents",
       backward,
       [](Case& c, Text v) { c.cotangents = one_of("cotangents", v, cotangent_kinds()); },
       text<&Case::cotangents>,
       [](const Case& c) { return with<&Case::cotangents>(c, "normal"); },
       true,
       {cotangent_kinds().begin() + 1, cotangent_kinds().end()},
       5},
      {"layout",
       every,
       [](Case& c, Text v) { (void)layout_named(v), c.layout = v; },
       text<&Case::layout>,
       [](const Case& c) { return with<&Case::layout>(c, "dense"); },
       true,
       {layout_names().begin() + 1, layout_names().end()},
       4},
      {"final",
       family_forward,
       [](Case& c, Text v) { (void)final_state_named(v), c.final_state = v; },
       text<&Case::final_state>,
       [](const Case& c) { return with<&Case::final_state>(c, standard().final_state); },
       true,
       {"none", "in_place"},
       6},
      {"unowned",
       KeyOf::packed,
       [](Case& c, Text v) {
         const std::vector<std::int64_t> tokens = whole_numbers("unowned", v);
         if (tokens.size() != 2) {
           throw Error(
               fmt::format("unowned={}: two numbers are needed, tokens before the first and after the "
                           "last packed sequence that belong to none, as unowned=3,5",
                           v));
         }
         c.lead = tokens[0], c.slack = tokens[1];
       },
       [](const Case& c) { return fmt::format("{},{}", c.lead, c.slack); },
       [](const Case& c) {
         std::vector<Case> out = with<&Case::lead>(c, 0, 1);
         for (Case& other : with<&Case::slack>(c, 0, 1)) out.push_back(std::move(other));
         return out;
       },
       true,
       {"3,5", "1,0", "0,17"},
       12},
      {"repeat",
       every,
       [](Case& c, Text v) { c.repeat = whole_number("repeat", v, 0, 1) == 1; },
       [](const Case& c) { return std::string(c.repeat ? "1" : "0"); },
       [](const Case& c) { return with<&Case::repeat>(c, false); },
       true,
       {"1"},
       16},
      {"taps",
       layers,
       [](Case& c, Text v) { c.taps = whole_number("taps", v, 0, 1) == 1; },
       [](const Case& c) { return std::string(c.taps ? "1" : "0"); },
       [](const Case& c) { return with<&Case::taps>(c, false); },
       true,
       {"1"},
       2},
      {"law", every, [](Case& c, Text v) { c.law = v; }, text<&Case::law>, nothing},
      {"kernel", every, [](Case& c, Text v) { c.kernel = v; }, text<&Case::kernel>, nothing},
      {"seed", every, [](Case& c, Text v) { c.seed = seed_value(v); },
       [](const Case& c) { return fmt::format("{:#x}", c.seed); },
       [](const Case& c) {
         return with<&Case::seed>(c, std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{3});
       },
       true},
  };
  return rows;
}

}  // namespace

std::string Key::print(const Case& c) const {
  std::string text = value(c);
  const std::string usual = standard != nullptr ? std::to_string(standard(c)) : value(samestate::standard());
  // A line without this key uses the system's usual value; format_case always prints the form.
  return text == usual && name != "form" ? "" : text;
}

std::span<const Key> keys() { return table(); }

const Key* key_named(std::string_view name) {
  for (const Key& key : keys()) {
    if (key.name == name) return &key;
  }
  return nullptr;
}

std::vector<std::string_view> keys_of(std::initializer_list<KeyOf> those) {
  std::vector<std::string_view> names;
  for (const Key& key : table()) {
    if (key.of == KeyOf::every || std::ranges::find(those, key.of) != those.end()) names.push_back(key.name);
  }
  return names;
}

Case with_keys(Case c, std::string_view part) {
  for (const auto& word : std::views::split(part, ' ')) {
    const std::string_view text(word.begin(), word.end());
    if (text.empty()) continue;
    const std::size_t equals = text.find('=');
    if (equals == Text::npos) throw Error(fmt::format("'{}' is not of the form key=value", text));
    const Text name = text.substr(0, equals);
    const Text value = text.substr(equals + 1);
    if (const auto own = c.parameters.find(name); own != c.parameters.end()) {
      own->second = whole_number(name, value, 0, kLargestExtent);
      continue;
    }
    const Key* key = key_named(name);
    if (key == nullptr) {
      std::vector<Text> known;
      for (const Key& one : keys()) known.push_back(one.name);
      for (const auto& [size, unused] : c.parameters) known.push_back(size);
      throw Error(fmt::format("unknown key '{}'{}", name, meant_key(name, known)));
    }
    key->parse(c, value);
    if (name == "lengths") c.T = standard_tokens(c);
  }
  return c;
}

const std::int64_t& size_in(const Case& c, std::string_view name) {
  if (const auto own = c.parameters.find(name); own != c.parameters.end()) return own->second;
  if (const Key* key = key_named(name); key != nullptr && key->size != nullptr) return c.*key->size;
  throw Error(fmt::format("{} has no size {}", c.system, name));
}
std::int64_t& size_in(Case& c, std::string_view name) {
  return const_cast<std::int64_t&>(size_in(std::as_const(c), name));
}

std::string meant_key(std::string_view name, std::span<const std::string_view> known) {
  static constexpr std::pair<Text, Text> kElsewhere[] = {
      {"dtype", "contract"},
      {"precision", "contract"},
      {"batch", "B"},
      {"batch_size", "B"},
      {"seqlen", "T"},
      {"seq_len", "T"},
      {"length", "T"},
      {"tokens", "T"},
      {"chunk_size", "chunk"},
      {"BT", "chunk"},
      {"head_dim", "dk"},
      {"num_heads", "Hv"},
      {"H", "Hv"},
      {"cu_seqlens", "lengths"},
      {"h0", "state"},
      {"initial_state", "state"},
  };
  std::vector<Text> near;
  for (const auto& [other, key] : kElsewhere) {
    if (other == name && std::ranges::find(known, key) != known.end()) near.push_back(key);
  }
  if (near.empty()) near = nearest_names(name, known);
  return near.empty() ? "" : fmt::format("; perhaps {}=", fmt::join(near, "= or "));
}

std::int64_t whole_number(std::string_view key, std::string_view text, std::int64_t least,
                          std::int64_t most) {
  // An item of a list may be as long as the line itself.
  const auto quoted = [](std::string_view all) {
    constexpr std::size_t kMost = 60;
    return all.size() > kMost ? fmt::format("{}..", all.substr(0, kMost)) : std::string(all);
  };
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || (error == std::errc{} && (value < least || value > most))) {
    throw Error(fmt::format("{}={}: must lie in {}..{}", key, quoted(text), least, most));
  }
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) {
    throw Error(fmt::format("{}={}: not a whole number in {}..{}", key, quoted(text), least, most));
  }
  return value;
}

}  // namespace samestate
