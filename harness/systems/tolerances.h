#pragma once

#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/run/run_case.h"

namespace samestate {

/// One block of an output, as System::held makes them: of the recurrent family a head of a sequence, of named tensors a
/// sequence. Rows x last extent.
struct OutputBlock {
  std::string output;
  Axis axis = Axis::tokens;
  Matrix<double> values;
  std::int64_t sequence = 0;
  std::int64_t head = -1;  ///< -1: all of them
};

/// Where a block of an output [B, T, ..], of states [N, ..], the heads following, stands in its row-major data: element
/// (i, j) at first + i * stride + j.
struct BlockPlace {
  std::int64_t first = 0, stride = 0, rows = 0;
};
[[nodiscard]] BlockPlace place_of(const Resolved& r, const TensorSpec& spec,
                                  const std::vector<std::int64_t>& shape, std::int64_t sequence,
                                  std::int64_t head);

/// The blocks of a run's outputs, cut as those of `like` are. None where it wrote nothing.
[[nodiscard]] std::vector<OutputBlock> blocks_of(const Resolved& r, const std::vector<CaseTensor>& outputs,
                                                 const std::vector<OutputBlock>& like);

/// Errors of one output over all its elements. Each is the largest of its kind, but for the RMS.
struct ErrorSize {
  double rms = 0.0;      ///< of all elements
  double row = 0.0;      ///< 2-norm of a row; of a state of the family the Frobenius norm of a head's
  double element = 0.0;  ///< absolute value
};

/// What is known of the errors of one output of a case.
struct OutputTolerance {
  std::string output;
  bool state = false;
  double size = 0.0;     ///< RMS of what is expected
  double largest = 0.0;  ///< magnitude of an element of it
  ErrorSize measured;    ///< of the kernel that ran
  ErrorSize
      limit;  ///< of a correct kernel, by the gate; of an element no more than its row. Infinite: no bound
  double predicted = 0.0;  ///< RMS by the second moments of the bound; NaN where only the worst case is known
  double worst_case = 0.0;  ///< as limit.row, beyond which no rounding explains it
};

struct TolerancesOfCase {
  Record record;
  std::vector<OutputTolerance> outputs;
  std::vector<OutputBlock> expected, actual;
  std::vector<Matrix<double>> limits;  ///< of each element of a block of expected
  std::vector<CaseTensor> inputs;
};

/// Runs a case and holds it against its oracle. Throws Error for a case that is none, or with a law; where the kernel
/// returned nothing, `outputs` is empty and the record says why.
[[nodiscard]] TolerancesOfCase tolerances_of(const Case& c, const KernelTable& table);

}  // namespace samestate
