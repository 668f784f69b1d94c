#include "cli/gate_verdict.h"

#include <fmt/format.h>

#include <ranges>

#include "cli/commands.h"
#include "reports/records/judged_share.h"
#include "reports/records/summary.h"

namespace samestate::cli {
namespace {

/// With a larger share of vacuous cases the gate says that it covered too little.
constexpr double kVacuousShare = 0.05;

/// The limit if at least kPairsJudged of the pairs that the plan must cover were judged: whether there are a few more
/// vacuous cases then depends on which cases were drawn. Above this limit the bounds are too often vacuous even so,
/// because the smallest cases alone may cover a pair.
constexpr double kVacuousShareOfPairs = 0.1;
constexpr double kPairsJudged = 0.99;

/// With fewer cases than this, a share says nothing: one case of 8 is already 12 %.
constexpr double kLeastForAShare = 20.0;

}  // namespace

int gate_verdict(const GateResult& result, std::vector<std::string>& remarks) {
  const Summary summary = summarise(result.records);
  const bool stopped = result.end.interrupted;
  if (summary.count(Verdict::crash) + summary.count(Verdict::timeout) > 0) return kCrash;
  if (summary.count(Verdict::fail) > 0) return kFail;
  if (summary.count(Verdict::flaky) > 0) return kFlaky;
  if (summary.judged == 0) {
    const bool some = summary.count(Verdict::vacuous) > 0 || result.left > 0 || stopped;
    return some ? kVacuous : kNothingRan;
  }
  if (summary.refused + result.end.left_out > 0) return kVacuous;
  const double vacuous = static_cast<double>(summary.count(Verdict::vacuous) - summary.zeros);
  const double all = vacuous + static_cast<double>(summary.judged);
  const bool pairs = result.pairs && static_cast<double>(result.pairs->met + result.pairs->dear) >=
                                         kPairsJudged * static_cast<double>(result.pairs->possible);
  const double most = pairs ? kVacuousShareOfPairs : kVacuousShare;
  if (all >= kLeastForAShare && vacuous > most * all) {
    remarks.push_back(fmt::format(
        "{:.0f} of {:.0f} cases that expect more than zeros were vacuous, more than {:.0f} %, so too "
        "little was covered; try another --contract or --regime, or more cases (--effort, --max-cases)",
        vacuous, all, 100 * most));
    return kVacuous;
  }
  constexpr std::size_t kShown = 3;
  const std::vector<std::string> few =
      too_little(judged_shares(result.records, result.end.not_started), result.least_judged);
  for (const std::string& sentence : few | std::views::take(kShown)) remarks.push_back(sentence);
  if (few.size() > kShown) {
    remarks.push_back(fmt::format("the same holds for {} more kernels{}", few.size() - kShown,
                                  result.left > 0 ? ", since the run ended before their cases began" : ""));
  }
  return stopped || !few.empty() ? kVacuous : kPass;
}

}  // namespace samestate::cli
