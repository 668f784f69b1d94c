#include "harness/card/read_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "harness/card/card_cases.h"
#include "harness/card/card_distance.h"
#include "harness/card/card_evidence.h"
#include "harness/run/family_run.h"
#include "harness/run/plugin.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/rounding.h"
#include "oracles/systems/family.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// One point at a value.
struct Change {
  const ContractPoint* point;
  std::string_view value;
};

/// Of a distance, with what the order of sums alone does taken as one: a kernel with an order of its own lies somewhere
/// about the drift, and to come nearer explains nothing. One with the twin's own order is the twin bit for bit, which is
/// seen where other orders turn many roundings: of few, none may be turned by chance.
double logarithm(const Distance& d, const CardDistance::Noise& noise) {
  double sum = 0.0;
  for (std::size_t t = 0; t < d.size(); ++t) {
    const bool twin = d[t] < kNoChance * noise.least[t] && noise.least[t] > kAboutDrift * noise.few[t];
    const double least =
        twin ? kCardFloor : std::max(kCardFloor, kAboutDrift * std::max(noise.drift[t], noise.few[t]));
    sum += std::log10(std::clamp(d[t], std::min(least, 1e3), 1e3));
  }
  return sum;
}

class Search {
 public:
  Search(const KernelRow& kernel, CardDistance& distance, const CardOptions& options)
      : kernel_(kernel), family_(family_named(kernel.system->name)), distance_(distance), options_(options) {
    for (const ContractPoint& point : contract_points()) {
      const bool chunked = kernel.system->form(kernel.form)->chunked;
      const bool here = (point.recurrent || chunked) && (!point.delta || family_.delta);
      if (here && point.name != "input" && point.name != "card") points_.push_back(&point);
    }
  }

  /// The contract that is nearest, from the nearest of the named ones on.
  [[nodiscard]] Contract run(Contract c) {
    c = begin(std::move(c));
    constexpr Shows kOrder[] = {Shows::scores, Shows::state, Shows::writes, Shows::inverse,
                                Shows::reads,  Shows::norm,  Shows::all};
    for (const Shows shows : kOrder) {
      std::vector<std::size_t> probes;
      for (std::size_t i = 0; i < distance_.probes().size(); ++i) {
        if (distance_.probes()[i].shows == shows && distance_.ran(i)) probes.push_back(i);
      }
      if (probes.empty()) continue;
      std::vector<Change> changes;
      for (const ContractPoint* point : points_) {
        if (shown_by(shows, point->name)) add(changes, *point);
      }
      descend(c, probes, changes, true);
    }
    std::vector<Change> changes;
    for (const ContractPoint* point : points_) add(changes, *point);
    descend(c, all(), changes, true);
    return c;
  }

  /// Where it begins.
  [[nodiscard]] Contract begin(Contract c) { return nearest_start(stored_formats(std::move(c))); }

  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  [[nodiscard]] const std::vector<const ContractPoint*>& points() const { return points_; }

  [[nodiscard]] std::vector<std::size_t> all() const {
    std::vector<std::size_t> out;
    for (std::size_t i = 0; i < distance_.probes().size(); ++i) {
      if (distance_.ran(i)) out.push_back(i);
    }
    return out;
  }

 private:
  static void add(std::vector<Change>& changes, const ContractPoint& point) {
    if (point.name == "output" || point.name == "state") return;  // read from the values
    for (const std::string_view value : point.values) changes.push_back({&point, value});
  }

  /// The coarsest format that holds every value.
  [[nodiscard]] static std::optional<Format> format_of(
      const std::vector<const std::vector<float>*>& tensors) {
    for (const Format format : {Format::bf16, Format::fp16}) {
      std::size_t values = 0;
      bool held = true;
      for (const std::vector<float>* x : tensors) {
        for (const float value : *x) {
          held = held && (!std::isfinite(value) || round_to(value, format) == value);
          values += value != 0.0F ? 1 : 0;
        }
      }
      if (held && values >= 500) return format;
      if (values < 500) return {};
    }
    return Format::fp32;
  }

  [[nodiscard]] Contract stored_formats(Contract c) const {
    std::vector<const std::vector<float>*> outputs, states;
    for (const std::size_t i : all()) {
      outputs.push_back(&distance_.outputs(i).o);
      states.push_back(&distance_.outputs(i).final_state);
    }
    if (const auto format = format_of(outputs)) (void)changed(c, "output", name_of(*format));
    if (const auto format = format_of(states)) (void)changed(c, "state", name_of(*format));
    return c;
  }

  /// The named contract, with the formats that are known, that is nearest over all probes.
  [[nodiscard]] Contract nearest_start(const Contract& c) {
    Contract best = c;
    now_ = c;
    double least = score(best, all());
    for (const NamedContract& row : contracts()) {
      if (stopped()) break;
      Contract other = row.contract;
      if (other.input != c.input) continue;
      other.output = c.output;
      other.state = c.state;
      if (!changed(other, "output", name_of(c.output))) continue;
      // One that is no nearer by far is not worth a longer name.
      if (const double s = score(other, all()); s < least - kCardGain) least = s, best = other;
    }
    return best;
  }

  [[nodiscard]] double score(const Contract& c, const std::vector<std::size_t>& probes) {
    double sum = 0.0;
    for (const std::size_t i : probes) sum += logarithm(distance_.of(i, c), distance_.noise(i, now_));
    return sum;
  }

  /// The best of single changes, again and again; where there is none, of pairs. Scores are about the drift of where the
  /// search is: of two contracts each may be better seen from the other, and it would go to and fro for ever.
  void descend(Contract& c, const std::vector<std::size_t>& probes, const std::vector<Change>& changes,
               bool pairs) {
    std::vector<Contract> been;
    while (!stopped()) {
      now_ = c;
      been.push_back(c);
      const double now = score(c, probes);
      if (options_.progress) options_.progress(distance_.probes()[probes.front()].name);
      std::vector<std::pair<double, Contract>> tried;
      const auto take = [&](const Contract& from) {
        for (const Contract& other : neighbours(from, changes)) {
          if (stopped()) return;
          tried.emplace_back(score(other, probes), other);
        }
        std::stable_sort(tried.begin(), tried.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
      };
      take(c);
      std::optional<Contract> best = best_of(tried, c, now, been, probes);
      if (!best && pairs && !at_floor(c, probes)) {
        // Of a pair each half alone is seldom among the worst.
        constexpr std::size_t kFirst = 12;
        const std::vector<std::pair<double, Contract>> halves(
            tried.begin(), tried.begin() + static_cast<std::ptrdiff_t>(std::min(kFirst, tried.size())));
        for (const auto& half : halves) take(half.second);
        best = best_of(tried, c, now, been, probes);
      }
      if (!best || stopped()) return;
      c = *best;
    }
  }

  /// The first of these, in the order of their scores, where the search has not been, that is better than `c`, seen from there
  /// too.
  [[nodiscard]] std::optional<Contract> best_of(const std::vector<std::pair<double, Contract>>& tried,
                                                const Contract& c, double now,
                                                const std::vector<Contract>& been,
                                                const std::vector<std::size_t>& probes) {
    for (const auto& [score_here, other] : tried) {
      if (score_here >= now - kCardGain || stopped()) break;
      const auto same = [&other = other](const Contract& x) { return same_points(x, other); };
      if (std::ranges::any_of(been, same)) continue;
      now_ = other;
      const bool better = score(other, probes) < score(c, probes) - kCardGain;
      now_ = c;
      if (better) return other;
    }
    return {};
  }

  /// Nothing is left to explain on these: no more than an order of sums makes, or hardly any of the error.
  [[nodiscard]] bool at_floor(const Contract& c, const std::vector<std::size_t>& probes) {
    return std::all_of(probes.begin(), probes.end(), [&](std::size_t i) {
      const Distance d = distance_.of(i, c);
      const Distance e = distance_.error(i, c);
      const Distance level = distance_.level(i, c);
      const auto none = [&](std::size_t t) { return d[t] <= std::max(kAboutDrift * level[t], 0.05 * e[t]); };
      return none(0) && none(1);
    });
  }

  /// One change away; and the other order of V' with all of its own points in one format, which single changes reach
  /// by way of worse ones.
  [[nodiscard]] std::vector<Contract> neighbours(const Contract& c,
                                                 const std::vector<Change>& changes) const {
    std::vector<Contract> out;
    bool order = false;
    for (const Change& change : changes) {
      Contract other = c;
      order = order || change.point->name == "residual";
      if (change.point->value(c) == change.value) continue;
      if (changed(other, change.point->name, change.value)) out.push_back(std::move(other));
    }
    if (!order) return out;
    for (const Format format :
         {Format::fp32, Format::tf32, Format::tf32_truncated, Format::bf16, Format::fp16}) {
      Contract other = c;
      other.residual = Format::none;
      other.beta_v = other.beta_exp_k = other.U = other.W = format;
      settle(other);
      if (!same_points(other, c)) out.push_back(std::move(other));
    }
    return out;
  }

  const KernelRow& kernel_;
  const Family& family_;
  CardDistance& distance_;
  const CardOptions& options_;
  std::vector<const ContractPoint*> points_;
  Contract now_;  ///< whose drift scores are about
};

/// One reading of the outputs: of the probes as they were given, or rounded before.
class Try {
 public:
  Try(const KernelRow& kernel, std::vector<Probe> probes, std::vector<Outputs> outputs,
      const CardOptions& options)
      : probes_(std::make_unique<std::vector<Probe>>(std::move(probes))),
        distance_(
            std::make_unique<CardDistance>(std::string(kernel.system->name), *probes_, std::move(outputs))),
        search_(std::make_unique<Search>(kernel, *distance_, options)) {}

  void look(const Contract& start) {
    found_ = search_->run(start);
    fits_ = fits_of(found_);
  }

  /// What the contract leaves of the errors, of the probe where it is most.
  [[nodiscard]] double left_under(const Contract& contract) {
    return std::ranges::max(fits_of(contract), {}, &CardProbe::left).left;
  }
  [[nodiscard]] double left() const { return std::ranges::max(fits_, {}, &CardProbe::left).left; }

  /// The nearest of `like` and of the named contracts, with its input.
  [[nodiscard]] Contract near(const Contract& start, const Contract& like) {
    const Contract named = search_->begin(start);
    return left_under(named) < left_under(like) ? named : like;
  }

  /// Whether it leaves far less than the other; of two that both explain the outputs as well, whether it has fewer words.
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
      const Distance d = distance_->of(i, contract);
      const Distance e = distance_->error(i, contract);
      // On what no point rounds the order of sums is all that there is.
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

  // Apart from it, since each refers to the one before.
  std::unique_ptr<std::vector<Probe>> probes_;
  std::unique_ptr<CardDistance> distance_;
  std::unique_ptr<Search> search_;
  Contract found_;
  std::vector<CardProbe> fits_;
};

std::vector<Probe> rounded(std::vector<Probe> probes, Format format) {
  for (Probe& probe : probes) {
    for (std::vector<float>* x : {&probe.batch.q, &probe.batch.k, &probe.batch.v}) {
      for (float& value : *x) value = round_to(value, format);
    }
  }
  return probes;
}

/// The outputs read as of the probes that the kernel was given, and as of probes that it rounded as it loaded them: that
/// alone where a contract explains them so at once, else where none does otherwise, or q and k are rounded.
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

/// Operands of q and k of which the grammar fixes whether they are rounded once or twice, where that makes a difference.
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

std::string declared_contract(const KernelRow& kernel, const CardOptions& options) {
  if (kernel.system->kernel_rows != kFamilyRows) {
    throw Error(fmt::format(
        "kernel {}: cards are read of the recurrent family, and {} is a system of named tensors, of "
        "which a contract says less; `samestate gate --kernel {}` judges it under what its row promises, "
        "and `repro` and `judge` of a case that fails name the contract under which it passes",
        kernel.name, kernel.system->name, kernel.name));
  }
  if (options.contract.empty()) return kernel.contracts.front();
  const std::string& name = contract_named(options.contract).name;
  if (kernel.any_contract ||
      std::find(kernel.contracts.begin(), kernel.contracts.end(), name) != kernel.contracts.end())
    return name;
  throw Error(
      fmt::format("contract={}: {} promises {} only", name, kernel.name, fmt::join(kernel.contracts, ", ")));
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
  for (const ProbeRun& run : runs) outputs.push_back(run.outputs);
  const auto ran = std::ranges::any_of(outputs, [](const Outputs& x) { return !x.o.empty(); });
  if (!ran) {
    const auto said =
        std::find_if(runs.begin(), runs.end(), [](const ProbeRun& run) { return !run.refused.empty(); });
    throw Error(
        fmt::format("kernel {}: there are outputs of none of the {} probes, so that nothing is known of it{}",
                    kernel.name, probes.size(), said == runs.end() ? "" : ": " + said->refused));
  }
  Contract start = contract_named(row.declared);
  start.nearest = false;
  std::vector<Try> tries = tries_of(kernel, probes, outputs, options, start);
  Try& of = *std::ranges::min_element(tries, [](const Try& a, const Try& b) { return a.explains_more(b); });
  of.report(row, runs);
  if (of.found().input != start.input) row.loads = name_of(of.found().input);
  row.explained = of.explained();
  if (!row.explained) row.twice = rounded_twice(of.found(), of.points());
  if (of.stopped()) row.stopped = "interrupted";
  row.twins = 0;
  for (const Try& each : tries) row.twins += each.twins();
  row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return row;
}

ProbeRun run_probe(const KernelTable& table, const Probe& probe) {
  const Resolved r(probe.c);
  try {
    return {run_kernel(table.choose(r), probe.batch, r.path(probe.batch.shape.T), r.promised, {}), ""};
  } catch (const Unavailable& unavailable) {
    return {{}, unavailable.what()};
  }
}

CardRow read_card(const KernelTable& table, const KernelRow& kernel, const CardOptions& options) {
  const std::string declared = declared_contract(kernel, options);
  const std::vector<Probe> probes = probes_of(kernel, declared);
  std::vector<ProbeRun> runs;
  for (const Probe& probe : probes) runs.push_back(run_probe(table, probe));
  CardRow row = card_of(kernel, probes, runs, options);
  for (const std::string_view regime : card_regimes(kernel))
    row.cases.push_back(judged_under(table, kernel, declared, row.contract, regime));
  return row;
}

}  // namespace samestate
