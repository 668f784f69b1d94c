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

/// A drift counts for so much: a kernel with an order of its own lies about as far off.
inline constexpr double kAboutDrift = 2.0;
/// Nearer to the twin than so much of what every other order makes no kernel comes by chance.
inline constexpr double kNoChance = 0.05;

/// What a kernel wrote on probes, held against twins of any contract.
class CardDistance {
 public:
  CardDistance(std::string system, const std::vector<Probe>& probes, std::vector<Outputs> outputs);

  /// Of probe `index`; infinite where the twin is not finite, and zero where the kernel did not run it.
  [[nodiscard]] OutputDistance of(std::size_t index, const Contract& contract);
  /// Of the twin itself from the exact values.
  [[nodiscard]] OutputDistance error(std::size_t index, const Contract& contract);
  /// What no contract explains.
  struct Noise {
    /// Of the twin from itself with its sums in another order, the largest and the least of kOrders: a turned rounding on
    /// the way moves all behind it, so that one order alone may happen to turn none.
    OutputDistance drift{}, least{};
    OutputDistance few{};  ///< of so few roundings of what is written that chance turns none of them as well
  };
  [[nodiscard]] Noise noise(std::size_t index, const Contract& contract);
  /// How near the kernel is to the twin: an order of sums of its own; the twin wherever every other order moves it, so that it
  /// sums as the twin does; the twin's bits on every probe.
  enum class Likeness { another_order, sums, bits };
  [[nodiscard]] Likeness likeness(const Contract& contract);
  /// That nothing is to be concluded from distances below it, of a kernel with an order of its own.
  [[nodiscard]] OutputDistance level(std::size_t index, const Contract& contract);
  /// The same between values of a point, of a kernel that is `like` the twin: but for one that is it to the bit, exponentials
  /// of its own turn a few roundings.
  [[nodiscard]] OutputDistance level(std::size_t index, const Contract& contract, Likeness like);
  [[nodiscard]] bool ran(std::size_t index) const { return !outputs_[index].o.empty(); }
  [[nodiscard]] const std::vector<Probe>& probes() const { return probes_; }
  [[nodiscard]] const Outputs& outputs(std::size_t index) const { return outputs_[index]; }
  [[nodiscard]] std::int64_t twins() const { return twins_; }

 private:
  /// How the twin's sums are ordered: its own order, the other accumulator, the CPU kernel's, the other accumulator with the
  /// channels backwards (by itself that moves few sums of eight bits).
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
