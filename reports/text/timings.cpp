#include "reports/text/timings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "reports/records/summary.h"

namespace samestate {

std::string timings_text(std::span<const Record> records) {
  struct Sum {
    std::int64_t cases = 0;
    double seconds = 0.0;
    Spent spent;
  };
  std::map<std::string, Sum> kernels;
  for (const Record& r : records) {
    Sum& sum = kernels[r.kernel];
    ++sum.cases;
    sum.seconds += r.seconds;
    sum.spent += r.spent;
  }
  std::vector<std::pair<std::string, Sum>> rows(kernels.begin(), kernels.end());
  std::ranges::stable_sort(rows, std::greater<>(), [](const auto& row) { return row.second.seconds; });
  std::string text = rows.empty() ? "" : "where the seconds of the cases went, of all that ran at a time:\n";
  for (const auto& [name, sum] : rows) {
    const Spent& s = sum.spent;
    text += fmt::format("  {}: {}", name, counted(sum.cases, "case"));
    if (s.calls > 0) text += fmt::format(", {}", counted(s.calls, "call"));
    if (s.compiled > 0) text += fmt::format(", {} compiled", counted(s.compiled, "kernel"));
    if (s.loaded > 0) text += fmt::format(", {} loaded from a cache", s.loaded);
    text += "\n   ";
    const auto put = [&](const char* part, double seconds) {
      if (seconds >= 0.05) text += fmt::format(" {} {:.1f}", part, seconds);
    };
    put("start", s.start);
    put("waiting", s.waiting);
    put("compile", s.compile);
    put("tune", s.tune);
    put("copy", s.copy);
    put("kernel", s.kernel);
    put("passing", s.passing);
    text += fmt::format(" judge {:.1f} s\n", std::max(0.0, sum.seconds - s.seconds()));
  }
  return text;
}

}  // namespace samestate
