#include "fuzz/search/coverage.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "fuzz/search/bug_conditions.h"
#include "optimized/operator_kernel.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

bool reaches(const std::string& line, std::string_view edge) {
  const std::uint64_t bits = edges_of(parse_case(line));
  for (std::size_t i = 0; i < edges().size(); ++i) {
    if (edges()[i].name == edge) return (bits >> i & 1U) != 0;
  }
  ADD_FAILURE() << "no edge " << edge;
  return false;
}

struct Reached {
  const char* edge;
  const char* with;
  const char* without;
};

TEST(Edges, AreReadFromCaseAndData) {
  const Reached all[] = {
      {"alpha = 1", "v1 retention regime=none T=4 dk=2", "v1 retention T=4 dk=2"},
      {"alpha = 0", "v1 retention regime=exact_reset T=64 dk=2", "v1 retention T=64 dk=2"},
      {"decay 1e-12", "v1 retention regime=strong T=40 dk=2", "v1 retention regime=slow T=40 dk=2"},
      {"norm 1e-4", "v1 retention regime=tiny_norms T=4 dk=2", "v1 retention T=4 dk=2"},
      {"head ratio 3", "v1 retention Hk=2 Hv=6 T=4 dk=2", "v1 retention Hk=2 Hv=4 T=4 dk=2"},
      {"dk != dv", "v1 retention dk=4 dv=2 T=4", "v1 retention dk=4 T=4"},
      {"T = 0", "v1 retention T=0 dk=2", "v1 retention T=1 dk=2"},
      {"T = 1", "v1 retention T=1 dk=2", "v1 retention T=2 dk=2"},
      {"T = C - 1", "v1 retention chunk=8 T=7 dk=2", "v1 retention chunk=8 T=8 dk=2"},
      {"T = C", "v1 retention chunk=8 T=8 dk=2", "v1 retention form=recurrent T=64 dk=2"},
      {"T = C + 1", "v1 retention chunk=8 T=9 dk=2", "v1 retention chunk=8 T=8 dk=2"},
      {"collinear keys", "v1 retention regime=collinear T=9 dk=16", "v1 retention T=9 dk=16"},
      {"beta -> 0", "v1 delta_rule regime=beta_zero T=4 dk=2", "v1 delta_rule regime=beta_two T=4 dk=2"},
      {"beta -> 1", "v1 delta_rule regime=beta_one T=4 dk=2", "v1 delta_rule regime=beta_two T=4 dk=2"},
      {"stale state", "v1 retention T=4 dk=2", "v1 retention T=4 dk=2 state=random"},
      {"padded layout", "v1 retention T=4 dk=2 layout=padded", "v1 retention T=4 dk=2"},
      {"far layout", "v1 retention T=4 dk=2 layout=far", "v1 retention T=1 dk=2 layout=far"},
      {"padded slots", "v1 retention form=packed lengths=0,4 dk=2",
       "v1 retention form=packed lengths=1,4 dk=2"},
      {"A = 0", "v1 activation_gates regime=tiny T=4 H=16", "v1 activation_gates T=4 H=16"},
      {"A = 16", "v1 activation_gates T=4 H=60", "v1 activation_gates T=4 H=1"},
      {"softplus > 88", "v1 activation_gates regime=large T=4000", "v1 activation_gates T=4000"},
  };
  for (const Reached& r : all) {
    EXPECT_TRUE(reaches(r.with, r.edge)) << r.edge << ": " << r.with;
    EXPECT_FALSE(reaches(r.without, r.edge)) << r.edge << ": " << r.without;
  }
}

CaseResult passing(const Case& c) {
  CaseResult f;
  f.judgement.verdict = Verdict::pass;
  // Edges are read from the data, which takes minutes for the largest cases; the smaller ones reach them all.
  if (c.T * c.B * c.Hv * (c.dk + c.dv) <= 10000) f.edges = edges_of(c);
  return f;
}

// All that a system's cases should reach is reached: the minimum is not a wish.
TEST(Coverage, TheDrawingReachesAllFromTheMinimumOn) {
  for (const char* system : {"gated_delta_rule", "linear_attention", "linear_attention_normalised"}) {
    const CaseSource source(table(), {system, "cpu", ""}, 17);
    Coverage coverage(source);
    for (std::int64_t i = 0; i < kCoverageCases; ++i) {
      const Case c = source.draw(i);
      coverage.add(c, passing(c));
    }
    EXPECT_EQ(coverage.judged(system), kCoverageCases);
    for (const CoverageRow& row : coverage.missing()) {
      ADD_FAILURE() << system << ": " << row.dimension << " " << row.value;
    }
    for (const CoverageRow& row : coverage.rows())
      EXPECT_GE(row.judged, 10) << row.dimension << " " << row.value;
  }
}

TEST(Coverage, WhatIsNeverJudgedIsMissingUnlessItIsRefused) {
  const CaseSource source(table(), {"retention", "cpu", ""}, 1);
  Coverage coverage(source);
  for (std::int64_t i = 0; i < 3000; ++i) {
    const Case c = source.draw(i);
    CaseResult f = passing(c);
    if (c.regime == "spike") f.judgement.verdict = Verdict::vacuous;
    if (c.law == "split") f.judgement.verdict = Verdict::unsupported;
    coverage.add(c, f);
  }
  EXPECT_TRUE(coverage.missing().empty()) << "too few cases to say so";
  const std::vector<CoverageRow> missing = coverage.missing(2000);
  ASSERT_EQ(missing.size(), 1U);
  EXPECT_EQ(missing[0].value, "spike");
  EXPECT_GT(missing[0].drawn, 0);
}

}  // namespace
}  // namespace samestate
