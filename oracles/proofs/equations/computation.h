#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/proofs/equations/equation.h"
#include "oracles/proofs/identities/draw.h"

/// The computation of a row of the ledger: a chain of comparisons that ends in a finding. Each comparison
/// adds a phrase with its numbers; if one does not hold, the finding is `failed` whatever the others say.
namespace samestate {

class Computation {
 public:
  /// Exact counts: `computed` comes from the cost model or the reference, `claimed` from the document.
  Computation& count(std::string_view what, std::int64_t computed, std::int64_t claimed);
  /// A shape, extent by extent.
  Computation& shape(std::string_view what, const std::vector<std::int64_t>& computed,
                     const std::vector<std::int64_t>& claimed);
  /// A number that is printed with `decimals` digits after the point: it must be the computed one, rounded.
  Computation& rounds_to(std::string_view what, double computed, double claimed, int decimals);
  /// Two values that are equal up to rounding: at most kIdentityUlps units apart, relative to the second.
  Computation& equal(std::string_view what, double computed, double expected);
  /// The same for two matrices or vectors.
  template <class A, class B>
  Computation& agree(std::string_view what, const A& a, const B& b) {
    return equal_to_rounding(what, relative_difference(a, b));
  }
  /// Two matrices or vectors, bit for bit.
  template <class A, class B>
  Computation& identical(std::string_view what, const A& a, const B& b) {
    return relation(std::string(what) + ": bit for bit", relative_difference(a, b) == 0.0);
  }
  /// Anything else that must be true.
  Computation& relation(std::string_view what, bool is_true);
  /// An identity of oracles/proofs/identities/, given by its unique name: it must hold in float64 and in 50
  /// digits.
  Computation& identity(std::string_view name);

  /// The printed and the correct form, which must differ visibly (by kVisibleDifference, relative).
  Computation& contrast(std::string_view what, double printed, double correct);
  Computation& contrast(std::string_view what, const std::string& printed, const std::string& correct);
  template <class A, class B>
  Computation& contrast_all(std::string_view what, const A& printed, const B& correct) {
    return differ_visibly(what, relative_difference(printed, correct));
  }

  /// Adds a reason or a convention, without a comparison.
  Computation& remark(std::string_view text);

  [[nodiscard]] Finding holds() const;
  /// The finding; failed unless a contrast was shown.
  [[nodiscard]] Finding erratum() const;
  [[nodiscard]] Finding resolved() const;
  /// The finding; `reason` says why the statement itself cannot be computed.
  [[nodiscard]] Finding untestable(std::string_view reason) const;

 private:
  Computation& equal_to_rounding(std::string_view what, double residual);
  Computation& differ_visibly(std::string_view what, double difference);
  Computation& note(bool passed, std::string phrase);
  [[nodiscard]] Finding finding(Finding::Outcome outcome) const;

  std::vector<std::string> phrases_;
  std::vector<std::string> failures_;
  int checks_ = 0;
  int contrasts_ = 0;
  double residual_ = 0.0;
};

/// "[2, 1024, 64]".
[[nodiscard]] std::string text_of(const std::vector<std::int64_t>& shape);

}  // namespace samestate
