#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/case_filter.h"
#include "harness/run/run_case.h"

namespace samestate {

/// Selects the kernels of a search; empty means all.
struct SearchFilter {
  std::string system;
  std::string device;
  std::string kernel;
  CaseFilter cases = {};  ///< selects among their cases
};

/// A kernel with the choices for its cases.
struct SearchKernel {
  const KernelRow* row = nullptr;
  std::vector<Factor> factors;
  OrdinaryCalls calls;
};

/// The kernels of one system from which a search draws.
struct SearchSystem {
  const System* system = nullptr;
  std::vector<SearchKernel> kernels;
};

/// The cases of a search: case i depends only on the seed, i and the rows of the table, so that shards are
/// disjoint and neither the number of workers nor an interruption changes what is tried. RapidCheck draws a
/// small structure (system, kernel, form, shapes, chunk, contract, regime, law, state, layout, data seed),
/// from which the case line is made.
class CaseSource {
 public:
  /// Keeps a reference to `table`. Throws Error for a filter that names something unknown, or leaves no
  /// kernel or no case.
  CaseSource(const KernelTable& table, const SearchFilter& filter, std::uint64_t seed);

  /// With a filter, the first of many drawn cases that it accepts, either drawn or changed to fulfil it.
  /// Throws Error if there is none.
  [[nodiscard]] Case draw(std::int64_t index) const;
  [[nodiscard]] const std::vector<SearchSystem>& systems() const { return systems_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }
  /// Names and contracts of the rows and the version of the drawing: equal fingerprints and seeds draw equal
  /// cases.
  [[nodiscard]] std::string fingerprint() const;

 private:
  [[nodiscard]] Case draw(std::int64_t index, std::uint64_t attempt) const;

  const KernelTable& table_;
  std::vector<SearchSystem> systems_;
  CaseFilter filter_;
  std::uint64_t seed_;
};

}  // namespace samestate
