#include "optimized/cpu/operators/retnet.h"

#include <cmath>

#include "optimized/cpu/chunked.h"
#include "optimized/cpu/operators/layer_parts.h"

namespace samestate::cpu {
namespace {

float decay_of(std::int64_t h) { return 1.0F - std::ldexp(1.0F, static_cast<int>(-5 - h)); }

/// One head of normalised retention, computed chunk by chunk.
class NormalisedHead {
 public:
  NormalisedHead(const OperatorArguments& call, const Contract& contract)
      : call_(call), contract_(contract), unit_(MatrixUnit::of(contract)) {}

  void run(std::int64_t b, std::int64_t h) {
    const std::int64_t dk = call_.parameter("dk");
    const std::int64_t dv = call_.parameter("dv");
    const std::int64_t chunk = std::min(std::max<std::int64_t>(call_.chunk, 1), call_.tokens);
    powers(decay_of(h), chunk);
    state_.resize(dk, dv);
    std::fill(state_.values.begin(), state_.values.end(), 0.0F);
    float state_scale = 1.0F;
    for (std::int64_t t = 0; t < call_.tokens; t += chunk) {
      const std::int64_t n = std::min(chunk, call_.tokens - t);
      const auto keys = rows_of(call_.input("k"), b).columns(h * dk, dk).rows(t, n);
      copy(rows_of(call_.input("q"), b).columns(h * dk, dk).rows(t, n), q_);
      copy_transposed(keys, k_transposed_);
      copy(rows_of(call_.input("v"), b).columns(h * dv, dv).rows(t, n), v_);
      rows(n, chunk, state_scale);
      store_rounded(o_, rows_of(call_.output("o"), b).columns(h * dv, dv).rows(t, n), contract_.output);
      if (t + n < call_.tokens) state_scale = carry(chunk);
    }
  }

 private:
  /// Computes gamma^n, its running sums and the sums of the rows of D.
  void powers(float gamma, std::int64_t chunk) {
    power_.assign(static_cast<std::size_t>(chunk + 1), 1.0F);
    total_.assign(static_cast<std::size_t>(chunk + 1), 1.0F);
    for (std::size_t i = 1; i < power_.size(); ++i) {
      power_[i] = power_[i - 1] * gamma;
      total_[i] = total_[i - 1] + power_[i];
    }
  }

  void rows(std::int64_t n, std::int64_t chunk, float state_scale) {
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    product_lower(unit_, q_, k_transposed_, scores_);
    scale_.assign(at(n), 1.0F);
    for (std::int64_t i = 0; i < n; ++i) {
      const float inverse = 1.0F / std::sqrt(total_[at(i)]);
      float sum = 0.0F;
      for (std::int64_t j = 0; j <= i; ++j) {
        float& p = scores_.row(i)[j];
        p = p * power_[at(i - j)] * inverse;
        sum += std::fabs(p);
      }
      scale_[at(i)] = std::max(sum, 1.0F);
      std::fill(scores_.row(i) + i + 1, scores_.row(i) + scores_.stride, 0.0F);
    }
    lower_product(unit_, scores_, v_, o_);
    operand_.resize(state_.rows, state_.columns);
    for (std::int64_t i = 0; i < state_.size(); ++i)
      operand_.values[at(i)] = state_.values[at(i)] / state_scale;
    product(unit_, q_, operand_, before_);
    const float last = total_[at(chunk - 1)];
    for (std::int64_t i = 0; i < n; ++i) {
      const float scale = std::max(scale_[at(i)], state_scale);
      const float cross = power_[at(i + 1)] * last / std::sqrt(total_[at(i)]) * state_scale / scale;
      const float inside = 1.0F / scale;
      for (std::int64_t c = 0; c < o_.columns; ++c) {
        o_.row(i)[c] = o_.row(i)[c] * inside + cross * before_.row(i)[c];
      }
      const float norm = layer::inverse_root_mean_square(o_.row(i), o_.columns, 0.0F);
      for (std::int64_t c = 0; c < o_.columns; ++c) o_.row(i)[c] *= norm;
    }
  }

  /// Computes the state after a whole chunk, divided by the decay sum of its last row; returns its scale, the
  /// largest absolute column sum.
  float carry(std::int64_t chunk) {
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    for (std::int64_t j = 0; j < chunk; ++j) {
      const float factor = power_[at(chunk - 1 - j)] / total_[at(chunk - 1)];
      for (std::int64_t c = 0; c < v_.columns; ++c) v_.row(j)[c] *= factor;
    }
    product(unit_, k_transposed_, v_, written_);
    for (std::int64_t i = 0; i < state_.size(); ++i) {
      state_.values[at(i)] = state_.values[at(i)] * power_[at(chunk)] + written_.values[at(i)];
    }
    float scale = 1.0F;
    for (std::int64_t c = 0; c < state_.columns; ++c) {
      float sum = 0.0F;
      for (std::int64_t l = 0; l < state_.rows; ++l) sum += std::fabs(state_.row(l)[c]);
      scale = std::max(scale, sum);
    }
    return scale;
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  MatrixUnit unit_;
  std::vector<float> power_, total_, scale_;
  Block q_, k_transposed_, v_, scores_, o_, before_, written_, state_;
  Block operand_;  ///< the state divided by its scale
};

/// Computes one head of the recurrence.
void recur(const OperatorArguments& call, const Contract& contract, std::int64_t b, std::int64_t h, Block& S,
           std::vector<float>& o) {
  const std::int64_t dk = call.parameter("dk");
  const std::int64_t dv = call.parameter("dv");
  const float gamma = decay_of(h);
  const auto q = rows_of(call.input("q"), b).columns(h * dk, dk);
  const auto k = rows_of(call.input("k"), b).columns(h * dk, dk);
  const auto v = rows_of(call.input("v"), b).columns(h * dv, dv);
  const auto out = rows_of(call.output("o"), b).columns(h * dv, dv);
  copy(rows_of(call.input("S"), b).rows(h * dk, dk), S);
  float s = *rows_of(call.input("s"), b).row(h);
  const float root = std::sqrt(s);
  for (float& x : S.values) x *= root;
  o.assign(static_cast<std::size_t>(dv), 0.0F);
  for (std::int64_t t = 0; t < call.tokens; ++t) {
    std::fill(o.begin(), o.end(), 0.0F);
    for (std::int64_t l = 0; l < dk; ++l) {
      const float key = k.row(t)[l];
      const float query = q.row(t)[l];
      float* row = S.row(l);
      for (std::int64_t c = 0; c < dv; ++c) {
        row[c] = gamma * row[c] + key * v.row(t)[c];
        o[static_cast<std::size_t>(c)] += query * row[c];
      }
    }
    s = gamma * s + 1.0F;
    const float inverse = 1.0F / std::sqrt(s);
    for (float& x : o) x *= inverse;
    round_values(o.data(), out.row(t), dv, contract.output);
  }
  if (call.tokens > 0) {
    const float inverse = 1.0F / std::sqrt(s);
    for (float& x : S.values) x *= inverse;
    store_rounded(S, rows_of(call.output("S"), b).rows(h * dk, dk), contract.state);
  } else {
    const auto before = rows_of(call.input("S"), b).rows(h * dk, dk);
    for (std::int64_t l = 0; l < dk; ++l)
      std::copy_n(before.row(l), dv, rows_of(call.output("S"), b).row(h * dk + l));
  }
  *rows_of(call.output("s"), b).row(h) = s;
}

/// Rotates the interleaved pairs of every head of x by the angles of positions first, first + 1, ...
void turn(Block& x, std::int64_t width, std::int64_t first) {
  const std::int64_t pairs = width / 2;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float exponent = pairs > 1 ? static_cast<float>(i) / static_cast<float>(pairs - 1) : 0.0F;
    const float frequency = std::exp(-exponent * std::log(10000.0F));
    for (std::int64_t t = 0; t < x.rows; ++t) {
      const float angle = static_cast<float>(first + t) * frequency;
      const float cosine = std::cos(angle);
      const float sine = std::sin(angle);
      for (std::int64_t c = 2 * i; c < x.columns; c += width) {
        float* pair = x.row(t) + c;
        const float a = pair[0];
        const float b = pair[1];
        pair[0] = a * cosine - b * sine;
        pair[1] = b * cosine + a * sine;
      }
    }
  }
}

}  // namespace

Outcome normalised_retention_chunks(const OperatorArguments& call, const Contract& contract) {
  if (call.tokens == 0) return {};
  const std::int64_t H = call.parameter("H");
  for_each_task(call.batch * H, call.threads, [&] {
    return [&, head = NormalisedHead(call, contract)](std::int64_t task) mutable {
      head.run(task / H, task % H);
    };
  });
  return {};
}

Outcome normalised_retention_tokens(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t H = call.parameter("H");
  for_each_task(call.batch * H, call.threads, [&] {
    return [&, S = Block{}, o = std::vector<float>{}](std::int64_t task) mutable {
      recur(call, contract, task / H, task % H, S, o);
    };
  });
  return {};
}

Outcome multi_scale_retention_chunks(const OperatorArguments& call, const Contract& contract) {
  const std::int64_t B = call.batch;
  const std::int64_t T = call.tokens;
  const std::int64_t H = call.parameter("H");
  const std::int64_t dk = call.parameter("dk");
  const std::int64_t dv = call.parameter("dv");
  if (dk % 2 != 0) {
    return {Outcome::Kind::unsupported, "dk=" + std::to_string(dk) + ": keys turn in pairs, make it even"};
  }
  const Format kept = layer::kept(contract);
  const MatrixUnit unit = MatrixUnit::of(contract);
  const Block q_proj = layer::transposed(call.input("q_proj"));
  const Block k_proj = layer::transposed(call.input("k_proj"));
  const Block v_proj = layer::transposed(call.input("v_proj"));
  const Block g_proj = layer::transposed(call.input("g_proj"));
  const Block out_proj = layer::transposed(call.input("out_proj"));
  layer::Dense q, k, v, g, o;
  Arguments core;
  const View<float, 4> queries = q.resize<4>({B, T, H, dk});
  const View<float, 4> keys = k.resize<4>({B, T, H, dk});
  const View<float, 4> values = v.resize<4>({B, T, H, dv});
  const View<float, 3> decays = g.resize<3>({B, T, H});
  core.o = o.resize<4>({B, T, H, dv});
  for_each_task(B, call.threads, [&] {
    return [&, x = Block{}, y = Block{}](std::int64_t b) mutable {
      copy(rows_of(call.input("x"), b), x);
      const auto first = static_cast<std::int64_t>(*rows_of(call.input("position"), b).row(0));
      const auto put = [&](const Block& from, float* to, const char* tap) {
        for (std::int64_t t = 0; t < T; ++t) {
          std::copy_n(from.row(t), from.columns, to + t * from.columns);
          layer::hand_out(call, tap, b, t, from.row(t), from.columns);
        }
      };
      project(x, q_proj, y, unit);
      round_in_place(y, kept);
      turn(y, dk, first);
      round_in_place(y, kept);
      put(y, queries.data + b * T * H * dk, "q");
      project(x, k_proj, y, unit);
      round_in_place(y, kept);
      const float root = std::sqrt(static_cast<float>(dk));
      for (float& e : y.values) e /= root;
      turn(y, dk, first);
      round_in_place(y, kept);
      put(y, keys.data + b * T * H * dk, "k");
      project(x, v_proj, y, unit);
      round_in_place(y, kept);
      put(y, values.data + b * T * H * dv, "v");
      for (std::int64_t t = 0; t < T; ++t) {
        for (std::int64_t h = 0; h < H; ++h)
          decays(b, t, h) = std::log1p(-std::ldexp(1.0F, static_cast<int>(-5 - h)));
      }
      *rows_of(call.output("position"), b).row(0) = static_cast<float>(first + T);
    };
  });
  core.q = queries;
  core.k = keys;
  core.v = values;
  core.g = decays;
  core.initial_state = row_major<const float, 4>(call.input("S").data, {B, H, dk, dv});
  core.final_state = row_major<float, 4>(call.output("S").data, {B, H, dk, dv});
  core.chunk = std::max<std::int64_t>(call.chunk, 1);
  core.threads = call.threads;
  // The core's operands are fp32 or those of a tf32 unit: the layer rounds what passes from one part to the
  // next.
  if (Outcome outcome = run_chunked<RETENTION>(core, layer::of_core(contract));
      outcome.kind != Outcome::Kind::ran)
    return outcome;
  for_each_task(B, call.threads, [&] {
    return [&, x = Block{}, gate = Block{}, normed = Block{}, y = Block{}](std::int64_t b) mutable {
      copy(rows_of(call.input("x"), b), x);
      project(x, g_proj, gate, unit);
      round_in_place(gate, kept);
      normed.resize(T, H * dv);
      for (std::int64_t t = 0; t < T; ++t) {
        float* row = normed.row(t);
        round_values(core.o.data + (b * T + t) * H * dv, row, H * dv, kept);
        round_values(row, rows_of(call.output("core"), b).row(t), H * dv, contract.output);
        for (std::int64_t h = 0; h < H; ++h) {
          const float factor = layer::inverse_root_mean_square(row + h * dv, dv, 1e-6F);
          for (std::int64_t c = h * dv; c < (h + 1) * dv; ++c)
            row[c] = row[c] * factor * layer::silu(gate.row(t)[c]);
        }
      }
      round_in_place(normed, kept);
      for (std::int64_t t = 0; t < T; ++t) {
        layer::hand_out(call, "g", b, t, gate.row(t), H * dv);
        layer::hand_out(call, "gated", b, t, normed.row(t), H * dv);
      }
      project(normed, out_proj, y, unit);
      round_in_place(y, kept);
      store_rounded(y, rows_of(call.output("y"), b), contract.output);
    };
  });
  return {};
}

}  // namespace samestate::cpu
