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

/// The search for a covering set: what is covered, the cases so far, and the tries for what is missing.
/// cover() shows the order in which the public methods are called.
class CoveringSearch {
 public:
  CoveringSearch(const KernelRow& kernel, const std::vector<Factor>& factors, const CoveringOptions& options);

  /// Counts what a case covers that the plan contains anyway.
  void given(const Case& c);
  /// Covers each boundary value of each size, in two sequences if that is cheap, because an error with one
  /// value may occur only across sequences.
  void values();
  /// Covers each combination of levels that a case can have.
  void combinations();
  /// Draws cases for sizes that depend on each other (groups of a width, pairs of a head's columns) for which
  /// no try succeeded. Ends when many draws have added nothing.
  void chance();
  /// Covers each of these pairs again, as kAgain says.
  void again(std::span<const std::int64_t> pairs, int round);
  /// Leaves out the cases that are not needed, because later ones cover everything that they do, the most
  /// expensive first. A case that is needed is reduced to what is needed from it, or replaced by cases that
  /// are cheaper together.
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

  // covering.cpp keeps track of what the cases so far cover.
  void keep(Case c);
  void forget_values(const Case& c);
  /// Why the first missing pair of the combination is missing; Missing::none if no pair is.
  [[nodiscard]] Missing missing_pair(const std::vector<int>& wanted) const;
  [[nodiscard]] Missing combination(const std::vector<int>& wanted);
  /// Keeps a case with this value of a size that shows the value fully; if that is too expensive, or the
  /// kernel does not support it, one that shows less of it, unless there is one already.
  void value_of(std::size_t f, Index value);

  // covering_tries.cpp makes one try.
  /// Leaves factors that make a case show little as they are at the start.
  void leave_plain(std::vector<int>& levels) const;
  /// Chooses the level of each free factor: the one that adds the most, with ties broken at random.
  [[nodiscard]] std::vector<int> choose(std::vector<int> levels, Try::Free free, const Dice& dice) const;
  /// Gives half of the free factors a random level, except for a law, which shows nothing about the others.
  [[nodiscard]] std::vector<int> draw(std::vector<int> levels, const Dice& dice) const;
  /// A case with these levels, -1 for those that are free, and with one value of a size; values of other
  /// sizes that no case has yet are added as far as the work allows.
  [[nodiscard]] std::optional<Case> attempt(const std::vector<int>& wanted, const std::vector<int>& levels,
                                            const Factor* size, Index value, bool least, double most,
                                            const Dice& dice, Failure& why) const;
  /// For sizes that depend on each other (pairs of columns within a head, experts of a token within all):
  /// sets another, free size to the smallest value that makes them possible. It is searched for in the try
  /// that asks for little else (limit); the other tries for the same combination reuse the result.
  void make_possible(Case& c, const std::vector<bool>& kept, bool looks, const auto& settled,
                     const auto& has_all) const;
  /// The limit on the work of a case with these levels, or this value: if even the simplest such case takes
  /// more work than most cases may, a little more than that.
  [[nodiscard]] double limit(const std::vector<int>& wanted, const Factor* size, Index value,
                             const Dice& dice) const;

  // covering_thin.cpp leaves out what is not needed.
  [[nodiscard]] std::vector<std::size_t> dearest_first() const;
  void drop(Uses& uses);
  /// Covers the same needs with less work, as far as smaller sizes of the other factors allow.
  void make_lighter(Case& c, const Needs& needs, double work) const;
  /// Cases that cover each of the needs separately and are cheaper than this one; empty if there are none.
  [[nodiscard]] std::vector<Case> apart(const Case& c, const Needs& needs) const;

  const KernelRow& kernel_;
  Case start_;  ///< the starting point of each attempt
  const std::vector<Factor>& factors_;
  CoveringOptions options_;
  Combinations met_;
  Combinations pairs_;  ///< used only for their numbering
  std::vector<Missing> missing_;
  Counter counter_;
  mutable std::int64_t draws_ = 0;
  mutable std::optional<Fix> fix_;       ///< for the combination or value that is being tried
  std::vector<std::set<Index>> values_;  ///< for each size, the values that no case shows fully yet
  std::vector<std::set<Index>> bare_;    ///< values that no case shows mostly
  std::vector<std::set<Index>> unmet_;   ///< values that no case has
  std::vector<Case> cases_;
};

}  // namespace samestate
