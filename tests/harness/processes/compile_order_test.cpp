#include "harness/processes/compile_order.h"

#include <gtest/gtest.h>

#include "optimized/kernel.h"

namespace samestate {
namespace {

/// Four cases of each of three widths, of a subject that is compiled for them, and one of a kernel that is not.
class CompileOrderOfThreeWidths : public testing::Test {
 protected:
  CompileOrderOfThreeWidths() : table(kernels()) {
    Kernel row = KernelTable(kernels()).named("cpu.retention.recurrent");
    row.name = "mine.retention.recurrent";
    table.add(std::vector<Kernel>{row});
    table.converts(row.name, false, {"dk"}, {});
    for (const char* dk : {"8", "16", "32"}) {
      for (const char* T : {"1", "2", "3", "4"})
        cases.push_back(parse_case(std::string("v1 retention form=recurrent dk=") + dk + " T=" + T +
                                   " kernel=" + row.name));
    }
    cases.push_back(parse_case("v1 retention form=recurrent T=7"));
  }
  KernelTable table;
  std::vector<Case> cases;
};

TEST_F(CompileOrderOfThreeWidths, IsThatOfTheListWithoutALimit) {
  CompileOrder order(cases, table, 0.0, 1);
  order.add(1000.0);
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(order.next(1000.0), i);
  EXPECT_EQ(order.next(1000.0), std::nullopt);
  EXPECT_TRUE(order.left().empty());
}

TEST_F(CompileOrderOfThreeWidths, PutsOffWhatCompilesWhileThatTookMostOfTheTime) {
  CompileOrder order(cases, table, 210.0, 1);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(order.next(0.0), i);
  order.add(10.0);
  EXPECT_EQ(order.next(12.0), 12U) << "of the time 10 of 12 seconds; what compiles nothing comes first";
  EXPECT_EQ(order.next(20.0), 4U) << "half of it";
  order.add(10.0);
  for (std::size_t i = 5; i < 8; ++i) EXPECT_EQ(order.next(21.0), i) << "its variant is compiled";
  EXPECT_EQ(order.next(22.0), 8U) << "nothing else is left";
}

TEST_F(CompileOrderOfThreeWidths, CompilesInSeveralProcessesAtATime) {
  CompileOrder order(cases, table, 210.0, 4);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(order.next(0.0), i);
  order.add(20.0);
  EXPECT_EQ(order.next(12.0), 4U) << "20 seconds of four are five of one";
}

TEST_F(CompileOrderOfThreeWidths, LeavesWhatThereIsNoTimeToCompile) {
  CompileOrder order(cases, table, 210.0, 1);
  EXPECT_EQ(order.next(0.0), 0U);
  for (const std::size_t i : {1U, 2U, 3U, 12U}) EXPECT_EQ(order.next(211.0), i);
  EXPECT_EQ(order.next(211.0), std::nullopt);
  EXPECT_EQ(order.left(), (std::vector<std::size_t>{4, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(order.next(212.0), std::nullopt);
  EXPECT_EQ(order.left().size(), 8U);
}

}  // namespace
}  // namespace samestate
