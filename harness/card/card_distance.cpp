#include "harness/card/card_distance.h"

#include <cmath>
#include <limits>
#include <span>
#include <utility>

#include "harness/run/family_run.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/rounding.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

double relative(std::span<const float> x, std::span<const float> of) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(of[i]);
    difference += d * d;
    size += static_cast<double>(of[i]) * static_cast<double>(of[i]);
  }
  if (difference == 0.0) return 0.0;
  const double ratio = std::sqrt(difference / size);
  return std::isfinite(ratio) ? ratio : std::numeric_limits<double>::infinity();
}

/// How far apart so many of them make `size` numbers of a format: each by a spacing.
double of_roundings(std::size_t size, Format format) {
  if (size == 0 || format == Format::none) return 0.0;
  return 2.0 * unit_roundoff(format) * std::sqrt(kCardFewRoundings / static_cast<double>(size));
}

}  // namespace

CardDistance::CardDistance(std::string system, const std::vector<Probe>& probes, std::vector<Outputs> outputs)
    : system_(std::move(system)), probes_(probes), outputs_(std::move(outputs)) {}

Outputs CardDistance::twin(std::size_t index, const Contract& contract, bool reordered) {
  ++twins_;
  const Probe& probe = probes_[index];
  const Resolved r(probe.c);
  return run_on_twin(system_, probe.batch, r.path(probe.batch.shape.T),
                     probe.c.l2norm ? with_l2norm(contract) : contract, reordered);
}

std::string CardDistance::key(std::size_t index, const Contract& contract) {
  std::string key = std::to_string(index);
  for (const ContractPoint& point : contract_points()) key += point.value(contract) + ",";
  return key;
}

CardDistance::Noise CardDistance::noise(std::size_t index, const Contract& contract) {
  if (!ran(index)) return {};
  const auto [at, added] = noise_.try_emplace(key(index, contract));
  if (added) {
    const Outputs one = twin(index, contract);
    const Outputs other = twin(index, contract, true);
    at->second.drift = {relative(other.o, one.o), relative(other.final_state, one.final_state)};
    at->second.few = {of_roundings(one.o.size(), contract.output),
                      of_roundings(one.final_state.size(), contract.state)};
  }
  return at->second;
}

Distance CardDistance::of(std::size_t index, const Contract& contract) {
  if (!ran(index)) return {};
  const auto [at, added] = known_.try_emplace(key(index, contract));
  if (added) {
    const Outputs made = twin(index, contract);
    at->second = {relative(outputs_[index].o, made.o),
                  relative(outputs_[index].final_state, made.final_state)};
  }
  return at->second;
}

Distance CardDistance::error(std::size_t index, const Contract& contract) {
  const Probe& probe = probes_[index];
  const Outputs made = twin(index, contract);
  const Family& family = family_named(system_);
  std::array<double, 2> difference{}, size{};
  for (std::int64_t h = 0; h < probe.batch.shape.Hv; ++h) {
    const Trajectory<double> exact = family.recurrent(sequence_of(probe.batch, 0, h));
    difference[0] += (rows_of(probe.batch, made, 0, h) - exact.o).squaredNorm();
    difference[1] += (state_of(probe.batch, made, 0, h) - exact.state).squaredNorm();
    size[0] += exact.o.squaredNorm();
    size[1] += exact.state.squaredNorm();
  }
  return {size[0] > 0 ? std::sqrt(difference[0] / size[0]) : 0.0,
          size[1] > 0 ? std::sqrt(difference[1] / size[1]) : 0.0};
}

}  // namespace samestate
