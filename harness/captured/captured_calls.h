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

/// A folder that `samestate.capture` wrote (docs/lookup/subjects.md, "Capture"): calls.jsonl, and a safetensors file a call.
namespace samestate {

/// A value of an argument that is no tensor; monostate: None, or an object of the program.
using CapturedValue = std::variant<std::monostate, bool, double, std::string>;

/// A tensor as the program had it; in the file it lies dense.
struct CapturedTensor {
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape, strides;  ///< strides in elements
};

/// A captured function: its declaration, and the names of its arguments.
struct CapturedFunction {
  std::string name;                                           ///< module:function
  std::optional<Declaration> declaration = {};                ///< nothing: nobody said it
  std::map<std::string, std::string, std::less<>> arguments;  ///< our name: the function's
  std::map<std::string, CapturedValue, std::less<>>
      options;  ///< arguments that the declaration holds for alone
  /// The defaults of arguments, as JSON; arguments without a default are not there.
  std::map<std::string, std::string, std::less<>> defaults = {};
};

struct CapturedCall {
  std::string file;         ///< in the folder
  std::string function;     ///< of CapturedFolder::functions
  std::int64_t number = 0;  ///< of the calls of its process, counted from 1
  std::map<std::string, CapturedValue, std::less<>> values;
  std::set<std::string, std::less<>> given;    ///< values that are not their argument's default, or have none
  std::set<std::string, std::less<>> nothing;  ///< arguments, and results by place, that were None
  std::map<std::string, CapturedTensor, std::less<>> tensors;  ///< argument.NAME, after.NAME, output.0, ..
};

struct CapturedFolder {
  std::map<std::string, CapturedFunction, std::less<>> functions;
  std::vector<CapturedCall> calls;
  std::int64_t unfinished = 0;  ///< lines that a killed process left behind
};

/// Returns true if the folder holds a manifest of captured calls.
[[nodiscard]] bool has_captured_calls(const std::filesystem::path& folder);

/// Reads a manifest, in which nothing is trusted; `path` stands before what is wrong. Throws Error: another format, a file that is not of the manifest's folder, a call of a function that no line names, a declaration that is
/// none. A line that was cut off is counted.
[[nodiscard]] CapturedFolder parse_captured(std::string_view text, const std::string& path);
[[nodiscard]] CapturedFolder read_captured(const std::filesystem::path& folder);

/// The declaration of an object of JSON, as of parse_ready.
[[nodiscard]] Declaration captured_declaration(const std::string& json);

/// The function's name of an argument of ours, as its declaration says it or else as functions usually call it; empty where
/// the call has none.
[[nodiscard]] std::string argument_of(const CapturedCall& call, const CapturedFunction& function,
                                      std::string_view ours);

/// The tensor that an output is: by name, as output.NAME or output.0.NAME, else by its place among the results; empty where
/// the call returned none.
[[nodiscard]] std::string output_of(const CapturedCall& call, const CapturedFunction& function,
                                    std::size_t place, std::string_view ours);

/// Returns true if the call says by a result of None that it has no such output, and changed no input that could be it.
[[nodiscard]] bool returned_none(const CapturedCall& call, std::size_t place);

/// Throws CapturedMismatch that names a value which is not its argument's default and which neither `read` (names of ours),
/// an option of the declaration nor `ignored` accounts for.
void require_values_read(const CapturedCall& call, const CapturedFunction& function,
                         const std::vector<std::string_view>& read,
                         const std::set<std::string, std::less<>>& ignored);

/// A call that its declaration does not describe: a shape, a dtype, a setting.
class CapturedMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Throws Error that names the file where it does not hold just the tensors of the manifest, as that has them.
void require_as_recorded(const Safetensors& file, const CapturedCall& call);

}  // namespace samestate
