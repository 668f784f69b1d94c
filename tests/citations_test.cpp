/// Every source that the tree cites leads somewhere: `BOUNDS 7`, `EQUATIONS 5.5`, `BUGS M09` and ids such as
/// GDN-17 or A-12 to a heading, an item or a row of docs/understand/theory; links of pages to files. And the README
/// stays a page.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace samestate {
namespace {

namespace fs = std::filesystem;

constexpr std::ptrdiff_t kLongestReadme = 120;
constexpr std::size_t kWidestReadme = 120;

/// A path from the repository root and its text.
struct Source {
  std::string path;
  std::string text;
};

/// The word of a citation and the page that it leads to.
const std::map<std::string, std::string, std::less<>> kPages = {
    {"BOUNDS", "docs/understand/theory/bounds.md"},
    {"BOUNDS_OPERATORS", "docs/understand/theory/bounds_operators.md"},
    {"EQUATIONS", "docs/understand/theory/equations.md"},
    {"DESIGN", "docs/understand/theory/design.md"},
    {"HARNESS", "docs/understand/theory/harness.md"},
    {"KERNELS", "docs/understand/theory/kernels.md"},
    {"BUGS", "docs/understand/theory/bugs.md"},
};

/// Names that look like the id of a row but are not.
const std::set<std::string, std::less<>> kOtherNames = {"CRC", "FNV", "GQA", "SHA", "UTF"};

/// Ids that tests use for rows that do not exist.
const std::set<std::string, std::less<>> kMissingOnPurpose = {"EQ-00", "GDN-99", "RMS-9", "XYZ-1", "M00"};

/// The parts that can be cited: sections and items by page, and the ids of rows.
struct Theory {
  std::map<std::string, std::set<std::string>, std::less<>> sections;  ///< "10.3" or, of a list, "13.8"
  std::set<std::string, std::less<>> ids;                              ///< GDN-17, E-09, M09 ...
};

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool is_upper(char c) { return std::isupper(static_cast<unsigned char>(c)) != 0; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

/// Returns "7" or "7.3" at `at`; empty if there is no section, as before a letter, a % or a unit of more
/// digits.
std::string number_at(std::string_view text, std::size_t at) {
  std::size_t end = at;
  while (end < text.size() && is_digit(text[end])) ++end;
  while (end > at && end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1])) {
    ++end;
    while (end < text.size() && is_digit(text[end])) ++end;
  }
  const bool ends = end >= text.size() || !is_word(text[end]);
  return ends ? std::string(text.substr(at, end - at)) : "";
}

/// Returns the id at `at`: GDN-17, COST-31a, A-12 (one letter needs two digits), M09. Empty if there is none.
std::string id_at(std::string_view text, std::size_t at) {
  if (at > 0 && (is_word(text[at - 1]) || text[at - 1] == '-')) return "";
  std::size_t end = at;
  while (end < text.size() && is_upper(text[end])) ++end;
  const std::size_t letters = end - at;
  if (letters == 0 || letters > 5) return "";
  const bool dash = end < text.size() && text[end] == '-';
  if (dash) ++end;
  const std::size_t digits = end;
  while (end < text.size() && is_digit(text[end])) ++end;
  const bool bug = !dash && letters == 1 && text[at] == 'M' && end == digits + 2;
  const bool row = dash && end > digits && (letters > 1 || end == digits + 2);
  if (!bug && !row) return "";
  if (row && end < text.size() && std::islower(static_cast<unsigned char>(text[end])) != 0) ++end;
  return end < text.size() && is_word(text[end]) ? "" : std::string(text.substr(at, end - at));
}

/// Headings "## 7. ..." and "### 7.3 ...", and under each the items "8. ...".
std::set<std::string> sections_of(std::string_view page) {
  std::set<std::string> sections;
  std::string section;
  std::istringstream lines{std::string(page)};
  for (std::string line; std::getline(lines, line);) {
    const std::size_t level = line.find_first_not_of('#');
    if (level != line.npos && level > 0 && line[level] == ' ') {
      section = number_at(line, level + 1);
      if (!section.empty()) sections.insert(section);
    } else if (!section.empty()) {
      const std::string item = number_at(line, 0);
      if (!item.empty() && line.substr(item.size()).starts_with(". ")) sections.insert(section + "." + item);
    }
  }
  return sections;
}

/// Ids that stand first in a row of a table.
std::set<std::string> row_ids_of(std::string_view page) {
  std::set<std::string> ids;
  std::istringstream lines{std::string(page)};
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("| ")) continue;
    const std::string id = id_at(line, 2);
    if (!id.empty() && line.substr(2 + id.size()).starts_with(" |")) ids.insert(id);
  }
  return ids;
}

std::string family_of(std::string_view id) { return std::string(id.substr(0, id.find('-'))); }

Theory theory_of(const std::vector<Source>& sources) {
  Theory theory;
  for (const Source& source : sources) {
    if (!source.path.starts_with("docs/understand/theory/")) continue;
    for (const auto& [word, page] : kPages) {
      if (page == source.path) theory.sections[word] = sections_of(source.text);
    }
    theory.ids.merge(row_ids_of(source.text));
    if (source.path == "docs/understand/theory/ledger.md")
      theory.sections["EQUATIONS"].merge(sections_of(source.text));
  }
  return theory;
}

/// Past blanks, and past the end of a comment's line with what the next one begins with.
std::size_t past_blanks(std::string_view text, std::size_t at) {
  while (at < text.size() && (text[at] == ' ' || text[at] == '\n')) {
    const bool line_ended = text[at++] == '\n';
    if (!line_ended) continue;
    while (at < text.size() && (text[at] == ' ' || text[at] == '/' || text[at] == '#')) ++at;
  }
  return at;
}

/// Past what joins the numbers of one citation: "2-7", "4, 5", "1 and 9", "1 to 3"; else `at`.
std::size_t past_joint(std::string_view text, std::size_t at) {
  for (const std::string_view joint : {", and ", ", ", " and ", " to ", "-", "/", " .. ", ".."}) {
    if (text.substr(at).starts_with(joint)) return at + joint.size();
  }
  return at;
}

/// The sections that a citation with its word ending at `at` names; of "13, items 8 and 9": 13, 13.8, 13.9.
std::vector<std::string> sections_at(std::string_view text, std::size_t at) {
  std::vector<std::string> out;
  std::string prefix;
  for (std::size_t next = past_blanks(text, at); next != at;) {
    if (!out.empty() && text.substr(next).starts_with("items ")) {
      prefix = out.back() + ".";
      next += std::string_view("items ").size();
    }
    const std::string number = number_at(text, next);
    if (number.empty()) break;
    out.push_back(prefix + number);
    at = next + number.size();
    next = past_joint(text, at);
  }
  return out;
}

bool known(const Theory& theory, const std::string& id) {
  const auto from = theory.ids.lower_bound(id);
  if (from == theory.ids.end()) return false;
  // COST-31 is cited for COST-31a .. e.
  return *from == id || (from->size() == id.size() + 1 && from->starts_with(id) && !is_digit(from->back()));
}

/// Every citation of the sources that leads nowhere, with its place.
std::vector<std::string> dangling(const std::vector<Source>& sources, const Theory& theory,
                                  std::size_t* citations = nullptr) {
  std::vector<std::string> faults;
  for (const Source& source : sources) {
    std::size_t line = 1;
    const auto fault = [&](const std::string& what) {
      faults.push_back(source.path + ":" + std::to_string(line) + ": " + what +
                       " leads nowhere in docs/understand/theory");
    };
    const std::string_view text = source.text;
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\n') ++line;
      if (!is_upper(text[at]) || (at > 0 && is_word(text[at - 1]))) continue;
      std::size_t end = at;
      while (end < text.size() && (is_upper(text[end]) || text[end] == '_')) ++end;
      const std::string word(text.substr(at, end - at));
      if (kPages.contains(word)) {
        const auto page = theory.sections.find(word);
        for (const std::string& section : sections_at(text, end)) {
          if (citations != nullptr) ++*citations;
          if (page == theory.sections.end() || !page->second.contains(section)) fault(word + " " + section);
        }
        continue;
      }
      const std::string id = id_at(text, at);
      if (id.empty() || kOtherNames.contains(family_of(id)) || kMissingOnPurpose.contains(id)) continue;
      if (citations != nullptr) ++*citations;
      if (!known(theory, id)) fault(id);
      const std::string last =
          text.substr(at + id.size()).starts_with("..") ? number_at(text, at + id.size() + 2) : "";
      if (!last.empty() && !known(theory, family_of(id) + "-" + last)) fault(family_of(id) + "-" + last);
    }
  }
  return faults;
}

/// The anchors of a page's headings, as GitHub makes them: "## 6. The case line" is 6-the-case-line.
std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> anchors;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t text = line.find_first_not_of('#');
    if (text == 0 || text == line.npos || line[text] != ' ') continue;
    std::string anchor;
    for (const char c : line.substr(text + 1)) {
      if (c == ' ') anchor += '-';
      if (is_word(c) || c == '-') anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    anchors.insert(anchor);
  }
  return anchors;
}

/// Targets of [text](target) that are files of the tree, or headings of a page, and are not there.
std::vector<std::string> broken_links(const Source& page, const fs::path& root) {
  std::vector<std::string> faults;
  std::string prose;  // without what stands in fences: an index and a call in code look like a link
  bool code = false;
  std::istringstream lines(page.text);
  for (std::string line; std::getline(lines, line);) {
    code = code != line.starts_with("```");
    if (!code) prose += line + "\n";
  }
  for (std::size_t at = prose.find("]("); at != prose.npos; at = prose.find("](", at + 1)) {
    const std::size_t end = prose.find_first_of(") \n", at);
    const std::string target = prose.substr(at + 2, end - at - 2);
    if (target.find("://") != target.npos) continue;
    const std::size_t hash = target.find('#');
    const std::string file = target.substr(0, hash);
    const fs::path path = file.empty() ? root / page.path : root / fs::path(page.path).parent_path() / file;
    std::ostringstream text;
    if (hash != target.npos) text << std::ifstream(path, std::ios::binary).rdbuf();
    const bool there =
        hash == target.npos
            ? fs::exists(path)
            : anchors_of(file.empty() ? page.text : text.str()).contains(target.substr(hash + 1));
    if (!there) faults.push_back(page.path + " links " + target + ", which is not in the tree");
  }
  return faults;
}

/// Verdicts by id: column `column` of the rows of a ledger.
std::map<std::string, std::string> column_by_id(const std::string& page, int column) {
  std::map<std::string, std::string> out;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    const std::string id = line.starts_with("| ") ? id_at(line, 2) : "";
    if (id.empty()) continue;
    std::size_t begin = 0;
    for (int c = 0; c < column && begin != line.npos; ++c) begin = line.find(" | ", begin + 1);
    if (begin != line.npos) out[id] = line.substr(begin + 3, line.find(" | ", begin + 3) - begin - 3);
  }
  return out;
}

/// Texts of the repository: code, pages, scripts, the corpus; not what a build or a run made.
std::vector<Source> sources_of(const fs::path& root) {
  const std::set<std::string> kinds{".h",   ".cpp", ".cu", ".cuh",   ".md",
                                    ".txt", ".sh",  ".py", ".cmake", ".yml"};
  std::vector<Source> sources;
  for (auto entry = fs::recursive_directory_iterator(root); entry != fs::end(entry); ++entry) {
    const std::string name = entry->path().filename().string();
    if (entry->is_directory()) {
      const bool made = name.starts_with(".") || name.starts_with("build") || name == "out";
      if (made && entry.depth() == 0) entry.disable_recursion_pending();
    } else if (kinds.contains(entry->path().extension().string())) {
      std::ostringstream text;
      text << std::ifstream(entry->path(), std::ios::binary).rdbuf();
      sources.push_back({fs::relative(entry->path(), root).generic_string(), text.str()});
    }
  }
  return sources;
}

const std::vector<Source>& tree() {
  static const std::vector<Source> sources = sources_of(SAMESTATE_SOURCE_DIR);
  return sources;
}

const std::string& text_of(std::string_view path) {
  const auto found = std::ranges::find(tree(), path, &Source::path);
  if (found == tree().end()) throw std::runtime_error(std::string(path) + " is not in the tree");
  return found->text;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Citations, OfTheTreeResolve) {
  const Theory theory = theory_of(tree());
  EXPECT_GT(theory.ids.size(), 400U) << "the pages of docs/understand/theory were not read";
  std::vector<Source> sources = tree();
  std::erase_if(sources, [](const Source& s) { return s.path == "tests/citations_test.cpp"; });
  std::size_t citations = 0;
  EXPECT_EQ(joined(dangling(sources, theory, &citations)), "");
  EXPECT_GT(citations, 1000U) << "the tree's citations were not read";
}

/// A line, and how many of its citations lead nowhere.
struct Planted {
  const char* text;
  std::size_t dangling;
};

const Planted kPlanted[] = {
    {"/// The gates (BOUNDS 7.1, 10.3); BOUNDS 13, items 8 and 9, BOUNDS 13.8.", 0},
    {"/// BOUNDS 99", 1},
    {"/// BOUNDS 7, 99 and 98.", 2},
    {"/// BOUNDS 13, items 8 and 99", 1},
    {"/// BOUNDS 2-7, BOUNDS 2-77", 1},
    {"/// (EQUATIONS\n/// 5.5), then EQUATIONS\n// 5.99", 1},
    {"EQUATIONS 7.3, steps 2 to 4; EQUATIONS 2.3 of the ledger", 0},
    {"DESIGN 5, HARNESS 1.7, HARNESS 1.70", 1},
    {"BUGS M09, M90 and M91", 1},
    {"GDN-17, A-12, E-09, EQ-02, P-07, COST-31, COST-31a, GDN-34..40", 0},
    {"GDN-170 and A-99; MAM-4", 3},
    {"GDN-34..400", 1},
    {"BOUNDS_OPERATORS 8.10; BOUNDS_OPERATORS 99", 1},
    {"KERNELS 1: a page that is not here", 1},
    {"1E-05, UTF-8, BOUNDS has 1.5, W-1, M4, XM09, fp16-M09", 0},
};

TEST(Citations, ADanglingOneIsSeen) {
  Theory theory = theory_of(tree());
  theory.sections.erase("KERNELS");
  for (const Planted& p : kPlanted) {
    EXPECT_EQ(dangling({{"planted.h", p.text}}, theory).size(), p.dangling) << p.text;
  }
  const std::vector<std::string> faults = dangling({{"planted.h", "\n\n/// BOUNDS 99"}}, theory);
  EXPECT_EQ(joined(faults), "planted.h:3: BOUNDS 99 leads nowhere in docs/understand/theory\n");
}

TEST(Citations, BothLedgersAgree) {
  const auto read = column_by_id(text_of("docs/understand/theory/ledger.md"), 5);
  const auto computed = column_by_id(text_of("docs/lookup/equations.md"), 4);
  EXPECT_GT(computed.size(), 200U);
  EXPECT_EQ(read.size(), computed.size());
  for (const auto& [id, verdict] : computed) {
    ASSERT_TRUE(read.contains(id)) << id << " is not in docs/understand/theory/ledger.md";
    EXPECT_NE(read.at(id).find(verdict), std::string::npos)
        << id << ": " << verdict << ", read " << read.at(id);
  }
}

TEST(Pages, LinksLeadToFiles) {
  std::vector<std::string> faults;
  for (const Source& source : tree()) {
    if (!source.path.ends_with(".md")) continue;
    for (const std::string& fault : broken_links(source, SAMESTATE_SOURCE_DIR)) faults.push_back(fault);
  }
  EXPECT_EQ(joined(faults), "");
  const Source page{
      "docs/lookup/x.md",
      "# A page's head\n[a](words.md) [b](../understand/theory/design.md#6-the-case-line) [c](#a-pages-head) "
      "[d](https://x.org/y)\n```\nf[i](x, y)\n```"};
  EXPECT_EQ(joined(broken_links(page, SAMESTATE_SOURCE_DIR)), "");
  const Source broken{
      "docs/lookup/x.md",
      "[a](none.md) [b](../understand/theory/design.md#6-no-heading) [c](#none) ![d](../none.svg)"};
  EXPECT_EQ(broken_links(broken, SAMESTATE_SOURCE_DIR).size(), 4U);
}

TEST(Pages, TheReadmeIsAPage) { EXPECT_LE(std::ranges::count(text_of("README.md"), '\n'), kLongestReadme); }

}  // namespace
}  // namespace samestate
