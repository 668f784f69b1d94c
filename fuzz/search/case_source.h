#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/case_filter.h"
#include "harness/run/run_case.h"

namespace samestate {

/// Which kernels a search is about; empty: all.
struct SearchFilter {
  std::string system;
  std::string device;
  std::string kernel;
  CaseFilter cases = {};  ///< of their cases
};

/// A kernel with what its cases choose among.
struct SearchKernel {
  const KernelRow* row = nullptr;
  std::vector<Factor> factors;
  OrdinaryCalls calls;
};

/// The kernels of one system that a search draws from.
struct SearchSystem {
  const System* system = nullptr;
  std::vector<SearchKernel> kernels;
};

/// The cases of a search: case i is a function of the seed, i and the table's rows, so that shards are
/// disjoint and neither workers nor an interruption change what is tried. RapidCheck draws a small structure
/// (system, kernel, form, shapes, chunk, contract, regime, law, state, layout, data seed); the case line is
/// all there is.
class CaseSource {
 public:
  /// Refers to `table`. Throws Error for a filter that names what does not exist, or leaves no kernel or no case.
  CaseSource(const KernelTable& table, const SearchFilter& filter, std::uint64_t seed);

  /// With a filter the first case that it takes, of many drawn: by chance, and with what it asks put in. Throws
  /// Error where there is none.
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
