#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "fixtures/safetensors.h"
#include "harness/subjects/declaration.h"

/// A folder that `samestate.capture` wrote (docs/lookup/subjects.md, "Capture"): calls.jsonl, and a
/// safetensors file for each call.
namespace samestate {

/// The value of an argument that is not a tensor. std::monostate stands for None and for an object of the
/// program.
using CapturedValue = std::variant<std::monostate, bool, double, std::string>;

/// A tensor as the program had it; in the file it is dense.
struct CapturedTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape, strides;  ///< strides in elements
};

/// A captured function: its declaration, and the names of its arguments.
struct CapturedFunction {
  std::string name;                                           ///< module:function
  std::optional<Declaration> declaration = {};                ///< nullopt if it was not declared
  std::map<std::string, std::string, std::less<>> arguments;  ///< from our name to the function's
  std::map<std::string, CapturedValue, std::less<>>
      options;  ///< values of arguments to which the declaration is limited
  /// The defaults of arguments, as JSON; arguments without a default are missing.
  std::map<std::string, std::string, std::less<>> defaults = {};
};

struct CapturedCall {
  std::string file;         ///< its name in the folder
  std::string function;     ///< a key of CapturedFolder::functions
  std::int64_t number = 0;  ///< its number among the calls of its process, from 1
  std::map<std::string, CapturedValue, std::less<>> values;
  std::set<std::string, std::less<>> given;    ///< arguments whose values are not their default, or have none
  std::set<std::string, std::less<>> nothing;  ///< arguments, and results by place, that were None
  std::map<std::string, CapturedTensor, std::less<>> tensors;  ///< argument.NAME, after.NAME, output.0, ..
};

struct CapturedFolder {
  std::map<std::string, CapturedFunction, std::less<>> functions;
  std::vector<CapturedCall> calls;
  std::int64_t unfinished = 0;  ///< lines that a killed process left behind
};

/// Returns true if the folder contains a manifest of captured calls.
[[nodiscard]] bool has_captured_calls(const std::filesystem::path& folder);

/// Parses a manifest, of which nothing is trusted; errors begin with `path`. Throws Error if the format is
/// another one, if a file is outside the manifest's folder, if a call's function has no line, and if a
/// declaration is invalid. A line that was cut off is counted.
[[nodiscard]] CapturedFolder parse_captured(std::string_view text, const std::string& path);
[[nodiscard]] CapturedFolder read_captured(const std::filesystem::path& folder);

/// Parses a declaration from a JSON object, as parse_ready does.
[[nodiscard]] Declaration captured_declaration(const std::string& json);

/// Returns the function's name for our argument, as its declaration says it or else as functions usually call
/// it; empty if the call has none.
[[nodiscard]] std::string argument_of(const CapturedCall& call, const CapturedFunction& function,
                                      std::string_view ours);

/// Returns the tensor that is an output: found by name, as output.NAME or output.0.NAME, or else by its place
/// among the results; empty if the call did not return it.
[[nodiscard]] std::string output_of(const CapturedCall& call, const CapturedFunction& function,
                                    std::size_t place, std::string_view ours);

/// Returns true if the call returned None in this place and changed no input that could be this output.
[[nodiscard]] bool returned_none(const CapturedCall& call, std::size_t place);

/// Throws CapturedMismatch that names a value if it is not its argument's default and is explained neither by
/// `read` (our names), by an option of the declaration nor by `ignored`.
void require_values_read(const CapturedCall& call, const CapturedFunction& function,
                         const std::vector<std::string_view>& read,
                         const std::set<std::string, std::less<>>& ignored);

/// Thrown if a call is not one that its declaration describes, because of a shape, a dtype or a setting.
class CapturedMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error that names the file if its format is another one, or its tensors are not exactly those of the manifest.
void require_as_recorded(const Safetensors& file, const CapturedCall& call);

}  // namespace samestate
