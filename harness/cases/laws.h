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

/// Properties of a system that laws, plans and declarations ask for; its constructor takes them from its row in oracles/systems/.
enum class Property {
  streams,     ///< tokens may come in several calls, and none depends on a later one
  carries,     ///< a call reads what earlier ones left: a state, or the keys and values of a cache
  slots,       ///< a request's state lies in a slot of a pool
  token_wise,  ///< no token meets another
  packs,       ///< sequences of different lengths may lie end to end in one call
  chunks,     ///< a call says whether tokens come one by one, in chunks of which length, and over which ranks
  key_heads,  ///< a key head serves one value head or several
  linear,     ///< o and the final state are linear in v and the initial state
  decay,      ///< reads the decay g
  delta       ///< reads beta, and removes what the state holds for a key before it writes
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
  /// Returns true if all of them are among these.
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
/// The nouns of those that are there, in the order of the enumeration.
[[nodiscard]] std::vector<std::string_view> names_of(Properties properties);

/// A size under which a law says nothing of a case, and the reason that its vacuous verdict gives.
struct LeastOfLaw {
  std::string_view key = {};  ///< B, T, Hk or a size that the system alone has
  Index least = 0;
  std::string_view otherwise = {};
};

/// The judge of a law on one kind of call; without one the law is not tried on such calls.
template <class Subject>
struct LawOn {
  Judgement (*judge)(const Subject&) = nullptr;
  std::array<LeastOfLaw, 2> least = {};  ///< without a key: none
};

/// A relation between runs of one kernel that must hold whatever the equations' values are. Compared within the sum of the two
/// runs' bounds (BOUNDS 10.2), or bit for bit where the law says so. A system has each law whose needs are among its properties
/// and which is judged on its kind of call; of two laws of one name no system has both.
struct Law {
  /// Whether its runs are calls with chunks as well as without, so that they take two kernels of the recurrent family.
  enum class Calls { as_asked, both, both_where_chunked };

  std::string_view name;
  std::string_view ids;  ///< ledger ids (EQUATIONS 6 and 7.7)
  std::string_view says;
  Properties needs = {};
  LawOn<LawSubject> on_heads = {};  ///< calls of the recurrent family, by head
  LawOn<TensorSubject> on_tensors = {};
  bool initial_state = false;  ///< a case without one says nothing
  bool resumes = false;        ///< its calls go on behind tokens of earlier calls, as form=decode does
  Calls calls = Calls::as_asked;
  /// Cases that plans of systems of named tensors try for its sake, as PlanRows::limits.
  std::array<std::string_view, 3> planned = {};  ///< empty: none
};

/// The table, a row a law (harness/laws/laws.cpp).
[[nodiscard]] std::span<const Law> laws();

/// The laws of a system of the recurrent family, or of named tensors, with such properties, in the order of the table.
[[nodiscard]] std::vector<const Law*> laws_on_heads(Properties has);
[[nodiscard]] std::vector<const Law*> laws_on_tensors(Properties has);

/// The systems on which a law is tried: "systems of the recurrent family with delta rule".
[[nodiscard]] std::string tried_on(const Law& law);

/// The law's judgement; vacuous, with the reason, where the case lacks what it needs, or where it is without effect.
[[nodiscard]] Judgement judge_law(const Law& law, const LawSubject& subject);
[[nodiscard]] Judgement judge_law(const Law& law, const TensorSubject& subject);

}  // namespace samestate
