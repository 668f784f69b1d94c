#include "oracles/limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

#include "oracles/judge.h"
#include "oracles/systems/judge_operator.h"

namespace samestate {
namespace {

using Table = std::map<std::string, double>;

std::string text_of(const std::string& file) {
  std::ifstream in(std::string(SAMESTATE_SOURCE_DIR "/") + file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Every match of (name)(number) in a text; a name that stands twice is a fault of its own.
Table table_of(const std::string& text, const std::regex& row) {
  Table out;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it) {
    EXPECT_TRUE(out.emplace((*it)[1], std::stod((*it)[2])).second) << (*it)[1];
  }
  return out;
}

const std::regex kConstant(R"(inline constexpr \w+ (k\w+) = ([-+.exp0-9]+);)");
const std::regex kLimitRow(R"(\| `(k\w+)` \| ([-+.exp0-9]+) \|)");

TEST(Limits, TheTableOfTheDocumentIsTheTableOfTheCode) {
  const Table code = table_of(text_of("oracles/limits.h") + text_of("harness/run/judging_cost.h"), kConstant);
  const Table document =
      table_of(text_of("docs/understand/validation.md") + text_of("docs/lookup/policy.md"), kLimitRow);
  EXPECT_EQ(code.at("kVacuousRows"), kVacuousRows) << "read as the compiler reads it";
  EXPECT_EQ(code, document);
}

TEST(Limits, ADifferenceShows) {
  const Table code = table_of("inline constexpr double kA = 0.3;\n", kConstant);
  EXPECT_EQ(code, table_of("| rows | `kA` | 0.3 | x |", kLimitRow));
  EXPECT_NE(code, table_of("| rows | `kA` | 0.5 | x |", kLimitRow));
  EXPECT_NE(code, table_of("| rows | `kB` | 0.3 | x |", kLimitRow));
}

/// Errors within tolerances of relative size L have a relative size of at most L: what loses a factor of 2
/// never passes an operator, whatever the tolerances' distribution.
TEST(Limits, ALostFactorOfTwoNeverPasses) {
  EXPECT_LE(kVacuousOutput, 0.5);
  EXPECT_LE(kVacuousRows, kVacuousOutput);
}

}  // namespace
}  // namespace samestate
