#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/systems/operator.h"

/// The types that make up a row of a system (harness/cases/system.h).
namespace samestate {

/// How outputs are compared with their tolerance; oracle, twin and laws of a system differ accordingly.
enum class Numerics {
  derived_bounds,  ///< the recurrent family: the bounds in oracles/bounds, and a twin with the contract's
                   ///< points
  running_errors   ///< named tensors: the running error, drawn roundings, and a search for twins
};

/// One way of evaluating a system, under its name in the case line.
struct CaseForm {
  std::string_view name;
  bool chunked = false;   ///< reads `chunk`
  bool decodes = false;   ///< reads `prefill`: that many tokens in one call, then one call per token
  bool packed = false;    ///< reads `lengths`
  bool whole = false;     ///< all tokens are one chunk
  bool ranked = false;    ///< reads `ranks` and `cuts`: the tokens are divided among ranks
  bool by_heads = false;  ///< also ranked, but the value heads are divided

  /// True if its calls may have any form that kernels are written for; those with chunks use the chunk of the
  /// line.
  [[nodiscard]] bool of_any_form() const { return (decodes || packed) && !chunked; }
};

/// A size of a case line: a size that only the system has (a value of Case::parameters) or, if not `own`, a
/// key of the table.
struct CaseSize : Parameter {
  bool own = true;
  Index start = standard;  ///< the value from which a plan starts
  Index planned = 7424;    ///< the largest value that plans try: a model in the documents has 7168
};

/// Cases that a plan tries in addition to those that follow from the rows of keys and sizes, as parts of case
/// lines.
struct PlanRows {
  std::string_view start = {};                ///< applies to every case
  std::vector<std::string_view> every = {};   ///< tried under every contract of a kernel
  std::vector<std::string_view> shapes = {};  ///< tried under its first contract and the rounding one
  std::vector<std::string_view> ranks = {};   ///< replaces `shapes` and `limits` for a kernel over ranks
  std::vector<std::string_view> heads =
      {};  ///< the same for ranks that divide heads; replaces `every` and `regime` too
  std::vector<std::string> limits = {};  ///< counts that exceed what fits; tried under its first contract
  std::vector<std::string> models = {};  ///< sizes of public models, tried under the same two
  std::string_view regime = {};          ///< added to each regime
  std::string_view law = {};             ///< added to each law
  std::int64_t seeded = 100;             ///< seeded cases per kernel at effort 1
};

/// The prefixes of tensor names in a run file (fixtures/run_file.h).
struct TensorPrefixes {
  std::string_view input = {}, output = {};
};

/// A tensor of a whole case: [B, ...] or, packed, [1, ...]; states [sequences, ...]; weights without a batch.
/// Row-major.
struct CaseTensor {
  TensorSpec spec;
  bool batched = false;             ///< its first extent is the batch's
  std::vector<std::int64_t> shape;  ///< including the batch's extent
  std::vector<float> data;
  std::vector<std::int64_t> lengths = {};  ///< packed: the tokens of each sequence
};

/// A block of an output, for one sequence or one head of it, with its expected values and limits. Rows x last
/// extent. Infinite limits say nothing.
struct Held {
  std::string output = {};
  Axis axis = Axis::tokens;
  std::int64_t sequence = 0;
  std::int64_t head = -1;  ///< -1 means all of them
  Matrix<double> exact = {}, actual = {};
  Vector<double> allowed = {};  ///< sum of squares of the predicted errors of each row
  Matrix<double> limit = {};    ///< for each element, as the gate applies it; for a state, of the block
  double row_limit = 0.0;       ///< the largest for a row; for a state, the error's Frobenius norm
  double worst_case = 0.0;      ///< like row_limit; no rounding explains a larger error
  double predicted = 0.0;  ///< sum of squares of the predicted errors; NaN if only the worst case is known
  bool whole = false;      ///< the row figures apply to the whole block: the state of a head
};

}  // namespace samestate
