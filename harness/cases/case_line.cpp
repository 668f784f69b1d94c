#include "harness/cases/case_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include <set>

#include "harness/cases/operator_case.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr std::size_t kLongestLine = 8192;
constexpr std::int64_t kLargestExtent = std::int64_t{1} << 24;

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> out;
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find_first_of(" \t\r\n", begin), line.size());
    out.push_back(line.substr(begin, end - begin));
    line.remove_prefix(end);
  }
  return out;
}

std::int64_t integer(std::string_view key, std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc::result_out_of_range || (error == std::errc{} && (value < least || value > most))) {
    throw Error(fmt::format("{}={}: must lie in {}..{}", key, text, least, most));
  }
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) {
    throw Error(fmt::format("{}={}: not a whole number", key, text));
  }
  return value;
}

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

std::vector<std::int64_t> integers(std::string_view key, std::string_view text) {
  std::vector<std::int64_t> out;
  while (true) {
    const std::size_t comma = std::min(text.find(','), text.size());
    out.push_back(integer(key, text.substr(0, comma), 0, kLargestExtent));
    if (comma == text.size()) return out;
    text.remove_prefix(comma + 1);
  }
}

const std::vector<std::string_view> kKeys = {
    "form",  "chunk",  "prefill", "lengths",  "B",      "T",     "Hk",     "Hv",  "dk",     "dv",
    "heads", "l2norm", "scale",   "contract", "regime", "state", "layout", "law", "kernel", "seed"};

/// The keys of a case line of an operator.
std::vector<std::string_view> operator_keys(const Operator& op) {
  std::vector<std::string_view> keys{"form",     "chunk",  "prefill", "B",   "T",
                                     "contract", "regime", "kernel",  "seed"};
  for (const Parameter& p : op.parameters) keys.push_back(p.name);
  return keys;
}

}  // namespace

Case parse_case(std::string_view line) {
  if (line.size() > kLongestLine) {
    throw Error(fmt::format("case line of {} characters: at most {} are read", line.size(), kLongestLine));
  }
  // What is quoted from the line then stands on one line of a message, and does nothing to a terminal.
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if ((c >= 0x20 && c < 0x7f) || c == '\t' || c == '\r' || c == '\n') continue;
    throw Error(fmt::format("case line holds byte {:#04x} at position {}: write printable ASCII",
                            static_cast<unsigned>(static_cast<unsigned char>(c)), i));
  }
  const std::vector<std::string_view> parts = words(line);
  if (parts.empty())
    throw Error("empty case line: write 'v1 SYSTEM key=value ...', e.g. 'v1 gated_delta_rule T=65'");
  if (parts[0] != "v1") {
    throw Error(fmt::format("case line starts with '{}': this build reads version v1", parts[0]));
  }
  if (parts.size() < 2 || parts[1].find('=') != std::string_view::npos) {
    throw Error(
        "case line names no system: write 'v1 SYSTEM key=value ...'; `samestate list systems` shows them");
  }
  Case c;
  c.system = parts[1];
  const Operator* op = find_operator(c.system);
  const std::vector<std::string_view> known = op ? operator_keys(*op) : kKeys;
  if (op) {
    c.form = op->forms.front().name;
    for (const Parameter& p : op->parameters) c.parameters.emplace(p.name, p.standard);
  }
  std::set<std::string_view> seen;
  for (std::size_t i = 2; i < parts.size(); ++i) {
    const std::size_t equals = parts[i].find('=');
    const std::string_view key = parts[i].substr(0, equals);
    if (std::find(known.begin(), known.end(), key) == known.end()) {
      throw Error(fmt::format("unknown key '{}' in case line of {}: known keys are {}", key, c.system,
                              fmt::join(known, ", ")));
    }
    if (equals == std::string_view::npos || equals + 1 == parts[i].size()) {
      throw Error(fmt::format("key '{}' has no value: write {}=VALUE", key, key));
    }
    if (!seen.insert(key).second) throw Error(fmt::format("key '{}' occurs twice in the case line", key));
    const std::string_view value = parts[i].substr(equals + 1);
    const auto extent = [&](std::int64_t least) { return integer(key, value, least, kLargestExtent); };
    if (const auto parameter = c.parameters.find(key); parameter != c.parameters.end()) {
      parameter->second = extent(0);
      continue;
    }
    if (key == "form") {
      c.form = op ? value : one_of(key, value, {"recurrent", "chunked", "parallel", "decode", "packed"});
    }
    if (key == "chunk") c.chunk = extent(0);
    if (key == "prefill") c.prefill = extent(0);
    if (key == "lengths") c.lengths = integers(key, value);
    if (key == "B") c.B = extent(1);
    if (key == "T") c.T = extent(0);
    if (key == "Hk") c.Hk = extent(1);
    if (key == "Hv") c.Hv = extent(1);
    if (key == "dk") c.dk = extent(1);
    if (key == "dv") c.dv = extent(1);
    if (key == "heads") {
      c.heads =
          one_of(key, value, {"interleaved", "tiled"}) == "tiled" ? HeadMap::tiled : HeadMap::interleaved;
    }
    if (key == "l2norm") c.l2norm = integer(key, value, 0, 1) == 1;
    if (key == "scale") c.scale = real(key, value);
    if (key == "contract") c.contract = value;
    if (key == "regime") c.regime = value;
    if (key == "state") c.state = one_of(key, value, {"none", "random"});
    if (key == "layout") c.layout = one_of(key, value, {"dense", "padded", "far"});
    if (key == "law") c.law = value;
    if (key == "kernel") c.kernel = value;
    if (key == "seed") c.seed = seed_value(value);
  }
  if (!seen.contains("Hv")) c.Hv = c.Hk;
  if (!seen.contains("dv")) c.dv = c.dk;
  if (!seen.contains("T") && !c.lengths.empty()) c.T = std::reduce(c.lengths.begin(), c.lengths.end());
  check_case(c);
  return c;
}

std::string format_case(const Case& c) {
  Case standard;
  const Operator* op = find_operator(c.system);
  if (op) standard.form = op->forms.front().name;
  std::string out = "v1 " + c.system;
  const auto put = [&](std::string_view key, const auto& value, const auto& normal) {
    if (value != normal) out += fmt::format(" {}={}", key, value);
  };
  put("form", c.form, standard.form);
  put("chunk", c.chunk, standard.chunk);
  put("prefill", c.prefill, standard.prefill);
  if (!c.lengths.empty()) out += fmt::format(" lengths={}", fmt::join(c.lengths, ","));
  put("B", c.B, standard.B);
  put("T", c.T, c.lengths.empty() ? standard.T : std::reduce(c.lengths.begin(), c.lengths.end()));
  put("Hk", c.Hk, standard.Hk);
  put("Hv", c.Hv, c.Hk);
  put("dk", c.dk, standard.dk);
  put("dv", c.dv, c.dk);
  if (c.heads == HeadMap::tiled) out += " heads=tiled";
  if (c.l2norm) out += " l2norm=1";
  if (c.scale) out += fmt::format(" scale={}", *c.scale);
  if (op) {
    for (const Parameter& p : op->parameters) {
      const auto value = c.parameters.find(p.name);
      if (value != c.parameters.end()) put(p.name, value->second, p.standard);
    }
  }
  put("contract", c.contract, standard.contract);
  put("regime", c.regime, standard.regime);
  put("state", c.state, standard.state);
  put("layout", c.layout, standard.layout);
  put("law", c.law, standard.law);
  put("kernel", c.kernel, standard.kernel);
  if (c.seed != standard.seed) out += fmt::format(" seed={:#x}", c.seed);
  return out;
}

void check_case(const Case& c) {
  for (const auto& [key, value, least] : {std::tuple{"B", c.B, 1},
                                          {"T", c.T, 0},
                                          {"Hk", c.Hk, 1},
                                          {"Hv", c.Hv, 1},
                                          {"dk", c.dk, 1},
                                          {"dv", c.dv, 1},
                                          {"chunk", c.chunk, 0},
                                          {"prefill", c.prefill, 0}}) {
    if (value < least || value > kLargestExtent) {
      throw Error(fmt::format("{}={}: must lie in {}..{}", key, value, least, kLargestExtent));
    }
  }
  if (is_operator_case(c)) return check_operator_case(c);
  if (c.Hv % c.Hk != 0) {
    throw Error(
        fmt::format("Hv={} is not a multiple of Hk={}: each key head serves Hv/Hk value heads", c.Hv, c.Hk));
  }
  if (c.form == "chunked" && c.chunk < 1) {
    throw Error("chunk=0: a chunk holds at least 1 token; use form=recurrent for token by token");
  }
  if (c.form == "decode" && c.prefill > c.T) {
    throw Error(fmt::format("prefill={} is more than T={}: it counts the tokens before the decoded ones",
                            c.prefill, c.T));
  }
  if (c.form != "decode" && c.prefill != 0) throw Error("prefill belongs to form=decode");
  if ((c.form == "packed") == c.lengths.empty()) {
    throw Error(c.lengths.empty() ? "form=packed needs lengths=N,N,...: the tokens of each sequence"
                                  : "lengths belongs to form=packed");
  }
  if (c.scale &&
      !(std::isfinite(*c.scale) && static_cast<double>(static_cast<float>(*c.scale)) == *c.scale)) {
    throw Error(fmt::format("scale={}: must be finite and representable in fp32", *c.scale));
  }
  if (!c.lengths.empty()) {
    for (std::int64_t length : c.lengths) {
      if (length < 0 || length > kLargestExtent) {
        throw Error(fmt::format("lengths: {} must lie in 0..{}", length, kLargestExtent));
      }
    }
    if (c.B != 1) throw Error(fmt::format("B={}: packed sequences share one batch row, so B=1", c.B));
    const std::int64_t sum = std::reduce(c.lengths.begin(), c.lengths.end());
    if (sum != c.T) throw Error(fmt::format("T={} but the lengths sum to {}: leave T out", c.T, sum));
  }
  const double tokens = static_cast<double>(c.B) * static_cast<double>(c.T) * static_cast<double>(c.Hv);
  const double states =
      static_cast<double>(c.lengths.empty() ? c.B : static_cast<std::int64_t>(c.lengths.size())) *
      static_cast<double>(c.Hv) * static_cast<double>(c.dk) * static_cast<double>(c.dv);
  const double largest = std::max({tokens * static_cast<double>(std::max(c.dk, c.dv)), states});
  if (largest > static_cast<double>(kLargestCase)) {
    throw Error(
        fmt::format("case needs a tensor of {:.3g} elements: at most {} (B T Hv max(dk, dv) and N Hv dk dv)",
                    largest, kLargestCase));
  }
}

}  // namespace samestate
