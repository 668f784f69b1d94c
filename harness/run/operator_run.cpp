#include "harness/run/operator_run.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "harness/run/guard.h"
#include "harness/run/runner.h"
#include "oracles/contracts.h"
#include "oracles/judge.h"

namespace samestate {
namespace {

/// A dense tensor with guards around it.
struct Guarded {
  explicit Guarded(std::size_t size) : storage(size + 2 * kGuard, kPoison) {}
  [[nodiscard]] float* data() { return storage.data() + kGuard; }
  [[nodiscard]] std::size_t size() const { return storage.size() - 2 * kGuard; }
  void check(std::string_view name) const {
    for (std::size_t i = 0; i < kGuard; ++i) {
      if (!poisoned(storage[i]) || !poisoned(storage[storage.size() - 1 - i])) {
        throw Trespass(fmt::format("the kernel wrote outside {}", name));
      }
    }
  }
  std::vector<float> storage;
};

/// One call on all sequences of the batch: `inputs[b]` by sequence.
class KernelCall {
 public:
  KernelCall(const Operator& op, const OperatorKernel& kernel, const Contract& contract, int threads)
      : op_(op), kernel_(kernel), contract_(contract), threads_(threads) {}

  [[nodiscard]] std::vector<Tensors<double>> operator()(const Call& call,
                                                        const std::vector<Tensors<double>>& inputs) const {
    // The operator's row gives the sizes of this call; what a token sees beyond its own call (prefix) is the
    // data's.
    const Signature signature = op_.signature(call);
    const auto batch = static_cast<std::int64_t>(inputs.size());
    std::vector<Guarded> buffers;
    buffers.reserve(signature.inputs.size() + signature.outputs.size());
    std::vector<std::vector<float>> given;
    OperatorArguments arguments;
    arguments.batch = batch;
    arguments.tokens = call.tokens;
    arguments.chunk = call.chunk;
    arguments.threads = threads_;
    for (const auto& [name, value] : call.parameters) arguments.parameters.emplace_back(name, value);
    for (const TensorSpec& spec : signature.inputs) {
      const bool batched = spec.axis != Axis::whole;
      std::vector<float> dense;
      std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
      const Matrix<double>& first = get(inputs.front(), spec.name);
      if (spec.axis == Axis::prefix) {
        const Index inner = spec.size() / std::max<Index>(spec.shape.front(), 1);
        shape.front() = inner > 0 ? first.size() / inner : first.rows();
      }
      for (std::int64_t b = 0; b < (batched ? batch : 1); ++b) {
        const Matrix<double>& x = get(inputs[static_cast<std::size_t>(b)], spec.name);
        for (Index i = 0; i < x.size(); ++i) dense.push_back(static_cast<float>(x.data()[i]));
      }
      if (batched) shape.insert(shape.begin(), batch);
      buffers.emplace_back(dense.size());
      std::copy(dense.begin(), dense.end(), buffers.back().data());
      given.push_back(std::move(dense));
      arguments.inputs.push_back({spec.name, std::move(shape), buffers.back().data()});
    }
    for (const TensorSpec& spec : signature.outputs) {
      std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
      shape.insert(shape.begin(), batch);
      buffers.emplace_back(static_cast<std::size_t>(batch * spec.size()));
      for (std::int64_t e = 0; e < batch * spec.size(); ++e) buffers.back().data()[e] = stale(e);
      arguments.outputs.push_back({spec.name, std::move(shape), buffers.back().data()});
    }
    const Outcome outcome = kernel_.run(arguments, contract_);
    if (outcome.kind != Outcome::Kind::ran) throw Unavailable(outcome);
    std::size_t i = 0;
    for (const TensorSpec& spec : signature.inputs) {
      buffers[i].check(spec.name);
      if (!given[i].empty() &&
          std::memcmp(given[i].data(), buffers[i].data(), given[i].size() * sizeof(float)) != 0) {
        throw Trespass(fmt::format("the kernel changed its input {}", spec.name));
      }
      ++i;
    }
    std::vector<Tensors<double>> out(inputs.size());
    for (const TensorSpec& spec : signature.outputs) {
      buffers[i].check(spec.name);
      mark_unwritten({buffers[i].data(), buffers[i].size()});
      for (std::size_t b = 0; b < inputs.size(); ++b) {
        Matrix<double> x(spec.rows(), spec.columns());
        for (Index e = 0; e < x.size(); ++e) {
          x.data()[e] = static_cast<double>(buffers[i].data()[static_cast<Index>(b) * spec.size() + e]);
        }
        out[b].emplace(spec.name, std::move(x));
      }
      ++i;
    }
    return out;
  }

 private:
  const Operator& op_;
  const OperatorKernel& kernel_;
  const Contract& contract_;
  int threads_;
};

}  // namespace

std::vector<Tensors<double>> run_operator(const Case& c, const std::vector<OperatorTensor>& inputs,
                                          const OperatorKernel& kernel, int threads) {
  const Operator& op = *find_operator(c.system);
  const Call call = call_of(c, kernel.form);
  std::vector<Tensors<double>> sequences;
  for (Index b = 0; b < c.B; ++b) sequences.push_back(operator_sequence(inputs, b));
  return evaluate_in_calls<double>(op, call, sequences, cuts_of(c),
                                   KernelCall(op, kernel, contract_named(c.contract), threads));
}

Judgement judge_operator_run(const Case& c, std::string_view native, const OperatorRun& run,
                             std::vector<OperatorOracle>* oracles) {
  const Operator& op = *find_operator(c.system);
  const Contract& contract = contract_named(c.contract);
  Judgement worst;
  for (Index b = 0; b < c.B; ++b) {
    OperatorOracle oracle =
        operator_oracle(op, call_of(c, native), operator_sequence(run.inputs, b), cuts_of(c), contract);
    Judgement judgement = judge_operator(op, oracle, run.outputs[static_cast<std::size_t>(b)]);
    judgement.worst.sequence = b;
    if (b == 0) {
      worst = std::move(judgement);
    } else {
      merge(worst, judgement);
    }
    if (oracles) oracles->push_back(std::move(oracle));
  }
  return worst;
}

Judgement judge_operator_case(const Case& c, const OperatorKernel& kernel, int threads, OperatorRun* kept) {
  OperatorRun run;
  run.inputs = operator_inputs(c);
  run.outputs = run_operator(c, run.inputs, kernel, threads);
  const Judgement worst = judge_operator_run(c, kernel.form, run, kept ? &run.oracles : nullptr);
  if (kept) *kept = std::move(run);
  return worst;
}

}  // namespace samestate
