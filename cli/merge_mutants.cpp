#include <fmt/format.h>

#include "cli/merge.h"
#include "reference/error.h"

namespace samestate::cli {

int merge_mutants(const std::vector<std::string>& files, const MergeOptions&) {
  throw Error(files.front() + ": not yet");
}

}  // namespace samestate::cli
