#include <algorithm>
#include <numeric>
#include <utility>

#include "harness/systems/tensor_system.h"

/// The sequences of a case of named tensors, in a batch or packed.
namespace samestate {

std::vector<std::int64_t> input_shape(const TensorSpec& spec, const Case& c) {
  return spec.axis == Axis::whole ? std::vector<std::int64_t>(spec.shape.begin(), spec.shape.end())
                                  : output_shape(spec, c);
}

std::vector<std::int64_t> output_shape(const TensorSpec& spec, const Case& c) {
  std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
  const bool of_tokens = spec.axis == Axis::tokens || spec.axis == Axis::prefix;
  shape.insert(shape.begin(), of_tokens ? c.B : sequences_of(c));
  return shape;
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
  const Index B = outputs.empty()                   ? 0
                  : outputs.front().lengths.empty() ? outputs.front().shape.front()
                                                    : std::ssize(outputs.front().lengths);
  for (Index b = 0; b < B; ++b) out.push_back(sequence_of(outputs, b));
  return out;
}

}  // namespace samestate
