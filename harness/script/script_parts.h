#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "harness/script/script.h"
#include "harness/script/script_data.h"
#include "harness/systems/recurrent_system.h"
#include "harness/systems/tensor_system.h"

/// What the scripts of each kind of system are put together from.
namespace samestate::script_detail {

/// A script before its head: what it computes and the rows of its DATA.
struct Parts {
  std::string constants;  ///< behind the imports
  std::string reference;  ///< functions that say what is expected
  std::string results;    ///< of the function `results`, which gives what the kernel gave
  std::string main;       ///< the lines of `main` that compare
  std::string data;       ///< rows of DATA
  std::string limits;     ///< one sentence: how the limits were derived
  std::string cut = {};   ///< what of the case is not there; empty: all of it is
  bool fails = false;     ///< the comparison of the recorded outputs, made here as the script makes it
  bool judged = false;    ///< something has a finite limit
};

/// Whether an error breaks its limit as the script has it, which is fp32: one that is no number does.
[[nodiscard]] bool breaks(double error, float limit);

/// Of so many sequences, or heads, those that a script compares: all of a few, else the worst and others spread over them.
[[nodiscard]] std::vector<std::int64_t> compared_of(std::int64_t count, std::int64_t worst);

/// Of a case without a law. `alone`: the worst head or sequence alone, of outputs that are embedded.
[[nodiscard]] Parts family_parts(const RecurrentSystem& system, const Resolved& r, const Record& record,
                                 const Trace& trace, const ScriptWords& words, bool alone);
[[nodiscard]] Parts tensor_parts(const TensorSystem& system, const Resolved& r, const Record& record,
                                 const Trace& trace, const ScriptWords& words, bool alone);

/// The same of a case with a law: two runs that have to agree.
[[nodiscard]] Parts law_parts(const RecurrentSystem& system, const Resolved& r, const Trace& trace,
                              const ScriptWords& words);
[[nodiscard]] Parts law_parts(const TensorSystem& system, const Resolved& r, const Trace& trace,
                              const ScriptWords& words);

/// The inputs of a batch as a kernel with such conventions is given them, as rows of DATA; `prefix` before each name.
[[nodiscard]] std::string data_of(const Batch& batch, const std::string& prefix);

/// "[(0, 20, 16), (20, 21, 0)]": first token, end and chunk of each call. Throws Error for calls over ranks, which no
/// script makes.
[[nodiscard]] std::string calls_of(const Path& path);

/// SCALE, L2NORM, HEAD_MAP, CONTRACT and DTYPES of a kernel of the family that is called.
[[nodiscard]] std::string settings_of(const Resolved& r, const BatchShape& shape);

/// "[0, 17, 33]" of a packed batch, "None" of a dense one.
[[nodiscard]] std::string offsets_of(const BatchShape& shape);

}  // namespace samestate::script_detail
