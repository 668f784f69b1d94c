#include "fuzz/plan.h"

namespace samestate {

void keep_taken(std::vector<Case>& cases, const KernelTable& table, const CaseFilter& filter) {
  if (filter.empty()) return;
  const bool kernels = filter.reads_kernel();
  std::erase_if(cases, [&](const Case& c) {
    return !filter.takes(
        c, kernels ? std::string_view(table.choose(Resolved(c)).named->name) : std::string_view());
  });
}

}  // namespace samestate
