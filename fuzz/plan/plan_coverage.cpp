#include "fuzz/plan/plan_coverage.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace samestate {

struct PlanCoverage::Kernel {
  explicit Kernel(const KernelCoverage& of)
      : row(of.kernel),
        factors(covered_factors_of(*row)),
        missing(of.missing),
        whole(of.whole),
        pairs(factors, 2),
        triples(factors, 3) {}

  /// A larger effort may cover a pair that effort 1 does not.
  [[nodiscard]] bool possible(std::int64_t pair) const {
    return missing[static_cast<std::size_t>(pair)] != Missing::impossible || pairs.has(pair);
  }
  [[nodiscard]] std::string name(std::int64_t pair) const {
    const std::vector<int> levels = pairs.levels(pair);
    std::string out;
    for (std::size_t f = 0; f < factors.size(); ++f) {
      if (levels[f] < 0) continue;
      out += fmt::format("{}{}={}", out.empty() ? "" : " with ", factors[f].name,
                         factors[f].levels[static_cast<std::size_t>(levels[f])]);
    }
    return out;
  }
  /// Returns the pairs that are possible, affordable and not covered; none if the plan's time did not suffice
  /// for all of them.
  [[nodiscard]] std::vector<std::string> left(std::size_t most) const {
    std::vector<std::string> out;
    if (!whole) return out;
    for (std::int64_t at = 0; at < pairs.size() && out.size() < most; ++at) {
      if (missing[static_cast<std::size_t>(at)] == Missing::none && !pairs.has(at)) out.push_back(name(at));
    }
    return out;
  }
  [[nodiscard]] std::vector<std::int64_t> left() const {
    std::vector<std::int64_t> out;
    if (!whole) return out;
    for (std::int64_t at = 0; at < pairs.size(); ++at) {
      if (missing[static_cast<std::size_t>(at)] == Missing::none && !pairs.has(at)) out.push_back(at);
    }
    return out;
  }
  [[nodiscard]] CoverageCount of_pairs() const {
    CoverageCount out;
    for (std::int64_t at = 0; at < pairs.size(); ++at) {
      out.possible += possible(at);
      out.met += pairs.has(at);
      out.dear += (missing[static_cast<std::size_t>(at)] == Missing::dear || (!whole && possible(at))) &&
                  !pairs.has(at);
    }
    return out;
  }
  [[nodiscard]] CoverageCount of_triples() const {
    CoverageCount out{0, triples.met(), 0};
    for (std::int64_t at = 0; at < triples.size(); ++at) {
      if (triples.has(at)) {
        ++out.possible;
        continue;
      }
      const std::vector<int> levels = triples.levels(at);
      std::vector<std::size_t> of;
      for (std::size_t f = 0; f < levels.size(); ++f) {
        if (levels[f] >= 0) of.push_back(f);
      }
      const auto pair = [&](std::size_t a, std::size_t b) {
        return possible(pairs.at(of[a], levels[of[a]], of[b], levels[of[b]]));
      };
      out.possible += pair(0, 1) && pair(0, 2) && pair(1, 2);
    }
    return out;
  }

  const KernelRow* row;
  std::vector<Factor> factors;
  std::vector<Missing> missing;
  bool whole;  ///< KernelCoverage::whole
  Combinations pairs, triples;
};

PlanCoverage::PlanCoverage(const Plan& plan) {
  for (const KernelCoverage& of : plan.kernels) kernels_.push_back(std::make_unique<Kernel>(of));
}

PlanCoverage::~PlanCoverage() = default;
PlanCoverage::PlanCoverage(PlanCoverage&&) noexcept = default;

void PlanCoverage::add(const Case& c, std::string_view kernel) {
  const auto found =
      std::find_if(kernels_.begin(), kernels_.end(), [&](const auto& of) { return of->row->name == kernel; });
  if (found == kernels_.end()) return;
  const std::vector<int> levels = levels_of((*found)->factors, c);
  (void)(*found)->pairs.add(levels);
  (void)(*found)->triples.add(levels);
}

std::vector<Case> PlanCoverage::again(const KernelTable& table, std::uint64_t seed, int round) const {
  // With fewer judged, its cases were skipped or refused, and more cases would be too.
  constexpr double kMostJudged = 0.8;
  std::vector<Case> out;
  for (const auto& kernel : kernels_) {
    const CoverageCount count = kernel->of_pairs();
    if (static_cast<double>(count.met) < kMostJudged * static_cast<double>(count.possible - count.dear))
      continue;
    std::int64_t index = 0;
    for (Case c : cover_again(*kernel->row, kernel->factors, kernel->left(), round, {.seed = seed})) {
      // The case gets data of its own and the requested threads.
      const std::uint64_t threads = c.seed % 3;
      c.seed = (seed << 32) ^
               (0xc0000000U + 0x1000000U * static_cast<unsigned>(round) + 4 * static_cast<unsigned>(index++));
      while (c.seed % 3 != threads) ++c.seed;
      if (!table.is_standard(*kernel->row, c)) c.kernel = kernel->row->name;
      out.push_back(std::move(c));
    }
  }
  return out;
}

namespace {

CoverageCount& operator+=(CoverageCount& to, const CoverageCount& other) {
  to.possible += other.possible;
  to.met += other.met;
  to.dear += other.dear;
  return to;
}

nlohmann::ordered_json json_of(const CoverageCount& count) {
  return {{"possible", count.possible}, {"met", count.met}, {"share", count.share()}};
}

}  // namespace

bool PlanCoverage::counts(const Kernel& kernel) {
  return kernel.row->device == "cpu" || kernel.pairs.met() > 0;
}

CoverageCount PlanCoverage::pairs() const {
  CoverageCount out;
  for (const auto& kernel : kernels_) {
    if (counts(*kernel)) out += kernel->of_pairs();
  }
  return out;
}

CoverageCount PlanCoverage::triples() const {
  CoverageCount out;
  for (const auto& kernel : kernels_) {
    if (counts(*kernel)) out += kernel->of_triples();
  }
  return out;
}

std::vector<std::string> PlanCoverage::missing(std::size_t most) const {
  std::vector<std::string> out;
  for (const auto& kernel : kernels_) {
    if (!counts(*kernel)) continue;
    for (const std::string& pair : kernel->left(most - out.size()))
      out.push_back(kernel->row->name + ": " + pair);
  }
  return out;
}

std::string PlanCoverage::text() const {
  const CoverageCount two = pairs();
  const CoverageCount three = triples();
  return fmt::format(
      "judged: {} of {} pairs of contract, regime, form, law, sizes and settings ({:.1f} %{}), {:.0f} % of "
      "triples",
      two.met, two.possible, 100 * two.share(),
      two.dear == 0 ? ""
                    : fmt::format("; {}{} take more time than the plan gives them (--effort)",
                                  two.met + two.dear == two.possible ? "the other " : "", two.dear),
      100 * three.share());
}

std::string PlanCoverage::json() const {
  nlohmann::ordered_json out{{"pairs", json_of(pairs())}, {"triples", json_of(triples())}};
  out["pairs"]["dear"] = pairs().dear;
  out["kernels"] = nlohmann::ordered_json::array();
  for (const auto& kernel : kernels_) {
    const CoverageCount count = kernel->of_pairs();
    out["kernels"].push_back({{"kernel", kernel->row->name},
                              {"possible", count.possible},
                              {"met", count.met},
                              {"dear", count.dear},
                              {"missing", kernel->left(static_cast<std::size_t>(count.possible))}});
  }
  return out.dump(1);
}

}  // namespace samestate
