#pragma once

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/records/measurement.h"
#include "harness/records/spent.h"
#include "harness/records/timing.h"
#include "reference/error.h"

/// How the fields of a record are represented in JSON, both for writing and for reading: a NaN or infinity is
/// a string. Private to json_lines.cpp and digest.cpp.
namespace samestate::json_fields {

using Json = nlohmann::ordered_json;

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

inline Json encoded(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

struct Writer {
  Json& object;
  void possible(const Judgement& /*as it was made*/) const {}
  void operator()(const char* name, const std::string& text) const { object[name] = text; }
  void unless_empty(const char* name, const std::string& text) const {
    if (!text.empty()) object[name] = text;
  }
  void unless_empty(const char* name, const std::vector<std::string>& texts) const {
    if (!texts.empty()) object[name] = texts;
  }
  template <class Value>
  void unless_empty(const char* name, const std::map<std::string, Value>& values) const {
    if (values.empty()) return;
    Json fields = Json::object();
    const Writer inner{fields};
    for (const auto& [key, value] : values) inner(key.c_str(), value);
    object[name] = std::move(fields);
  }
  void unless_false(const char* name, bool value) const {
    if (value) object[name] = value;
  }
  void unless_empty(const char* name, const std::vector<StageFinding>& stages) const {
    for (const StageFinding& s : stages)
      object[name].push_back({{"stage", s.stage},
                              {"verdict", name_of(s.verdict)},
                              {"ratio", encoded(s.ratio)},
                              {"gate", s.gate}});
  }
  void unless_empty(const char* name, const Spent& spent) const { unless_empty(name, numbers_of(spent)); }
  void unless_zero(const char* name, double value) const {
    if (value != 0.0) object[name] = encoded(value);
  }
  void unless_zero(const char* name, std::int64_t value) const {
    if (value != 0) object[name] = value;
  }
  void unless_nan(const char* name, double value) const {
    if (!std::isnan(value)) object[name] = encoded(value);
  }
  void operator()(const char* name, double value) const { object[name] = encoded(value); }
  void operator()(const char* name, std::int64_t value) const { object[name] = value; }
  void operator()(const char* name, Verdict verdict) const { object[name] = name_of(verdict); }
  /// Triples [position, error, bound].
  void operator()(const char* name, const std::vector<ErrorAt>& profile) const {
    Json rows = Json::array();
    for (const ErrorAt& at : profile)
      rows.push_back({encoded(at.position), encoded(at.error), encoded(at.bound)});
    object[name] = std::move(rows);
  }
  void operator()(const char* name, const TimeSpread& spread) const {
    object[name] = {{"median", encoded(spread.median)},
                    {"p10", encoded(spread.p10)},
                    {"p90", encoded(spread.p90)},
                    {"samples", spread.samples}};
  }
  void operator()(const char* name, const Location& at) const {
    object[name] = {
        {"sequence", at.sequence}, {"head", at.head}, {"token", at.token}, {"channel", at.channel}};
  }
};

struct Reader {
  const Json& object;

  [[nodiscard]] const Json& field(const char* name) const {
    const auto found = object.find(name);
    if (found == object.end()) throw Error(fmt::format("no field '{}'", name));
    return *found;
  }
  [[noreturn]] static void reject(const char* name, const Json& value, const char* wanted) {
    throw Error(fmt::format("field '{}' is {}, not {}", name, value.dump(), wanted));
  }
  void operator()(const char* name, std::string& text) const {
    const Json& value = field(name);
    if (!value.is_string()) reject(name, value, "a string");
    text = value.get<std::string>();
  }
  /// A field that is present only if it is not empty.
  void unless_empty(const char* name, std::string& text) const {
    if (object.contains(name)) (*this)(name, text);
  }
  void unless_zero(const char* name, double& value) const {
    value = 0.0;
    if (object.contains(name)) (*this)(name, value);
  }
  void unless_zero(const char* name, std::int64_t& value) const {
    value = 0;
    if (object.contains(name)) (*this)(name, value);
  }
  void unless_nan(const char* name, double& value) const {
    value = std::numeric_limits<double>::quiet_NaN();
    if (object.contains(name)) (*this)(name, value);
  }
  void unless_empty(const char* name, std::vector<std::string>& texts) const {
    texts.clear();
    if (!object.contains(name)) return;
    const Json& value = field(name);
    if (!value.is_array()) reject(name, value, "an array");
    for (const Json& text : value) {
      if (!text.is_string()) reject(name, text, "a string");
      texts.push_back(text.get<std::string>());
    }
  }
  template <class Value>
  void unless_empty(const char* name, std::map<std::string, Value>& values) const {
    values.clear();
    if (!object.contains(name)) return;
    const Json& fields = field(name);
    if (!fields.is_object()) reject(name, fields, "an object");
    const Reader inner{fields};
    for (const auto& [key, value] : fields.items()) inner(key.c_str(), values[key]);
  }
  void unless_false(const char* name, bool& value) const {
    value = false;
    if (!object.contains(name)) return;
    if (!field(name).is_boolean()) reject(name, field(name), "true or false");
    value = field(name).get<bool>();
  }
  void unless_empty(const char* name, std::vector<StageFinding>& stages) const {
    stages.clear();
    if (!object.contains(name)) return;
    const Json& value = field(name);
    if (!value.is_array()) reject(name, value, "an array");
    for (const Json& one : value) {
      if (!one.is_object()) reject(name, one, "an object");
      const Reader inner{one};
      StageFinding& s = stages.emplace_back();
      inner("stage", s.stage);
      inner("verdict", s.verdict);
      inner("ratio", s.ratio);
      inner("gate", s.gate);
    }
  }
  void unless_empty(const char* name, Spent& spent) const {
    std::map<std::string, double> numbers;
    unless_empty(name, numbers);
    spent = spent_of(numbers);
  }
  static double number_of(const char* name, const Json& value) {
    if (value.is_number()) return value.get<double>();
    if (value == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (value == "inf") return kInfinity;
    if (value == "-inf") return -kInfinity;
    reject(name, value, "a number, \"nan\", \"inf\" or \"-inf\"");
  }
  void operator()(const char* name, double& number) const { number = number_of(name, field(name)); }
  void operator()(const char* name, std::vector<ErrorAt>& profile) const {
    const Json& rows = field(name);
    if (!rows.is_array()) reject(name, rows, "an array");
    profile.clear();
    for (const Json& row : rows) {
      if (!row.is_array() || row.size() != 3) reject(name, row, "three numbers");
      profile.push_back({number_of(name, row[0]), number_of(name, row[1]), number_of(name, row[2])});
    }
  }
  void operator()(const char* name, std::int64_t& number) const {
    const Json& value = field(name);
    if (!value.is_number_integer()) reject(name, value, "an integer");
    number = value.get<std::int64_t>();
  }
  void operator()(const char* name, Verdict& verdict) const {
    const Json& value = field(name);
    for (Verdict candidate : kVerdicts) {
      if (value == name_of(candidate)) {
        verdict = candidate;
        return;
      }
    }
    reject(name, value, "a verdict");
  }
  /// Throws Error for a judgement that no judge makes: its record was damaged, or written by hand.
  void possible(const Judgement& j) const {
    const bool within = j.ratio >= 0.0 && j.ratio <= 1.0;
    if ((j.verdict != Verdict::pass || within) && !(j.ratio < 0.0)) return;
    throw Error(
        fmt::format("verdict {} with ratio {:g}: a ratio is at least 0, and a pass's at most 1; the record "
                    "is damaged, take the line out",
                    name_of(j.verdict), j.ratio));
  }
  [[nodiscard]] Reader inside(const char* name) const {
    const Json& value = field(name);
    if (!value.is_object()) reject(name, value, "an object");
    return {value};
  }
  void operator()(const char* name, TimeSpread& spread) const {
    const Reader inner = inside(name);
    inner("median", spread.median);
    inner("p10", spread.p10);
    inner("p90", spread.p90);
    inner("samples", spread.samples);
  }
  void operator()(const char* name, Location& at) const {
    const Reader inner = inside(name);
    inner("sequence", at.sequence);
    inner("head", at.head);
    inner("token", at.token);
    inner("channel", at.channel);
  }
};

}  // namespace samestate::json_fields
