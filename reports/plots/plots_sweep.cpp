#include "reports/plots/plots_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <string_view>
#include <tuple>

namespace samestate {
namespace {

/// How a series is drawn.
struct Series {
  std::string_view name;
  std::string_view title;
  std::string_view x_label;
  double log_base;
  bool regime_varies;  ///< true if the regime varies along the curve: its points are not joined
};
constexpr std::array kKnownSeries = {
    Series{"chunk", "chunk size", "chunk (tokens)", 2, false},
    Series{"dendritic", "chunk, dendritic heads", "chunk (tokens)", 2, false},
    Series{"length", "length", "length of the sequence (tokens)", 4, false},
    Series{"decay", "decay", "mean of -g, the log-decay of a token", 10, true},
    Series{"condition", "condition", "condition number of I + A, worst chunk of head 0", 10, true},
    Series{"width", "head dimension", "dk = dv (elements)", 2, false},
    Series{"drift", "drift", "token", 10, false},
};

Series series_named(std::string_view name) {
  for (const Series& series : kKnownSeries) {
    if (series.name == name) return series;
  }
  return {name, name, name, 0, false};
}

std::size_t rank_of_series(std::string_view name) {
  return static_cast<std::size_t>(std::find_if(kKnownSeries.begin(), kKnownSeries.end(),
                                               [&](const Series& s) { return s.name == name; }) -
                                  kKnownSeries.begin());
}

/// The points of one group: indices in order of x.
using Curves = std::vector<std::pair<std::string, std::vector<std::int64_t>>>;

using Pick = double (*)(const Measurement&);

/// Divides errors by the RMS of the expected output, which depends on inputs and contracts: the precision of
/// a format then looks the same in every plot (2^-24 = 6e-8 in fp32, 2^-9 = 2e-3 in bf16). This is the only
/// division in the report; the tables and the files next to it contain both numbers.
double of_output(double error, const Measurement& m) { return error / m.size; }
double of_state(double error, const Measurement& m) { return error / m.state_size; }

/// Operators are judged element by element within a worst-case bound; the recurrent family has a predicted
/// error.
bool worst_case(const Measurement& m) { return m.record.judgement.gate == "element"; }

class GroupBuilder {
 public:
  GroupBuilder(std::span<const SweepPoint> points, Series series, const std::vector<std::string>& contracts,
               Curves curves, std::string id, std::string subject)
      : points_(points),
        series_(series),
        contracts_(contracts),
        curves_(std::move(curves)),
        id_(std::move(id)),
        subject_(std::move(subject)) {}

  std::vector<Figure> figures() {
    if (series_.name == "drift") {
      add(profile("token", "error along the sequence", "token", &Measurement::by_token, 10,
                  Curve::Style::line));
      return std::move(figures_);
    }
    const bool worst = worst_case(at(curves_.front().second.front()));
    add(errors(
        "error", "error of the output", "error / RMS of the output", "the output",
        worst ? "the RMS of the worst case" : "the RMS that the bound predicts",
        [](const Measurement& m) { return of_output(m.rms_error, m); },
        [](const Measurement& m) { return of_output(m.max_error, m); },
        [](const Measurement& m) { return of_output(m.rms_bound, m); }));
    add(errors(
        "state", "error of the final state", "error / RMS of the state", "the final state",
        worst ? "the RMS of the worst case" : "the tolerance on the RMS",
        [](const Measurement& m) { return of_state(m.state_rms, m); },
        [](const Measurement& m) { return of_state(m.state_max, m); },
        [](const Measurement& m) { return of_state(m.state_bound, m); }));
    add(ratio());
    add(cost());
    if (series_.name == "chunk" || series_.name == "dendritic") {
      for (const auto& [contract, points] : curves_) add(alone(contract, points));
    }
    if (series_.name == "chunk" || series_.name == "dendritic") {
      add(profile("token", "error along the sequence", "token", &Measurement::by_token, 0,
                  Curve::Style::line));
      add(profile("position", "error inside the chunk", "position in the chunk",
                  &Measurement::by_chunk_position, 0, Curve::Style::line));
      const bool one_head = std::all_of(curves_.begin(), curves_.end(), [&](const auto& curve) {
        return at(chosen(curve.second)).by_head.size() < 2;
      });
      if (!one_head)
        add(profile("head", "error by head", "head", &Measurement::by_head, 0, Curve::Style::dots));
    }
    return std::move(figures_);
  }

 private:
  const Measurement& at(std::int64_t i) const { return points_[static_cast<std::size_t>(i)].measurement; }
  std::size_t colour_of(const std::string& contract) const {
    return static_cast<std::size_t>(std::find(contracts_.begin(), contracts_.end(), contract) -
                                    contracts_.begin());
  }
  void add(Figure figure) {
    if (!figure.empty()) figures_.push_back(std::move(figure));
  }

  Figure begin(const char* kind, const std::string& title, const char* y_label) const {
    Figure figure;
    figure.id = id_ + "-" + kind;
    figure.title = fmt::format("{}: {}", subject_, title);
    figure.x = {std::string(series_.x_label), series_.log_base, false, false, {}};
    figure.y = {y_label, 10, false, false, {}};
    for (const auto& [contract, points] : curves_) {
      figure.legend.push_back({contract, colour_of(contract), Curve::Style::line});
    }
    return figure;
  }

  /// Places zero on a logarithmic axis one decade below the other values.
  void place_zero(Figure& figure) const {
    if (figure.x.log_base == 0.0) return;
    double least = std::numeric_limits<double>::infinity();
    bool zero = false;
    for (const Curve& curve : figure.curves) {
      for (const Mark& mark : curve.marks) {
        if (mark.x == 0.0) zero = true;
        if (mark.x > 0.0) least = std::min(least, mark.x);
      }
    }
    if (!zero || std::isinf(least)) return;
    double decade = 1.0;
    while (decade * 2 > least && decade > 1e-300) decade /= 10;
    figure.x.zero_at = decade;
  }

  Curve curve(const std::string& contract, const std::vector<std::int64_t>& points, const char* what,
              Curve::Style style, Pick pick) const {
    Curve made{fmt::format("{}, {}", contract, what), colour_of(contract), style, {}};
    for (const std::int64_t i : points) made.marks.push_back({at(i).x, pick(at(i)), i});
    return made;
  }

  Figure errors(const char* kind, const char* title, const char* y_label, const char* of,
                const char* bound_is, Pick rms, Pick max, Pick bound) const {
    const bool joined = !series_.regime_varies;
    Figure figure = begin(kind, fmt::format("{} by {}", title, series_.title), y_label);
    const auto dots = joined ? Curve::Style::line_dots : Curve::Style::dots;
    const auto squares = joined ? Curve::Style::line_squares : Curve::Style::squares;
    const auto dashes = joined ? Curve::Style::dashes : Curve::Style::dashed_ticks;
    for (const auto& [contract, points] : curves_) {
      figure.curves.push_back(curve(contract, points, "bound", dashes, bound));
      figure.curves.push_back(curve(contract, points, "largest error", squares, max));
      figure.curves.push_back(curve(contract, points, "RMS error", dots, rms));
    }
    figure.legend.push_back({"RMS, measured", {}, dots});
    figure.legend.push_back({"largest, measured", {}, squares});
    figure.legend.push_back(
        {worst_case(at(curves_.front().second.front())) ? "RMS, worst case" : "RMS, bound", {}, dashes});
    figure.caption = fmt::format(
        "{}: how far {} is from the float64 oracle, over its RMS: the RMS error, the largest element's, and "
        "{} "
        "(none where the bound says nothing){}.",
        subject_, of, bound_is,
        series_.regime_varies ? "; each place along the axis is a regime of inputs, so nothing joins them"
                              : "");
    place_zero(figure);
    return figure;
  }

  /// A plot over five decades of contracts shows no growth; a plot of one contract on a linear axis does.
  Figure alone(const std::string& contract, const std::vector<std::int64_t>& points) const {
    Figure figure = begin("alone", fmt::format("{} alone", contract), "RMS error / RMS of the output");
    figure.id += "-" + std::to_string(colour_of(contract));
    figure.y.log_base = 0;
    figure.y.from_zero = true;
    figure.curves = {curve(contract, points, "RMS error", Curve::Style::line_dots,
                           [](const Measurement& m) { return of_output(m.rms_error, m); })};
    figure.legend = {{"RMS, measured", colour_of(contract), Curve::Style::line_dots}};
    figure.caption = fmt::format(
        "{}, contract {}: the RMS error of the output on a linear axis, so that growth with the chunk shows.",
        subject_, contract);
    figure.detail = true;
    return figure;
  }

  Figure ratio() const {
    Figure figure = begin("ratio", fmt::format("error over bound by {}", series_.title), "ratio, worst gate");
    figure.y = {"error / bound, worst over the gates", 0, true, false, {}};
    for (const auto& [contract, points] : curves_) {
      figure.curves.push_back(curve(contract, points, "ratio",
                                    series_.regime_varies ? Curve::Style::dots : Curve::Style::line_dots,
                                    [](const Measurement& m) { return m.record.judgement.ratio; }));
    }
    figure.limit = 1.0;
    figure.legend.push_back({"limit", {}, Curve::Style::dashes});
    figure.caption = fmt::format(
        "{}: the number that the gate decides by, tolerance included; above the dashed line at 1 a kernel "
        "fails.",
        subject_);
    place_zero(figure);
    return figure;
  }

  /// There is one curve each instead of one per contract: the cost model ignores precision.
  Figure cost() const {
    Figure figure = begin("cost", fmt::format("work and traffic by {}", series_.title), "per token and head");
    figure.y.label = "FLOP or byte, per token and head";
    figure.legend = {{"floating-point operations", 5, Curve::Style::line_dots},
                     {"bytes to and from memory", 6, Curve::Style::line_squares}};
    const std::vector<std::int64_t>* longest = nullptr;
    for (const auto& [contract, points] : curves_) {
      if (longest == nullptr || points.size() > longest->size()) longest = &points;
    }
    if (series_.regime_varies || series_.name == "length" || longest == nullptr)
      return figure;  // it is constant
    Curve flops{"operations", 5, Curve::Style::line_dots, {}};
    Curve bytes{"bytes", 6, Curve::Style::line_squares, {}};
    for (const std::int64_t i : *longest) {
      flops.marks.push_back({at(i).x, at(i).flops, i});
      bytes.marks.push_back({at(i).x, at(i).bytes, i});
    }
    figure.curves = {std::move(flops), std::move(bytes)};
    figure.caption = fmt::format(
        "{}: what the cost model counts for one token of one head (of a scan: one channel; of a layer: the "
        "recurrence in it), operands of 2 bytes and a state of 4.",
        subject_);
    return figure;
  }

  /// Returns the point that represents a curve: the one with chunk 64, otherwise the largest below, otherwise
  /// the first.
  std::int64_t chosen(const std::vector<std::int64_t>& points) const {
    std::int64_t best = points.front();
    for (const std::int64_t i : points) {
      if (at(i).x <= 64.0 || series_.name == "drift") best = i;
    }
    return best;
  }

  Figure profile(const char* kind, const char* title, const char* x_label,
                 std::vector<ErrorAt> Measurement::*member, double log_base, Curve::Style style) const {
    Figure figure = begin(kind, title, "RMS error / RMS of the output");
    figure.x = {x_label, log_base, false, false, {}};
    if (member == &Measurement::by_head) figure.x.whole = true;
    std::string at_x;
    for (const auto& [contract, points] : curves_) {
      const std::int64_t i = chosen(points);
      Curve measured{contract + ", RMS error", colour_of(contract), style, {}};
      Curve bound{contract + ", bound",
                  colour_of(contract),
                  style == Curve::Style::dots ? Curve::Style::dashed_ticks : Curve::Style::dashes,
                  {}};
      for (const ErrorAt& e : at(i).*member) {
        measured.marks.push_back(
            {e.position, of_output(e.error, at(i)), style == Curve::Style::dots ? i : -1});
        bound.marks.push_back({e.position, of_output(e.bound, at(i)), -1});
      }
      if (measured.marks.empty()) continue;
      figure.curves.push_back(std::move(bound));
      figure.curves.push_back(std::move(measured));
      figure.cases.emplace_back(contract, i);
      at_x = fmt::format(" at {} = {:g}", series_.name == "drift" ? "length" : "chunk", at(i).x);
    }
    figure.legend.push_back({"measured", {}, style});
    figure.legend.push_back(
        {"bound", {}, style == Curve::Style::dots ? Curve::Style::dashed_ticks : Curve::Style::dashes});
    figure.caption = fmt::format(
        "{}{}: RMS error of the output {}, over the RMS of the whole output, and {} there.", subject_, at_x,
        member == &Measurement::by_head    ? "of each head"
        : member == &Measurement::by_token ? "at each token, or window of tokens where there are many"
                                           : "at each place in a chunk, over all chunks",
        worst_case(at(curves_.front().second.front())) ? "the RMS of the worst case"
                                                       : "the RMS that the bound predicts");
    return figure;
  }

  std::span<const SweepPoint> points_;
  Series series_;
  const std::vector<std::string>& contracts_;
  Curves curves_;
  std::string id_;
  std::string subject_;
  std::vector<Figure> figures_;
};

/// Returns the sizes of a case as its line has them: "Hk=1 Hv=2 dk=128 dv=128".
std::string sizes_of(const std::string& line, const std::set<std::string>& sizes) {
  std::string out;
  std::istringstream words(line);
  for (std::string word; words >> word;) {
    if (!sizes.contains(word.substr(0, word.find('=')))) continue;
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

/// Returns the kernel, and the tokens and sizes on which all points agree.
std::string about(std::span<const SweepPoint> points, const std::vector<std::int64_t>& members,
                  std::span<const std::string> sources, const std::set<std::string>& keys, bool several) {
  const auto at = [&](std::int64_t i) -> const Measurement& {
    return points[static_cast<std::size_t>(i)].measurement;
  };
  const Measurement& first = at(members.front());
  std::string text = fmt::format("kernel {} on {}", first.record.kernel, first.record.device);
  if (std::all_of(members.begin(), members.end(),
                  [&](std::int64_t i) { return at(i).tokens == first.tokens; }))
    text += fmt::format(", {} tokens", first.tokens);
  const std::string sizes = sizes_of(first.record.line, keys);
  if (!sizes.empty() && std::all_of(members.begin(), members.end(), [&](std::int64_t i) {
        return sizes_of(at(i).record.line, keys) == sizes;
      }))
    text += ", " + sizes;
  if (first.series == "chunk" || first.series == "dendritic")
    text +=
        fmt::format(", output of RMS {:.3g}", first.size) +
        (std::isnan(first.state_size) ? "" : fmt::format(", final state of RMS {:.3g}", first.state_size));
  if (several)
    text += fmt::format(", from {}", sources[points[static_cast<std::size_t>(members.front())].source]);
  return text;
}

}  // namespace

std::vector<FigureGroup> sweep_figures(std::span<const SweepPoint> points,
                                       std::span<const std::string> sources,
                                       const std::set<std::string>& sizes) {
  struct Key {
    std::string series, system, kernel, regime;
    std::size_t source;
    bool operator==(const Key&) const = default;
  };
  std::vector<std::pair<Key, std::vector<std::int64_t>>> groups;
  std::vector<std::size_t> with_points;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Measurement& m = points[i].measurement;
    const Key key{m.series, m.record.system, m.record.kernel,
                  series_named(m.series).regime_varies ? "" : m.record.regime, points[i].source};
    auto found =
        std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == key; });
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {}});
    found->second.push_back(static_cast<std::int64_t>(i));
    if (std::find(with_points.begin(), with_points.end(), points[i].source) == with_points.end())
      with_points.push_back(points[i].source);
  }
  // Systems are kept together, in order of first appearance.
  const auto first_of = [&](const Key& key) {
    return std::find_if(groups.begin(), groups.end(),
                        [&](const auto& group) {
                          return group.first.series == key.series && group.first.system == key.system;
                        })
        ->second.front();
  };
  std::vector<std::tuple<std::size_t, std::int64_t, std::size_t>> order;
  for (std::size_t i = 0; i < groups.size(); ++i)
    order.emplace_back(rank_of_series(groups[i].first.series), first_of(groups[i].first), i);
  std::sort(order.begin(), order.end());
  const std::vector<std::string> contracts = contracts_of(points);
  std::vector<FigureGroup> made;
  for (const auto& [rank, first, index] : order) {
    const auto& [key, members] = groups[index];
    const Series series = series_named(key.series);
    Curves curves;
    for (const std::string& contract : contracts) {
      std::vector<std::int64_t> mine;
      for (const std::int64_t i : members) {
        if (points[static_cast<std::size_t>(i)].measurement.record.contract == contract) mine.push_back(i);
      }
      // NaN is sorted last: the order of the others must not depend on it.
      std::stable_sort(mine.begin(), mine.end(), [&](std::int64_t a, std::int64_t b) {
        const double x = points[static_cast<std::size_t>(a)].measurement.x;
        const double y = points[static_cast<std::size_t>(b)].measurement.x;
        return !std::isnan(x) && (std::isnan(y) || x < y);
      });
      if (!mine.empty()) curves.emplace_back(contract, std::move(mine));
    }
    const std::string subject = key.regime.empty() ? key.system : key.system + ", " + key.regime;
    FigureGroup group{key.series,
                      fmt::format("Error by {}", series.title),
                      subject,
                      about(points, members, sources, sizes, with_points.size() > 1),
                      {}};
    group.figures = GroupBuilder(points, series, contracts, std::move(curves),
                                 fmt::format("plot-{}", made.size() + 1), subject)
                        .figures();
    made.push_back(std::move(group));
  }
  return made;
}

}  // namespace samestate
