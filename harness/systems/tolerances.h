#pragma once

#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/run/run_case.h"

namespace samestate {

/// One block of an output, as System::held divides it: for the recurrent family a head of a sequence, for
/// named tensors a sequence. Rows x last extent.
struct OutputBlock {
  std::string output;
  Axis axis = Axis::tokens;
  Matrix<double> values;
  std::int64_t sequence = 0;
  std::int64_t head = -1;  ///< -1 means all of them
};

/// Where a block of an output [B, T, ..], or of states [N, ..], followed by the heads, is in its row-major
/// data: element (i, j) is at first + i * stride + j.
struct BlockPlace {
  std::int64_t first = 0, stride = 0, rows = 0;
};
[[nodiscard]] BlockPlace place_of(const Resolved& r, const TensorSpec& spec,
                                  const std::vector<std::int64_t>& shape, std::int64_t sequence,
                                  std::int64_t head);

/// The blocks of a run's outputs, divided like `like`. Empty if the run wrote nothing.
[[nodiscard]] std::vector<OutputBlock> blocks_of(const Resolved& r, const std::vector<CaseTensor>& outputs,
                                                 const std::vector<OutputBlock>& like);

/// Errors of one output over all its elements. Each is the largest of its kind, except for the RMS.
struct ErrorSize {
  double rms = 0.0;  ///< over all elements
  double row = 0.0;  ///< 2-norm of a row; for the state of the family, the Frobenius norm of a head's state
  double element = 0.0;  ///< absolute value
};

/// The errors of one output of a case, and their limits.
struct OutputTolerance {
  std::string output;
  bool state = false;
  double size = 0.0;     ///< RMS of the expected values
  double largest = 0.0;  ///< the largest magnitude of an expected element
  ErrorSize measured;    ///< errors of the kernel that ran
  ErrorSize
      limit;  ///< the gate's limits for a correct kernel; for an element at most that of its row. Infinite if
              ///< there is no bound
  double predicted = 0.0;   ///< RMS according to the second moments of the bound; NaN if only the worst case
                            ///< is known
  double worst_case = 0.0;  ///< like limit.row; no rounding explains a larger error
};

struct TolerancesOfCase {
  Record record;
  std::vector<OutputTolerance> outputs;
  std::vector<OutputBlock> expected, actual;
  std::vector<Matrix<double>> limits;  ///< for each element of each block of expected
  std::vector<CaseTensor> inputs;
};

/// Runs a case and compares it with its oracle. Throws Error for an invalid case, or one with a law; if the
/// kernel returned nothing, `outputs` is empty and the record says why.
[[nodiscard]] TolerancesOfCase tolerances_of(const Case& c, const KernelTable& table);

}  // namespace samestate
