#pragma once

#include <cstdint>
#include <string>

#include "harness/captured/captured_run.h"
#include "oracles/batch.h"
#include "oracles/systems/family.h"

namespace samestate {

/// A recorded call of the recurrent family, read head by head from its file in the form that the oracles
/// take. `run` must outlive it.
class CapturedHeads {
 public:
  explicit CapturedHeads(const CapturedRun& run);

  [[nodiscard]] const CapturedRun& run() const { return run_; }
  [[nodiscard]] const Family& family() const { return family_; }
  [[nodiscard]] const BatchShape& shape() const { return shape_; }
  /// Returns true if there is an o of the expected size.
  [[nodiscard]] bool has_o() const { return !run_.place("o").empty(); }
  /// Returns true if the call returned a final state that was requested.
  [[nodiscard]] bool has_state() const { return !run_.place("final_state").empty(); }

  /// Returns one head of one sequence in float64, and the kernel's results for it: o [T_n, dv] and the final
  /// state [dk, dv]. Throws CapturedMismatch at the first input that is not finite.
  [[nodiscard]] Sequence<double> sequence(std::int64_t n, std::int64_t h) const;
  [[nodiscard]] Matrix<double> rows(std::int64_t n, std::int64_t h) const;
  [[nodiscard]] Matrix<double> state(std::int64_t n, std::int64_t h) const;

 private:
  [[nodiscard]] Matrix<double> token_rows(const std::string& name, std::int64_t n, std::int64_t h,
                                          std::int64_t heads, std::int64_t width) const;
  [[nodiscard]] Matrix<double> state_in(const std::string& name, std::int64_t n, std::int64_t h) const;

  const CapturedRun& run_;
  const Family& family_;
  BatchShape shape_;
};

}  // namespace samestate
