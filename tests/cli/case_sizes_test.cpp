#include "cli/case_sizes.h"

#include <gtest/gtest.h>

#include <string>

namespace samestate::cli {
namespace {

std::string sizes(const char* line) { return sizes_in_full(Resolved(parse_case(line))); }

TEST(CaseSizes, HaveTheDefaultsThatTheLineLeavesOut) {
  EXPECT_EQ(sizes("v1 gated_delta_rule"), "chunk=64 B=1 T=64 Hk=1 Hv=1 dk=64 dv=64");
  EXPECT_EQ(sizes("v1 gated_delta_rule chunk=16 T=65 Hk=2 Hv=4 dk=16"),
            "chunk=16 B=1 T=65 Hk=2 Hv=4 dk=16 dv=16");
}

TEST(CaseSizes, HaveWhatTheFormReadsAndNoMore) {
  EXPECT_EQ(sizes("v1 retention form=recurrent dk=8"), "B=1 T=64 Hk=1 Hv=1 dk=8 dv=8");
  EXPECT_EQ(sizes("v1 retention form=decode prefill=3 T=7 dk=8"),
            "chunk=64 prefill=3 B=1 T=7 Hk=1 Hv=1 dk=8 dv=8");
  EXPECT_EQ(sizes("v1 retention form=packed lengths=3,0,2 chunk=0 dk=8"),
            "lengths=3,0,2 B=1 T=5 Hk=1 Hv=1 dk=8 dv=8");
}

TEST(CaseSizes, HaveThoseOfTheSystemAlone) {
  EXPECT_EQ(sizes("v1 rms_norm form=fused D=7"), "B=1 T=64 H=2 D=7");
}

}  // namespace
}  // namespace samestate::cli
