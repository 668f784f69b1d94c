/// The decay to a chunk's end from a sum of its own, in addition to the scan's (BOUNDS 5.4); kernels that
/// round less than their contract; products of three tf32 parts (BOUNDS 5.5).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "harness/card/neighbours.h"
#include "harness/run/run_case.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"
#include "oracles/reasons.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

enum class Last {
  of_the_scan,
  of_its_own,
  wrong_by_a_share,  ///< 2 % of what the chunk writes
  one_token_short,   ///< the last token's gate is not in it
};

/// A sum as a tree makes it.
float in_pairs(std::vector<float> x) {
  while (x.size() > 1) {
    std::vector<float> half;
    for (std::size_t i = 0; i < x.size(); i += 2) half.push_back(i + 1 < x.size() ? x[i] + x[i + 1] : x[i]);
    x = half;
  }
  return x.front();
}

/// The chunked form, state first, in fp32 one operation after the other. B = 1, as many key as value heads.
Outcome chunked(const Arguments& a, Last last) {
  const std::int64_t T = a.q.shape[1], H = a.v.shape[2], dk = a.q.shape[3], dv = a.v.shape[3];
  for (std::int64_t h = 0; h < H; ++h) {
    std::vector<float> S(static_cast<std::size_t>(dk * dv), 0.0F);
    const auto s = [&](std::int64_t i, std::int64_t c) -> float& {
      return S[static_cast<std::size_t>(i * dv + c)];
    };
    for (std::int64_t i = 0; i < dk; ++i) {
      for (std::int64_t c = 0; c < dv && a.initial_state.present(); ++c)
        s(i, c) = a.initial_state(0, h, i, c);
    }
    for (std::int64_t begin = 0; begin < T; begin += a.chunk) {
      const std::int64_t L = std::min(a.chunk, T - begin);
      std::vector<float> g, G, scale_to_end;
      float sum = 0.0F;
      for (std::int64_t i = 0; i < L; ++i) {
        g.push_back(std::max(a.g(0, begin + i, h), -128.0F));
        G.push_back(sum += g.back());
      }
      float end = last == Last::of_the_scan ? G.back() : in_pairs(g);
      if (last == Last::one_token_short) end -= g.back();
      const auto dot = [&](const auto& x, std::int64_t i, const auto& y, std::int64_t j) {
        float d = 0.0F;
        for (std::int64_t l = 0; l < dk; ++l) d += x(0, begin + i, h, l) * y(0, begin + j, h, l);
        return d;
      };
      std::vector<std::vector<float>> V(static_cast<std::size_t>(L),
                                        std::vector<float>(static_cast<std::size_t>(dv)));
      for (std::int64_t i = 0; i < L; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const float beta = a.beta(0, begin + i, h);
        for (std::int64_t c = 0; c < dv; ++c) {
          float read = 0.0F;
          for (std::int64_t l = 0; l < dk; ++l) read += a.k(0, begin + i, h, l) * s(l, c);
          V[at][static_cast<std::size_t>(c)] = beta * (a.v(0, begin + i, h, c) - std::exp(G[at]) * read);
        }
        for (std::int64_t j = 0; j < i; ++j) {
          const float A = beta * std::exp(G[at] - G[static_cast<std::size_t>(j)]) * dot(a.k, i, a.k, j);
          for (std::size_t c = 0; c < V[at].size(); ++c) V[at][c] -= A * V[static_cast<std::size_t>(j)][c];
        }
        for (std::int64_t c = 0; c < dv; ++c) {
          float o = 0.0F;
          for (std::int64_t l = 0; l < dk; ++l) o += a.q(0, begin + i, h, l) * s(l, c);
          o *= std::exp(G[at]);
          for (std::int64_t j = 0; j <= i; ++j)
            o += std::exp(G[at] - G[static_cast<std::size_t>(j)]) * dot(a.q, i, a.k, j) *
                 V[static_cast<std::size_t>(j)][static_cast<std::size_t>(c)];
          a.o(0, begin + i, h, c) = a.scale * o;
        }
      }
      const float share = last == Last::wrong_by_a_share ? 1.02F : 1.0F;
      for (float& x : S) x *= std::exp(end);
      for (std::int64_t j = 0; j < L; ++j) {
        const float decay = share * std::exp(end - G[static_cast<std::size_t>(j)]);
        for (std::int64_t l = 0; l < dk; ++l) {
          for (std::int64_t c = 0; c < dv; ++c)
            s(l, c) +=
                a.k(0, begin + j, h, l) * decay * V[static_cast<std::size_t>(j)][static_cast<std::size_t>(c)];
        }
      }
    }
    for (std::int64_t l = 0; l < dk && a.final_state.present(); ++l) {
      for (std::int64_t c = 0; c < dv; ++c) a.final_state(0, h, l, c) = s(l, c);
    }
  }
  return {};
}

Judgement judged(Last last, const char* regime, int seed, int T = 192) {
  const KernelTable table = faulty::planted_table(
      [=](const Kernel&, const Arguments& a, const Contract&) { return chunked(a, last); });
  return run_case(parse_case(
                      fmt::format("v1 gated_delta_rule kernel=planted.gated_delta_rule.chunked chunk=64 T={} "
                                  "dk=16 dv=16 regime={} state=random scale=0.25 seed={}",
                                  T, regime, seed)),
                  table)
      .judgement;
}

// 17 to 105 of the state's limit in two regimes.
TEST(TwoSums, TheLastSumOfAChunkMayBeAnother) {
  for (const char* regime :
       {"normal", "slow", "strong", "plateau", "reset", "measured", "constant_gates", "none"}) {
    for (int seed = 1; seed <= 12; ++seed) {
      for (const Last last : {Last::of_the_scan, Last::of_its_own}) {
        const Judgement j = judged(last, regime, seed, 100 + 31 * (seed % 4));
        EXPECT_EQ(j.verdict, Verdict::pass) << regime << " seed " << seed << ": " << j.gate << " " << j.ratio;
      }
    }
  }
}

TEST(TwoSums, AWrongDecayToTheEndDies) {
  for (const char* regime : {"normal", "slow", "strong", "plateau", "reset"}) {
    for (const Last fault : {Last::wrong_by_a_share, Last::one_token_short}) {
      const Judgement j = judged(fault, regime, 3);
      EXPECT_EQ(j.verdict, Verdict::fail) << regime << ": " << j.ratio << " " << j.reason;
    }
  }
}

const char* const kTwoSumsLine =
    "v1 gated_delta_rule kernel=planted.gated_delta_rule.chunked chunk=64 T=192 dk=64 dv=64 contract={} "
    "regime={} state=random seed=0x5";

Record of_contract(const char* does, const std::string& promised, const char* regime,
                   Trace* trace = nullptr) {
  const Contract& kept = contract_named(does);
  const KernelTable table = faulty::planted_table(
      [&](const Kernel& base, const Arguments& a, const Contract&) { return base.run(a, kept); });
  return run_case(parse_case(fmt::format(fmt::runtime(kTwoSumsLine), promised, regime)), table, 1, trace);
}

TEST(MoreExact, TheFailureNamesTheContractToPasteAndItPasses) {
  for (const char* regime : {"normal", "slow", "positive"}) {
    const Judgement declared = of_contract("bf16_io", "bf16", regime).judgement;
    EXPECT_EQ(declared.verdict, Verdict::fail);
    ASSERT_NE(declared.reason.find(kMoreExact), std::string::npos) << declared.reason;
    const std::size_t at = declared.reason.find("contract=bf16+card:nearest");
    ASSERT_NE(at, std::string::npos) << declared.reason;
    const Judgement pasted = of_contract("bf16_io", "bf16+card:nearest", regime).judgement;
    EXPECT_EQ(pasted.verdict, Verdict::pass) << pasted.reason;
    EXPECT_NE(pasted.reason.find("rounds less than the card declares"), std::string::npos) << pasted.reason;
  }
  // A kernel that rounds more is not more exact, and the judgement does not say so.
  const Judgement coarser = of_contract("bf16_state", "bf16+card:nearest", "slow").judgement;
  EXPECT_EQ(coarser.reason.find("rounds less"), std::string::npos) << coarser.reason;
}

TEST(MoreExact, ReproNamesTheContractThatRoundsNothingBetween) {
  Trace trace;
  const Record record = of_contract("bf16_io", "bf16", "normal", &trace);
  const Resolved r(parse_case(record.line));
  ASSERT_TRUE(is_about_the_contract(r, record.judgement));
  const Neighbours near = neighbours_of(r, trace, 60.0);
  EXPECT_NE(std::ranges::find(near.passes, "bf16_io"), near.passes.end()) << near.text();
}

TEST(ThreeProducts, PassUnderTheirContractAndNotAsFp32NorPlainTf32UnderIt) {
  int fails = 0;
  for (const char* regime : {"normal", "slow", "positive"}) {
    const Judgement right = of_contract("tf32x3", "tf32x3", regime).judgement;
    EXPECT_EQ(right.verdict, Verdict::pass) << regime << ": " << right.ratio << " " << right.reason;
    const Judgement coarse = of_contract("tf32", "tf32x3", regime).judgement;
    EXPECT_EQ(coarse.verdict, Verdict::fail) << regime << ": " << coarse.ratio;
    fails += of_contract("tf32", "fp32", regime).judgement.verdict == Verdict::fail ? 1 : 0;
  }
  EXPECT_EQ(fails, 3);
}

}  // namespace
}  // namespace samestate
