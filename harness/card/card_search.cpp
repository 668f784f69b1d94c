#include "harness/card/card_search.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/rounding.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

/// The logarithm of a distance. Distances below what the order of sums alone causes count as one: a kernel
/// with its own order lies somewhere around that drift, so a contract that comes nearer explains nothing
/// more. A kernel with the twin's own order equals the twin bit for bit, which is visible where other orders
/// flip many roundings; where they flip few, it may happen by chance.
double logarithm(const OutputDistance& d, const CardDistance::Noise& noise) {
  double sum = 0.0;
  for (std::size_t t = 0; t < d.size(); ++t) {
    const bool twin = d[t] < kNoChance * noise.least[t] && noise.least[t] > kAboutDrift * noise.few[t];
    const double least =
        twin ? kCardFloor : std::max(kCardFloor, kAboutDrift * std::max(noise.drift[t], noise.few[t]));
    sum += std::log10(std::clamp(d[t], std::min(least, 1e3), 1e3));
  }
  return sum;
}

/// Returns the coarsest format that holds every value.
std::optional<Format> format_of(const std::vector<const std::vector<float>*>& tensors) {
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

}  // namespace

CardSearch::CardSearch(const KernelRow& kernel, CardDistance& distance, const CardOptions& options)
    : distance_(distance), options_(options) {
  const bool delta = family_named(kernel.system->name).delta;
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  for (const ContractPoint& point : contract_points()) {
    const bool here = (point.recurrent || chunked) && (!point.delta || delta);
    if (here && point.name != "input" && point.name != "card") points_.push_back(&point);
  }
}

Contract CardSearch::run(Contract c) {
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

Contract CardSearch::begin(Contract c) { return nearest_start(stored_formats(std::move(c))); }

Contract CardSearch::as_declared(Contract found, const Contract& declared) {
  const Contract nearest = found;
  const CardDistance::Likeness like =
      stopped() ? CardDistance::Likeness::another_order : distance_.likeness(nearest);
  const auto alike = [&](const Contract& other) {
    for (const std::size_t i : all()) {
      if (stopped()) return false;
      const OutputDistance with = distance_.of(i, nearest), without = distance_.of(i, other);
      const OutputDistance level = distance_.level(i, nearest, like);
      for (std::size_t t = 0; t < with.size(); ++t) {
        if (std::max(without[t], level[t]) >= kCardAlike * std::max(with[t], level[t])) return false;
      }
    }
    return true;
  };
  // Points that the kernel's form never reads keep what was declared.
  Contract read = declared;
  read.input = found.input;
  for (const ContractPoint* point : points_) (void)changed(read, point->name, point->value(found));
  const auto same = [&](const ContractPoint* point) { return point->value(read) == point->value(found); };
  if (std::ranges::all_of(points_, same) && alike(read)) found = read;
  Contract whole = declared;
  whole.input = found.input;
  if (changed(whole, "output", name_of(found.output)) && changed(whole, "state", name_of(found.state)) &&
      alike(whole))
    return whole;
  for (const ContractPoint* point : points_) {
    Contract other = found;
    const std::string value = point->value(declared);
    if (value != point->value(found) && changed(other, point->name, value) && alike(other)) found = other;
  }
  return found;
}

std::vector<std::size_t> CardSearch::all() const {
  std::vector<std::size_t> out;
  for (std::size_t i = 0; i < distance_.probes().size(); ++i) {
    if (distance_.ran(i)) out.push_back(i);
  }
  return out;
}

void CardSearch::add(std::vector<Change>& changes, const ContractPoint& point) {
  if (point.name == "output" || point.name == "state") return;  // these formats are read from the values
  for (const std::string_view value : point.values) changes.push_back({&point, value});
}

Contract CardSearch::stored_formats(Contract c) const {
  std::vector<const std::vector<float>*> outputs, states;
  for (const std::size_t i : all()) {
    outputs.push_back(&distance_.outputs(i).o);
    states.push_back(&distance_.outputs(i).final_state);
  }
  if (const auto format = format_of(outputs)) (void)changed(c, "output", name_of(*format));
  if (const auto format = format_of(states)) (void)changed(c, "state", name_of(*format));
  return c;
}

/// Returns the named contract, with the known formats filled in, that is nearest over all probes.
Contract CardSearch::nearest_start(const Contract& c) {
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
    // A contract that is not clearly nearer does not justify a longer name.
    if (const double s = score(other, all()); s < least - kCardGain) least = s, best = other;
  }
  return best;
}

double CardSearch::score(const Contract& c, const std::vector<std::size_t>& probes) {
  double sum = 0.0;
  for (const std::size_t i : probes) sum += logarithm(distance_.of(i, c), distance_.noise(i, now_));
  return sum;
}

/// Applies the best single change again and again, and the best pair of changes once no single one helps.
/// Scores are relative to the drift at the search's current contract: each of two contracts may look better
/// from the other, and the search could alternate between them for ever (see best_of).
void CardSearch::descend(Contract& c, const std::vector<std::size_t>& probes,
                         const std::vector<Change>& changes, bool pairs) {
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
      // Each half of a good pair is seldom among the worst single changes.
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

/// Returns the first of these contracts, by score, that the search has not visited and that is also better
/// than `c` when scored from its own place.
std::optional<Contract> CardSearch::best_of(const std::vector<std::pair<double, Contract>>& tried,
                                            const Contract& c, double now, const std::vector<Contract>& been,
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

/// Returns true if these probes leave nothing to explain: the distance is what an order of sums causes, or
/// hardly any of the error.
bool CardSearch::at_floor(const Contract& c, const std::vector<std::size_t>& probes) {
  return std::all_of(probes.begin(), probes.end(), [&](std::size_t i) {
    const OutputDistance d = distance_.of(i, c);
    const OutputDistance e = distance_.error(i, c);
    const OutputDistance level = distance_.level(i, c);
    const auto none = [&](std::size_t t) { return d[t] <= std::max(kAboutDrift * level[t], 0.05 * e[t]); };
    return none(0) && none(1);
  });
}

/// Returns the contracts one change away, and the one with the other order of V' and all of its points in one
/// format, which single changes reach only through worse contracts.
std::vector<Contract> CardSearch::neighbours(const Contract& c, const std::vector<Change>& changes) {
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

}  // namespace samestate
