#pragma once

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/batch.h"
#include "oracles/systems/family.h"

namespace samestate {

inline constexpr double kNoLimit = -std::numeric_limits<double>::infinity();

/// How a kernel reads a call of the recurrent family: one way for each aspect. The first of each is the canonical one.
struct Reading {
  enum class Decay { ln, log2, linear, raw, ignored, twice };
  enum class Place { before, after, undecayed, early };
  enum class Scale { given, by_width, one, squared, zero_by_width };
  /// asked: where the call asks, as its declaration has it (BatchShape::given).
  enum class Norm { asked, never, always, eps6, eps5, outside, maximum };
  enum class Strength { beta, logit, twice_logit, one, squared };
  enum class State { kv, vk, vk_in, vk_out };
  enum class Start { own, zero, first, by_token, carried, slot0 };
  enum class Exchange { none, q_k, g_beta };
  Decay decay = Decay::ln;
  Place place = Place::
      before;  ///< of the decay; undecayed: the delta is taken against the state before it; early: o is
               ///< read before the write
  bool delta = true;  ///< what the state holds for the key is removed
  Scale scale = Scale::given;
  Norm norm = Norm::asked;
  Strength beta = Strength::beta;
  State state = State::kv;
  Start start = Start::own;  ///< whose initial state a sequence has
  Exchange exchange = Exchange::none;
  bool tiled = false;          ///< the other map of heads than the one that was asked for
  bool heads_first = false;    ///< memory [B, T, H, D] is read as [B, H, T, D]
  bool reversed = false;       ///< the last token first
  bool whole = false;          ///< cu_seqlens is ignored
  bool returns_start = false;  ///< the final state is the initial one
  bool divides = false;        ///< o is divided by q . sum of keys
  double least = kNoLimit;     ///< exponents of the decay are not let below
};

/// Exponents of the decay that are not let below `least`: each, or with `chunk` their sums from the begin of its chunk on.
struct Clip {
  double least = kNoLimit;
  Index chunk = 0;
};
void clip(Vector<double>& g, const Clip& by);

/// A limit is no row of the list of deviations, since it has to be fitted: the one in [-120, -1/4] of which `rest` is least.
[[nodiscard]] double fitted_limit(const std::function<double(double)>& rest);
/// "exponent of the decay clipped at about -5": what both diagnose and repro call it.
[[nodiscard]] std::string clip_text(const Clip& by);

/// One deviation from the canonical reading.
struct Deviation {
  std::string_view aspect;  ///< of two with one aspect only one can be
  std::string_view name;    ///< of what the kernel does, for a person
  std::string_view
      declare;  ///< key and value of a declaration that says so; empty: none does, it is a defect
  void (*apply)(Reading&);
  bool gated = false, delta = false;  ///< for systems with a decay, with the delta rule
};

/// All of them, those for the system, but for a norm that is the declared one.
[[nodiscard]] std::vector<const Deviation*> deviations_of(const Family& family, const Given& declared = {});

/// What a kernel that reads the call so returns, in float64.
struct Returned {
  std::vector<double> o, final_state;
};
[[nodiscard]] Returned evaluate(const Batch& call, const Family& family, const Reading& reading);

}  // namespace samestate
