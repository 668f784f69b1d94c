#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "optimized/cpu/operators/online_attention.h"
#include "optimized/operator_kernel.h"

/// The backward pass of causal softmax attention with grouped queries, as flash attention computes it.
namespace samestate::cpu {

/// Of one query head, what its forward pass leaves, and where its gradients go.
struct ReverseHead {
  AttentionHead forward;
  TensorRows<const float> d_o;   ///< [T, dv]
  TensorRows<float> d_q;         ///< [T, d]
  Format stored = Format::fp32;  ///< of o, P and dS
  Format output = Format::fp32;  ///< of d_q
};

/// The gradients of one key head, over tiles of its keys: P is made again from the scores of a tile and the LSE of the
/// forward pass, which runs first. No more than the scores of one tile and some queries are in memory. The steps are
/// virtual, so that tests can plant faults in them.
class ReverseAttention {
 public:
  virtual ~ReverseAttention() = default;
  /// Begins a key head of `keys` keys.
  void begin(std::int64_t keys, std::int64_t width, std::int64_t value_width);
  /// Writes the gradient of the queries, and adds those of keys and values, in tiles of `tile` keys.
  void add(const ReverseHead& head, std::int64_t tile);
  /// The sums over the query heads so far, [S, d], to be scaled, and [S, dv].
  [[nodiscard]] Block& d_k() { return d_k_; }
  [[nodiscard]] Block& d_v() { return d_v_; }

 protected:
  /// The queries [first, first + n) and the keys [begin, end).
  struct Tile {
    std::int64_t first, n, begin, end;
  };
  /// The LSE, and delta = d_o . o of every query, with o as it is stored.
  virtual void read_forward(const ReverseHead& head, std::int64_t tile);
  /// The number of keys from `begin` on that the query `first + i` sees.
  [[nodiscard]] virtual std::int64_t seen(const ReverseHead& head, const Tile& tile, std::int64_t i) const;
  /// From the scores in P_ and dP in dS_ to P and dS, as they are stored.
  virtual void weigh(const ReverseHead& head, const Tile& tile);
  /// Adds the tile to the three gradients.
  virtual void accumulate(const ReverseHead& head, const Tile& tile);
  /// Adds dv = P^T d_o alone.
  void accumulate_values(const ReverseHead& head, const Block& turned, const Tile& tile);
  /// The number of keys that are taken at all.
  [[nodiscard]] virtual std::int64_t keys_taken(std::int64_t keys, std::int64_t tile) const;

  std::vector<float> lse_, delta_;
  Block o_, d_q_, d_k_, d_v_;
  Block q_, d_out_, k_, k_transposed_, v_transposed_, P_, dS_, turned_, product_;

 private:
  OnlineAttention attention_;
};

/// Tiles of `chunk` keys, in both passes.
[[nodiscard]] Outcome softmax_attention_backward_tiles(const OperatorArguments& call,
                                                       const Contract& contract);

/// The same with the steps of what `make` returns, which is called once a thread.
using MakeReverse = std::unique_ptr<ReverseAttention> (*)();
[[nodiscard]] Outcome softmax_attention_backward_with(const OperatorArguments& call, const Contract& contract,
                                                      MakeReverse make);

}  // namespace samestate::cpu
