#include "optimized/cpu/operators/rotary_embedding.h"

#include <numeric>

#include "optimized/call.h"
#include "optimized/cpu/operators/tensor.h"

namespace samestate::cpu {

RotaryRow::RotaryRow(std::int64_t width, std::int64_t pairs, bool interleaved)
    : partner_(static_cast<std::size_t>(width)),
      cosine_(static_cast<std::size_t>(width), 1.0F),
      sine_(static_cast<std::size_t>(width), 0.0F),
      pairs_(pairs),
      step_(interleaved ? 2 : 1),
      distance_(interleaved ? 1 : pairs) {
  std::iota(partner_.begin(), partner_.end(), 0);
  for (std::int64_t i = 0; i < pairs_; ++i) {
    const std::int64_t first = step_ * i;
    std::swap(partner_[static_cast<std::size_t>(first)],
              partner_[static_cast<std::size_t>(first + distance_)]);
  }
}

void RotaryRow::set(const float* cosine, const float* sine) {
  for (std::int64_t i = 0; i < pairs_; ++i) {
    const auto first = static_cast<std::size_t>(step_ * i);
    const auto second = static_cast<std::size_t>(step_ * i + distance_);
    cosine_[first] = cosine_[second] = cosine[i];
    sine_[first] = -sine[i];
    sine_[second] = sine[i];
  }
}

void RotaryRow::turn(const float* x, float* y) const {
  for (std::size_t j = 0; j < partner_.size(); ++j) y[j] = x[j] * cosine_[j] + x[partner_[j]] * sine_[j];
}

Outcome rotary_embedding_full_width(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H");
  const std::int64_t d = call.parameter("d");
  const RotaryRow empty(d, call.parameter("pairs"), call.parameter("interleaved") != 0);
  for_each_task(call.batch, call.threads, [&] {
    return [&, table = empty](std::int64_t b) mutable {
      const auto x = rows_of(call.input("x"), b);
      const auto y = rows_of(call.output("y"), b);
      for (std::int64_t t = 0; t < call.tokens; ++t) {
        table.set(rows_of(call.input("cosine"), b).row(t), rows_of(call.input("sine"), b).row(t));
        for (std::int64_t h = 0; h < H; ++h) table.turn(x.row(t) + h * d, y.row(t) + h * d);
        round_values(y.row(t), y.row(t), H * d, contract.output);
      }
    };
  });
  return {};
}

}  // namespace samestate::cpu
