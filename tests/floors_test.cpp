/// The floors: who may include and link whom, read from the tree itself. reference 0; optimized, oracles and
/// fixtures 1; harness and reports 2; measure and fuzz 3; cli 4; nothing includes tests.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/tree.h"

namespace samestate {
namespace {

using testing::joined;
using testing::read;
using testing::Source;
using testing::sources_of;

namespace fs = std::filesystem;

constexpr std::ptrdiff_t kLongestSource = 500;

/// Returns what a folder of kernels may include: what all of them may, and `more`.
std::vector<std::string> of_cuda(std::vector<std::string> more) {
  for (const char* room : {"reference/error.h", "optimized/", "optimized/cuda/", "optimized/cuda/units/",
                           "optimized/cuda/host/"})
    more.emplace_back(room);
  return more;
}

/// The parts of this project that each room may include, besides itself: rooms (with a slash at the end) and
/// single headers. A room is the deepest folder of this table that contains a file.
const std::map<std::string, std::vector<std::string>> kMayInclude = {
    {"reference", {}},
    {"optimized",
     {"reference/axis.h", "reference/view.h", "reference/contract.h", "reference/error.h", "optimized/cuda/",
      "optimized/cuda/backward/backward_kernels.h", "optimized/cuda/delta/chunk_wgmma_segments.h",
      "optimized/cuda/delta/ranks/rank_kernels.h"}},
    // The rows of the tables, then folders by what they compute.
    {"optimized/cuda", {"optimized/", "optimized/cuda/host/", "optimized/cuda/delta/"}},
    {"optimized/cuda/units", {"reference/error.h", "optimized/cuda/host/grid.cuh"}},
    {"optimized/cuda/host",
     {"reference/error.h", "optimized/", "optimized/cuda/", "optimized/cuda/units/",
      "optimized/cuda/pointwise/pointwise.cuh"}},
    {"optimized/cuda/pointwise", of_cuda({})},
    {"optimized/cuda/products", of_cuda({})},
    {"optimized/cuda/recurrence", of_cuda({"optimized/cuda/pointwise/", "optimized/cuda/products/"})},
    {"optimized/cuda/scan",
     of_cuda({"optimized/cuda/pointwise/", "optimized/cuda/products/", "optimized/cuda/recurrence/"})},
    {"optimized/cuda/attention", of_cuda({"optimized/cuda/pointwise/", "optimized/cuda/products/"})},
    {"optimized/cuda/experts", of_cuda({"optimized/cuda/pointwise/", "optimized/cuda/products/"})},
    {"optimized/cuda/delta", of_cuda({"reference/contract.h", "optimized/cuda/pointwise/",
                                      "optimized/cuda/products/", "optimized/cuda/dendritic/lists.cuh"})},
    {"optimized/cuda/backward", of_cuda({"reference/contract.h", "optimized/cuda/delta/"})},
    {"optimized/cuda/dendritic",
     of_cuda({"optimized/cuda/pointwise/", "optimized/cuda/products/", "optimized/cuda/delta/"})},
    {"oracles", {"reference/"}},
    {"oracles/proofs", {"reference/", "oracles/", "fixtures/"}},
    {"fixtures", {"samestate_models.h", "reference/view.h", "reference/error.h"}},
    {"harness/records", {"oracles/verdict.h", "reference/error.h"}},
    {"harness/cases", {"reference/", "oracles/", "fixtures/", "harness/records/"}},
    {"harness/run",
     {"reference/", "optimized/", "oracles/", "fixtures/", "harness/records/", "harness/cases/"}},
    {"harness/processes",
     {"fixtures/quote.h", "reference/", "oracles/", "harness/records/", "harness/cases/", "harness/run/"}},
    {"harness/systems",
     {"reference/", "optimized/", "oracles/", "fixtures/", "harness/records/", "harness/cases/",
      "harness/run/"}},
    {"harness/laws", {"reference/", "oracles/", "harness/cases/", "harness/run/", "harness/systems/"}},
    {"harness/explain",
     {"reference/", "optimized/", "oracles/", "fixtures/", "harness/records/", "harness/cases/",
      "harness/run/", "harness/systems/"}},
    {"harness/subjects",
     {"reference/", "optimized/", "oracles/", "fixtures/", "harness/records/", "harness/cases/",
      "harness/run/", "harness/processes/", "samestate_version.h"}},
    {"harness/captured",
     {"reference/", "oracles/", "fixtures/", "harness/records/", "harness/cases/", "harness/run/",
      "harness/subjects/declaration.h", "harness/systems/saved_run.h"}},
    {"harness/diagnose",
     {"reference/", "optimized/", "oracles/", "fixtures/", "harness/records/", "harness/cases/",
      "harness/run/", "harness/systems/", "harness/card/", "harness/explain/reading.h"}},
    {"harness/script",
     {"reference/", "optimized/", "oracles/", "fixtures/", "harness/records/", "harness/cases/",
      "harness/run/", "harness/systems/"}},
    {"harness/card",
     {"reference/", "optimized/", "oracles/", "fixtures/", "harness/records/", "harness/cases/",
      "harness/run/", "harness/systems/"}},
    {"reports",
     {"oracles/verdict.h", "oracles/reasons.h", "harness/records/", "reference/error.h",
      "fixtures/json_syntax.h", "fixtures/quote.h", "samestate_assets.h"}},
    {"measure",
     {"reference/", "optimized/", "optimized/cuda/", "oracles/", "fixtures/", "harness/records/",
      "harness/cases/", "harness/run/", "harness/systems/", "harness/processes/"}},
    {"fuzz/plan",
     {"reference/", "oracles/", "harness/records/", "harness/cases/", "harness/run/", "harness/systems/"}},
    {"fuzz/search",
     {"reference/", "oracles/", "harness/records/", "harness/cases/", "harness/run/", "harness/processes/",
      "fuzz/plan/"}},
    {"fuzz/mutants",
     {"reference/", "optimized/", "oracles/", "harness/records/", "harness/cases/", "harness/run/",
      "harness/systems/", "harness/processes/", "harness/explain/explain.h", "fuzz/plan/"}},
    {"cli", {"reference/",        "optimized/",          "optimized/cuda/",
             "oracles/",          "oracles/proofs/",     "fixtures/",
             "harness/records/",  "harness/cases/",      "harness/run/",
             "harness/systems/",  "harness/processes/",  "harness/explain/",
             "harness/card/",     "harness/subjects/",   "harness/diagnose/",
             "harness/captured/", "harness/script/",     "reports/",
             "measure/",          "fuzz/plan/",          "fuzz/search/",
             "fuzz/mutants/",     "samestate_version.h", "samestate_kernel_sources.h"}},
    {"tests",
     {"reference/",
      "optimized/",
      "optimized/cuda/",
      "optimized/cuda/units/",
      "optimized/cuda/host/",
      "optimized/cuda/pointwise/",
      "optimized/cuda/products/",
      "optimized/cuda/recurrence/",
      "optimized/cuda/scan/",
      "optimized/cuda/attention/",
      "optimized/cuda/experts/",
      "optimized/cuda/delta/",
      "optimized/cuda/dendritic/",
      "optimized/cuda/backward/",
      "oracles/",
      "oracles/proofs/",
      "fixtures/",
      "harness/records/",
      "harness/cases/",
      "harness/run/",
      "harness/systems/",
      "harness/laws/",
      "harness/processes/",
      "harness/explain/",
      "harness/card/",
      "harness/subjects/",
      "harness/diagnose/",
      "harness/captured/",
      "harness/script/",
      "reports/",
      "measure/",
      "fuzz/plan/",
      "fuzz/search/",
      "fuzz/mutants/",
      "cli/",
      "samestate_version.h"}},
    {"examples", {"optimized/plugin.h", "optimized/kernel.h", "reference/view.h", "reference/contract.h"}},
    {"examples/reference_use", {"reference/"}},
};

/// The targets of this project that the targets of each folder with a CMakeLists.txt may link, besides its
/// own targets and samestate_options.
const std::map<std::string, std::set<std::string>> kMayLink = {
    {"reference", {"samestate_eigen"}},
    {"optimized", {}},
    {"oracles", {"samestate_reference", "samestate_multiprecision"}},
    {"oracles/proofs", {"samestate_oracles", "samestate_fixtures", "samestate_multiprecision"}},
    {"fixtures", {}},
    {"harness", {"samestate_oracles", "samestate_optimized", "samestate_fixtures"}},
    {"reports", {"samestate_records", "samestate_fixtures"}},
    {"measure", {"samestate_harness"}},
    {"fuzz", {"samestate_harness"}},
    {"cli", {"samestate_fuzz", "samestate_measure", "samestate_proofs", "samestate_reports"}},
};

/// Returns the room of a path; empty if it is in none.
std::string room_of(const std::string& path) {
  std::string room;
  for (const auto& [folder, allowed] : kMayInclude) {
    if (path.starts_with(folder + "/") && folder.size() > room.size()) room = folder;
  }
  return room;
}

/// Headers made by the build.
bool is_generated(const std::string& included) {
  return included == "samestate_version.h" || included == "samestate_kernel_sources.h" ||
         included == "samestate_assets.h" || included == "samestate_models.h";
}

bool is_ours(const std::string& included) { return !room_of(included).empty() || is_generated(included); }

/// An include directive: the name and how it is written.
struct Include {
  std::string name;
  bool quoted;
};

/// The directives of a text, in order; one inside a block comment counts too.
std::vector<Include> includes_of(const std::string& text) {
  std::vector<Include> includes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    char hash = 0;
    if (!(words >> hash) || hash != '#') continue;
    std::string rest;
    std::getline(words >> std::ws, rest);
    if (!rest.starts_with("include")) continue;
    const std::size_t open = rest.find_first_of("\"<");
    if (open == rest.npos) continue;
    const bool quoted = rest[open] == '"';
    const std::size_t close = rest.find(quoted ? '"' : '>', open + 1);
    if (close != rest.npos) includes.push_back({rest.substr(open + 1, close - open - 1), quoted});
  }
  return includes;
}

/// Says why `includer` may not have this directive; empty if it may.
std::string include_fault(const std::string& includer, const Include& include) {
  const std::string& included = include.name;
  if (!is_ours(included)) {
    return include.quoted
               ? includer + " includes \"" + included + "\": ours from the repository root, others in <>"
               : "";
  }
  const std::string room = room_of(includer);
  if (room.empty()) return includer + ": a folder that the table of floors does not know";
  const std::string of = room_of(included);
  if (of == room) return "";
  for (const std::string& allowed : kMayInclude.at(room)) {
    if (allowed == of + "/" || allowed == included) return "";
  }
  return includer + " includes " + included + ": an edge outside the floors";
}

/// All that is wrong with the sources; each line names the file.
std::vector<std::string> faults_of(const std::vector<Source>& sources) {
  std::vector<std::string> faults;
  for (const Source& source : sources) {
    for (const Include& include : includes_of(source.text)) {
      const std::string fault = include_fault(source.path, include);
      if (!fault.empty()) faults.push_back(fault);
    }
    const std::ptrdiff_t lines = std::count(source.text.begin(), source.text.end(), '\n');
    if (lines > kLongestSource) {
      faults.push_back(source.path + " has " + std::to_string(lines) + " lines, more than " +
                       std::to_string(kLongestSource) + ": split it by what it computes");
    }
    const bool header = source.path.ends_with(".h") || source.path.ends_with(".cuh");
    if (header && source.text.find("#pragma once\n") == std::string::npos) {
      faults.push_back(source.path + ": a header without #pragma once");
    }
  }
  return faults;
}

/// A CMake file as words: comments gone, parentheses words of their own.
std::vector<std::string> cmake_words(const std::string& text) {
  std::string spaced;
  bool in_comment = false;
  for (char c : text) {
    in_comment = c != '\n' && (in_comment || c == '#');
    if (in_comment) continue;
    if (c == '(' || c == ')') {
      spaced += {' ', c, ' '};
    } else {
      spaced += c;
    }
  }
  std::istringstream stream(spaced);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// All link edges of a folder's CMakeLists.txt that are outside the floors.
std::vector<std::string> link_faults_of(const Source& source) {
  const std::vector<std::string> words = cmake_words(source.text);
  std::set<std::string> allowed = kMayLink.at(source.path.substr(0, source.path.rfind('/')));
  // Neither has a source.
  allowed.insert({"samestate_options", "samestate_has_cuda"});
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (words[i] == "add_library" || words[i] == "add_executable") allowed.insert(words[i + 2]);
  }
  std::vector<std::string> faults;
  for (std::size_t i = 0; i + 2 < words.size(); ++i) {
    if (words[i] != "target_link_libraries") continue;
    const std::string& target = words[i + 2];
    for (std::size_t w = i + 3; w < words.size() && words[w] != ")"; ++w) {
      std::string name = words[w];
      if (name.starts_with("samestate::")) name.replace(0, std::string("samestate::").size(), "samestate_");
      if (name.starts_with("samestate_") && !allowed.contains(name)) {
        faults.push_back(source.path + ": " + target + " links " + name + ": an edge outside the floors");
      }
    }
  }
  return faults;
}

std::vector<Source> all_sources() {
  std::set<std::string> tops;
  for (const auto& [room, allowed] : kMayInclude) tops.insert(room.substr(0, room.find('/')));
  return sources_of(SAMESTATE_SOURCE_DIR, tops);
}

TEST(Floors, TheTreeKeepsThem) {
  const std::vector<Source> sources = all_sources();
  ASSERT_GT(sources.size(), 20U) << "the tree was not found under " << SAMESTATE_SOURCE_DIR;
  EXPECT_EQ(joined(faults_of(sources)), "");
}

TEST(Floors, TheTargetsKeepThem) {
  const fs::path root = SAMESTATE_SOURCE_DIR;
  for (const auto& [folder, allowed] : kMayLink) {
    const Source source = read(root, root / folder / "CMakeLists.txt");
    EXPECT_NE(source.text.find("target_link_libraries"), std::string::npos) << source.path;
    EXPECT_EQ(joined(link_faults_of(source)), "");
  }
}

TEST(Floors, NoFolderOfCodeIsOutsideTheTable) {
  for (const fs::directory_entry& entry : fs::directory_iterator(SAMESTATE_SOURCE_DIR)) {
    if (!entry.is_directory() || entry.path().filename().string().front() == '.') continue;
    if (!fs::exists(entry.path() / "CMakeLists.txt") || fs::exists(entry.path() / "CMakeCache.txt")) continue;
    const std::string folder = entry.path().filename().string() + "/";
    EXPECT_TRUE(std::any_of(kMayInclude.begin(), kMayInclude.end(), [&](const auto& row) {
      return (row.first + "/").starts_with(folder);
    })) << entry.path();
  }
}

struct Edge {
  const char* includer;
  const char* include;
  bool allowed;
};

/// One allowed and one planted edge or more for each folder.
const Edge kPlantedEdges[] = {
    {"reference/x.cpp", "\"reference/view.h\"", true},
    {"reference/layers/x.cpp", "\"reference/delta_rule.h\"", true},
    {"reference/x.cpp", "\"oracles/verdict.h\"", false},
    {"reference/x.cpp", "<fixtures/safetensors.h>", false},
    {"optimized/cpu/x.cpp", "\"optimized/kernel.h\"", true},
    {"optimized/cpu/x.cpp", "\"reference/contract.h\"", true},
    {"optimized/cpu/x.cpp", "\"reference/sequence.h\"", false},
    {"optimized/cuda/x.cu", "\"oracles/rounding.h\"", false},
    {"optimized/cuda/scan/x.cu", "\"optimized/cuda/recurrence/x.cuh\"", true},
    {"optimized/cuda/scan/x.cu", "\"optimized/cuda/delta/x.cuh\"", false},
    {"optimized/cuda/recurrence/x.cu", "\"optimized/cuda/dendritic/x.cuh\"", false},
    {"optimized/cuda/delta/ranks/x.cu", "\"optimized/cuda/delta/x.cuh\"", true},
    {"optimized/cuda/units/x.cu", "\"optimized/cuda/host/grid.cuh\"", true},
    {"optimized/cuda/units/x.cu", "\"optimized/cuda/host/call.cuh\"", false},
    {"optimized/cuda/host/x.cu", "\"optimized/cuda/delta/x.h\"", false},
    {"optimized/cpu/x.cpp", "\"optimized/cuda/host/dispatch.h\"", false},
    {"cli/x.cpp", "\"optimized/cuda/cuda_kernels.h\"", true},
    {"cli/x.cpp", "\"optimized/cuda/host/probe.h\"", false},
    {"oracles/x.cpp", "\"reference/sequence.h\"", true},
    {"oracles/bounds/x.cpp", "\"optimized/kernel.h\"", false},
    {"oracles/x.cpp", "\"fixtures/safetensors.h\"", false},
    {"fixtures/x.cpp", "\"reference/error.h\"", true},
    {"fixtures/x.cpp", "\"samestate_models.h\"", true},
    {"cli/x.cpp", "\"samestate_models.h\"", false},
    {"fixtures/x.cpp", "\"reference/contract.h\"", false},
    {"reports/x.cpp", "\"oracles/verdict.h\"", true},
    {"reports/x.cpp", "\"oracles/rounding.h\"", false},
    {"reports/x.cpp", "\"harness/cases/case_line.h\"", false},
    {"fuzz/mutants/x.cpp", "\"optimized/kernel.h\"", true},
    {"fuzz/plan/x.cpp", "\"optimized/kernel.h\"", false},
    {"fuzz/plan/x.cpp", "\"fuzz/search/search.h\"", false},
    {"fuzz/search/x.cpp", "\"fuzz/plan/draw.h\"", true},
    {"fuzz/search/x.cpp", "\"fuzz/mutants/trial.h\"", false},
    {"fuzz/mutants/family/x.cpp", "\"fuzz/plan/plan.h\"", true},
    {"fuzz/mutants/x.cpp", "\"fuzz/search/shrink.h\"", false},
    {"cli/x.cpp", "\"fuzz/search/shrink.h\"", true},
    {"reports/page/x.cpp", "\"samestate_assets.h\"", true},
    {"cli/x.cpp", "\"samestate_assets.h\"", false},
    {"fuzz/plan/x.cpp", "\"reports/records/summary.h\"", false},
    {"fuzz/plan/x.cpp", "\"samestate_version.h\"", false},
    {"cli/x.cpp", "\"harness/processes/campaign.h\"", true},
    {"cli/x.cpp", "\"samestate_version.h\"", true},
    {"cli/x.cpp", "\"samestate_kernel_sources.h\"", true},
    {"optimized/cuda/x.cu", "\"samestate_kernel_sources.h\"", false},
    {"cli/x.cpp", "\"tests/reports/records.h\"", false},
    {"tests/reports/x.cpp", "\"tests/reports/records.h\"", true},
    {"examples/kernel_plugin/x.cpp", "\"optimized/plugin.h\"", true},
    {"examples/kernel_plugin/x.cpp", "\"oracles/verdict.h\"", false},
    {"oracles/x.cpp", "\"verdict.h\"", false},
    {"oracles/x.cpp", "\"../optimized/kernel.h\"", false},
    {"oracles/x.cpp", "\"Eigen/Dense\"", false},
    {"oracles/x.cpp", "<Eigen/Dense>", true},
};

TEST(Floors, JudgesEachEdgeByTheTable) {
  for (const Edge& edge : kPlantedEdges) {
    const std::string text = std::string("#include <vector>\n\n#include ") + edge.include + "\n";
    const std::vector<std::string> faults = faults_of({{edge.includer, text}});
    EXPECT_EQ(faults.size(), edge.allowed ? 0U : 1U) << edge.includer << " includes " << edge.include;
    if (!faults.empty()) {
      EXPECT_NE(faults[0].find(edge.includer), std::string::npos)
          << "the fault names the file: " << faults[0];
    }
  }
}

TEST(Floors, SeesAnEdgeHoweverItIsWritten) {
  const auto faults = [](const std::string& text) { return faults_of({{"reference/x.cpp", text}}).size(); };
  EXPECT_EQ(faults("  #  include  \"oracles/verdict.h\""), 1U);
  EXPECT_EQ(
      faults("#include <vector>\n#include \"oracles/verdict.h\"\n#include \"harness/cases/case_line.h\"\n"),
      2U);
  EXPECT_EQ(faults("// #include \"oracles/verdict.h\"\n"), 0U);
  EXPECT_EQ(faults("#if 1\n#include \"oracles/verdict.h\"  // why\n#endif\n"), 1U);
}

TEST(Floors, SeesALongSourceAndAnUnguardedHeader) {
  EXPECT_TRUE(faults_of({{"fuzz/plan/x.cpp", std::string(500, '\n')}}).empty());
  EXPECT_EQ(faults_of({{"fuzz/plan/x.cpp", std::string(501, '\n')}}).size(), 1U);
  EXPECT_TRUE(faults_of({{"fuzz/plan/x.h", "#pragma once\n"}}).empty());
  EXPECT_EQ(faults_of({{"fuzz/plan/x.h", "int a;\n"}}).size(), 1U);
}

TEST(Floors, SeesALinkOutsideTheTable) {
  const auto faults = [](const std::string& folder, const std::string& text) {
    return link_faults_of({folder + "/CMakeLists.txt", text}).size();
  };
  EXPECT_EQ(faults("optimized", "target_link_libraries(samestate_optimized PUBLIC samestate_options)"), 0U);
  EXPECT_EQ(faults("optimized",
                   "target_link_libraries(samestate_optimized PUBLIC samestate_options\n"
                   "  PRIVATE samestate_oracles fmt::fmt)"),
            1U);
  EXPECT_EQ(faults("oracles", "target_link_libraries(samestate_oracles PUBLIC samestate::fuzz)"), 1U);
  EXPECT_EQ(
      faults("reports", "target_link_libraries(samestate_reports PUBLIC samestate_records samestate_fuzz)"),
      1U);
  EXPECT_EQ(faults("fuzz", "# target_link_libraries(samestate_fuzz PUBLIC samestate_reports)"), 0U);
  EXPECT_EQ(faults("optimized",
                   "add_library(samestate_cuda STATIC x.cu)\n"
                   "target_link_libraries(samestate_optimized PRIVATE samestate_cuda)"),
            0U);
}

}  // namespace
}  // namespace samestate
