#include "harness/run/chosen_heads.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "harness/cases/resolved.h"
#include "harness/run/judge_batch.h"
#include "harness/run/run_case.h"
#include "harness/systems/judge_tensors.h"
#include "oracles/systems/family.h"
#include "tests/harness/operator_row.h"

namespace samestate {
namespace {

bool any(Index) { return true; }

TEST(ChosenHeads, OfFewAll) {
  const ChosenHeads chosen(6, 4, 1, any, kGatePolicy, kGatePolicy.held_heads);
  EXPECT_TRUE(chosen.all());
  EXPECT_EQ(chosen.count(), 24);
  Judgement judgement;
  chosen.note(judgement, 0);
  EXPECT_EQ(judgement.held, 0);
  EXPECT_TRUE(judgement.held_which.empty());
}

TEST(ChosenHeads, OfManyTheEndsAndBlockEdgesOfBothAxes) {
  for (const auto& [sequences, heads] : {std::pair<Index, Index>{16400, 4}, {1, 1030}, {300, 72}, {25, 1}}) {
    const ChosenHeads chosen(sequences, heads, 7, any, kGatePolicy, kGatePolicy.held_heads);
    EXPECT_FALSE(chosen.all());
    EXPECT_GE(chosen.count(), kGatePolicy.held_heads);
    EXPECT_LT(chosen.count(), 150);
    for (const Index n : {Index{0}, sequences - 1}) {
      EXPECT_TRUE(chosen.takes(n, 0)) << sequences;
      EXPECT_TRUE(chosen.takes(n, heads - 1)) << sequences;
    }
    for (const Index n : block_edges(sequences)) {
      bool taken = false;
      for (Index h = 0; h < heads; ++h) taken = taken || chosen.takes(n, h);
      EXPECT_TRUE(taken) << "sequence " << n << " of " << sequences;
    }
    for (const Index h : block_edges(heads)) {
      bool taken = false;
      for (Index n = 0; n < sequences; ++n) taken = taken || chosen.takes(n, h);
      EXPECT_TRUE(taken) << "head " << h << " of " << heads;
    }
  }
}

// So that a deeper look repeats all that the first one looked at.
TEST(ChosenHeads, ADeepPolicyHoldsTheGatesHeadsAndMore) {
  for (const auto& [sequences, heads] : {std::pair<Index, Index>{16400, 4}, {300, 72}, {25, 1}, {30, 4}}) {
    const ChosenHeads gate(sequences, heads, 7, any, kGatePolicy, kGatePolicy.held_heads);
    const ChosenHeads deep(sequences, heads, 7, any, kDeepPolicy, kDeepPolicy.held_heads);
    EXPECT_GE(deep.count(), std::min(kDeepPolicy.held_heads, sequences * heads));
    EXPECT_GE(deep.count(), gate.count());
    for (Index n = 0; n < sequences; ++n) {
      for (Index h = 0; h < heads; ++h) EXPECT_TRUE(!gate.takes(n, h) || deep.takes(n, h)) << n << " " << h;
    }
  }
}

TEST(ChosenHeads, EdgesAreThoseOfBlocks) {
  EXPECT_EQ(block_edges(1), (std::vector<Index>{0}));
  EXPECT_EQ(block_edges(6), (std::vector<Index>{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(block_edges(100), (std::vector<Index>{0, 1, 2, 3, 4, 7, 8, 15, 16, 31, 32, 63, 64, 99}));
  const std::vector<Index> many = block_edges(70000);
  for (const Index at : {191, 192, 1023, 1024, 65535, 65536, 69999})
    EXPECT_TRUE(std::binary_search(many.begin(), many.end(), at)) << at;
  EXPECT_FALSE(std::binary_search(many.begin(), many.end(), 1088));
}

TEST(ChosenHeads, TheSeedDrawsTheOthersAmongThoseThatHaveTokens) {
  const auto every_fifth = [](Index n) { return n % 5 == 3; };
  const auto text = [&](std::uint64_t seed) {
    return ChosenHeads(25, 9, seed, every_fifth, kGatePolicy, kGatePolicy.held_heads).text();
  };
  EXPECT_EQ(text(1), text(1));
  EXPECT_NE(text(1), text(2));
  const ChosenHeads chosen(4000, 1, 1, every_fifth, kGatePolicy, kGatePolicy.held_heads);
  EXPECT_TRUE(chosen.takes(3, 0));     // the first that has any
  EXPECT_TRUE(chosen.takes(3998, 0));  // the last
}

TEST(ChosenHeads, SaysWhich) {
  ChosenHeads chosen(5, 6, 1, any, kGatePolicy, kGatePolicy.held_heads);
  const Index before = chosen.count();
  for (Index n = 0; n < 5; ++n) {
    for (Index h = 0; h < 6; ++h) chosen.add(n, h);
  }
  EXPECT_LT(before, 30);
  EXPECT_TRUE(chosen.all());
  EXPECT_EQ(chosen.text(), "0:0,1,2,3,4,5 1:0,1,2,3,4,5 2:0,1,2,3,4,5 3:0,1,2,3,4,5 4:0,1,2,3,4,5");
  Judgement judgement;
  const ChosenHeads batch(257, 1, 1, any, kGatePolicy, kGatePolicy.held_heads);
  batch.note(judgement, batch.others());
  EXPECT_EQ(judgement.held, batch.count());
  EXPECT_EQ(judgement.held_of, 257);
  EXPECT_TRUE(judgement.held_which.starts_with("0 1 2")) << judgement.held_which;
  EXPECT_TRUE(judgement.held_which.ends_with(" 256")) << judgement.held_which;
}

TEST(Farthest, KeepsTheWorstOfEachMeasure) {
  Farthest farthest(kGatePolicy.farthest);
  for (Index head = 0; head < 100; ++head) farthest.add(head, {0.001 * static_cast<double>(head % 7), 0.0});
  farthest.add(100, {0.0, 0.5});  // one row of it
  farthest.add(101, {std::numeric_limits<double>::infinity(), 0.1});
  const std::vector<Index> heads = farthest.heads();
  for (const Index head : {100, 101})
    EXPECT_EQ(std::count(heads.begin(), heads.end(), head) > 0, true) << head;
  EXPECT_LE(heads.size(), 6U);
}

TEST(Distance, OfWhatIsNoNumberIsInfinite) {
  const Matrix<double> exact = Matrix<double>::Constant(4, 3, 2.0);
  Distance same;
  same.add(exact, exact);
  EXPECT_EQ(same.all, 0.0);
  Matrix<double> one = exact;
  one(2, 1) += 0.2;
  Distance off;
  off.add(exact, one);
  EXPECT_NEAR(off.all, 0.2 / (2.0 * std::sqrt(12.0)), 1e-12);
  EXPECT_NEAR(off.row, 0.2 / (2.0 * std::sqrt(3.0)), 1e-12);
  one(3, 0) = std::nan("");
  Distance unknown;
  unknown.add(exact, one);
  EXPECT_TRUE(std::isinf(unknown.all));
  EXPECT_TRUE(std::isinf(unknown.row));
  Distance of_zero;
  of_zero.add(Matrix<double>::Zero(1, 2), Matrix<double>::Constant(1, 2, 1e-9));
  EXPECT_TRUE(std::isinf(of_zero.all));
}

/// A batch of the family with outputs that are right but for what a test plants.
struct Planted {
  explicit Planted(const char* line)
      : r(parse_case(line)), family(family_named(r.c.system)), batch(batch_of(r, family)) {
    const BatchShape& s = batch.shape;
    outputs.o.resize(static_cast<std::size_t>(s.B * s.T * s.Hv * s.dv));
    outputs.final_state.resize(static_cast<std::size_t>(s.sequences() * s.Hv * s.dk * s.dv));
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        const Trajectory<double> exact = family.recurrent(sequence_of(batch, n, h));
        for (std::int64_t t = 0; t < s.T; ++t) {
          for (std::int64_t c = 0; c < s.dv; ++c) o(n, h, t, c) = static_cast<float>(exact.o(t, c));
        }
        float* state = outputs.final_state.data() + (n * s.Hv + h) * s.dk * s.dv;
        for (std::int64_t i = 0; i < s.dk * s.dv; ++i) state[i] = static_cast<float>(exact.state.data()[i]);
      }
    }
  }

  float& o(std::int64_t n, std::int64_t h, std::int64_t t, std::int64_t c) {
    const BatchShape& s = batch.shape;
    return outputs.o[static_cast<std::size_t>(((n * s.T + t) * s.Hv + h) * s.dv + c)];
  }
  Judgement judge() const { return judge_batch(r, family, batch, outputs, kFilePolicy, {}); }

  Resolved r;
  const Family& family;
  Batch batch;
  Outputs outputs;
};

// More sequences times heads than 16 bits count, of which some sixty are held.
TEST(SampledJudge, OneWrongHeadOfSixtyThousandFails) {
  Planted right("v1 gated_delta_rule B=16400 T=2 Hk=4 Hv=4 dk=2 dv=3 state=random");
  const Judgement judgement = right.judge();
  EXPECT_EQ(judgement.verdict, Verdict::pass) << judgement.reason;
  EXPECT_EQ(judgement.held_of, 65600);
  EXPECT_GE(judgement.held, kGatePolicy.held_heads);
  // These are the ends, edges of blocks, and a head that is not chosen.
  for (const auto& [n, h] : {std::pair<Index, Index>{0, 0},
                             {0, 3},
                             {16399, 0},
                             {16399, 3},
                             {64, 1},
                             {16384, 2},
                             {5003, 2},
                             {12345, 1}}) {
    float& x = right.o(n, h, 1, 2);
    const float was = x;
    x = 1.001F * x + 1e-5F;
    const Judgement wrong = right.judge();
    EXPECT_EQ(wrong.verdict, Verdict::fail) << n << " " << h;
    EXPECT_EQ(wrong.worst.sequence, n);
    EXPECT_EQ(wrong.worst.head, h);
    x = std::nanf("");  // not written
    EXPECT_EQ(right.judge().verdict, Verdict::fail) << n << " " << h;
    x = was;
  }
  float& state = right.outputs.final_state[(7001 * 4 + 1) * 6 + 5];
  state += 1e-3F;
  EXPECT_EQ(right.judge().verdict, Verdict::fail);
}

TEST(SampledJudge, TwoHeadsThatAreEachOthersFail) {
  Planted right("v1 retention B=3 T=5 Hk=40 Hv=40 dk=4 dv=4");
  ASSERT_EQ(right.judge().verdict, Verdict::pass);
  for (Index t = 0; t < 5; ++t) {
    for (Index c = 0; c < 4; ++c) std::swap(right.o(1, 21, t, c), right.o(1, 22, t, c));
  }
  EXPECT_EQ(right.judge().verdict, Verdict::fail);
}

// Integers are compared bit for bit: an error anywhere is farther than none.
TEST(SampledJudge, ExactRegimesToo) {
  Planted right("v1 gated_delta_rule B=90 T=6 dk=4 dv=4 regime=exact");
  ASSERT_EQ(right.judge().verdict, Verdict::pass);
  right.o(77, 0, 3, 1) += 1.0F;
  const Judgement wrong = right.judge();
  EXPECT_EQ(wrong.verdict, Verdict::fail);
  EXPECT_EQ(wrong.worst.sequence, 77);
}

TEST(SampledJudge, OneWrongSequenceOfNamedTensorsFails) {
  const OperatorKernel& kernel = operator_row("cpu.rms_norm.fused");
  const KernelRow row = adapted(kernel);
  const Resolved r(parse_case("v1 rms_norm form=fused B=300 T=2 H=2 D=5"));
  const auto& system = dynamic_cast<const TensorSystem&>(*r.system);
  const std::vector<CaseTensor> inputs = system.inputs(r);
  std::vector<CaseTensor> outputs = system.outputs(r, inputs, {&row, &row, &row}, {r.layout, 1});
  const auto judge = [&] {
    return judge_tensors(r, system, system.calls(r, "fused"), inputs, by_sequence(outputs), kGatePolicy);
  };
  const Judgement right = judge();
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  EXPECT_EQ(right.held_of, 300);
  EXPECT_LT(right.held, 60);
  for (const std::size_t b : {0U, 64U, 77U, 203U, 299U}) {
    float& x = outputs.front().data[b * 20 + 13];
    const float was = x;
    x *= 1.0001F;
    const Judgement wrong = judge();
    EXPECT_EQ(wrong.verdict, Verdict::fail) << b;
    EXPECT_EQ(wrong.worst.sequence, static_cast<std::int64_t>(b));
    x = was;
  }
}

}  // namespace
}  // namespace samestate
