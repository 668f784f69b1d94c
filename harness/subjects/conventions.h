#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "optimized/call_tensor.h"
#include "oracles/given.h"
#include "reference/contract.h"

namespace samestate {

/// The limits of a norm's epsilon; above the upper one no norm is meant.
inline constexpr double kLeastEpsilon = 1e-12, kLargestEpsilon = 1e-2;

/// The ways in which a kernel's call differs from the canonical one; each member is a row of conventions().
struct Conventions {
  enum class Heads { both, interleaved, tiled, repeated };
  enum class Norm { argument, outside, in_kernel };
  enum class Scale { argument, dk, dv, folded };
  enum class Tokens { BTHD, BHTD, THD };
  enum class State { optional, required, in_place };
  /// Which slot of a pool a request without a state has: -1; 0, a row in front of those of the pool; or none, so that it is
  /// given a row of its own, and what it makes of that is not judged.
  enum class NullSlot { minus_one, zero, none };
  Given::Decay decay = Given::Decay::ln;
  Given::Strength beta = Given::Strength::beta;
  bool values_first = false;  ///< states [N, Hv, dv, dk]
  Heads heads = Heads::both;
  Norm l2norm = Norm::argument;
  Given::NormPlace norm_place = Given::NormPlace::inside;
  double norm_epsilon = Given::kNormEpsilon;
  Scale scale = Scale::argument;
  Tokens layout = Tokens::BTHD;
  State state = State::optional;
  NullSlot null_slot = NullSlot::minus_one;               ///< of systems with a pool
  Dtype offsets = Dtype::int64;                           ///< of cu_seqlens
  std::map<std::string, Dtype, std::less<>> dtypes = {};  ///< by tensor, where they are not the contract's

  bool operator==(const Conventions&) const = default;
};

/// One value of a convention in a declaration.
struct ConventionValue {
  std::string_view word;
  std::string_view gives;  ///< what the subject is given under it
  int value = 0;           ///< of the member, as a number
};

/// Whose declarations have a convention: kernels of the recurrent family, those of systems of named tensors too that take packed
/// batches, those of systems with a pool of slots alone, or every kernel.
enum class ConventionOf { family, packed, pool, every };

/// A convention: its key in a declaration, its values, and the member that they set. Python's table (python/samestate/subject.py),
/// the page docs/lookup/subjects.md, and what `diagnose` proposes are tested against these rows.
struct Convention {
  std::string_view key;
  ConventionOf of = ConventionOf::family;
  std::string_view about;
  std::vector<ConventionValue>
      values;  ///< the default first, which is the only word of a number and of a table
  void (*set)(Conventions&, int value) = nullptr;  ///< null: the value is no word
};

/// The table, in the order of docs/lookup/subjects.md.
[[nodiscard]] std::span<const Convention> conventions();

/// Null where there is none of that key.
[[nodiscard]] const Convention* convention_named(std::string_view key);

/// "the recurrent family": whose declarations have it.
[[nodiscard]] std::string_view name_of(ConventionOf of);

}  // namespace samestate
