#include "optimized/cpu/backward/gated_attention.h"

#include <cmath>
#include <string>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/call_views.h"
#include "optimized/cpu/backward/reverse_norm.h"
#include "optimized/cpu/backward/softmax_attention.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "optimized/cpu/operators/norms.h"
#include "optimized/cpu/operators/rotary_embedding.h"

namespace samestate::cpu {
namespace {

/// Columns of some rows of a block.
template <class T, class B>
TensorRows<T> columns_of(B& x, std::int64_t first, std::int64_t count, std::int64_t column,
                         std::int64_t width) {
  return {x.row(first) + column, count, width, x.stride};
}

/// A matrix of the call.
Block matrix_of(const OperatorArguments& call, std::string_view name) {
  const View<const float, 2> from = given<2>(call, name);
  Block to;
  to.resize(from.shape[0], from.shape[1]);
  for (std::int64_t i = 0; i < to.rows; ++i) {
    for (std::int64_t j = 0; j < to.columns; ++j) to.row(i)[j] = from(i, j);
  }
  return to;
}

class ReverseGatedLayer {
 public:
  ReverseGatedLayer(const OperatorArguments& call, const Contract& contract)
      : call_(call),
        contract_(contract),
        kept_(layer::kept(contract)),
        H_(call.parameter("H")),
        Hkv_(call.parameter("Hkv")),
        d_(call.parameter("d")),
        pairs_(call.parameter("pairs")),
        unit_(MatrixUnit::of(contract)) {
    for (std::int64_t n = 0; n < sequences_of_call(call); ++n) {
      const Tokens tokens = tokens_of_sequence(call, n);
      sequences_.push_back({n, rows_, tokens.count});
      rows_ += tokens.count;
    }
    hidden_ = gathered("hidden");
    d_out_ = gathered("d.out");
    cosine_ = gathered("cosine");
    sine_ = gathered("sine");
  }

  void run() {
    forward();
    // Behind attention.
    const Block output = matrix_of(call_, "o_proj");
    write_weight("d.o_proj", d_out_, gated_);
    product(unit_, d_out_, output, d_attended_);
    round_in_place(d_attended_, kept_);
    reverse_gate();
    reverse_attention();
    reverse_heads("q_norm", query_, 2 * d_, H_, d_q_, d_query_);
    reverse_heads("k_norm", key_, d_, Hkv_, d_k_, d_key_);
    write_weight("d.q_proj", d_query_, hidden_);
    write_weight("d.k_proj", d_key_, hidden_);
    write_weight("d.v_proj", d_v_, hidden_);
    write_hidden();
  }

 private:
  struct SequenceRows {
    std::int64_t number, first, count;
  };

  /// The tokens of all sequences, one row each.
  [[nodiscard]] Block gathered(std::string_view name) const {
    const View<const float, 3> from = given<3>(call_, name);
    Block to;
    to.resize(rows_, from.shape[2]);
    for (const SequenceRows& of : sequences_) {
      const Tokens tokens = tokens_of_sequence(call_, of.number);
      for (std::int64_t t = 0; t < of.count; ++t) {
        for (std::int64_t c = 0; c < to.columns; ++c)
          to.row(of.first + t)[c] = from(tokens.batch, tokens.begin + t, c);
      }
    }
    return to;
  }

  /// hidden W^T, as it is kept.
  [[nodiscard]] Block projected(std::string_view name) const {
    Block weight = matrix_of(call_, name), turned, y;
    transpose(weight, turned);
    product(unit_, hidden_, turned, y);
    round_in_place(y, kept_);
    return y;
  }

  /// The norm of each head and its rotation: the head h of x begins at column h `stride`.
  [[nodiscard]] Block turned_heads(std::string_view norm, const Block& x, std::int64_t stride,
                                   std::int64_t heads) const {
    const View<const float, 1> weight = given<1>(call_, norm);
    std::vector<float> normed(static_cast<std::size_t>(d_));
    RotaryRow rotary(d_, pairs_, false);
    Block y;
    y.resize(rows_, heads * d_);
    for (std::int64_t i = 0; i < rows_; ++i) {
      rotary.set(cosine_.row(i), sine_.row(i));
      for (std::int64_t h = 0; h < heads; ++h) {
        normalise_row(x.row(i) + h * stride, d_, static_cast<float>(d_), normed.data());
        for (std::int64_t j = 0; j < d_; ++j) normed[static_cast<std::size_t>(j)] *= 1.0F + weight(j);
        rotary.turn(normed.data(), y.row(i) + h * d_);
      }
    }
    round_in_place(y, kept_);
    return y;
  }

  [[nodiscard]] AttentionHead head_of(const SequenceRows& of, std::int64_t h) const {
    const std::int64_t key_head = h / (H_ / Hkv_);
    return {columns_of<const float>(q_, of.first, of.count, h * d_, d_),
            columns_of<const float>(k_, of.first, of.count, key_head * d_, d_),
            columns_of<const float>(v_, of.first, of.count, key_head * d_, d_),
            1.0F / std::sqrt(static_cast<float>(d_)),
            contract_.P,
            unit_};
  }

  void forward() {
    query_ = projected("q_proj");
    key_ = projected("k_proj");
    v_ = projected("v_proj");
    q_ = turned_heads("q_norm", query_, 2 * d_, H_);
    k_ = turned_heads("k_norm", key_, d_, Hkv_);
    attended_.resize(rows_, H_ * d_);
    gated_.resize(rows_, H_ * d_);
    for_each_task(std::ssize(sequences_) * H_, call_.threads, [&] {
      return [this, attention = OnlineAttention{}, o = Block{}](std::int64_t task) mutable {
        const SequenceRows& of = sequences_[static_cast<std::size_t>(task / H_)];
        const std::int64_t h = task % H_;
        attention.run(head_of(of, h), call_.chunk, o);
        store_rounded(o, columns_of<float>(attended_, of.first, of.count, h * d_, d_), kept_);
      };
    });
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < H_ * d_; ++j)
        gated_.row(i)[j] = attended_.row(i)[j] * layer::logistic(gate(i, j));
    }
    round_in_place(gated_, kept_);
  }

  /// The gate of column j of the heads: behind the d columns of its head's query.
  [[nodiscard]] float gate(std::int64_t row, std::int64_t j) const {
    return query_.row(row)[j / d_ * 2 * d_ + d_ + j % d_];
  }

  /// From the cotangent of the gated heads to those of the heads and of the gate.
  void reverse_gate() {
    d_query_.resize(rows_, 2 * H_ * d_);
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < H_ * d_; ++j) {
        float& d_gated = d_attended_.row(i)[j];
        const float open = layer::logistic(gate(i, j)), shut = layer::logistic(-gate(i, j));
        d_query_.row(i)[j / d_ * 2 * d_ + d_ + j % d_] = d_gated * attended_.row(i)[j] * (open * shut);
        d_gated *= open;
      }
    }
    round_in_place(d_attended_, kept_);
  }

  void reverse_attention() {
    d_q_.resize(rows_, H_ * d_);
    d_k_.resize(rows_, Hkv_ * d_);
    d_v_.resize(rows_, Hkv_ * d_);
    const std::int64_t group = H_ / Hkv_;
    for_each_task(std::ssize(sequences_) * Hkv_, call_.threads, [&] {
      return [this, group, reverse = ReverseAttention{}](std::int64_t task) mutable {
        const SequenceRows& of = sequences_[static_cast<std::size_t>(task / Hkv_)];
        const std::int64_t key_head = task % Hkv_;
        reverse.begin(of.count, d_, d_);
        for (std::int64_t h = key_head * group; h < (key_head + 1) * group; ++h)
          reverse.add({head_of(of, h), columns_of<const float>(d_attended_, of.first, of.count, h * d_, d_),
                       columns_of<float>(d_q_, of.first, of.count, h * d_, d_), contract_.P, kept_},
                      call_.chunk);
        scale_block(1.0F / std::sqrt(static_cast<float>(d_)), reverse.d_k());
        store_rounded(reverse.d_k(), columns_of<float>(d_k_, of.first, of.count, key_head * d_, d_), kept_);
        store_rounded(reverse.d_v(), columns_of<float>(d_v_, of.first, of.count, key_head * d_, d_), kept_);
      };
    });
  }

  /// From dy behind norm and rotation to dx, in columns of x's heads; writes the gradient of the norm's weight.
  void reverse_heads(const std::string& norm, const Block& x, std::int64_t stride, std::int64_t heads,
                     const Block& dy, Block& dx) {
    dx.resize(rows_, heads * stride);
    const View<const float, 1> weight = given<1>(call_, norm);
    ReverseNormRow row(d_);
    RotaryRow rotary(d_, pairs_, false);
    std::vector<float> turned(static_cast<std::size_t>(d_)), back(static_cast<std::size_t>(pairs_)),
        sum(static_cast<std::size_t>(d_), 0.0F);
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t p = 0; p < pairs_; ++p) back[static_cast<std::size_t>(p)] = -sine_.row(i)[p];
      rotary.set(cosine_.row(i), back.data());
      for (std::int64_t h = 0; h < heads; ++h) {
        rotary.turn(dy.row(i) + h * d_, turned.data());
        round_values(turned.data(), turned.data(), d_, kept_);
        std::copy_n(x.row(i) + h * stride, d_, row.x.data());
        for (std::size_t j = 0; j < turned.size(); ++j)
          row.dn[j] = turned[j] * (1.0F + weight(static_cast<std::int64_t>(j)));
        reverse_norm(row, d_, static_cast<float>(d_));
        for (std::size_t j = 0; j < turned.size(); ++j) sum[j] += turned[j] * row.n[j];
        round_values(row.dx.data(), dx.row(i) + h * stride, d_, kept_);
      }
    }
    round_in_place(dx, kept_);
    const View<float, 1> to = view_of<1>(call_.output("d." + norm));
    for (std::int64_t j = 0; j < d_; ++j) to(j) = sum[static_cast<std::size_t>(j)];
  }

  /// dy^T x.
  void write_weight(std::string_view name, const Block& dy, const Block& x) const {
    Block turned, sums;
    transpose(dy, turned);
    product(unit_, turned, x, sums);
    round_in_place(sums, contract_.output);
    const View<float, 2> to = view_of<2>(call_.output(name));
    for (std::int64_t i = 0; i < sums.rows; ++i) {
      for (std::int64_t j = 0; j < sums.columns; ++j) to(i, j) = sums.row(i)[j];
    }
  }

  void write_hidden() const {
    Block of_query, of_key, of_value;
    product(unit_, d_query_, matrix_of(call_, "q_proj"), of_query);
    product(unit_, d_key_, matrix_of(call_, "k_proj"), of_key);
    product(unit_, d_v_, matrix_of(call_, "v_proj"), of_value);
    for (Block* x : {&of_query, &of_key, &of_value}) round_in_place(*x, kept_);
    for (std::int64_t i = 0; i < of_key.size(); ++i)
      of_value.values[static_cast<std::size_t>(i)] += of_key.values[static_cast<std::size_t>(i)];
    round_in_place(of_value, kept_);
    for (std::int64_t i = 0; i < of_query.size(); ++i)
      of_query.values[static_cast<std::size_t>(i)] += of_value.values[static_cast<std::size_t>(i)];
    round_in_place(of_query, contract_.output);
    const View<float, 3> to = view_of<3>(call_.output("d.hidden"));
    for (const SequenceRows& of : sequences_) {
      const Tokens tokens = tokens_of_sequence(call_, of.number);
      for (std::int64_t t = 0; t < of.count; ++t) {
        for (std::int64_t c = 0; c < of_query.columns; ++c)
          to(tokens.batch, tokens.begin + t, c) = of_query.row(of.first + t)[c];
      }
    }
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  Format kept_;
  std::int64_t H_, Hkv_, d_, pairs_, rows_ = 0;
  MatrixUnit unit_;
  std::vector<SequenceRows> sequences_;
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
