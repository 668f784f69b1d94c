#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/verdict.h"
#include "reference/sequence.h"

namespace samestate {

struct LawSubject;
struct TensorSubject;

/// Properties of a system on which laws, plans and declarations depend; its constructor takes them from its
/// row in oracles/systems/.
enum class Property {
  streams,     ///< tokens may be divided over several calls, and none depends on a later one
  carries,     ///< a call reads what earlier calls left: a state, or the keys and values of a cache
  slots,       ///< a request's state is in a slot of a pool
  token_wise,  ///< no token depends on another
  packs,       ///< sequences of different lengths may be packed end to end in one call
  chunks,  ///< a call says if tokens come one by one or in chunks, how long these are, and over which ranks
           ///< they are divided
  key_heads,        ///< a key head serves one value head or several
  linear,           ///< o and the final state are linear in v and the initial state
  decay,            ///< reads the decay g
  delta,            ///< reads beta, and subtracts what the state holds for a key before it writes
  gradients,        ///< gives the gradients of an equation's inputs for the cotangents of its outputs
  later_cotangents  ///< gradients of a token come from the cotangents d.o of that and later tokens
};

/// A set of properties.
class Properties {
 public:
  constexpr Properties() = default;
  constexpr Properties(Property one) : bits_(1U << static_cast<unsigned>(one)) {}
  [[nodiscard]] constexpr Properties operator|(Properties other) const {
    return Properties(bits_ | other.bits_);
  }
  [[nodiscard]] constexpr Properties without(Property one) const {
    return Properties(bits_ & ~Properties(one).bits_);
  }
  /// True if it contains all of them.
  [[nodiscard]] constexpr bool has(Properties all) const { return (bits_ & all.bits_) == all.bits_; }
  bool operator==(const Properties&) const = default;

 private:
  explicit constexpr Properties(unsigned bits) : bits_(bits) {}
  unsigned bits_ = 0;
};
[[nodiscard]] constexpr Properties operator|(Property a, Property b) { return Properties(a) | Properties(b); }

/// A property in words: `noun` completes "the system has no ..".
struct PropertyWords {
  Property property;
  std::string_view noun;
  std::string_view means;
};

/// One for each property, in their order.
[[nodiscard]] std::span<const PropertyWords> property_words();
/// The nouns of the properties that are set, in the order of the enumeration.
[[nodiscard]] std::vector<std::string_view> names_of(Properties properties);

/// A size below which a law says nothing about a case, and the reason that its vacuous verdict gives.
struct LeastOfLaw {
  std::string_view key = {};  ///< B, T, Hk or a size that the system alone has
  Index least = 0;
  std::string_view otherwise = {};
};

/// The judge of a law on one kind of call; if there is none, the law is not applied to such calls.
template <class Subject>
struct LawOn {
  Judgement (*judge)(const Subject&) = nullptr;
  std::array<LeastOfLaw, 2> least = {};  ///< no entry if it has no key
};

/// A relation between runs of one kernel that must hold whatever the values of the equations are. The runs
/// are compared within the sum of their bounds (BOUNDS 10.2), or bit for bit if the law says so. A system has
/// each law whose needs are among its properties and that has a judge for its kind of call; no system has two
/// laws of one name.
struct Law {
  /// Which calls its runs make: as the case asks, or both with and without chunks, which takes two kernels of
  /// the recurrent family.
  enum class Calls { as_asked, both, both_where_chunked };

  std::string_view name;
  std::string_view ids;  ///< ledger ids (EQUATIONS 6 and 7.7)
  std::string_view says;
  Properties needs = {};
  LawOn<LawSubject> on_heads = {};  ///< for calls of the recurrent family, by head
  LawOn<TensorSubject> on_tensors = {};
  bool initial_state = false;  ///< a case without one says nothing
  bool resumes = false;        ///< its calls continue after tokens of earlier calls, as form=decode does
  Calls calls = Calls::as_asked;
  /// Cases that plans of systems of named tensors try for this law, in the format of PlanRows::limits.
  std::array<std::string_view, 3> planned = {};  ///< empty entries are unused
};

/// The table, a row a law (harness/laws/laws.cpp).
[[nodiscard]] std::span<const Law> laws();

/// The laws for a system of the recurrent family, or of named tensors, with these properties, in the order of
/// the table.
[[nodiscard]] std::vector<const Law*> laws_on_heads(Properties has);
[[nodiscard]] std::vector<const Law*> laws_on_tensors(Properties has);

/// The systems to which a law is applied, in words: "systems of the recurrent family with delta rule".
[[nodiscard]] std::string tried_on(const Law& law);

/// The judgement of the law; vacuous, with the reason, if the case lacks what it needs, or if the law has no
/// effect on it.
[[nodiscard]] Judgement judge_law(const Law& law, const LawSubject& subject);
[[nodiscard]] Judgement judge_law(const Law& law, const TensorSubject& subject);

}  // namespace samestate
