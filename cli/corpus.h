#pragma once

#include <string>

#include "fuzz/plan/corpus.h"

namespace samestate::cli {

/// The corpus that the command carries.
[[nodiscard]] const std::string& standard_corpus();

/// The corpus in `folder`. The one that the command carries may be gone: empty then. Throws Error.
[[nodiscard]] std::vector<CorpusEntry> corpus_of(const std::string& folder);

/// Appends a case to its system's file in `folder`, which is replaced atomically; false where it holds the
/// case already. Throws Error, with nothing changed, where the file is no corpus or cannot be written.
bool append_to_corpus(const std::string& folder, const std::string& comment, const Case& c);

}  // namespace samestate::cli
