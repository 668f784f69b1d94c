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

}  // namespace

SubjectAnswer parse_answer(std::string_view line, std::int64_t id) {
  const auto refuse = [&](const std::string& why) {
    throw Error(fmt::format("answered {}, {}", quote(line, 80), why));
  };
  if (!nested_within(line)) refuse("which is nested too deep for a message");
  const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const std::string type = json.is_object() ? text_of(json, "type") : "";
  if (type.empty()) refuse("which is no message");
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
  constexpr std::size_t kLongestFunction = 400;
  out.function = text_of(json, "function").substr(0, kLongestFunction);
  std::ranges::replace_if(
      out.function, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
  out.fatal = json.contains("fatal") && json["fatal"] == true;
  out.trespass = json.contains("trespass") && json["trespass"] == true;
  return out;
}

}  // namespace samestate
