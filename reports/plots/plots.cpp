#include "reports/plots/plots.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "reference/error.h"
#include "reports/records/files.h"

extern char** environ;  // NOLINT: POSIX gives no header for it

namespace samestate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMissing =
    "gnuplot is not there; install it (Debian: apt-get install gnuplot-nox), or leave the plots out with "
    "--no-plots";

/// A folder that is removed with the object.
class Scratch {
 public:
  Scratch() {
    std::string name = (fs::temp_directory_path() / "samestate_plots_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr)
      throw Error(name + ": cannot be made for the plots; set TMPDIR to a folder that can be written");
    path_ = name;
  }
  ~Scratch() {
    std::error_code code;
    fs::remove_all(path_, code);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

 private:
  fs::path path_;
};

/// Runs gnuplot in `folder`, so that no script contains the folder's name, without a shell and without the
/// user's settings. Returns its exit code, or -1 if there is no gnuplot.
int run_gnuplot(const std::vector<std::string>& arguments, const std::string& folder,
                const std::string& output) {
  std::vector<std::string> words = {"gnuplot", "-d"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addchdir_np(&files, folder.c_str());
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&files, STDOUT_FILENO, STDERR_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, "gnuplot", &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) return -1;
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  // Some systems return a shell's 127 instead of a failed spawn.
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

/// Returns a string for a script, without characters that could end it or have a meaning of their own.
std::string literal(std::string_view text) {
  std::string out = "'";
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view(" _-+.,:;/()=<>|").find(c) != std::string_view::npos;
    if (plain) out += c;
  }
  return out + "'";
}

bool drawable(const Figure& figure, const Mark& mark) {
  const bool x = std::isfinite(mark.x) && (figure.x.log_base == 0.0 || mark.x > 0.0 ||
                                           (mark.x == 0.0 && figure.x.zero_at.has_value()));
  return x && std::isfinite(mark.y) && (figure.y.log_base == 0.0 || mark.y > 0.0);
}

const char* style_of(Curve::Style style) {
  switch (style) {
    case Curve::Style::line_dots:
      return "with lines lw 1.6";
    case Curve::Style::dots:
      return "with points pt 7 ps 0.6";
    case Curve::Style::line_squares:
      return "with lines lw 0.7";
    case Curve::Style::squares:
      return "with points pt 8 ps 0.8";
    case Curve::Style::line:
      return "with lines lw 1.4";
    case Curve::Style::dashes:
      return "with lines lw 1.3 dt (9,5)";
    case Curve::Style::dashed_ticks:
      return "with points pt 15 ps 0.9 lw 1.6";
    case Curve::Style::bars:
      return "with boxes fs solid 0.75 noborder";
  }
  return "with lines";
}

/// The style in the legend, where no marks are drawn over it.
const char* key_style_of(Curve::Style style) {
  switch (style) {
    case Curve::Style::line_dots:
      return "with linespoints pt 7 ps 0.55 lw 1.6";
    case Curve::Style::line_squares:
      return "with linespoints pt 8 ps 0.7 lw 0.7";
    default:
      return style_of(style);
  }
}

/// Returns the marks drawn over the line, which readers can point at; nullptr if the style has none.
const char* colour_of(std::size_t index) {
  return index == kFailureColour ? failure_colour().light : palette()[index % palette().size()].light;
}

const char* marker_of(Curve::Style style) {
  switch (style) {
    case Curve::Style::line_dots:
    case Curve::Style::dots:
      return "pt 7 ps 0.6";
    case Curve::Style::line_squares:
    case Curve::Style::squares:
      return "pt 8 ps 0.8";
    default:
      return nullptr;
  }
}

void add_axis(std::string& script, const char* name, const PlotAxis& axis) {
  script += fmt::format("set {}label {}\n", name, literal(axis.label));
  if (axis.log_base > 0.0) {
    script += fmt::format("set logscale {} {}\n", name, axis.log_base);
    // Powers of ten are written as powers, powers of two and four as they are.
    if (axis.log_base == 10.0) script += fmt::format("set format {} '%.0e'\n", name);
  }
  if (axis.zero_at) script += fmt::format("set {}tics add ('0' {})\n", name, *axis.zero_at);
  if (axis.from_zero) script += fmt::format("set {}range [0:*]\n", name);
}

void add_figure(std::string& script, const Figure& figure, const std::string& output) {
  script += "reset\nset encoding utf8\n";
  script +=
      "set terminal svg size 450,396 dynamic font 'sans-serif,13' noenhanced linewidth 1\n"
      "set border 3 lw 0.8\nunset mxtics\nunset mytics\nset tics nomirror out scale 0.6\n"
      "set grid back lt 1 lw 0.6 lc rgb '#dddddd'\nset key bmargin center horizontal Left reverse maxcols 4 "
      "samplen 2 spacing 1.1 height 0.3\n"
      "set boxwidth 0.9 relative\n";
  // The subject has a line of its own: on a single line, long names would run out of the picture.
  const std::size_t subject = figure.title.find(": ");
  const std::string title = subject == figure.title.npos
                                ? literal(figure.title)
                                : literal(figure.title.substr(0, subject)) + ".\"\\n\"." +
                                      literal(figure.title.substr(subject + 2));
  script += fmt::format("set output '{}'\nset title {} font ',12.5'\n", output, title);
  // A dot on the frame of a plot with few dots would be cut; a profile of many points fills the width.
  if (figure.x.whole) {
    double last = 0.0;
    for (const Curve& curve : figure.curves) {
      for (const Mark& mark : curve.marks) last = std::max(last, mark.x);
    }
    // If there are many, labels come in steps; there is none beside the data.
    script +=
        fmt::format("set offsets 0.5, 0.5, 0, 0\nset xtics 0, {}, {}\n", std::ceil((last + 1) / 16), last);
  } else {
    script += figure.x.log_base > 0.0 ? "set offsets graph 0.03, graph 0.03, 0, 0\n" : "set autoscale xfix\n";
  }
  add_axis(script, "x", figure.x);
  add_axis(script, "y", figure.y);
  std::vector<std::string> parts;
  std::string data;
  for (const Curve& curve : figure.curves) {
    std::string rows;
    for (const Mark& mark : curve.marks) {
      if (!drawable(figure, mark)) continue;
      const double x = mark.x == 0.0 && figure.x.zero_at ? *figure.x.zero_at : mark.x;
      rows += fmt::format("{} {} {} {}\n", x, mark.y, mark.point, mark.x);
    }
    if (rows.empty()) continue;
    const std::string block = fmt::format("$d{}", parts.size());
    data += fmt::format("{} << EOD\n{}EOD\n", block, rows);
    const std::string colour = colour_of(curve.colour);
    const char* marker = marker_of(curve.style);
    const bool joined = curve.style != Curve::Style::dots && curve.style != Curve::Style::squares;
    if (joined) {
      parts.push_back(
          fmt::format("{} using 1:2 {} lc rgb '{}' notitle", block, style_of(curve.style), colour));
    }
    if (marker != nullptr) {
      parts.push_back(fmt::format(
          "{} using 1:2:(sprintf('%d|%s: %.3g at %.6g', int($3), {}, $2, $4)) with labels hypertext "
          "point {} lc rgb '{}' notitle",
          block, literal(curve.name), marker, colour));
    }
  }
  if (figure.limit)
    parts.push_back(fmt::format("{} {} lc rgb '{}' notitle", *figure.limit, style_of(Curve::Style::dashes),
                                inks()[1].light));
  for (const LegendEntry& entry : figure.legend) {
    const std::string colour = entry.colour ? colour_of(*entry.colour) : inks()[1].light;
    parts.push_back(fmt::format("keyentry {} lc rgb '{}' title {}", key_style_of(entry.style), colour,
                                literal(entry.text)));
  }
  script += data + "plot ";
  for (std::size_t i = 0; i < parts.size(); ++i) script += (i == 0 ? "" : ", \\\n  ") + parts[i];
  script += "\nunset output\n";
}

}  // namespace

bool Figure::empty() const {
  for (const Curve& curve : curves) {
    for (const Mark& mark : curve.marks) {
      if (drawable(*this, mark)) return false;
    }
  }
  return true;
}

const std::vector<PaletteEntry>& palette() {
  static const std::vector<PaletteEntry> colours = {
      {"#0072b2", "#56b4e9"}, {"#009e73", "#2fcf9f"}, {"#7a52a3", "#b79ae0"}, {"#cc79a7", "#e79ac6"},
      {"#b07d00", "#f0b429"}, {"#3a9bd6", "#8fd0f5"}, {"#6b6b6b", "#b8b8b8"},
  };
  return colours;
}

const PaletteEntry& failure_colour() {
  static const PaletteEntry colour{"#d55e00", "#ff8a3d"};
  return colour;
}

const std::vector<PaletteEntry>& inks() {
  static const std::vector<PaletteEntry> colours = {
      {"#1a1a1a", "#e6e6e6"}, {"#5a5a5a", "#b0b0b0"}, {"#dddddd", "#3a3f47"}};
  return colours;
}

std::string gnuplot_script(const std::vector<Figure>& figures, const std::string& prefix) {
  std::string script;
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (!figures[i].empty()) add_figure(script, figures[i], fmt::format("{}{}.svg", prefix, i));
  }
  return script;
}

std::string gnuplot_version() {
  const Scratch scratch;
  const std::string output = scratch.file("version");
  if (run_gnuplot({"--version"}, scratch.file(""), output) != 0) return "";
  std::istringstream words(text_of(output).value_or(""));
  std::string name;
  std::string version;
  std::string patch;
  std::string level;
  words >> name >> version >> patch >> level;
  return version + "." + level;
}

std::vector<std::string> draw(const std::vector<Figure>& figures) {
  std::vector<std::string> drawn(figures.size());
  if (std::all_of(figures.begin(), figures.end(), [](const Figure& figure) { return figure.empty(); }))
    return drawn;
  const Scratch scratch;
  std::ofstream(scratch.file("plots.gp"), std::ios::binary) << gnuplot_script(figures, "figure");
  const std::string output = scratch.file("output");
  const int code = run_gnuplot({"plots.gp"}, scratch.file(""), output);
  if (code < 0) throw Error(kMissing);
  for (std::size_t i = 0; i < figures.size(); ++i) {
    if (figures[i].empty()) continue;
    const std::string svg = text_of(scratch.file(fmt::format("figure{}.svg", i))).value_or("");
    if (code != 0 || svg.find("</svg>") == svg.npos) {
      std::string reason = text_of(output).value_or("").substr(0, 300);
      std::replace(reason.begin(), reason.end(), '\n', ' ');
      throw Error(fmt::format(
          "gnuplot failed (exit {}) on the plot '{}': {}; gnuplot 5.4 or later is needed; --no-plots leaves "
          "the plots out",
          code, figures[i].id, reason));
    }
    drawn[i] = svg_fragment(svg);
  }
  return drawn;
}

}  // namespace samestate
