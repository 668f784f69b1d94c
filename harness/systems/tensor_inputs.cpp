#include "harness/systems/tensor_inputs.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "harness/cases/counter.h"
#include "harness/run/judge_batch.h"
#include "harness/systems/tensor_system.h"
#include "oracles/rounding.h"
#include "oracles/systems/expert_gradients.h"
#include "oracles/systems/family.h"
#include "oracles/systems/input_format.h"

namespace samestate {
namespace {

/// Inputs saturate this far below the largest number of their format: an immediate overflow does not test the
/// kernel.
constexpr double kRoom = 32.0;

/// Returns the position of a sequence's first token, where its rotation tables begin: the first sequence of a
/// batch begins at 0, the others in the middle of a text.
Index first_position(const Case& c, Index sequence) {
  constexpr Index kLongest = 4096;
  return sequence == 0 ? 0
                       : 1 + Counter(c.seed, std::string(forward_name(c.system)) + "/position")
                                 .below({sequence, 0, 0, 0}, kLongest);
}

/// Returns the number of tokens before a sequence's states: three sequences in four continue a text.
Index tokens_before(const Case& c, const TensorDraws& draws, Index sequence) {
  constexpr Index kMost = 4096, kLong = 8;
  const Counter counter(c.seed, std::string(forward_name(c.system)) + "/trained");
  if (!draws.trained || counter.below({sequence, 0, 0, 0}, 4) == 0) return 0;
  const Index before = draws.long_context ? kMost * (1 + counter.below({sequence, 0, 0, 2}, kLong)) : 0;
  return before + 1 + counter.below({sequence, 0, 0, 1}, kMost);
}

/// Its softplus is a step as models initialise and keep it, uniform in its logarithm.
double step_bias(const Counter& counter, const Coordinates& at) {
  return std::log(std::expm1(std::pow(10.0, -4.0 + 3.0 * counter.uniform(at))));
}

/// One request in four has no slot; one in eight has the last slot, which lies farthest away.
double slot_of(const TensorSpec& spec, const Counter& counter, Index sequence) {
  const Index kind = counter.below({sequence, 0, 0, 1}, 8);
  if (kind < 2) return -1.0;
  return static_cast<double>(kind == 2 ? spec.slots - 1 : counter.below({sequence, 0, 0, 0}, spec.slots));
}

/// Returns an element before rounding; `position` is that of the sequence's first token, `before` the number
/// of tokens before its states.
double element(const TensorSpec& spec, const Counter& counter, const TensorDraws& draws,
               const Coordinates& place, Index columns, Index position, Index before) {
  Coordinates at = place;
  if (draws.trained && spec.name == kStepBias) return step_bias(counter, at);
  if (draws.trained && spec.axis == Axis::state && before == 0) return 0.0;
  if (draws.one_token && (spec.axis == Axis::tokens || spec.axis == Axis::prefix)) at.token = 0;
  switch (spec.content) {
    case Content::activation:
      return draws.activation(counter, at);
    case Content::weight:
      return counter.normal(at) / std::sqrt(static_cast<double>(columns));
    case Content::scale:
      return draws.scale(counter, at);
    case Content::offset:
      return is_head_norm(spec.name) ? draws.head_norm(counter, at) : draws.offset(counter, at);
    case Content::log_rate:
      return draws.log_rate(counter, at);
    case Content::log_decay:
      return draws.log_decay * (-0.2 * counter.uniform(at));
    case Content::strength:
      return draws.strength(counter, at);
    case Content::cosine:
    case Content::sine: {
      const double angle =
          static_cast<double>(position + place.token) *
          std::pow(10000.0, -static_cast<double>(place.channel) / static_cast<double>(columns));
      return spec.content == Content::cosine ? std::cos(angle) : std::sin(angle);
    }
    case Content::mask:
      return 1.0;
    case Content::slot:
      return slot_of(spec, counter, place.sequence);
    case Content::features:
      return draws.feature(counter, at);
    case Content::key:  // the recurrent family draws its own
      return 0.0;
    case Content::zeros:
      return before > 0 ? draws.activation(counter, at) : 0.0;
    case Content::no_sum:
      return before > 0 ? draws.feature(counter, at) : 0.0;
    case Content::no_count:
      return static_cast<double>(before);
  }
  return 0.0;
}

}  // namespace

namespace {

/// An element of a cotangent of the kind that the case asks for, except for those that are the outputs. The one that
/// is 1 in `basis` lies anywhere in the tensor, and each sequence has one. Where the regime is `exact`, normal numbers are
/// -1, 0 or 1, and sizes are powers of two.
double cotangent(std::string_view kind, bool exact, const TensorSpec& spec, const Counter& counter,
                 const Coordinates& at) {
  if (kind == "ones") return 1.0;
  if (kind == "basis") {
    const auto rows = counter.below({at.sequence, 0, 0, -1}, std::max<Index>(spec.rows(), 1));
    const auto column = counter.below({at.sequence, 0, 0, -2}, spec.columns());
    const Index each = spec.axis == Axis::tokens ? spec.rows() / std::max<Index>(spec.shape.front(), 1) : 1;
    return at.token * each + at.head == rows && at.channel == column ? 1.0 : 0.0;
  }
  const double size = kind == "tiny"    ? (exact ? 0x1p-13 : 1e-4)
                      : kind == "large" ? (exact ? 32.0 : 30.0)
                                        : 1.0;
  return size * (exact ? static_cast<double>(counter.below(at, 3)) - 1.0 : counter.normal(at));
}

/// True for a tensor that is the cotangent of an output.
bool is_cotangent(const TensorSpec& input) { return input.name.starts_with("d."); }

/// The outputs of the recurrence for the inputs of a case of its backward pass, computed in float64: o and the final
/// state, as the forward call would have them.
Outputs forward_outputs(const Batch& batch, const Family& family) {
  const BatchShape& s = batch.shape;
  Outputs out;
  out.o.resize(static_cast<std::size_t>(s.B * s.T * s.Hv * s.dv));
  out.final_state.resize(static_cast<std::size_t>(s.sequences() * s.Hv * s.dk * s.dv));
  for (Index n = 0; n < s.sequences(); ++n) {
    const Index first = s.offsets.empty() ? n * s.T : s.begin(n);
    for (Index h = 0; h < s.Hv; ++h) {
      const Trajectory<double> head = family.recurrent(sequence_of(batch, n, h));
      for (Index t = 0; t < head.o.rows(); ++t) {
        float* to = out.o.data() + ((first + t) * s.Hv + h) * s.dv;
        for (Index c = 0; c < s.dv; ++c) to[c] = static_cast<float>(head.o(t, c));
      }
      std::ranges::transform(head.state.reshaped<Eigen::RowMajor>(),
                             out.final_state.data() + (n * s.Hv + h) * s.dk * s.dv,
                             [](double x) { return static_cast<float>(x); });
    }
  }
  return out;
}

/// The inputs of a backward pass: those of the recurrence's forward call with the same line, and the cotangents.
std::vector<CaseTensor> backward_inputs(const Resolved& r, const Family& family) {
  const Case& c = r.c;
  const Batch batch = batch_of(r, family);
  const std::map<std::string_view, const std::vector<float>*> forward{
      {"q", &batch.q}, {"k", &batch.k},       {"v", &batch.v},
      {"g", &batch.g}, {"beta", &batch.beta}, {"initial_state", &batch.initial_state}};
  Outputs outputs;
  if (c.cotangents == "output") outputs = forward_outputs(batch, family);
  std::vector<CaseTensor> out;
  for (const TensorSpec& spec : r.system->signature(c).inputs) {
    CaseTensor tensor = case_tensor(spec, c);
    const Format format = input_format(spec, *r.contract);
    const double largest = largest_finite(format) / kRoom;
    const auto kept = [&](double x) {
      return static_cast<float>(format == Format::fp32 ? x
                                                       : round_to(std::clamp(x, -largest, largest), format));
    };
    if (const auto given = forward.find(spec.name); given != forward.end()) {
      tensor.data = *given->second;
    } else if (c.cotangents == "output") {
      tensor.data = spec.axis == Axis::state ? outputs.final_state : outputs.o;
      for (float& x : tensor.data) x = kept(static_cast<double>(x));
    } else {
      const Counter counter(c.seed, c.system + "/" + spec.name);
      for (Index b = 0; b < sequences_of(c); ++b) {
        TensorSpec own = spec;
        if (spec.axis == Axis::tokens) own.shape.front() = tokens_of(c, b);
        const Index each = spec.axis == Axis::tokens ? own.rows() / std::max<Index>(own.shape.front(), 1) : 1;
        for (Index i = 0; i < own.rows(); ++i) {
          for (Index j = 0; j < own.columns(); ++j)
            tensor.data.push_back(
                kept(cotangent(c.cotangents, r.regime->exact, own, counter, {b, i / each, i % each, j})));
        }
      }
    }
    out.push_back(std::move(tensor));
  }
  return out;
}

/// The forward call of sequence b.
Call forward_call_of(const Case& c, const Operator& row, Index b) {
  Call call;
  call.form = row.forms.front().name;
  call.tokens = tokens_of(c, b);
  call.parameters = c.parameters;
  return call;
}

/// An output of the forward call for sequence b of these inputs, computed in float64, or the experts that it chooses.
Matrix<double> forward_output(const Case& c, const std::vector<CaseTensor>& inputs, Index b,
                              std::string_view output) {
  const Operator& row = *find_operator(forward_name(c.system));
  const Call call = forward_call_of(c, row, b);
  const Tensors<double> given = sequence_of(inputs, b);
  return output == kChosenExperts ? experts_chosen(call, given) : get(row.exact(call, given), output);
}

}  // namespace

std::vector<CaseTensor> tensor_inputs(const Resolved& r) {
  const Case& c = r.c;
  if (const Operator* row = find_operator(c.system); row != nullptr && row->family != nullptr)
    return backward_inputs(r, *row->family);
  const TensorDraws& draws = r.regime->tensors;
  const bool backward = is_backward(c.system);
  std::vector<CaseTensor> out;
  for (const TensorSpec& spec : r.system->signature(c).inputs) {
    CaseTensor tensor = case_tensor(spec, c);
    const bool of_tokens = spec.axis == Axis::tokens || spec.axis == Axis::prefix;
    const Format format = input_format(spec, *r.contract);
    const double largest = largest_finite(format) / kRoom;
    // The inputs of a backward pass are those of the forward call with the same line, and what that call saved.
    const bool given = backward && is_cotangent(spec);
    const bool chosen = backward && spec.name == kChosenExperts;
    const Counter counter(
        c.seed, std::string(given ? std::string_view(c.system) : forward_name(c.system)) + "/" + spec.name);
    const Index columns = spec.columns();
    const Index batch = tensor.batched ? sequences_of(c) : 1;
    const Index each = of_tokens && c.T > 0 ? spec.rows() / c.T : 1;  // number of rows per token
    std::int64_t size = 1;
    for (const std::int64_t extent : tensor.shape) size *= extent;
    tensor.data.reserve(static_cast<std::size_t>(size));
    for (Index b = 0; b < batch; ++b) {
      const Index T = tokens_of(c, b);
      const Index rows = of_tokens ? each * T : spec.rows();
      const Index position = first_position(c, b);
      const Index before = tokens_before(c, draws, b);
      const bool masks = draws.masked_to_third || draws.masked_anywhere;
      const Index padding = masks ? counter.below({b, 0, 0, 0}, T / 3 + 1) : 0;
      const bool holes = draws.masked_anywhere && counter.below({b, 0, 0, 1}, 2) == 0;
      const auto masked = [&](Index t) {
        if (holes) return counter.below({b, t, 0, 2}, 3) == 0 && t != counter.below({b, 0, 0, 3}, T);
        return draws.masked_anywhere ? t >= T - padding : t < padding;
      };
      TensorSpec own = spec;
      if (of_tokens) own.shape.front() = T;
      const bool output = chosen || (given && c.cotangents == "output");
      const Matrix<double> written =
          output ? forward_output(c, out, b, chosen ? spec.name : spec.name.substr(2)) : Matrix<double>();
      for (Index i = 0; i < rows; ++i) {
        for (Index j = 0; j < columns; ++j) {
          const Coordinates at{b, i / each, i % each, j};
          double x = output  ? written(i, j)
                     : given ? cotangent(c.cotangents, r.regime->exact, own, counter, at)
                             : element(spec, counter, draws, at, columns, position, before);
          if (spec.content == Content::mask && masked(i / each)) x = 0.0;
          if (format != Format::fp32) x = round_to(std::clamp(x, -largest, largest), format);
          tensor.data.push_back(static_cast<float>(x));
        }
      }
    }
    // No batch is entirely without states.
    if (spec.content == Content::slot && !chosen &&
        std::ranges::all_of(tensor.data, [](float x) { return x < 0.0F; }))
      tensor.data.back() = static_cast<float>(counter.below({batch, 0, 0, 0}, spec.slots));
    out.push_back(std::move(tensor));
  }
  return out;
}

void round_inputs(std::vector<CaseTensor>& inputs,
                  const std::map<std::string, Format, std::less<>>& formats) {
  for (CaseTensor& tensor : inputs) {
    const auto found = formats.find(tensor.spec.name);
    if (found == formats.end() || found->second == Format::fp32 || tensor.spec.content == Content::slot)
      continue;
    const auto largest = static_cast<float>(largest_finite(found->second));
    for (float& x : tensor.data) {
      if (std::isfinite(x)) x = static_cast<float>(round_to(std::clamp(x, -largest, largest), found->second));
    }
  }
}

}  // namespace samestate
