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

/// The limits of a norm's epsilon; above the upper one no norm can be meant.
inline constexpr double kLeastEpsilon = 1e-12, kLargestEpsilon = 1e-2;

/// How a kernel's call differs from the canonical one; each member is a row of conventions().
struct Conventions {
  enum class Heads { both, interleaved, tiled, repeated };
  enum class Norm { argument, outside, in_kernel };
  enum class Scale { argument, dk, dv, folded };
  enum class Tokens { BTHD, BHTD, THD };
  enum class State { optional, required, in_place };
  /// The slot of a request without a state in a pool: -1; or 0, a row before those of the pool; or none, so
  /// that it gets a row of its own whose results are not judged.
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
  NullSlot null_slot = NullSlot::minus_one;               ///< for systems with a pool
  Dtype offsets = Dtype::int64;                           ///< the type of cu_seqlens
  std::map<std::string, Dtype, std::less<>> dtypes = {};  ///< by tensor, if they differ from the contract's

  bool operator==(const Conventions&) const = default;
};

/// One value of a convention in a declaration.
struct ConventionValue {
  std::string_view word;
  std::string_view gives;  ///< what the subject receives if it declares this value
  int value = 0;           ///< the value of the member, as a number
};

/// Which declarations have a convention: those of kernels of the recurrent family; these and those of systems
/// of named tensors that accept packed batches; only those of systems with a pool of slots; or those of every
/// kernel.
enum class ConventionOf { family, packed, pool, every };

/// A convention: its key in a declaration, its values, and the member that they set. Python's table
/// (python/samestate/subject.py), the page docs/subjects.md, and the proposals of `diagnose` are tested
/// against these rows.
struct Convention {
  std::string_view key;
  ConventionOf of = ConventionOf::family;
  std::string_view about;
  std::vector<ConventionValue>
      values;  ///< the default comes first; for a number or a table it is the only word
  void (*set)(Conventions&, int value) = nullptr;  ///< null if the value is not a word
};

/// The table, in the order of docs/subjects.md.
[[nodiscard]] std::span<const Convention> conventions();

/// Null if there is no such key.
[[nodiscard]] const Convention* convention_named(std::string_view key);

/// Which declarations have it: for example "the recurrent family".
[[nodiscard]] std::string_view name_of(ConventionOf of);

}  // namespace samestate
