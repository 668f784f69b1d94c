#include "harness/captured/captured_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "fixtures/json_syntax.h"
#include "fixtures/nesting.h"
#include "fixtures/quote.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFormat = "samestate-capture-1";
constexpr std::string_view kCallFormat = "samestate-call-1";  ///< of the file of a call
constexpr const char* kManifest = "calls.jsonl";
constexpr std::size_t kMostEntries = 1000;  ///< of arguments, and of tensors
constexpr std::size_t kLongestName = 400;

[[noreturn]] void refuse(const std::string& where, const std::string& why) {
  throw Error(fmt::format("{}: {}", where, why));
}

const Json& field(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end())
    refuse(where, fmt::format("there is no \"{}\", which samestate.capture writes", key));
  return *found;
}

std::string text_in(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  std::string text = value.is_string() ? value.get<std::string>() : "";
  if (text.empty() || text.size() > kLongestName ||
      std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }))
    refuse(where, fmt::format("\"{}\" is {} instead of one line of at most {} bytes", key,
                              quote(value.dump(), 60), kLongestName));
  return text;
}

const Json& object_in(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_object() || value.size() > kMostEntries)
    refuse(where, fmt::format("\"{}\" is not an object of at most {} entries", key, kMostEntries));
  return value;
}

CapturedValue value_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>();
  if (value.is_string()) return value.get<std::string>();
  return std::monostate{};
}

std::map<std::string, CapturedValue, std::less<>> values_of(const Json& object) {
  std::map<std::string, CapturedValue, std::less<>> out;
  for (const auto& [name, value] : object.items()) out.emplace(name, value_of(value));
  return out;
}

std::vector<std::int64_t> whole_numbers(const Json& object, const char* key, const std::string& where) {
  const Json& value = field(object, key, where);
  if (!value.is_array() || value.size() > 32)
    refuse(where, fmt::format("\"{}\" is not an array of numbers", key));
  std::vector<std::int64_t> out;
  for (const Json& one : value) {
    if (!one.is_number_integer())
      refuse(where,
             fmt::format("\"{}\" contains {}, which is not a whole number", key, quote(one.dump(), 40)));
    out.push_back(one.get<std::int64_t>());
  }
  return out;
}

CapturedTensor tensor_of(const Json& object, const std::string& where) {
  if (!object.is_object()) refuse(where, "it is not an object");
  constexpr std::array kKnown = {DType::f64, DType::f32, DType::f16, DType::bf16,
                                 DType::i64, DType::i32, DType::u8,  DType::bool_};
  CapturedTensor out;
  const std::string dtype = text_in(object, "dtype", where);
  const auto* const found =
      std::find_if(kKnown.begin(), kKnown.end(), [&](DType one) { return name_of(one) == dtype; });
  if (found == kKnown.end()) refuse(where, fmt::format("dtype {} is not known", quote(dtype, 40)));
  out.dtype = *found;
  out.shape = whole_numbers(object, "shape", where);
  out.strides = whole_numbers(object, "strides", where);
  return out;
}

/// Takes the declaration of a line, if it has one.
void declare(CapturedFunction& function, const Json& line, const std::string& where) {
  if (!line.contains("declaration") || line["declaration"].is_null()) return;
  try {
    function.declaration = captured_declaration(line["declaration"].dump());
  } catch (const Error& error) {
    refuse(where, error.what());
  }
  function.arguments.clear();
  function.options.clear();
  if (line.contains("arguments")) {
    for (const auto& [ours, theirs] : object_in(line, "arguments", where).items()) {
      if (!theirs.is_string()) refuse(where, fmt::format("argument {} is not a name", quote(ours, 60)));
      function.arguments[ours] = theirs.get<std::string>();
    }
  }
  if (line.contains("options")) function.options = values_of(object_in(line, "options", where));
}

CapturedCall call_of(const Json& line, const CapturedFunction& function, const std::string& where) {
  CapturedCall call;
  call.function = function.name;
  call.file = text_in(line, "file", where);
  if (call.file == "." || call.file == ".." || call.file.find('/') != call.file.npos)
    refuse(where, fmt::format("{} is not the name of a file in this folder", quote(call.file)));
  if (line.contains("call") && line["call"].is_number_integer())
    call.number = line["call"].get<std::int64_t>();
  call.values = values_of(object_in(line, "values", where));
  for (const auto& [name, value] : line["values"].items()) {
    const auto usual = function.defaults.find(name);
    if (usual == function.defaults.end() || usual->second != value.dump()) call.given.insert(name);
  }
  if (line.contains("none")) {
    if (!line["none"].is_array() || line["none"].size() > kMostEntries)
      refuse(where, fmt::format("\"none\" is not an array of at most {} names", kMostEntries));
    for (const Json& name : line["none"]) {
      if (name.is_string()) call.nothing.insert(name.get<std::string>());
    }
  }
  for (const auto& [name, tensor] : object_in(line, "tensors", where).items())
    call.tensors.emplace(name, tensor_of(tensor, fmt::format("{}: tensor {}", where, quote(name, 60))));
  return call;
}

[[noreturn]] void differs_in_value(const CapturedCall& call, const std::string& name) {
  const CapturedValue& value = call.values.at(name);
  std::string text = "None, or an object";
  if (const auto* const flag = std::get_if<bool>(&value)) text = *flag ? "True" : "False";
  if (const auto* const number = std::get_if<double>(&value)) text = fmt::format("{:g}", *number);
  if (const auto* const word = std::get_if<std::string>(&value)) text = quote(*word, 40);
  throw CapturedMismatch(
      fmt::format("argument {0} is {1}, which is not its default, and the declaration does not mention it; "
                  "give --argument "
                  "OURS={0}, or --ignore {0} if it does not affect the result",
                  name, text));
}

struct Names {
  std::string_view ours;
  std::vector<std::string_view> theirs;
};

/// Names by which functions call the family's arguments if a declaration does not say otherwise. They are
/// those of the Python package (ALIASES of python/samestate/subject.py).
const std::vector<Names>& usual_names() {
  static const std::vector<Names> table = {
      {"q", {"q", "query"}},
      {"k", {"k", "key"}},
      {"v", {"v", "value"}},
      {"g", {"g", "log_decay", "alpha", "decay"}},
      {"beta", {"beta"}},
      {"initial_state", {"initial_state", "state", "h0", "recurrent_state"}},
      {"cu_seqlens", {"cu_seqlens"}},
      {"scale", {"scale"}},
      {"chunk", {"chunk", "chunk_size"}},
      {"l2norm", {"l2norm", "use_qk_l2norm_in_kernel", "use_qk_l2norm"}},
      {"head_map", {"head_map"}},
      {"output_final_state", {"output_final_state", "return_final_state"}},
      {"epsilon",
       {"epsilon", "eps", "norm_eps", "l2norm_eps", "rms_norm_eps", "layer_norm_eps", "variance_epsilon"}},
      {"o", {"o", "out", "output"}},
      {"final_state", {"final_state", "state", "ht", "recurrent_state"}},
  };
  return table;
}

}  // namespace

Declaration captured_declaration(const std::string& json) {
  return parse_ready(fmt::format(R"({{"type":"ready","protocol":1,"kernels":[{}]}})", json)).kernels.at(0);
}

bool has_captured_calls(const std::filesystem::path& folder) {
  return std::filesystem::is_regular_file(folder / kManifest);
}

CapturedFolder parse_captured(std::string_view text, const std::string& path) {
  CapturedFolder out;
  std::int64_t number = 0;
  bool known = false;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.empty()) continue;
    const std::string where = fmt::format("{}:{}", path, number);
    const Json json = nested_within(line) ? Json::parse(line, nullptr, /*allow_exceptions=*/false) : Json();
    if (!json.is_object()) {
      // A complete line ends with the brace that closes its object, so a line without it was cut off.
      if (line.front() != '{' || line.back() == '}')
        refuse(where, fmt::format("{} is not a JSON object{}", quote(line, 60),
                                  json.is_discarded() ? ": " + json_error(line) : ""));
      ++out.unfinished;
      continue;
    }
    const std::string event = text_in(json, "event", where);
    if (event == "function") {
      if (const std::string format = text_in(json, "format", where); format != kFormat)
        refuse(where,
               fmt::format("its format is {}, and this version reads {}; capture with a samestate of this "
                           "version",
                           quote(format, 60), kFormat));
      known = true;
      const std::string name = text_in(json, "function", where);
      CapturedFunction& function = out.functions[name];
      function.name = name;
      function.defaults.clear();
      if (json.contains("defaults")) {
        for (const auto& [argument, value] : object_in(json, "defaults", where).items())
          function.defaults[argument] = value.dump();
      }
      declare(function, json, where);
    } else if (event == "declare") {
      const std::string name = text_in(json, "function", where);
      const auto found = out.functions.find(name);
      if (found == out.functions.end())
        refuse(where, fmt::format("there is no line for the function {}", quote(name)));
      declare(found->second, json, where);
    } else if (event == "call") {
      const std::string name = text_in(json, "function", where);
      const auto found = out.functions.find(name);
      if (found == out.functions.end())
        refuse(where, fmt::format("there is no line for the function {}", quote(name)));
      out.calls.push_back(call_of(json, found->second, where));
    }
  }
  if (!known)
    refuse(path, fmt::format("there is no line of format {}, which samestate.capture writes", kFormat));
  return out;
}

CapturedFolder read_captured(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / kManifest;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(path.string() + ": cannot be read; check its permissions");
  return parse_captured(std::string{std::istreambuf_iterator<char>(file), {}}, path.string());
}

void require_as_recorded(const Safetensors& file, const CapturedCall& call) {
  const std::string where = fmt::format("call {}", quote(call.file));
  const auto format = file.metadata().find("format");
  if (format == file.metadata().end() || format->second != kCallFormat)
    throw Error(fmt::format(
        "{}: metadata 'format' is {}, and this version reads '{}'; capture with a samestate of "
        "this version",
        where, format == file.metadata().end() ? "missing" : quote(format->second, 60), kCallFormat));
  for (const auto& [name, said] : call.tensors) {
    if (!file.contains(name))
      throw Error(fmt::format("{}: the tensor {}, which the manifest names, is missing", where, quote(name)));
    if (file.dtype(name) != said.dtype || file.shape(name) != said.shape)
      throw Error(fmt::format("{}: tensor {} is {} [{}], but the manifest says {} [{}]", where, quote(name),
                              name_of(file.dtype(name)), fmt::join(file.shape(name), ", "),
                              name_of(said.dtype), fmt::join(said.shape, ", ")));
  }
  for (const std::string& name : file.names()) {
    if (!call.tensors.contains(name))
      throw Error(fmt::format("{}: the manifest does not name its tensor {}", where, quote(name)));
  }
}

std::string argument_of(const CapturedCall& call, const CapturedFunction& function, std::string_view ours) {
  const auto there = [&](std::string_view name) {
    return call.values.contains(name) || call.tensors.contains(fmt::format("argument.{}", name));
  };
  const auto found = function.arguments.find(ours);
  if (found != function.arguments.end()) return there(found->second) ? found->second : "";
  for (const Names& row : usual_names()) {
    if (row.ours != ours) continue;
    for (const std::string_view name : row.theirs) {
      if (there(name)) return std::string(name);
    }
  }
  return "";
}

std::string output_of(const CapturedCall& call, const CapturedFunction& function, std::size_t place,
                      std::string_view ours) {
  std::vector<std::string> names;
  if (const auto said = function.arguments.find(ours); said != function.arguments.end())
    names.push_back(said->second);
  const auto& table = usual_names();
  const auto row = std::ranges::find(table, ours, &Names::ours);
  if (names.empty() && row != table.end()) names.assign(row->theirs.begin(), row->theirs.end());
  names.emplace_back(ours);
  const auto first = [&](auto&& fits) -> std::string {
    const auto found = std::ranges::find_if(call.tensors, [&](const auto& tensor) {
      return tensor.first.starts_with("output.") && fits(tensor.first);
    });
    return found == call.tensors.end() ? "" : found->first;
  };
  for (const std::string& name : names) {
    const std::string last = "." + name;
    if (std::string found = first([&](const std::string& known) { return known.ends_with(last); });
        !found.empty())
      return found;
  }
  const std::string at = fmt::format("output.{}", place), inside = at + ".";
  if (call.tensors.contains(at)) return at;
  // A named tuple with other names has its results in this order too, but an object that contains several
  // tensors does not.
  const auto of_place = [&](const std::string& known) { return known.starts_with(inside); };
  const auto several =
      std::ranges::count_if(call.tensors, of_place, [](const auto& tensor) { return tensor.first; });
  return several == 1 ? first(of_place) : "";
}

bool returned_none(const CapturedCall& call, std::size_t place) {
  const auto begins = [](std::string_view with) {
    return [with](const auto& tensor) { return tensor.first.starts_with(with); };
  };
  if (std::ranges::any_of(call.tensors, begins("after."))) return false;
  return call.nothing.contains(fmt::format("{}", place)) ||
         (call.nothing.contains("0") && std::ranges::none_of(call.tensors, begins("output.")));
}

void require_values_read(const CapturedCall& call, const CapturedFunction& function,
                         const std::vector<std::string_view>& read,
                         const std::set<std::string, std::less<>>& ignored) {
  std::set<std::string, std::less<>> known;
  for (const std::string_view ours : read) known.insert(argument_of(call, function, ours));
  for (const std::string& name : call.given) {
    if (known.contains(name) || ignored.contains(name) || function.options.contains(name)) continue;
    differs_in_value(call, name);
  }
}

}  // namespace samestate
