#include "oracles/judge_policy.h"

#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace samestate {
namespace {

using Table = std::map<std::string, double>;

std::string policy_text_of(const std::string& file) {
  std::ifstream in(std::string(SAMESTATE_SOURCE_DIR "/") + file);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

double number(const std::string& text) {
  if (text == "true") return 1.0;
  return text == "false" ? 0.0 : std::stod(text);
}

/// Name and value of every match; a name that stands twice is a fault of its own.
Table table_of(const std::string& text, const std::regex& row, std::size_t value) {
  Table out;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it)
    EXPECT_TRUE(out.emplace((*it)[1], number((*it)[value])).second) << (*it)[1];
  return out;
}

/// Fields and initial values of the struct, which are the gate's.
const std::regex kField(R"(\n  (?:double|int|Index|bool) (\w+) = ([-+.e0-9a-z]+);)");
/// Returns the fields in which a policy differs.
const std::regex kChange(R"(\.(\w+) = ([-+.e0-9a-z]+))");
const std::regex kPolicyRow(R"(\| `([a-z_0-9]+)` \| (true|false|[-+.e0-9]+) \| (true|false|[-+.e0-9]+) \|)");

/// The changes of the policy of that name in the text of the header.
Table changes_of(const std::string& header, const std::string& policy) {
  const std::size_t begin = header.find("JudgePolicy " + policy + "{");
  EXPECT_NE(begin, header.npos) << policy;
  return table_of(header.substr(begin, header.find(';', begin) - begin), kChange, 2);
}

Table with(Table table, const Table& changes) {
  for (const auto& [name, value] : changes) {
    EXPECT_TRUE(table.contains(name)) << name;
    table[name] = value;
  }
  return table;
}

TEST(JudgePolicy, TheTableOfTheDocumentIsTheTableOfTheCode) {
  const std::string header = policy_text_of("oracles/judge_policy.h");
  const std::string document = policy_text_of("docs/lookup/policy.md");
  const Table gate = table_of(header, kField, 2);
  ASSERT_GT(gate.size(), 40U);
  EXPECT_EQ(gate.at("doubt_work"), kGatePolicy.doubt_work) << "read as the compiler reads it";
  const Table deep = with(gate, changes_of(header, "kDeepPolicy"));
  EXPECT_EQ(deep.at("twin_work"), kDeepPolicy.twin_work) << "read as the compiler reads it";
  EXPECT_EQ(gate, table_of(document, kPolicyRow, 2));
  EXPECT_EQ(deep, table_of(document, kPolicyRow, 3));
  for (const JudgePolicy& policy : {kGatePolicy, kDeepPolicy, kFilePolicy, kBenchPolicy, kCapturedPolicy})
    EXPECT_NE(document.find("| `" + std::string(policy.name) + "` |"), document.npos) << policy.name;
}

TEST(JudgePolicy, ADifferenceShows) {
  const Table code = table_of("\n  double work = 0.3;\n  bool reruns = true;\n", kField, 2);
  EXPECT_EQ(code.size(), 2U);
  const std::string rows = "| x | `work` | 0.3 | 3 | y |\n| | `reruns` | true | true | y |\n";
  EXPECT_EQ(code, table_of(rows, kPolicyRow, 2));
  EXPECT_NE(code, table_of(rows, kPolicyRow, 3));
  EXPECT_EQ(changes_of("JudgePolicy kX{.name = \"x\", .work = 3.0};", "kX"), (Table{{"work", 3.0}}));
}

/// Each field, or the group that it begins, has a sentence above it.
TEST(JudgePolicy, EveryFieldSaysWhy) {
  std::istringstream lines(policy_text_of("oracles/judge_policy.h"));
  const std::regex field(R"(  (?:double|int|Index|bool) (\w+) = .*)");
  bool said = false;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_match(line, field)) {
      EXPECT_TRUE(said) << line;
    } else {
      said = line.starts_with("  ///");
    }
  }
}

/// Everything that the deep policy looks at has the limits that it has under the gate's: only how much is looked at, and how long,
/// differs.
TEST(JudgePolicy, DeepLooksAtMoreByTheSameLimits) {
  const std::string header = policy_text_of("oracles/judge_policy.h");
  const Table gate = table_of(header, kField, 2);
  for (const auto& [name, value] : changes_of(header, "kDeepPolicy")) EXPECT_GT(value, gate.at(name)) << name;
  EXPECT_EQ(kDeepPolicy.samples, kGatePolicy.samples);
  EXPECT_EQ(kDeepPolicy.second_look, kGatePolicy.second_look);
  EXPECT_EQ(kDeepPolicy.twin_first, kGatePolicy.twin_first);
  EXPECT_EQ(kDeepPolicy.twin_second, kGatePolicy.twin_second);
  EXPECT_EQ(kDeepPolicy.twin_third, kGatePolicy.twin_third);
}

}  // namespace
}  // namespace samestate
