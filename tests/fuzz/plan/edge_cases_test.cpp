#include "fuzz/plan/edge_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "harness/cases/keys.h"
#include "optimized/operator_kernel.h"

namespace samestate {
namespace {

class PlanEdges : public testing::Test {
 protected:
  [[nodiscard]] bool reach(const std::string& kernel, const std::function<bool(const Case&)>& wanted) {
    const auto [edges, fresh] = known_.try_emplace(kernel);
    if (fresh) edges->second = edge_cases_of(table_, table_.row_named(kernel));
    return std::ranges::any_of(edges->second, wanted, &PlannedCase::c);
  }
  [[nodiscard]] static Index of(const Case& c, const char* size) { return size_in(c, size); }

 private:
  const KernelTable table_{kernels(), operator_kernels()};
  std::map<std::string, std::vector<PlannedCase>> known_;
};

// Most of an adversary's bugs that survived needed two or three medium sizes at once.
TEST_F(PlanEdges, OfTheFamilyMeetWidthsAndChunksTogether) {
  for (const char* kernel : {"cpu.gated_delta_rule.chunked", "cpu.retention.chunked"}) {
    EXPECT_TRUE(reach(kernel, [](const Case& c) {
      return c.chunk > 128 && c.T % c.chunk > 64 && c.dk > 128 && c.dv >= 128 && c.l2norm;
    })) << kernel;
    EXPECT_TRUE(reach(kernel, [](const Case& c) {
      return c.chunk > 128 && c.T > 144 && c.dk >= 64 && c.regime == "slow";
    })) << kernel;
    EXPECT_TRUE(reach(kernel, [](const Case& c) {
      return c.dk >= 96 && c.chunk == 128 &&
             std::ranges::any_of(c.lengths, [](Index n) { return n > 256; }) &&
             std::ranges::any_of(c.lengths, [](Index n) { return n > 32 && n < 128; });
    })) << kernel;
    EXPECT_TRUE(reach(kernel, [](const Case& c) {
      return c.T > 4096 && c.T / c.chunk > 64 && c.dk >= 64 && c.dv >= 64;
    })) << kernel;
    for (const HeadMap map : {HeadMap::tiled, HeadMap::interleaved})
      EXPECT_TRUE(reach(kernel, [&](const Case& c) { return c.Hv / c.Hk == 41 && c.heads == map; }));
  }
}

// A second adversary's bugs survived if they needed four or five ordinary settings at once.
TEST_F(PlanEdges, OfTheFamilyMeetAllAtOnce) {
  for (const char* kernel :
       {"cpu.gated_delta_rule.chunked", "cpu.gated_delta_rule.recurrent",
        "cpu.gated_delta_rule.sequence_parallel", "cpu.gated_delta_rule.head_parallel"}) {
    for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
      EXPECT_TRUE(reach(kernel, [&](const Case& c) {
        return c.B > 1 && c.T > 64 && c.Hk > 1 && c.Hv > c.Hk && c.heads == map && c.l2norm &&
               c.lengths.empty();
      })) << kernel;
    }
    EXPECT_TRUE(reach(kernel, [](const Case& c) {
      return std::ssize(c.lengths) > 1 && std::ranges::all_of(c.lengths, [](Index n) { return n == 1; }) &&
             c.Hv > c.Hk && c.dk >= 64 && c.final_state == "in_place";
    })) << kernel;
  }
  EXPECT_TRUE(reach("cpu.gated_delta_rule.sequence_parallel",
                    [](const Case& c) { return c.B > 1 && c.ranks > 8 && c.Hv > c.Hk; }));
}

// Served calls: heads of models, whose maps are too expensive for a case, after a hidden state of few
// channels; a pool of single tokens.
TEST_F(PlanEdges, OfLayersMeetTheHeadsOfModels) {
  EXPECT_TRUE(reach("cpu.gated_attention.online", [](const Case& c) {
    return of(c, "d") == 256 && of(c, "pairs") == 32 && of(c, "H") == 8 * of(c, "Hkv") && c.B > 1;
  }));
  EXPECT_TRUE(reach("cpu.gated_delta_net.chunked", [](const Case& c) {
    return of(c, "dk") == 128 && of(c, "dv") == 128 && of(c, "R") == 2 && c.B > 1;
  }));
  EXPECT_TRUE(reach("cpu.state_space_duality.chunked",
                    [](const Case& c) { return c.chunk == 256 && c.T > 256 && c.B > 1; }));
  EXPECT_TRUE(reach("cpu.gated_delta_step.expanded",
                    [](const Case& c) { return c.law == "pool" && c.T == 1 && of(c, "dk") >= 64; }));
}

TEST_F(PlanEdges, OfOperatorsHaveAllSizesBeyondATile) {
  struct Row {
    const char* kernel;
    std::vector<std::pair<const char*, Index>> above;
    Index tokens = 0;  ///< more than these
  };
  const Row rows[] = {
      {"cpu.gradient_step.delta_rule", {{"dk", 256}, {"dv", 256}}},
      {"cpu.mixture_of_experts.sorted", {{"D", 256}, {"F", 256}}, 1},
      {"cpu.qwen3_next_moe.sorted", {{"D", 256}, {"F", 256}, {"Fs", 256}}, 1},
      {"cpu.gated_delta_net_output.fused", {{"D", 256}, {"Hv", 32}, {"dv", 127}}, 1},
      {"cpu.expert_router.logits_first", {{"D", 64}, {"N", 512}}},
      {"cpu.group_limited_router.ordered",
       {{"D", 4096}, {"N", 255}, {"G", 7}, {"M", 3}, {"K", 7}, {"bias", 0}}},
      {"cpu.activation_gates.branchless", {{"H", 32}}, 4096},
      {"cpu.rms_norm.fused", {{"D", 3}}, 65536},
      {"cpu.rms_norm.fused", {{"H", 32}, {"D", 31}}, 2048},  // more than 65,536 rows
      {"cpu.rotary_embedding.full_width", {{"pairs", 63}}, 1024},
      {"cpu.rotary_embedding.full_width", {{"H", 32}, {"pairs", 32}, {"interleaved", 0}}},
      {"cpu.expert_router.logits_first", {{"N", 8}}, 4096},
      {"cpu.selective_scan.chunked", {{"D", 15}, {"N", 15}}, 2048},
      {"cpu.latent_cache.direct", {{"dc", 511}, {"dr", 63}}, 16},
      {"cpu.softmax_attention.online", {{"d", 191}, {"dv", 127}}, 64},
      {"cpu.selective_scan.chunked", {{"D", 64}, {"N", 128}, {"hold", 0}}, 16},
      {"cpu.selective_scan.chunked", {{"D", 512}, {"N", 64}}},
      {"cpu.linear_attention_bidirectional.state_first", {{"dk", 8}, {"dv", 8}}, 512},
      {"cpu.linear_attention_bidirectional.state_first", {{"dk", 32}, {"dv", 32}}, 256},
      {"cpu.gated_delta_net.chunked", {{"R", 2}, {"dk", 64}, {"dv", 64}}, 64},
      {"cpu.state_space_duality.chunked", {{"P", 64}, {"N", 64}}, 128},
  };
  for (const Row& row : rows) {
    EXPECT_TRUE(reach(row.kernel,
                      [&](const Case& c) {
                        return c.T > row.tokens && c.law.empty() &&
                               std::ranges::all_of(row.above, [&](const auto& size) {
                                 return of(c, size.first) > size.second;
                               });
                      }))
        << row.kernel << " " << row.above.front().first << " above " << row.above.front().second
        << ", more than " << row.tokens << " tokens";
  }
  EXPECT_TRUE(reach("cpu.softmax_attention.online",
                    [](const Case& c) { return c.form == "decode" && c.prefill > 512 && of(c, "d") >= 64; }));
  EXPECT_TRUE(reach("cpu.softmax_attention.online",
                    [](const Case& c) { return c.law == "split" && of(c, "d") >= 64 && c.T > 64; }));
  EXPECT_TRUE(
      reach("cpu.softmax_attention.online", [](const Case& c) { return of(c, "H") / of(c, "Hkv") == 41; }));
}

// Overflow or clipping among the tokens of a chunk is in no pair of a regime and a size.
TEST_F(PlanEdges, EveryRegimeMeetsWholeChunksAndWidths) {
  const KernelTable table(kernels(), operator_kernels());
  for (const Regime* regime : table.row_named("cpu.gated_delta_rule.chunked").system->regimes) {
    const auto has = [&](const std::function<bool(const Case&)>& wanted) {
      return reach("cpu.gated_delta_rule.chunked",
                   [&](const Case& c) { return c.regime == regime->name && c.law.empty() && wanted(c); });
    };
    EXPECT_TRUE(has([](const Case& c) { return c.chunk == 64 && c.T > 128 && c.dk >= 64 && c.Hv > c.Hk; }))
        << regime->name << ": several chunks of a model's width";
    EXPECT_TRUE(has([](const Case& c) { return std::min(c.chunk, c.T) > 64 && !c.l2norm; }))
        << regime->name << ": more than 64 tokens in one chunk";
    EXPECT_TRUE(has([](const Case& c) { return c.form == "packed" && c.dk == 128 && c.dv == 128; }))
        << regime->name << ": packed";
    // A norm is not an integer, and a case whose values are not integers shows nothing in an exact regime.
    EXPECT_TRUE(!regime->exact || !has([](const Case& c) { return c.l2norm; })) << regime->name;
  }
  for (const Regime* regime : table.row_named("cpu.state_space_duality.chunked").system->regimes) {
    EXPECT_TRUE(reach("cpu.state_space_duality.chunked", [&](const Case& c) {
      return c.regime == regime->name && c.chunk == 64 && c.T > 64 && of(c, "P") >= 64 && of(c, "N") >= 64;
    })) << regime->name;
  }
  for (const Regime* regime : table.row_named("cpu.rms_norm.fused").system->regimes) {
    EXPECT_TRUE(reach("cpu.rms_norm.fused", [&](const Case& c) {
      return c.regime == regime->name && of(c, "D") > 4096;
    })) << regime->name;
  }
}

TEST_F(PlanEdges, TokensAreDecodedAcrossATilesEndAndOfModelsHeads) {
  for (const Index seen : {65, 129}) {
    EXPECT_TRUE(reach("cpu.softmax_attention.online", [&](const Case& c) {
      return c.form == "decode" && c.prefill < seen && c.T >= seen;
    })) << seen;
  }
  EXPECT_TRUE(reach("cpu.softmax_attention.online", [](const Case& c) {
    return c.form == "decode" && of(c, "H") == 16 && of(c, "Hkv") == 2 && of(c, "d") == 256;
  }));
}

}  // namespace
}  // namespace samestate
