#include "cli/observed.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "oracles/limits.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

const char* noun_of(ErrorNorm norm) {
  return norm == ErrorNorm::max ? "largest" : norm == ErrorNorm::rms ? "RMS" : "relative RMS";
}

/// Returns " (16 times that)", the quotient of both; empty if there is nothing to divide by.
std::string times_of(double x, double of) {
  return of > 0.0 && std::isfinite(of) ? fmt::format(" ({:.3g} times that)", x / of) : "";
}

ObservedAnswer::Kind answer_kind(const ObservedAnswer& a, double size) {
  if (!std::isfinite(a.allowed)) return ObservedAnswer::Kind::unknown;
  if (a.observed > a.allowed) return ObservedAnswer::Kind::wrong;
  if (a.observed <= kRoom * a.expected) return ObservedAnswer::Kind::as_expected;
  // A bound as large as the output lets everything pass.
  return a.allowed > kVacuousOutput * size ? ObservedAnswer::Kind::unknown : ObservedAnswer::Kind::allowed;
}

std::string answer_sentence(const ObservedAnswer& a, const Study& study) {
  const Record& record = study.first.record;
  const bool pair = !study.other.empty();
  const std::string what = fmt::format("{}: a {} {} of {:.4g}", a.output, noun_of(a.norm),
                                       pair ? "difference" : "error", a.observed);
  const std::string made =
      pair ? fmt::format("{} and {} differ by {:.3g}", record.kernel, study.other, a.expected)
           : fmt::format("{} has {:.3g}", record.kernel, a.expected);
  const std::string of =
      study.failure.empty()
          ? made + times_of(a.observed, a.expected)
          : fmt::format("{} fails, so its errors say nothing about what to expect", record.kernel);
  const std::string who =
      pair ? "two correct kernels" : fmt::format("a correct kernel of {}", record.contract);
  const std::string most = fmt::format("{} may {} {:.3g}{}", who, pair ? "differ by" : "have", a.allowed,
                                       times_of(a.observed, a.allowed));
  switch (a.kind) {
    case ObservedAnswer::Kind::as_expected:
      return fmt::format("{} is as expected: {}; {}.", what, of, most);
    case ObservedAnswer::Kind::allowed:
      return fmt::format("{} is allowed, but more than expected: {}; {}.", what, of, most);
    case ObservedAnswer::Kind::wrong:
      return fmt::format("{} is wrong: {}; {}.", what, of, most);
    case ObservedAnswer::Kind::unknown:
      break;
  }
  return std::isfinite(a.allowed)
             ? fmt::format("{} cannot be judged: {}, but {} on these data, which is as large as the output.",
                           what, of, most)
             : fmt::format("{} cannot be judged: {}, and there is no bound for it on these data.", what, of);
}

}  // namespace

const char* name_of(ErrorNorm norm) {
  return norm == ErrorNorm::max ? "max" : norm == ErrorNorm::rms ? "rms" : "rel";
}

ErrorNorm norm_named(std::string_view name) {
  return name == "max" ? ErrorNorm::max : name == "rms" ? ErrorNorm::rms : ErrorNorm::rel;
}

std::vector<Observed> observed_of(const std::vector<std::string>& words) {
  std::vector<Observed> out;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    const std::string text = equals == word.npos ? word : word.substr(equals + 1);
    Observed one{equals == word.npos ? "" : word.substr(0, equals)};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), one.error);
    if (error != std::errc{} || end != text.data() + text.size() || !(one.error >= 0.0) ||
        !std::isfinite(one.error))
      throw Error(
          fmt::format("--observed {}: an error is a finite number of at least 0, such as 0.02 or "
                      "final_state=0.02",
                      word));
    out.push_back(std::move(one));
  }
  return out;
}

const char* ObservedAnswer::word() const {
  return kind == Kind::as_expected ? "as expected"
         : kind == Kind::allowed   ? "allowed"
         : kind == Kind::wrong     ? "wrong"
                                   : "unknown";
}

std::vector<ObservedAnswer> answers_of(const std::vector<Observed>& observed, ErrorNorm norm,
                                       const Study& study) {
  std::vector<ObservedAnswer> out;
  for (const Observed& one : observed) {
    const auto m = one.output.empty() ? study.outputs.begin()
                                      : std::ranges::find(study.outputs, one.output,
                                                          [](const Measured& x) { return x.of.output; });
    if (m == study.outputs.end()) {
      std::vector<std::string> names;
      for (const Measured& x : study.outputs) names.push_back(x.of.output);
      throw Error(fmt::format("--observed {}={:g}: the case has no output {}; its outputs are {}", one.output,
                              one.error, one.output, fmt::join(names, ", ")));
    }
    ObservedAnswer a{.output = m->of.output, .norm = norm, .observed = one.error};
    const double size = norm == ErrorNorm::max ? m->of.largest : norm == ErrorNorm::rms ? m->of.size : 1.0;
    a.expected = norm == ErrorNorm::max   ? m->of.measured.element
                 : norm == ErrorNorm::rms ? m->of.measured.rms
                                          : m->relative;
    a.allowed = norm == ErrorNorm::max   ? m->of.limit.element
                : norm == ErrorNorm::rms ? m->of.limit.rms
                                         : m->relative_limit;
    if (!study.failure.empty()) a.expected = 0.0;
    a.kind = study.vacuous.empty() ? answer_kind(a, size) : ObservedAnswer::Kind::unknown;
    a.sentence = answer_sentence(a, study);
    out.push_back(std::move(a));
  }
  return out;
}

std::string observed_text(const std::vector<ObservedAnswer>& answers) {
  std::string out;
  for (const ObservedAnswer& answer : answers) out += fmt::format("observed  {}\n", answer.sentence);
  return out + (answers.front().norm == ErrorNorm::rel
                    ? ""
                    : "          The numbers hold for this line's data; --norm "
                      "rel does not depend on their scale.\n");
}

Exit code_of(const std::vector<ObservedAnswer>& answers) {
  const auto any = [&](ObservedAnswer::Kind kind) {
    return std::ranges::find(answers, kind, &ObservedAnswer::kind) != answers.end();
  };
  return any(ObservedAnswer::Kind::wrong) ? kFail : any(ObservedAnswer::Kind::unknown) ? kVacuous : kPass;
}

}  // namespace samestate::cli
