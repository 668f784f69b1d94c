#include "fuzz/plan/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "fuzz/plan/filtered.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

std::string text_of(const fs::path& file) {
  // Reading a pipe would never end.
  if (fs::exists(file) && !fs::is_regular_file(file))
    throw Error(file.string() + ": is not a file; remove it");
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) throw Error(file.string() + ": cannot be read");
  return text;
}

bool blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

void read_file(const fs::path& file, std::vector<CorpusEntry>& out) {
  std::istringstream lines(text_of(file));
  std::string comment;
  std::int64_t number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (blank(line)) {
      comment.clear();
    } else if (line[0] == '#') {
      const std::size_t begin = std::min(line.find_first_not_of("# "), line.size());
      comment += (comment.empty() ? "" : " ") + line.substr(begin);
    } else {
      try {
        CorpusEntry entry{file, number, std::exchange(comment, ""), parse_case(line)};
        if (entry.c.system != file.stem()) {
          throw Error(fmt::format("a case of {} belongs in {}.txt", entry.c.system, entry.c.system));
        }
        out.push_back(std::move(entry));
      } catch (const Error& error) {
        throw Error(fmt::format("{}: line {}: {}", file.string(), number, error.what()));
      }
    }
  }
}

bool wanted(const KernelRow& row, const Resolved& r, const PlanOptions& options) {
  return row.system == r.system && is_among(options.kernel, row.name) &&
         (options.device.empty() || row.device == options.device) &&
         is_among(options.system, row.system->name) && r.system->evaluates(r, row.form) &&
         has_kernels(row, r.c) &&
         (row.any_contract ||
          std::find(row.contracts.begin(), row.contracts.end(), r.c.contract) != row.contracts.end());
}

}  // namespace

std::vector<CorpusEntry> read_corpus(const fs::path& folder) {
  std::error_code code;
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(folder, code)) {
    if (entry.path().extension() == ".txt") files.push_back(entry.path());
  }
  if (code) throw Error(fmt::format("{}: no corpus folder ({})", folder.string(), code.message()));
  std::sort(files.begin(), files.end());
  std::vector<CorpusEntry> out;
  for (const fs::path& file : files) read_file(file, out);
  return out;
}

std::vector<Case> corpus_cases(const std::vector<CorpusEntry>& corpus, const KernelTable& table,
                               const PlanOptions& options) {
  std::vector<Case> out;
  for (const CorpusEntry& entry : corpus) {
    const Resolved r(entry.c);
    for (const KernelRow& row : table.all()) {
      if (!wanted(row, r, options)) continue;
      Case c = entry.c;
      c.kernel = table.is_standard(row, c) ? "" : row.name;
      if (std::find(out.begin(), out.end(), c) == out.end()) out.push_back(std::move(c));
    }
  }
  keep_taken(out, table, options.filter);
  return out;
}

std::string with_entry(std::string text, const std::string& comment, const Case& c) {
  const std::string line = format_case(c);
  if (comment.empty() ||
      std::any_of(comment.begin(), comment.end(), [](char x) { return x < ' ' || x > '~'; })) {
    throw Error("the comment of a case must be one line of printable ASCII");
  }
  std::istringstream lines(text);
  for (std::string known; std::getline(lines, known);) {
    if (!known.empty() && known[0] != '#' && !blank(known) && format_case(parse_case(known)) == line)
      return text;
  }
  if (!text.empty() && text.back() != '\n') text += '\n';
  if (!text.empty()) text += '\n';
  return text + "# " + comment + "\n" + line + "\n";
}

}  // namespace samestate
