#pragma once

#include <functional>
#include <vector>

#include "oracles/bounds/running_error.h"
#include "oracles/systems/operator.h"

/// The part of a router's choice that is certain if its scores carry errors (EQUATIONS 8.2).
namespace samestate {

enum class Chosen {
  out,  ///< every correct kernel leaves it out
  in,   ///< every correct kernel selects it
  open  ///< a correct kernel may do either
};

/// The choice of the K largest of N logits by a kernel that may compare logits or the probabilities made from
/// them. One is certainly before another if both gaps exceed the sum of the errors. Equal logits without any
/// error (a zero token) are computed from the same numbers in the same way, and so are their probabilities:
/// the tie rule decides, lower index first. Any other tie is open. logits, probabilities: [1, N].
[[nodiscard]] std::vector<Chosen> certain_choice(const Matrix<Running>& logits,
                                                 const Matrix<Running>& probabilities, Index K);

/// Renormalised weights of all N experts, 0 if not selected, valid for any choice that `choice` leaves open:
/// open experts may have 0 or their weight, and the sum of the others is known as far as the open
/// probabilities are alike. probabilities: [1, N] -> [1, N].
[[nodiscard]] Matrix<Running> certain_weights(const Matrix<Running>& probabilities,
                                              const std::vector<Chosen>& choice, Index K);

/// The same if experts other than the most probable may be chosen: `exactly` are those of the exact scores,
/// which `choice` allows, and the weights are multiplied by `scaling`. The open experts share the places that
/// the certain ones leave.
[[nodiscard]] Matrix<Running> certain_weights(const Matrix<Running>& probabilities,
                                              const std::vector<Chosen>& choice,
                                              const std::vector<bool>& exactly,
                                              const Running& scaling = Running(1.0));

/// True if nothing is open.
[[nodiscard]] bool decided(const std::vector<Chosen>& choice);

/// The sets of K experts that a correct kernel may choose.
class Choices {
 public:
  Choices(const std::vector<Chosen>& choice, Index K);

  /// Their number, at most kMostChoices.
  [[nodiscard]] Index count() const;
  [[nodiscard]] Index places() const { return places_ + std::ssize(in_); }
  /// The experts that occur in at least one of them.
  [[nodiscard]] std::vector<Index> possible() const;
  /// Calls `take` with each of them.
  void each(const std::function<void(const std::vector<Index>&)>& take) const;

  static constexpr Index kMostChoices = 1 << 20;

 private:
  std::vector<Index> in_, open_;
  Index places_;  ///< number of places that the open ones share
};

/// True if a correct kernel may choose exactly these: all that are in, none that is out. chosen: [1, K],
/// distinct.
[[nodiscard]] bool allows(const std::vector<Chosen>& choice, const Matrix<Index>& chosen);

/// The choice of a token, read from the weights [1, N] that a kernel wrote (0 for experts that are not
/// chosen), in descending order. Rows of -1 [1, K] if `choice` leaves nothing open, there are not K weights,
/// or `choice` does not allow them.
[[nodiscard]] Matrix<Index> choice_of_weights(const std::vector<Chosen>& choice,
                                              const Matrix<double>& weights, Index K);

/// `own` [tokens, K], with the rows replaced for which the call has a choice.
[[nodiscard]] Matrix<Index> as_chosen(const Call& call, Matrix<Index> own);

/// True if the call has a choice for that token.
[[nodiscard]] bool is_chosen(const Call& call, Index token);

}  // namespace samestate
