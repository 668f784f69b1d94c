#include "oracles/proofs/equations/computation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "oracles/proofs/identities/identity.h"

namespace samestate {
namespace {

double relative(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<double>::infinity();
  if (a == b) return 0.0;
  return std::abs(a - b) / (b != 0.0 ? std::abs(b) : 1.0);
}

}  // namespace

std::string text_of(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

Computation& Computation::note(bool passed, std::string phrase) {
  ++checks_;
  (passed ? phrases_ : failures_).push_back(std::move(phrase));
  return *this;
}

Computation& Computation::count(std::string_view what, std::int64_t computed, std::int64_t claimed) {
  const bool passed = computed == claimed;
  return note(passed, passed ? fmt::format("{} = {}", what, computed)
                             : fmt::format("{} = {}, not {}", what, computed, claimed));
}

Computation& Computation::shape(std::string_view what, const std::vector<std::int64_t>& computed,
                                const std::vector<std::int64_t>& claimed) {
  const bool passed = computed == claimed;
  return note(passed, passed ? fmt::format("{} {}", what, text_of(computed))
                             : fmt::format("{} {}, not {}", what, text_of(computed), text_of(claimed)));
}

Computation& Computation::rounds_to(std::string_view what, double computed, double claimed, int decimals) {
  // Half a unit of the last printed digit, and the rounding of the computation itself.
  const double half = 0.5 * std::pow(10.0, -decimals) + 4e-16 * std::abs(claimed);
  const bool passed = std::abs(computed - claimed) <= half;
  return note(passed, fmt::format("{} = {:.7g}, {} {:.{}f}", what, computed,
                                  passed ? "rounded" : "which does not round to", claimed,
                                  decimals > 0 ? decimals : 0));
}

Computation& Computation::equal(std::string_view what, double computed, double expected) {
  const double residual = relative(computed, expected);
  const bool passed = residual <= kIdentityUlps * std::numeric_limits<double>::epsilon();
  if (residual > residual_) residual_ = residual;
  return note(passed, passed ? fmt::format("{} = {:.7g}", what, expected)
                             : fmt::format("{} = {:.17g}, not {:.17g}", what, computed, expected));
}

Computation& Computation::equal_to_rounding(std::string_view what, double residual) {
  const bool passed = residual <= kIdentityUlps * std::numeric_limits<double>::epsilon();
  if (residual > residual_) residual_ = residual;
  return note(passed, passed ? fmt::format("{}: equal to rounding", what)
                             : fmt::format("{}: differ by {:.2g}, not equal", what, residual));
}

Computation& Computation::relation(std::string_view what, bool is_true) {
  return note(is_true, is_true ? std::string(what) : fmt::format("not so: {}", what));
}

Computation& Computation::identity(std::string_view name) {
  const Identity& row = identity_named(name);
  const IdentityResult result = samestate::evaluate(row);
  const bool negative = row.expectation == Expectation::differs;
  if (!negative && result.in_float64 > residual_) residual_ = result.in_float64;
  if (result.passed) {
    return note(true, fmt::format("{} {}: {}", row.id, row.name,
                                  negative ? "differs, as it must" : "holds in float64 and 50 digits"));
  }
  return note(false, fmt::format("{} {}: residual {:.2g} in float64, {:.2g} in 50 digits", row.id, row.name,
                                 result.in_float64, result.in_50_digits));
}

Computation& Computation::contrast(std::string_view what, double printed, double correct) {
  ++contrasts_;
  const bool passed = !(relative(printed, correct) < kVisibleDifference);
  return note(passed, passed ? fmt::format("{}: printed {:.8g}, correct {:.8g}", what, printed, correct)
                             : fmt::format("{}: printed and correct are both {:.7g}", what, correct));
}

Computation& Computation::contrast(std::string_view what, const std::string& printed,
                                   const std::string& correct) {
  ++contrasts_;
  const bool passed = printed != correct;
  return note(passed, passed ? fmt::format("{}: printed {}, correct {}", what, printed, correct)
                             : fmt::format("{}: printed and correct are both {}", what, correct));
}

Computation& Computation::differ_visibly(std::string_view what, double difference) {
  ++contrasts_;
  const bool passed = difference >= kVisibleDifference;
  return note(passed, passed ? fmt::format("{}: differ by {:.2g} relative", what, difference)
                             : fmt::format("{}: differ by {:.2g} only", what, difference));
}

Computation& Computation::remark(std::string_view text) {
  phrases_.emplace_back(text);
  return *this;
}

Finding Computation::finding(Finding::Outcome outcome) const {
  std::vector<std::string> failures = failures_;
  if (checks_ == 0 && outcome != Finding::Outcome::untestable) failures.emplace_back("nothing was computed");
  if (contrasts_ == 0 && outcome == Finding::Outcome::erratum_demonstrated) {
    failures.emplace_back("no printed form was contrasted with a correct one");
  }
  Finding result{outcome, fmt::format("{}", fmt::join(phrases_, "; ")), checks_, residual_};
  if (!failures.empty()) {
    result.outcome = Finding::Outcome::failed;
    result.computed = fmt::format("{}", fmt::join(failures, "; "));
  }
  return result;
}

Finding Computation::holds() const { return finding(Finding::Outcome::holds); }
Finding Computation::erratum() const { return finding(Finding::Outcome::erratum_demonstrated); }
Finding Computation::resolved() const { return finding(Finding::Outcome::resolved); }

Finding Computation::untestable(std::string_view reason) const {
  Computation all = *this;
  all.phrases_.insert(all.phrases_.begin(), std::string(reason));
  return all.finding(Finding::Outcome::untestable);
}

}  // namespace samestate
