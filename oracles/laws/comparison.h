#pragma once

#include <cstdint>
#include <optional>

#include "oracles/laws/law.h"

/// Runs and their comparison, as every law needs them (oracles/laws/laws.cpp).
namespace samestate::laws_detail {

/// One run of the kernel with what is needed to judge it.
struct Run {
  Batch batch;
  Path path;
  Outputs out;
};

[[nodiscard]] Run run(const LawSubject& s, Batch batch, Path path);

/// All tokens of every sequence in one call.
[[nodiscard]] Run run_whole(const LawSubject& s, Batch batch);

/// One head of a run. A packed run is judged sequence by sequence.
struct HeadRun {
  HeadOracle oracle;
  Matrix<double> o, state;
};

[[nodiscard]] HeadRun head_of(const LawSubject& s, const Run& r, std::int64_t n, std::int64_t h);

/// Not finite, and the contract's formats explain it.
[[nodiscard]] bool overflowed_as_expected(const HeadRun& r);

/// The judgement, vacuous, of a head that overflowed so.
[[nodiscard]] Judgement nothing_to_compare();

/// Collects judgements over heads; the first one counts as it is.
class Worst {
 public:
  void add(Judgement j, std::int64_t n, std::int64_t h);
  /// The worst of all; vacuous where none was added.
  [[nodiscard]] Judgement take();

 private:
  std::optional<Judgement> worst_;
};

/// Rows [a0, a0 + count) of a against [b0, ...) of b, and with `states` the final states, within the sum of
/// their bounds. Vacuous where a run is not finite and its contract's formats explain it.
void agree(Worst& worst, const HeadRun& a, Index a0, const HeadRun& b, Index b0, Index count, bool states,
           std::int64_t n, std::int64_t h);

/// All rows and states of two runs of the same batch shape.
void agree_everywhere(Worst& worst, const LawSubject& s, const Run& a, const Run& b);

}  // namespace samestate::laws_detail
