#include "fuzz/search/edges.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "harness/cases/operator_case.h"
#include "harness/cases/systems.h"
#include "harness/run/run_case.h"

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
constexpr double kExpUnderflow = -103.98;  // exp below it is 0 in fp32, subnormals included
constexpr double kDecay12 = -27.63;        // log 1e-12

bool chunked_form(const Case& c) { return c.form == "chunked" && c.chunk > 0; }

std::uint64_t of_shape(const Case& c) {
  std::uint64_t out = 0;
  const auto tokens = [&](std::int64_t T) {
    if (T == 0) out |= bit(kT0);
    if (T == 1) out |= bit(kT1);
    if (!chunked_form(c)) return;
    if (T == c.chunk - 1) out |= bit(kBelowChunk);
    if (T == c.chunk) out |= bit(kChunk);
    if (T == c.chunk + 1) out |= bit(kAboveChunk);
  };
  tokens(c.T);
  return out;
}

/// |cos| of every key of the head with its first key at least cos 12 degrees.
bool collinear(const Batch& batch, std::int64_t head) {
  const BatchShape& s = batch.shape;
  if (s.T < 2 || s.dk < 2) return false;
  const float* first = batch.k.data() + head * s.dk;
  for (std::int64_t t = 1; t < s.T; ++t) {
    const float* key = batch.k.data() + (t * s.Hk + head) * s.dk;
    double dot = 0, a = 0, b = 0;
    for (std::int64_t i = 0; i < s.dk; ++i) {
      const double x = static_cast<double>(first[i]);
      const double y = static_cast<double>(key[i]);
      dot += x * y, a += x * x, b += y * y;
    }
    if (!(std::abs(dot) >= 0.978 * std::sqrt(a * b)) || a * b == 0) return false;
  }
  return true;
}

std::uint64_t of_family(const Case& c) {
  std::uint64_t out = of_shape(c);
  if (c.Hv == 3 * c.Hk) out |= bit(kHeadRatio);
  if (c.dk != c.dv) out |= bit(kWidths);
  if (c.layout == "padded") out |= bit(kPadded);
  if (c.layout == "far" && (c.B > 1 || c.T > 1)) out |= bit(kFar);
  if (c.state == "none") out |= bit(kStale);
  if (std::find(c.lengths.begin(), c.lengths.end(), 0) != c.lengths.end()) out |= bit(kMask);
  const Batch batch = batch_of(c);
  for (const float value : batch.g) {
    const double g = static_cast<double>(value);
    if (g == 0) out |= bit(kAlphaOne) | bit(kRateZero);
    if (g < kExpUnderflow) out |= bit(kAlphaZero);
    if (g <= kDecay12 && g > -80.0) out |= bit(kDecay);
  }
  for (const float value : batch.beta) {
    if (value > 0 && value <= 1e-3F) out |= bit(kBetaZero);
    if (value >= 0.999F && value <= 1.0F) out |= bit(kBetaOne);
  }
  const auto rows = static_cast<std::int64_t>(batch.k.size()) / std::max<std::int64_t>(c.dk, 1);
  for (std::int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (std::int64_t i = 0; i < c.dk; ++i) {
      const double x = static_cast<double>(batch.k[static_cast<std::size_t>(r * c.dk + i)]);
      sum += x * x;
    }
    if (sum > 0 && sum <= 4e-8) out |= bit(kNorms);
  }
  if (collinear(batch, 0)) out |= bit(kCollinear);
  return out;
}

/// What is added to dt_bias under the softplus (GDN-29; EQUATIONS 5.10), by its name in the public checkpoints.
bool is_softplus_argument(const TensorSpec& spec) {
  return spec.content == Content::activation && (spec.name == "a" || spec.name == "dt");
}

/// The tensors of an operator by what they hold.
std::uint64_t of_tensor(const OperatorTensor& tensor) {
  std::uint64_t out = 0;
  const bool softplus_argument = is_softplus_argument(tensor.spec);
  const std::vector<float>& data = tensor.data;
  const auto any = [&](auto&& test) { return std::any_of(data.begin(), data.end(), test); };
  const Content content = tensor.spec.content;
  if (content == Content::log_rate) {
    if (any([](float x) { return std::exp(x) == 0.0F; })) out |= bit(kRateZero);
    if (any([](float x) { return std::exp(x) >= 15.0F; })) out |= bit(kRateSixteen);
  }
  if (content == Content::log_decay) {
    if (any([](float x) { return x == 0.0F; })) out |= bit(kAlphaOne);
    if (any([](float x) { return x <= static_cast<float>(kDecay12); })) out |= bit(kDecay);
  }
  if (content == Content::strength) {
    if (any([](float x) { return x <= 1e-3F; })) out |= bit(kBetaZero);
    if (any([](float x) { return x >= 0.999F && x <= 1.0F; })) out |= bit(kBetaOne);
  }
  if (content == Content::mask && any([](float x) { return x == 0.0F; })) out |= bit(kMask);
  if (content == Content::activation) {
    if (softplus_argument && any([](float x) { return x > 88.0F; })) out |= bit(kSoftplus);
    const auto width = static_cast<std::size_t>(tensor.spec.columns());
    for (std::size_t begin = 0; width > 0 && begin + width <= data.size(); begin += width) {
      double sum = 0;
      for (std::size_t i = begin; i < begin + width; ++i) {
        sum += static_cast<double>(data[i]) * static_cast<double>(data[i]);
      }
      if (sum > 0 && sum <= 4e-8 * static_cast<double>(width)) out |= bit(kNorms);
    }
  }
  return out;
}

template <class Test>
bool has_input(const Operator& op, Test&& test) {
  Call call;
  call.form = op.forms.front().name;
  call.tokens = 4;
  call.chunk = 4;
  for (const Parameter& p : op.parameters) call.parameters.emplace(p.name, p.standard);
  const Signature signature = op.signature(call);
  return std::any_of(signature.inputs.begin(), signature.inputs.end(), test);
}

bool has_content(const Operator& op, Content content) {
  return has_input(op, [&](const TensorSpec& spec) { return spec.content == content; });
}

}  // namespace

std::span<const Edge> edges() { return kEdges; }

std::uint64_t edges_of(const Case& c) {
  if (!is_operator_case(c)) return of_family(c);
  std::uint64_t out = of_shape(c);
  for (const OperatorTensor& tensor : operator_inputs(c)) out |= of_tensor(tensor);
  return out;
}

bool edge_applies(std::size_t edge, std::string_view system, std::string_view form) {
  const bool chunk_edge = edge == kBelowChunk || edge == kChunk || edge == kAboveChunk;
  if (const Operator* op = find_operator(system)) {
    const OperatorForm* row = op->form(form);
    if (chunk_edge) return row != nullptr && row->chunked && form == "chunked";
    switch (edge) {
      case kT1:
        return true;
      case kNorms:
        return has_content(*op, Content::activation);
      case kRateZero:
      case kRateSixteen:
        return has_content(*op, Content::log_rate);
      case kSoftplus:
        return has_input(*op, is_softplus_argument);
      case kMask:
        return has_content(*op, Content::mask);
      default:
        return false;
    }
  }
  const Family& family = *system_named(system).family;
  if (chunk_edge) return form == "chunked";
  switch (edge) {
    case kAlphaOne:
    case kAlphaZero:
    case kDecay:
    case kRateZero:
      return family.gated;
    case kBetaZero:
    case kBetaOne:
      return family.delta;
    case kRateSixteen:
    case kSoftplus:
      return false;  // the family reads g itself
    default:
      return true;
  }
}

}  // namespace samestate
