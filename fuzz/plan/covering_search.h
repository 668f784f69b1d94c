#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "fuzz/plan/covering.h"
#include "fuzz/plan/covering_tries.h"
#include "fuzz/plan/uses.h"
#include "harness/cases/counter.h"

namespace samestate {

/// The search for a covering set: what is met, the cases so far, and the tries for what is missing. cover() says in which order the
/// public methods are called.
class CoveringSearch {
 public:
  CoveringSearch(const KernelRow& kernel, const std::vector<Factor>& factors, const CoveringOptions& options);

  /// Counts what a case has that the plan has anyway.
  void given(const Case& c);
  /// Meets each boundary of each size, in two sequences where that costs little: what goes wrong with one value may do so across
  /// them alone.
  void values();
  /// Meets each combination of levels that a case can have.
  void combinations();
  /// Draws cases for sizes that hang together (groups of a width, pairs of a head's columns) where no try fitted. Ends where many
  /// draws show nothing new.
  void chance();
  /// Meets each of these pairs again, as kAgain has it.
  void again(std::span<const std::int64_t> pairs, int round);
  /// Leaves out the cases that nothing needs: what came later has all that they have. The dearest first; what a case that
  /// stays has besides what needs it is made as small as that allows, or gives way to cases that cost less together.
  void thin(std::span<const Case> given);
  [[nodiscard]] Covering take() { return {std::move(cases_), met_.met(), std::move(missing_)}; }

 private:
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  [[nodiscard]] Exposure shown(std::size_t f, const Case& c) const {
    return exposure(factors_[f], c, start_);
  }
  [[nodiscard]] Dice dice() const {
    return Dice{[this](std::int64_t n) { return n <= 1 ? 0 : counter_.below({draws_++, 0, 0, 0}, n); }};
  }

  // covering.cpp keeps account of what the cases so far have met.
  void keep(Case c);
  void forget_values(const Case& c);
  /// Why the first pair of the combination that is missing is missing; none where all are met.
  [[nodiscard]] Missing missing_pair(const std::vector<int>& wanted) const;
  [[nodiscard]] Missing combination(const std::vector<int>& wanted);
  /// Keeps a case with this value of a size that shows all of it; where that costs too much, or the kernel takes none, one that
  /// shows less, unless there is one already.
  void value_of(std::size_t f, Index value);

  // covering_tries.cpp makes one try.
  /// Leaves what makes a case show little as the start has it.
  void leave_plain(std::vector<int>& levels) const;
  /// The level of each factor that is free: the one with most that is new, ties by chance.
  [[nodiscard]] std::vector<int> choose(std::vector<int> levels, Try::Free free, const Dice& dice) const;
  /// Half of the factors that are free at a level by chance, but for a law, which shows nothing of the others.
  [[nodiscard]] std::vector<int> draw(std::vector<int> levels, const Dice& dice) const;
  /// A case of these levels, -1 for those that are free, and of one value of a size; with it come values of other sizes
  /// that no case has yet, as far as the work allows.
  [[nodiscard]] std::optional<Case> attempt(const std::vector<int>& wanted, const std::vector<int>& levels,
                                            const Factor* size, Index value, bool least, double most,
                                            const Dice& dice, Failure& why) const;
  /// Sizes that hang together (pairs of columns within a head, experts of a token within all): the least of another size,
  /// a free one, that makes them possible. It is looked for where little else is asked for (limit); the other tries for the
  /// same combination take what was found there.
  void make_possible(Case& c, const std::vector<bool>& kept, bool looks, const auto& settled,
                     const auto& has_all) const;
  /// The work of a case with these levels, or this value, and as little else as there can be: where it is more than most
  /// cases', a case may take a little more than that.
  [[nodiscard]] double limit(const std::vector<int>& wanted, const Factor* size, Index value,
                             const Dice& dice) const;

  // covering_thin.cpp leaves out what nothing needs.
  [[nodiscard]] std::vector<std::size_t> dearest_first() const;
  void drop(Uses& uses);
  /// The same needs with less work, as far as smaller sizes of the other factors do it.
  void make_lighter(Case& c, const Needs& needs, double work) const;
  /// Cases for each of the needs by itself, which cost less than this one; none where they do not.
  [[nodiscard]] std::vector<Case> apart(const Case& c, const Needs& needs) const;

  const KernelRow& kernel_;
  Case start_;  ///< where each attempt begins
  const std::vector<Factor>& factors_;
  CoveringOptions options_;
  Combinations met_;
  Combinations pairs_;  ///< only their numbers
  std::vector<Missing> missing_;
  Counter counter_;
  mutable std::int64_t draws_ = 0;
  mutable std::optional<Fix> fix_;       ///< of the combination or value that is tried
  std::vector<std::set<Index>> values_;  ///< of each size, those of which no case shows all yet
  std::vector<std::set<Index>> bare_;    ///< those of which none shows most
  std::vector<std::set<Index>> unmet_;   ///< those that no case has
  std::vector<Case> cases_;
};

}  // namespace samestate
