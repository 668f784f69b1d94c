#include <algorithm>
#include <utility>

#include "harness/laws/tensor_comparison.h"

/// Laws about what a call must not depend on: the request before it, and the sequences next to it.
namespace samestate::tensor_laws_detail {
namespace {

/// Returns the inputs with every state as at the beginning of a request.
std::vector<CaseTensor> begun(std::vector<CaseTensor> inputs) {
  for (CaseTensor& x : inputs) {
    if (x.spec.axis == Axis::state) std::fill(x.data.begin(), x.data.end(), 0.0F);
  }
  return inputs;
}

/// Returns another request: the tokens in reverse order and half as large, which is exact in every format.
std::vector<CaseTensor> another(std::vector<CaseTensor> inputs, Index tokens) {
  for (CaseTensor& x : inputs) {
    if (x.spec.axis != Axis::tokens && x.spec.axis != Axis::prefix) continue;
    if (x.spec.content != Content::activation && x.spec.content != Content::features) continue;
    const auto each = static_cast<std::ptrdiff_t>(x.spec.size() / tokens);
    const std::vector<float> before = x.data;
    for (auto row = std::ptrdiff_t{0}; row < std::ssize(x.data) / each; ++row) {
      const std::ptrdiff_t turned = row / tokens * tokens + (tokens - 1 - row % tokens);
      for (std::ptrdiff_t i = 0; i < each; ++i)
        x.data[static_cast<std::size_t>(row * each + i)] =
            0.5F * before[static_cast<std::size_t>(turned * each + i)];
    }
  }
  return inputs;
}

/// Returns the same tokens, with the states that a run left.
std::vector<CaseTensor> from(std::vector<CaseTensor> inputs, const std::vector<Tensors<double>>& left) {
  for (CaseTensor& x : inputs) {
    if (x.spec.axis != Axis::state) continue;
    auto to = x.data.begin();
    for (const Tensors<double>& sequence : left) {
      const Matrix<double>& state = get(sequence, x.spec.name);
      to = std::transform(state.data(), state.data() + state.size(), to,
                          [](double value) { return static_cast<float>(value); });
    }
  }
  return inputs;
}

}  // namespace

Judgement reset(const TensorSubject& s) {
  const Index T = s.r.c.T;
  const std::vector<CaseTensor> fresh = begun(s.inputs);
  const std::vector<CaseTensor> other = another(s.inputs, T);
  const std::vector<Index> cut = {T / 2};
  const std::vector<Tensors<double>> alone = s.run(fresh, {});
  const std::vector<Tensors<double>> before = s.run(other, {});
  const std::vector<Tensors<double>> whole = s.run(fresh, {});
  const std::vector<Tensors<double>> kept = s.run(from(fresh, before), {});
  const std::vector<Tensors<double>> parts = s.run(fresh, cut);
  const bool carried =
      std::any_of(fresh.begin(), fresh.end(), [](const CaseTensor& x) { return x.spec.axis == Axis::state; });
  Comparison comparison(s.trace);
  bool matters = false;
  for (Index b = 0; b < s.r.c.B; ++b) {
    const auto at = static_cast<std::size_t>(b);
    const OperatorOracle one = oracle_of(s, fresh, b, {});
    const OperatorOracle two = oracle_of(s, fresh, b, cut);
    const auto compare = [&](std::string again, const Side& other_run) {
      comparison.begin(Change::history, "the request before any other", std::move(again));
      for (const auto& [name, tolerance] : one.tolerance)
        comparison.add(b, name, tolerance.rows(), {alone[at], one}, other_run);
    };
    compare("the same after another request", {whole[at], one});
    compare("the same after another request, in two calls", {parts[at], two});
    for (const auto& [name, tolerance] : one.tolerance)
      matters = matters || get(alone[at], name) != get(carried ? kept[at] : before[at], name);
  }
  return if_effective(comparison.take("a request by itself, and again after another one"), matters,
                      "the request before it leaves nothing that could be noticed");
}

Judgement packing(const TensorSubject& s) {
  const std::int64_t B = s.r.c.B;
  const Index T = s.r.c.T;
  std::vector<Index> lengths;
  Index all = 0;
  for (Index b = 0; b < B; ++b) {
    lengths.push_back(std::max<Index>(1, T - b));
    all += lengths.back();
  }
  std::vector<CaseTensor> packed = s.inputs;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    CaseTensor& x = packed[i];
    if (x.spec.axis != Axis::tokens) continue;
    const Index each = x.spec.size() / T;
    x.data.clear();
    for (Index b = 0; b < B; ++b) {
      const auto first = s.inputs[i].data.begin() + b * T * each;
      x.data.insert(x.data.end(), first, first + lengths[static_cast<std::size_t>(b)] * each);
    }
    x.spec.shape[0] = all;
    x.shape[0] = 1;
    x.shape[1] = all;
  }
  const std::vector<Tensors<double>> apart = s.run(s.inputs, {});
  const Tensors<double> together = s.run_as(resized(s.r, 1, all), packed, {}).front();
  Comparison comparison(s.trace);
  comparison.begin(Change::packing, "the sequences as rows of a batch", "end to end as one sequence");
  Index begin = 0;
  for (Index b = 0; b < B; ++b) {
    const Index length = lengths[static_cast<std::size_t>(b)];
    const OperatorOracle oracle = oracle_of(s, s.inputs, b, {});
    for (const auto& [name, tolerance] : oracle.tolerance) {
      const Index each = tolerance.rows() / T;
      // The rows get as many as the sequence has by itself; only those of the packed run are compared.
      Matrix<double> rows = Matrix<double>::Zero(tolerance.rows(), tolerance.cols());
      rows.topRows(length * each) = get(together, name).middleRows(begin * each, length * each);
      const Tensors<double> of_sequence{{name, std::move(rows)}};
      comparison.add(b, name, length * each, {apart[static_cast<std::size_t>(b)], oracle},
                     {of_sequence, oracle});
    }
    begin += length;
  }
  return comparison.take("sequences as rows of a batch, and end to end as one sequence");
}

}  // namespace samestate::tensor_laws_detail
