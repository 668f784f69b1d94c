#include <algorithm>

#include "oracles/proofs/identities/groups.h"
#include "reference/error.h"
#include "reference/scalars.h"

namespace samestate {
namespace {

const std::vector<Identity>& table() {
  static const std::vector<Identity> rows = [] {
    std::vector<Identity> all;
    for (const auto group :
         {recurrent_family_identities::rows, test_time_training_identities::rows, retnet_identities::rows,
          gated_delta_net_identities::rows, gated_delta_step_identities::rows, norm_identities::rows,
          short_convolution_identities::rows, softmax_attention_identities::rows,
          latent_attention_identities::rows, mixture_of_experts_identities::rows,
          selective_scan_identities::rows, dendritic_attention_identities::rows,
          dendritic_invariant_identities::rows, backward_identities::rows}) {
      for (const Identity& identity : group()) all.push_back(identity);
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Identity& a, const Identity& b) { return a.id < b.id; });
    return all;
  }();
  return rows;
}

/// Half a unit in the last place of the precision with which a residual was computed, relative to 1.
double unit(bool fifty_digits) {
  return fifty_digits ? static_cast<double>(std::numeric_limits<Decimal50>::epsilon())
                      : std::numeric_limits<double>::epsilon();
}

bool as_expected(Expectation expectation, double residual, double unit) {
  switch (expectation) {
    case Expectation::exact:
      return residual == 0.0;
    case Expectation::differs:
      return residual >= kVisibleDifference;
    case Expectation::equal:
    case Expectation::holds:
      return residual <= kIdentityUlps * unit;
  }
  return false;
}

}  // namespace

std::span<const Identity> identities() { return table(); }

const Identity& identity_named(std::string_view name) {
  const Identity* found = nullptr;
  std::string known;
  for (const Identity& row : table()) {
    if (row.name == name) return row;
    if (row.id == name) {
      if (found) throw Error("identity " + std::string(name) + ": several have this id; name one");
      found = &row;
    }
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  if (!found) throw Error("identity " + std::string(name) + ": no such identity; known: " + known);
  return *found;
}

IdentityResult evaluate(const Identity& identity, std::uint64_t seed) {
  IdentityResult result;
  result.in_float64 = identity.residual.in_float64(seed);
  result.in_50_digits = identity.residual.in_50_digits(seed);
  result.passed = as_expected(identity.expectation, result.in_float64, unit(false)) &&
                  as_expected(identity.expectation, result.in_50_digits, unit(true));
  return result;
}

}  // namespace samestate
