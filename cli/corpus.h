#pragma once

#include <string>

#include "fuzz/plan/corpus.h"

namespace samestate::cli {

/// The path of the corpus that the command carries.
[[nodiscard]] const std::string& standard_corpus();

/// The corpus in `folder`; empty if it is the one that the command carries and has been removed. Throws
/// Error.
[[nodiscard]] std::vector<CorpusEntry> corpus_of(const std::string& folder);

/// Appends a case to its system's file in `folder`, which is replaced atomically; returns false if the file
/// contains the case already. Throws Error and changes nothing if the file is not a corpus or cannot be
/// written.
bool append_to_corpus(const std::string& folder, const std::string& comment, const Case& c);

}  // namespace samestate::cli
