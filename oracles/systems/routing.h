#pragma once

#include <functional>
#include <vector>

#include "oracles/bounds/running_error.h"
#include "oracles/systems/operator.h"

/// What is certain of a router's choice when its scores carry errors (EQUATIONS 8.2).
namespace samestate {

enum class Chosen {
  out,  ///< every correct kernel leaves it out
  in,   ///< every correct kernel selects it
  open  ///< a correct kernel may do either
};

/// The choice of the K largest of N logits by a kernel that may compare logits or the probabilities made of
/// them. One is certainly before another where both gaps exceed the sum of the errors. Equal logits without
/// any error (a zero token) are made of the same numbers in the same way, so are their probabilities: the tie
/// rule decides, lower index first. Any other tie is open. logits, probabilities: [1, N].
[[nodiscard]] std::vector<Chosen> certain_choice(const Matrix<Running>& logits,
                                                 const Matrix<Running>& probabilities, Index K);

/// Renormalised weights of all N experts, 0 where not selected, after any choice that `choice` leaves open:
/// those open may be 0 or have their weight, the sum of the others is known as far as the open probabilities
/// are alike. probabilities: [1, N] -> [1, N].
[[nodiscard]] Matrix<Running> certain_weights(const Matrix<Running>& probabilities,
                                              const std::vector<Chosen>& choice, Index K);

/// The same where others than the most probable are chosen: `exactly`, those of the exact scores, which `choice` allows, and the
/// weights are multiplied by `scaling`. Open ones may be any of as many places as the certain ones leave.
[[nodiscard]] Matrix<Running> certain_weights(const Matrix<Running>& probabilities,
                                              const std::vector<Chosen>& choice,
                                              const std::vector<bool>& exactly,
                                              const Running& scaling = Running(1.0));

/// Whether nothing is open.
[[nodiscard]] bool decided(const std::vector<Chosen>& choice);

/// The choices of K that a correct kernel may make.
class Choices {
 public:
  Choices(const std::vector<Chosen>& choice, Index K);

  /// How many there are; at most kMostChoices.
  [[nodiscard]] Index count() const;
  [[nodiscard]] Index places() const { return places_ + std::ssize(in_); }
  /// Experts that one of them has.
  [[nodiscard]] std::vector<Index> possible() const;
  /// Calls it with each of them.
  void each(const std::function<void(const std::vector<Index>&)>& take) const;

  static constexpr Index kMostChoices = 1 << 20;

 private:
  std::vector<Index> in_, open_;
  Index places_;  ///< that the open ones share
};

/// Whether a correct kernel may choose just these: all that are in, none that is out. chosen: [1, K], distinct.
[[nodiscard]] bool allows(const std::vector<Chosen>& choice, const Matrix<Index>& chosen);

/// The choice of a token whose weights [1, N] a kernel wrote, the others 0, in descending order: what `choice` allows and leaves
/// open. Rows of -1 [1, K] where it leaves nothing open, there are not K weights, or it does not allow them.
[[nodiscard]] Matrix<Index> choice_of_weights(const std::vector<Chosen>& choice,
                                              const Matrix<double>& weights, Index K);

/// `own` [tokens, K] but for the rows that the call has a choice for.
[[nodiscard]] Matrix<Index> as_chosen(const Call& call, Matrix<Index> own);

/// Whether the call has a choice for that token.
[[nodiscard]] bool is_chosen(const Call& call, Index token);

}  // namespace samestate
