#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/record.h"

/// Counts, order and selection over records, as shown by the Markdown, terminal and JUnit reports. Every
/// value comes from a record; a percentile is an element (nearest rank), never an interpolation.
namespace samestate {

inline constexpr std::size_t kVerdictCount = kVerdicts.size();

/// A strict weak order of ratios with NaN on top: a ratio that is not a number is the worst one.
[[nodiscard]] bool less_or_unknown(double a, double b);

/// Elements of a sorted list; NaN ranks above infinity. All NaN if the list is empty.
struct Spread {
  double p50;
  double p90;
  double max;
};
[[nodiscard]] Spread spread_of(std::vector<double> values);

/// The cases of one system, form and contract.
struct Group {
  std::string system;
  std::string form;
  std::string contract;
  std::int64_t cases = 0;
  std::int64_t judged = 0;
  std::int64_t failures = 0;
  double worst_ratio = 0.0;   ///< over the judged cases; NaN if there are none
  double median_ratio = 0.0;  ///< the median of Judgement::median_ratio over the judged cases
};

/// The ratios of the judged cases of one regime.
struct RegimeSpread {
  std::string regime;
  std::int64_t judged = 0;
  Spread ratio;
};

/// The ratios of one stage of a layer, over the cases in which it was judged.
struct StageSpread {
  std::string system;
  std::string stage;
  std::int64_t judged = 0;
  std::int64_t failures = 0;
  Spread ratio;
};

/// Cases that were not judged, and why.
struct NotJudged {
  Verdict verdict;
  std::string reason;
  std::int64_t cases = 0;
};

/// Judged and failures are defined as in oracles/verdict.h. The indices point into the records that were
/// passed to `summarise`.
struct Summary {
  std::array<std::int64_t, kVerdictCount> counts{};  ///< indexed by Verdict
  std::int64_t zeros = 0;                            ///< vacuous cases in which only zeros were expected
  std::int64_t refused = 0;  ///< unsupported cases outside limits that are not declared
  std::int64_t cases = 0;
  std::int64_t judged = 0;
  double seconds = 0.0;
  /// Crashes first, then timeout, fail and flaky, and within each the worst ratio first.
  std::vector<std::size_t> failures;
  std::vector<Group> groups;          ///< the worst ratio first
  std::vector<RegimeSpread> regimes;  ///< the worst ratio first
  std::vector<StageSpread> stages;    ///< by system, the worst ratio first
  std::vector<NotJudged> not_judged;  ///< vacuous, unsupported and skipped; the most cases first

  [[nodiscard]] std::int64_t count(Verdict verdict) const {
    return counts[static_cast<std::size_t>(verdict)];
  }
};

[[nodiscard]] Summary summarise(std::span<const Record> records);

/// "fail 2, pass 31, vacuous 1": the verdicts that occur, the worst kind first; "no case" if there are none.
[[nodiscard]] std::string counts_line(const Summary& summary);

/// "1 case", "2 cases".
[[nodiscard]] std::string counted(std::int64_t count, std::string_view noun);

/// The command that repeats a record, quoted for a POSIX shell, with the options that its line needs.
[[nodiscard]] std::string repro_command(const Record& record);

/// The command that times the case again, as one would type it into a shell.
[[nodiscard]] std::string bench_command(const Record& record);

/// "sequence 0, head 2, token 17, channel 3"; for a state "sequence 0, head 2, row 3, column 4 of the state";
/// for an output of named tensors "sequence 0, row 3, column 4". Dimensions that do not apply are left out.
/// It is the element that the gate refers to: the largest error of the row, head or state.
[[nodiscard]] std::string place_of(const Judgement& judgement);

/// Returns what `error` measures under that gate: "2-norm of the row's error"; empty if there is no error.
[[nodiscard]] std::string_view measure_of(std::string_view gate);

/// One line: verdict, gate, ratio, error and what it measures, bound, the worst place with both values,
/// reason.
[[nodiscard]] std::string judgement_line(const Judgement& judgement);

}  // namespace samestate
