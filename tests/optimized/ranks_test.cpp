#include "optimized/ranks.h"

#include <gtest/gtest.h>

#include "reference/error.h"
#include "tests/optimized/call.h"

namespace samestate {
namespace {

using testing::Call;
using testing::make_call;

std::string text(const std::vector<calls::Part>& parts) {
  std::string out;
  for (const calls::Part& p : parts)
    out += std::to_string(p.rank) + ":" + std::to_string(p.begin) + "-" + std::to_string(p.end) +
           (p.passes_on ? "> " : " ");
  return out;
}

/// Returns the part of the cuts that each sequence has.
std::vector<std::string> parts_with(Call call, const std::vector<std::int64_t>& cuts) {
  const Arguments a = call.arguments();
  const calls::Sizes sizes = calls::checked_sizes(a);
  std::vector<std::string> out;
  for (std::int64_t n = 0; n < sizes.sequences; ++n) out.push_back(text(calls::parts_of(a, sizes, cuts, n)));
  return out;
}

TEST(Ranks, PartsOfDenseSequences) {
  const Call call = make_call("retention", {.B = 2, .T = 10, .dk = 2, .dv = 1}, 4);
  const std::vector<std::string> whole = {"0:0-10 ", "0:0-10 "};
  EXPECT_EQ(parts_with(call, {0, 10}), whole);
  const std::vector<std::string> uneven = {"1:0-3> 3:3-10 ", "1:0-3> 3:3-10 "};
  EXPECT_EQ(parts_with(call, {0, 0, 3, 3, 10, 10}), uneven);
}

TEST(Ranks, PartsOfPackedSequences) {
  const Call call =
      make_call("retention", {.B = 1, .T = 14, .dk = 2, .dv = 1, .offsets = {2, 5, 5, 11, 13}}, 4);
  // Tokens 0, 1 and 13 belong to no sequence; the empty one stands where the second begins.
  const std::vector<std::string> parts = {"0:0-2> 1:2-3 ", "1:0-0 ", "1:0-3> 2:3-6 ", "2:0-2 "};
  EXPECT_EQ(parts_with(call, {0, 4, 8, 14}), parts);
  const std::vector<std::string> at_ends = {"0:0-3 ", "1:0-0 ", "1:0-6 ", "2:0-2 "};
  EXPECT_EQ(parts_with(call, {0, 5, 11, 14}), at_ends);
}

TEST(Ranks, ImpossibleCutsAreRefused) {
  Call call = make_call("retention", {.T = 10, .dk = 2, .dv = 1}, 4);
  Arguments a = call.arguments();
  const calls::Sizes sizes = calls::checked_sizes(a);
  EXPECT_EQ(calls::checked_cuts(a, sizes), (std::vector<std::int64_t>{0, 10}));
  const struct {
    std::vector<std::int64_t> cuts;
    const char* says;
  } rows[] = {{{0}, "1 elements"},
              {{1, 10}, "cuts[0] is 1"},
              {{0, 9}, "cuts[1] is 9"},
              {{0, 6, 5, 10}, "cuts[2] is 5"},
              {{0, -1, 10}, "cuts[1] is -1"},
              {{0, 11, 10}, "cuts[1] is 11"}};
  for (const auto& row : rows) {
    a.cuts = row_major<const std::int64_t, 1>(row.cuts.data(), {std::ssize(row.cuts)});
    try {
      (void)calls::checked_cuts(a, sizes);
      ADD_FAILURE() << row.says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(row.says), std::string::npos) << error.what();
    }
  }
}

TEST(Ranks, TokensOfAHeadLeaveItsStates) {
  Call call = make_call("gated_delta_rule", {.T = 10, .dk = 2, .dv = 3}, 4);
  const Arguments a = call.arguments();
  const calls::Sizes sizes = calls::checked_sizes(a);
  const calls::Head whole = calls::head_of(a, sizes, 0, 0);
  const calls::Head part = calls::tokens_of(whole, 4, 9);
  EXPECT_EQ(part.tokens, 5);
  EXPECT_EQ(part.k.row(0), whole.k.row(4));
  EXPECT_EQ(part.beta.row(2), whole.beta.row(6));
  EXPECT_EQ(part.o.row(0), whole.o.row(4));
  EXPECT_EQ(part.initial_state.data, whole.initial_state.data);
  EXPECT_EQ(part.final_state.data, whole.final_state.data);
}

}  // namespace
}  // namespace samestate
