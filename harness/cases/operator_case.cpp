#include "harness/cases/operator_case.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/cases/counter.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

constexpr OperatorRegime kRegimes[] = {
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
    case Content::zeros:
      return 0.0;
  }
  return 0.0;
}

double size_of(const TensorSpec& spec) {
  double size = 1.0;
  for (Index extent : spec.shape) size *= static_cast<double>(extent);
  return size;
}

}  // namespace

std::span<const OperatorRegime> operator_regimes() { return kRegimes; }

bool is_operator_case(const Case& c) { return find_operator(c.system) != nullptr; }

Call call_of(const Case& c, std::string_view native) {
  Call call;
  call.form = c.form == "decode" ? std::string(native) : c.form;
  call.tokens = c.T;
  call.chunk = c.chunk;
  for (const auto& [name, value] : c.parameters) call.parameters.emplace(name, value);
  return call;
}

std::vector<Index> cuts_of(const Case& c) {
  std::vector<Index> cuts;
  if (c.form != "decode") return cuts;
  for (Index t = std::max<Index>(c.prefill, 1); t < c.T; ++t) cuts.push_back(t);
  return cuts;
}

void check_operator_case(const Case& c) {
  const Operator* op = find_operator(c.system);
  if (op == nullptr) throw Error(fmt::format("system {}: no such system", c.system));
  const OperatorForm* form = op->form(c.form);
  if (form == nullptr && !(op->streams && c.form == "decode")) {
    std::vector<std::string_view> names;
    for (const OperatorForm& f : op->forms) names.push_back(f.name);
    if (op->streams) names.push_back("decode");
    throw Error(fmt::format("form={}: {} has the forms {}", c.form, c.system, fmt::join(names, ", ")));
  }
  if (form != nullptr && form->chunked && c.chunk < 1) {
    throw Error(
        fmt::format("chunk={}: form={} of {} needs a chunk of at least 1", c.chunk, c.form, c.system));
  }
  if (c.form != "decode" && c.prefill != 0) throw Error("prefill belongs to form=decode");
  if (c.prefill > c.T) {
    throw Error(fmt::format("prefill={} is more than T={}: it counts the tokens before the decoded ones",
                            c.prefill, c.T));
  }
  const NamedContract* contract = nullptr;
  for (const NamedContract& named : contracts()) {
    if (named.contract.name == c.contract) contract = &named;
  }
  if (contract == nullptr) (void)contract_named(c.contract);
  if (std::none_of(std::begin(kRegimes), std::end(kRegimes),
                   [&](const OperatorRegime& r) { return r.name == c.regime; })) {
    std::vector<std::string_view> names;
    for (const OperatorRegime& r : kRegimes) names.push_back(r.name);
    throw Error(fmt::format("regime={}: {} has the regimes {}", c.regime, c.system, fmt::join(names, ", ")));
  }
  for (const Parameter& p : op->parameters) {
    const auto found = c.parameters.find(p.name);
    if (found == c.parameters.end())
      throw Error(fmt::format("{} needs the key {}: {}", c.system, p.name, p.summary));
    if (found->second < p.least || found->second > p.most) {
      throw Error(
          fmt::format("{}={}: must lie in {}..{} ({})", p.name, found->second, p.least, p.most, p.summary));
    }
  }
  const Signature signature = op->signature(call_of(c, op->forms.front().name));
  double largest = 0.0;
  for (const auto* list : {&signature.inputs, &signature.outputs}) {
    for (const TensorSpec& spec : *list)
      largest = std::max(largest, size_of(spec) * static_cast<double>(c.B));
  }
  if (largest > static_cast<double>(kLargestCase)) {
    throw Error(fmt::format("case needs a tensor of {:.3g} elements: at most {}", largest, kLargestCase));
  }
}

Format input_format(const TensorSpec& spec, const Contract& contract) {
  const Content content = spec.content;
  const bool rounded =
      content == Content::activation || content == Content::weight || content == Content::features;
  return rounded ? contract.input : Format::fp32;
}

std::vector<OperatorTensor> operator_inputs(const Case& c) {
  check_operator_case(c);
  const Operator& op = *find_operator(c.system);
  const Contract& contract = contract_named(c.contract);
  std::vector<OperatorTensor> out;
  for (const TensorSpec& spec : op.signature(call_of(c, op.forms.front().name)).inputs) {
    OperatorTensor tensor{spec, spec.axis != Axis::whole, {}};
    const Format format = input_format(spec, contract);
    const Counter counter(c.seed, c.system + "/" + spec.name);
    const Index columns = spec.columns();
    const Index rows = spec.rows();
    const Index batch = tensor.batched ? c.B : 1;
    const Index tokens = spec.axis == Axis::tokens || spec.axis == Axis::prefix ? c.T : 0;
    const Index each = tokens > 0 ? rows / tokens : 1;  // rows of one token
    tensor.data.reserve(static_cast<std::size_t>(batch * rows * columns));
    for (Index b = 0; b < batch; ++b) {
      const Index padding = c.regime == "padded" ? counter.below({b, 0, 0, 0}, c.T / 3 + 1) : 0;
      for (Index r = 0; r < rows; ++r) {
        for (Index j = 0; j < columns; ++j) {
          double x = element(spec, counter, c.regime, {b, r / each, r % each, j}, columns);
          if (spec.content == Content::mask && r / each < padding) x = 0.0;
          if (format != Format::fp32) x = round_to(x, format);
          tensor.data.push_back(static_cast<float>(x));
        }
      }
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

Tensors<double> operator_sequence(const std::vector<OperatorTensor>& inputs, Index b) {
  Tensors<double> out;
  for (const OperatorTensor& tensor : inputs) {
    const Index size = tensor.spec.size();
    Matrix<double> x(tensor.spec.rows(), tensor.spec.columns());
    const std::size_t offset = static_cast<std::size_t>(tensor.batched ? b * size : 0);
    for (Index i = 0; i < size; ++i)
      x.data()[i] = static_cast<double>(tensor.data[offset + static_cast<std::size_t>(i)]);
    out.emplace(tensor.spec.name, std::move(x));
  }
  return out;
}

}  // namespace samestate
