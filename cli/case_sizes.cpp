#include "cli/case_sizes.h"

#include <fmt/format.h>

#include <string_view>

#include "harness/cases/keys.h"
#include "harness/cases/system.h"

namespace samestate::cli {

std::string sizes_in_full(const Resolved& r) {
  std::string out;
  const auto put = [&](std::string_view name, std::string_view value) {
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, value);
  };
  if (r.chunk > 0) put("chunk", std::to_string(r.chunk));
  for (const Key& key : keys()) {
    const bool size = key.size != nullptr || key.name == "B" || key.name == "T" ||
                      (key.name == "prefill" && r.form->decodes) || (key.name == "lengths" && r.form->packed);
    if (size && r.system->has_key(key.name) && !r.c.parameters.contains(key.name))
      put(key.name, key.value(r.c));
  }
  for (const CaseSize& size : r.system->sizes) {
    if (const auto own = r.c.parameters.find(size.name); own != r.c.parameters.end())
      put(own->first, std::to_string(own->second));
  }
  return out;
}

}  // namespace samestate::cli
