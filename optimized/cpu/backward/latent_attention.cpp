#include "optimized/cpu/backward/latent_attention.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/layer_rows.h"
#include "optimized/cpu/backward/reverse_norm.h"
#include "optimized/cpu/backward/softmax_attention.h"
#include "optimized/cpu/operators/norms.h"
#include "optimized/cpu/operators/rotary_embedding.h"

namespace samestate::cpu {
namespace {

class ReverseLatentLayer {
 public:
  ReverseLatentLayer(const OperatorArguments& call, const Contract& contract)
      : call_(call),
        contract_(contract),
        all_(call, contract),
        H_(call.parameter("H")),
        dn_(call.parameter("dn")),
        dr_(call.parameter("dr")),
        dv_(call.parameter("dv")),
        compressed_(call.parameter("q_lora") > 0),
        x_(all_.gathered("x")),
        latent_(all_.gathered("c")),
        d_y_(all_.gathered("d.y")) {
    if (dr_ == 0) return;
    rotary_key_ = all_.gathered("kr");
    cosine_ = all_.gathered("cos");
    sine_ = all_.gathered("sin");
  }

  void run() {
    forward();
    all_.write_weight("d.output", d_y_, heads_);
    d_heads_ = all_.reversed(d_y_, "output");
    reverse_attention();
    reverse_cache();
    turn(d_q_, -1.0F);
    all_.write_weight("d.q_up", d_q_, q_input());
    Block d_input = all_.reversed(d_q_, "q_up");
    if (compressed_) {
      reverse_norm_of_queries(d_input);
      all_.write_weight("d.q_down", d_input, x_);
      d_input = all_.reversed(d_input, "q_down");
    }
    all_.scatter("d.x", std::move(d_input));
  }

 private:
  using SequenceRows = LayerRows::SequenceRows;

  [[nodiscard]] std::int64_t key_width() const { return dn_ + dr_; }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(key_width())); }
  /// The input of the query projection.
  [[nodiscard]] const Block& q_input() const { return compressed_ ? normed_ : x_; }

  /// Turns the last columns of every head, or turns them back.
  void turn(Block& q, float direction) const {
    if (dr_ == 0) return;
    RotaryRow rotary(dr_, dr_ / 2, true);
    std::vector<float> turned(static_cast<std::size_t>(dr_)), sine(static_cast<std::size_t>(dr_ / 2));
    for (std::int64_t i = 0; i < q.rows; ++i) {
      for (std::int64_t p = 0; p < dr_ / 2; ++p)
        sine[static_cast<std::size_t>(p)] = direction * sine_.row(i)[p];
      rotary.set(cosine_.row(i), sine.data());
      for (std::int64_t h = 0; h < H_; ++h) {
        float* const columns = q.row(i) + h * key_width() + dn_;
        rotary.turn(columns, turned.data());
        round_values(turned.data(), columns, dr_, all_.kept());
      }
    }
  }

  void forward() {
    if (compressed_) {
      down_ = all_.projected(x_, "q_down");
      const View<const float, 1> weight = given<1>(call_, "q_norm");
      normed_.resize(down_.rows, down_.columns);
      for (std::int64_t i = 0; i < down_.rows; ++i) {
        normalise_row(down_.row(i), down_.columns, static_cast<float>(down_.columns), normed_.row(i));
        for (std::int64_t j = 0; j < down_.columns; ++j) normed_.row(i)[j] *= weight(j);
      }
      round_in_place(normed_, all_.kept());
    }
    q_ = all_.projected(q_input(), "q_up");
    turn(q_, 1.0F);
    // Of each head, the columns of its key and then those of its value.
    const Block up = all_.projected(latent_, "kv_up");
    k_.resize(up.rows, H_ * key_width());
    v_.resize(up.rows, H_ * dv_);
    for (std::int64_t i = 0; i < up.rows; ++i) {
      for (std::int64_t h = 0; h < H_; ++h) {
        const float* const from = up.row(i) + h * (dn_ + dv_);
        float* const key = k_.row(i) + h * key_width();
        std::copy_n(from, dn_, key);
        if (dr_ > 0) std::copy_n(rotary_key_.row(i), dr_, key + dn_);
        std::copy_n(from + dn_, dv_, v_.row(i) + h * dv_);
      }
    }
    heads_.resize(all_.rows(), H_ * dv_);
    for_each_task(std::ssize(all_.sequences()) * H_, call_.threads, [&] {
      return [this, attention = OnlineAttention{}, o = Block{}](std::int64_t task) mutable {
        const SequenceRows& of = all_.sequences()[static_cast<std::size_t>(task / H_)];
        const std::int64_t h = task % H_;
        attention.run(head_of(of, h), call_.chunk, o);
        store_rounded(o, columns_of<float>(heads_, of.first, of.count, h * dv_, dv_), all_.kept());
      };
    });
  }

  [[nodiscard]] AttentionHead head_of(const SequenceRows& of, std::int64_t h) const {
    const std::int64_t width = key_width();
    return {columns_of<const float>(q_, of.first, of.count, h * width, width),
            columns_of<const float>(k_, of.first, of.count, h * width, width),
            columns_of<const float>(v_, of.first, of.count, h * dv_, dv_),
            scale(),
            contract_.P,
            all_.unit()};
  }

  void reverse_attention() {
    d_q_.resize(all_.rows(), H_ * key_width());
    d_k_.resize(all_.rows(), H_ * key_width());
    d_v_.resize(all_.rows(), H_ * dv_);
    for_each_task(std::ssize(all_.sequences()) * H_, call_.threads, [&] {
      return [this, reverse = ReverseAttention{}](std::int64_t task) mutable {
        const SequenceRows& of = all_.sequences()[static_cast<std::size_t>(task / H_)];
        const std::int64_t h = task % H_, width = key_width();
        const auto part = [&](Block& x, std::int64_t columns) {
          return columns_of<float>(x, of.first, of.count, h * columns, columns);
        };
        reverse.begin(of.count, width, dv_);
        reverse.add({head_of(of, h), columns_of<const float>(d_heads_, of.first, of.count, h * dv_, dv_),
                     part(d_q_, width), contract_.P, all_.kept()},
                    call_.chunk);
        scale_block(scale(), reverse.d_k());
        store_rounded(reverse.d_k(), part(d_k_, width), all_.kept());
        store_rounded(reverse.d_v(), part(d_v_, dv_), all_.kept());
      };
    });
  }

  /// From the gradients of keys and values to those of the latent, of the rotary key that all heads share, and of kv_up.
  void reverse_cache() {
    Block d_up, d_rotary;
    d_up.resize(all_.rows(), H_ * (dn_ + dv_));
    d_rotary.resize(all_.rows(), dr_);
    for (std::int64_t i = 0; i < all_.rows(); ++i) {
      for (std::int64_t h = 0; h < H_; ++h) {
        const float* const key = d_k_.row(i) + h * key_width();
        float* const to = d_up.row(i) + h * (dn_ + dv_);
        std::copy_n(key, dn_, to);
        std::copy_n(d_v_.row(i) + h * dv_, dv_, to + dn_);
        for (std::int64_t j = 0; j < dr_; ++j) d_rotary.row(i)[j] += key[dn_ + j];
      }
    }
    all_.write_weight("d.kv_up", d_up, latent_);
    all_.scatter("d.c", all_.reversed(d_up, "kv_up"));
    if (dr_ > 0) all_.scatter("d.kr", std::move(d_rotary));
  }

  /// dy behind the norm becomes dx before it; writes the gradient of the norm's weight.
  void reverse_norm_of_queries(Block& dy) const {
    const View<const float, 1> weight = given<1>(call_, "q_norm");
    const std::int64_t width = down_.columns;
    ReverseNormRow row(width);
    std::vector<float> sum(static_cast<std::size_t>(width), 0.0F);
    for (std::int64_t i = 0; i < dy.rows; ++i) {
      std::copy_n(down_.row(i), width, row.x.data());
      for (std::int64_t j = 0; j < width; ++j) row.dn[ReverseNormRow::size(j)] = dy.row(i)[j] * weight(j);
      reverse_norm(row, width, static_cast<float>(width));
      for (std::int64_t j = 0; j < width; ++j)
        sum[ReverseNormRow::size(j)] += dy.row(i)[j] * row.n[ReverseNormRow::size(j)];
      round_values(row.dx.data(), dy.row(i), width, all_.kept());
    }
    const View<float, 1> to = view_of<1>(call_.output("d.q_norm"));
    for (std::int64_t j = 0; j < width; ++j) to(j) = sum[ReverseNormRow::size(j)];
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  LayerRows all_;
  std::int64_t H_, dn_, dr_, dv_;
  bool compressed_;
  Block x_, latent_, d_y_, rotary_key_, cosine_, sine_;
  Block down_, normed_, q_, k_, v_, heads_;
  Block d_heads_, d_q_, d_k_, d_v_;
};

}  // namespace

Outcome latent_attention_backward_online(const OperatorArguments& call, const Contract& contract) {
  if (call.chunk < 1)
    return {Outcome::Kind::unsupported,
            "chunk=" + std::to_string(call.chunk) + ": a tile holds at least 1 key"};
  ReverseLatentLayer(call, contract).run();
  return {};
}

}  // namespace samestate::cpu
