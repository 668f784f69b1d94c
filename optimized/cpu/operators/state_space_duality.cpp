#include "optimized/cpu/operators/state_space_duality.h"

#include <cmath>
#include <string>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/selective_scan.h"
#include "reference/error.h"

namespace samestate::cpu {

void DualityChunks::run(const DualityHead& head, std::int64_t chunk) {
  copy_transposed(head.state, state_);
  for (std::int64_t begin = 0; begin < head.x.count; begin += chunk)
    step(head, begin, std::min(chunk, head.x.count - begin));
  std::vector<float>& column = sums_;
  column.resize(static_cast<std::size_t>(state_.rows));
  for (std::int64_t p = 0; p < head.last_state.count; ++p) {
    for (std::int64_t l = 0; l < state_.rows; ++l) column[static_cast<std::size_t>(l)] = state_.row(l)[p];
    round_values(column.data(), head.last_state.row(p), head.last_state.width, head.state_format);
  }
}

void DualityChunks::step(const DualityHead& head, std::int64_t begin, std::int64_t n) {
  const std::int64_t P = head.x.width;
  const TensorRows<const float> x = head.x.rows(begin, n);
  copy(head.C.rows(begin, n), C_);
  copy_transposed(head.B.rows(begin, n), B_transposed_);
  writes_.resize(n, P);
  delta_.resize(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) {
    const float delta = layer::softplus(head.dt.row(begin + i)[0] + head.dt_bias);
    delta_[static_cast<std::size_t>(i)] = delta;
    for (std::int64_t c = 0; c < P; ++c) writes_.row(i)[c] = delta * x.row(i)[c];
  }

  // C B^T under the mask: sums_[j] is the log-decay from token j to token i, computed by addition instead of
  // subtraction.
  product_lower(head.unit, C_, B_transposed_, scores_);
  sums_.assign(static_cast<std::size_t>(n), 0.0F);
  decay_.resize(static_cast<std::size_t>(n));  // from each token to the chunk's end, after the last row
  float from_start = 0.0F;
  product(head.unit, C_, state_, before_);
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = delta_[static_cast<std::size_t>(i)] * head.rate;
    from_start += g;
    for (std::int64_t j = 0; j < i; ++j) sums_[static_cast<std::size_t>(j)] += g;
    for (std::int64_t j = 0; j <= i; ++j) {
      const float decay = std::exp(sums_[static_cast<std::size_t>(j)]);
      decay_[static_cast<std::size_t>(j)] = decay;
      scores_.row(i)[j] *= decay;
    }
    std::fill(scores_.row(i) + i + 1, scores_.row(i) + scores_.stride, 0.0F);
    const float decay = std::exp(from_start);
    for (std::int64_t c = 0; c < P; ++c) before_.row(i)[c] *= decay;
  }
  lower_product(head.unit, scores_, writes_, inside_);
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t c = 0; c < P; ++c)
      before_.row(i)[c] = (before_.row(i)[c] + inside_.row(i)[c]) + head.skip * x.row(i)[c];
  }
  store_rounded(before_, head.y.rows(begin, n), head.output);

  kept_transposed_.resize(B_transposed_.rows, n);
  for (std::int64_t l = 0; l < B_transposed_.rows; ++l) {
    for (std::int64_t j = 0; j < n; ++j)
      kept_transposed_.row(l)[j] = B_transposed_.row(l)[j] * decay_[static_cast<std::size_t>(j)];
  }
  product(head.unit, kept_transposed_, writes_, added_);
  const float through = std::exp(from_start);
  for (std::int64_t i = 0; i < state_.size(); ++i) {
    float& s = state_.values[static_cast<std::size_t>(i)];
    s = through * s + added_.values[static_cast<std::size_t>(i)];
  }
}

Outcome state_space_duality_chunks(const OperatorArguments& call, const Contract& contract) {
  if (call.chunk < 1) throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
  const std::int64_t H = call.parameter("H");
  const std::int64_t P = call.parameter("P");
  const std::int64_t N = call.parameter("N");
  const std::int64_t heads_of_group = H / call.parameter("G");
  const std::vector<float> rates = rates_of(call.input("A_log"));
  for_each_task(call.batch * H, call.threads, [&] {
    return [&, chunks = DualityChunks{}](std::int64_t task) mutable {
      const std::int64_t b = task / H;
      const std::int64_t h = task % H;
      const std::int64_t group = h / heads_of_group;
      chunks.run(
          {rows_of(call.input("x"), b).columns(h * P, P), rows_of(call.input("dt"), b).columns(h, 1),
           rows_of(call.input("B"), b).columns(group * N, N),
           rows_of(call.input("C"), b).columns(group * N, N), rows_of(call.input("S"), b).rows(h * P, P),
           rows_of(call.output("y"), b).columns(h * P, P), rows_of(call.output("S"), b).rows(h * P, P),
           call.input("dt_bias").data[h], rates[static_cast<std::size_t>(h)], call.input("skip").data[h],
           contract.output, contract.state, MatrixUnit::of(contract)},
          call.chunk);
    };
  });
  return {};
}

}  // namespace samestate::cpu
