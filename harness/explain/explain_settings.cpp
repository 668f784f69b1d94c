#include "harness/explain/explain_settings.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/keys.h"
#include "harness/run/run_case.h"
#include "reference/error.h"

namespace samestate {
namespace {

bool passes(const Case& c, const KernelTable& table) {
  try {
    return run_case(c, table).judgement.verdict == Verdict::pass;
  } catch (const Error&) {  // no case without this setting
    return false;
  }
}

}  // namespace

std::vector<std::string> settings_that_matter(const Case& failing, const KernelTable& table) {
  std::vector<std::string> out;
  for (const Key& key : keys()) {
    // Other data are another case.
    if (!key.setting || key.name == "regime" || key.print(failing).empty() || key.smaller == nullptr)
      continue;
    for (const Case& without : key.smaller(failing)) {
      if (!key.print(without).empty() || !passes(without, table)) continue;
      out.push_back(fmt::format("only with {0}={1}: passes with {0}={2}", key.name, key.value(failing),
                                key.value(without)));
      break;
    }
  }
  return out;
}

}  // namespace samestate
