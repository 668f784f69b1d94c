#include "harness/card/operator_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "harness/card/card_cases.h"
#include "harness/cases/keys.h"
#include "harness/run/run_case.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"
#include "oracles/judge_policy.h"
#include "oracles/limits.h"
#include "oracles/named_points.h"
#include "oracles/systems/operator_twin.h"
#include "oracles/systems/system_points.h"
#include "oracles/systems/twin_shares.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// One probe with everything that a twin is evaluated from and compared with.
struct Shown {
  Case c;
  Call call;
  std::vector<Index> cuts;
  Tensors<double> inputs, outputs;
  OperatorOracle oracle;  ///< under the contract that the kernel was called with
  Trace trace;
  std::string refused, nonfinite;  ///< why it has no outputs, or where the first lies that is not finite

  [[nodiscard]] bool has_outputs() const { return refused.empty() && nonfinite.empty(); }
};

/// By probe and output, the distance from a twin as a share of the error: the root of share_of().
using Shares = std::vector<std::map<std::string, double, std::less<>>>;

/// The points of a kernel, as the difference from those of its contract.
using Switched = std::vector<Point>;

class OperatorCard {
 public:
  OperatorCard(const Operator& op, const Contract& start, const std::vector<Shown>& probes,
               const CardOptions& options)
      : op_(op), start_(start), probes_(probes), options_(options) {
    for (const Point& point : points_of(op)) {
      if (format_at(start, point.row().use) != Format::none) points_.push_back(point);
    }
  }

  /// Switches one point after another as long as that explains more.
  void run() {
    nearest_ = shares_of(found_);
    for (Switched& start : starts()) {
      if (stopped()) return;
      Shares shares = shares_of(start);
      if (left_of(shares) < left_of(nearest_) - kCardGain)
        found_ = std::move(start), nearest_ = std::move(shares);
    }
    while (!stopped()) {
      std::optional<Point> best;
      Shares with;
      double most = kCardGain;
      for (const Point& point : points_) {
        if (stopped()) return;
        Shares shares = shares_of(toggled(point));
        const double gain = left_of(nearest_) - left_of(shares);
        if (gain > most) most = gain, best = point, with = std::move(shares);
      }
      if (!best) return;
      found_ = toggled(*best);
      nearest_ = std::move(with);
    }
  }

  void report(CardRow& row) {
    row.contract = with(found_);
    row.explained = true;
    for (std::size_t i = 0; i < probes_.size(); ++i) {
      CardProbe& of =
          row.probes.emplace_back(name_of_probe(i), format_case(probes_[i].c), probes_[i].refused);
      for (const auto& [output, share] : nearest_[i]) of.left = std::max(of.left, share);
      of.distance = of.left, of.error = 1.0;
      of.nonfinite = probes_[i].nonfinite;
      of.explained = of.nonfinite.empty() && of.left * of.left <= kOperatorTwinShare;
      row.explained = row.explained && of.explained;
      if (of.left > row.farthest) row.farthest = of.left, row.worst = of.name;
    }
    for (const Point& point : points_) {
      if (stopped()) break;
      row.points.push_back(evidence(point));
    }
    row.twins = twins_;
    if (stopped()) row.stopped = "interrupted";
  }

 private:
  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }

  /// The regime, and what else the probe has.
  [[nodiscard]] std::string name_of_probe(std::size_t i) const {
    const Case& c = probes_[i].c;
    return fmt::format("{}{}{}", c.regime, c.l2norm ? ", norm" : "", c.scale ? ", scale" : "");
  }

  /// Many points that a kernel lacks hide each other: leaving one out shows nothing while the others are there. So the
  /// search may begin without any, or without those of one table (a stage in fp32).
  [[nodiscard]] std::vector<Switched> starts() const {
    std::vector<Switched> out(1);
    std::map<const PointTable*, Switched> tables;
    for (const Point& point : points_) {
      if (point.row().only_if_named) continue;
      out.front().push_back(point);
      tables[&point.table()].push_back(point);
    }
    for (auto& [table, points] : tables) out.push_back(std::move(points));
    return out;
  }

  [[nodiscard]] Switched toggled(Point point) const {
    Switched out = found_;
    if (std::erase(out, point) == 0) out.push_back(point);
    std::sort(out.begin(), out.end());
    return out;
  }

  [[nodiscard]] std::string with(const Switched& switched) const {
    std::string text = start_.name;
    for (const Point& point : switched)
      text += fmt::format("+{}:{}", point.name(), switched_value(start_, point));
    return contract_named(text).name;
  }

  [[nodiscard]] Shares shares_of(const Switched& switched) {
    // Points that the contract has are left out of its twin; the few that only a contract's text adds are in that text.
    TwinVariant variant;
    Switched added;
    for (const Point& point : switched)
      point.row().only_if_named ? added.push_back(point) : variant.skipped.add(point);
    variant.skipped.sort();
    const Contract& contract = contract_named(with(added));
    Shares out(probes_.size());
    for (std::size_t i = 0; i < probes_.size(); ++i) {
      const Shown& probe = probes_[i];
      if (!probe.has_outputs()) continue;
      const TwinSubject of{op_, probe.call, probe.inputs, probe.cuts, contract, probe.oracle};
      ++twins_;
      for (const auto& [output, value] : twin_values(of, variant)) {
        if (value.size() == 0) continue;
        const Share share = share_of(of, output, get(probe.outputs, output), value);
        out[i][output] = share.rows > 0 ? std::sqrt(share.mean) : 0.0;  // nothing is rounded
      }
    }
    return out;
  }

  /// The sum of decimal logarithms of all shares.
  [[nodiscard]] static double left_of(const Shares& shares) {
    double sum = 0.0;
    for (const auto& outputs : shares) {
      for (const auto& [output, share] : outputs) sum += std::log10(std::max(share, kNothingLeft));
    }
    return sum;
  }

  [[nodiscard]] CardPoint evidence(Point point) {
    CardPoint out;
    out.name = point.name();
    out.means = point.row().means;
    const bool there = std::ranges::find(found_, point) != found_.end();
    const std::string rounded(name_of(format_at(start_, point.row().use)));
    out.value = there == point.row().only_if_named ? rounded : "fp32";
    CardValue other{out.value == "fp32" ? rounded : "fp32", 0.0, ""};
    const Shares shares = shares_of(toggled(point));
    bool same = true;
    for (std::size_t i = 0; i < shares.size(); ++i) {
      for (const auto& [output, share] : shares[i]) {
        const double now = nearest_[i].at(output);
        const double factor = std::max(share, kNothingLeft) / std::max(now, kNothingLeft);
        if (factor > other.factor) other.factor = factor, other.probe = name_of_probe(i) + ", " + output;
        same = same && share == now;
      }
    }
    if (other.factor < kCardAlike) {
      out.why =
          same ? "the same bits on every probe: it finds nothing to round, or another point rounds the same"
               : "it moves the distance by less than other roundings do";
      out.like.push_back(std::move(other));
    } else {
      out.without = other.factor, out.probe = other.probe;
      out.likely = other.factor < kCardToldApart;
      out.told = !out.likely;
    }
    return out;
  }

  /// Shares below this are of sums in another order and say nothing more.
  static constexpr double kNothingLeft = 1e-3;

  const Operator& op_;
  const Contract& start_;
  const std::vector<Shown>& probes_;
  const CardOptions& options_;
  std::vector<Point> points_;
  Switched found_;
  Shares nearest_;
  std::int64_t twins_ = 0;
};

/// The outputs of a run fill these tensors one after another.
void fill(std::vector<CaseTensor>& tensors, const std::vector<float>& values) {
  auto from = values.begin();
  for (CaseTensor& tensor : tensors) {
    if (values.end() - from < std::ssize(tensor.data)) throw Error("a probe has too few outputs");
    std::copy_n(from, tensor.data.size(), tensor.data.begin());
    from += std::ssize(tensor.data);
  }
}

Shown shown_by_probe(const TensorSystem& system, const KernelRow& kernel, const Case& c,
                     const ProbeRun& run) {
  Shown out;
  out.c = c, out.refused = run.refused;
  if (!out.refused.empty()) return out;
  const Resolved r(c);
  const TensorCalls calls = system.calls(r, kernel.form);
  out.call = calls.whole, out.cuts = calls.cuts;
  out.trace = unwritten_run(r, kernel.form);
  fill(out.trace.outputs, run.outputs.o);
  const Trace seen = is_end_to_end(r) ? end_to_end(r, out.trace) : out.trace;
  out.inputs = sequence_of(seen.inputs, 0);
  out.outputs = by_sequence(seen.outputs).front();
  out.oracle = operator_oracle(system.row, out.call, out.inputs, out.cuts, *r.contract);
  for (const auto& [name, x] : out.outputs) {
    if (out.nonfinite.empty() && !x.allFinite())
      out.nonfinite = fmt::format("{} is not finite; look at what is read before it is written", name);
  }
  return out;
}

}  // namespace

std::vector<Case> operator_probes(const KernelRow& kernel, const std::string& contract) {
  const System& system = *kernel.system;
  std::vector<Case> out;
  for (const std::string_view regime : {"normal", "slow", "collinear", "small", "large"}) {
    if (system.regime(regime) == nullptr) continue;
    for (const bool more : {false, true}) {
      Case c = system.standard();
      c.form = kernel.form;
      c.contract = contract;
      c.kernel = kernel.name;
      c.regime = regime;
      c.T = 70;
      if (system.has_key("chunk")) c.chunk = 32;  // two chunks and a shorter one
      // A search evaluates thousands of twins.
      for (const std::string_view width : {"dk", "dv"}) {
        if (system.has_key(width)) size_in(c, width) = 16;
      }
      c.seed = out.size() + 1;
      if (system.has_key("state")) c.state = "random";
      if (more && system.has_key("l2norm") && system.regime(regime)->exact == false) c.l2norm = true;
      if (more && system.has_key("Hv")) c.Hv = 2 * c.Hk;
      // Where the scale is rounded shows only if it is no power of two.
      if (more && system.has_key("scale")) c.scale = 0.3F;
      c = kernel.limits.nearest(std::move(c));
      const bool again = std::ranges::any_of(out, [&](Case other) {
        other.seed = c.seed;
        return format_case(other) == format_case(c);
      });
      if (!again) out.push_back(std::move(c));
    }
  }
  return out;
}

ProbeRun run_operator_probe(const KernelTable& table, const KernelRow& kernel, const Case& probe) {
  const Resolved r(probe);
  ProbeRun run;
  try {
    for (const CaseTensor& output :
         kernel.system->outputs(r, kernel.system->inputs(r), table.choose(r), run_options(r)))
      run.outputs.o.insert(run.outputs.o.end(), output.data.begin(), output.data.end());
  } catch (const Unavailable& unavailable) {
    return {{}, unavailable.what(), unavailable.kind == Outcome::Kind::no_device};
  }
  return run;
}

CardRow operator_card(const KernelRow& kernel, const std::vector<Case>& cases,
                      const std::vector<ProbeRun>& runs, const CardOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  CardRow row;
  row.kernel = kernel.name;
  row.system = kernel.system->name;
  row.form = kernel.form;
  row.declared = declared_contract(kernel, options);
  const Operator& op = *find_operator(row.system);
  const TensorSystem system(op);
  std::vector<Shown> probes;
  for (std::size_t i = 0; i < cases.size(); ++i)
    probes.push_back(shown_by_probe(system, kernel, cases[i], runs[i]));
  require_outputs(kernel, runs);
  Contract start = contract_named(row.declared);
  start.nearest = false;
  OperatorCard card(op, contract_of(start), probes, options);
  if (options.progress) options.progress("of all probes");
  card.run();
  card.report(row);
  row.cases_planned = std::ranges::count_if(probes, &Shown::has_outputs);
  for (const Shown& probe : probes) {
    if (!probe.has_outputs() || (options.stop && options.stop())) continue;
    Case c = probe.c;
    c.contract = row.contract;
    const Judgement j = system.judge(Resolved(c), probe.trace, kGatePolicy, nullptr);
    row.cases.push_back({format_case(c), std::string(name_of(j.verdict)), j.twin_ratio, j.ratio, j.gate});
  }
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return row;
}

}  // namespace samestate
