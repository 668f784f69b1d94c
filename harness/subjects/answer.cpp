#include "harness/subjects/answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "fixtures/nesting.h"
#include "fixtures/quote.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::pair<std::string_view, SubjectAnswer::Kind>, 5> kTypes{
    {{"ran", SubjectAnswer::Kind::ran},
     {"unsupported", SubjectAnswer::Kind::unsupported},
     {"no_device", SubjectAnswer::Kind::no_device},
     {"error", SubjectAnswer::Kind::error},
     {"busy", SubjectAnswer::Kind::busy}}};

std::string text_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// Shortens foreign text so that it fits into a message of one line.
std::string shortened(std::string text) {
  constexpr std::size_t kLongest = 400;
  text.resize(std::min(text.size(), kLongest));
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  return text;
}

std::string short_text(const Json& object, const char* key) { return shortened(text_of(object, key)); }

/// Reads {"by": "first", "configurations": ["scan: BLOCK=64", ..]}; anything else is ignored.
void read_tuned(const Json& answer, SubjectAnswer& out) {
  constexpr std::size_t kMost = 8;
  const auto tuned = answer.find("tuned");
  if (tuned == answer.end() || !tuned->is_object()) return;
  const auto list = tuned->find("configurations");
  if (list == tuned->end() || !list->is_array()) return;
  for (const Json& one : *list) {
    if (one.is_string() && out.configurations.size() < kMost)
      out.configurations.push_back(shortened(one.get<std::string>()));
  }
  if (!out.configurations.empty()) out.tuned_by = short_text(*tuned, "by");
}

/// Reads a number between 0 and the seconds of a day; 0 for anything else.
double amount_in(const Json& object, const char* key) {
  constexpr double kMost = 86400.0;
  const auto found = object.find(key);
  const double value = found != object.end() && found->is_number() ? found->get<double>() : 0.0;
  return value >= 0.0 && value <= kMost ? value : 0.0;
}

Spent spent_in(const Json& answer) {
  Spent spent;
  spent.calls = 1;
  spent.compiled = static_cast<std::int64_t>(amount_in(answer, "compiled"));
  spent.loaded = static_cast<std::int64_t>(amount_in(answer, "loaded"));
  const auto seconds = answer.find("seconds");
  if (seconds == answer.end() || !seconds->is_object()) return spent;
  spent.start = amount_in(*seconds, "import");
  spent.compile = amount_in(*seconds, "compile");
  spent.tune = amount_in(*seconds, "tune");
  spent.copy = amount_in(*seconds, "copy");
  spent.kernel = amount_in(*seconds, "kernel");
  return spent;
}

}  // namespace

SubjectAnswer parse_answer(std::string_view line, std::int64_t id) {
  const auto refuse = [&](const std::string& why) {
    throw Error(fmt::format("answered {}, {}", quote(line, 80), why));
  };
  if (!nested_within(line)) refuse("which is nested too deep for a message");
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string type = json.is_object() ? text_of(json, "type") : "";
  if (type.empty()) refuse("which is not a message");
  if (!json.contains("id") || json["id"] != id) refuse(fmt::format("which lacks \"id\": {}", id));
  SubjectAnswer out;
  const auto known = [&] {
    for (const auto& [name, kind] : kTypes) {
      if (type == name) {
        out.kind = kind;
        return true;
      }
    }
    return false;
  };
  if (!known()) refuse("whose type is unknown");
  out.reason = text_of(json, "reason");
  out.trace = text_of(json, "trace");
  out.function = short_text(json, "function");
  out.where = short_text(json, "where");
  out.refusal = json.contains("refusal") && json["refusal"] == true;
  out.spent = spent_in(json);
  read_tuned(json, out);
  out.fatal = json.contains("fatal") && json["fatal"] == true;
  out.trespass = json.contains("trespass") && json["trespass"] == true;
  out.environment = json.contains("environment") && json["environment"] == true;
  return out;
}

}  // namespace samestate
