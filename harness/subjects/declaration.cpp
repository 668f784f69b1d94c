#include "harness/subjects/declaration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "fixtures/nesting.h"
#include "fixtures/quote.h"
#include "harness/cases/regimes.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kProtocol = 1;
constexpr std::size_t kMostKernels = 1000;
constexpr std::size_t kMostWords = 1000;

template <class T>
using Word = std::pair<std::string_view, T>;

constexpr std::array<Word<Dtype>, 5> kDtypes{{{"fp32", Dtype::fp32},
                                              {"bf16", Dtype::bf16},
                                              {"fp16", Dtype::fp16},
                                              {"int32", Dtype::int32},
                                              {"int64", Dtype::int64}}};
constexpr std::array<Word<bool>, 2> kMemories{{{"host", false}, {"cuda", true}}};
/// With a smaller epsilon outside the root, squares that underflow would matter in comparison with it.
constexpr double kLeastOutside = 1e-9;

[[noreturn]] void refuse(const std::string& of, const std::string& what) {
  throw Error(
      fmt::format("the declaration of {}: {}; docs/lookup/subjects.md has the keys and values", of, what));
}

std::string text_of(const Json& value, const std::string& of, std::string_view key) {
  if (!value.is_string()) refuse(of, fmt::format("\"{}\" is {}, not a string", key, quote(value.dump(), 60)));
  std::string text = value.get<std::string>();
  // Messages quote it later, so it must stay one line.
  if (std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse(of, fmt::format("\"{}\" is {}, which contains a control character", key, quote(text, 60)));
  return text;
}

/// Returns the row whose word the value is.
template <class Rows, class WordOf>
const auto& row_of(const Rows& rows, WordOf word_of, const Json& value, const std::string& of,
                   std::string_view key) {
  const std::string text = text_of(value, of, key);
  const auto found = std::ranges::find(rows, text, word_of);
  if (found != rows.end()) return *found;
  std::vector<std::string_view> known;
  for (const auto& row : rows) known.push_back(std::invoke(word_of, row));
  refuse(of, fmt::format("\"{}\" is {}; known: {}", key, quote(text, 60), fmt::join(known, ", ")));
}

template <class T, std::size_t N>
T one_of(const std::array<Word<T>, N>& words, const Json& value, const std::string& of,
         std::string_view key) {
  return row_of(words, &Word<T>::first, value, of, key).second;
}

std::vector<std::string> texts_of(const Json& value, const std::string& of, std::string_view key) {
  if (!value.is_array() || value.size() > kMostWords)
    refuse(of, fmt::format("\"{}\" is not an array of at most {} strings", key, kMostWords));
  std::vector<std::string> out;
  for (const Json& item : value) out.push_back(text_of(item, of, key));
  return out;
}

Conventions conventions_of(const Json& object, const std::string& of) {
  if (!object.is_object()) refuse(of, "\"conventions\" is not an object");
  Conventions out;
  for (const auto& [key, value] : object.items()) {
    const Convention* row = convention_named(key);
    if (row == nullptr) refuse(of, fmt::format("{} is not a convention", quote(key, 60)));
    if (row->set != nullptr) {
      row->set(out, row_of(row->values, &ConventionValue::word, value, of, key).value);
    } else if (key == "l2norm_epsilon") {
      const double epsilon = value.is_number() ? value.get<double>() : 0.0;
      if (!(epsilon >= kLeastEpsilon && epsilon <= kLargestEpsilon))
        refuse(of, fmt::format("\"l2norm_epsilon\" is {}, not a number from {:g} to {:g}",
                               quote(value.dump(), 60), kLeastEpsilon, kLargestEpsilon));
      out.norm_epsilon = epsilon;
    } else {
      if (!value.is_object() || value.size() > kMostWords) refuse(of, "\"dtypes\" is not an object");
      for (const auto& [tensor, dtype] : value.items()) {
        const Dtype one = one_of(kDtypes, dtype, of, "dtypes");
        if (one == Dtype::int32 || one == Dtype::int64)
          refuse(of, fmt::format("\"dtypes\" of {} is fp32, bf16 or fp16", quote(tensor, 60)));
        out.dtypes[tensor] = one;
      }
    }
  }
  if (out.scale == Conventions::Scale::folded && out.l2norm == Conventions::Norm::in_kernel)
    refuse(of, "a scale that is folded into q does not survive l2norm in_kernel: scale argument, dk or dv");
  const bool unusual = out.norm_place != Given::NormPlace::inside || out.norm_epsilon != Given::kNormEpsilon;
  if (unusual && (out.l2norm == Conventions::Norm::outside || out.scale == Conventions::Scale::folded))
    refuse(
        of,
        "\"l2norm_epsilon\" and \"l2norm_place\" need a norm in the kernel, but it has none: declare l2norm "
        "argument or in_kernel, scale argument, dk or dv");
  if (out.norm_place == Given::NormPlace::outside && out.norm_epsilon < kLeastOutside)
    refuse(of, fmt::format("\"l2norm_epsilon\" outside the root is {:g}, below {:g}: squares that underflow "
                           "would matter",
                           out.norm_epsilon, kLeastOutside));
  return out;
}

/// The keys of a declaration that are true or false.
struct Flag {
  std::string_view key;
  bool Declaration::*member;
};
constexpr std::array kFlags = {Flag{"strided", &Declaration::strided}, Flag{"packed", &Declaration::packed},
                               Flag{"interpreted", &Declaration::interpreted},
                               Flag{"only_asked", &Declaration::only_asked},
                               Flag{"deterministic", &Declaration::deterministic}};

Declaration declaration_of(const Json& object, std::size_t number) {
  const std::string nameless = fmt::format("kernel {}", number + 1);
  if (!object.is_object()) refuse(nameless, "it is not an object");
  Declaration out;
  std::string of = nameless;
  if (object.contains("name")) of = quote(out.name = text_of(object["name"], nameless, "name"), 60);
  for (const auto& [key, value] : object.items()) {
    if (key == "name") continue;
    if (key == "system" || key == "form" || key == "device") {
      (key == "system" ? out.system : key == "form" ? out.form : out.device) = text_of(value, of, key);
    } else if (key == "contracts" || key == "limits" || key == "variant" || key == "taps") {
      (key == "contracts" ? out.contracts
       : key == "limits"  ? out.limits
       : key == "taps"    ? out.taps
                          : out.variant) = texts_of(value, of, key);
    } else if (key == "conventions") {
      out.conventions = conventions_of(value, of);
      for (const auto& [said, what] : value.items()) out.said.push_back(said);
    } else if (const auto flag = std::ranges::find(kFlags, key, &Flag::key); flag != kFlags.end()) {
      if (!value.is_boolean()) refuse(of, fmt::format("\"{}\" is true or false", key));
      out.*(flag->member) = value.get<bool>();
    } else if (key == "memory") {
      out.device_memory = one_of(kMemories, value, of, key);
    } else if (key == "about") {
      out.about = value.dump();
    } else {
      refuse(of, fmt::format("{} is not a key of a declaration", quote(key, 60)));
    }
  }
  for (const auto& [what, text] :
       {std::pair{"name", &out.name}, {"system", &out.system}, {"form", &out.form}}) {
    if (text->empty()) refuse(of, fmt::format("it has no \"{}\"", what));
  }
  if (out.contracts.empty()) refuse(of, "it has no \"contracts\"");
  if (out.device_memory && out.device != "cuda")
    refuse(of, "\"memory\" is cuda and \"device\" is not: say \"device\": \"cuda\" too");
  return out;
}

}  // namespace

Ready parse_ready(std::string_view line) {
  const std::string shown = quote(line, 120);
  // The message prints the wrong part of it recursively.
  if (!nested_within(line))
    throw Error(fmt::format("it began with {}, which is nested deeper than {}", shown, kDeepestNesting));
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("type") || json["type"] != "ready")
    throw Error(
        fmt::format("it began with {} instead of {{\"type\":\"ready\",..}}: what it prints must go to "
                    "stderr (docs/lookup/subjects.md)",
                    shown));
  if (!json.contains("protocol") || json["protocol"] != kProtocol)
    throw Error(fmt::format("it speaks protocol {}, but this command speaks {}",
                            json.contains("protocol") ? quote(json["protocol"].dump(), 20) : "none",
                            kProtocol));
  if (!json.contains("kernels") || !json["kernels"].is_array() || json["kernels"].empty() ||
      json["kernels"].size() > kMostKernels)
    throw Error(fmt::format("its \"kernels\" is not an array of 1 to {} declarations", kMostKernels));
  Ready out;
  for (std::size_t i = 0; i < json["kernels"].size(); ++i)
    out.kernels.push_back(declaration_of(json["kernels"][i], i));
  if (json.contains("about")) out.about = json["about"].dump();
  return out;
}

void require_conventions(const Declaration& declaration, bool family, bool pool) {
  const std::string of = quote(declaration.name, 60);
  // The contract defines how the family's outputs, states and operands are rounded.
  for (const std::string_view own : {"q", "k", "v", "o", "initial_state", "final_state"}) {
    const auto found = declaration.conventions.dtypes.find(own);
    if (family && found != declaration.conventions.dtypes.end() && found->second != Dtype::fp32)
      refuse(of, fmt::format("\"dtypes\" of {} is what the contract says, or fp32", own));
  }
  static constexpr std::array<std::string_view, 8> kFamily{
      "q", "k", "v", "g", "beta", "o", "initial_state", "final_state"};
  for (const auto& [tensor, dtype] : declaration.conventions.dtypes) {
    if (family && std::ranges::find(kFamily, tensor) == kFamily.end())
      refuse(of, fmt::format("\"dtypes\" names {}, but the tensors of {} are {}", quote(tensor, 60),
                             declaration.system, fmt::join(kFamily, ", ")));
  }
  for (const std::string& key : declaration.said) {
    const ConventionOf whose = convention_named(key)->of;
    if (whose == ConventionOf::pool && !pool)
      refuse(of,
             fmt::format("\"null_slot\" needs a system with a pool of states, gated_delta_step; {} has none",
                         declaration.system));
    if (whose == ConventionOf::family ? !family
                                      : whose == ConventionOf::packed && !family && !declaration.packed)
      refuse(of,
             fmt::format("{} is a convention of the recurrent family, but {} has named tensors; leave it out",
                         quote(key, 60), declaration.system));
  }
}

std::vector<std::string> limits_of(const Conventions& conventions) {
  std::vector<std::string> out;
  if (conventions.scale == Conventions::Scale::folded || conventions.l2norm == Conventions::Norm::outside)
    out.emplace_back("l2norm = 0");
  if (conventions.l2norm == Conventions::Norm::in_kernel) out.emplace_back("l2norm = 1");
  if (conventions.scale == Conventions::Scale::dk || conventions.scale == Conventions::Scale::dv) {
    out.emplace_back(kOwnScale);
    if (conventions.scale == Conventions::Scale::dv) out.emplace_back("dv = dk");
  }
  if (conventions.beta == Given::Strength::logit) {
    for (const std::string_view above_one : {"beta_two", "identical_beta_two"})
      out.push_back(fmt::format("regime != {}", above_one));
  }
  return out;
}

void add_exact_widths(std::vector<std::string>& limits, const System& system) {
  if (std::ranges::find(limits, kOwnScale) == limits.end()) return;
  for (const Regime& regime : regimes()) {
    if (regime.exact && system.regime(regime.name) != nullptr)
      limits.push_back(fmt::format("dk in 1 4 16 64 256 1024 if regime = {}", regime.name));
  }
}

std::map<std::string, Format, std::less<>> formats_of(const Conventions& conventions) {
  std::map<std::string, Format, std::less<>> out;
  for (const auto& [tensor, dtype] : conventions.dtypes)
    out[tensor] = dtype == Dtype::bf16 ? Format::bf16 : dtype == Dtype::fp16 ? Format::fp16 : Format::fp32;
  return out;
}

std::string_view name_of(Dtype dtype) {
  for (const auto& [name, value] : kDtypes) {
    if (value == dtype) return name;
  }
  return "";
}

std::size_t size_of(Dtype dtype) {
  return dtype == Dtype::int64 ? 8 : dtype == Dtype::bf16 || dtype == Dtype::fp16 ? 2 : 4;
}

}  // namespace samestate
