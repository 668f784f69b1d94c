#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/explain.h"
#include "harness/systems/tensor_system.h"
#include "oracles/systems/last_axis.h"

/// The parts of explain() for systems of named tensors.
namespace samestate {

/// One output of one sequence of a run next to its expected values, or next to those of another run.
struct TensorDifference {
  std::string name;
  Index sequence = 0;
  std::vector<Index> rows;  ///< the wrong rows
  std::set<Index> columns;
  LastAxis axis;
  Index first_column = 0;  ///< the first wrong column of the first wrong row
  Index wrong = 0;         ///< number of wrong elements
  double worst = 0.0;      ///< the largest error / tolerance
  double right = 0.0;      ///< the largest error / tolerance among values that are right
  Index worst_row = 0;
};

/// Returns the difference between values that are outside the tolerance; elements without a finite tolerance
/// are left out.
[[nodiscard]] TensorDifference difference_of(const std::string& name, Index b, const Matrix<double>& exact,
                                             const Matrix<double>& tolerance, const Matrix<double>& actual);

/// True if the kernel's values are those of `other` wherever they differ from the right ones.
[[nodiscard]] bool explained(const Matrix<double>& actual, const Matrix<double>& exact,
                             const Matrix<double>& other);

/// Returns "token 16", or "row 16 (token 8, its row 0)" if a token has several rows. `tokens` is 0 if the
/// rows do not belong to tokens.
[[nodiscard]] std::string row_text(Index row, Index rows, Index tokens);

/// Returns the patterns in the values of an output. `tokens` is 0 if its rows do not belong to tokens.
[[nodiscard]] std::vector<std::string> tensor_values(const Case& c, const TensorDifference& d, Index tokens,
                                                     const Matrix<double>& exact,
                                                     const Matrix<double>& actual);

[[nodiscard]] Explanation explain_tensors(const Resolved& r, const TensorSystem& system, const Trace& trace);
[[nodiscard]] Explanation explain_tensor_law(const Resolved& r, const TensorSystem& system,
                                             const Trace& trace);

}  // namespace samestate
