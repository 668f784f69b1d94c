#include "harness/card/neighbours.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "harness/card/card_distance.h"
#include "harness/card/operator_neighbours.h"
#include "harness/run/judge_batch.h"
#include "harness/systems/recurrent_system.h"
#include "harness/systems/saved_run.h"
#include "harness/systems/tensor_system.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

using Clock = std::chrono::steady_clock;

/// A contract and the distance of its twin: the geometric mean of the distances of o and of the state.
struct Tried {
  double distance;
  Contract contract;
};

class Neighbourhood {
 public:
  Neighbourhood(const Resolved& r, const Family& family, Batch batch, const Outputs& outputs, double seconds,
                const std::function<bool()>& stop)
      : case_(r),
        family_(family),
        probes_{{"the case", Shows::all, r.c, std::move(batch)}},
        outputs_(outputs),
        distance_(std::string(family.name), probes_, {outputs}),
        end_(Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3))),
        stop_(stop) {}

  [[nodiscard]] Neighbours look() {
    Neighbours out;
    const double own = distance(*case_.contract);
    std::vector<Tried> first = around({*case_.contract});
    add_named(first);
    out.changes = 1;
    take(out, first, own);
    // The better half of a good pair is seldom among the worse single changes.
    constexpr std::size_t kFirst = 8;
    if (out.passes.empty() && !up()) {
      std::vector<Contract> from;
      for (std::size_t i = 0; i < std::min(kFirst, first.size()); ++i) from.push_back(first[i].contract);
      std::vector<Tried> second = around(from);
      out.changes = 2;
      take(out, second, own);
    }
    out.complete = !up();
    return out;
  }

 private:
  [[nodiscard]] bool up() const { return Clock::now() >= end_ || (stop_ && stop_()); }

  [[nodiscard]] double distance(const Contract& c) {
    const OutputDistance d = distance_.of(0, c);
    return std::sqrt(std::max(d[0], 1e-9) * std::max(d[1], 1e-9));
  }

  /// Returns the contracts one change away from any of these, nearest first.
  [[nodiscard]] std::vector<Tried> around(const std::vector<Contract>& from) {
    std::vector<Tried> out;
    for (const Contract& c : from) {
      for (const ContractPoint& point : contract_points()) {
        const bool here = (point.recurrent || !case_.unchunked()) && (!point.delta || family_.delta);
        if (!here || point.name == "input" || point.name == "card") continue;
        for (const std::string_view value : point.values) {
          if (up()) break;
          Contract other = c;
          if (point.value(c) == value || !changed(other, point.name, value)) continue;
          out.push_back({distance(other), std::move(other)});
        }
      }
    }
    std::stable_sort(out.begin(), out.end(), nearer);
    return out;
  }

  /// Adds the named contracts, with the formats of the kernel's tensors: a kernel that rounds nothing between
  /// input and output is many changes away from one that stores at each point.
  void add_named(std::vector<Tried>& to) {
    const Contract& own = *case_.contract;
    for (const NamedContract& row : contracts()) {
      Contract other = row.contract;
      other.nearest = own.nearest;
      if (up() || other.input != own.input || other.output != own.output || other.state != own.state)
        continue;
      to.push_back({distance(other), std::move(other)});
    }
    std::stable_sort(to.begin(), to.end(), nearer);
  }
  [[nodiscard]] static bool nearer(const Tried& a, const Tried& b) { return a.distance < b.distance; }

  void take(Neighbours& out, const std::vector<Tried>& tried, double own) {
    constexpr std::size_t kJudged = 6;
    constexpr std::size_t kShown = 3;
    for (std::size_t i = 0; i < std::min(kJudged, tried.size()) && !up(); ++i) {
      if (tried[i].distance >= own || out.passes.size() == kShown) break;
      Case as = case_.c;
      as.contract = contract_of(tried[i].contract).name;
      if (std::find(out.passes.begin(), out.passes.end(), as.contract) != out.passes.end()) continue;
      const Judgement j =
          judge_batch(Resolved(as), family_, probes_.front().batch, outputs_, kFilePolicy, {});
      if (j.verdict == Verdict::pass && j.twin_ratio <= 1.0) out.passes.push_back(as.contract);
    }
    if (tried.empty() || tried.front().distance >= own || own / tried.front().distance <= out.factor) return;
    out.nearest = contract_of(tried.front().contract).name;
    out.factor = own / tried.front().distance;
  }

  const Resolved& case_;
  const Family& family_;
  std::vector<Probe> probes_;
  const Outputs& outputs_;
  CardDistance distance_;
  Clock::time_point end_;
  const std::function<bool()>& stop_;
};

}  // namespace

std::string Neighbours::text() const {
  if (!passes.empty()) {
    return fmt::format("passes under contract {}{}", fmt::join(passes, ", or "),
                       coarser ? ": roundings of its, or a fault as small as they" : "");
  }
  const std::string near =
      nearest.empty() ? "" : fmt::format("; the nearest, {:.2g} times nearer, is {}", factor, nearest);
  if (!complete) return fmt::format("no contract that the time allowed to try explains this{}", near);
  return fmt::format("no other contract within two changes explains these values either{}", near);
}

bool is_about_the_contract(const Resolved& r, const Judgement& j) {
  const bool tensors = !r.system->of_family();
  const bool of_worst_case = j.gate == "element" && r.contract->input == Format::fp32;
  const bool failed =
      j.verdict == Verdict::fail &&
      (j.gate.starts_with("twin") || (tensors && (j.gate.starts_with("sampled") || of_worst_case)));
  // The error that three tf32 products may cause is near the limits of fp32.
  constexpr double kOfThreeProducts = 64.0;
  const bool of_products =
      !tensors && j.verdict == Verdict::fail && same_points(*r.contract, contract_named("fp32")) &&
      (j.gate == "row" || j.gate == "head" || j.gate == "state") && j.ratio < kOfThreeProducts;
  const bool far = j.verdict == Verdict::pass && r.promised.nearest && j.twin_ratio > 1.0;
  return r.law == nullptr && (failed || far || of_products);
}

Neighbours neighbours_of(const Resolved& r, const Trace& run, double seconds,
                         const std::function<bool()>& stop) {
  return r.system->neighbours(r, run, seconds, stop);
}

Neighbours TensorSystem::neighbours(const Resolved& r, const Trace& run, double seconds,
                                    const std::function<bool()>& stop) const {
  return operator_neighbours_of(r, run, seconds, stop);
}

Neighbours RecurrentSystem::neighbours(const Resolved& r, const Trace& run, double seconds,
                                       const std::function<bool()>& stop) const {
  if (!low_precision(*r.contract)) {
    // fp32 has no twin to compare with.
    Neighbours out;
    out.coarser = true;
    Case as = r.c;
    as.contract = "tf32x3";
    if (judge_run(Resolved(as), run).verdict == Verdict::pass) out.passes.push_back(as.contract);
    return out;
  }
  const Outputs outputs = outputs_of(run.outputs);
  return Neighbourhood(r, family, batch(r, run.inputs, run.given), outputs, seconds, stop).look();
}

}  // namespace samestate
