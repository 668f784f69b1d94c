#include "optimized/head_ranks.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"
#include "tests/optimized/call.h"

namespace samestate {
namespace {

using testing::Call;
using testing::make_call;

std::string text(const std::vector<calls::HeadPart>& parts) {
  std::string out;
  for (const calls::HeadPart& p : parts) {
    out += std::to_string(p.rank) + ":" + std::to_string(p.begin) + "-" + std::to_string(p.end) + " keys";
    for (const std::int64_t key : p.keys) out += " " + std::to_string(key);
    out += " of";
    for (const std::int64_t key : p.key_of) out += " " + std::to_string(key);
    out += "; ";
  }
  return out;
}

// Six value heads, two key heads, the cut of two inside groups of three; ranks without a head are left out.
TEST(HeadRanks, HeadsOfRanks) {
  Call call = make_call("retention", {.T = 3, .Hk = 2, .Hv = 6, .dk = 2, .dv = 1}, 4);
  const std::vector<std::int64_t> cuts = {0, 0, 2, 5, 6, 6};
  for (const HeadMap map : {HeadMap::interleaved, HeadMap::tiled}) {
    call.head_map = map;
    const Arguments a = call.arguments();
    EXPECT_EQ(text(calls::head_parts_of(a, calls::checked_sizes(a), cuts)),
              map == HeadMap::interleaved
                  ? "1:0-2 keys 0 of 0 0; 2:2-5 keys 0 1 of 0 1 1; 3:5-6 keys 1 of 0; "
                  : "1:0-2 keys 0 1 of 0 1; 2:2-5 keys 0 1 of 0 1 0; 3:5-6 keys 1 of 0; ");
  }
}

TEST(HeadRanks, ImpossibleCutsOfHeadsAreRefused) {
  Call call = make_call("retention", {.T = 10, .Hk = 1, .Hv = 3, .dk = 2, .dv = 1}, 4);
  Arguments a = call.arguments();
  const calls::Sizes sizes = calls::checked_sizes(a);
  EXPECT_EQ(calls::checked_head_cuts(a, sizes), (std::vector<std::int64_t>{0, 3}));
  for (const std::vector<std::int64_t>& cuts :
       std::vector<std::vector<std::int64_t>>{{0}, {0, 10}, {1, 3}, {0, 2}, {0, 2, 1, 3}, {0, -1, 3}}) {
    a.cuts = row_major<const std::int64_t, 1>(cuts.data(), {std::ssize(cuts)});
    EXPECT_THROW((void)calls::checked_head_cuts(a, sizes), Error) << cuts.size();
  }
}

}  // namespace
}  // namespace samestate
