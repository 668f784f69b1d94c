#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "fuzz/search/case_source.h"
#include "harness/records/case_result.h"

namespace samestate {

/// How often a search reached one value of one dimension of a system.
struct CoverageRow {
  std::string system;
  std::string dimension;  ///< form, contract, regime, law or edge
  std::string value;
  std::int64_t drawn = 0;
  std::int64_t judged = 0;   ///< pass, fail or flaky: the comparison was meaningful
  std::int64_t refused = 0;  ///< unsupported or skipped
};

/// Pairs of values of one system that occurred together in a judged case.
struct CoveragePairs {
  std::string system;
  std::string dimensions;  ///< for example "form x regime"
  std::int64_t reached = 0;
  std::int64_t possible = 0;  ///< the product of the numbers of values
};

/// The number of judged cases of a system after which each of its values must have been reached. The rarest,
/// a law or an edge of one chunk length, has a share of about 1/450: 5000 cases miss it with a probability of
/// e^-11.
inline constexpr std::int64_t kCoverageCases = 5000;

/// Counts what a search reached, out of everything that its kernels could reach.
class Coverage {
 public:
  explicit Coverage(const CaseSource& source);

  void add(const Case& c, const CaseResult& finding);

  [[nodiscard]] std::vector<CoverageRow> rows() const;
  [[nodiscard]] std::vector<CoveragePairs> pairs() const;
  [[nodiscard]] std::int64_t judged(const std::string& system) const;
  /// Values that were never judged in a system with at least `minimum` judged cases, although the kernels do
  /// not always refuse them: holes in the search.
  [[nodiscard]] std::vector<CoverageRow> missing(std::int64_t minimum = kCoverageCases) const;

 private:
  using Key = std::tuple<std::string, std::string, std::string>;  ///< system, dimension, value
  struct Count {
    std::int64_t drawn = 0, judged = 0, refused = 0;
  };
  [[nodiscard]] std::int64_t values_of(const std::string& system, std::string_view dimension) const;

  std::vector<Key> order_;
  std::map<Key, Count> counts_;
  std::map<std::string, std::int64_t> judged_;
  std::map<Key, std::set<std::string>> pairs_;  ///< system, first and second dimension
};

}  // namespace samestate
