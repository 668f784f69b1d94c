#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "fuzz/plan/plan.h"

namespace samestate {

/// A case that was found by a search, or is kept because it is tricky.
struct CorpusEntry {
  std::filesystem::path file;
  std::int64_t line = 0;  ///< its line number in the file, from 1
  std::string comment;    ///< the comment lines above it
  Case c;
};

/// The cases of every *.txt in `folder`, sorted by file: `# what, when` above each case line; empty lines are
/// allowed. Throws Error with file and line for an invalid case or one in the file of another system, and for
/// a folder that cannot be read.
[[nodiscard]] std::vector<CorpusEntry> read_corpus(const std::filesystem::path& folder);

/// The corpus for the kernels that a plan includes: each case on every kernel of its system that evaluates
/// its form and promises its contract, whichever kernel it was found on. Throws Error for a filter that names
/// something unknown.
[[nodiscard]] std::vector<Case> corpus_cases(const std::vector<CorpusEntry>& corpus, const KernelTable& table,
                                             const PlanOptions& options);

/// `text`, the content of a corpus file, with a case appended; `text` itself if it contains the case already.
/// Throws Error for a comment that is not one printable line.
[[nodiscard]] std::string with_entry(std::string text, const std::string& comment, const Case& c);

}  // namespace samestate
