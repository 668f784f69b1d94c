#include "harness/card/card_distance.h"

#include <algorithm>
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

/// Returns the distance that this many roundings cause in `size` numbers of a format, each by one spacing.
double of_roundings(std::size_t size, Format format) {
  if (size == 0 || format == Format::none) return 0.0;
  return 2.0 * unit_roundoff(format) * std::sqrt(kCardFewRoundings / static_cast<double>(size));
}

/// Reverses the channels of every row: the row has `width` numbers in `channels` groups.
void reverse_channels(std::vector<float>& x, std::int64_t channels, std::int64_t width) {
  const auto block = static_cast<std::size_t>(channels * width);
  for (std::size_t first = 0; first + block <= x.size(); first += block) {
    for (std::int64_t i = 0; i < channels / 2; ++i) {
      const auto one = x.begin() + static_cast<std::ptrdiff_t>(first) + i * width;
      const auto other = x.begin() + static_cast<std::ptrdiff_t>(first) + (channels - 1 - i) * width;
      std::swap_ranges(one, one + width, other);
    }
  }
}

}  // namespace

CardDistance::CardDistance(std::string system, const std::vector<Probe>& probes, std::vector<Outputs> outputs)
    : system_(std::move(system)), probes_(probes), outputs_(std::move(outputs)) {}

Outputs CardDistance::twin(std::size_t index, const Contract& contract, Order order) {
  ++twins_;
  const Probe& probe = probes_[index];
  const BatchShape& shape = probe.batch.shape;
  const Path path = Resolved(probe.c).path(shape.T);
  const Contract used = probe.c.l2norm ? with_l2norm(contract) : contract;
  if (order == Order::forward) return run_on_cpu(system_, probe.batch, path, used);
  if (order != Order::backward)
    return run_on_twin(system_, probe.batch, path, used, order == Order::accumulator);
  // The channels of q and k are only summed over; nothing else distinguishes them.
  Batch batch = probe.batch;
  for (std::vector<float>* x : {&batch.q, &batch.k}) reverse_channels(*x, shape.dk, 1);
  reverse_channels(batch.initial_state, shape.dk, shape.dv);
  Outputs out = run_on_twin(system_, batch, path, used, true);
  reverse_channels(out.final_state, shape.dk, shape.dv);
  return out;
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
    Noise& noise = at->second;
    const Outputs one = twin(index, contract);
    noise.least.fill(std::numeric_limits<double>::infinity());
    for (const Order order : kOrders) {
      const Outputs other = twin(index, contract, order);
      const OutputDistance d{relative(other.o, one.o), relative(other.final_state, one.final_state)};
      for (std::size_t t = 0; t < d.size(); ++t) {
        noise.drift[t] = std::max(noise.drift[t], d[t]);
        noise.least[t] = std::min(noise.least[t], d[t]);
      }
    }
    noise.few = {of_roundings(one.o.size(), contract.output),
                 of_roundings(one.final_state.size(), contract.state)};
  }
  return at->second;
}

OutputDistance CardDistance::of(std::size_t index, const Contract& contract) {
  if (!ran(index)) return {};
  const auto [at, added] = known_.try_emplace(key(index, contract));
  if (added) {
    const Outputs made = twin(index, contract);
    at->second = {relative(outputs_[index].o, made.o),
                  relative(outputs_[index].final_state, made.final_state)};
  }
  return at->second;
}

CardDistance::Likeness CardDistance::likeness(const Contract& contract) {
  bool asked = false, bits = true;
  for (std::size_t i = 0; i < probes_.size(); ++i) {
    if (!ran(i)) continue;
    const Noise n = noise(i, contract);
    const OutputDistance d = of(i, contract);
    for (std::size_t t = 0; t < d.size(); ++t) {
      bits = bits && d[t] == 0.0;
      if (n.least[t] <= kCardFloor || n.least[t] <= kAboutDrift * n.few[t]) continue;
      if (d[t] >= kNoChance * n.least[t]) return Likeness::another_order;
      asked = true;
    }
  }
  return !asked ? Likeness::another_order : bits ? Likeness::bits : Likeness::sums;
}

OutputDistance CardDistance::level(std::size_t index, const Contract& contract, Likeness like) {
  if (like == Likeness::bits) return {kCardFloor, kCardFloor};
  // Roundings of an intermediate operand count like roundings of what is written.
  const auto few = [&](std::size_t size, Format written) {
    double most = kCardFloor;
    for (const Format format : {written, contract.P, contract.v_new, contract.v_decayed})
      most = std::max(most, of_roundings(size, format));
    return most;
  };
  OutputDistance out{few(outputs_[index].o.size(), contract.output),
                     few(outputs_[index].final_state.size(), contract.state)};
  if (like == Likeness::sums) return out;
  const OutputDistance order = level(index, contract);
  for (std::size_t t = 0; t < out.size(); ++t) out[t] = std::max(out[t], order[t]);
  return out;
}

OutputDistance CardDistance::level(std::size_t index, const Contract& contract) {
  const Noise n = noise(index, contract);
  OutputDistance out;
  for (std::size_t t = 0; t < out.size(); ++t) out[t] = std::max({kCardFloor, n.drift[t], n.few[t]});
  return out;
}

OutputDistance CardDistance::error(std::size_t index, const Contract& contract) {
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
