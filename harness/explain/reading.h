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

/// How a kernel interprets a call of the recurrent family: one choice for each aspect. The first of each is
/// the canonical one.
struct Reading {
  enum class Decay { ln, log2, linear, raw, ignored, twice };
  enum class Place { before, after, undecayed, early };
  enum class Scale { given, by_width, one, squared, zero_by_width };
  /// asked: if the call asks for it, as its declaration says (BatchShape::given).
  enum class Norm { asked, never, always, eps6, eps5, outside, maximum };
  enum class Strength { beta, logit, twice_logit, one, squared };
  enum class State { kv, vk, vk_in, vk_out };
  enum class Start { own, zero, first, by_token, carried, slot0 };
  enum class Exchange { none, q_k, g_beta };
  Decay decay = Decay::ln;
  Place place = Place::
      before;  ///< for the decay; undecayed: the delta is taken against the state before the decay; early: o
               ///< is read before the write
  bool delta = true;  ///< true if the state's value for the key is subtracted
  Scale scale = Scale::given;
  Norm norm = Norm::asked;
  Strength beta = Strength::beta;
  State state = State::kv;
  Start start = Start::own;  ///< which initial state a sequence gets
  Exchange exchange = Exchange::none;
  bool tiled = false;          ///< uses the other map of heads than the requested one
  bool heads_first = false;    ///< memory in [B, T, H, D] order is read as [B, H, T, D]
  bool reversed = false;       ///< the last token comes first
  bool whole = false;          ///< cu_seqlens is ignored
  bool returns_start = false;  ///< the initial state is returned as the final one
  bool divides = false;        ///< o is divided by q . (sum of keys)
  double least = kNoLimit;     ///< exponents of the decay are clipped below this
};

/// Exponents of the decay are clipped at `least`: each one, or with `chunk` their sums from the start of the
/// chunk on.
struct Clip {
  double least = kNoLimit;
  Index chunk = 0;
};
void clip(Vector<double>& g, const Clip& by);

/// The limit is not a row of the list of deviations, because it has to be fitted: the one in [-120, -1/4]
/// with the smallest `rest`.
[[nodiscard]] double fitted_limit(const std::function<double(double)>& rest);
/// "exponent of the decay clipped at about -5": diagnose and repro both use this text.
[[nodiscard]] std::string clip_text(const Clip& by);

/// One deviation from the canonical reading.
struct Deviation {
  std::string_view aspect;  ///< of two with the same aspect only one can apply
  std::string_view name;    ///< a description of what the kernel does
  std::string_view
      declare;  ///< key and value of a declaration that expresses it; empty if none does, so that it is a
                ///< defect
  void (*apply)(Reading&);
  bool gated = false, delta = false;  ///< for systems with a decay, or with the delta rule
};

/// All deviations that apply to the system, without a norm that is the declared one.
[[nodiscard]] std::vector<const Deviation*> deviations_of(const Family& family, const Given& declared = {});

/// The float64 outputs of a kernel that reads the call in this way.
struct Returned {
  std::vector<double> o, final_state;
};
[[nodiscard]] Returned evaluate(const Batch& call, const Family& family, const Reading& reading);

}  // namespace samestate
