#include "oracles/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

namespace samestate {
namespace {

TEST(Verdict, TheListIsWholeAndItsNamesAreUnique) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kVerdicts.size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(kVerdicts[i]), i) << "in the order of the enumeration";
    EXPECT_TRUE(names.insert(name_of(kVerdicts[i])).second);
  }
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_EQ(name_of(static_cast<Verdict>(kVerdicts.size())), "unknown") << "a new verdict: list it";
}

TEST(Verdict, WhoIsAFailure) {
  const auto all = [](bool (*holds)(Verdict)) {
    std::set<Verdict> out;
    std::copy_if(kVerdicts.begin(), kVerdicts.end(), std::inserter(out, out.end()), holds);
    return out;
  };
  EXPECT_EQ(all(is_judged), (std::set{Verdict::pass, Verdict::fail, Verdict::flaky}));
  EXPECT_EQ(all(is_repeatable_failure), (std::set{Verdict::fail, Verdict::crash, Verdict::timeout}));
  EXPECT_EQ(all(is_failure), (std::set{Verdict::fail, Verdict::crash, Verdict::timeout, Verdict::flaky}));
}

}  // namespace
}  // namespace samestate
