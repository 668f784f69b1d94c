#include "optimized/cpu/operators/linear_attention.h"

#include "optimized/call.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {

Outcome linear_attention_state_first(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H");
  const std::int64_t dk = call.parameter("dk");
  const std::int64_t dv = call.parameter("dv");
  const MatrixUnit unit = MatrixUnit::of(contract);
  for_each_task(call.batch * H, call.threads, [&] {
    return
        [&, q = Block{}, k = Block{}, v = Block{}, state = Block{}, o = Block{}](std::int64_t task) mutable {
          const std::int64_t b = task / H;
          const std::int64_t h = task % H;
          copy(rows_of(call.input("q"), b).columns(h * dk, dk), q);
          copy_transposed(rows_of(call.input("k"), b).columns(h * dk, dk), k);
          copy(rows_of(call.input("v"), b).columns(h * dv, dv), v);
          product(unit, k, v, state);
          product(unit, q, state, o);
          store_rounded(o, rows_of(call.output("o"), b).columns(h * dv, dv), contract.output);
        };
  });
  return {};
}

namespace {

/// One head of normalised linear attention, chunk after chunk.
class NormalisedHead {
 public:
  NormalisedHead(const OperatorArguments& call, const Contract& contract)
      : call_(call), contract_(contract), unit_(MatrixUnit::of(contract)) {}

  void run(std::int64_t b, std::int64_t h) {
    const std::int64_t dk = call_.parameter("dk");
    const std::int64_t dv = call_.parameter("dv");
    copy(rows_of(call_.input("S"), b).rows(h * dk, dk), state_);
    copy(rows_of(call_.input("z"), b).rows(h, 1), z_);
    const std::int64_t chunk = std::max<std::int64_t>(call_.chunk, 1);
    for (std::int64_t t = 0; t < call_.tokens; t += chunk) {
      const std::int64_t n = std::min(chunk, call_.tokens - t);
      const auto keys = rows_of(call_.input("k"), b).columns(h * dk, dk).rows(t, n);
      copy(rows_of(call_.input("q"), b).columns(h * dk, dk).rows(t, n), q_);
      copy(keys, k_);
      copy_transposed(keys, k_transposed_);
      copy(rows_of(call_.input("v"), b).columns(h * dv, dv).rows(t, n), v_);
      step(n, rows_of(call_.output("o"), b).columns(h * dv, dv).rows(t, n));
    }
    store_rounded(state_, rows_of(call_.output("S"), b).rows(h * dk, dk), contract_.state);
    store_rounded(z_, rows_of(call_.output("z"), b).rows(h, 1), contract_.state);
  }

 private:
  void step(std::int64_t n, const TensorRows<float>& out) {
    product_lower(unit_, q_, k_transposed_, scores_);
    for (std::int64_t i = 0; i < n; ++i)
      std::fill(scores_.row(i) + i + 1, scores_.row(i) + scores_.stride, 0.0F);
    lower_product(unit_, scores_, v_, inside_);
    product(unit_, q_, state_, before_);
    for (std::int64_t i = 0; i < n; ++i) {
      float denominator = 0.0F;
      for (std::int64_t l = 0; l < q_.columns; ++l) denominator += q_.row(i)[l] * z_.row(0)[l];
      for (std::int64_t j = 0; j <= i; ++j) denominator += scores_.row(i)[j];
      const float inverse = 1.0F / denominator;
      for (std::int64_t c = 0; c < before_.stride; ++c) {
        before_.row(i)[c] = (before_.row(i)[c] + inside_.row(i)[c]) * inverse;
      }
    }
    store_rounded(before_, out, contract_.output);
    product(unit_, k_transposed_, v_, written_);
    for (std::int64_t i = 0; i < state_.size(); ++i)
      state_.values[static_cast<std::size_t>(i)] += written_.values[static_cast<std::size_t>(i)];
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t l = 0; l < k_.columns; ++l) z_.row(0)[l] += k_.row(i)[l];
    }
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  MatrixUnit unit_;
  Block q_, k_, k_transposed_, v_, scores_, inside_, before_, written_, state_, z_;
};

}  // namespace

Outcome linear_attention_normalised_chunks(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H");
  for_each_task(call.batch * H, call.threads, [&] {
    return [&, head = NormalisedHead(call, contract)](std::int64_t task) mutable {
      head.run(task / H, task % H);
    };
  });
  return {};
}

}  // namespace samestate::cpu
