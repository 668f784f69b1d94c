#include "reports/text/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "reports/records/summary.h"
#include "reports/text/aligned.h"

namespace samestate {
namespace {

/// Prints three digits in the unit that fits.
std::string time_text(double seconds) {
  if (std::isnan(seconds)) return "-";
  if (seconds < 1e-3) return fmt::format("{:.3g} us", seconds * 1e6);
  if (seconds < 1.0) return fmt::format("{:.3g} ms", seconds * 1e3);
  return fmt::format("{:.3g} s", seconds);
}

std::string scaled(double value, double unit, const char* format = "{:.3g}") {
  return std::isnan(value) || value == 0.0 ? "-" : fmt::format(fmt::runtime(format), value / unit);
}

std::string shape_text(const TimedCase& t) {
  std::string chunk = t.chunk > 0 ? fmt::format(" C{}", t.chunk) : "";
  if (t.ranks > 0) chunk += " " + ranks_text(t);
  if (!t.sizes.empty()) return fmt::format("{} B{} T{} {}{}", t.record.contract, t.B, t.T, t.sizes, chunk);
  return fmt::format("{} B{} T{} H{}/{} d{}x{}{}", t.record.contract, t.B, t.T, t.Hk, t.Hv, t.dk, t.dv,
                     chunk);
}

std::string verdict_text(const TimedCase& t) {
  std::string text(name_of(t.record.judgement.verdict));
  if (t.heads_judged > 0 && t.heads_judged < t.heads)
    text += fmt::format(" ({} of {} {})", t.heads_judged, t.heads, t.sizes.empty() ? "heads" : "sequences");
  return text;
}

/// Describes the device's state during the run: its clock, its power, what limited the clock.
std::string device_text(const TimedCase& t) {
  if (std::isnan(t.clock) && std::isnan(t.power)) return "-";
  std::string text;
  if (!std::isnan(t.clock)) text += fmt::format("{:.0f} MHz", 1e-6 * t.clock);
  if (!std::isnan(t.power)) text += fmt::format("{}{:.0f} W", text.empty() ? "" : " ", t.power);
  if (!t.slowed.empty()) text += fmt::format(" (held by {})", t.slowed);
  return text;
}

using Row = std::vector<std::string>;

Row row_of(const TimedCase& t) {
  const double median = t.time.median;
  return {t.record.kernel,
          shape_text(t),
          time_text(median),
          std::isnan(median) ? "-" : fmt::format("{}..{}", time_text(t.time.p10), time_text(t.time.p90)),
          t.timed.empty() ? "-" : t.timed,
          t.variant.empty() ? "-" : t.variant,
          device_text(t),
          time_text(t.memory_floor),
          t.operations > 0 ? time_text(t.compute_floor) : "not counted",
          std::isnan(t.share) ? "-" : fmt::format("{:.1f} %", 100.0 * t.share),
          scaled(static_cast<double>(t.operations) / median, 1e12),
          scaled(static_cast<double>(t.bytes) / median, 1e9),
          std::isnan(t.peer_time.median)
              ? "-"
              : fmt::format("{} {} ({:.3g}x)", t.peer, time_text(t.peer_time.median), t.peer_ratio),
          verdict_text(t)};
}

nlohmann::json number(double value) { return std::isfinite(value) ? nlohmann::json(value) : nullptr; }

std::string rates_text(const DeviceRates& rates) {
  if (rates.device == "cpu") return fmt::format("Ceilings of cpu: {}.\n", rates.note);
  return fmt::format("Ceilings of {}{}: copy {} GB/s, products bf16 {} and fp32 {} TFLOP/s ({}).\n",
                     rates.number.empty() ? "" : "device " + rates.number + ", ", rates.device,
                     scaled(rates.copy, 1e9, "{:.0f}"), scaled(rates.bf16, 1e12), scaled(rates.fp32, 1e12),
                     rates.note);
}

}  // namespace

std::string bench_text(std::span<const TimedCase> all, std::span<const DeviceRates> devices,
                       std::size_t width) {
  std::vector<Row> rows = {{"kernel", "case", "median", "p10..p90", "timed", "variant", "device",
                            "memory floor", "compute floor", "of floor", "TFLOP/s", "GB/s", "peer",
                            "verdict"}};
  for (const TimedCase& t : all) rows.push_back(row_of(t));
  // With several devices each row names its own.
  if (std::ranges::count_if(devices, [](const DeviceRates& rates) { return !rates.gpu.empty(); }) > 1) {
    rows.front().insert(rows.front().begin() + 1, "on");
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto on = std::ranges::find_if(
          devices, [&](const DeviceRates& rates) { return rates.gpu == all[i].record.gpu; });
      rows[i + 1].insert(rows[i + 1].begin() + 1, on == devices.end() || on->gpu.empty() ? "-" : on->number);
    }
  }
  std::string text = aligned(rows, width);
  for (const DeviceRates& rates : devices) text += rates_text(rates);
  std::map<std::string, std::int64_t> unanswered;
  for (const TimedCase& t : all) {
    if (std::isnan(t.peer_time.median) && !t.peer_note.empty()) ++unanswered[t.peer_note];
  }
  for (const auto& [reason, count] : unanswered)
    text += fmt::format("No time of the peer in {} case(s): {}\n", count, reason);
  for (const TimedCase& t : all) {
    const Judgement& j = t.record.judgement;
    if (j.verdict != Verdict::pass)
      text += fmt::format("{}: {}: {}\n", name_of(j.verdict), j.reason.empty() ? j.gate : j.reason,
                          bench_command(t.record));
  }
  return text;
}

std::string bench_json(std::span<const TimedCase> all) {
  nlohmann::json rows = nlohmann::json::array();
  for (const TimedCase& t : all) {
    rows.push_back({{"line", t.record.line},
                    {"kernel", t.record.kernel},
                    {"gpu", t.record.gpu},
                    {"verdict", name_of(t.record.judgement.verdict)},
                    {"reason", t.record.judgement.reason},
                    {"heads", t.heads},
                    {"heads_judged", t.heads_judged},
                    {"sizes", t.sizes},
                    {"ranks", t.ranks},
                    {"cuts", t.cuts},
                    {"timed", t.timed},
                    {"variant", t.variant},
                    {"median", number(t.time.median)},
                    {"p10", number(t.time.p10)},
                    {"p90", number(t.time.p90)},
                    {"samples", t.time.samples},
                    {"calls_per_sample", t.calls_per_sample},
                    {"copies", t.copies},
                    {"clock", number(t.clock)},
                    {"power", number(t.power)},
                    {"slowed", t.slowed},
                    {"bytes", t.bytes},
                    {"operations", t.operations},
                    {"copy_rate", t.copy_rate},
                    {"product_rate", t.product_rate},
                    {"memory_floor", number(t.memory_floor)},
                    {"compute_floor", number(t.compute_floor)},
                    {"share", number(t.share)},
                    {"peer", t.peer},
                    {"peer_note", t.peer_note},
                    {"peer_median", number(t.peer_time.median)},
                    {"peer_ratio", number(t.peer_ratio)}});
  }
  return rows.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace samestate
