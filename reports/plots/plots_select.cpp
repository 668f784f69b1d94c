#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <tuple>

#include "reports/plots/plots_sweep.h"

/// Counting and choosing among measurements and records.
namespace samestate {
namespace {

/// Returns true if a is less than b, with NaN last.
bool less(double a, double b) { return !std::isnan(a) && (std::isnan(b) || a < b); }

}  // namespace

std::vector<SweepPoint> latest(std::span<const SweepPoint> points) {
  std::vector<SweepPoint> kept;
  std::map<std::tuple<std::size_t, std::string, std::string, std::string, std::string>, std::size_t> seen;
  for (const SweepPoint& point : points) {
    const Measurement& m = point.measurement;
    const auto [where, fresh] =
        seen.try_emplace({point.source, m.series, m.curve, m.record.kernel, m.record.line}, kept.size());
    if (fresh) {
      kept.push_back(point);
    } else {
      kept[where->second] = point;
    }
  }
  return kept;
}

std::vector<std::string> contracts_of(std::span<const SweepPoint> points) {
  std::vector<std::string> names = {"fp32", "tf32", "bf16", "fp16", "bf16_state"};
  for (const SweepPoint& point : points) {
    const std::string& contract = point.measurement.record.contract;
    if (std::find(names.begin(), names.end(), contract) == names.end()) names.push_back(contract);
  }
  return names;
}

std::vector<ChunkAdvice> chunk_advice(std::span<const SweepPoint> points) {
  std::vector<ChunkAdvice> all;
  std::vector<std::vector<std::int64_t>> members;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Measurement& m = points[i].measurement;
    if (m.series != "chunk" && m.series != "dendritic") continue;
    const Record& r = m.record;
    // The shapes of dendritic attention have a line of their own.
    const std::string system = m.series == "dendritic" ? r.system + " (dendritic)" : r.system;
    auto found = std::find_if(all.begin(), all.end(), [&](const ChunkAdvice& a) {
      return a.system == system && a.kernel == r.kernel && a.contract == r.contract && a.regime == r.regime;
    });
    if (found == all.end()) {
      found = all.insert(all.end(), {system, r.kernel, r.contract, r.regime, -1, -1, -1, -1, -1, -1, 0});
      members.emplace_back();
    }
    members[static_cast<std::size_t>(found - all.begin())].push_back(static_cast<std::int64_t>(i));
  }
  const auto at = [&](std::int64_t i) -> const Measurement& {
    return points[static_cast<std::size_t>(i)].measurement;
  };
  const auto least = [&](const std::vector<std::int64_t>& of, auto&& value) {
    std::int64_t best = -1;
    for (const std::int64_t i : of) {
      if (!std::isnan(value(at(i))) && (best < 0 || less(value(at(i)), value(at(best))))) best = i;
    }
    return best;
  };
  for (std::size_t row = 0; row < all.size(); ++row) {
    ChunkAdvice& advice = all[row];
    // Sorted by chunk, whatever the order of measurement: of equal points the one with the smaller chunk is
    // named.
    std::vector<std::int64_t>& of = members[row];
    std::stable_sort(of.begin(), of.end(),
                     [&](std::int64_t i, std::int64_t j) { return less(at(i).x, at(j).x); });
    advice.least_error = least(of, [](const Measurement& m) { return m.rms_error; });
    advice.least_flops = least(of, [](const Measurement& m) { return m.flops; });
    advice.least_bytes = least(of, [](const Measurement& m) { return m.bytes; });
    for (const std::int64_t i : of) {
      const Measurement& m = at(i);
      const double ratio = m.record.judgement.ratio;
      advice.failing += is_failure(m.record.judgement.verdict);
      if (advice.worst_ratio < 0 || less(at(advice.worst_ratio).record.judgement.ratio, ratio))
        advice.worst_ratio = i;
      if (!std::isnan(m.condition) &&
          (advice.worst_condition < 0 || less(at(advice.worst_condition).condition, m.condition)))
        advice.worst_condition = i;
      if (advice.least_error >= 0 && m.rms_error <= kFlatFactor * at(advice.least_error).rms_error &&
          (advice.flat_to < 0 || m.x > at(advice.flat_to).x))
        advice.flat_to = i;
    }
  }
  return all;
}

Figure ratio_figure(std::span<const Record> records) {
  // Upper edges of the bins; a value above the last edge, or NaN, has failed.
  constexpr std::array kEdges = {0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5,
                                 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 1.0};
  constexpr std::array kMiddles = {0.025, 0.075, 0.125, 0.175, 0.225, 0.275, 0.325,
                                   0.375, 0.425, 0.475, 0.525, 0.575, 0.625, 0.675,
                                   0.725, 0.775, 0.825, 0.875, 0.925, 0.975, 1.025};
  std::array<std::int64_t, kMiddles.size()> counts{};
  std::int64_t exact = 0;
  std::int64_t judged = 0;
  for (const Record& record : records) {
    if (!is_judged(record.judgement.verdict)) continue;
    const double ratio = record.judgement.ratio;
    ++judged;
    if (ratio == 0.0) {
      ++exact;
      continue;
    }
    std::size_t bin = 0;
    while (bin < kEdges.size() && !(ratio <= kEdges[bin])) ++bin;
    ++counts[bin];
  }
  Figure figure;
  figure.id = "plot-ratio";
  figure.title = "Cases by ratio";
  figure.x = {"ratio = error / bound, in steps of 0.05", 0, false, false, {}};
  figure.y = {"cases", 0, true, false, {}};
  Curve within{"", 0, Curve::Style::bars, {}};
  Curve above{"", kFailureColour, Curve::Style::bars, {}};
  for (std::size_t bin = 0; bin < counts.size(); ++bin) {
    if (counts[bin] == 0 && bin == kEdges.size()) continue;
    (bin == kEdges.size() ? above : within)
        .marks.push_back({kMiddles[bin], static_cast<double>(counts[bin]), -1});
  }
  if (judged == exact) return figure;
  figure.curves = {within, above};
  figure.legend = {{"within the bound", 0, Curve::Style::bars}};
  if (!above.marks.empty())
    figure.legend.push_back({"above it, or not a number", kFailureColour, Curve::Style::bars});
  figure.caption = fmt::format(
      "Ratios of {} judged cases ({} of them exactly 0 and not drawn); mass near 0 means a loose bound, mass "
      "near 1 a gate that would see a little more error. An output that is rounded once has half an ulp as "
      "error and as bound: it stands at 1.",
      judged, exact);
  return figure;
}

}  // namespace samestate
