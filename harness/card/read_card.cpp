#include "harness/card/read_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "harness/card/card_cases.h"
#include "harness/card/card_distance.h"
#include "harness/card/card_evidence.h"
#include "harness/card/card_search.h"
#include "harness/run/family_run.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/rounding.h"
#include "oracles/systems/family.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// One reading of the outputs: against the probes as they were given, or against probes rounded beforehand.
class Try {
 public:
  Try(const KernelRow& kernel, std::vector<Probe> probes, std::vector<Outputs> outputs,
      const CardOptions& options)
      : probes_(std::make_unique<std::vector<Probe>>(std::move(probes))),
        distance_(
            std::make_unique<CardDistance>(std::string(kernel.system->name), *probes_, std::move(outputs))),
        search_(std::make_unique<CardSearch>(kernel, *distance_, options)) {}

  void look(const Contract& start) {
    found_ = search_->run(start);
    fits_ = fits_of(found_);
  }

  /// Where the outputs do not distinguish values, prefers the declared ones.
  void prefer(const Contract& declared) {
    if (stopped()) return;
    const Contract other = search_->as_declared(found_, declared);
    if (same_points(other, found_)) return;
    std::vector<CardProbe> fits = fits_of(other);
    for (std::size_t i = 0; i < fits.size(); ++i) {
      if (stopped() || (fits_[i].explained && !fits[i].explained)) return;
    }
    found_ = other;
    fits_ = std::move(fits);
  }

  /// Returns the largest share of the error that the contract leaves on any probe.
  [[nodiscard]] double left_under(const Contract& contract) {
    return std::ranges::max(fits_of(contract), {}, &CardProbe::left).left;
  }
  [[nodiscard]] double left() const { return std::ranges::max(fits_, {}, &CardProbe::left).left; }

  /// Returns the nearest of `like` and of the named contracts, with its input format.
  [[nodiscard]] Contract near(const Contract& start, const Contract& like) {
    const Contract named = search_->begin(start);
    return left_under(named) < left_under(like) ? named : like;
  }

  /// Returns true if it leaves much less than the other; if both explain the outputs equally well, true if it
  /// has fewer words.
  [[nodiscard]] bool explains_more(const Try& other) const {
    constexpr double kFarLess = 3.0;
    const bool both = explained() && other.explained();
    if (both && left() < kFarLess * other.left() && other.left() < kFarLess * left()) {
      const auto changes = [](const Try& of) { return std::ranges::count(contract_of(of.found_).name, '+'); };
      return changes(*this) < changes(other);
    }
    return explained() && left() < other.left();
  }

  void report(CardRow& row, const std::vector<ProbeRun>& runs) {
    row.contract = contract_of(found_).name;
    for (const ContractPoint* point : search_->points()) {
      if (stopped()) break;
      CardPoint of = evidence_of(*point, found_, *distance_);
      if (point->name == "output" || point->name == "state") {
        of.told = true;
        of.like.clear();
        of.why = "read from the values themselves";
      }
      row.points.push_back(std::move(of));
    }
    row.probes = fits_;
    for (std::size_t i = 0; i < runs.size(); ++i) row.probes[i].refused = runs[i].refused;
    const CardProbe& worst = *std::ranges::max_element(fits_, {}, &CardProbe::left);
    row.farthest = worst.left;
    row.worst = worst.left > 0.0 ? worst.name : "";
  }

  [[nodiscard]] bool explained() const { return std::ranges::all_of(fits_, &CardProbe::explained); }
  [[nodiscard]] bool explained_after_search() const { return !fits_.empty() && explained(); }
  [[nodiscard]] bool stopped() const { return search_->stopped(); }
  [[nodiscard]] const Contract& found() const { return found_; }
  [[nodiscard]] const std::vector<const ContractPoint*>& points() const { return search_->points(); }
  [[nodiscard]] std::int64_t twins() const { return distance_->twins(); }

 private:
  [[nodiscard]] std::vector<CardProbe> fits_of(const Contract& contract) {
    std::vector<CardProbe> out;
    for (std::size_t i = 0; i < probes_->size(); ++i) {
      const Probe& probe = (*probes_)[i];
      CardProbe& of = out.emplace_back(probe.name, format_case(probe.c));
      if (!distance_->ran(i)) continue;
      const OutputDistance d = distance_->of(i, contract);
      const OutputDistance e = distance_->error(i, contract);
      // Where no point rounds, the order of sums is the only difference.
      const auto share = [&](std::size_t t) { return d[t] / std::max(e[t], kCardOrderOfSums); };
      const std::size_t worse = share(0) >= share(1) ? 0 : 1;
      of.distance = d[worse];
      of.error = std::max(e[worse], kCardOrderOfSums);
      of.left = share(worse);
      const auto order = [&](std::size_t t) {
        return d[t] <= kAboutDrift * distance_->level(i, contract)[t];
      };
      of.explained = of.left <= kCardExplained || (!stopped() && order(0) && order(1));
    }
    return out;
  }

  // Held by pointer, since each object refers to the one before it.
  std::unique_ptr<std::vector<Probe>> probes_;
  std::unique_ptr<CardDistance> distance_;
  std::unique_ptr<CardSearch> search_;
  Contract found_;
  std::vector<CardProbe> fits_;
};

/// The tensors that a kernel may round when it loads them.
struct Loaded {
  std::string_view name;
  bool q, k, v;
};
constexpr Loaded kAll{"q, k and v", true, true, true};
constexpr Loaded kSome[] = {{"v alone", false, false, true},
                            {"q and k", true, true, false},
                            {"k alone", false, true, false},
                            {"q alone", true, false, false}};

std::vector<Probe> rounded(std::vector<Probe> probes, Format format, const Loaded& which = kAll) {
  for (Probe& probe : probes) {
    for (const auto& [x, taken] : {std::pair{&probe.batch.q, which.q}, std::pair{&probe.batch.k, which.k},
                                   std::pair{&probe.batch.v, which.v}}) {
      if (!taken) continue;
      for (float& value : *x) value = round_to(value, format);
    }
  }
  return probes;
}

/// Returns the readings to try: against the probes that the kernel was given, and against probes rounded when
/// they were loaded. The second is used alone if a contract explains it immediately; otherwise it is added if
/// no contract explains the first, or if q and k are rounded.
std::vector<Try> tries_of(const KernelRow& kernel, const std::vector<Probe>& probes,
                          const std::vector<Outputs>& outputs, const CardOptions& options,
                          const Contract& start) {
  std::vector<Try> tries;
  const auto loads = [&](const Contract& like, double left) {
    for (const Format format : {Format::fp16, Format::bf16}) {
      Contract rounds = start, also = like;
      if (start.input == format || !holds(start.input, format)) continue;
      if (!changed(rounds, "input", name_of(format)) || !changed(also, "input", name_of(format))) continue;
      Try of(kernel, rounded(probes, format), outputs, options);
      const Contract near = of.near(rounds, also);
      if (of.stopped() || of.left_under(near) > left) continue;
      of.look(near);
      tries.push_back(std::move(of));
    }
  };
  Try given(kernel, probes, outputs, options);
  if (given.left_under(given.near(start, start)) > kCardExplained) loads(start, kCardExplained);
  if (!tries.empty()) return tries;
  given.look(start);
  const Contract found = given.found();
  const double left = given.left();
  const bool enough = given.stopped() || (given.explained() && holds(found.qk, found.input));
  tries.push_back(std::move(given));
  if (!enough) loads(found, std::max(0.5 * left, kCardExplained));
  return tries;
}

/// If no contract explains the outputs, notes whether one does when only some of the tensors were rounded
/// beforehand.
void note_loaded_alone(CardRow& row, const KernelRow& kernel, const std::vector<Probe>& probes,
                       const std::vector<Outputs>& outputs, const CardOptions& options, const Contract& start,
                       const Contract& found) {
  for (const Format format : {Format::bf16, Format::fp16}) {
    if (start.input == format || !holds(start.input, format)) continue;
    for (const Loaded& which : kSome) {
      Try of(kernel, rounded(probes, format, which), outputs, options);
      // The author's declaration of the remaining points is mostly right, and trying all named contracts
      // would take as long as reading a card.
      const double declared = of.left_under(start), now = of.left_under(found);
      const Contract& near = declared < now ? start : found;
      const bool at_once = std::min(declared, now) <= kCardExplained;
      if (!at_once && std::min(declared, now) < 0.5 * row.farthest) of.look(near);
      row.twins += of.twins();
      if (of.stopped()) return;
      if (!at_once && !of.explained_after_search()) continue;
      row.loads_alone = which.name;
      row.loads_alone_format = name_of(format);
      return;
    }
  }
}

/// Says where the first value lies that is not finite and where such values come from on this probe; empty if
/// there is none.
std::string nonfinite_in(const Outputs& out, const Probe& probe) {
  const BatchShape& s = probe.batch.shape;
  const auto first = [](const std::vector<float>& x) {
    return std::distance(x.begin(), std::ranges::find_if(x, [](float v) { return !std::isfinite(v); }));
  };
  std::string place;
  if (const auto i = first(out.o); i < std::ssize(out.o)) {
    const auto rows = i / s.dv, tokens = rows / s.Hv;
    place = fmt::format("o of sequence {}, token {}, head {}, channel {} is {}", tokens / s.T, tokens % s.T,
                        rows % s.Hv, i % s.dv, out.o[static_cast<std::size_t>(i)]);
  } else if (const auto j = first(out.final_state); j < std::ssize(out.final_state)) {
    const auto rows = j / s.dv, heads = rows / s.dk;
    place = fmt::format("final_state of sequence {}, head {}, row {}, channel {} is {}", heads / s.Hv,
                        heads % s.Hv, rows % s.dk, j % s.dv, out.final_state[static_cast<std::size_t>(j)]);
  }
  if (place.empty()) return "";
  const bool decays = std::ranges::any_of(probe.batch.g, [](float g) { return g != 0.0F; });
  return fmt::format("{}; {}", place,
                     probe.c.l2norm ? "look at the norm's root and at what is read before it is written"
                     : decays
                         ? "look at exponentials of G_i - G_j above the diagonal, which are to be masked "
                           "before they overflow, and at what is read before it is written"
                         : "look at what is read before it is written, and at formats that overflow");
}

/// Returns the operands of q and k for which the grammar fixes whether they are rounded once or twice, if
/// that makes a difference.
std::vector<std::string> rounded_twice(const Contract& c, const std::vector<const ContractPoint*>& points) {
  std::vector<std::string> out;
  const bool normalised = c.norm == Norm::unrounded && c.qk != Format::fp32;  // x r has more bits than x
  if (holds(c.qk, c.input) && !normalised) return out;
  for (const char* name : {"beta_exp_k", "q_decayed", "k_decayed"}) {
    const ContractPoint& point = contract_point(name);
    const std::string value = point.value(c);
    const bool here = std::ranges::find(points, &point) != points.end();
    if (here && value != "none" && value != "fp32") out.emplace_back(name);
  }
  return out;
}

}  // namespace

void require_outputs(const KernelRow& kernel, const std::vector<ProbeRun>& runs) {
  if (std::ranges::any_of(runs, [](const ProbeRun& run) { return !run.outputs.o.empty(); })) return;
  const auto said = std::ranges::find_if(runs, [](const ProbeRun& run) { return !run.refused.empty(); });
  throw Error(fmt::format("kernel {}: none of the {} probes has outputs, so nothing is known about it{}",
                          kernel.name, runs.size(), said == runs.end() ? "" : ": " + said->refused));
}

std::string declared_contract(const KernelRow& kernel, const CardOptions& options) {
  if (options.contract.empty()) return kernel.contracts.front();
  const std::string& name = contract_named(options.contract).name;
  if (kernel.any_contract ||
      std::find(kernel.contracts.begin(), kernel.contracts.end(), name) != kernel.contracts.end())
    return name;
  throw Error(
      fmt::format("contract={}: {} promises only {}", name, kernel.name, fmt::join(kernel.contracts, ", ")));
}

CardRow card_of(const KernelRow& kernel, const std::vector<Probe>& probes, const std::vector<ProbeRun>& runs,
                const CardOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  CardRow row;
  row.kernel = kernel.name;
  row.system = kernel.system->name;
  row.form = kernel.form;
  row.declared = declared_contract(kernel, options);
  std::vector<Outputs> outputs;
  std::vector<std::string> nonfinite;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    outputs.push_back(runs[i].outputs);
    nonfinite.push_back(nonfinite_in(runs[i].outputs, probes[i]));
    // No twin can be near or far from a value that is not a number.
    if (!nonfinite.back().empty()) outputs.back() = {};
  }
  const auto ran = [](const Outputs& x) { return !x.o.empty(); };
  if (std::ranges::none_of(outputs, ran)) {
    row.twins = 0;
    for (std::size_t i = 0; i < probes.size(); ++i) {
      CardProbe& of = row.probes.emplace_back(probes[i].name, format_case(probes[i].c), runs[i].refused);
      of.nonfinite = nonfinite[i];
      of.explained = nonfinite[i].empty();
    }
    if (std::ranges::any_of(nonfinite, [](const std::string& x) { return !x.empty(); })) return row;
    require_outputs(kernel, runs);
  }
  Contract start = contract_named(row.declared);
  start.nearest = false;
  std::vector<Try> tries = tries_of(kernel, probes, outputs, options, start);
  Try& of = *std::ranges::min_element(tries, [](const Try& a, const Try& b) { return a.explains_more(b); });
  of.prefer(start);
  of.report(row, runs);
  if (of.found().input != start.input) row.loads = name_of(of.found().input);
  row.explained = of.explained();
  row.twins = 0;
  if (!row.explained && !of.stopped()) {
    row.twice = rounded_twice(of.found(), of.points());
    note_loaded_alone(row, kernel, probes, outputs, options, start, of.found());
  }
  for (std::size_t i = 0; i < nonfinite.size(); ++i) {
    if (nonfinite[i].empty()) continue;
    row.probes[i].nonfinite = nonfinite[i];
    row.explained = row.probes[i].explained = false;
  }
  if (of.stopped()) row.stopped = "interrupted";
  for (const Try& each : tries) row.twins += each.twins();
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return row;
}

ProbeRun run_probe(const KernelTable& table, const Probe& probe) {
  const Resolved r(probe.c);
  RunOptions inside;
  inside.of = &r.c;
  try {
    return {run_kernel(table.choose(r), probe.batch, r.path(probe.batch.shape.T), r.promised, inside), ""};
  } catch (const Unavailable& unavailable) {
    return {{}, unavailable.what(), unavailable.kind == Outcome::Kind::no_device};
  }
}

CardRow read_card(const KernelTable& table, const KernelRow& kernel, const CardOptions& options) {
  const std::string declared = declared_contract(kernel, options);
  const std::vector<Probe> probes = probes_of(kernel, declared);
  std::vector<ProbeRun> runs;
  for (const Probe& probe : probes) runs.push_back(run_probe(table, probe));
  CardRow row = card_of(kernel, probes, runs, options);
  if (row.contract.empty()) return row;
  row.cases_planned = std::ssize(card_regimes(kernel));
  for (const std::string_view regime : card_regimes(kernel))
    row.cases.push_back(judged_under(table, kernel, declared, row.contract, regime));
  return row;
}

}  // namespace samestate
