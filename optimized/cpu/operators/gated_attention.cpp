#include "optimized/cpu/operators/gated_attention.h"

#include <array>
#include <cmath>
#include <string>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/norms.h"
#include "optimized/cpu/operators/online_attention.h"
#include "optimized/cpu/operators/rotary_embedding.h"

namespace samestate::cpu {
namespace {

/// Tokens of one task of the projections.
constexpr std::int64_t kTokens = 32;

/// Returns rows of a block as a tensor.
TensorRows<const float> part(const Block& x, std::int64_t first, std::int64_t count, std::int64_t column,
                             std::int64_t width) {
  return {x.row(first) + column, count, width, x.stride};
}

class Layer {
 public:
  Layer(const OperatorArguments& call, const Contract& contract)
      : call_(call),
        contract_(contract),
        T_(call.tokens),
        D_(call.parameter("D")),
        H_(call.parameter("H")),
        Hkv_(call.parameter("Hkv")),
        d_(call.parameter("d")),
        unit_(MatrixUnit::of(contract)) {
    for (Weight& w : weights_) copy_transposed(rows_of(call.input(w.name), 0, false), w.transposed);
    q_.resize(call.batch * T_, H_ * d_);
    gate_.resize(call.batch * T_, H_ * d_);
    k_.resize(call.batch * T_, Hkv_ * d_);
    v_.resize(call.batch * T_, Hkv_ * d_);
    gated_.resize(call.batch * T_, H_ * d_);
  }

  void run() {
    const std::int64_t rows = call_.batch * T_;
    const std::int64_t blocks = (rows + kTokens - 1) / kTokens;
    for_each_task(blocks, call_.threads, [&] {
      return [this, rows, rotary = RotaryRow(d_, call_.parameter("pairs"), false), x = Block{},
              y = Block{}](std::int64_t block) mutable {
        const std::int64_t first = block * kTokens;
        project_in(first, std::min(kTokens, rows - first), rotary, x, y);
      };
    });
    for_each_task(call_.batch * H_, call_.threads, [&] {
      return [this, attention = OnlineAttention{}, o = Block{}](std::int64_t task) mutable {
        attend(task / H_, task % H_, attention, o);
      };
    });
    for_each_task(blocks, call_.threads, [&] {
      return [this, rows, x = Block{}, y = Block{}](std::int64_t block) mutable {
        const std::int64_t first = block * kTokens;
        const std::int64_t n = std::min(kTokens, rows - first);
        copy(part(gated_, first, n, 0, H_ * d_), x);
        project(x, weights_[3].transposed, y, unit_);
        store_rounded(y, {call_.output("out").data + first * D_, n, D_, D_}, contract_.output);
      };
    });
    store_rounded(gated_, {call_.output("gated").data, rows, H_ * d_, H_ * d_}, contract_.output);
    store_rounded(k_, {call_.output("k").data, rows, Hkv_ * d_, Hkv_ * d_}, contract_.output);
    store_rounded(v_, {call_.output("v").data, rows, Hkv_ * d_, Hkv_ * d_}, contract_.output);
  }

 private:
  struct Weight {
    const char* name;
    Block transposed;  ///< [in, out]
  };

  /// Projects the rows [first, first + n) of the batch to q, gate, k and v.
  void project_in(std::int64_t first, std::int64_t n, RotaryRow& rotary, Block& x, Block& y) {
    copy({call_.input("hidden").data + first * D_, n, D_, D_}, x);
    const std::int64_t pairs = call_.parameter("pairs");
    const auto head = [&](const float* from, const float* weight, float* to) {
      std::vector<float> normed(static_cast<std::size_t>(d_));
      normalise_row(from, d_, static_cast<float>(d_), normed.data());
      for (std::int64_t j = 0; j < d_; ++j) normed[static_cast<std::size_t>(j)] *= 1.0F + weight[j];
      rotary.turn(normed.data(), to);
      round_values(to, to, d_, contract_.input);
    };
    project(x, weights_[0].transposed, y, unit_);
    round_in_place(y, contract_.input);
    for (std::int64_t i = 0; i < n; ++i) {
      hand_out("q_gate", first + i, y.row(i), 2 * H_ * d_);
      rotary.set(call_.input("cosine").data + (first + i) * pairs,
                 call_.input("sine").data + (first + i) * pairs);
      for (std::int64_t h = 0; h < H_; ++h) {
        const float* query = y.row(i) + 2 * h * d_;  // the gate of the same head follows
        head(query, call_.input("q_norm").data, q_.row(first + i) + h * d_);
        std::copy_n(query + d_, d_, gate_.row(first + i) + h * d_);
      }
      hand_out("q", first + i, q_.row(first + i), H_ * d_);
    }
    project(x, weights_[1].transposed, y, unit_);
    round_in_place(y, contract_.input);
    for (std::int64_t i = 0; i < n; ++i) {
      hand_out("k_projected", first + i, y.row(i), Hkv_ * d_);
      rotary.set(call_.input("cosine").data + (first + i) * pairs,
                 call_.input("sine").data + (first + i) * pairs);
      for (std::int64_t h = 0; h < Hkv_; ++h)
        head(y.row(i) + h * d_, call_.input("k_norm").data, k_.row(first + i) + h * d_);
    }
    project(x, weights_[2].transposed, y, unit_);
    for (std::int64_t i = 0; i < n; ++i)
      round_values(y.row(i), v_.row(first + i), Hkv_ * d_, contract_.input);
  }

  /// Copies one row of the batch to a tap.
  void hand_out(std::string_view tap, std::int64_t row, const float* values, std::int64_t count,
                std::int64_t column = 0) const {
    layer::hand_out(call_, tap, row / T_, row % T_, values, count, column);
  }

  void attend(std::int64_t b, std::int64_t h, OnlineAttention& attention, Block& o) {
    const std::int64_t key_head = h / (H_ / Hkv_);
    const AttentionHead head{part(q_, b * T_, T_, h * d_, d_),
                             part(k_, b * T_, T_, key_head * d_, d_),
                             part(v_, b * T_, T_, key_head * d_, d_),
                             1.0F / std::sqrt(static_cast<float>(d_)),
                             contract_.P,
                             unit_};
    attention.run(head, call_.chunk, o);
    for (std::int64_t t = 0; t < T_; ++t) {
      hand_out("attended", b * T_ + t, o.row(t), d_, h * d_);
      const float* gate = gate_.row(b * T_ + t) + h * d_;
      float* gated = gated_.row(b * T_ + t) + h * d_;
      for (std::int64_t j = 0; j < d_; ++j) gated[j] = o.row(t)[j] * layer::logistic(gate[j]);
      round_values(gated, gated, d_, contract_.input);
    }
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  std::int64_t T_, D_, H_, Hkv_, d_;
  MatrixUnit unit_;
  std::array<Weight, 4> weights_{{{"q_proj", {}}, {"k_proj", {}}, {"v_proj", {}}, {"o_proj", {}}}};
  Block q_, gate_, k_, v_, gated_;  ///< for all tokens of the batch
};

}  // namespace

Outcome gated_attention_online(const OperatorArguments& call, const Contract& contract) {
  if (call.chunk < 1)
    return {Outcome::Kind::unsupported,
            "chunk=" + std::to_string(call.chunk) + ": a tile holds at least 1 key"};
  Layer(call, contract).run();
  return {};
}

}  // namespace samestate::cpu
