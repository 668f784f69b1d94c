#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

/// Plots as data, and their conversion to SVG by gnuplot.
namespace samestate {

/// A point to draw. A point that is not finite, or not above 0 on a logarithmic axis, is left out.
struct Mark {
  double x = 0.0;
  double y = 0.0;
  std::int64_t point = -1;  ///< what clicking on it refers to: an index of the page's points; -1 for nothing
};

/// The one colour that says that something is wrong: no contract and no kernel has it.
inline constexpr std::size_t kFailureColour = std::numeric_limits<std::size_t>::max();

struct Curve {
  enum class Style {
    line_dots,     ///< filled dots, joined
    dots,          ///< filled dots
    line_squares,  ///< open squares, joined by a thin line
    squares,
    line,
    dashes,        ///< joined, dashed
    dashed_ticks,  ///< short bars, not joined
    bars,
  };
  std::string name;        ///< the name of a mark, shown when it is pointed at
  std::size_t colour = 0;  ///< an index of the palette modulo its size, or kFailureColour
  Style style = Style::line_dots;
  std::vector<Mark> marks;
};

/// A line of the legend; without a colour it explains a style and is grey.
struct LegendEntry {
  std::string text;
  std::optional<std::size_t> colour;
  Curve::Style style = Curve::Style::line;
};

struct PlotAxis {
  std::string label;
  double log_base = 0.0;  ///< 0 means linear
  bool from_zero = false;
  bool whole = false;             ///< a tick at each whole number
  std::optional<double> zero_at;  ///< on a logarithmic axis: where 0 is drawn, with a tick that says so
};

struct Figure {
  std::string id;  ///< for the file and the element: lower case, digits, '-'
  std::string title;
  std::string caption;  ///< one sentence
  PlotAxis x, y;
  std::vector<Curve> curves;
  std::vector<LegendEntry> legend;                          ///< below the plot, so that it covers no data
  std::optional<double> limit;                              ///< a horizontal line
  std::vector<std::pair<std::string, std::int64_t>> cases;  ///< names and points of the runs behind it
  bool detail = false;                                      ///< shown on demand only
  [[nodiscard]] bool empty() const;                         ///< true if there is nothing to draw
};

/// Draws the figures in order, in one run of gnuplot; an empty figure gives an empty string. Each is an <svg>
/// element without ids, scripts, fonts or references: the same figures give the same bytes for one version of
/// gnuplot. A mark with a point is <g class="mark" data-point="N">. Throws Error if gnuplot is missing or
/// fails.
[[nodiscard]] std::vector<std::string> draw(const std::vector<Figure>& figures);

/// The script that `draw` runs, with one output per figure, named `prefix`N.svg. Text in a figure cannot end
/// a string or run a command: special characters are dropped.
[[nodiscard]] std::string gnuplot_script(const std::vector<Figure>& figures, const std::string& prefix);

/// The output of gnuplot as a fragment: colours as #rrggbb, no fonts, ids or scripts.
[[nodiscard]] std::string svg_fragment(const std::string& svg);

/// A fragment as a separate file, legible on light and dark backgrounds.
[[nodiscard]] std::string svg_file(const std::string& fragment);

/// The version of gnuplot, such as "12.2"; empty if it is not installed.
[[nodiscard]] std::string gnuplot_version();

/// Colours as they are in the SVG, for light and dark backgrounds: the page and the files map one to the
/// other.
struct PaletteEntry {
  const char* light;
  const char* dark;
};
[[nodiscard]] const std::vector<PaletteEntry>& palette();
/// The palette entry of kFailureColour.
[[nodiscard]] const PaletteEntry& failure_colour();
/// Text, frame and grid, in the same way.
[[nodiscard]] const std::vector<PaletteEntry>& inks();

}  // namespace samestate
