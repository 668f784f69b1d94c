#include "optimized/cpu/operators/mixture_of_experts.h"

#include <cmath>
#include <numeric>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/routing.h"

namespace samestate::cpu {
namespace {

/// An expert's matrices in the layout of checkpoints.
struct Expert {
  TensorRows<const float> gate, up, down;
};

Expert expert_of(const OperatorArguments& call, std::int64_t i) {
  const std::int64_t D = call.parameter("D");
  const std::int64_t F = call.parameter("F");
  return {rows_of(call.input("gate"), 0, false).rows(i * F, F),
          rows_of(call.input("up"), 0, false).rows(i * F, F),
          rows_of(call.input("down"), 0, false).rows(i * D, D)};
}

/// Applies an expert to a block of tokens.
class ExpertProduct {
 public:
  const Block& operator()(const Expert& expert, const Block& x, const MatrixUnit& unit, Format format) {
    copy_transposed(expert.gate, weight_);
    project(x, weight_, hidden_, unit);
    copy_transposed(expert.up, weight_);
    project(x, weight_, up_, unit);
    for (std::int64_t i = 0; i < hidden_.size(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      hidden_.values[at] *= layer::logistic(hidden_.values[at]) * up_.values[at];
    }
    round_in_place(hidden_, format);
    copy_transposed(expert.down, weight_);
    project(hidden_, weight_, out_, unit);
    round_in_place(out_, format);
    return out_;
  }

  /// Returns the activated rows of the last block.
  [[nodiscard]] const Block& hidden() const { return hidden_; }

 private:
  Block weight_, hidden_, up_, out_;
};

/// Copies the router's choice for a token to the taps.
void hand_out_choice(const OperatorArguments& call, std::int64_t b, std::int64_t t,
                     const TokenRouting& routing) {
  for (std::int64_t r = 0; r < std::ssize(routing.experts()); ++r) {
    const auto number = static_cast<float>(routing.experts()[static_cast<std::size_t>(r)]);
    layer::hand_out(call, "experts", b, t, &number, 1, r);
  }
  layer::hand_out(call, "weights", b, t, routing.weights().data(), std::ssize(routing.weights()));
}

/// The sequence's assignments (token, rank) by expert.
struct Assignments {
  std::vector<std::int64_t> begin;  ///< [N + 1]
  std::vector<std::int64_t> slot;   ///< [T K], token K + rank
  std::vector<float> weight;        ///< [T K] by slot
};

/// `logits(t)` returns those of token t of sequence b.
template <class Logits>
Assignments assign(const OperatorArguments& call, std::int64_t b, Format format, const Logits& logits) {
  const std::int64_t tokens = call.tokens;
  const std::int64_t N = call.parameter("N");
  const std::int64_t K = call.parameter("K");
  const auto slots = static_cast<std::size_t>(tokens * K);
  Assignments a{
      std::vector<std::int64_t>(static_cast<std::size_t>(N) + 1, 0), std::vector<std::int64_t>(slots), {}};
  std::vector<std::int64_t> expert;
  TokenRouting routing(K);
  for (std::int64_t t = 0; t < tokens; ++t) {
    routing.choose(logits(t), N, format);
    hand_out_choice(call, b, t, routing);
    expert.insert(expert.end(), routing.experts().begin(), routing.experts().end());
    a.weight.insert(a.weight.end(), routing.weights().begin(), routing.weights().end());
  }
  for (std::int64_t e : expert) ++a.begin[static_cast<std::size_t>(e) + 1];
  std::partial_sum(a.begin.begin(), a.begin.end(), a.begin.begin());
  std::vector<std::int64_t> next = a.begin;
  for (std::size_t s = 0; s < slots; ++s)
    a.slot[static_cast<std::size_t>(next[static_cast<std::size_t>(expert[s])]++)] =
        static_cast<std::int64_t>(s);
  return a;
}

/// Computes y as the routed sum of sequence b.
void grouped_experts(const OperatorArguments& call, const Contract& contract, const Assignments& a,
                     std::int64_t b, Block& y) {
  const MatrixUnit unit = MatrixUnit::of(contract);
  const std::int64_t D = call.parameter("D");
  const std::int64_t K = call.parameter("K");
  const auto x = rows_of(call.input("x"), b);
  Block z;  // by slot
  z.resize(call.tokens * K, D);
  for_each_task(call.parameter("N"), call.threads, [&] {
    return [&, rows = Block{}, product = ExpertProduct()](std::int64_t i) mutable {
      const std::int64_t first = a.begin[static_cast<std::size_t>(i)];
      const std::int64_t size = a.begin[static_cast<std::size_t>(i) + 1] - first;
      if (size == 0) return;
      const std::int64_t* slots = a.slot.data() + first;
      rows.resize(size, D);
      for (std::int64_t n = 0; n < size; ++n) std::copy_n(x.row(slots[n] / K), D, rows.row(n));
      const Block& out = product(expert_of(call, i), rows, unit, contract.input);
      const std::int64_t F = product.hidden().columns;
      for (std::int64_t n = 0; n < size; ++n) {
        std::copy_n(out.row(n), D, z.row(slots[n]));
        const std::int64_t rank = slots[n] % K;
        layer::hand_out(call, "hidden", b, slots[n] / K, product.hidden().row(n), F, rank * F);
        layer::hand_out(call, "outputs", b, slots[n] / K, out.row(n), D, rank * D);
      }
    };
  });
  y.resize(call.tokens, D);
  for (std::int64_t t = 0; t < call.tokens; ++t) {
    float* sum = y.row(t);
    std::fill(sum, sum + y.stride, 0.0F);
    for (std::int64_t slot = t * K; slot < (t + 1) * K; ++slot) {
      const float weight = a.weight[static_cast<std::size_t>(slot)];
      for (std::int64_t j = 0; j < D; ++j) sum[j] += weight * z.row(slot)[j];
    }
  }
}

/// Computes W x for one token, with W [out, in].
void multiply(const MatrixUnit& unit, const TensorRows<const float>& weight, const float* x,
              std::vector<float>& y) {
  y.resize(static_cast<std::size_t>(weight.count));
  std::vector<float> left, right;
  const auto operand = [&](const float* from, std::vector<float>& to) -> const float* {
    if (keeps_fp32(unit.operand)) return from;
    to.resize(static_cast<std::size_t>(weight.width));
    round_values(from, to.data(), weight.width, unit.operand);
    return to.data();
  };
  x = operand(x, left);
  for (std::int64_t i = 0; i < weight.count; ++i) {
    const float* w = operand(weight.row(i), right);
    float sums[kLanes] = {};
    std::int64_t j = 0;
    for (; j + kLanes <= weight.width; j += kLanes) {
      for (std::int64_t l = 0; l < kLanes; ++l) sums[l] += w[j + l] * x[j + l];
    }
    for (; j < weight.width; ++j) sums[j % kLanes] += w[j] * x[j];
    y[static_cast<std::size_t>(i)] = std::accumulate(std::begin(sums), std::end(sums), 0.0F);
  }
}

}  // namespace

Outcome mixture_of_experts_sorted(const OperatorArguments& call, const Contract& contract) {
  Block y;
  for (std::int64_t b = 0; b < call.batch; ++b) {
    const auto logits = rows_of(call.input("logits"), b);
    const Assignments a = assign(call, b, contract.input, [&](std::int64_t t) { return logits.row(t); });
    grouped_experts(call, contract, a, b, y);
    store_rounded(y, rows_of(call.output("y"), b), contract.output);
  }
  return {};
}

Outcome mixture_of_experts_per_token(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t D = call.parameter("D");
  const MatrixUnit unit = MatrixUnit::of(contract);
  for_each_task(call.batch * call.tokens, call.threads, [&] {
    return [&, routing = TokenRouting(call.parameter("K")), hidden = std::vector<float>(),
            up = std::vector<float>(), out = std::vector<float>()](std::int64_t task) mutable {
      const std::int64_t b = task / call.tokens;
      const std::int64_t t = task % call.tokens;
      const float* x = rows_of(call.input("x"), b).row(t);
      routing.choose(rows_of(call.input("logits"), b).row(t), call.parameter("N"), contract.input);
      hand_out_choice(call, b, t, routing);
      std::vector<float> y(static_cast<std::size_t>(D), 0.0F);
      for (std::size_t r = 0; r < routing.experts().size(); ++r) {
        const Expert expert = expert_of(call, routing.experts()[r]);
        multiply(unit, expert.gate, x, hidden);
        multiply(unit, expert.up, x, up);
        for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] *= layer::logistic(hidden[i]) * up[i];
        round_values(hidden.data(), hidden.data(), std::ssize(hidden), contract.input);
        multiply(unit, expert.down, hidden.data(), out);
        round_values(out.data(), out.data(), D, contract.input);
        const auto rank = static_cast<std::int64_t>(r);
        const std::int64_t F = std::ssize(hidden);
        layer::hand_out(call, "hidden", b, t, hidden.data(), F, rank * F);
        layer::hand_out(call, "outputs", b, t, out.data(), D, rank * D);
        for (std::size_t j = 0; j < y.size(); ++j) y[j] += routing.weights()[r] * out[j];
      }
      round_values(y.data(), rows_of(call.output("y"), b).row(t), D, contract.output);
    };
  });
  return {};
}

Outcome qwen3_next_moe_sorted(const OperatorArguments& call, const Contract& contract) {
  const auto whole = [&](std::string_view name) { return rows_of(call.input(name), 0, false); };
  Block router;
  Block gate;
  copy_transposed(whole("router"), router);
  copy_transposed(whole("shared_gate"), gate);
  const Expert shared{whole("shared_gate_proj"), whole("shared_up"), whole("shared_down")};
  const MatrixUnit unit = MatrixUnit::of(contract);
  ExpertProduct product;
  Block x;
  Block logits;
  Block gates;
  Block y;
  for (std::int64_t b = 0; b < call.batch; ++b) {
    copy(rows_of(call.input("x"), b), x);
    project(x, router, logits, unit);
    round_in_place(logits, contract.input);
    const Assignments a = assign(call, b, contract.input, [&](std::int64_t t) { return logits.row(t); });
    grouped_experts(call, contract, a, b, y);
    project(x, gate, gates, unit);
    round_in_place(gates, contract.input);
    const Block& s = product(shared, x, unit, contract.input);
    for (std::int64_t t = 0; t < call.tokens; ++t) {
      layer::hand_out(call, "logits", b, t, logits.row(t), logits.columns);
      layer::hand_out(call, "shared_hidden", b, t, product.hidden().row(t), product.hidden().columns);
      layer::hand_out(call, "shared", b, t, s.row(t), s.columns);
      layer::hand_out(call, "shared_gate_logit", b, t, gates.row(t), 1);
      const float open = layer::logistic(gates.row(t)[0]);
      for (std::int64_t j = 0; j < y.columns; ++j) y.row(t)[j] += open * s.row(t)[j];
    }
    store_rounded(y, rows_of(call.output("y"), b), contract.output);
  }
  return {};
}

}  // namespace samestate::cpu
