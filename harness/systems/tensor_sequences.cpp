#include <algorithm>
#include <iterator>
#include <numeric>
#include <string_view>
#include <utility>

#include "harness/run/run_case.h"
#include "harness/systems/tensor_system.h"
#include "oracles/systems/end_to_end.h"

/// The sequences of a case of named tensors, in a batch or packed.
namespace samestate {

std::vector<std::int64_t> case_shape(const TensorSpec& spec, const Case& c) {
  std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
  if (spec.axis == Axis::whole) return shape;
  const bool of_tokens = spec.axis == Axis::tokens || spec.axis == Axis::prefix;
  shape.insert(shape.begin(), of_tokens ? c.B : sequences_of(c));
  return shape;
}

CaseTensor case_tensor(const TensorSpec& spec, const Case& c, std::vector<float> data) {
  return {spec, spec.axis != Axis::whole, case_shape(spec, c), std::move(data), c.lengths};
}

Call call_of_sequence(Call whole, const Case& c, Index sequence) {
  whole.tokens = tokens_of(c, sequence);
  return whole;
}

Tensors<double> sequence_of(const std::vector<CaseTensor>& inputs, Index b) {
  Tensors<double> out;
  for (const CaseTensor& tensor : inputs) {
    const bool packed =
        !tensor.lengths.empty() && (tensor.spec.axis == Axis::tokens || tensor.spec.axis == Axis::prefix);
    Index rows = tensor.spec.rows(), before = tensor.batched ? b * rows : 0;
    if (packed) {
      const auto first = tensor.lengths.begin();
      const Index all = std::reduce(first, tensor.lengths.end(), Index{0});
      const Index each = all > 0 ? rows / all : 0;  // number of rows per token
      rows = each * tensor.lengths[static_cast<std::size_t>(b)];
      before = each * std::reduce(first, first + b, Index{0});
    }
    Matrix<double> x(rows, tensor.spec.columns());
    const float* from = tensor.data.data() + before * x.cols();
    std::transform(from, from + x.size(), x.data(), [](float value) { return static_cast<double>(value); });
    out.emplace(tensor.spec.name, std::move(x));
  }
  return out;
}

std::vector<Tensors<double>> by_sequence(const std::vector<CaseTensor>& outputs) {
  std::vector<Tensors<double>> out;
  std::vector<CaseTensor> own;
  std::ranges::copy_if(outputs, std::back_inserter(own), &CaseTensor::batched);
  const Index B = own.empty()                   ? 0
                  : own.front().lengths.empty() ? own.front().shape.front()
                                                : std::ssize(own.front().lengths);
  for (Index b = 0; b < B; ++b) out.push_back(sequence_of(own, b));
  return out;
}

bool is_end_to_end(const Resolved& r) { return sums_sequences(r.system->signature(r.c)); }

Resolved end_to_end(const Resolved& r, std::string_view native) {
  Resolved one = r;
  one.c.B = 1;
  one.c.T = r.c.lengths.empty() ? r.c.B * r.c.T : r.c.T;
  one.c.lengths.clear();
  one.c.lead = one.c.slack = 0;
  if (one.form->packed) {
    const CaseForm* own = one.system->form(native);
    one.form = own != nullptr ? own : &one.system->forms.front();
    one.c.form = one.form->name;
  }
  return one;
}

std::vector<CaseTensor> end_to_end(const Resolved& r, std::vector<CaseTensor> tensors) {
  const Index sequences = sequences_of(r.c), tokens = end_to_end(r, std::string_view()).c.T;
  for (CaseTensor& x : tensors) {
    if (x.spec.axis == Axis::tokens) x.spec.shape.front() = tokens;
    if (x.spec.axis == Axis::state) x.spec.shape.front() *= sequences;
    x.shape.assign(x.spec.shape.begin(), x.spec.shape.end());
    x.shape.insert(x.shape.begin(), 1);
    x.batched = true;
    x.lengths.clear();
  }
  return tensors;
}

Trace end_to_end(const Resolved& r, const Trace& run) {
  Trace one{end_to_end(r, run.inputs), end_to_end(r, run.outputs), run.native, run.oracles, {}, {}};
  if (r.system->has(Property::token_wise) || run.inputs.empty()) return one;
  CaseTensor lengths{
      {std::string(kLengths), Axis::request, {sequences_of(r.c), 1}, Content::slot}, true, {}, {}};
  for (Index n = 0; n < sequences_of(r.c); ++n) lengths.data.push_back(static_cast<float>(tokens_of(r.c, n)));
  one.inputs.push_back(std::move(lengths));
  return one;
}

Location within_sequences(const Resolved& r, const TensorSpec& output, Location at) {
  at.sequence = -1;
  if (output.axis != Axis::tokens || at.token < 0) return at;
  const Index each = output.rows() / std::max<Index>(output.shape.front(), 1);
  Index token = at.token / each;
  at.sequence = 0;
  while (at.sequence + 1 < sequences_of(r.c) && token >= tokens_of(r.c, at.sequence))
    token -= tokens_of(r.c, at.sequence++);
  at.token = token * each + at.token % each;
  return at;
}

}  // namespace samestate
