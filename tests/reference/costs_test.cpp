#include "reference/costs.h"

#include <gtest/gtest.h>

#include <limits>

namespace samestate {
namespace {

using namespace costs;

TEST(Counts, AreExactOrAnError) {
  const Count largest = std::numeric_limits<Count>::max();
  EXPECT_EQ(product({}), 1);
  EXPECT_EQ(product({largest, 1, 0}), 0);
  EXPECT_EQ(product({3037000499, 3037000499}), 9223372030926249001);
  EXPECT_THROW((void)product({3037000500, 3037000500}), Error);
  EXPECT_THROW((void)product({largest, 2}), Error);
  EXPECT_THROW((void)product({-1, 2}), Error);
  EXPECT_EQ(sum({largest - 1, 1}), largest);
  EXPECT_THROW((void)sum({largest, 1}), Error);
  EXPECT_THROW((void)sum({1, -1}), Error);
  EXPECT_EQ(quotient(192, 2, "x"), 96);
  EXPECT_THROW((void)quotient(191, 3, "x"), Error);
  EXPECT_THROW((void)quotient(1, 0, "x"), Error);
}

TEST(Counts, AnErrorNamesValueAndRemedy) {
  try {
    (void)chunk_flops({}, 0);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "chunk=0: must be at least 1");
  }
}

TEST(Qwen3NextCosts, WhatTheLedgerCounts) {
  const Qwen3NextConfig c;
  const Qwen3NextParameters p = parameters(c);
  EXPECT_EQ(p.total(), 79674391296);
  EXPECT_EQ(p.layers.active, 3252599552);
  EXPECT_EQ(gated_delta_net_parameters(c), 33718464);
  EXPECT_EQ(gated_attention_parameters(c), 27263488);
  EXPECT_EQ(parameters(mixture(c)).total, 1614809088);
  EXPECT_EQ(state_elements(c), 524288);
  EXPECT_EQ(shape(c).attention_layers, 12);
  EXPECT_EQ(shape(c).rotary_width, 64);
}

TEST(Qwen3NextCosts, OneLayerByHand) {
  // Layer 0 of 1 with interval 1 is attention. W_q [4, 8], W_k and W_v [2, 4], W_o [4, 4], norms 2 + 2 -> 68;
  // router 2 x 4, experts 2 x 3 x 4 x 3, shared 3 x 4 x 5 + 4 -> 144; norms 3 x 4; embeddings 2 x 7 x 4.
  Qwen3NextConfig c;
  c.layers = c.full_attention_interval = 1;
  c.hidden = 4;
  c.attention_heads = 2;
  c.kv_heads = 1;
  c.head_width = 2;
  c.experts = 2;
  c.experts_per_token = 1;
  c.expert_width = 3;
  c.shared_width = 5;
  c.vocabulary = 7;
  EXPECT_EQ(parameters(c).total(), 68 + 144 + 12 + 56);
  EXPECT_EQ(parameters(c).layers.active, 68 + 144 - 36 + 12);
  c.tied_embeddings = true;
  EXPECT_EQ(parameters(c).total(), 68 + 144 + 12 + 28);
}

TEST(Qwen3NextCosts, RefusesWhatDoesNotFit) {
  Qwen3NextConfig c;
  c.value_heads = 24;
  EXPECT_THROW((void)shape(c), Error);
  c = {};
  c.full_attention_interval = 0;
  EXPECT_THROW((void)parameters(c), Error);
  c = {};
  c.experts = 9;
  EXPECT_THROW((void)parameters(c), Error);
}

TEST(DendriticCosts, TheFourTotalsOfTheLedger) {
  DendriticConfig c;
  EXPECT_EQ(parameters(c).total(), 42240384);
  c.gate_per_head = true;
  EXPECT_EQ(parameters(c).total(), 42252928);
  c.convolution_bias = true;
  EXPECT_EQ(parameters(c).total(), 42261120);
  c.gate_per_head = false;
  EXPECT_EQ(parameters(c).total(), 42248576);
}

TEST(DendriticCosts, CachesAndOperations) {
  const DendriticConfig c;
  EXPECT_EQ(state_elements(c), 20971520);
  EXPECT_EQ(convolution_cache_elements(c, 4), 524288);
  EXPECT_EQ(convolution_cache_elements(c, 4, true), 294912);
  const DendriticFlops f = flops_per_token(c);
  EXPECT_EQ(f.projections, 84439040);
  EXPECT_EQ(f.convolutions, 524288);
  EXPECT_EQ(f.recurrence, 73400320);
  EXPECT_EQ(compaction_saving(c), 45875200);
}

TEST(DendriticCosts, WindowsOfTheLedgersTable) {
  struct Row {
    Count d, N, O, w, s;
  };
  for (const Row& row : {Row{256, 2, 64, 160, 96}, Row{256, 3, 64, 128, 64}, Row{256, 8, 128, 144, 16},
                         Row{8, 2, 2, 5, 3}, Row{8, 3, 2, 4, 2}, Row{8, 1, 7, 8, 1}}) {
    DendriticConfig c;
    c.head_width = row.d;
    c.windows = row.N;
    c.overlap = row.O;
    EXPECT_EQ(shape(c).window_width, row.w);
    EXPECT_EQ(shape(c).window_step, row.s);
  }
}

TEST(DendriticCosts, RefusesWhatDoesNotFit) {
  const auto refused = [](auto change) {
    DendriticConfig c;
    change(c);
    EXPECT_THROW((void)shape(c), Error);
  };
  refused([](DendriticConfig& c) { c.windows = 3, c.overlap = 65; });  // 191 is no multiple of 3
  refused([](DendriticConfig& c) { c.overlap = 256; });
  refused([](DendriticConfig& c) { c.overlap = -1; });
  refused([](DendriticConfig& c) { c.routed = 8; });  // 8 branches, 1 shared
  refused([](DendriticConfig& c) { c.windows = 0; });
  refused([](DendriticConfig& c) { c.shared = -1; });
  refused([](DendriticConfig& c) { c.heads = std::numeric_limits<Count>::max() / 2; });
}

TEST(AttentionCosts, CachesByHand) {
  EXPECT_EQ(key_value_cache_per_token({2, 4, 4, 8}), 2 * 2 * 4 * 8);
  EXPECT_EQ(key_value_cache_bytes({2, 4, 2, 8}, 10, 3, 2), 2 * 2 * 2 * 8 * 10 * 3 * 2);
  EXPECT_THROW((void)key_value_cache_per_token({2, 4, 3, 8}), Error);
  EXPECT_THROW((void)key_value_cache_per_token({2, 4, 0, 8}), Error);
  EXPECT_EQ(attention_matrix_elements(2, 8, 1024), 16777216);
  EXPECT_EQ(softmax_attention_flops(3, 2, 4, 5), 2 * 9 * 2 * 9);
  EXPECT_EQ(latent_cache_per_token({}), 576);
  EXPECT_EQ(uncompressed_cache_per_token({}), 32768);
  // 7168 x 1536 + 1536 + 1536 x 24576 + 7168 x 576 + 512 + 512 x 32768 + 16384 x 7168, by bc.
  EXPECT_EQ(parameters(LatentAttentionConfig{}), 187107328);
}

TEST(MixtureCosts, ToyLayerAndDecoder) {
  EXPECT_EQ(parameters(MoEConfig{}).total, 133128);
  EXPECT_EQ(parameters(MoEConfig{}).active, 34056);
  EXPECT_EQ(parameters(MoEDecoderConfig{}).total, 46702792704);
  EXPECT_THROW((void)parameters(MoEConfig{4, 2, 3, 0, 0, false}), Error);
  EXPECT_THROW((void)parameters(MoEConfig{4, 2, 0, 0, 0, false}), Error);
}

TEST(RecurrenceCosts, ChunkByHand) {
  // dk = 2, dv = 3, C = 2: scores 4 x 4 x 2, solve 2 x 1 x 5, within 2 x 4 x 3, state 6 x 2 x 6, decay 6.
  const RecurrenceConfig c{2, 3, 2, 4, 4};
  const ChunkFlops f = chunk_flops(c, 2);
  EXPECT_EQ(f.scores, 32);
  EXPECT_EQ(f.solve, 10);
  EXPECT_EQ(f.within, 24);
  EXPECT_EQ(f.state, 72);
  EXPECT_EQ(f.total(), 144);
  EXPECT_EQ(chunked_flops_per_token(c, 2), 72.0);
  EXPECT_EQ(recurrent_flops_per_token(c), 42);
  EXPECT_EQ(token_bytes(c), 2 * 5 * 2 + 8);
  EXPECT_EQ(chunked_bytes_per_token(c, 1), static_cast<double>(decode_bytes_per_token(c)));
  EXPECT_EQ(chunked_bytes_per_token(c, 2), 28.0 + 24.0);
}

/// The rest of the family, term by term against the gated delta rule: dk = 2, dv = 3, C = 2.
TEST(RecurrenceCosts, OfTheFamilyByHand) {
  const RecurrenceConfig delta = delta_rule(2, 3);
  EXPECT_EQ(recurrent_flops_per_token(delta), 36);    // 42 less the decay
  EXPECT_EQ(chunk_flops(delta, 2).total(), 144 - 6);  // nothing decays
  EXPECT_EQ(token_bytes(delta), 2 * 5 * 2 + 4);       // beta alone
  const RecurrenceConfig decaying = retention(2, 3, 1);
  EXPECT_EQ(recurrent_flops_per_token(decaying), 30);
  EXPECT_EQ(chunk_flops(decaying, 2).total(), 16 + 24 + 48 + 6);  // one score matrix, no solve, no W S
  EXPECT_EQ(token_bytes(decaying), 24);
  EXPECT_EQ(token_bytes(retention(2, 3, 0)), 20);
  const RecurrenceConfig linear = linear_attention(2, 3);
  EXPECT_EQ(recurrent_flops_per_token(linear), 24);
  EXPECT_EQ(chunk_flops(linear, 2).total(), 16 + 24 + 48);
  EXPECT_EQ(decode_bytes_per_token(linear), 48 + 20);
  const RecurrenceConfig normalised = linear_attention(2, 3, true);  // z is a fourth column of the state
  EXPECT_EQ(recurrent_flops_per_token(normalised), 32);
  EXPECT_EQ(chunk_flops(normalised, 2).total(), 16 + 32 + 64);
  EXPECT_EQ(decode_bytes_per_token(normalised), 64 + 20);
}

/// COST-4: 114,688 operations a token of one head of the gated delta rule; COST-23: 7 w dv of 128 virtual
/// heads is 73.4 MFLOP; COST-12: the state of B = 2 is 83.9 MB in fp32, 41.9 MB in 16 bit.
TEST(RecurrenceCosts, AgreeWithTheLedger) {
  EXPECT_EQ(recurrent_flops_per_token(gated_delta_rule(128, 128)), 114688);
  EXPECT_EQ(128 * recurrent_flops_per_token(gated_delta_rule(160, 512)), 73400320);
  EXPECT_EQ(2 * 128 * 4 * state_elements(gated_delta_rule(160, 512)), 83886080);
  EXPECT_EQ(2 * 128 * 2 * state_elements(gated_delta_rule(160, 512)), 41943040);
}

/// Without a shared key the dual is retention with dk = N, dv = P, whose decay a token brings.
TEST(StateSpaceCosts, OneHeadAGroupIsRetention) {
  const StateSpaceConfig c{3, 3, 5, 7, 2, 4, 4};
  const RecurrenceConfig head = retention(7, 5, 1);
  EXPECT_EQ(state_elements(c), 3 * state_elements(head));
  EXPECT_EQ(duality_flops_per_token(c), 3 * recurrent_flops_per_token(head));
  EXPECT_EQ(duality_token_bytes(c), 3 * token_bytes(head));
  for (const Count chunk : {1, 2, 64})
    EXPECT_EQ(duality_chunk_flops(c, chunk).total(), 3 * chunk_flops(head, chunk).total());
}

TEST(StateSpaceCosts, AGroupSharesItsScoresAndKeys) {
  // H = 4, G = 2, P = 3, N = 5, C = 2: scores 2 4 2 5, within 2 4 4 3, state 4 2 60, decay 60.
  const StateSpaceConfig c{4, 2, 3, 5, 2, 4, 4};
  EXPECT_EQ(duality_chunk_flops(c, 2).scores, 80);
  EXPECT_EQ(duality_chunk_flops(c, 2).within, 96);
  EXPECT_EQ(duality_chunk_flops(c, 2).total(), 80 + 96 + 480 + 60);
  EXPECT_EQ(duality_token_bytes(c), 2 * 12 * 2 + 2 * 10 * 2 + 16);
  EXPECT_EQ(duality_state_bytes(c), 2 * 60 * 4);
  EXPECT_THROW((void)state_elements(StateSpaceConfig{4, 3}), Error);
  EXPECT_THROW((void)duality_chunk_flops(c, 0), Error);
}

TEST(RecurrenceCosts, IntensityRisesWithTheChunk) {
  double last = 0.0;
  for (Count chunk = 1; chunk <= 256; chunk *= 2) {
    const double intensity = chunked_intensity({}, chunk);
    EXPECT_GT(intensity, last);
    last = intensity;
  }
}

TEST(RecurrenceCosts, BreakEven) {
  EXPECT_EQ(break_even_length(41943040, 16384), 2560);
  EXPECT_EQ(break_even_length(5, 2), 3);
  EXPECT_EQ(break_even_length(0, 2), 0);
  EXPECT_THROW((void)break_even_length(5, 0), Error);
}

/// D = 2, N = 3: 6 states, 6 operations each; composing costs 3 more for every token but the chunk's first.
TEST(SelectiveScanCosts, ScanByHand) {
  const ScanConfig c{2, 3, 2, 4};
  EXPECT_EQ(scan_flops_per_token(c), 36);
  EXPECT_EQ(scan_chunk_flops(c, 1), 36);
  EXPECT_EQ(scan_chunk_flops(c, 4), 4 * 36 + 3 * 18);
  EXPECT_EQ(scan_token_bytes(c), 2 * (8 + 6));
  EXPECT_EQ(scan_state_bytes(c), 48);
  EXPECT_EQ(state_elements(ScanConfig{1536, 16}), shape(SelectiveScanConfig{}).state);
  EXPECT_THROW((void)scan_chunk_flops(c, 0), Error);
}

TEST(SelectiveScanCosts, SketchAndUpstream) {
  EXPECT_EQ(shape(SelectiveScanConfig{64, 16, 1, 4, true}).selected, 64 + 32);
  EXPECT_EQ(shape(SelectiveScanConfig{768, 16, 2, 4, false}).step_rank, 48);
  EXPECT_EQ(shape(SelectiveScanConfig{768, 16, 2, 4, false}).state, 1536 * 16);
  EXPECT_EQ(scan_depth(1), 0);
  EXPECT_EQ(scan_depth(37), 6);
  EXPECT_EQ(scan_depth(64), 6);
  EXPECT_EQ(scan_depth(65), 7);
  EXPECT_THROW((void)shape(SelectiveScanConfig{0, 16, 1, 4, true}), Error);
}

}  // namespace
}  // namespace samestate
