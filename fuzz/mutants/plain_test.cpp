#include "fuzz/mutants/plain_test.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace samestate {
namespace {

constexpr std::size_t kExamples = 4;

bool meant_for_plain_test(const Mutant& m, const Case& c) {
  return m.system == c.system && !m.hostile && m.equivalent.empty();
}

bool equal(const std::vector<OutputBlock>& a, const std::vector<OutputBlock>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].values.rows() != b[i].values.rows() || a[i].values.cols() != b[i].values.cols()) return false;
    if (!(a[i].values.array() == b[i].values.array()).all()) return false;
  }
  return true;
}

/// Returns what a kernel computes from the case's inputs; empty if it does not take the case.
std::vector<OutputBlock> blocks_by(const KernelTable& table, const std::string& kernel,
                                   const TolerancesOfCase& of, Resolved& used) {
  used.c.kernel = kernel;
  return blocks_of(used, used.system->outputs(used, of.inputs, table.choose(used), {used.layout, 1}),
                   of.expected);
}

/// The outputs of the kernels that mutants were made from: many are made from one kernel, which runs once.
class RightKernels {
 public:
  RightKernels(const Case& c, const TolerancesOfCase& of) : case_(c), of_(of) {}

  const std::vector<OutputBlock>& of(const Mutant& m) {
    const std::string name = (m.rows.empty() ? "cpu." : "evaluator.") + m.system + "." + m.form;
    const auto known = blocks_.find(name);
    if (known != blocks_.end()) return known->second;
    const KernelTable table = m.rows.empty() ? KernelTable(call_kernels()) : KernelTable(unmutated_kernels());
    Resolved used(case_);
    return blocks_.emplace(name, blocks_by(table, name, of_, used)).first->second;
  }

 private:
  const Case& case_;
  const TolerancesOfCase& of_;
  std::map<std::string, std::vector<OutputBlock>> blocks_;
};

/// Returns true if a single element is further off than its whole row may be: then the judge, which would
/// compute oracle and bound of the case again, is not needed.
bool beyond(const std::vector<OutputBlock>& actual, const TolerancesOfCase& of) {
  for (std::size_t b = 0; b < actual.size(); ++b) {
    const Matrix<double>& a = actual[b].values;
    const Matrix<double>& e = of.expected[b].values;
    for (Index k = 0; k < a.size(); ++k) {
      const double limit = of.limits[b].data()[k];
      if (!std::isnan(limit) && !(std::abs(a.data()[k] - e.data()[k]) <= limit)) return true;
    }
  }
  return false;
}

}  // namespace

PlainVerdict try_plain(const std::vector<OutputBlock>& actual, const std::vector<OutputBlock>& expected,
                       const PlainRules& rules) {
  PlainVerdict out;
  std::map<std::string, std::pair<double, double>> squares;  // the error and the size
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto rule = rules.find(expected[i].output);
    if (rule == rules.end()) continue;
    const auto& [rtol, atol, ratio] = rule->second;
    const Matrix<double>& e = expected[i].values;
    const Matrix<double>& a = actual[i].values;
    auto& [error, size] = squares[expected[i].output];
    for (Index k = 0; k < e.size(); ++k) {
      const double d = std::abs(a.data()[k] - e.data()[k]);
      if (!(d <= atol + rtol * std::abs(e.data()[k]))) out.close = false;
      error += d * d;
      size += e.data()[k] * e.data()[k];
    }
  }
  for (const auto& [output, sums] : squares) {
    if (!(std::sqrt(sums.first) <= rules.at(output).rms_ratio * std::sqrt(sums.second))) out.by_rms = false;
  }
  return out;
}

BlindSpot blind_spot(const Case& c, const TolerancesOfCase& of, const PlainRules& rules, double seconds) {
  BlindSpot out;
  RightKernels right(c, of);
  const auto began = std::chrono::steady_clock::now();
  for (const Mutant& m : all_mutants()) {
    if (!meant_for_plain_test(m, c)) continue;
    ++out.all;
    const std::chrono::duration<double> since = std::chrono::steady_clock::now() - began;
    if (since.count() > seconds) {
      ++out.unreached;
      continue;
    }
    try {
      Case mine = c;
      mine.kernel = m.kernel();
      Resolved used(mine);
      const KernelTable table = m.table();
      const KernelChoice chosen = table.choose(used);
      if (std::find(chosen.named->contracts.begin(), chosen.named->contracts.end(), c.contract) ==
          chosen.named->contracts.end()) {
        continue;
      }
      const std::vector<OutputBlock> wrong = blocks_by(table, m.kernel(), of, used);
      if (equal(wrong, right.of(m))) {
        ++out.tried;
        ++out.same;
        continue;
      }
      const PlainVerdict plain = try_plain(wrong, of.expected, rules);
      const bool judged = beyond(wrong, of) || run_resolved(used, chosen).judgement.verdict == Verdict::fail;
      ++out.tried;
      out.close += plain.close;
      out.by_rms += plain.by_rms;
      out.judge += !judged;
      if (plain.close && judged && out.examples.size() < kExamples)
        out.examples.push_back(m.name + ": " + m.summary);
    } catch (const std::exception&) {  // a mutant of another form, or one that does not take the case
    }
  }
  return out;
}

}  // namespace samestate
