#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "harness/card/probe.h"
#include "reference/contract.h"

namespace samestate {

/// Relative distance of o and of the final state, 2-norms over the whole tensor.
using OutputDistance = std::array<double, 2>;

/// A multiple of the drift: a kernel with its own order of sums is about this far away.
inline constexpr double kAboutDrift = 2.0;
/// A kernel closer to its twin than this fraction of the distance to every reordering matches it by
/// construction, not by chance.
inline constexpr double kNoChance = 0.05;

/// Distances between the outputs of a kernel on probes and twins of any contract.
class CardDistance {
 public:
  CardDistance(std::string system, const std::vector<Probe>& probes, std::vector<Outputs> outputs);

  /// The distance on probe `index`; infinite if the twin is not finite, and zero if the kernel did not run
  /// the probe.
  [[nodiscard]] OutputDistance of(std::size_t index, const Contract& contract);
  /// The distance of the twin itself from the exact values.
  [[nodiscard]] OutputDistance error(std::size_t index, const Contract& contract);
  /// The noise in a distance: differences that no contract explains.
  struct Noise {
    /// The drift of the twin from itself with its sums in another order, the largest and the least over
    /// kOrders. A turned rounding moves everything after it, so a single order may happen to turn none.
    OutputDistance drift{}, least{};
    OutputDistance
        few{};  ///< the distance that so few roundings cause that none of them also changes by chance
  };
  [[nodiscard]] Noise noise(std::size_t index, const Contract& contract);
  /// How near the kernel is to the twin: its order of sums differs (another_order); it is near the twin in
  /// every case in which another order of sums moves the twin, so it sums as the twin does (sums); or it has
  /// the twin's bits on every probe (bits).
  enum class Likeness { another_order, sums, bits };
  [[nodiscard]] Likeness likeness(const Contract& contract);
  /// The noise floor: for a kernel with its own order of sums, distances below it are inconclusive.
  [[nodiscard]] OutputDistance level(std::size_t index, const Contract& contract);
  /// The noise floor between values of a point, for a kernel that is `like` the twin: unless it equals the
  /// twin bit for bit, its own exponentials turn a few roundings.
  [[nodiscard]] OutputDistance level(std::size_t index, const Contract& contract, Likeness like);
  [[nodiscard]] bool ran(std::size_t index) const { return !outputs_[index].o.empty(); }
  [[nodiscard]] const std::vector<Probe>& probes() const { return probes_; }
  [[nodiscard]] const Outputs& outputs(std::size_t index) const { return outputs_[index]; }
  [[nodiscard]] std::int64_t twins() const { return twins_; }

 private:
  /// The order of the twin's sums: its own; with the other accumulator; that of the CPU kernel; or with the
  /// other accumulator and the channels backwards (which by itself moves few sums of eight bits).
  enum class Order { own, accumulator, forward, backward };
  static constexpr std::array kOrders{Order::accumulator, Order::forward, Order::backward};

  [[nodiscard]] Outputs twin(std::size_t index, const Contract& contract, Order order = Order::own);
  [[nodiscard]] static std::string key(std::size_t index, const Contract& contract);

  std::string system_;
  const std::vector<Probe>& probes_;
  std::vector<Outputs> outputs_;
  std::map<std::string, OutputDistance, std::less<>> known_;
  std::map<std::string, Noise, std::less<>> noise_;
  std::int64_t twins_ = 0;
};

}  // namespace samestate
