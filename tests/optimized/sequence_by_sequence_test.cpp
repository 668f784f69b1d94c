#include "optimized/sequence_by_sequence.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace samestate {
namespace {

/// o_t = h, h <- h + w x_t, along each sequence from its own state.
Outcome running_sums(const OperatorArguments& call, const Contract&) {
  const NamedTensor<const float>&x = call.input("x"), &h = call.input("h"), &w = call.input("w");
  const NamedTensor<float>&o = call.output("o"), &out = call.output("h");
  const auto stride = [](const auto& tensor, std::size_t d, std::int64_t dense) {
    return tensor.stride.empty() ? dense : tensor.stride[d];
  };
  for (std::int64_t b = 0; b < call.batch; ++b) {
    float state = h.data[b * stride(h, 0, 1)];
    for (std::int64_t t = 0; t < call.tokens; ++t) {
      o.data[b * stride(o, 0, call.tokens) + t * stride(o, 1, 1)] = state;
      state += w.data[0] * x.data[b * stride(x, 0, call.tokens) + t * stride(x, 1, 1)];
    }
    out.data[b * stride(out, 0, 1)] = state;
  }
  return {};
}

struct Packed {
  std::vector<float> x{9, 1, 2, 3, 4, 5, 9}, h{10, 20, 30, 40}, w{2}, o = std::vector<float>(7, -1),
                                                                      out = std::vector<float>(4, -1);
  std::vector<std::int64_t> offsets{1, 3, 3, 4, 6};
  OperatorArguments call;

  Packed() {
    call.inputs = {{"x", {1, 7, 1}, x.data()},
                   {"h", {4, 1}, h.data(), {}, Axis::state},
                   {"w", {1}, w.data(), {}, Axis::whole}};
    call.outputs = {{"o", {1, 7, 1}, o.data()}, {"h", {4, 1}, out.data(), {}, Axis::state}};
    call.tokens = 5;
    call.cu_seqlens = row_major<const std::int64_t, 1>(offsets.data(), {std::ssize(offsets)});
  }
};

TEST(SequenceBySequence, EachHasItsTokensItsStateAndAllWeights) {
  Packed of;
  EXPECT_EQ(sequence_by_sequence(running_sums)(of.call, {}).kind, Outcome::Kind::ran);
  EXPECT_EQ(of.o, (std::vector<float>{-1, 10, 12, 30, 40, 48, -1}))
      << "tokens of no sequence are not written";
  EXPECT_EQ(of.out, (std::vector<float>{16, 20, 36, 58}));
}

TEST(SequenceBySequence, ADenseCallIsTheFunctions) {
  Packed of;
  of.call.cu_seqlens = {};
  of.call.inputs[0].shape = of.call.outputs[0].shape = {1, 5, 1};
  EXPECT_EQ(sequence_by_sequence(running_sums)(of.call, {}).kind, Outcome::Kind::ran);
  EXPECT_EQ(of.o, (std::vector<float>{10, 28, 30, 34, 40, -1, -1}));
}

TEST(SequenceBySequence, RefusesOffsetsThatAreNone) {
  for (const std::vector<std::int64_t>& bad :
       {std::vector<std::int64_t>{0, 3, 2, 4, 6}, {-1, 0, 0, 0, 0}, {0, 1, 2, 3, 8}}) {
    Packed of;
    of.offsets = bad;
    EXPECT_THROW((void)sequence_by_sequence(running_sums)(of.call, {}), Error);
  }
}

TEST(SequenceBySequence, WhatAKernelSaysOfOneIsSaidOfAll) {
  Packed of;
  const OperatorRun no = sequence_by_sequence([](const OperatorArguments& one, const Contract&) {
    return one.tokens == 1 ? Outcome{Outcome::Kind::unsupported, "one token"} : Outcome{};
  });
  EXPECT_EQ(no(of.call, {}).reason, "one token");
}

}  // namespace
}  // namespace samestate
