/// Tests the second look at a run, in pieces: none is longer or shorter than what the kernel declares that it
/// takes.
#include "harness/run/piece_lengths.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>

#include "harness/card/card_cases.h"
#include "harness/run/run_case.h"

namespace samestate {
namespace {

using Lengths = std::vector<Index>;

TEST(PieceLengths, AreTheShortestThatTheKernelTakes) {
  EXPECT_EQ(piece_lengths(10, 4, {}), (Lengths{4, 4, 2}));
  EXPECT_EQ(piece_lengths(3, 4, {}), (Lengths{3}));
  EXPECT_EQ(piece_lengths(0, 4, {}), Lengths{});
  const auto at_least = [](Index least) { return [least](Index n) { return n >= least; }; };
  EXPECT_EQ(piece_lengths(50, 4, at_least(16)), (Lengths{16, 16, 18}));
  EXPECT_EQ(piece_lengths(17, 4, at_least(16)), (Lengths{17}));
  EXPECT_EQ(piece_lengths(192, 4, [](Index n) { return n % 64 == 0; }), (Lengths{64, 64, 64}));
  EXPECT_EQ(piece_lengths(192, 4, [](Index n) { return n == 192; }), (Lengths{192}));
  EXPECT_EQ(piece_lengths(12, 4, [](Index n) { return n == 3 || n == 6; }), (Lengths{6, 6}));
  // Nothing fits: the call says of the first cut why.
  EXPECT_EQ(piece_lengths(10, 4, [](Index n) { return n == 7; }), (Lengths{4, 4, 2}));
}

/// A right kernel whose state is stored in bf16, so that a long run is judged again in pieces; it takes 16 tokens or more, as its
/// row declares where `declares`, and keeps the shortest call that it saw.
class FromSixteen {
 public:
  FromSixteen(bool declares, bool throws) {
    Kernel row = KernelTable(kernels()).named("cpu.gated_delta_rule.recurrent");
    row.name = kName, row.contracts = {"bf16_state"}, row.limits = {};
    if (declares) row.limits.emplace_back("T >= 16");
    row.run = [run = row.run, shortest = shortest_, throws](const Arguments& a, const Contract& contract) {
      *shortest = std::min(*shortest, a.q.shape[1]);
      if (throws && a.q.shape[1] < 16) throw std::runtime_error("at least 16 tokens");
      return run(a, contract);
    };
    table.add(std::vector<Kernel>{row});
    table.converts(kName, false, {}, {});
  }

  static constexpr const char* kName = "mine.gated_delta_rule.recurrent";
  KernelTable table{kernels()};
  [[nodiscard]] std::int64_t shortest() const { return *shortest_; }

 private:
  std::shared_ptr<std::int64_t> shortest_ = std::make_shared<std::int64_t>(1 << 20);
};

/// Verdicts of the regimes in which a card is tried; 194 tokens are 48 pieces of four and one of two.
std::vector<Verdict> gated(const FromSixteen& kernel) {
  std::vector<Verdict> verdicts;
  for (const std::string_view regime : card_regimes(kernel.table.row_named(FromSixteen::kName))) {
    verdicts.push_back(run_case(parse_case(fmt::format(
                                    "v1 gated_delta_rule form=recurrent T=194 contract=bf16_state regime={} "
                                    "state=random kernel={}",
                                    regime, FromSixteen::kName)),
                                kernel.table)
                           .judgement.verdict);
  }
  return verdicts;
}

TEST(PieceLengths, OfACaseOfTheGateLieWithinTheDeclaredLimits) {
  const FromSixteen plain(false, false);
  const std::vector<Verdict> right = gated(plain);
  ASSERT_EQ(plain.shortest(), 2) << "no case has a second look, so that nothing is shown";
  EXPECT_EQ(std::ranges::count(right, Verdict::pass), std::ssize(right));
  const FromSixteen limited(true, true);
  EXPECT_EQ(gated(limited), right);
  EXPECT_EQ(limited.shortest(), 16);
  // Planted: a kernel that does not take such calls and does not say so fails its second look.
  const FromSixteen silent(false, true);
  EXPECT_GT(std::ranges::count(gated(silent), Verdict::crash), 0);
}

TEST(PieceLengths, OfACardLieWithinTheDeclaredLimits) {
  const FromSixteen limited(true, true);
  const KernelRow& row = limited.table.row_named(FromSixteen::kName);
  for (const std::string_view regime : card_regimes(row)) {
    const CardCase judged = judged_under(limited.table, row, "bf16_state", "bf16_state", regime);
    EXPECT_EQ(judged.verdict, "pass") << judged.line;
  }
  EXPECT_EQ(limited.shortest(), 16);
}

}  // namespace
}  // namespace samestate
