#include "fuzz/plan/probed_limits.h"

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string_view>
#include <utility>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/refusals.h"
#include "harness/cases/keys.h"
#include "harness/cases/system.h"
#include "harness/records/record.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Cases = std::vector<Case>;

/// Seeds with which a refused case is tried again, and regimes without values that a function may refuse:
/// large values, signs, strong or missing decays and writes, keys that are not unit vectors.
constexpr std::uint64_t kMoreSeeds = 2;
constexpr std::array<std::string_view, 9> kOtherData = {
    "tiny_v", "exact", "none", "strong", "beta_zero", "positive", "tiny_norms", "tiny", "zeros"};
/// Number of cases tried in search of a first one that is accepted.
constexpr std::size_t kMostStarts = 240;
/// Rounds of cases that combine values accepted one at a time, and the cases of a round.
constexpr int kRounds = 3;
constexpr int kTogether = 12;

class Probing {
 public:
  Probing(const KernelRow& kernel, const std::function<CaseResult(const Case&)>& run,
          const std::function<bool()>& stop)
      : kernel_(kernel), system_(*kernel.system), run_(run), stop_(stop) {}

  ProbedLimits find() {
    if (find_base()) {
      const std::vector<Cases> varied = variations();
      std::vector<Cases> took;
      for (const Cases& of_key : varied) {
        Cases& some = took.emplace_back();
        for (const Case& c : of_key) {
          if (takes(c).value_or(false)) some.push_back(c);
        }
      }
      put_together(took);
    }
    out_.took_any = !taken_.empty();
    out_.refused = std::ssize(refused_);
    out_.limits = separating_limits(refused_, taken_);
    return std::move(out_);
  }

 private:
  std::optional<std::string> refused_with(const Case& c) {
    ++out_.calls;
    const Judgement j = run_(c).judgement;
    const bool inside = j.verdict == Verdict::fail && j.gate == "limits";
    if ((j.verdict == Verdict::crash && j.gate == kRefusal) || inside) return j.reason;
    return {};
  }

  /// Returns true if the kernel takes the case, whatever the data; nullopt if it is not a case of the kernel.
  std::optional<bool> takes(const Case& c) {
    if (stop_ && stop_()) out_.stopped = true;
    if (out_.stopped || !possible(c) || !within_limits(kernel_, c)) return {};
    if (std::ranges::find(taken_, c) != taken_.end()) return true;
    if (std::ranges::find(refused_, c) != refused_.end()) return false;
    const std::optional<std::string> why = refused_with(c);
    if (!why) {
      taken_.push_back(c);
      return true;
    }
    for (const Case& other : with_other_data(c)) {
      if (refused_with(other)) continue;
      if (out_.by_values.empty()) out_.by_values = *why;
      taken_.push_back(c);
      return true;
    }
    if (out_.refusal.empty()) out_.refusal = *why;
    refused_.push_back(c);
    return false;
  }

  [[nodiscard]] Cases with_other_data(const Case& c) const {
    Cases out;
    const auto add = [&](Case other) {
      if (possible(other) && within_limits(kernel_, other)) out.push_back(std::move(other));
    };
    for (std::uint64_t more = 1; more <= kMoreSeeds; ++more) {
      add(c);
      if (!out.empty()) out.back().seed += more;
    }
    for (const Regime* regime : system_.regimes) {
      if (std::ranges::find(kOtherData, std::string_view(regime->name)) == kOtherData.end()) continue;
      Case other = c;
      other.regime = regime->name;
      add(std::move(other));
    }
    return out;
  }

  /// Finds the first accepted case, starting with those with the fewest settings besides a model's sizes.
  bool find_base() {
    std::vector<std::string> sizes{""};
    if (system_.of_family())
      for (const char* more : {"dk=128 dv=128", "Hk=2 Hv=2 dk=128 dv=128", "Hk=16 Hv=16 dk=128 dv=128",
                               "Hk=4 Hv=4 dk=64 dv=64", "dk=256 dv=256", "dk=16 dv=16", "dk=32 dv=32"})
        sizes.emplace_back(more);
    sizes.insert(sizes.end(), system_.plan.models.begin(), system_.plan.models.end());
    std::vector<std::string> settings{""};
    if (system_.has_key("state")) settings.insert(settings.end(), {"state=random"});
    if (system_.has_key("l2norm")) settings.insert(settings.end(), {"l2norm=1", "l2norm=1 state=random"});
    std::vector<std::pair<std::size_t, Case>> starts;
    const std::array<const char*, 4> tokens{"T=64", "T=128", "T=1", "T=256"};
    for (std::size_t s = 0; s < sizes.size(); ++s) {
      for (std::size_t w = 0; w < settings.size(); ++w) {
        for (std::size_t t = 0; t < tokens.size(); ++t) {
          for (std::size_t k = 0; k < kernel_.contracts.size(); ++k) {
            try {
              Case c = with_part(kernel_, start_of(kernel_), sizes[s]);
              c = with_part(kernel_, with_keys(std::move(c), settings[w]), tokens[t]);
              c.contract = kernel_.contracts[k], c.kernel = kernel_.name;
              starts.emplace_back(s + w + 2 * t + k, kernel_.limits.nearest(std::move(c)));
            } catch (const Error&) {
              continue;  // the system has no such sizes or settings
            }
          }
        }
      }
    }
    std::ranges::stable_sort(starts, {}, &std::pair<std::size_t, Case>::first);
    if (starts.size() > kMostStarts) starts.resize(kMostStarts);
    for (const auto& [dear, c] : starts) {
      if (!takes(c).value_or(false)) continue;
      base_ = c;
      // The cases refused before it differ from it in several keys, any one of which may be the cause.
      refused_.clear();
      return true;
    }
    return false;
  }

  /// Returns the base with each of the partial lines in turn in place of its own values.
  [[nodiscard]] Cases with_parts(const std::vector<std::string>& parts) const {
    Cases out;
    for (const std::string& part : parts) {
      try {
        out.push_back(with_part(kernel_, base_, part));
      } catch (const Error&) {
        continue;  // the system lacks a size or setting
      }
    }
    return out;
  }

  [[nodiscard]] Cases with_values(const std::string& key, std::initializer_list<Index> values) const {
    std::vector<std::string> parts;
    for (const Index value : values) parts.push_back(key + "=" + std::to_string(value));
    return with_parts(parts);
  }

  /// Returns cases grouped by the key, or dependent keys, in which they differ from the base.
  [[nodiscard]] std::vector<Cases> variations() const {
    std::vector<Cases> out;
    const auto sizes = {128L, 64L, 32L, 256L, 16L, 96L, 192L, 100L, 48L, 8L, 3L};
    if (system_.of_family()) {
      out.push_back(
          with_parts({"dk=128 dv=128", "dk=64 dv=64", "dk=32 dv=32", "dk=256 dv=256", "dk=16 dv=16"}));
      out.push_back(
          with_parts({"Hk=1 Hv=1", "Hk=2 Hv=2", "Hk=4 Hv=4", "Hk=8 Hv=8", "Hk=16 Hv=16", "Hk=3 Hv=3",
                      "Hk=1 Hv=2", "Hk=2 Hv=4", "Hk=1 Hv=4", "Hk=4 Hv=16", "Hk=2 Hv=6"}));
    }
    for (const CaseSize& size : system_.sizes) {
      const std::string name(size.name);
      if (name != "Hk" && name != "Hv") out.push_back(with_values(name, sizes));
    }
    out.push_back(with_values("T", {128, 1, 16, 65, 32, 256, 63, 48, 2, 8, 24, 33, 96, 31, 192, 100, 300}));
    out.push_back(with_values("B", {2, 3, 4}));
    if (base_.chunk > 0) out.push_back(with_values("chunk", {64, 32, 16, 128}));
    if (system_.form("packed") != nullptr)
      out.push_back(
          with_parts({"form=packed lengths=64,64", "form=packed lengths=17,47", "form=packed lengths=128"}));
    Cases contracts;
    for (const std::string& contract : kernel_.contracts)
      contracts.push_back(base_), contracts.back().contract = contract;
    out.push_back(std::move(contracts));
    for (const Key& key : keys()) {
      if (key.values.empty() || !tries(kernel_, key) || key.name == "contract" || key.name == "law" ||
          key.name == "regime" || key.name == "repeat" || key.name == "cuts")
        continue;
      std::vector<std::string> parts;
      for (const std::string_view value : key.values)
        parts.push_back(std::string(key.name) + "=" + std::string(value));
      if (key.value != nullptr && !key.value(Case{}).empty())
        parts.push_back(std::string(key.name) + "=" + key.value(Case{}));
      out.push_back(with_parts(parts));
    }
    return out;
  }

  /// Dependent sizes, such as Hv = Hk, show whether values accepted one at a time also work together.
  void put_together(const std::vector<Cases>& took) {
    std::mt19937_64 bits(11);
    for (int round = 0; round < kRounds; ++round) {
      const std::size_t before = refused_.size();
      for (int i = 0; i < kTogether; ++i) {
        Case c = base_;
        for (const Cases& of_key : took) {
          if (!of_key.empty() && bits() % 3 == 0) merge(of_key[bits() % of_key.size()], c);
        }
        (void)takes(c);
      }
      if (refused_.size() == before) return;
    }
  }

  /// Copies into the case the values in which the other case differs from the base.
  void merge(const Case& from, Case& into) const {
    if (from.form != base_.form || into.form != base_.form) return;
    for (const Key& key : keys()) {
      if (key.value == nullptr || key.name == "seed" || key.name == "kernel") continue;
      try {
        if (const std::string value = key.value(from); value != key.value(base_) && !value.empty())
          key.parse(into, value);
      } catch (const Error&) {
        continue;
      }
    }
    for (const auto& [name, value] : from.parameters) {
      if (value != base_.parameters.at(name)) into.parameters[name] = value;
    }
  }

  const KernelRow& kernel_;
  const System& system_;
  const std::function<CaseResult(const Case&)>& run_;
  const std::function<bool()>& stop_;
  Case base_;
  ProbedLimits out_;
  Cases refused_, taken_;
};

}  // namespace

ProbedLimits probe_limits(const KernelRow& kernel, const std::function<CaseResult(const Case&)>& run,
                          const std::function<bool()>& stop) {
  return Probing(kernel, run, stop).find();
}

}  // namespace samestate
