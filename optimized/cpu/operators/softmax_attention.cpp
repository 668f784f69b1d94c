#include "optimized/cpu/operators/softmax_attention.h"

#include <cmath>
#include <string>

#include "optimized/call.h"
#include "optimized/cpu/operators/online_attention.h"

namespace samestate::cpu {
namespace {

struct HeadSizes {
  explicit HeadSizes(const OperatorArguments& call)
      : H(call.parameter("H")),
        Hkv(call.parameter("Hkv")),
        d(call.parameter("d")),
        dv(call.parameter("dv")) {}
  [[nodiscard]] std::int64_t group() const { return H / Hkv; }
  [[nodiscard]] float scale() const { return 1.0F / std::sqrt(static_cast<float>(d)); }
  std::int64_t H, Hkv, d, dv;
};

using Run = void (OnlineAttention::*)(const AttentionHead&, std::int64_t, Block&);

Outcome tiled(const OperatorArguments& call, const Contract& contract, Run run) {
  const HeadSizes n(call);
  if (call.chunk < 1)
    return {Outcome::Kind::unsupported,
            "chunk=" + std::to_string(call.chunk) + ": a tile holds at least 1 key"};
  for_each_task(call.batch * n.H, call.threads, [&] {
    return [&, attention = OnlineAttention{}, o = Block{}](std::int64_t task) mutable {
      const std::int64_t b = task / n.H;
      const std::int64_t h = task % n.H;
      const std::int64_t key_head = h / n.group();
      const AttentionHead head{rows_of(call.input("q"), b).columns(h * n.d, n.d),
                               rows_of(call.input("k"), b).columns(key_head * n.d, n.d),
                               rows_of(call.input("v"), b).columns(key_head * n.dv, n.dv),
                               n.scale(),
                               contract.P,
                               MatrixUnit::of(contract)};
      (attention.*run)(head, call.chunk, o);
      store_rounded(o, rows_of(call.output("o"), b).columns(h * n.dv, n.dv), contract.output);
    };
  });
  return {};
}

/// Some tokens of all query heads that share one key head.
class Group {
 public:
  static constexpr std::int64_t kTokens = 16;

  Group(const OperatorArguments& call, const Contract& contract)
      : call_(call), contract_(contract), n_(call), unit_(MatrixUnit::of(contract)) {}

  void run(std::int64_t b, std::int64_t key_head) {
    const auto keys = rows_of(call_.input("k"), b).columns(key_head * n_.d, n_.d);
    const auto values = rows_of(call_.input("v"), b).columns(key_head * n_.dv, n_.dv);
    copy_transposed(keys, k_transposed_);
    copy(values, v_);
    const std::int64_t past = keys.count - call_.tokens;
    for (std::int64_t first = 0; first < call_.tokens; first += kTokens) {
      const std::int64_t tokens = std::min(kTokens, call_.tokens - first);
      q_.resize(n_.group() * tokens, n_.d);
      for (std::int64_t i = 0; i < q_.rows; ++i) {
        const std::int64_t head = key_head * n_.group() + i / tokens;
        std::copy_n(rows_of(call_.input("q"), b).row(first + i % tokens) + head * n_.d, n_.d, q_.row(i));
      }
      product(unit_, q_, k_transposed_, scores_);
      for (std::int64_t i = 0; i < q_.rows; ++i) softmax(scores_.row(i), past + first + i % tokens + 1);
      product(unit_, scores_, v_, o_);
      const auto out = rows_of(call_.output("o"), b);
      for (std::int64_t i = 0; i < q_.rows; ++i) {
        const std::int64_t head = key_head * n_.group() + i / tokens;
        round_values(o_.row(i), out.row(first + i % tokens) + head * n_.dv, n_.dv, contract_.output);
      }
    }
  }

 private:
  /// Turns the first `seen` scores into probabilities and sets the others to 0.
  void softmax(float* score, std::int64_t seen) const {
    float largest = -HUGE_VALF;
    for (std::int64_t s = 0; s < seen; ++s) {
      score[s] *= n_.scale();
      largest = std::max(largest, score[s]);
    }
    float sum = 0.0F;
    for (std::int64_t s = 0; s < seen; ++s) {
      score[s] = std::exp(score[s] - largest);
      sum += score[s];
    }
    const float inverse = 1.0F / sum;
    for (std::int64_t s = 0; s < seen; ++s) score[s] *= inverse;
    round_values(score, score, seen, contract_.P);
    std::fill(score + seen, score + scores_.stride, 0.0F);
  }

  const OperatorArguments& call_;
  const Contract& contract_;
  HeadSizes n_;
  MatrixUnit unit_;
  Block q_, k_transposed_, v_, scores_, o_;
};

}  // namespace

Outcome softmax_attention_tiles(const OperatorArguments& call, const Contract& contract) {
  return tiled(call, contract, &OnlineAttention::run);
}

Outcome softmax_attention_split_keys(const OperatorArguments& call, const Contract& contract) {
  return tiled(call, contract, &OnlineAttention::run_merged);
}

Outcome softmax_attention_groups(const OperatorArguments& call, const Contract& contract) {
  const HeadSizes n(call);
  for_each_task(call.batch * n.Hkv, call.threads, [&] {
    return [&, group = Group(call, contract)](std::int64_t task) mutable {
      group.run(task / n.Hkv, task % n.Hkv);
    };
  });
  return {};
}

}  // namespace samestate::cpu
