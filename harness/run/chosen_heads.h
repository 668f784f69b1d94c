#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracles/judge_policy.h"
#include "oracles/verdict.h"
#include "reference/sequence.h"

/// Chooses which of many heads of a case are compared with their tolerance. Computing a tolerance takes tens
/// of times as long as float64, and heads are independent: all are evaluated in float64, and a tolerance is
/// computed for those that an index error affects first (the ends and block edges of both axes), for some
/// that the seed draws, and for those whose outputs are farthest from float64.
namespace samestate {

/// 0, 1, n - 1, 2^k - 1 and 2^k, and multiples of 64 up to 1024, the size of a thread block; those below n.
[[nodiscard]] std::vector<Index> block_edges(Index n);

class ChosenHeads {
 public:
  /// Chooses at least `most` heads, and all if there are no more (System::work relies on that). For an
  /// operator `heads` is 1, because its heads may interact. Draws only use sequences for which `has_tokens`
  /// is true. If heads are so expensive that `most` is below JudgePolicy::held_heads, the corners are chosen
  /// and no block edges.
  ChosenHeads(Index sequences, Index heads, std::uint64_t seed,
              const std::function<bool(Index sequence)>& has_tokens, const JudgePolicy& policy, Index most);

  [[nodiscard]] bool all() const { return count_ == std::ssize(taken_); }
  [[nodiscard]] bool takes(Index sequence, Index head) const {
    return taken_[static_cast<std::size_t>(sequence * heads_ + head)];
  }
  [[nodiscard]] Index count() const { return count_; }
  /// Adds one more.
  void add(Index sequence, Index head);
  /// "0:0,3 1:1" means heads 0 and 3 of sequence 0 and head 1 of sequence 1; with one head per sequence only
  /// the sequences, "0 1 255".
  [[nodiscard]] std::string text() const;
  /// Writes into a judgement how many, which, and out of how many; nothing if it is all. `plain` is the
  /// number of others that float64 looked at.
  void note(Judgement& judgement, Index plain) const;
  [[nodiscard]] Index others() const { return std::ssize(taken_) - count_; }

 private:
  Index heads_;
  std::vector<bool> taken_;
  Index count_ = 0;
};

/// How far outputs are from float64, each relative to its size; infinite if one is not finite.
struct Distance {
  double all = 0.0;  ///< root of the sum of squares of all errors, for the worst output
  double row = 0.0;  ///< the worst row, relative to the RMS row

  void add(const Matrix<double>& exact, const Matrix<double>& actual);
};

/// Among heads that are reported one after another, keeps the few that are farthest away by each measure.
class Farthest {
 public:
  /// Keeps this many by each measure (JudgePolicy::farthest).
  explicit Farthest(Index each)
      : places_{std::vector<Place>(static_cast<std::size_t>(each)),
                std::vector<Place>(static_cast<std::size_t>(each))} {}
  void add(Index head, const Distance& distance);
  /// The farthest ones, the first by each measure first.
  [[nodiscard]] std::vector<Index> heads() const;

 private:
  struct Place {
    double distance = 0.0;
    Index head = -1;
  };
  std::array<std::vector<Place>, 2> places_;
};

}  // namespace samestate
