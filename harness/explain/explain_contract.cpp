#include "harness/explain/explain_contract.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "harness/cases/regimes.h"
#include "harness/systems/saved_run.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Returns `from` with the changes that distinguish `to` from `base`; empty if none of them applies to it.
std::string with_changes(const std::string& from, const std::string& base, const std::string& to) {
  if (from == base) return to;
  Contract out = contract_named(from);
  const Contract a = contract_named(base), b = contract_named(to);
  bool some = false;
  for (const ContractPoint& point : contract_points()) {
    const std::string value = point.value(b);
    if (point.value(a) == value || point.value(out) == value) continue;
    some = changed(out, point.name, value) || some;
  }
  return some ? contract_of(out).name : "";
}

}  // namespace

void RoundingShape::add(const Matrix<double>& exact, const Matrix<double>& actual) {
  const double size = exact.norm() / std::sqrt(static_cast<double>(std::max<Eigen::Index>(exact.size(), 1)));
  if (!(size > 0.0) || !std::isfinite(size)) return;
  for (Eigen::Index i = 0; i < exact.size(); ++i) {
    const double e = (actual.data()[i] - exact.data()[i]) / size;
    if (!std::isfinite(e)) {
      finite_ = false;
      continue;
    }
    squares_ += e * e, fourths_ += e * e * e * e;
    count_ += 1.0, differing_ += e != 0.0 ? 1.0 : 0.0;
  }
}

bool RoundingShape::of_roundings() const {
  // Values with few bits are often right by chance, and errors of rows differ by a factor of ten.
  constexpr double kDiffering = 1.0 / 3.0, kSpread = 0.01, kFew = 64.0;
  if (!finite_ || count_ == 0.0 || squares_ == 0.0) return false;
  if (count_ < kFew) return true;  // too few values for a statistic
  return differing_ >= kDiffering * count_ && squares_ * squares_ >= kSpread * count_ * fourths_;
}

bool has_size_of_roundings(const Judgement& j) {
  return std::max({j.ratio, j.twin_ratio, j.sampled_ratio}) >= kLeastUsed;
}

ContractTrial try_contract(const std::string& from, const std::string& to, const std::vector<Case>& failing,
                           const KernelTable& table, double seconds) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  ContractTrial out;
  for (const Case& c : failing) {
    if (out.tried == kTrialCases) break;
    if (std::chrono::duration<double>(Clock::now() - begin).count() > seconds) return out;
    try {
      Case as = c;
      as.contract = with_changes(c.contract, from, to);
      if (as.contract.empty()) continue;
      Trace trace;
      const Record record = run_case(c, table, 1, &trace);
      if (record.judgement.verdict != Verdict::fail) continue;
      const Judgement j = c.law.empty() && !trace.outputs.empty() ? judge_run(Resolved(as), trace)
                                                                  : run_case(as, table).judgement;
      if (j.verdict != Verdict::pass && j.verdict != Verdict::fail) continue;
      ++out.tried;
      out.passes = out.passes && j.verdict == Verdict::pass && j.twin_ratio <= 1.0;
    } catch (const Error&) {  // not a case, or not a run that a file can hold
      continue;
    }
    if (!out.passes) return out;
  }
  out.complete = true;
  return out;
}

std::vector<Case> cases_near(const Case& failing) {
  std::vector<Case> out;
  const auto take = [&](Case c) {
    if (possible(c)) out.push_back(std::move(c));
  };
  for (std::uint64_t i = 1; i <= 6; ++i) {
    Case c = failing;
    c.seed += 3 * i;
    // Errors that grow with the sequence, unlike those of roundings, show with more tokens.
    if (i % 2 == 0 && c.lengths.empty()) c.T = 2 * c.T + 1;
    take(std::move(c));
  }
  const Resolved r(failing);
  for (const Regime* regime : r.system->regimes) {
    if (regime->name == failing.regime) continue;
    Case c = failing;
    c.regime = regime->name;
    take(std::move(c));
  }
  return out;
}

}  // namespace samestate
