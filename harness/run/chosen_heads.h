#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "oracles/judge_policy.h"
#include "oracles/verdict.h"
#include "reference/sequence.h"

/// Which heads of a case of many are held to their tolerance. A tolerance takes tens of times what float64 takes, and heads
/// know nothing of each other: all are evaluated in float64, and those are held that an index fault meets first (the ends and
/// block edges of both axes), some that the seed draws, and those whose outputs lie farthest from float64.
namespace samestate {

/// 0, 1, n - 1, 2^k - 1 and 2^k, and to 1024, what a block of threads has, multiples of 64, those of them below n.
[[nodiscard]] std::vector<Index> block_edges(Index n);

class ChosenHeads {
 public:
  /// At least `most` heads are chosen, and of a case that has no more all (System::work counts on it). Of an operator `heads` is 1:
  /// its heads may meet. Draws take sequences that `has_tokens`. Where a head takes so long that `most` is less than
  /// JudgePolicy::held_heads, the corners are chosen and no edges of blocks.
  ChosenHeads(Index sequences, Index heads, std::uint64_t seed,
              const std::function<bool(Index sequence)>& has_tokens, const JudgePolicy& policy, Index most);

  [[nodiscard]] bool all() const { return count_ == std::ssize(taken_); }
  [[nodiscard]] bool takes(Index sequence, Index head) const {
    return taken_[static_cast<std::size_t>(sequence * heads_ + head)];
  }
  [[nodiscard]] Index count() const { return count_; }
  /// One that is held too.
  void add(Index sequence, Index head);
  /// "0:0,3 1:1" is head 0 and 3 of sequence 0 and head 1 of sequence 1; of one head the sequences, "0 1 255".
  [[nodiscard]] std::string text() const;
  /// Writes how many and which of how many into a judgement; nothing where it is all. `plain`: how many of the others float64
  /// looked at.
  void note(Judgement& judgement, Index plain) const;
  [[nodiscard]] Index others() const { return std::ssize(taken_) - count_; }

 private:
  Index heads_;
  std::vector<bool> taken_;
  Index count_ = 0;
};

/// How far outputs lie from float64, each as a share of their size; infinite where one is no number.
struct Distance {
  double all = 0.0;  ///< root of the squares of all errors, the largest output's
  double row = 0.0;  ///< largest row's, of the RMS row

  void add(const Matrix<double>& exact, const Matrix<double>& actual);
};

/// Of heads that are told one after another, the few that are farthest off by each measure.
class Farthest {
 public:
  /// So many by each measure (JudgePolicy::farthest).
  explicit Farthest(Index each)
      : places_{std::vector<Place>(static_cast<std::size_t>(each)),
                std::vector<Place>(static_cast<std::size_t>(each))} {}
  void add(Index head, const Distance& distance);
  /// The farthest by each measure first.
  [[nodiscard]] std::vector<Index> heads() const;

 private:
  struct Place {
    double distance = 0.0;
    Index head = -1;
  };
  std::array<std::vector<Place>, 2> places_;
};

}  // namespace samestate
