#include "fuzz/search/bug_conditions.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/cases/resolved.h"

namespace samestate {
namespace {

enum Bit : std::size_t {
  kAlphaOne,
  kAlphaZero,
  kDecay,
  kRateZero,
  kRateSixteen,
  kSoftplus,
  kNorms,
  kHeadRatio,
  kWidths,
  kT0,
  kT1,
  kBelowChunk,
  kChunk,
  kAboveChunk,
  kCollinear,
  kBetaZero,
  kBetaOne,
  kStale,
  kPadded,
  kMask,
  kFar,
};

constexpr std::array kEdges = {
    Edge{"alpha = 1", "a token that does not decay: g = 0"},
    Edge{"alpha = 0", "a token that forgets everything: exp(g) is 0 in fp32"},
    Edge{"decay 1e-12", "a decay of at most 1e-12 that is not 0 in fp32"},
    Edge{"A = 0", "exp(A_log) is 0, or the decay that it makes is that of A = 0: g = 0"},
    Edge{"A = 16", "exp(A_log) at least 15"},
    Edge{"softplus > 88", "an argument of softplus at which exp overflows in fp32"},
    Edge{"norm 1e-4", "a key, or a row of data, of length or RMS at most 2e-4, not 0"},
    Edge{"head ratio 3", "a key head serves three value heads"},
    Edge{"dk != dv", "keys and values of different width"},
    Edge{"T = 0", "no token"},
    Edge{"T = 1", "one token"},
    Edge{"T = C - 1", "one token short of a chunk"},
    Edge{"T = C", "one chunk"},
    Edge{"T = C + 1", "a chunk and one token"},
    Edge{"collinear keys", "all keys of a head within 12 degrees of one line"},
    Edge{"beta -> 0", "a write of strength at most 1e-3"},
    Edge{"beta -> 1", "a write of strength in [0.999, 1]"},
    Edge{"stale state",
         "no initial state, or that of another call, in a state buffer full of NaN and huge numbers"},
    Edge{"padded layout", "strided views"},
    Edge{"padded slots", "tokens that a mask leaves out, or empty sequences of a packed batch"},
    Edge{"far layout", "rows more than 2^31 elements apart"},
};

constexpr std::uint64_t bit(Bit b) { return std::uint64_t{1} << b; }
constexpr double kExpUnderflow = -103.98;  // below this value exp is 0 in fp32, subnormals included
constexpr double kDecay12 = -27.63;        // log 1e-12

std::uint64_t of_shape(const Resolved& r) {
  const Case& c = r.c;
  const System& system = *r.system;
  std::uint64_t out = 0;
  if (c.T == 0) out |= bit(kT0);
  if (c.T == 1) out |= bit(kT1);
  if (c.form == "chunked" && c.chunk > 0) {
    if (c.T == c.chunk - 1) out |= bit(kBelowChunk);
    if (c.T == c.chunk) out |= bit(kChunk);
    if (c.T == c.chunk + 1) out |= bit(kAboveChunk);
  }
  if (system.of_family() && c.Hv == 3 * c.Hk) out |= bit(kHeadRatio);
  if (system.of_family() && c.dk != c.dv) out |= bit(kWidths);
  if (system.of_family() && c.state == "none") out |= bit(kStale);
  if (r.layout != Layout::dense && r.layout != Layout::far) out |= bit(kPadded);
  if (r.layout == Layout::far && (c.B > 1 || c.T > 1)) out |= bit(kFar);
  if (std::find(c.lengths.begin(), c.lengths.end(), 0) != c.lengths.end()) out |= bit(kMask);
  return out;
}

/// Returns the sum of squares of `width` values starting at `begin`.
double squares(const std::vector<float>& data, std::size_t begin, std::size_t width) {
  double sum = 0;
  for (std::size_t i = begin; i < begin + width; ++i)
    sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
  return sum;
}

/// |cos| of every key of the first head with its first key at least cos 12 degrees. k: [B, T, H, d].
bool collinear(const CaseTensor& k) {
  const auto T = static_cast<std::size_t>(k.shape.at(1));
  const auto d = static_cast<std::size_t>(k.shape.at(3));
  const std::size_t step = static_cast<std::size_t>(k.shape.at(2)) * d;
  if (T < 2 || d < 2) return false;
  const double a = squares(k.data, 0, d);
  for (std::size_t t = 1; t < T; ++t) {
    double dot = 0;
    for (std::size_t i = 0; i < d; ++i)
      dot += static_cast<double>(k.data[i]) * static_cast<double>(k.data[t * step + i]);
    const double b = squares(k.data, t * step, d);
    if (!(std::abs(dot) >= 0.978 * std::sqrt(a * b)) || a * b == 0) return false;
  }
  return true;
}

/// Returns true for the tensor that is added to dt_bias under the softplus (GDN-29; EQUATIONS 5.10),
/// recognised by its name in public checkpoints.
bool is_softplus_argument(const TensorSpec& spec) {
  return spec.content == Content::activation && (spec.name == "a" || spec.name == "dt");
}

/// Returns the conditions that a tensor's contents meet.
std::uint64_t of_tensor(const CaseTensor& tensor) {
  std::uint64_t out = 0;
  const std::vector<float>& data = tensor.data;
  const auto any = [&](auto&& test) { return std::any_of(data.begin(), data.end(), test); };
  const Content content = tensor.spec.content;
  if (content == Content::log_rate) {
    if (any([](float x) { return std::exp(x) == 0.0F; })) out |= bit(kRateZero);
    if (any([](float x) { return std::exp(x) >= 15.0F; })) out |= bit(kRateSixteen);
  }
  if (content == Content::log_decay) {
    if (any([](float x) { return x == 0.0F; })) out |= bit(kAlphaOne) | bit(kRateZero);
    if (any([](float x) { return static_cast<double>(x) < kExpUnderflow; })) out |= bit(kAlphaZero);
    if (any([](float x) { return static_cast<double>(x) <= kDecay12 && x > -80.0F; })) out |= bit(kDecay);
  }
  if (content == Content::strength) {
    if (any([](float x) { return x > 0.0F && x <= 1e-3F; })) out |= bit(kBetaZero);
    if (any([](float x) { return x >= 0.999F && x <= 1.0F; })) out |= bit(kBetaOne);
  }
  if (content == Content::mask && any([](float x) { return x == 0.0F; })) out |= bit(kMask);
  const bool key = content == Content::key && tensor.spec.name == "k";
  if (is_softplus_argument(tensor.spec) && any([](float x) { return x > 88.0F; })) out |= bit(kSoftplus);
  if (key || (content == Content::activation && tensor.spec.axis != Axis::state)) {
    const auto width = static_cast<std::size_t>(tensor.spec.columns());
    // The length of a key, or the RMS of a row of data.
    const double most = 4e-8 * (key ? 1.0 : static_cast<double>(width));
    for (std::size_t begin = 0; width > 0 && begin + width <= data.size(); begin += width) {
      const double sum = squares(data, begin, width);
      if (sum > 0 && sum <= most) out |= bit(kNorms);
    }
  }
  if (key && collinear(tensor)) out |= bit(kCollinear);
  return out;
}

template <class Test>
bool has_input(const System& system, Test&& test) {
  Case c = system.standard();
  c.T = 4;
  c.chunk = 4;
  c.state = "random";
  const Signature signature = system.signature(c);
  return std::any_of(signature.inputs.begin(), signature.inputs.end(), test);
}

}  // namespace

std::span<const Edge> edges() { return kEdges; }

std::uint64_t edges_of(const Case& c) {
  const Resolved r(c);
  std::uint64_t out = of_shape(r);
  for (const CaseTensor& tensor : r.system->inputs(r)) out |= of_tensor(tensor);
  return out;
}

bool edge_applies(std::size_t edge, const System& system, std::string_view form, bool strided) {
  const auto holds = [&](Content content) {
    return has_input(system, [&](const TensorSpec& spec) { return spec.content == content; });
  };
  const auto drawn = [&](bool Regime::*what) {
    return std::any_of(system.regimes.begin(), system.regimes.end(),
                       [&](const Regime* regime) { return regime->*what; });
  };
  const auto packed = [](const CaseForm& row) { return row.packed; };
  switch (edge) {
    case kBelowChunk:
    case kChunk:
    case kAboveChunk:
      return form == "chunked" && system.form(form)->chunked;
    case kT1:
      return true;
    case kPadded:
    case kFar:
      return strided;
    case kNorms:
      return holds(Content::activation);
    case kAlphaOne:
    case kAlphaZero:
    case kDecay:
      return drawn(&Regime::gated);
    case kRateZero:
      return drawn(&Regime::gated) || holds(Content::log_rate);
    case kRateSixteen:
      return holds(Content::log_rate);
    case kSoftplus:
      return has_input(system, is_softplus_argument);
    case kBetaZero:
    case kBetaOne:
      return drawn(&Regime::delta);
    case kMask:
      return std::any_of(system.forms.begin(), system.forms.end(), packed) || holds(Content::mask);
    case kCollinear:
      return holds(Content::key);
    default:  // keys of the line, of the family only, express these: head ratios, widths, no token, a stale
              // state
      return system.of_family();
  }
}

}  // namespace samestate
