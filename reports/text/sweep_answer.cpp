#include "reports/text/sweep_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <utility>

#include "reports/plots/plots_sweep.h"

namespace samestate {
namespace {

using Points = std::vector<const Measurement*>;

/// The key that a sweep varied, and the values that it was given.
struct Axis {
  const std::string& key;
  const std::vector<std::string>& values;
};

bool is_number(const std::string& text) {
  double x = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  return error == std::errc{} && end == text.data() + text.size();
}

/// Returns the value that the point was given. A line leaves out a key that has its default; the point is then drawn at
/// the number itself, or at the place of the word among those that were asked for.
std::string value_in(const Measurement& m, const Axis& axis) {
  const auto& [key, values] = axis;
  if (key == "contract") return m.record.contract;
  if (key == "regime") return m.record.regime;
  const std::string& line = m.record.line;
  const std::size_t at = line.find(" " + key + "=");
  if (at == line.npos) {
    const auto place = static_cast<std::size_t>(std::max(m.x, 1.0)) - 1;
    return place < values.size() && !is_number(values[place]) ? values[place] : fmt::format("{:g}", m.x);
  }
  const std::size_t begin = at + key.size() + 2;
  return line.substr(begin, line.find(' ', begin) - begin);
}

std::string values(const Points& points, const Axis& axis) {
  std::vector<std::string> all;
  for (const Measurement* m : points) all.push_back(value_in(*m, axis));
  return fmt::format("{}={}", axis.key, fmt::join(all, ", "));
}

double relative(const Measurement& m) { return m.rms_error / m.size; }

/// Says how error and operations depend on the chunk, for the chunks that pass.
std::string which_chunk(const Points& passing) {
  const auto by_error = [](const Measurement* a, const Measurement* b) {
    return a->rms_error < b->rms_error;
  };
  const Measurement* least = *std::ranges::min_element(passing, by_error);
  const Measurement* flat = nullptr;
  const Measurement* cheap = nullptr;
  for (const Measurement* m : passing) {
    if (m->rms_error <= kFlatFactor * least->rms_error) flat = m;
    if (!std::isnan(m->flops) && (cheap == nullptr || m->flops < cheap->flops)) cheap = m;
  }
  std::string text = flat == passing.back()
                         ? fmt::format("a larger chunk costs no accuracy up to {:g}", flat->x)
                         : fmt::format(
                               "a larger chunk costs no accuracy up to {:g}, and {:g} has {:.3g} times the "
                               "least error",
                               flat->x, passing.back()->x, passing.back()->rms_error / least->rms_error);
  if (cheap != nullptr) text += fmt::format("; operations are least at {:g}", cheap->x);
  return text;
}

std::string answer(Points points, const Axis& axis) {
  std::ranges::stable_sort(points, {}, [](const Measurement* m) { return m->x; });
  Points passing, failing, open;
  for (const Measurement* m : points) {
    const Verdict verdict = m->record.judgement.verdict;
    (verdict == Verdict::pass ? passing : is_failure(verdict) ? failing : open).push_back(m);
  }
  const Record& r = points.front()->record;
  const std::string at = axis.key == "T" ? "" : fmt::format("at T={}, ", points.front()->tokens);
  std::vector<std::string> parts;
  const auto verb = [](const Points& of, const char* one, const char* several) {
    return of.size() == 1 ? one : several;
  };
  if (!passing.empty())
    parts.push_back(fmt::format("{} {}", values(passing, axis), verb(passing, "passes", "pass")));
  if (!failing.empty())
    parts.push_back(fmt::format("{} {}", values(failing, axis), verb(failing, "fails", "fail")));
  if (!open.empty())
    parts.push_back(fmt::format("nothing can be said of {} ({})", values(open, axis),
                                name_of(open.front()->record.judgement.verdict)));
  Points measured = passing;
  std::erase_if(measured, [](const Measurement* m) { return !std::isfinite(relative(*m)); });
  if (!measured.empty()) {
    std::vector<std::string> errors;
    for (const Measurement* m : measured) errors.push_back(fmt::format("{:.3g}", relative(*m)));
    parts.push_back(fmt::format("relative RMS error {}", fmt::join(errors, ", ")));
    if (axis.key == "chunk" && measured.size() > 1) parts.push_back(which_chunk(measured));
  }
  return fmt::format("{}{} of {}: {}", at, points.front()->curve, r.kernel, fmt::join(parts, "; "));
}

}  // namespace

std::vector<std::string> sweep_answers(std::span<const Measurement> points, const std::string& key,
                                       const std::vector<std::string>& values) {
  std::vector<std::pair<std::string, Points>> curves;
  for (const Measurement& m : points) {
    const auto at = std::ranges::find(curves, m.curve, &std::pair<std::string, Points>::first);
    (at == curves.end() ? curves.emplace_back(m.curve, Points{}) : *at).second.push_back(&m);
  }
  std::vector<std::string> out;
  for (const auto& [curve, of] : curves) out.push_back(answer(of, {key, values}) + ".");
  return out;
}

}  // namespace samestate
