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
using Distance = std::array<double, 2>;

/// What a kernel wrote on probes, held against twins of any contract.
class CardDistance {
 public:
  CardDistance(std::string system, const std::vector<Probe>& probes, std::vector<Outputs> outputs);

  /// Of probe `index`; infinite where the twin is not finite, and zero where the kernel did not run it.
  [[nodiscard]] Distance of(std::size_t index, const Contract& contract);
  /// Of the twin itself from the exact values.
  [[nodiscard]] Distance error(std::size_t index, const Contract& contract);
  /// What no contract explains.
  struct Noise {
    Distance drift{};  ///< of the twin from itself with its sums in another order
    Distance few{};    ///< of so few roundings of what is written that chance turns none of them as well
  };
  [[nodiscard]] Noise noise(std::size_t index, const Contract& contract);
  [[nodiscard]] bool ran(std::size_t index) const { return !outputs_[index].o.empty(); }
  [[nodiscard]] const std::vector<Probe>& probes() const { return probes_; }
  [[nodiscard]] const Outputs& outputs(std::size_t index) const { return outputs_[index]; }
  [[nodiscard]] std::int64_t twins() const { return twins_; }

 private:
  [[nodiscard]] Outputs twin(std::size_t index, const Contract& contract, bool reordered = false);
  [[nodiscard]] static std::string key(std::size_t index, const Contract& contract);

  std::string system_;
  const std::vector<Probe>& probes_;
  std::vector<Outputs> outputs_;
  std::map<std::string, Distance, std::less<>> known_;
  std::map<std::string, Noise, std::less<>> noise_;
  std::int64_t twins_ = 0;
};

}  // namespace samestate
