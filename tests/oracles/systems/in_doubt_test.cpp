#include "oracles/systems/in_doubt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/reasons.h"
#include "oracles/systems/judge_samples.h"
#include "oracles/systems/judge_sequence.h"
#include "oracles/systems/scalars.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace {

using Change = std::function<void(Tensors<double>&)>;

Tensors<double> in_fp32(Tensors<double> values) {
  for (auto& [name, x] : values) x = x.unaryExpr([](double e) { return round_to(e, Format::fp32); });
  return values;
}

/// A call in fp32 of one system, its oracle, and kernels that read something else than they were given.
struct Subject : DrawnSubject {
  Subject(const char* system, const char* form, Index tokens, const std::map<std::string, Index>& sizes,
          std::vector<Index> ends = {})
      : DrawnSubject(system, form, tokens, sizes, "fp32", 5, std::move(ends)) {}

  [[nodiscard]] Tensors<double> reading(const Change& change) const {
    Tensors<double> read = inputs;
    change(read);
    return in_fp32(op.exact(call, read));
  }
  [[nodiscard]] Judgement judge(const Tensors<double>& actual, bool drawn = true) const {
    return judge_sequence(subject(), actual, 1, kGatePolicy,
                          {[](Verdict) { return false; }, [drawn](Verdict) { return drawn; }});
  }
};

bool in_doubt(const Subject& of, const Tensors<double>& actual) {
  return !doubtful_rows(of.subject(), actual, 1, kGatePolicy).empty();
}

Change kept_as(const char* tensor, Format format) {
  return [=](Tensors<double>& x) {
    Matrix<double>& m = x.find(tensor)->second;
    m = m.unaryExpr([=](double e) { return round_to(e, format); });
  };
}
Change times(const char* tensor, double factor) {
  return [=](Tensors<double>& x) { x.find(tensor)->second *= factor; };
}
const Subject& latent() {
  static const Subject subject("latent_attention", "absorbed", 24,
                               {{"D", 8}, {"H", 2}, {"dn", 62}, {"dr", 2}, {"dv", 4}, {"dc", 64}});
  return subject;
}
const Subject& softmax() {
  static const Subject subject("softmax_attention", "naive", 24,
                               {{"H", 1}, {"Hkv", 1}, {"d", 512}, {"dv", 8}});
  return subject;
}

struct PlantedRounding {
  const char* name;
  const Subject& (*in)();
  Change change;
};

std::vector<PlantedRounding> planted() {
  return {{"the latent in tf32", latent, kept_as("c", Format::tf32)},
          {"x in bf16", latent, kept_as("x", Format::bf16)},
          {"scale", latent, times("q_up", 1.001)},
          {"the keys in tf32", softmax, kept_as("k", Format::tf32)},
          {"scale", softmax, times("q", 1.0004)}};
}

TEST(InDoubt, WhatTheWorstCaseHidesDiesByDrawnRoundings) {
  for (const PlantedRounding& fault : planted()) {
    const Subject& subject = fault.in();
    SCOPED_TRACE(std::string(subject.op.name) + ": " + fault.name);
    const Tensors<double> actual = subject.reading(fault.change);
    const Judgement alone = subject.judge(actual, false);
    EXPECT_EQ(alone.verdict, Verdict::pass) << alone.ratio;
    EXPECT_TRUE(in_doubt(subject, actual));
    const Judgement together = subject.judge(actual);
    EXPECT_EQ(together.verdict, Verdict::fail) << together.sampled_ratio;
    EXPECT_TRUE(together.gate.starts_with("sampled")) << together.gate;
  }
}

// The case of an adversary's kernel that left out a key of the current token: 0.7 of the worst case.
TEST(InDoubt, LongATokenOfALongCacheIsLost) {
  const Subject subject("latent_attention", "absorbed", 521,
                        {{"D", 8}, {"H", 2}, {"dn", 62}, {"dr", 2}, {"dv", 4}, {"dc", 64}}, {519, 520});
  const Tensors<double> right = in_fp32(subject.oracle.exact);
  Tensors<double> actual = right;
  // The last two tokens, which come alone, do not see token 300.
  const Tensors<double> lost =
      subject.reading([](Tensors<double>& x) { x.find("c")->second.row(300).setZero(); });
  actual["y"].bottomRows(2) = get(lost, "y").bottomRows(2);
  // The worst case, which is wide there, may not pass it where nothing can be drawn.
  const Judgement alone = subject.judge(actual, false);
  EXPECT_EQ(alone.verdict, Verdict::vacuous) << alone.ratio;
  EXPECT_EQ(alone.gate, kInDoubtGate);
  const Judgement together = subject.judge(actual);
  EXPECT_EQ(together.verdict, Verdict::fail) << together.sampled_ratio;
  EXPECT_EQ(subject.judge(right, false).verdict, Verdict::pass) << "it is not in doubt";
  EXPECT_EQ(subject.judge(right).verdict, Verdict::pass);
  RecordProperty("worst_case", std::to_string(alone.ratio));
  RecordProperty("drawn", std::to_string(together.sampled_ratio));
}

// A case too large for samples of every run, of which the worst case says nothing: a fault is in doubt, and dies; where nothing can be
// drawn it stays unjudged. A right kernel errs by what moved inputs make and is judged by that, but not where a row is zero.
TEST(InDoubt, WhereTheWorstCaseSaysNothingAFaultIsDrawn) {
  Subject wide = latent();
  wide.oracle.tolerance["y"] *= 1e9;
  const auto verdict = [&](const Tensors<double>& actual) {
    return judge_sequence(wide.subject(), actual, 1, kGatePolicy,
                          {[](Verdict) { return false; }, [](Verdict v) { return v != Verdict::vacuous; }})
        .verdict;
  };
  EXPECT_EQ(verdict(wide.reading(times("q_up", 1.001))), Verdict::fail);
  EXPECT_EQ(verdict(in_fp32(wide.oracle.exact)), Verdict::pass);
  EXPECT_EQ(wide.judge(wide.reading(times("q_up", 1.001)), false).verdict, Verdict::vacuous);
  wide.oracle.exact["y"].row(3).setZero();
  EXPECT_EQ(verdict(in_fp32(wide.oracle.exact)), Verdict::vacuous);
}

TEST(InDoubt, ARightKernelIsNot) {
  for (const Subject* subject : {&latent(), &softmax()}) {
    const Tensors<double> right = in_fp32(subject->oracle.exact);
    EXPECT_FALSE(in_doubt(*subject, right));
    EXPECT_EQ(subject->judge(right).verdict, Verdict::pass);
    EXPECT_EQ(subject->judge(right).sampled_ratio, 0.0) << "nothing is drawn";
  }
}

// A value that is not a number where one is expected is in doubt; if the worst case has no room, nothing is.
TEST(InDoubt, RoomAndNumbers) {
  const Subject& subject = latent();
  Tensors<double> actual = in_fp32(subject.oracle.exact);
  actual["y"](3, 2) = std::nan("");
  EXPECT_TRUE(in_doubt(subject, actual));
  Subject near("rms_norm", "equation", 3, {});
  Tensors<double> scaled = near.oracle.exact;
  scaled["y"] *= 1.5;
  EXPECT_FALSE(in_doubt(near, scaled)) << "the worst case sees it";
}

TEST(InDoubt, FewSamplesAreEnoughForOneOfThemAndNotForAFault) {
  const Subject& subject = softmax();
  const auto few = [&](const Tensors<double>& actual) {
    return lies_within_few(subject.op, subject.call, subject.inputs, subject.cuts, subject.contract,
                           subject.oracle, 1, actual, kGatePolicy);
  };
  EXPECT_TRUE(few(in_fp32(subject.oracle.exact)));
  EXPECT_FALSE(few(subject.reading(kept_as("k", Format::tf32))));
}

/// Softmax, one key after the other in fp32 throughout.
Tensors<double> one_key_after_the_other(const Subject& subject) {
  const Matrix<float> q = get(subject.inputs, "q").cast<float>(), k = get(subject.inputs, "k").cast<float>(),
                      v = get(subject.inputs, "v").cast<float>();
  Matrix<double> o(q.rows(), v.cols());
  for (Index t = 0; t < q.rows(); ++t) {
    float largest = -std::numeric_limits<float>::infinity(), sum = 0.0F;
    Vector<float> out = Vector<float>::Zero(v.cols());
    for (Index s = 0; s <= t; ++s) {
      const float score = q.row(t).dot(k.row(s));
      const float next = std::max(largest, score);
      const float before = std::exp(largest - next), weight = std::exp(score - next);
      sum = sum * before + weight;
      out = out * before + weight * v.row(s).transpose();
      largest = next;
    }
    o.row(t) = (out / sum).transpose().cast<double>();
  }
  return {{"o", std::move(o)}};
}

/// A number m > 0 of which adding e^-m in fp32 to what lies in [1, 2) rounds by nearly half a unit, the same way every time.
double of_one_sided_roundings() {
  double best = 0.0;
  float most = 0.0F;
  for (int i = 0; i < 1000; ++i) {
    const float m = 7.0F + 1e-4F * static_cast<float>(i);
    const float units = std::exp(-m) * 0x1p23F;
    const float off = std::abs(units - std::nearbyint(units));
    if (off > most && off < 0.48F) most = off, best = m;
  }
  return best;
}

// A right kernel of the suite's adversary: the weight of a zero key is one number that is added hundreds of times, and meets one
// rounding each time. Drawn ones cancel.
TEST(InDoubt, RoundingsThatRepeatAreLeftToTheWorstCase) {
  Subject subject("softmax_attention", "naive", 383, {{"H", 1}, {"Hkv", 1}, {"d", 1}, {"dv", 2}});
  EXPECT_FALSE(roundings_repeat(subject.subject()));
  subject.inputs.find("q")->second.setOnes();
  subject.inputs.find("k")->second.setZero();
  subject.inputs.find("k")->second(0, 0) = of_one_sided_roundings();
  // The first column shows the sum of the weights, the second cancels and leaves the worst case its room.
  Matrix<double>& v = subject.inputs.find("v")->second;
  for (Index t = 0; t < v.rows(); ++t) v.row(t) << 0.0, t % 2 == 0 ? 8.0 : -8.0;
  v.row(0) << 1.0, 0.0;
  subject.oracle = operator_oracle(subject.op, subject.call, subject.inputs, {}, subject.contract);
  EXPECT_TRUE(roundings_repeat(subject.subject()));
  const Tensors<double> actual = one_key_after_the_other(subject);
  EXPECT_FALSE(in_doubt(subject, actual)) << "a unit for each of the tokens";
  EXPECT_EQ(judge_sampled(subject.op, subject.call, subject.inputs, {}, subject.contract, subject.oracle, 1,
                          actual, kGatePolicy)
                .verdict,
            Verdict::fail)
      << "drawn roundings, which are independent, do not know it";
  EXPECT_EQ(subject.judge(actual).verdict, Verdict::pass);
  Tensors<double> wrong = actual;
  wrong.find("o")->second(350, 1) += 1e-3;
  EXPECT_EQ(subject.judge(wrong).verdict, Verdict::fail) << "the worst case stands";
  subject.oracle.tolerance.find("o")->second *= 1e6;
  EXPECT_EQ(subject.judge(actual).verdict, Verdict::vacuous) << "where it says nothing, nothing is known";
  EXPECT_EQ(subject.judge(wrong).verdict, Verdict::fail) << "more than repeating makes";
}

// Keys of small scale are many, and their scores one number to a softmax: its weight, too, meets one rounding hundreds of times.
TEST(InDoubt, WeightsThatAreAlikeAreLeftToTheWorstCase) {
  Subject subject("softmax_attention", "naive", 383, {{"H", 1}, {"Hkv", 1}, {"d", 1}, {"dv", 2}});
  for (Index token = 0; token < 383; ++token)
    subject.inputs.find("q")->second(token, 0) = 1.0 + 0x1p-22 * static_cast<double>(token);
  Matrix<double>& k = subject.inputs.find("k")->second;
  k *= 1e-9;
  k(0, 0) = of_one_sided_roundings();
  Matrix<double>& v = subject.inputs.find("v")->second;
  v.row(0).setOnes();
  subject.oracle = operator_oracle(subject.op, subject.call, subject.inputs, {}, subject.contract);
  EXPECT_FALSE(roundings_repeat(subject.subject())) << "no two tokens are one";
  const Tensors<double> actual = one_key_after_the_other(subject);
  EXPECT_EQ(judge_sampled(subject.op, subject.call, subject.inputs, {}, subject.contract, subject.oracle, 1,
                          actual, kGatePolicy)
                .verdict,
            Verdict::fail)
      << "drawn roundings do not know it";
  subject.oracle.tolerance.find("o")->second.array() += 1e-3;  // of scores that cancel it would be
  EXPECT_FALSE(in_doubt(subject, actual));
  EXPECT_EQ(subject.judge(actual).verdict, Verdict::pass);
  Tensors<double> wrong = actual;
  wrong.find("o")->second.row(350) *= 1.0 + 1.5 * 0x1p-24 * 383;
  EXPECT_TRUE(in_doubt(subject, wrong)) << "more than all of them to one side";
}

TEST(InDoubt, TokensRepeatFromSoManyOn) {
  for (const Index alike : {kAlikeTokens, kAlikeTokens + 1}) {
    Subject subject("softmax_attention", "naive", 80, {{"H", 1}, {"Hkv", 1}, {"d", 4}, {"dv", 2}});
    subject.inputs.find("v")->second.topRows(alike).setConstant(0.5);
    EXPECT_EQ(roundings_repeat(subject.subject()), alike > kAlikeTokens);
  }
}

}  // namespace
}  // namespace samestate
