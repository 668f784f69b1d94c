#include "fuzz/plan/interpreted.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/keys.h"
#include "harness/cases/system.h"
#include "oracles/judge_policy.h"

namespace samestate {

/// Measured for a chunked gated delta rule of 40 statements in Triton 3.9 with 102 cases of all sizes: a
/// program takes 0.05 to 0.08 s per chunk while its tiles are small, however much of the chunk has tokens,
/// and 0.6 s with tiles of 128 x 128, which count as products. A recurrent kernel executes a tenth of the
/// statements per token.
double interpreted_seconds(const KernelRow& kernel, const Case& c) {
  if (!kernel.interpreted) return 0.0;
  constexpr double kOfChunk = 0.06, kOfToken = 0.003;
  constexpr double kOfTile = 0.5 / (128.0 * 128.0);  // seconds for one chunk
  constexpr double kLaw = 3.0, kRepeat = 2.0;        // number of runs
  double heads = 1.0, width = 1.0, widest = 1.0;
  for (const CaseSize& size : kernel.system->sizes) {
    const auto value = static_cast<double>(std::max<Index>(size_in(c, size.name), 1));
    if (size.name.front() == 'H') {
      heads = std::max(heads, value);
    } else if (value > widest) {
      width = std::exchange(widest, value);
    } else {
      width = std::max(width, value);
    }
  }
  const auto sequences = static_cast<double>(c.lengths.empty() ? c.B : std::ssize(c.lengths));
  const double tokens = static_cast<double>(c.T) * (c.lengths.empty() ? sequences : 1.0);
  const bool decodes = kernel.system->form(c.form)->decodes;
  const double decoded = decodes ? sequences * static_cast<double>((c.T - c.prefill) / c.step) : 0.0;
  const bool chunked = kernel.system->form(kernel.form)->chunked && c.chunk > 0;
  const double chunks = sequences + decoded + (chunked ? tokens / static_cast<double>(c.chunk) : 0.0);
  const double one = chunked ? chunks * (kOfChunk + kOfTile * width * widest)
                             : sequences * kOfChunk + tokens * (kOfToken + kOfTile / 16.0 * width * widest);
  return heads * one * (c.law.empty() ? 1.0 : kLaw) * (c.repeat ? kRepeat : 1.0);
}

std::string interpreted_text(std::span<const Case> cases, const KernelTable& table, int threads) {
  if (std::ranges::none_of(table.all(), &KernelRow::interpreted)) return "";
  std::set<std::string> names;
  double seconds = 0.0;
  std::int64_t calls = 0;
  for (const Case& c : cases) {
    const KernelRow& kernel = *table.choose(Resolved(c)).named;
    if (!kernel.interpreted) continue;
    names.insert(kernel.name);
    seconds += interpreted_seconds(kernel, c);
    ++calls;
  }
  if (calls == 0) return "";
  const double minutes = seconds / 60.0 / std::max(threads, 1);
  return fmt::format("an interpreter runs {}: {} small calls, about {:.0f} minute{} on {} thread{}",
                     fmt::join(names, ", "), calls, std::max(minutes, 1.0), minutes < 1.5 ? "" : "s", threads,
                     threads == 1 ? "" : "s");
}

namespace {

/// Seconds of one core for what System::work leaves out, because plans have keys of at most 1,030 channels: the map of a
/// chunk of the delta rules is a product of dk x dk matrices. Measured with keys of 1,024 to 12,345 channels.
double seconds_of_wide_keys(const KernelRow& kernel, const Case& c) {
  constexpr double kOfProduct = 0.07e-9;  // times dk^3
  const System& system = *kernel.system;
  if (!system.of_family() || !system.has(Property::delta) || c.form == "recurrent" || c.chunk <= 0)
    return 0.0;
  // So few heads are held to their bounds, of all sequences together.
  const Index sequences = c.lengths.empty() ? c.B : std::ssize(c.lengths);
  const auto heads = static_cast<double>(std::min<Index>(sequences * c.Hv, kGatePolicy.fewest_heads));
  const Index longest = !c.lengths.empty()             ? *std::ranges::max_element(c.lengths)
                        : system.form(c.form)->decodes ? c.prefill
                                                       : c.T;
  const auto chunks = static_cast<double>((longest + c.chunk - 1) / c.chunk);
  return kOfProduct * std::pow(static_cast<double>(c.dk), 3) * chunks * heads;
}

}  // namespace

std::string long_plan_text(std::span<const Case> cases, const KernelTable& table, int threads,
                           std::string_view instead) {
  double all = 0.0, longest = 0.0;
  const Case* dearest = nullptr;
  for (const Case& c : cases) {
    const KernelRow& kernel = *table.choose(Resolved(c)).named;
    const double seconds = seconds_of_call(kernel, c) + seconds_of_wide_keys(kernel, c);
    if (!std::isfinite(seconds)) continue;
    all += seconds;
    if (seconds > longest) longest = seconds, dearest = &c;
  }
  const double seconds = std::max(all / std::max(threads, 1), longest);
  if (dearest == nullptr || seconds <= kLongPlan) return "";
  constexpr std::size_t kShown = 120;  // a packed line may have hundreds of lengths
  std::string line = format_case(*dearest);
  if (line.size() > kShown) line = line.substr(0, kShown) + "..";
  const auto text = [](double of) {
    return of >= 5400.0 ? fmt::format("{:.1f} hours", of / 3600.0)
           : of >= 90.0 ? fmt::format("{:.0f} minutes", of / 60.0)
                        : fmt::format("{:.0f} s", std::max(of, 1.0));
  };
  return fmt::format(
      "judging the {} case{} of this plan takes about {} on {} thread{}, and the longest alone {}: {}; {}, "
      "--max-cases or --budget make it shorter",
      cases.size(), cases.size() == 1 ? "" : "s", text(seconds), threads, threads == 1 ? "" : "s",
      text(longest), line, instead);
}

}  // namespace samestate
