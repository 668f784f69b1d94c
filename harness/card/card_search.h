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

/// The search of the contract whose twin is nearest to what a kernel wrote on probes, by changes of one point and of two.
class CardSearch {
 public:
  /// All three outlive it.
  CardSearch(const KernelRow& kernel, CardDistance& distance, const CardOptions& options);

  /// The contract that is nearest, from the nearest of the named ones on.
  [[nodiscard]] Contract run(Contract c);
  /// Where it begins.
  [[nodiscard]] Contract begin(Contract c);
  /// What of `declared` the outputs do not tell from `found`, at once or point by point, and the rest of `found`: of values
  /// that are alike the kernel's author knows which it is.
  [[nodiscard]] Contract as_declared(Contract found, const Contract& declared);

  [[nodiscard]] bool stopped() const { return options_.stop && options_.stop(); }
  /// Those that the kernel's form reads.
  [[nodiscard]] const std::vector<const ContractPoint*>& points() const { return points_; }

 private:
  /// One point at a value.
  struct Change {
    const ContractPoint* point;
    std::string_view value;
  };

  /// Probes that have outputs.
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
  Contract now_;  ///< whose drift scores are about
};

}  // namespace samestate
