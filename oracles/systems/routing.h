#pragma once

#include <vector>

#include "oracles/bounds/running_error.h"
#include "reference/sequence.h"

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

}  // namespace samestate
