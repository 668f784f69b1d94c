#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "harness/card/card_distance.h"
#include "harness/card/read_card.h"
#include "oracles/contract_points.h"

namespace samestate {

/// Searches for the contract whose twin is nearest to a kernel's outputs on probes, by changing one point or
/// two at a time.
class CardSearch {
 public:
  /// All three arguments must outlive it.
  CardSearch(const KernelRow& kernel, CardDistance& distance, const CardOptions& options);

  /// The nearest contract, starting from the nearest of the named ones.
  [[nodiscard]] Contract run(Contract c);
  /// The contract from which the search starts.
  [[nodiscard]] Contract begin(Contract c);
  /// Takes from `declared` what the outputs do not distinguish from `found`, all at once or point by point,
  /// and the rest from `found`: if several values fit, the kernel's author knows which it is.
  [[nodiscard]] Contract as_declared(Contract found, const Contract& declared);

  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  /// The points that the kernel's form reads.
  [[nodiscard]] const std::vector<const ContractPoint*>& points() const { return points_; }

 private:
  /// One point set to a value.
  struct Change {
    const ContractPoint* point;
    std::string_view value;
  };

  /// The probes that have outputs.
  [[nodiscard]] std::vector<std::size_t> all() const;
  static void add(std::vector<Change>& changes, const ContractPoint& point);
  [[nodiscard]] Contract stored_formats(Contract c) const;
  [[nodiscard]] Contract nearest_start(const Contract& c);
  [[nodiscard]] double score(const Contract& c, const std::vector<std::size_t>& probes);
  void descend(Contract& c, const std::vector<std::size_t>& probes, const std::vector<Change>& changes,
               bool pairs);
  [[nodiscard]] std::optional<Contract> best_of(const std::vector<std::pair<double, Contract>>& tried,
                                                const Contract& c, double now,
                                                const std::vector<Contract>& been,
                                                const std::vector<std::size_t>& probes);
  [[nodiscard]] bool at_floor(const Contract& c, const std::vector<std::size_t>& probes);
  [[nodiscard]] static std::vector<Contract> neighbours(const Contract& c,
                                                        const std::vector<Change>& changes);

  CardDistance& distance_;
  const CardOptions& options_;
  std::vector<const ContractPoint*> points_;
  Contract now_;  ///< the contract that the drift scores belong to
};

}  // namespace samestate
