#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "harness/run/run_case.h"
#include "optimized/cpu/rounding.h"
#include "optimized/operator_kernel.h"

/// Gradients of attention by a plain kernel that is told what to round and where to be wrong: each set of roundings passes
/// under the contract that declares it, and every fault fails.
namespace samestate {
namespace {

using cpu::to_bf16;

enum class Wrong {
  nothing,
  dq_summed_in_bf16,
  delta_left_out,
  scale_twice,
  scale_forgotten,
  group_not_summed,
  not_transposed,
  sees_next_key,
  last_tile_forgotten
};

struct PlainAttention {
  bool stores_o = true;        ///< o is kept in bf16 between the passes
  bool stores_weights = true;  ///< and so are the weights of both passes and dS
  Wrong wrong = Wrong::nothing;

  [[nodiscard]] float weight(float x) const { return stores_weights ? to_bf16(x) : x; }
  void run(const OperatorArguments& call) const;
  void run_head(const OperatorArguments& call, std::int64_t b, std::int64_t h, std::vector<float>& dk,
                std::vector<float>& dv) const;
};

/// Columns of one head of one sequence.
struct Head {
  const float* data;
  std::int64_t stride;
  float operator()(std::int64_t t, std::int64_t c) const { return data[t * stride + c]; }
};

Head head_of(const OperatorArguments& call, std::string_view name, std::int64_t b, std::int64_t first) {
  const NamedTensor<const float>& x = call.input(name);
  return {x.data + b * call.tokens * x.shape.back() + first, x.shape.back()};
}

float inner(const Head& x, std::int64_t i, const Head& y, std::int64_t j, std::int64_t width) {
  float sum = 0.0F;
  for (std::int64_t c = 0; c < width; ++c) sum += x(i, c) * y(j, c);
  return sum;
}

void PlainAttention::run_head(const OperatorArguments& call, std::int64_t b, std::int64_t h,
                              std::vector<float>& dk, std::vector<float>& dv) const {
  const std::int64_t T = call.tokens, d = call.parameter("d"), w = call.parameter("dv");
  const std::int64_t of = h / (call.parameter("H") / call.parameter("Hkv"));
  const Head q = head_of(call, "q", b, h * d), k = head_of(call, "k", b, of * d),
             v = head_of(call, "v", b, of * w), d_o = head_of(call, "d.o", b, h * w);
  const float scale = 1.0F / std::sqrt(static_cast<float>(d));
  const float in_q = wrong == Wrong::scale_twice       ? scale * scale
                     : wrong == Wrong::scale_forgotten ? 1.0F
                                                       : scale;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  std::vector<float> P(at(T * T), 0.0F), dS(at(T * T), 0.0F), score(at(T)), o(at(w)), dq(at(d));
  for (std::int64_t t = 0; t < T; ++t) {
    float largest = -HUGE_VALF, sum = 0.0F, delta = 0.0F;
    for (std::int64_t s = 0; s <= t; ++s) {
      score[at(s)] = scale * inner(q, t, k, s, d);
      largest = std::max(largest, score[at(s)]);
    }
    std::ranges::fill(o, 0.0F);
    for (std::int64_t s = 0; s <= t; ++s) sum += std::exp(score[at(s)] - largest);
    for (std::int64_t s = 0; s <= t; ++s) {
      const float p = weight(std::exp(score[at(s)] - largest) / sum);
      for (std::int64_t c = 0; c < w; ++c) o[at(c)] += p * v(s, c);
    }
    for (std::int64_t c = 0; c < w; ++c) delta += d_o(t, c) * (stores_o ? to_bf16(o[at(c)]) : o[at(c)]);
    if (wrong == Wrong::delta_left_out) delta = 0.0F;
    const float lse = largest + std::log(sum);
    const std::int64_t seen = std::min(T, wrong == Wrong::sees_next_key ? t + 2 : t + 1);
    for (std::int64_t s = 0; s < seen; ++s) {
      if (wrong == Wrong::last_tile_forgotten && s >= T / 4 * 4) continue;
      const float p = std::exp(scale * inner(q, t, k, s, d) - lse);
      P[at(t * T + s)] = weight(p);
      dS[at(t * T + s)] = weight(p * (inner(d_o, t, v, s, w) - delta));
    }
    std::ranges::fill(dq, 0.0F);
    for (std::int64_t s = 0; s < T; ++s) {
      for (std::int64_t c = 0; c < d; ++c) {
        dq[at(c)] += dS[at(t * T + s)] * k(s, c);
        if (wrong == Wrong::dq_summed_in_bf16) dq[at(c)] = to_bf16(dq[at(c)]);
      }
    }
    float* const out = call.output("d.q").data + ((b * T + t) * call.parameter("H") + h) * d;
    for (std::int64_t c = 0; c < d; ++c) out[c] = to_bf16(in_q * dq[at(c)]);
  }
  const bool adds = wrong != Wrong::group_not_summed;
  for (std::int64_t s = 0; s < T; ++s) {
    for (std::int64_t c = 0; c < d; ++c) {
      float sum = 0.0F;
      for (std::int64_t t = 0; t < T; ++t) sum += dS[at(t * T + s)] * q(t, c);
      dk[at(s * d + c)] = (adds ? dk[at(s * d + c)] : 0.0F) + scale * sum;
    }
    for (std::int64_t c = 0; c < w; ++c) {
      float sum = 0.0F;
      for (std::int64_t t = 0; t < T; ++t)
        sum += P[at(wrong == Wrong::not_transposed ? s * T + t : t * T + s)] * d_o(t, c);
      dv[at(s * w + c)] = (adds ? dv[at(s * w + c)] : 0.0F) + sum;
    }
  }
}

void PlainAttention::run(const OperatorArguments& call) const {
  const std::int64_t T = call.tokens, Hkv = call.parameter("Hkv"), group = call.parameter("H") / Hkv;
  const std::int64_t d = call.parameter("d"), w = call.parameter("dv");
  for (std::int64_t b = 0; b < call.batch; ++b) {
    for (std::int64_t of = 0; of < Hkv; ++of) {
      std::vector<float> dk(static_cast<std::size_t>(T * d)), dv(static_cast<std::size_t>(T * w));
      for (std::int64_t h = of * group; h < (of + 1) * group; ++h) run_head(call, b, h, dk, dv);
      for (std::int64_t s = 0; s < T; ++s) {
        std::ranges::transform(dk.begin() + s * d, dk.begin() + (s + 1) * d,
                               call.output("d.k").data + ((b * T + s) * Hkv + of) * d, to_bf16);
        std::ranges::transform(dv.begin() + s * w, dv.begin() + (s + 1) * w,
                               call.output("d.v").data + ((b * T + s) * Hkv + of) * w, to_bf16);
      }
    }
  }
}

constexpr const char* kStoresAll =
    "bf16+attention_backward.dk_of_head:fp32+attention_backward.dv_of_head:fp32";
const std::string kInFp32 = std::string(kStoresAll) +
                            "+attention_backward.P:fp32+attention_backward.dS:fp32+attention_backward.o:fp32"
                            "+softmax_attention.weights:fp32";
const std::string kStoresOAlone = std::string(kStoresAll) +
                                  "+attention_backward.P:fp32+attention_backward.dS:fp32"
                                  "+softmax_attention.weights:fp32";

Judgement judged(const PlainAttention& kernel, const std::string& contract, const std::string& more = "") {
  OperatorKernel row;
  row.name = "plain.softmax_attention.backward.naive";
  row.system = "softmax_attention.backward";
  row.form = "naive";
  row.device = "cpu";
  row.contracts = {contract};
  row.run = [kernel](const OperatorArguments& call, const Contract&) {
    kernel.run(call);
    return Outcome{};
  };
  const std::string line =
      "v1 softmax_attention pass=backward form=naive B=2 T=23 H=4 Hkv=2 d=16 dv=8 contract=" + contract +
      more + " seed=0x7";
  return run_case(parse_case(line), KernelTable({}, std::span<const OperatorKernel>(&row, 1))).judgement;
}

TEST(AttentionGradients, AKernelPassesUnderTheContractThatNamesItsRoundings) {
  for (const std::string more : {"", " cotangents=output", " regime=large", " cotangents=ones"}) {
    const Judgement stored = judged({}, kStoresAll, more);
    EXPECT_EQ(stored.verdict, Verdict::pass) << more << ": " << stored.reason << " " << stored.ratio;
    const Judgement in_fp32 = judged({false, false}, kInFp32, more);
    EXPECT_EQ(in_fp32.verdict, Verdict::pass) << more << ": " << in_fp32.reason << " " << in_fp32.ratio;
    const Judgement o_alone = judged({true, false}, kStoresOAlone, more);
    EXPECT_EQ(o_alone.verdict, Verdict::pass) << more << ": " << o_alone.reason << " " << o_alone.ratio;
    // A contract says where a kernel may round: with all points, one that rounds at few of them passes too.
    EXPECT_EQ(judged({false, false}, "bf16", more).verdict, Verdict::pass) << more;
    EXPECT_EQ(judged({}, "bf16", more).verdict, Verdict::pass) << more;
  }
}

TEST(AttentionGradients, AnOThatIsStoredAlthoughItIsNotDeclaredIsSeen) {
  EXPECT_EQ(judged({true, false}, kInFp32).verdict, Verdict::fail);
  EXPECT_EQ(judged({true, true}, kStoresOAlone).verdict, Verdict::fail);
}

TEST(AttentionGradients, EveryFaultIsSeen) {
  for (const Wrong wrong :
       {Wrong::dq_summed_in_bf16, Wrong::delta_left_out, Wrong::scale_twice, Wrong::scale_forgotten,
        Wrong::group_not_summed, Wrong::not_transposed, Wrong::sees_next_key, Wrong::last_tile_forgotten}) {
    EXPECT_EQ(judged({true, true, wrong}, kStoresAll).verdict, Verdict::fail) << static_cast<int>(wrong);
    EXPECT_EQ(judged({true, true, wrong}, "bf16").verdict, Verdict::fail) << static_cast<int>(wrong);
    EXPECT_EQ(judged({false, false, wrong}, kInFp32).verdict, Verdict::fail) << static_cast<int>(wrong);
  }
}

}  // namespace
}  // namespace samestate
