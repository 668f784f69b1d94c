#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/explain/explain.h"
#include "harness/systems/tensor_system.h"
#include "oracles/systems/last_axis.h"

/// Parts of explain() for systems of named tensors.
namespace samestate {

/// One output of one sequence of a run beside what it should be, or beside another run's.
struct TensorDifference {
  std::string name;
  Index sequence = 0;
  std::vector<Index> rows;  ///< wrong ones
  std::set<Index> columns;
  LastAxis axis;
  Index first_column = 0;  ///< wrong, of the first wrong row
  Index wrong = 0;         ///< elements
  double worst = 0.0;      ///< error / tolerance
  double right = 0.0;      ///< the largest of it of what is right
  Index worst_row = 0;
};

/// What lies outside the tolerance; elements without a finite one are left out.
[[nodiscard]] TensorDifference difference_of(const std::string& name, Index b, const Matrix<double>& exact,
                                             const Matrix<double>& tolerance, const Matrix<double>& actual);

/// Whether the kernel's values are those of `other`, so far as they differ from the right ones.
[[nodiscard]] bool explained(const Matrix<double>& actual, const Matrix<double>& exact,
                             const Matrix<double>& other);

/// "token 16", or where a token has several rows, "row 16 (token 8, its row 0)"; `tokens` 0: rows of no tokens.
[[nodiscard]] std::string row_text(Index row, Index rows, Index tokens);

/// Names of the patterns in the values of an output; `tokens` 0: its rows are of no tokens.
[[nodiscard]] std::vector<std::string> tensor_values(const Case& c, const TensorDifference& d, Index tokens,
                                                     const Matrix<double>& exact,
                                                     const Matrix<double>& actual);

[[nodiscard]] Explanation explain_tensors(const Resolved& r, const TensorSystem& system, const Trace& trace);
[[nodiscard]] Explanation explain_tensor_law(const Resolved& r, const TensorSystem& system,
                                             const Trace& trace);

}  // namespace samestate
