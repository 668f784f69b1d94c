#include "reference/costs/call.h"

#include <gtest/gtest.h>

namespace samestate::costs {
namespace {

CallConfig qwen3_next(Count tokens) {
  CallConfig c;
  c.lengths = {tokens};
  c.initial_state = true;
  return c;
}

/// 24,832 T + 4.19 MB of the gated delta rule at the heads of Qwen3-Next, bf16 with an fp32 state, and
/// 163,840 operations a token and head in chunks of 64, less what a triangular solve saves over a product.
TEST(CallCosts, QwenThreeNextByHand) {
  EXPECT_EQ(call_bytes(qwen3_next(8192)), 24832 * 8192 + 8 * 32 * 128 * 128);
  EXPECT_EQ(
      call_flops(qwen3_next(8192), 64),
      Count{32} * 128 * (4 * 64 * 64 * 128 + 64 * 63 * 256 + 2 * 64 * 64 * 128 + 6 * 64 * 16384 + 16384));
  EXPECT_NEAR(static_cast<double>(call_flops(qwen3_next(8192), 64)) / (32.0 * 8192.0), 163840.0, 200.0);
}

TEST(CallCosts, DecodeIsTheStateReadAndWritten) {
  CallConfig c = qwen3_next(1);
  c.lengths.assign(64, 1);
  EXPECT_EQ(call_bytes(c), 64 * (24832 + 8 * 32 * 128 * 128));
  EXPECT_EQ(call_flops(c, 0), 64 * 32 * 7 * 128 * 128);
  c.initial_state = false;
  EXPECT_EQ(call_bytes(c), 64 * (24832 + 4 * 32 * 128 * 128));
}

/// dk = 2, dv = 3, one key head, two value heads, 5 tokens in chunks of 2, fp32: every term by hand.
TEST(CallCosts, EachSystemByHand) {
  CallConfig c;
  c.head = {2, 3, 4};
  c.output_bytes = 4;
  c.key_heads = 1, c.value_heads = 2;
  c.lengths = {5};
  const Count tensors = 5 * (2 * 2 + 6 + 6) * 4;
  EXPECT_EQ(call_bytes(c), tensors + 5 * 2 * 2 * 4 + 2 * 6 * 4);
  c.head.gates = 1;
  EXPECT_EQ(call_bytes(c), tensors + 5 * 2 * 4 + 2 * 6 * 4);
  c.head.gates = 0;
  EXPECT_EQ(call_bytes(c), tensors + 2 * 6 * 4);
  // Two whole chunks and one of a single token: of the gated delta rule 144 each (ChunkByHand), and
  // 8 + 0 + 6 + 36 + 6.
  EXPECT_EQ(call_flops(c, 2), 2 * (144 + 144 + 56));
  c.head.delta = false, c.head.decay = false;
  EXPECT_EQ(call_flops(c, 2), 2 * (2 * (16 + 24 + 48) + 4 + 6 + 24));
  EXPECT_EQ(call_flops(c, 0), 2 * 5 * 4 * 6);
}

TEST(CallCosts, PackedSequencesEndTheirChunks) {
  CallConfig one = qwen3_next(128);
  CallConfig two = one;
  two.lengths = {100, 28, 0};
  EXPECT_LT(call_flops(two, 64), call_flops(one, 64));  // shorter chunks have less within them
  EXPECT_EQ(call_bytes(two) - call_bytes(one), 2 * 2 * 32 * 128 * 128 * 4);
}

TEST(CallCosts, RefuseWhatPassesTheRange) {
  CallConfig c = qwen3_next(Count{1} << 50);
  EXPECT_THROW((void)call_bytes(c), Error);
  EXPECT_THROW((void)call_flops(c, 64), Error);
  c.lengths = {-1};
  EXPECT_THROW((void)call_bytes(c), Error);
}

}  // namespace
}  // namespace samestate::costs
