#pragma once

#include <array>
#include <string_view>

#include "oracles/given.h"

/// The words that declarations and run files use for what a kernel receives in place of g, beta and q; the
/// canonical one comes first.
namespace samestate {

template <class T>
struct GivenWord {
  std::string_view word;
  T value;
  std::string_view gives;  ///< the input that the kernel receives
};

inline constexpr std::array<GivenWord<Given::Decay>, 4> kDecayWords{
    {{"ln", Given::Decay::ln, "g, the natural logarithm of the decay"},
     {"log2", Given::Decay::log2, "g / ln 2"},
     {"linear", Given::Decay::linear, "e^g, the decay itself"},
     {"raw", Given::Decay::raw, "the x with -softplus(x) = g"}}};

inline constexpr std::array<GivenWord<Given::Strength>, 3> kStrengthWords{
    {{"beta", Given::Strength::beta, "beta, the strength itself"},
     {"logit", Given::Strength::logit, "the b with sigmoid(b) = beta"},
     {"twice_logit", Given::Strength::twice_logit, "the b with 2 sigmoid(b) = beta"}}};

inline constexpr std::array<GivenWord<Given::NormPlace>, 3> kNormPlaceWords{
    {{"inside", Given::NormPlace::inside, "q and k, which its norm makes x (Σ x² + ε)^-1/2"},
     {"outside", Given::NormPlace::outside, "q and k, which its norm makes x / (|x| + ε)"},
     {"max", Given::NormPlace::maximum, "q and k, which its norm makes x / max(|x|, ε)"}}};

/// Words that say if q is multiplied by the scale before the call.
inline constexpr std::array<GivenWord<bool>, 2> kFoldedWords{
    {{"argument", false, "the scale, as an argument"},
     {"folded", true, "no scale: q is multiplied by it before the call"}}};

}  // namespace samestate
