#include "oracles/given.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <numbers>

#include "oracles/contract_points.h"
#include "oracles/given_words.h"
#include "oracles/meaning.h"
#include "oracles/rounding.h"
#include "reference/error.h"
#include "reference/l2norm.h"

namespace samestate {
namespace {

/// e^-x is 0 in every format, so a beta of 0 or 1 and a decay of 1 are represented exactly.
constexpr double kFar = 1000.0;

constexpr std::array<GivenWord<Format>, 3> kGivenFormats{
    {{"fp32", Format::fp32, {}}, {"bf16", Format::bf16, {}}, {"fp16", Format::fp16, {}}}};

/// Calls `with(key, words, value)` for each setting that has words, in the order of the text.
template <typename Of, typename With>
void each(Of& given, With&& with) {
  with("decay", kDecayWords, given.decay);
  with("strength", kStrengthWords, given.strength);
  with("scale", kFoldedWords, given.folded_scale);
  with("l2norm_place", kNormPlaceWords, given.norm);
  with("g", kGivenFormats, given.g);
  with("beta", kGivenFormats, given.beta);
  with("q", kGivenFormats, given.q);
}

constexpr std::string_view kEpsilon = "l2norm_epsilon";

[[noreturn]] void refuse(std::string_view word) {
  throw Error(fmt::format("metadata 'given' has {:?}: it is what `samestate repro --dump` writes",
                          word.substr(0, 60)));
}

}  // namespace

std::string text_of(const Given& given) {
  std::string text;
  const auto add = [&](std::string_view key, std::string_view value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  };
  each(given, [&](std::string_view key, const auto& words, const auto& value) {
    if (value == words.front().value) return;
    const auto at = std::ranges::find(words, value, [](const auto& word) { return word.value; });
    if (at == words.end())
      throw Error(fmt::format("no run file holds this {} of a kernel's conventions", key));
    add(key, at->word);
  });
  if (given.norm_epsilon != Given::kNormEpsilon) add(kEpsilon, fmt::format("{}", given.norm_epsilon));
  return text;
}

Given given_in(std::string_view text) {
  Given given;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    const std::size_t equals = word.find('=');
    if (equals == word.npos) refuse(word);
    const std::string_view key = word.substr(0, equals), said = word.substr(equals + 1);
    bool known = false;
    each(given, [&](std::string_view name, const auto& words, auto& value) {
      if (name != key) return;
      const auto at = std::ranges::find(words, said, [](const auto& one) { return one.word; });
      if (at == words.end()) refuse(word);
      value = at->value;
      known = true;
    });
    if (key == kEpsilon) {
      const auto [end, error] = std::from_chars(said.data(), said.data() + said.size(), given.norm_epsilon);
      known = error == std::errc{} && end == said.data() + said.size() && given.norm_epsilon > 0.0 &&
              given.norm_epsilon < 1.0;
    }
    if (!known) refuse(word);
  }
  return given;
}

double Given::given_g(double x) const {
  double y = x;
  switch (decay) {
    case Decay::ln:
      break;
    case Decay::log2:
      y = x * std::numbers::log2e;
      break;
    case Decay::linear:
      y = std::exp(x);
      break;
    case Decay::raw:
      // -g = log(1 + e^y), which for a large -g is y itself.
      y = x == 0.0 ? -kFar : x < -kFar ? -x : std::max(std::log(std::expm1(-x)), -kFar);
      break;
  }
  return round_to(y, g);
}

double Given::read_g(double x) const {
  const double y = given_g(x);
  return decay == Decay::linear && !(y > 0.0) ? x : meant_by_g(*this, y);
}

double meant_by_g(const Given& given, double y) {
  constexpr double kReset = -1e38;  // as in the regime of resets; a recorded call may have -infinity
  const auto finite = [](double g) { return g == -std::numeric_limits<double>::infinity() ? kReset : g; };
  switch (given.decay) {
    case Given::Decay::ln:
      break;
    case Given::Decay::log2:
      return finite(y * std::numbers::ln2);
    case Given::Decay::linear:
      return y > 0.0 ? std::log(y) : y == 0.0 ? kReset : std::nan("");
    case Given::Decay::raw:
      return y > kFar ? finite(-y) : -std::log1p(std::exp(y));
  }
  return finite(y);
}

double Given::given_beta(double x) const {
  if (strength == Strength::beta) return round_to(x, beta);
  const double part = strength == Strength::logit ? x : x / 2;
  return round_to(std::clamp(std::log(part / (1.0 - part)), -kFar, kFar), beta);
}

double Given::read_beta(double x) const { return meant_by_beta(*this, given_beta(x)); }

double meant_by_beta(const Given& given, double y) {
  if (given.strength == Given::Strength::beta) return y;
  return (given.strength == Given::Strength::logit ? 1.0 : 2.0) / (1.0 + std::exp(-y));
}

double Given::given_q(double x, double scale) const { return folded_scale ? round_to(x * scale, q) : x; }

double Given::read_q(double x, double scale) const {
  return folded_scale && scale != 0.0 ? given_q(x, scale) / scale : x;
}

Matrix<double> Given::normalised(const Matrix<double>& x) const {
  if (norm == NormPlace::inside) return l2norm(x, norm_epsilon);
  Matrix<double> y = x;
  for (Index t = 0; t < x.rows(); ++t) {
    const double length = x.row(t).norm();
    y.row(t) /= norm == NormPlace::outside ? length + norm_epsilon : std::max(length, norm_epsilon);
  }
  return y;
}
}  // namespace samestate
