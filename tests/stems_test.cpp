/// Where each file is tested: a test of its name in its room, or a row of tests/README.md.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace samestate {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = SAMESTATE_SOURCE_DIR;
const std::vector<std::string> kRooms = {"reference", "optimized", "oracles", "fuzz/plan", "fuzz/search"};

struct Row {
  std::vector<std::string> files;  ///< patterns, without extension
  std::vector<std::string> tests;  ///< files or folders
};

/// The names in backquotes of one cell.
std::vector<std::string> names_of(const std::string& cell) {
  static const std::regex name("`([^`]+)`");
  std::vector<std::string> out;
  for (std::sregex_iterator it(cell.begin(), cell.end(), name), end; it != end; ++it) out.push_back((*it)[1]);
  return out;
}

std::vector<Row> rows_of(const std::string& text) {
  static const std::regex row(R"(\n\| (`[^|]*) \| (`[^|]*) \| [^|]+ \|)");
  std::vector<Row> out;
  for (std::sregex_iterator it(text.begin(), text.end(), row), end; it != end; ++it)
    out.push_back({names_of((*it)[1]), names_of((*it)[2])});
  return out;
}

bool matches(const std::string& pattern, const std::string& stem) {
  const std::string one = std::regex_replace(pattern, std::regex(R"((^|[^*])\*(?!\*))"), "$1[^/]*");
  return std::regex_match(stem, std::regex(std::regex_replace(one, std::regex(R"(\*\*)"), ".+")));
}

/// `sources` and `tests` are paths from the root; `exists` says whether a path is there. What is wrong, a line
/// each.
template <class Exists>
std::vector<std::string> faults(const std::set<std::string>& sources, const std::set<std::string>& tests,
                                const std::vector<Row>& rows, Exists&& exists) {
  std::vector<std::string> out;
  std::set<std::string> named;  // room and stem of every test
  for (const std::string& test : tests) {
    const std::string stem = fs::path(test).stem().string();
    const std::string room = test.substr(6, test.find('/', 6) - 6);
    if (stem.ends_with("_test")) named.insert(room + "/" + stem.substr(0, stem.size() - 5));
  }
  std::set<std::string> used;
  for (const std::string& source : sources) {
    const std::string stem = fs::path(source).replace_extension().string();
    bool found = named.contains(stem.substr(0, stem.find('/')) + "/" + fs::path(stem).filename().string());
    for (const Row& row : rows) {
      for (const std::string& pattern : row.files) {
        if (!matches(pattern, stem)) continue;
        found = true;
        used.insert(pattern);
      }
    }
    if (!found) out.push_back(source + " has no test of its name and no row in tests/README.md");
  }
  for (const Row& row : rows) {
    for (const std::string& pattern : row.files) {
      if (!used.contains(pattern)) out.push_back("tests/README.md: there is no file " + pattern);
    }
    for (const std::string& test : row.tests) {
      if (!exists(test)) out.push_back("tests/README.md: there is no " + test);
    }
  }
  return out;
}

std::set<std::string> files_under(const fs::path& folder) {
  static const std::set<std::string> kinds = {".h", ".cpp", ".cu", ".cuh"};
  std::set<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
    if (kinds.contains(entry.path().extension().string()))
      out.insert(fs::relative(entry.path(), kRoot).generic_string());
  }
  return out;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string out;
  for (const std::string& line : lines) out += "  " + line + "\n";
  return out;
}

TEST(Stems, EveryFileSaysWhereItIsTested) {
  std::ifstream in(kRoot / "tests/README.md");
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const std::vector<Row> rows = rows_of(text);
  ASSERT_GT(rows.size(), 10U);
  std::set<std::string> sources;
  std::set<std::string> tests;
  for (const std::string& room : kRooms) {
    sources.merge(files_under(room));
    tests.merge(files_under("tests/" + room));
  }
  const auto wrong = faults(sources, tests, rows, [](const std::string& p) { return fs::exists(kRoot / p); });
  EXPECT_TRUE(wrong.empty()) << joined(wrong);
}

TEST(Stems, AFileWithoutATestAnIdleRowAndALostTestShow) {
  const std::set<std::string> sources = {"reference/a.h", "oracles/b.cpp", "oracles/b.h", "oracles/x/c.h"};
  const std::set<std::string> tests = {"tests/reference/a_test.cpp", "tests/reference/b_test.cpp"};
  const auto there = [](const std::string& path) { return path == "tests/t.cpp"; };
  const auto count = [&](const std::string& table) {
    return faults(sources, tests, rows_of("\n| files | tested in | by |\n" + table), there).size();
  };
  EXPECT_EQ(count("| `oracles/b`, `oracles/x/*` | `tests/t.cpp` | y |\n"), 0U);
  EXPECT_EQ(count("| `oracles/x/*` | `tests/t.cpp` | y |\n"), 2U) << "b.cpp and b.h: a's room has a b_test";
  EXPECT_EQ(count("| `oracles/*` | `tests/t.cpp` | y |\n"), 1U) << "* ends at a slash";
  EXPECT_EQ(count("| `oracles/**` | `tests/t.cpp` | y |\n"), 0U);
  EXPECT_EQ(count("| `oracles/b`, `oracles/x/c`, `oracles/x/d` | `tests/t.cpp` | y |\n"), 1U)
      << "an idle row";
  EXPECT_EQ(count("| `oracles/b`, `oracles/x/c` | `tests/gone.cpp` | y |\n"), 1U) << "a lost test";
}

/// Returns what docs/understand/delta_kernels.md lacks or has too much. `stems` are paths from optimized/cuda/delta without extension. A row
/// is a kernel's file, or a file of its folder where it is one of several there.
std::vector<std::string> page_faults(const std::string& page, const std::set<std::string>& stems) {
  static const std::regex row(R"(\n\| `([^`]+)` \|)"),
      kernel("(token|chunk)_(fma|mma|wgmma)_(dense|list|pool)(_generic)?");
  std::vector<std::string> out;
  std::set<std::string> described;
  for (std::sregex_iterator it(page.begin(), page.end(), row), end; it != end; ++it) {
    const std::string name = (*it)[1];
    const auto first = stems.lower_bound(name);
    const bool there =
        name.ends_with('/') ? first != stems.end() && first->starts_with(name) : stems.contains(name);
    if (!there) out.push_back("docs/understand/delta_kernels.md: there is no " + name);
    described.insert(name.substr(0, name.find('/')));
  }
  for (const std::string& stem : stems) {
    if (std::regex_match(stem, kernel) && !described.contains(stem))
      out.push_back("docs/understand/delta_kernels.md does not say why " + stem + " is there");
  }
  return out;
}

TEST(Stems, EveryKernelOfTheDeltaRuleIsAccountedFor) {
  std::ifstream in(kRoot / "docs/understand/delta_kernels.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  const std::string folder = "optimized/cuda/delta/";
  std::set<std::string> stems;
  for (const std::string& file : files_under(folder))
    stems.insert(fs::path(file.substr(folder.size())).replace_extension().generic_string());
  const auto wrong = page_faults(page, stems);
  EXPECT_TRUE(wrong.empty()) << joined(wrong);
  EXPECT_FALSE(page_faults("", stems).empty()) << "no kernel follows the names of the page";
}

TEST(Stems, AKernelWithoutARowAndARowWithoutAKernelShow) {
  const std::set<std::string> stems = {"chunk_fma_dense", "chunk_fma_dense/chain", "inverse",
                                       "token_fma_pool"};
  EXPECT_EQ(page_faults("\n| `chunk_fma_dense/` | a |\n| `token_fma_pool` | b |\n", stems).size(), 0U);
  EXPECT_EQ(page_faults("\n| `chunk_fma_dense/chain` | a |\n", stems).size(), 1U) << "token_fma_pool";
  EXPECT_EQ(page_faults("\n| `chunk_fma_dense` | a |\n| `token_fma_pool` | b |\n| `inverse/` | c |\n", stems)
                .size(),
            1U);
}

}  // namespace
}  // namespace samestate
