#include "cli/study.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <exception>
#include <mutex>
#include <ranges>
#include <thread>
#include <utility>

#include "cli/interrupt.h"
#include "harness/cases/keys.h"
#include "reports/records/summary.h"

namespace samestate::cli {
namespace {

/// Returns a power of two that is at least the relative rounding error of the output's format.
double rtol_of(const Contract& contract, bool state) {
  const Format format = state ? contract.state : contract.output;
  return format == Format::bf16 ? 0x1p-7 : format == Format::fp16 ? 0x1p-10 : 0x1p-20;
}

/// Rounds up to two digits, because people write tests by hand.
double rounded_up(double x) {
  if (!(x > 0.0) || !std::isfinite(x)) return x;
  const double step = std::pow(10.0, std::floor(std::log10(x)) - 1.0);
  return std::ceil(x / step - 1e-9) * step;
}

/// Says for a case that was judged on no seed why no error in any of its outputs would show.
std::string why_vacuous(const std::vector<Measured>& outputs) {
  std::vector<std::string> parts;
  for (const Measured& m : outputs) {
    const char* why = !(m.of.largest > 0.0)                ? "nothing but zeros is expected"
                      : !std::isfinite(m.of.limit.element) ? "the bound is infinite"
                                                           : "its bound is larger than the expected values";
    parts.push_back(fmt::format("{} ({})", m.of.output, why));
  }
  return fmt::format("nothing can be judged of {}: use more tokens, or another contract or regime",
                     fmt::join(parts, ", "));
}

/// The result of one seed of a study.
struct OneSeed {
  TolerancesOfCase of;
  std::string other = {};
  bool same_inputs = true;
};

TolerancesOfCase tolerances_or_why(const Case& c, const KernelTable& table) {
  TolerancesOfCase now = tolerances_of(c, table);
  if (!now.outputs.empty()) return now;
  const std::string why =
      fmt::format("{}: {}; name another --kernel", now.record.kernel, judgement_line(now.record.judgement));
  if (now.record.judgement.verdict == Verdict::skipped) throw NothingRan(why);
  throw Error(why);
}

/// Turns a run into a comparison with a second run on the same data: errors become differences, and limits become sums.
void hold_against(OneSeed& one, const TolerancesOfCase& other) {
  TolerancesOfCase& of = one.of;
  const auto same = [](const OutputBlock& a, const OutputBlock& b) {
    return a.output == b.output && a.sequence == b.sequence && a.head == b.head &&
           a.values.rows() == b.values.rows() && a.values.cols() == b.values.cols();
  };
  if (!std::ranges::equal(of.expected, other.expected, same))
    throw Error(
        fmt::format("--against: {} and {} do not return the same outputs; change keys that leave "
                    "their shapes as they are, such as form=recurrent or contract=fp32",
                    of.record.line, other.record.line));
  struct Sums {
    double difference = 0.0, inputs = 0.0, elements = 0.0;  // squares
    double largest_input = 0.0;
  };
  std::map<std::string, Sums> sums;
  for (OutputTolerance& output : of.outputs) {
    const auto at = std::ranges::find(other.outputs, output.output, &OutputTolerance::output);
    output.limit.rms += at->limit.rms;
    output.limit.row += at->limit.row;
    output.worst_case += at->worst_case;
    output.predicted =
        std::hypot(output.predicted, at->predicted);  // the two kernels' roundings are independent
    output.limit.element += at->limit.element;
    output.measured = {};
  }
  for (std::size_t b = 0; b < of.expected.size(); ++b) {
    const auto output = std::ranges::find(of.outputs, of.expected[b].output, &OutputTolerance::output);
    const Matrix<double> inputs = (of.expected[b].values - other.expected[b].values).cwiseAbs();
    const Matrix<double> difference = (of.actual[b].values - other.actual[b].values).cwiseAbs();
    if (difference.size() == 0) continue;
    of.limits[b] += other.limits[b] + inputs;
    Sums& sum = sums[output->output];
    sum.difference += difference.squaredNorm(), sum.inputs += inputs.squaredNorm();
    sum.elements += static_cast<double>(difference.size());
    ErrorSize& measured = output->measured;
    measured.element = std::max(measured.element, difference.maxCoeff());
    measured.row =
        std::max(measured.row, output->state ? difference.norm() : difference.rowwise().norm().maxCoeff());
    sum.largest_input = std::max(sum.largest_input, inputs.maxCoeff());
    // From here on, the first kernel is compared with the second instead of with the equations.
    of.expected[b].values = other.actual[b].values;
  }
  for (OutputTolerance& output : of.outputs) {
    const Sums& sum = sums[output.output];
    output.measured.rms = std::sqrt(sum.difference / std::max(sum.elements, 1.0));
    output.limit.rms += std::sqrt(sum.inputs / std::max(sum.elements, 1.0));
    output.limit.element += sum.largest_input;
    one.same_inputs = one.same_inputs && sum.inputs == 0.0;
  }
  one.other = other.record.kernel;
  const Verdict second = other.record.judgement.verdict;
  if (!is_failure(of.record.judgement.verdict) && (is_failure(second) || second == Verdict::vacuous))
    of.record.judgement = other.record.judgement;
}

OneSeed one_seed(const Case& c, const KernelTable& table, const std::optional<Case>& against, int i) {
  const auto at = [&](Case one) {
    one.seed += static_cast<std::uint64_t>(i);
    return tolerances_or_why(one, table);
  };
  OneSeed one{at(c)};
  if (against) hold_against(one, at(*against));
  return one;
}

/// Adds a seed to the study.
void add_seed(Study& study, const Contract& contract, const OneSeed& one) {
  const TolerancesOfCase& now = one.of;
  for (const OutputTolerance& of : now.outputs) {
    const auto [at, added] = study.place.try_emplace(of.output, study.outputs.size());
    if (added) study.outputs.push_back({of, rtol_of(contract, of.state)});
    Measured& m = study.outputs[at->second];
    const auto widest = [](double& a, double b) { a = std::isnan(b) ? b : std::max(a, b); };
    for (double OutputTolerance::*field : {&OutputTolerance::size, &OutputTolerance::largest,
                                           &OutputTolerance::predicted, &OutputTolerance::worst_case}) {
      widest(m.of.*field, of.*field);
    }
    for (double ErrorSize::*field : {&ErrorSize::rms, &ErrorSize::row, &ErrorSize::element}) {
      widest(m.of.measured.*field, of.measured.*field);
      widest(m.of.limit.*field, of.limit.*field);
    }
    widest(m.relative, ratio(of.measured.rms, of.size));
    widest(m.relative_limit, ratio(of.limit.rms, of.size));
  }
  for (std::size_t b = 0; b < now.expected.size(); ++b) {
    Measured& m = study.outputs[study.place.at(now.expected[b].output)];
    const Matrix<double> size = now.expected[b].values.cwiseAbs();
    const Matrix<double> error = (now.actual[b].values - now.expected[b].values).cwiseAbs();
    for (Index e = 0; e < size.size(); ++e) {
      m.atol = std::max(m.atol, kRoom * error.data()[e] - m.rtol * size.data()[e]);
      m.bound_atol = std::max(m.bound_atol, now.limits[b].data()[e] - m.rtol * size.data()[e]);
    }
  }
  study.other = one.other;
  study.same_inputs = study.same_inputs && one.same_inputs;
}

}  // namespace

double ratio(double error, double size) {
  return size > 0.0 ? error / size : error > 0.0 ? std::numeric_limits<double>::infinity() : 0.0;
}

Case other_case(const Case& c, const std::string& keys) {
  constexpr std::array<std::string_view, 7> kSameData = {"form",    "chunk", "contract", "kernel",
                                                         "prefill", "ranks", "cuts"};
  for (const auto& word : std::views::split(keys, ' ')) {
    const std::string_view text(word.begin(), word.end());
    const std::string_view key = text.substr(0, text.find('='));
    if (!text.empty() && std::ranges::find(kSameData, key) == kSameData.end())
      throw Error(
          fmt::format("--against '{}': {} changes more than the kernel, but both kernels run on the "
                      "line's data; keys that may differ are {}",
                      keys, key, fmt::join(kSameData, ", ")));
  }
  Case other = c;
  other.kernel.clear();
  other = with_keys(std::move(other), keys);
  // Keys that the other form does not use get their defaults.
  if (const CaseForm* form = Resolved(c).system->form(other.form); form != nullptr) {
    if (!form->chunked && keys.find("chunk=") == keys.npos) other.chunk = Case{}.chunk;
    if (!form->decodes && keys.find("prefill=") == keys.npos) other.prefill = Case{}.prefill;
  }
  // If the line names a kernel, the other case uses it too unless it changes the form.
  if (other.kernel.empty() && other.form == c.form) other.kernel = c.kernel;
  (void)Resolved(other);
  return other;
}

Study study_of(const Case& c, const KernelTable& table, const StudyOptions& options) {
  Study study;
  const Contract& contract = *Resolved(c).contract;
  std::mutex mutex;
  std::atomic<int> next = 0;
  bool judged = false;
  int failed = options.seeds;  ///< the first seed that fails
  std::exception_ptr thrown;
  const auto work = [&] {
    for (int i = next++; i < options.seeds && !(interrupted() && i > 0); i = next++) {
      try {
        OneSeed one = one_seed(c, table, options.against, i);
        const std::scoped_lock lock(mutex);
        const Judgement& j = one.of.record.judgement;
        judged = judged || j.verdict != Verdict::vacuous;
        if (is_failure(j.verdict) && i < failed) {
          failed = i;
          study.failure =
              fmt::format("seed {:#x}: {}", c.seed + static_cast<std::uint64_t>(i), judgement_line(j));
        }
        add_seed(study, contract, one);
        if (i == 0) study.first = std::move(one.of);
        ++study.seeds;
      } catch (...) {
        const std::scoped_lock lock(mutex);
        if (!thrown) thrown = std::current_exception();
        next = options.seeds;
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < std::min(options.threads, options.seeds); ++i) others.emplace_back(work);
    work();
  }
  if (thrown) std::rethrow_exception(thrown);
  for (Measured& m : study.outputs) {
    // An output without any error still gets the last bit of its format as tolerance.
    const double last_bit = m.of.largest * 0x1p-24;
    m.bound_atol = rounded_up(std::max(m.bound_atol, last_bit));
    m.bound_ratio = rounded_up(std::max(m.relative_limit, 0x1p-24));
    // A tight test must not allow more than a correct kernel may have. For an output that is rounded once, the largest
    // error is already near its bound, and kRoom times it would be beyond the bound.
    const auto at_most = [](double x, double bound) { return std::isfinite(bound) ? std::min(x, bound) : x; };
    m.atol = at_most(rounded_up(std::max(m.atol, last_bit)), m.bound_atol);
    m.rms_ratio = at_most(rounded_up(std::max(kRoom * m.relative, 0x1p-24)), m.bound_ratio);
  }
  if (!judged) study.vacuous = why_vacuous(study.outputs);
  return study;
}

}  // namespace samestate::cli
