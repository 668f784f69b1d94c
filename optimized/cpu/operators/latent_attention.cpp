#include "optimized/cpu/operators/latent_attention.h"

#include <cmath>

#include "optimized/call.h"
#include "optimized/cpu/operators/layer_parts.h"

namespace samestate::cpu {
namespace {

constexpr float kEpsilon = 1e-6F;
constexpr std::int64_t kTile = 32;  // tokens that a task processes at a time

/// Rotates the pairs (2i, 2i + 1) of each row by the angles given by `cos` and `sin`.
void turn_pairs(float* x, const float* cos, const float* sin, std::int64_t width) {
  for (std::int64_t i = 0; i < width / 2; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

/// Computes x (mean x^2 + epsilon)^-1/2 w in place.
void norm(float* x, const float* weight, std::int64_t width) {
  float squares = 0.0F;
  for (std::int64_t i = 0; i < width; ++i) squares += x[i] * x[i];
  const float inverse = 1.0F / std::sqrt(squares / static_cast<float>(width) + kEpsilon);
  for (std::int64_t i = 0; i < width; ++i) x[i] = x[i] * inverse * weight[i];
}

/// Loads the whole tensor of that name, transposed for project().
void load_weight(const OperatorArguments& call, std::string_view name, Block& to) {
  copy_transposed(rows_of(call.input(name), 0, false), to);
}

/// The tables' rows for token t of sequence b.
struct Angles {
  Angles(const OperatorArguments& call, std::int64_t b)
      : cos(rows_of(call.input("cos"), b)), sin(rows_of(call.input("sin"), b)) {}
  void turn(float* x, std::int64_t t) const { turn_pairs(x, cos.row(t), sin.row(t), 2 * cos.width); }
  TensorRows<const float> cos, sin;
};

std::int64_t tiles_of(std::int64_t tokens) { return (tokens + kTile - 1) / kTile; }

}  // namespace

Outcome latent_cache_fused(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t dc = call.parameter("dc");
  const std::int64_t dr = call.parameter("dr");
  const std::int64_t tiles = tiles_of(call.tokens);
  Block down;
  load_weight(call, "kv_down", down);
  for_each_task(call.batch * tiles, call.threads, [&] {
    return [&, x = Block{}, y = Block{}](std::int64_t task) mutable {
      const std::int64_t b = task / tiles;
      const std::int64_t begin = task % tiles * kTile;
      const std::int64_t n = std::min(kTile, call.tokens - begin);
      copy(rows_of(call.input("x"), b).rows(begin, n), x);
      project(x, down, y, MatrixUnit::of(contract));
      round_in_place(y, contract.input);
      for (std::int64_t i = 0; i < n; ++i) {
        layer::hand_out(call, "projected", b, begin + i, y.row(i), dc + dr);
        norm(y.row(i), call.input("kv_norm").data, dc);
        round_values(y.row(i), rows_of(call.output("c"), b).row(begin + i), dc, contract.output);
        if (dr == 0) continue;
        Angles(call, b).turn(y.row(i) + dc, begin + i);
        round_values(y.row(i) + dc, rows_of(call.output("kr"), b).row(begin + i), dr, contract.output);
      }
    };
  });
  return {};
}

namespace {

/// The weights and caches of the call, arranged once for all heads.
class Absorbed {
 public:
  Absorbed(const OperatorArguments& call, const Contract& contract)
      : call_(call),
        contract_(contract),
        heads_(call.parameter("H")),
        dn_(call.parameter("dn")),
        dr_(call.parameter("dr")),
        dv_(call.parameter("dv")),
        dc_(call.parameter("dc")),
        keys_(call.input("c").extent(1)),
        unit_(MatrixUnit::of(contract)) {}

  [[nodiscard]] std::int64_t keys() const { return keys_; }

  void run() {
    queries_.resize(static_cast<std::size_t>(call_.batch));
    mixed_.resize(static_cast<std::size_t>(call_.batch));
    transposed_keys_.resize(static_cast<std::size_t>(call_.batch));
    values_.resize(static_cast<std::size_t>(call_.batch));
    for_each_task(call_.batch, call_.threads, [&] { return [&](std::int64_t b) { prepare(b); }; });
    for_each_task(call_.batch * heads_, call_.threads, [&] {
      return [&, scratch = Scratch{}](std::int64_t task) mutable {
        head(task / heads_, task % heads_, scratch);
      };
    });
    Block out;
    load_weight(call_, "output", out);
    for_each_task(call_.batch, call_.threads, [&] {
      return [&, y = Block{}](std::int64_t b) mutable {
        project(mixed_[static_cast<std::size_t>(b)], out, y, unit_);
        store_rounded(y, rows_of(call_.output("y"), b), contract_.output);
      };
    });
  }

 private:
  struct Scratch {
    Block up, q, nope, key_up, value_up, latent, tile, scores, mixed, values;
  };

  /// Prepares the input of the queries' projections, compressed if the call has it so, and [c | k^R]
  /// transposed.
  void prepare(std::int64_t b) {
    const auto at = static_cast<std::size_t>(b);
    copy(rows_of(call_.input("x"), b), queries_[at]);
    if (call_.parameter("q_lora") > 0) {
      Block down;
      Block compressed;
      load_weight(call_, "q_down", down);
      project(queries_[at], down, compressed, unit_);
      round_in_place(compressed, contract_.input);
      for (std::int64_t t = 0; t < call_.tokens; ++t) {
        layer::hand_out(call_, "compressed", b, t, compressed.row(t), compressed.columns);
        norm(compressed.row(t), call_.input("q_norm").data, compressed.columns);
      }
      round_in_place(compressed, contract_.input);
      for (std::int64_t t = 0; t < call_.tokens; ++t)
        layer::hand_out(call_, "compressed_normed", b, t, compressed.row(t), compressed.columns);
      queries_[at] = std::move(compressed);
    }
    copy(rows_of(call_.input("c"), b), values_[at]);
    Block& keys = transposed_keys_[at];
    keys.resize(dc_ + dr_, keys_);
    for (std::int64_t s = 0; s < keys_; ++s) {
      for (std::int64_t j = 0; j < dc_; ++j) keys.row(j)[s] = values_[at].row(s)[j];
      if (dr_ == 0) continue;
      const float* rotary = rows_of(call_.input("kr"), b).row(s);
      for (std::int64_t j = 0; j < dr_; ++j) keys.row(dc_ + j)[s] = rotary[j];
    }
    mixed_[at].resize(call_.tokens, heads_ * dv_);
  }

  void head(std::int64_t b, std::int64_t h, Scratch& s) {
    const auto at = static_cast<std::size_t>(b);
    const auto up = rows_of(call_.input("q_up"), 0, false).rows(h * (dn_ + dr_), dn_ + dr_);
    const auto kv_up = rows_of(call_.input("kv_up"), 0, false).rows(h * (dn_ + dv_), dn_ + dv_);
    copy_transposed(up, s.up);
    copy(kv_up.rows(0, dn_), s.key_up);                 // q^N W_UK uses [dn, dc] as it is stored
    copy_transposed(kv_up.rows(dn_, dv_), s.value_up);  // [dc, dv]
    project(queries_[at], s.up, s.q, unit_);
    round_in_place(s.q, contract_.input);
    copy({s.q.values.data(), s.q.rows, dn_, s.q.stride}, s.nope);
    product(unit_, s.nope, s.key_up, s.latent);
    round_in_place(s.latent, contract_.input);
    hand_out("q", b, h, 0, s.q, dn_ + dr_);
    hand_out("q_latent", b, h, 0, s.latent, dc_);
    for (std::int64_t begin = 0; begin < call_.tokens; begin += kTile) {
      queries(b, h, begin, std::min(kTile, call_.tokens - begin), s);
      attend(at, begin, s);
      hand_out("mixed", b, h, begin, s.mixed, dc_);
      product(unit_, s.mixed, s.value_up, s.values);
      round_in_place(s.values, contract_.input);
      hand_out("heads", b, h, begin, s.values, dv_);
      for (std::int64_t i = 0; i < s.values.rows; ++i)
        std::copy_n(s.values.row(i), dv_, mixed_[at].row(begin + i) + h * dv_);
    }
  }

  /// Copies rows of head h, of the tokens from `begin` on, to a tap [B, T, H, width].
  void hand_out(std::string_view tap, std::int64_t b, std::int64_t h, std::int64_t begin, const Block& x,
                std::int64_t width) const {
    for (std::int64_t i = 0; i < x.rows; ++i)
      layer::hand_out(call_, tap, b, begin + i, x.row(i), width, h * width);
  }

  /// Computes rows [begin, begin + n) of the queries [W_UK^T q^N | q^R].
  void queries(std::int64_t b, std::int64_t h, std::int64_t begin, std::int64_t n, Scratch& s) const {
    s.tile.resize(n, dc_ + dr_);
    for (std::int64_t i = 0; i < n; ++i) {
      std::copy_n(s.latent.row(begin + i), dc_, s.tile.row(i));
      if (dr_ == 0) continue;
      float* rotary = s.tile.row(i) + dc_;
      std::copy_n(s.q.row(begin + i) + dn_, dr_, rotary);
      Angles(call_, b).turn(rotary, begin + i);
      round_values(rotary, rotary, dr_, contract_.input);
      layer::hand_out(call_, "q_rotary", b, begin + i, rotary, dr_, h * dr_);
    }
  }

  /// Computes sum_s p_s c_s tile by tile: exponentials are summed and kept as operands, and the division
  /// comes last.
  void attend(std::size_t at, std::int64_t begin, Scratch& s) const {
    const float scale = 1.0F / std::sqrt(static_cast<float>(dn_ + dr_));
    product(unit_, s.tile, transposed_keys_[at], s.scores);
    float sums[kTile];
    for (std::int64_t i = 0; i < s.tile.rows; ++i) {
      float* row = s.scores.row(i);
      const std::int64_t seen = keys_ - call_.tokens + begin + i + 1;
      float largest = row[0] * scale;
      for (std::int64_t j = 0; j < seen; ++j) {
        row[j] *= scale;
        largest = std::max(largest, row[j]);
      }
      float sum = 0.0F;
      for (std::int64_t j = 0; j < seen; ++j) {
        row[j] = std::exp(row[j] - largest);
        sum += row[j];
      }
      sums[i] = sum;
      std::fill(row + seen, row + s.scores.stride, 0.0F);
      round_values(row, row, seen, contract_.input);
    }
    product(unit_, s.scores, values_[at], s.mixed);
    for (std::int64_t i = 0; i < s.tile.rows; ++i) {
      const float inverse = 1.0F / sums[i];
      for (std::int64_t j = 0; j < dc_; ++j) s.mixed.row(i)[j] *= inverse;
    }
    round_in_place(s.mixed, contract_.input);
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  std::int64_t heads_, dn_, dr_, dv_, dc_, keys_;
  MatrixUnit unit_;
  std::vector<Block> queries_, mixed_, transposed_keys_, values_;  // by sequence
};

}  // namespace

Outcome latent_attention_absorbed(const OperatorArguments& call, const Contract& contract) {
  Absorbed absorbed(call, contract);
  if (absorbed.keys() < call.tokens) {
    return {Outcome::Kind::unsupported, "a cache of " + std::to_string(absorbed.keys()) + " tokens for " +
                                            std::to_string(call.tokens) +
                                            " queries; the cache holds the queries' own tokens too"};
  }
  absorbed.run();
  return {};
}

}  // namespace samestate::cpu
