#include "harness/card/read_card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "harness/card/card_distance.h"
#include "harness/run/family_run.h"
#include "harness/run/judge_batch.h"
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
  constexpr double kAbout = 2.0, kNoChance = 0.05;
  double sum = 0.0;
  for (std::size_t t = 0; t < d.size(); ++t) {
    const double drift = noise.drift[t];
    const bool twin = d[t] < kNoChance * drift && drift > kAbout * noise.few[t];
    const double least = twin ? kCardFloor : std::max(kCardFloor, kAbout * std::max(drift, noise.few[t]));
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
    c = stored_formats(std::move(c));
    constexpr Shows kOrder[] = {Shows::scores, Shows::state, Shows::writes, Shows::inverse,
                                Shows::reads,  Shows::norm,  Shows::all};
    c = nearest_start(c);
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

  /// The best of single changes, again and again; where there is none, of pairs.
  void descend(Contract& c, const std::vector<std::size_t>& probes, const std::vector<Change>& changes,
               bool pairs) {
    while (!stopped()) {
      now_ = c;
      const double now = score(c, probes);
      if (options_.progress) options_.progress(distance_.probes()[probes.front()].name);
      Contract best = c;
      double least = now - kCardGain;
      std::vector<std::pair<double, Contract>> tried;
      for (const Contract& other : neighbours(c, changes)) {
        if (stopped()) return;
        const double s = score(other, probes);
        tried.emplace_back(s, other);
        if (s < least) least = s, best = other;
      }
      if (same_points(best, c) && pairs && !at_floor(c, probes)) {
        // Of a pair each half alone is seldom among the worst.
        constexpr std::size_t kFirst = 12;
        std::stable_sort(tried.begin(), tried.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        for (std::size_t i = 0; i < std::min(kFirst, tried.size()); ++i) {
          for (const Contract& other : neighbours(tried[i].second, changes)) {
            if (stopped()) return;
            if (const double s = score(other, probes); s < least) least = s, best = other;
          }
        }
      }
      if (same_points(best, c)) return;
      c = best;
    }
  }

  /// Nothing is left to explain on these.
  [[nodiscard]] bool at_floor(const Contract& c, const std::vector<std::size_t>& probes) {
    return std::all_of(probes.begin(), probes.end(), [&](std::size_t i) {
      const Distance d = distance_.of(i, c);
      const Distance e = distance_.error(i, c);
      return d[0] <= std::max(kCardFloor, 0.05 * e[0]) && d[1] <= std::max(kCardFloor, 0.05 * e[1]);
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

/// How far the kernel is from each other value of the point.
CardPoint evidence_of(const ContractPoint& point, const Contract& c, CardDistance& distance,
                      const std::vector<std::size_t>& probes) {
  CardPoint out;
  out.name = point.name;
  out.means = point.means;
  out.value = point.value(c);
  bool same_bits = true;
  for (const std::string_view value : point.values) {
    Contract other = c;
    if (value == out.value || !changed(other, point.name, value)) continue;
    CardValue found{std::string(value), 0.0, ""};
    for (const std::size_t i : probes) {
      const Distance with = distance.of(i, c);
      const Distance without = distance.of(i, other);
      for (std::size_t t = 0; t < with.size(); ++t) {
        const double factor = std::max(without[t], kCardFloor) / std::max(with[t], kCardFloor);
        if (factor > found.factor) found.factor = factor, found.probe = distance.probes()[i].name;
        if (found.factor < kCardAlike) same_bits = same_bits && with[t] == without[t];
      }
    }
    if (found.factor < kCardAlike) {
      out.like.push_back(std::move(found));
    } else if (out.without == 0.0 || found.factor < out.without) {
      out.without = found.factor;
      out.probe = found.probe;
    }
  }
  out.told = out.like.empty() && out.without >= kCardToldApart;
  if (!out.like.empty())
    out.why =
        same_bits
            ? "the same bits on every probe: it finds nothing to round, or another point rounds the same"
            : "they move the distance by less than the order of sums does";
  else if (out.without == 0.0)
    out.why = "no other value has a place beside the other points";
  return out;
}

}  // namespace

std::string declared_contract(const KernelRow& kernel, const CardOptions& options) {
  if (kernel.system->kernel_rows != kFamilyRows) {
    throw Error(
        fmt::format("kernel {}: cards are read of the recurrent family, and {} is a system of named tensors",
                    kernel.name, kernel.system->name));
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
  CardDistance distance(row.system, probes, std::move(outputs));
  Search search(kernel, distance, options);
  const std::vector<std::size_t> ran = search.all();
  if (ran.empty()) {
    const auto said =
        std::find_if(runs.begin(), runs.end(), [](const ProbeRun& run) { return !run.refused.empty(); });
    throw Error(
        fmt::format("kernel {}: there are outputs of none of the {} probes, so that nothing is known of it{}",
                    kernel.name, probes.size(), said == runs.end() ? "" : ": " + said->refused));
  }
  Contract start = contract_named(row.declared);
  start.nearest = false;
  const Contract found = search.run(start);
  row.contract = contract_of(found).name;
  for (const ContractPoint* point : search.points()) {
    if (search.stopped()) break;
    CardPoint of = evidence_of(*point, found, distance, ran);
    if (point->name == "output" || point->name == "state") {
      of.told = true;
      of.like.clear();
      of.why = "read from the values themselves";
    }
    row.points.push_back(std::move(of));
  }
  for (std::size_t i = 0; i < probes.size(); ++i) {
    CardProbe of{probes[i].name, format_case(probes[i].c), runs[i].refused, 0.0, 0.0};
    if (distance.ran(i)) {
      const Distance d = distance.of(i, found);
      const Distance e = distance.error(i, found);
      // On what no point rounds the order of sums is all that there is.
      const auto share = [&](std::size_t t) { return d[t] / std::max(e[t], kCardOrderOfSums); };
      const std::size_t worse = share(0) >= share(1) ? 0 : 1;
      of.distance = d[worse];
      of.error = std::max(e[worse], kCardOrderOfSums);
      row.farthest = std::max(row.farthest, share(worse));
    }
    row.probes.push_back(std::move(of));
  }
  row.explained = !row.probes.empty() && row.farthest <= kCardExplained;
  if (search.stopped()) row.stopped = "interrupted";
  row.twins = distance.twins();
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

std::vector<std::string_view> card_regimes(const KernelRow& kernel) {
  std::vector<std::string_view> out;
  for (const std::string_view name : {"normal", "slow", "collinear", "beta_two", "pool4", "unnormalised15"}) {
    if (kernel.system->regime(name) != nullptr) out.push_back(name);
  }
  return out;
}

CardCase judged_under(const KernelTable& table, const KernelRow& kernel, const std::string& declared,
                      const std::string& card, std::string_view regime) {
  Case c = kernel.system->standard();
  c.form = kernel.form;
  c.contract = declared;
  c.kernel = kernel.name;
  c.T = 192;
  c.state = "random";
  c.regime = regime;
  c = kernel.limits.nearest(std::move(c));
  const Resolved called(c);
  const KernelChoice kernels = table.choose(called);
  c.contract = card;
  const Resolved judged(c);
  const Family& family = family_named(kernel.system->name);
  const Batch batch = batch_of(called, family);
  const Runner runner = [&](const Batch& of, const Path& path) {
    return run_kernel(kernels, of, path, called.promised, {});
  };
  CardCase row{format_case(judged.c), "", 0.0};
  try {
    const Judgement j = judge_batch(judged, family, batch, runner(batch, called.path(batch.shape.T)), runner);
    row.verdict = name_of(j.verdict);
    row.twin = j.twin_ratio;
  } catch (const Unavailable& unavailable) {
    row.verdict = fmt::format("unsupported: {}", unavailable.what());
  }
  return row;
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
