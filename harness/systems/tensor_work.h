#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>

#include "harness/systems/tensor_system.h"

namespace samestate {

/// The numbers that the sizes of a case give for the work of one of its sequences.
struct WorkOfSizes {
  bool possible = false;    ///< the sizes are possible together
  bool by_token = false;    ///< held_by_token
  double operations = 0.0;  ///< multiplications of the reference, or of the kernel's form where that has more
  double elements = 0.0, tensors = 0.0;
};

/// Counts them from the system's row. `asked`: the form of the case, null where the system does not have it.
[[nodiscard]] WorkOfSizes work_of_sizes(const TensorSystem& system, const Case& c, const CaseForm* asked);

/// Remembers what TensorSystem::work has counted. A plan asks ten million times, half of them for sizes that it asked for shortly before.
/// Each thread has its own; it forgets everything when it is full.
class WorkCache {
 public:
  static constexpr std::size_t kMostSizes = 1U << 14, kMostContracts = 256;

  [[nodiscard]] static WorkCache& of_thread();

  /// As work_of_sizes. The result is valid until the next call.
  [[nodiscard]] const WorkOfSizes& sizes(const TensorSystem& system, const Case& c, const CaseForm* asked);
  /// Returns true if the contract of that name draws roundings. Throws Error if there is no such contract.
  [[nodiscard]] bool keeps_sixteen_bits(const std::string& contract);

  [[nodiscard]] std::size_t entries() const { return sizes_.size() + contracts_.size(); }

 private:
  std::unordered_map<std::string, WorkOfSizes> sizes_;
  std::unordered_map<std::string, bool> contracts_;
  std::string key_;  ///< kept for its memory
};

}  // namespace samestate
