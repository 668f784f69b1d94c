#include "optimized/cpu/operators/channel_gates.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/layout.h"
#include "optimized/cpu/rounding.h"
#include "reference/error.h"

namespace samestate::cpu {
namespace {

enum class ChannelKind { kimi, pair, linear };

/// Tokens of a block within a chunk.
constexpr std::int64_t kSubChunk = 16;

/// Rows of one head, a token each, `stride` elements apart.
struct HeadRows {
  const float* data = nullptr;
  std::int64_t stride = 0;
  [[nodiscard]] const float* row(std::int64_t t) const { return data + t * stride; }
};

/// One head of one sequence.
struct ChannelHead {
  std::int64_t tokens, dk, dv;
  HeadRows q, k, v, g, erase, write;  ///< erase and write of the width of beta, or of b and w
  const float* state;                 ///< [dk, dv]
  float* o;
  std::int64_t o_stride;
  float* last_state;
  float scale;
  bool normalised;
};

/// Evaluates heads; holds their memory.
template <ChannelKind kind>
class ChannelRun {
 public:
  static constexpr bool delta = kind != ChannelKind::linear;

  explicit ChannelRun(const Contract& contract) : contract_(contract) {}

  void begin(const ChannelHead& head) {
    head_ = &head;
    S_.assign(head.state, head.state + head.dk * head.dv);
  }
  void end() const {
    round_values(S_.data(), head_->last_state, head_->dk * head_->dv, contract_.state);
  }

  void by_tokens() {
    const std::int64_t dk = head_->dk, dv = head_->dv;
    load(0, 1);
    u_.resize(size(dv));
    o_.resize(size(dv));
    for (std::int64_t t = 0; t < head_->tokens; ++t) {
      load(t, 1);
      for (std::int64_t l = 0; l < dk; ++l) {
        const float decay = std::exp(g_[size(l)]);
        for (std::int64_t c = 0; c < dv; ++c) S_[size(l * dv + c)] *= decay;
      }
      std::copy_n(z_.begin(), dv, u_.begin());
      if constexpr (delta) {
        for (std::int64_t l = 0; l < dk; ++l) add(-e_[size(l)], S_.data() + l * dv, u_.data(), dv);
      }
      std::fill(o_.begin(), o_.end(), 0.0F);
      for (std::int64_t l = 0; l < dk; ++l) {
        add(k_[size(l)], u_.data(), S_.data() + l * dv, dv);
        add(q_[size(l)], S_.data() + l * dv, o_.data(), dv);
      }
      write_row(t, o_.data());
    }
  }

  void by_chunks(std::int64_t chunk) {
    for (std::int64_t begin = 0; begin < head_->tokens; begin += chunk)
      step(begin, std::min(chunk, head_->tokens - begin));
  }

 private:
  static std::size_t size(std::int64_t n) { return static_cast<std::size_t>(n); }
  static void add(float factor, const float* x, float* to, std::int64_t n) {
    for (std::int64_t c = 0; c < n; ++c) to[c] += factor * x[c];
  }

  /// q and k, normalised where the call asks for it, g, e and z of n tokens.
  void load(std::int64_t begin, std::int64_t n) {
    const std::int64_t dk = head_->dk, dv = head_->dv;
    for (std::vector<float>* x : {&q_, &k_, &g_, &e_}) x->resize(size(n * dk));
    z_.resize(size(n * dv));
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t t = begin + i;
      if (t >= head_->tokens) return;
      normed(head_->q.row(t), q_.data() + i * dk);
      normed(head_->k.row(t), k_.data() + i * dk);
      for (std::int64_t l = 0; l < dk; ++l) g_[size(i * dk + l)] = clamped_decay(head_->g.row(t)[l]);
      for (std::int64_t l = 0; delta && l < dk; ++l)
        e_[size(i * dk + l)] = head_->erase.row(t)[kind == ChannelKind::pair ? l : 0] * k_[size(i * dk + l)];
      for (std::int64_t c = 0; c < dv; ++c) {
        const float v = head_->v.row(t)[c];
        z_[size(i * dv + c)] = delta ? head_->write.row(t)[kind == ChannelKind::pair ? c : 0] * v : v;
      }
    }
  }

  void normed(const float* x, float* to) const {
    float factor = 1.0F;
    if (delta && head_->normalised) {
      float sum = 0.0F;
      for (std::int64_t l = 0; l < head_->dk; ++l) sum += x[l] * x[l];
      factor = 1.0F / std::sqrt(sum + 1e-6F);
    }
    for (std::int64_t l = 0; l < head_->dk; ++l) to[l] = factor * x[l];
  }

  /// sum_l x_il y_jl e^{G_il - G_jl} for j < i, or j <= i if `own`, into `to` [n, n].
  void decayed_products(const std::vector<float>& x, const std::vector<float>& y, std::int64_t n, bool own,
                        std::vector<float>& to) {
    const std::int64_t dk = head_->dk;
    to.assign(size(n * n), 0.0F);
    from_.resize(size(kSubChunk * dk));
    until_.resize(size(n * dk));
    for (std::int64_t first = 0; first < n; first += kSubChunk) {
      const std::int64_t rows = std::min(kSubChunk, n - first);
      const float* const anchor = sums_.data() + first * dk;
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t l = 0; l < dk; ++l)
          from_[size(i * dk + l)] = x[size((first + i) * dk + l)] * std::exp(sums_[size((first + i) * dk + l)] - anchor[l]);
      }
      for (std::int64_t j = 0; j < first; ++j) {
        for (std::int64_t l = 0; l < dk; ++l)
          until_[size(j * dk + l)] = y[size(j * dk + l)] * std::exp(anchor[l] - sums_[size(j * dk + l)]);
      }
      for (std::int64_t i = 0; i < rows; ++i) {
        float* const out = to.data() + (first + i) * n;
        for (std::int64_t j = 0; j < first; ++j) {
          float sum = 0.0F;
          for (std::int64_t l = 0; l < dk; ++l) sum += from_[size(i * dk + l)] * until_[size(j * dk + l)];
          out[j] = sum;
        }
        for (std::int64_t j = first; j < first + i + (own ? 1 : 0); ++j) {
          float sum = 0.0F;
          for (std::int64_t l = 0; l < dk; ++l) {
            const float decay = std::exp(sums_[size((first + i) * dk + l)] - sums_[size(j * dk + l)]);
            sum += x[size((first + i) * dk + l)] * y[size(j * dk + l)] * decay;
          }
          out[j] = sum;
        }
      }
    }
  }

  void step(std::int64_t begin, std::int64_t n) {
    const std::int64_t dk = head_->dk, dv = head_->dv;
    load(begin, n);
    sums_ = g_;
    for (std::int64_t i = dk; i < n * dk; ++i) sums_[size(i)] += sums_[size(i - dk)];
    if constexpr (delta) {
      // V' = T (z - (e o e^G) S) by substitution.
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t l = 0; l < dk; ++l)
          add(-(e_[size(i * dk + l)] * std::exp(sums_[size(i * dk + l)])), S_.data() + l * dv, z_.data() + i * dv, dv);
      }
      decayed_products(e_, k_, n, false, A_);
      for (std::int64_t i = 1; i < n; ++i) {
        for (std::int64_t j = 0; j < i; ++j) add(-A_[size(i * n + j)], z_.data() + j * dv, z_.data() + i * dv, dv);
      }
    }
    decayed_products(q_, k_, n, true, A_);
    o_.resize(size(dv));
    for (std::int64_t i = 0; i < n; ++i) {
      std::fill(o_.begin(), o_.end(), 0.0F);
      for (std::int64_t l = 0; l < dk; ++l)
        add(q_[size(i * dk + l)] * std::exp(sums_[size(i * dk + l)]), S_.data() + l * dv, o_.data(), dv);
      for (std::int64_t j = 0; j <= i; ++j) add(A_[size(i * n + j)], z_.data() + j * dv, o_.data(), dv);
      write_row(begin + i, o_.data());
    }
    const float* const last = sums_.data() + (n - 1) * dk;
    for (std::int64_t l = 0; l < dk; ++l) {
      const float through = std::exp(last[l]);
      float* const row = S_.data() + l * dv;
      for (std::int64_t c = 0; c < dv; ++c) row[c] *= through;
      for (std::int64_t j = 0; j < n; ++j)
        add(k_[size(j * dk + l)] * std::exp(last[l] - sums_[size(j * dk + l)]), z_.data() + j * dv, row, dv);
    }
  }

  void write_row(std::int64_t t, float* o) const {
    for (std::int64_t c = 0; c < head_->dv; ++c) o[c] *= head_->scale;
    round_values(o, head_->o + t * head_->o_stride, head_->dv, contract_.output);
  }

  const Contract& contract_;
  const ChannelHead* head_ = nullptr;
  std::vector<float> S_, q_, k_, g_, e_, z_, u_, o_, sums_, A_, from_, until_;
};

template <ChannelKind kind>
Outcome run_channels(const OperatorArguments& call, const Contract& contract, bool chunks) {
  if (chunks && call.chunk < 1)
    throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
  const std::int64_t Hk = call.parameter("Hk"), Hv = call.parameter("Hv"), T = call.tokens;
  const std::int64_t dk = call.parameter("dk"), dv = call.parameter("dv");
  const auto rows = [&](const char* name, std::int64_t b, std::int64_t h, std::int64_t heads, std::int64_t width) {
    return HeadRows{call.input(name).data + (b * T * heads + h) * width, heads * width};
  };
  for_each_task(call.batch * Hv, call.threads, [&] {
    return [&, run = ChannelRun<kind>(contract)](std::int64_t task) mutable {
      const std::int64_t b = task / Hv, h = task % Hv, of = h / (Hv / Hk);
      ChannelHead head{T, dk, dv, rows("q", b, of, Hk, dk), rows("k", b, of, Hk, dk), rows("v", b, h, Hv, dv),
                       rows("g", b, h, Hv, dk), {}, {}, call.input("state").data + task * dk * dv,
                       call.output("o").data + (b * T * Hv + h) * dv, Hv * dv, call.output("state").data + task * dk * dv,
                       1.0F / std::sqrt(static_cast<float>(dk)), false};
      if constexpr (kind == ChannelKind::kimi) head.erase = head.write = rows("beta", b, h, Hv, 1);
      if constexpr (kind == ChannelKind::pair) {
        head.erase = rows("b", b, h, Hv, dk);
        head.write = rows("w", b, h, Hv, dv);
      }
      if constexpr (kind != ChannelKind::linear) head.normalised = call.parameter("l2norm") != 0;
      run.begin(head);
      chunks ? run.by_chunks(call.chunk) : run.by_tokens();
      run.end();
    };
  });
  return {};
}

}  // namespace

Outcome kimi_delta_attention_recurrent(const OperatorArguments& call, const Contract& contract) {
  return run_channels<ChannelKind::kimi>(call, contract, false);
}
Outcome kimi_delta_attention_chunks(const OperatorArguments& call, const Contract& contract) {
  return run_channels<ChannelKind::kimi>(call, contract, true);
}
Outcome gated_delta_net_2_recurrent(const OperatorArguments& call, const Contract& contract) {
  return run_channels<ChannelKind::pair>(call, contract, false);
}
Outcome gated_delta_net_2_chunks(const OperatorArguments& call, const Contract& contract) {
  return run_channels<ChannelKind::pair>(call, contract, true);
}
Outcome gated_linear_attention_recurrent(const OperatorArguments& call, const Contract& contract) {
  return run_channels<ChannelKind::linear>(call, contract, false);
}
Outcome gated_linear_attention_chunks(const OperatorArguments& call, const Contract& contract) {
  return run_channels<ChannelKind::linear>(call, contract, true);
}

}  // namespace samestate::cpu
