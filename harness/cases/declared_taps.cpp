#include "harness/cases/declared_taps.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "fixtures/quote.h"
#include "reference/error.h"

namespace samestate {

std::vector<DeclaredTap> declared_taps(const std::string& kernel, std::span<const std::string> declared,
                                       const System& system) {
  constexpr std::string_view kIf = " if ";
  std::vector<DeclaredTap> taps;
  for (const std::string& one : declared) {
    const std::size_t end = one.find(kIf);
    const std::string name = one.substr(0, end);
    const bool known = std::ranges::find(system.taps, name) != system.taps.end();
    const bool twice = std::ranges::find(taps, name, &DeclaredTap::name) != taps.end();
    if (!known || twice) {
      throw Error(fmt::format("kernel {}: its row hands out the tap {}{}; {}", kernel, quote(name, 60),
                              twice ? " twice" : fmt::format(", which {} has not", system.name),
                              system.taps.empty()
                                  ? "the system has none: leave them out"
                                  : fmt::format("name each once of {}", fmt::join(system.taps, ", "))));
    }
    DeclaredTap& tap = taps.emplace_back(name);
    if (end == std::string::npos) continue;
    const std::string condition = one.substr(end + kIf.size());
    try {
      tap.when = {std::span(&condition, 1), system};
    } catch (const Error& error) {
      throw Error(fmt::format("kernel {}: its tap {}: {}", kernel, quote(name, 60), error.what()));
    }
  }
  return taps;
}

}  // namespace samestate
