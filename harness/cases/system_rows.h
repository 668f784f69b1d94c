#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/systems/operator.h"

/// What the rows of a system (harness/cases/system.h) are made of.
namespace samestate {

/// How outputs are held to their tolerance, by which a system's oracle, twin and laws differ.
enum class Numerics {
  derived_bounds,  ///< the recurrent family: bounds of oracles/bounds and a twin with the contract's points
  running_errors   ///< named tensors: the running error, drawn roundings, and twins that are searched for
};

/// One way of evaluating a system, by its name in the case line.
struct CaseForm {
  std::string_view name;
  bool chunked = false;   ///< reads `chunk`
  bool decodes = false;   ///< reads `prefill`: so many tokens in one call, then a call a token
  bool packed = false;    ///< reads `lengths`
  bool whole = false;     ///< all tokens are one chunk
  bool ranked = false;    ///< reads `ranks` and `cuts`: the tokens are divided among ranks
  bool by_heads = false;  ///< .. or, ranked too, the value heads

  /// Its calls are of any form that kernels are written for, and those that have chunks read the line's.
  [[nodiscard]] bool of_any_form() const { return (decodes || packed) && !chunked; }
};

/// A size of a case line: of the system alone (a value of Case::parameters) or, not `own`, a key of the table.
struct CaseSize : Parameter {
  bool own = true;
  Index start = standard;  ///< from which a plan starts
  Index planned = 7424;    ///< the largest that plans try: a model of the documents has 7168
};

/// Cases that a plan tries beside those that follow from the keys' and sizes' rows: parts of case lines.
struct PlanRows {
  std::string_view start = {};                ///< of every case
  std::vector<std::string_view> every = {};   ///< under every contract of a kernel
  std::vector<std::string_view> shapes = {};  ///< under its first and the rounding one
  std::vector<std::string_view> ranks = {};   ///< in place of `shapes` and `limits` of a kernel over ranks
  std::vector<std::string_view> heads =
      {};                                ///< the same where they divide heads, and of `every` and `regime`
  std::vector<std::string> limits = {};  ///< counts that no longer fit; under its first
  std::vector<std::string> models = {};  ///< sizes of public models, under the same two
  std::string_view regime = {};          ///< beside each regime
  std::string_view law = {};             ///< beside each law
  std::int64_t seeded = 100;             ///< seeded cases a kernel at effort 1
};

/// What stands before the names of tensors in a run file (fixtures/run_file.h).
struct TensorPrefixes {
  std::string_view input = {}, output = {};
};

/// A tensor of a whole case: [B, ...] or, packed, [1, ...]; states [sequences, ...]; weights as they are.
/// Row-major.
struct CaseTensor {
  TensorSpec spec;
  bool batched = false;             ///< its first extent is the batch's
  std::vector<std::int64_t> shape;  ///< the batch's extent included
  std::vector<float> data;
  std::vector<std::int64_t> lengths = {};  ///< packed: the tokens of each sequence
};

/// A block of an output, of one sequence or of one head of it, beside what it was held against. Rows x last extent.
/// Infinite: nothing is said.
struct Held {
  std::string output = {};
  Axis axis = Axis::tokens;
  std::int64_t sequence = 0;
  std::int64_t head = -1;  ///< -1: all of them
  Matrix<double> exact = {}, actual = {};
  Vector<double> allowed = {};  ///< sum of squares of the predicted errors of a row
  Matrix<double> limit = {};    ///< of each element, by the gate; of a state of a head the block's
  double row_limit = 0.0;   ///< the largest of a row; of a state of a head the Frobenius norm of its error
  double worst_case = 0.0;  ///< as row_limit, beyond which no rounding explains it
  double predicted = 0.0;  ///< sum of squares of the predicted errors; NaN where only the worst case is known
  bool whole = false;      ///< a row's figure is that of the block: a state of a head
};

}  // namespace samestate
