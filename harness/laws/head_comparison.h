#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/run/law_subject.h"
#include "harness/run/law_trace.h"

/// Runs and their comparison, as every law needs them (harness/laws/head_laws.cpp).
namespace samestate::laws_detail {

using Run = LawRun;
using HeadRun = LawHead;

[[nodiscard]] Run run(const LawSubject& s, Batch batch, Path path);

/// All tokens of every sequence in one call.
[[nodiscard]] Run run_whole(const LawSubject& s, Batch batch);

[[nodiscard]] HeadRun head_of(const LawSubject& s, const Run& r, std::int64_t n, std::int64_t h);

/// Every head of a run, for one that several others are held against.
[[nodiscard]] std::vector<HeadRun> heads_of(const LawSubject& s, const Run& r);

/// Not finite, and the contract's formats explain it.
[[nodiscard]] bool overflowed_as_expected(const HeadRun& r);

/// The judgement, vacuous, of a head that overflowed so.
[[nodiscard]] Judgement nothing_to_compare();

/// What a law demands of one head, to be held against a run: bounds of zero.
[[nodiscard]] HeadRun demanded(Matrix<double> o, Matrix<double> state);

/// Collects judgements over heads, the first of which counts as it is, and what they compared.
class Worst {
 public:
  explicit Worst(const LawSubject& s) : trace_(s.trace) {}

  /// What the judgements that follow compare, in words, and the runs where they are runs.
  void compares(std::string first, const Run* first_run, std::string second, const Run* second_run);
  /// In what the second of these is another, and the token that the comparison is about.
  void about(LawComparison::Change change, Index place = -1);
  /// Of these, the second may also be less than the first.
  void at_most();
  /// A pair of them.
  void keep(LawPair pair);
  [[nodiscard]] LawTrace* trace() const { return trace_; }

  void add(Judgement j, std::int64_t n, std::int64_t h);
  /// The worst of all; vacuous where none was added.
  [[nodiscard]] Judgement take();

 private:
  std::optional<Judgement> worst_;
  LawTrace* trace_;
};

/// "in chunks of 16" or "token by token".
[[nodiscard]] std::string chunks_text(Index chunk);

/// The same of one call, and how its tokens are divided among ranks.
[[nodiscard]] std::string call_text(const Segment& call);

/// Rows [a0, a0 + count) of a against [b0, ...) of b, and with `states` the final states, within the sum of
/// their bounds. Vacuous where a run is not finite and its contract's formats explain it.
void agree(Worst& worst, const HeadRun& a, Index a0, const HeadRun& b, Index b0, Index count, bool states,
           std::int64_t n, std::int64_t h);

/// All rows and states of two runs of the same batch shape, of which the first is `heads_of` one.
void agree_everywhere(Worst& worst, const LawSubject& s, const std::vector<HeadRun>& a, const Run& b);

/// The same, equal in every number.
void agree_in_bits(Worst& worst, const std::vector<HeadRun>& a, const Run& b);

}  // namespace samestate::laws_detail
