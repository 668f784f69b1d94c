#include "reports/plots/plots_timing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>
#include <utility>

namespace samestate {
namespace {

constexpr double kMicroseconds = 1e6;

/// The settings that the timings of one plot share.
using Key = std::tuple<std::string, std::string, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                       std::int64_t, std::string>;

bool decodes(const TimedCase& t) { return t.T == 1; }

/// A decode varies the batch, other calls the length.
double x_of(const TimedCase& t) { return static_cast<double>(decodes(t) ? t.B : t.T); }

Key key_of(const TimedEvidence& e) {
  const TimedCase& t = e.timed;
  const bool decode = decodes(t);
  return {e.device, t.record.system, decode, decode ? 0 : t.B, t.Hk, t.Hv, t.dk, t.dv, t.sizes};
}

/// Returns the larger measured floor; NaN if none was measured.
double floor_of(const TimedCase& t) { return std::fmax(t.memory_floor, t.compute_floor); }

std::string sizes_text(const TimedCase& t) {
  if (!t.sizes.empty()) return t.sizes;
  return fmt::format("Hk = {}, Hv = {}, dk = {}, dv = {}", t.Hk, t.Hv, t.dk, t.dv);
}

std::string slug(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
    out += plain ? c : '-';
  }
  return out;
}

/// Describes a curve apart from its kernel: more ranks make another curve.
std::string promise_of(const TimedCase& t) {
  return t.ranks == 0 ? t.record.contract : fmt::format("{} {}", t.record.contract, ranks_text(t));
}

class TimingFigure {
 public:
  TimingFigure(std::span<const TimedEvidence> all, std::vector<std::size_t> members, std::int64_t first)
      : all_(all), members_(std::move(members)), first_(first) {}

  Figure figure(std::size_t number) {
    const TimedCase& t = all_[members_.front()].timed;
    const bool decode = decodes(t);
    Figure figure;
    figure.id = fmt::format("plot-time-{}-{}{}", slug(t.record.system), decode ? "decode-" : "", number);
    figure.title = fmt::format("{}: time of {}", t.record.system, decode ? "one decoded token" : "a call");
    figure.x = {decode ? "sequences, B" : "length of the sequence, T (tokens)", 2, false, false, {}};
    figure.y = {"median time (us)", 10, false, false, {}};
    figure.caption = fmt::format(
        "On {}, {}{}: the median of timed calls (dots), the least that a "
        "call could take at the rates measured in the same run (dashes){}; lower is better.",
        all_[members_.front()].device, decode ? "" : fmt::format("B = {}, ", t.B), sizes_text(t),
        !with_peer() ? ""
        : decode     ? ", and the peer (squares)"
                     : ", and the peer (squares), whose float32 products may be tf32");
    std::size_t colour = 0;
    const std::set<std::pair<std::string, std::string>> curves = names();
    const bool one_kernel = curves.begin()->first == curves.rbegin()->first;  // sorted by kernel
    if (one_kernel) figure.caption = fmt::format("Kernel {}. ", curves.begin()->first) + figure.caption;
    for (const auto& [kernel, contract] : curves) {
      const std::string name = kernel + " " + contract;
      figure.legend.push_back({one_kernel ? contract : name, colour, Curve::Style::line});
      add(figure, name, colour, Curve::Style::line_dots, kernel, contract,
          [](const TimedCase& c) { return c.time.median; });
      add(figure, "floor of " + name, colour, Curve::Style::dashes, kernel, contract, floor_of);
      add(figure, "peer of " + name, colour, Curve::Style::line_squares, kernel, contract,
          [](const TimedCase& c) { return c.peer_time.median; });
      ++colour;
    }
    figure.legend.push_back({"kernel", {}, Curve::Style::line_dots});
    figure.legend.push_back({"floor", {}, Curve::Style::dashes});
    if (with_peer()) figure.legend.push_back({"peer", {}, Curve::Style::line_squares});
    return figure;
  }

 private:
  [[nodiscard]] bool with_peer() const {
    return std::any_of(members_.begin(), members_.end(),
                       [&](std::size_t i) { return !std::isnan(all_[i].timed.peer_time.median); });
  }

  [[nodiscard]] std::set<std::pair<std::string, std::string>> names() const {
    std::set<std::pair<std::string, std::string>> all;
    for (const std::size_t i : members_) all.insert({all_[i].timed.record.kernel, promise_of(all_[i].timed)});
    return all;
  }

  template <class Value>
  void add(Figure& figure, const std::string& name, std::size_t colour, Curve::Style style,
           const std::string& kernel, const std::string& contract, Value&& value) {
    Curve curve{name, colour, style, {}};
    for (const std::size_t i : members_) {
      const TimedCase& t = all_[i].timed;
      if (t.record.kernel != kernel || promise_of(t) != contract || std::isnan(value(t))) continue;
      curve.marks.push_back({x_of(t), kMicroseconds * value(t), first_ + static_cast<std::int64_t>(i)});
    }
    if (curve.marks.empty()) return;
    std::sort(curve.marks.begin(), curve.marks.end(), [](const Mark& a, const Mark& b) { return a.x < b.x; });
    figure.curves.push_back(std::move(curve));
  }

  std::span<const TimedEvidence> all_;
  std::vector<std::size_t> members_;
  std::int64_t first_;
};

}  // namespace

std::vector<Figure> timing_figures(std::span<const TimedEvidence> timings, std::int64_t first) {
  std::vector<Key> order;
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < timings.size(); ++i) {
    const TimedCase& t = timings[i].timed;
    if (std::isnan(t.time.median)) continue;
    const auto found = std::find(order.begin(), order.end(), key_of(timings[i]));
    const auto at = static_cast<std::size_t>(found - order.begin());
    if (found == order.end()) {
      order.push_back(key_of(timings[i]));
      groups.emplace_back();
    }
    groups[at].push_back(i);
  }
  std::vector<Figure> figures;
  for (const std::vector<std::size_t>& group : groups) {
    std::set<double> places;
    for (const std::size_t i : group) places.insert(x_of(timings[i].timed));
    if (places.size() < 2) continue;  // a single point is a row of the table, not a plot
    Figure figure = TimingFigure(timings, group, first).figure(figures.size());
    if (!figure.empty()) figures.push_back(std::move(figure));
  }
  return figures;
}

}  // namespace samestate
