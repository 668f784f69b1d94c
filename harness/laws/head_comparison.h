#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/law_subject.h"
#include "harness/run/law_trace.h"

/// Runs and their comparison, which every law needs (harness/laws/head_laws.cpp).
namespace samestate::laws_detail {

using Run = LawRun;
using HeadRun = LawHead;

[[nodiscard]] Run run(const LawSubject& s, Batch batch, Path path);

/// Runs all tokens of every sequence in one call.
[[nodiscard]] Run run_whole(const LawSubject& s, Batch batch);

[[nodiscard]] HeadRun head_of(const LawSubject& s, const Run& r, std::int64_t n, std::int64_t h);

/// Returns every head of a run, for a run that is compared with several others.
[[nodiscard]] std::vector<HeadRun> heads_of(const LawSubject& s, const Run& r);

/// Returns true if it is not finite and the contract's formats explain that.
[[nodiscard]] bool overflowed_as_expected(const HeadRun& r);

/// Returns the vacuous judgement of a head that overflowed as expected.
[[nodiscard]] Judgement nothing_to_compare();

/// Returns the values that a law demands of one head, as a run to compare with; their bounds are zero.
[[nodiscard]] HeadRun demanded(Matrix<double> o, Matrix<double> state);

/// Collects judgements over heads, and what they compared. The first one is always taken.
class Worst {
 public:
  explicit Worst(const LawSubject& s) : trace_(s.trace) {}

  /// Describes in words what the judgements that follow compare, and gives the runs if both sides are runs.
  void compares(std::string first, const Run* first_run, std::string second, const Run* second_run);
  /// Says what differs in the second run, and which token the comparison is about.
  void about(LawComparison::Change change, Index place = -1);
  /// Says that the second run may also be less than the first.
  void at_most();
  /// Adds one pair of runs.
  void keep(LawPair pair);
  [[nodiscard]] LawTrace* trace() const { return trace_; }

  void add(Judgement j, std::int64_t n, std::int64_t h);
  /// Returns the worst of all judgements; vacuous if there was none.
  [[nodiscard]] Judgement take();

 private:
  std::optional<Judgement> worst_;
  LawTrace* trace_;
};

/// Returns "in chunks of 16" or "token by token".
[[nodiscard]] std::string chunks_text(Index chunk);

/// The same for one call, including how its tokens are divided among ranks.
[[nodiscard]] std::string call_text(const Segment& call);

/// Compares rows [a0, a0 + count) of a with rows [b0, ...) of b and, with `states`, the final states, within
/// the sum of their bounds. Vacuous if a run is not finite and its contract's formats explain that.
void agree(Worst& worst, const HeadRun& a, Index a0, const HeadRun& b, Index b0, Index count, bool states,
           std::int64_t n, std::int64_t h);

/// Compares all rows and states of two runs with the same batch shape; `a` is heads_of the first.
void agree_everywhere(Worst& worst, const LawSubject& s, const std::vector<HeadRun>& a, const Run& b);

/// The same, but every number must be equal.
void agree_in_bits(Worst& worst, const std::vector<HeadRun>& a, const Run& b);

}  // namespace samestate::laws_detail
