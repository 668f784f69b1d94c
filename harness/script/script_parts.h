#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/script/script.h"
#include "harness/script/script_data.h"
#include "harness/systems/recurrent_system.h"
#include "harness/systems/tensor_system.h"

/// The parts from which the scripts for each kind of system are assembled.
namespace samestate::script_detail {

/// A script without its head: the code, and the rows of its DATA.
struct Parts {
  std::string constants;  ///< after the imports
  std::string reference;  ///< functions that compute the expected values
  std::string results;    ///< the body of the function `results`, which returns the kernel's outputs
  std::string main;       ///< the lines of `main` that compare
  std::string data;       ///< the rows of DATA
  std::string limits;     ///< one sentence that says how the limits were derived
  std::string cut = {};   ///< the part of the case that is missing; empty if it is complete
  bool fails = false;  ///< the result of comparing the recorded outputs, computed here as the script computes
                       ///< it
  bool judged = false;  ///< something has a finite limit
};

/// True if an error exceeds its limit as written in the script, in fp32; an error that is not finite does.
[[nodiscard]] bool breaks(double error, float limit);

/// Out of `count` sequences or heads, those that a script compares: all if there are few, otherwise the worst
/// and others spread over them.
[[nodiscard]] std::vector<std::int64_t> compared_of(std::int64_t count, std::int64_t worst);

/// The parts for a case without a law. With `alone`, only the worst head or sequence, with embedded outputs.
[[nodiscard]] Parts family_parts(const RecurrentSystem& system, const Resolved& r, const Record& record,
                                 const Trace& trace, const ScriptWords& words, bool alone);
[[nodiscard]] Parts tensor_parts(const TensorSystem& system, const Resolved& r, const Record& record,
                                 const Trace& trace, const ScriptWords& words, bool alone);

/// The same for a case with a law: two runs that have to agree.
[[nodiscard]] Parts law_parts(const RecurrentSystem& system, const Resolved& r, const Trace& trace,
                              const ScriptWords& words);
[[nodiscard]] Parts law_parts(const TensorSystem& system, const Resolved& r, const Trace& trace,
                              const ScriptWords& words);

/// The inputs of a batch as a kernel with these conventions receives them, as rows of DATA; `prefix` precedes
/// each name.
[[nodiscard]] std::string data_of(const Batch& batch, const std::string& prefix);

/// "[(0, 20, 16), (20, 21, 0)]": first token, end and chunk of each call. Throws Error for calls over ranks,
/// which scripts do not support.
[[nodiscard]] std::string calls_of(const Path& path);

/// SCALE, L2NORM, HEAD_MAP, CONTRACT and DTYPES for a kernel of the family that is called.
[[nodiscard]] std::string settings_of(const Resolved& r, const BatchShape& shape);

/// "[0, 17, 33]" for a packed batch, "None" for a dense one.
[[nodiscard]] std::string offsets_of(const BatchShape& shape);

}  // namespace samestate::script_detail
