#include "optimized/cpu/backward/softmax_attention.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "optimized/call.h"

namespace samestate::cpu {
namespace {

void add_rows(const Block& from, std::int64_t first, Block& to) {
  for (std::int64_t i = 0; i < from.rows; ++i) {
    for (std::int64_t c = 0; c < from.stride; ++c) to.row(first + i)[c] += from.row(i)[c];
  }
}

void clear(Block& x, std::int64_t rows, std::int64_t columns) {
  x.resize(rows, columns);
  std::ranges::fill(x.values, 0.0F);
}

}  // namespace

void ReverseAttention::begin(std::int64_t keys, std::int64_t width, std::int64_t value_width) {
  clear(d_k_, keys, width);
  clear(d_v_, keys, value_width);
}

void ReverseAttention::read_forward(const ReverseHead& head, std::int64_t tile) {
  attention_.run_with_lse(head.forward, tile, o_, lse_);
  round_in_place(o_, head.stored);
  delta_.assign(static_cast<std::size_t>(head.d_o.count), 0.0F);
  for (std::int64_t t = 0; t < head.d_o.count; ++t) {
    for (std::int64_t c = 0; c < head.d_o.width; ++c)
      delta_[static_cast<std::size_t>(t)] += head.d_o.row(t)[c] * o_.row(t)[c];
  }
}

std::int64_t ReverseAttention::seen(const ReverseHead& head, const Tile& tile, std::int64_t i) const {
  const std::int64_t position = head.forward.k.count - head.forward.q.count + tile.first + i;
  return std::clamp<std::int64_t>(position + 1 - tile.begin, 0, tile.end - tile.begin);
}

std::int64_t ReverseAttention::keys_taken(std::int64_t keys, std::int64_t /*tile*/) const { return keys; }

void ReverseAttention::weigh(const ReverseHead& head, const Tile& tile) {
  for (std::int64_t i = 0; i < tile.n; ++i) {
    float *P = P_.row(i), *dS = dS_.row(i);
    const auto query = static_cast<std::size_t>(tile.first + i);
    const std::int64_t count = seen(head, tile, i);
    for (std::int64_t s = 0; s < count; ++s) {
      P[s] = std::exp(P[s] * head.forward.scale - lse_[query]);
      dS[s] = P[s] * (dS[s] - delta_[query]);
    }
    std::fill(P + count, P + P_.stride, 0.0F);
    std::fill(dS + count, dS + dS_.stride, 0.0F);
  }
  round_in_place(P_, head.stored);
  round_in_place(dS_, head.stored);
}

void ReverseAttention::accumulate_values(const ReverseHead& head, const Block& turned, const Tile& tile) {
  product(head.forward.unit, turned, d_out_, product_);
  add_rows(product_, tile.begin, d_v_);
}

void ReverseAttention::accumulate(const ReverseHead& head, const Tile& tile) {
  const MatrixUnit& unit = head.forward.unit;
  product(unit, dS_, k_, product_);
  add_rows(product_, tile.first, d_q_);
  transpose(dS_, turned_);
  product(unit, turned_, q_, product_);
  add_rows(product_, tile.begin, d_k_);
  transpose(P_, turned_);
  accumulate_values(head, turned_, tile);
}

void ReverseAttention::add(const ReverseHead& head, std::int64_t tile) {
  const AttentionHead& x = head.forward;
  read_forward(head, tile);
  clear(d_q_, x.q.count, x.q.width);
  const std::int64_t past = x.k.count - x.q.count;
  const std::int64_t keys = keys_taken(x.k.count, tile);
  for (std::int64_t begin = 0; begin < keys; begin += std::min(tile, keys - begin)) {
    const std::int64_t end = begin + std::min(tile, keys - begin);
    copy(x.k.rows(begin, end - begin), k_);
    transpose(k_, k_transposed_);
    copy_transposed(x.v.rows(begin, end - begin), v_transposed_);
    // No query before the first key of the tile sees any of it.
    for (std::int64_t first = std::max<std::int64_t>(begin - past, 0); first < x.q.count;
         first += OnlineAttention::kQueries) {
      const Tile one{first, std::min(OnlineAttention::kQueries, x.q.count - first), begin, end};
      copy(x.q.rows(one.first, one.n), q_);
      copy(head.d_o.rows(one.first, one.n), d_out_);
      product(x.unit, q_, k_transposed_, P_);
      product(x.unit, d_out_, v_transposed_, dS_);
      weigh(head, one);
      accumulate(head, one);
    }
  }
  scale_block(x.scale, d_q_);
  store_rounded(d_q_, head.d_q, head.output);
}

Outcome softmax_attention_backward_with(const OperatorArguments& call, const Contract& contract,
                                        MakeReverse make) {
  if (call.chunk < 1)
    return {Outcome::Kind::unsupported,
            "chunk=" + std::to_string(call.chunk) + ": a tile holds at least 1 key"};
  const std::int64_t H = call.parameter("H"), Hkv = call.parameter("Hkv"), group = H / Hkv;
  const std::int64_t d = call.parameter("d"), dv = call.parameter("dv");
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  for_each_task(call.batch * Hkv, call.threads, [&] {
    return [&, made = std::shared_ptr<ReverseAttention>(make())](std::int64_t task) {
      ReverseAttention& reverse = *made;
      const std::int64_t b = task / Hkv, key_head = task % Hkv;
      const auto keys = rows_of(call.input("k"), b).columns(key_head * d, d);
      const auto values = rows_of(call.input("v"), b).columns(key_head * dv, dv);
      reverse.begin(keys.count, d, dv);
      for (std::int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
        const AttentionHead forward{rows_of(call.input("q"), b).columns(h * d, d),
                                    keys,
                                    values,
                                    scale,
                                    contract.P,
                                    MatrixUnit::of(contract)};
        reverse.add({forward, rows_of(call.input("d.o"), b).columns(h * dv, dv),
                     rows_of(call.output("d.q"), b).columns(h * d, d), contract.P, contract.output},
                    call.chunk);
      }
      scale_block(scale, reverse.d_k());
      store_rounded(reverse.d_k(), rows_of(call.output("d.k"), b).columns(key_head * d, d), contract.output);
      store_rounded(reverse.d_v(), rows_of(call.output("d.v"), b).columns(key_head * dv, dv),
                    contract.output);
    };
  });
  return {};
}

Outcome softmax_attention_backward_tiles(const OperatorArguments& call, const Contract& contract) {
  return softmax_attention_backward_with(call, contract, [] { return std::make_unique<ReverseAttention>(); });
}

}  // namespace samestate::cpu
