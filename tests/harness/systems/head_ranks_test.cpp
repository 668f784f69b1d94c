#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "harness/cases/system.h"
#include "harness/run/law_subject.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

constexpr Index kRanksChunk = 4;

/// Two rows of nine tokens, two key heads, four value heads.
Batch random_batch(const Family& family) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  BatchShape s;
  s.B = 2, s.T = 9, s.Hk = 2, s.Hv = 4, s.dk = 4, s.dv = 6, s.scale = 0.5, s.initial_state = true;
  Batch batch{s, {}, {}, {}, {}, {}, {}};
  const auto fill = [&](std::vector<float>& data, std::int64_t size, auto&& draw) {
    for (std::int64_t i = 0; i < size; ++i) data.push_back(draw());
  };
  fill(batch.q, s.B * s.T * s.Hk * s.dk, [&] { return normal(random); });
  fill(batch.k, s.B * s.T * s.Hk * s.dk, [&] { return 0.4F * normal(random); });
  fill(batch.v, s.B * s.T * s.Hv * s.dv, [&] { return normal(random); });
  if (family.gated) fill(batch.g, s.B * s.T * s.Hv, [&] { return -0.25F; });
  if (family.delta) fill(batch.beta, s.B * s.T * s.Hv, [&] { return 0.5F; });
  fill(batch.initial_state, s.B * s.Hv * s.dk * s.dv, [&] { return normal(random); });
  return batch;
}

/// The float64 reference along the path, rounded to fp32. `off`: of a call whose heads ranks divide, the last number of every
/// final state is one bit off, far below any bound.
Runner runner_of(const Family& family, bool off) {
  return [&family, off](const Batch& batch, const Path& path) {
    const BatchShape& s = batch.shape;
    Outputs out;
    out.o.resize(static_cast<std::size_t>(s.B * s.T * s.Hv * s.dv));
    for (std::int64_t n = 0; n < s.B; ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        const Sequence<double> x = sequence_of(batch, n, h);
        Matrix<double> state = x.initial_state;
        Index t = 0;
        for (const Segment& segment : path) {
          const Sequence<double> part = x.slice(t, t + segment.tokens, state);
          const Trajectory<double> end = segment.chunk > 0 && segment.tokens > 0
                                             ? family.chunked(part, segment.chunk)
                                             : family.recurrent(part);
          for (Index i = 0; i < end.o.size(); ++i) {
            const Index row = (n * s.T + t + i / s.dv) * s.Hv + h;
            out.o[static_cast<std::size_t>(row * s.dv + i % s.dv)] = static_cast<float>(end.o.data()[i]);
          }
          state = end.state;
          t += segment.tokens;
        }
        for (Index i = 0; i < state.size(); ++i)
          out.final_state.push_back(static_cast<float>(state.data()[i]));
        if (off && !path.front().head_cuts.empty())
          out.final_state.back() = std::nextafter(out.final_state.back(), 8.0F);
      }
    }
    return out;
  };
}

// Whichever rank has a head, its bits are the same: one bit is enough to fail, where other laws allow what their bounds do.
TEST(HeadRanks, PathEquivalenceAsksForTheBitsOfOneRank) {
  for (const Family& family : families()) {
    const Batch batch = random_batch(family);
    const Contract fp32;
    for (const bool drawn : {false, true}) {
      const auto judged = [&](std::string_view law, bool off, Index heads) {
        LawSubject subject{batch, family, fp32, kRanksChunk, runner_of(family, off)};
        subject.ranks = {3, drawn, 4, heads};
        return judge_law(*system_named(family.name).law(law), subject);
      };
      for (const char* law : {"path_equivalence", "split", "linearity", "head_permutation"}) {
        const Judgement j = judged(law, false, batch.shape.Hv);
        EXPECT_EQ(j.verdict, Verdict::pass) << law << " of " << family.name << ": " << j.reason;
      }
      EXPECT_EQ(judged("path_equivalence", true, batch.shape.Hv).verdict, Verdict::fail) << family.name;
      EXPECT_EQ(judged("split", true, batch.shape.Hv).verdict, Verdict::pass) << family.name;
    }
  }
}

}  // namespace
}  // namespace samestate
