#include "optimized/cpu/backward/gated_attention.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/layer_rows.h"
#include "optimized/cpu/backward/reverse_norm.h"
#include "optimized/cpu/backward/softmax_attention.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/norms.h"
#include "optimized/cpu/operators/rotary_embedding.h"

namespace samestate::cpu {
namespace {

class ReverseGatedLayer {
 public:
  ReverseGatedLayer(const OperatorArguments& call, const Contract& contract)
      : call_(call),
        contract_(contract),
        all_(call, contract),
        H_(call.parameter("H")),
        Hkv_(call.parameter("Hkv")),
        d_(call.parameter("d")),
        pairs_(call.parameter("pairs")),
        hidden_(all_.gathered("hidden")),
        d_out_(all_.gathered("d.out")),
        cosine_(all_.gathered("cosine")),
        sine_(all_.gathered("sine")) {}

  void run() {
    forward();
    // Behind attention.
    all_.write_weight("d.o_proj", d_out_, gated_);
    d_attended_ = all_.reversed(d_out_, "o_proj");
    reverse_gate();
    reverse_attention();
    reverse_heads("q_norm", query_, 2 * d_, H_, d_q_, d_query_);
    reverse_heads("k_norm", key_, d_, Hkv_, d_k_, d_key_);
    all_.write_weight("d.q_proj", d_query_, hidden_);
    all_.write_weight("d.k_proj", d_key_, hidden_);
    all_.write_weight("d.v_proj", d_v_, hidden_);
    Block d_hidden = all_.reversed(d_v_, "v_proj");
    add_kept(d_hidden, all_.reversed(d_key_, "k_proj"), all_.kept());
    add_kept(d_hidden, all_.reversed(d_query_, "q_proj"), Format::fp32);
    all_.scatter("d.hidden", std::move(d_hidden));
  }

 private:
  using SequenceRows = LayerRows::SequenceRows;

  /// The norm of each head and its rotation: the head h of x begins at column h `stride`.
  [[nodiscard]] Block turned_heads(std::string_view norm, const Block& x, std::int64_t stride,
                                   std::int64_t heads) const {
    const View<const float, 1> weight = given<1>(call_, norm);
    std::vector<float> normed(static_cast<std::size_t>(d_));
    RotaryRow rotary(d_, pairs_, false);
    Block y;
    y.resize(all_.rows(), heads * d_);
    for (std::int64_t i = 0; i < all_.rows(); ++i) {
      rotary.set(cosine_.row(i), sine_.row(i));
      for (std::int64_t h = 0; h < heads; ++h) {
        normalise_row(x.row(i) + h * stride, d_, static_cast<float>(d_), normed.data());
        for (std::int64_t j = 0; j < d_; ++j) normed[static_cast<std::size_t>(j)] *= 1.0F + weight(j);
        rotary.turn(normed.data(), y.row(i) + h * d_);
      }
    }
    round_in_place(y, all_.kept());
    return y;
  }

  [[nodiscard]] AttentionHead head_of(const SequenceRows& of, std::int64_t h) const {
    const std::int64_t key_head = h / (H_ / Hkv_);
    return {columns_of<const float>(q_, of.first, of.count, h * d_, d_),
            columns_of<const float>(k_, of.first, of.count, key_head * d_, d_),
            columns_of<const float>(v_, of.first, of.count, key_head * d_, d_),
            1.0F / std::sqrt(static_cast<float>(d_)),
            contract_.P,
            all_.unit()};
  }

  void forward() {
    query_ = all_.projected(hidden_, "q_proj");
    key_ = all_.projected(hidden_, "k_proj");
    v_ = all_.projected(hidden_, "v_proj");
    q_ = turned_heads("q_norm", query_, 2 * d_, H_);
    k_ = turned_heads("k_norm", key_, d_, Hkv_);
    attended_.resize(all_.rows(), H_ * d_);
    gated_.resize(all_.rows(), H_ * d_);
    for_each_task(std::ssize(all_.sequences()) * H_, call_.threads, [&] {
      return [this, attention = OnlineAttention{}, o = Block{}](std::int64_t task) mutable {
        const SequenceRows& of = all_.sequences()[static_cast<std::size_t>(task / H_)];
        const std::int64_t h = task % H_;
        attention.run(head_of(of, h), call_.chunk, o);
        store_rounded(o, columns_of<float>(attended_, of.first, of.count, h * d_, d_), all_.kept());
      };
    });
    for (std::int64_t i = 0; i < all_.rows(); ++i) {
      for (std::int64_t j = 0; j < H_ * d_; ++j)
        gated_.row(i)[j] = attended_.row(i)[j] * layer::logistic(gate(i, j));
    }
    round_in_place(gated_, all_.kept());
  }

  /// The gate of column j of the heads: behind the d columns of its head's query.
  [[nodiscard]] float gate(std::int64_t row, std::int64_t j) const {
    return query_.row(row)[j / d_ * 2 * d_ + d_ + j % d_];
  }

  /// From the cotangent of the gated heads to those of the heads and of the gate.
  void reverse_gate() {
    d_query_.resize(all_.rows(), 2 * H_ * d_);
    for (std::int64_t i = 0; i < all_.rows(); ++i) {
      for (std::int64_t j = 0; j < H_ * d_; ++j) {
        float& d_gated = d_attended_.row(i)[j];
        const float open = layer::logistic(gate(i, j)), shut = layer::logistic(-gate(i, j));
        d_query_.row(i)[j / d_ * 2 * d_ + d_ + j % d_] = d_gated * attended_.row(i)[j] * (open * shut);
        d_gated *= open;
      }
    }
    round_in_place(d_attended_, all_.kept());
  }

  void reverse_attention() {
    d_q_.resize(all_.rows(), H_ * d_);
    d_k_.resize(all_.rows(), Hkv_ * d_);
    d_v_.resize(all_.rows(), Hkv_ * d_);
    const std::int64_t group = H_ / Hkv_;
    for_each_task(std::ssize(all_.sequences()) * Hkv_, call_.threads, [&] {
      return [this, group, reverse = ReverseAttention{}](std::int64_t task) mutable {
        const SequenceRows& of = all_.sequences()[static_cast<std::size_t>(task / Hkv_)];
        const std::int64_t key_head = task % Hkv_;
        reverse.begin(of.count, d_, d_);
        for (std::int64_t h = key_head * group; h < (key_head + 1) * group; ++h)
          reverse.add({head_of(of, h), columns_of<const float>(d_attended_, of.first, of.count, h * d_, d_),
                       columns_of<float>(d_q_, of.first, of.count, h * d_, d_), contract_.P, all_.kept()},
                      call_.chunk);
        scale_block(1.0F / std::sqrt(static_cast<float>(d_)), reverse.d_k());
        store_rounded(reverse.d_k(), columns_of<float>(d_k_, of.first, of.count, key_head * d_, d_),
                      all_.kept());
        store_rounded(reverse.d_v(), columns_of<float>(d_v_, of.first, of.count, key_head * d_, d_),
                      all_.kept());
      };
    });
  }

  /// From dy behind norm and rotation to dx, in columns of x's heads; writes the gradient of the norm's weight.
  void reverse_heads(const std::string& norm, const Block& x, std::int64_t stride, std::int64_t heads,
                     const Block& dy, Block& dx) {
    dx.resize(all_.rows(), heads * stride);
    const View<const float, 1> weight = given<1>(call_, norm);
    ReverseNormRow row(d_);
    RotaryRow rotary(d_, pairs_, false);
    std::vector<float> turned(static_cast<std::size_t>(d_)), back(static_cast<std::size_t>(pairs_)),
        sum(static_cast<std::size_t>(d_), 0.0F);
    for (std::int64_t i = 0; i < all_.rows(); ++i) {
      for (std::int64_t p = 0; p < pairs_; ++p) back[static_cast<std::size_t>(p)] = -sine_.row(i)[p];
      rotary.set(cosine_.row(i), back.data());
      for (std::int64_t h = 0; h < heads; ++h) {
        rotary.turn(dy.row(i) + h * d_, turned.data());
        round_values(turned.data(), turned.data(), d_, all_.kept());
        std::copy_n(x.row(i) + h * stride, d_, row.x.data());
        for (std::size_t j = 0; j < turned.size(); ++j)
          row.dn[j] = turned[j] * (1.0F + weight(static_cast<std::int64_t>(j)));
        reverse_norm(row, d_, static_cast<float>(d_));
        for (std::size_t j = 0; j < turned.size(); ++j) sum[j] += turned[j] * row.n[j];
        round_values(row.dx.data(), dx.row(i) + h * stride, d_, all_.kept());
      }
    }
    round_in_place(dx, all_.kept());
    const View<float, 1> to = view_of<1>(call_.output("d." + norm));
    for (std::int64_t j = 0; j < d_; ++j) to(j) = sum[static_cast<std::size_t>(j)];
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  LayerRows all_;
  std::int64_t H_, Hkv_, d_, pairs_;
  Block hidden_, d_out_, cosine_, sine_;
  Block query_, key_, v_, q_, k_, attended_, gated_;  ///< query_ has the gates too
  Block d_attended_, d_query_, d_q_, d_k_, d_key_, d_v_;
};

}  // namespace

Outcome gated_attention_backward_online(const OperatorArguments& call, const Contract& contract) {
  if (call.chunk < 1)
    return {Outcome::Kind::unsupported,
            "chunk=" + std::to_string(call.chunk) + ": a tile holds at least 1 key"};
  ReverseGatedLayer(call, contract).run();
  return {};
}

}  // namespace samestate::cpu
