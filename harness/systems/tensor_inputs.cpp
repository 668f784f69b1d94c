#include "harness/systems/tensor_inputs.h"

#include <cmath>

#include "harness/cases/counter.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

constexpr Regime kRegimes[] = {
    {"normal", "unit normal data, weights divided by the root of their width"},
    {"large", "data times 30: gates saturate, softmax has one winner"},
    {"tiny", "data times 1e-4: epsilons count"},
    {"zeros", "every second token is zero: ties in routing, norms of zero"},
    {"repeated", "every token is the same one"},
    {"spiky", "one channel in 16 is 100 times the others"},
    {"mixed_scales", "every token has a scale of its own, 2^-8 to 2^8"},
    {"padded", "the mask begins with zeros, up to a third of the tokens"},
};

/// One element before it is rounded.
double element(const TensorSpec& spec, const Counter& counter, std::string_view regime,
               const Coordinates& place, Index columns) {
  Coordinates at = place;
  if (regime == "repeated" && spec.axis != Axis::whole && spec.axis != Axis::state) at.token = 0;
  const auto of_token = [&](std::int64_t salt) { return Coordinates{at.sequence, at.token, salt, -1}; };
  switch (spec.content) {
    case Content::activation: {
      const double x = counter.normal(at);
      if (regime == "large") return 30.0 * x;
      if (regime == "tiny") return 1e-4 * x;
      if (regime == "zeros") return at.token % 2 == 0 ? 0.0 : x;
      if (regime == "spiky") return counter.below({at.sequence, 0, 1, at.channel}, 16) == 0 ? 100.0 * x : x;
      if (regime == "mixed_scales")
        return std::ldexp(x, static_cast<int>(counter.below(of_token(2), 17)) - 8);
      return x;
    }
    case Content::weight:
      return counter.normal(at) / std::sqrt(static_cast<double>(columns));
    case Content::scale:
      return 1.0 + 0.2 * counter.normal(at);
    case Content::offset:
      return 0.2 * counter.normal(at);
    case Content::log_rate:
      // A = 0, as a checkpoint in a low precision can hold it (BUGS M59): exp of this is 0 in fp32.
      if (regime == "tiny" && counter.below(at, 4) == 0) return -200.0;
      return -1.0 + counter.uniform(at) * (std::log(16.0) + 1.0);
    case Content::log_decay: {
      const double decay = -0.2 * counter.uniform(at);
      return regime == "large" ? 200.0 * decay : regime == "tiny" ? 1e-4 * decay : decay;
    }
    case Content::strength:
      return counter.uniform(at);
    case Content::cosine:
    case Content::sine: {
      const double angle =
          static_cast<double>(place.token) *
          std::pow(10000.0, -static_cast<double>(place.channel) / static_cast<double>(columns));
      return spec.content == Content::cosine ? std::cos(angle) : std::sin(angle);
    }
    case Content::mask:
      return 1.0;
    case Content::features: {
      const double x = counter.normal(at);
      if (regime == "zeros" && at.token % 2 == 0) return 1.0;
      return std::exp((regime == "large" ? 2.0 : 0.5) * x);
    }
    case Content::key:  // of the recurrent family, which makes its own
    case Content::zeros:
      return 0.0;
  }
  return 0.0;
}

}  // namespace

std::span<const Regime> tensor_regimes() { return kRegimes; }

Format input_format(const TensorSpec& spec, const Contract& contract) {
  const Content content = spec.content;
  const bool rounded =
      content == Content::activation || content == Content::weight || content == Content::features;
  return rounded ? contract.input : Format::fp32;
}

std::vector<CaseTensor> tensor_inputs(const Resolved& r) {
  const Case& c = r.c;
  std::vector<CaseTensor> out;
  for (const TensorSpec& spec : r.system->signature(c).inputs) {
    std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
    CaseTensor tensor{spec, spec.axis != Axis::whole, {}, {}};
    if (tensor.batched) shape.insert(shape.begin(), c.B);
    tensor.shape = std::move(shape);
    const Format format = input_format(spec, *r.contract);
    const Counter counter(c.seed, c.system + "/" + spec.name);
    const Index columns = spec.columns();
    const Index rows = spec.rows();
    const Index batch = tensor.batched ? c.B : 1;
    const Index tokens = spec.axis == Axis::tokens || spec.axis == Axis::prefix ? c.T : 0;
    const Index each = tokens > 0 ? rows / tokens : 1;  // rows of one token
    tensor.data.reserve(static_cast<std::size_t>(batch * rows * columns));
    for (Index b = 0; b < batch; ++b) {
      const Index padding = r.regime->name == "padded" ? counter.below({b, 0, 0, 0}, c.T / 3 + 1) : 0;
      for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < columns; ++j) {
          double x = element(spec, counter, r.regime->name, {b, i / each, i % each, j}, columns);
          if (spec.content == Content::mask && i / each < padding) x = 0.0;
          if (format != Format::fp32) x = round_to(x, format);
          tensor.data.push_back(static_cast<float>(x));
        }
      }
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

}  // namespace samestate
