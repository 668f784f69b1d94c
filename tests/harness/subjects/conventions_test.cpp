// The one table of conventions, against all that repeats its words: a declaration, what `diagnose` proposes, run files, and the page.
#include "harness/subjects/conventions.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/explain/reading.h"
#include "harness/subjects/declaration.h"
#include "oracles/systems/family.h"
#include "reference/error.h"
#include "tests/tree.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

/// A declaration with these conventions, as JSON.
Conventions declared(const std::string& conventions) {
  return parse_ready(R"({"type":"ready","protocol":1,"kernels":[{"name":"a.gated_delta_rule.chunked",)"
                     R"("system":"gated_delta_rule","form":"chunked","contracts":["fp32"],"conventions":{)" +
                     conventions + "}}]}")
      .kernels.front()
      .conventions;
}

std::string said(const Convention& row, const ConventionValue& value) {
  return fmt::format("\"{}\":{}", row.key,
                     row.set != nullptr ? fmt::format("\"{}\"", value.word) : std::string(value.word));
}

TEST(Conventions, TheFirstValueIsTheDefaultAndEachOtherIsAnother) {
  for (const Convention& row : conventions()) {
    ASSERT_FALSE(row.values.empty()) << row.key;
    EXPECT_EQ(declared(said(row, row.values.front())), Conventions{}) << row.key;
    std::set<int> values;
    std::set<std::string_view> words;
    for (const ConventionValue& value : row.values) {
      const Conventions conventions = declared(said(row, value));
      EXPECT_EQ(conventions == Conventions{}, &value == &row.values.front()) << said(row, value);
      EXPECT_FALSE(value.gives.empty()) << said(row, value);
      values.insert(value.value), words.insert(value.word);
    }
    EXPECT_EQ(values.size(), row.values.size()) << row.key;
    EXPECT_EQ(words.size(), row.values.size()) << row.key;
  }
}

// A run file uses the words of a declaration, but for beta, whose format has its name there.
TEST(Conventions, RunFilesHaveTheirWords) {
  for (const char* key : {"decay", "beta", "l2norm_place"}) {
    for (const ConventionValue& value : convention_named(key)->values) {
      Given given;
      const Conventions conventions = declared(said(*convention_named(key), value));
      given.decay = conventions.decay, given.strength = conventions.beta, given.norm = conventions.norm_place;
      const std::string text = text_of(given);
      const std::string of = std::string_view(key) == "beta" ? "strength" : key;
      EXPECT_EQ(text, given == Given{} ? "" : fmt::format("{}={}", of, value.word));
      EXPECT_EQ(given_in(text), given) << text;
    }
  }
}

/// Returns the part of a proposal that is not a convention.
std::string fault_of(std::string_view declare) {
  const auto json = nlohmann::json::parse(fmt::format("{{{}}}", declare), nullptr, false);
  if (json.is_discarded()) return fmt::format("{} is no JSON", declare);
  for (const auto& [key, value] : json.items()) {
    const Convention* row = convention_named(key);
    if (row == nullptr) return fmt::format("{} is no convention", key);
    if (row->set == nullptr ? !value.is_number()
                            : std::ranges::find(row->values, value.get<std::string>(),
                                                &ConventionValue::word) == row->values.end())
      return fmt::format("{} has no value {}", key, value.dump());
  }
  return "";
}

TEST(Conventions, DiagnoseProposesNothingElse) {
  std::set<std::string> proposed;
  for (const Family& family : families()) {
    for (const Deviation* deviation : deviations_of(family)) {
      EXPECT_EQ(fault_of(deviation->declare), "") << deviation->name;
      if (deviation->declare.empty()) continue;
      static_cast<void>(declared(std::string(deviation->declare)));
      const auto json = nlohmann::json::parse(fmt::format("{{{}}}", deviation->declare));
      for (const auto& [key, value] : json.items())
        proposed.insert(value.is_string() ? key + "=" + value.get<std::string>() : key);
    }
  }
  // For every other value of what a kernel computes by itself, there is a deviation that proposes it.
  for (const char* key : {"decay", "state", "l2norm", "l2norm_place", "beta"}) {
    const Convention& row = *convention_named(key);
    for (std::size_t i = 1; i < row.values.size(); ++i)
      EXPECT_TRUE(proposed.contains(fmt::format("{}={}", key, row.values[i].word)))
          << key << " " << row.values[i].word;
  }
  EXPECT_EQ(fault_of(R"("decay":"cubic")"), "decay has no value \"cubic\"");
  EXPECT_EQ(fault_of(R"("decoy":"ln")"), "decoy is no convention");
}

/// The rows of the table of the page, without markup.
std::vector<std::string> rows_of(const std::string& page) {
  std::vector<std::string> out;
  const std::size_t begin = page.find("\n| key | value | of | the subject is given |\n");
  std::istringstream lines(begin == page.npos ? "" : page.substr(begin + 1));
  std::string line;
  std::getline(lines, line), std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("|")) out.push_back(line);
  return out;
}

std::string row_of(const Convention& row, const ConventionValue& value) {
  std::string gives;
  for (const char c : value.gives) gives += c == '|' ? "\\|" : std::string(1, c);
  return fmt::format("| `{}` | `{}` | {} | {} |", row.key, value.word, name_of(row.of), gives);
}

TEST(Conventions, ThePageHasTheTable) {
  const fs::path root = SAMESTATE_SOURCE_DIR;
  const std::string page = testing::read(root, root / "docs/lookup/subjects.md").text;
  std::vector<std::string> expected;
  for (const Convention& row : conventions()) {
    for (const ConventionValue& value : row.values) expected.push_back(row_of(row, value));
  }
  EXPECT_EQ(rows_of(page), expected);
  std::string changed = page;
  changed.replace(changed.find("| `decay` | `log2` |"), 19, "| `decay` | `lb` |");
  EXPECT_NE(rows_of(changed), expected) << "a word that no declaration takes";
}

}  // namespace
}  // namespace samestate
