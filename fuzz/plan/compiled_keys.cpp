#include "fuzz/plan/compiled_keys.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <utility>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/refusals.h"
#include "harness/cases/keys.h"
#include "harness/cases/system.h"
#include "harness/run/call_variant.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Tokens of a case that is judged quickly.
constexpr Index kTokens = 64;

/// Returns a size of a tensor, or another number of the call.
Index& number_in(Case& c, std::string_view name) {
  return name == "T" ? c.T : name == "B" ? c.B : name == "chunk" ? c.chunk : size_in(c, name);
}

class Search {
 public:
  Search(const KernelRow& kernel, const std::function<CaseResult(const Case&)>& run,
         const std::function<bool()>& stop)
      : kernel_(kernel), run_(run), stop_(stop) {}

  CompiledKeys find() {
    if (!find_base()) return std::move(out_);
    // If a second call of the same sizes compiles again, none of the sizes is the reason.
    if (compiles(base_).value_or(false) || !out_.any) return finished();
    for (const CaseSize& size : kernel_.system->sizes) look_at_size(size.name);
    look_at_size("T");
    look_at_size("B");
    if (kernel_.form == "chunked") look_at_size("chunk");
    look_at_words("contract", kernel_.contracts);
    for (const Key& key : keys()) {
      if (key.name == "contract" || key.name == "law" || key.name == "regime" || key.name == "layout" ||
          key.name == "repeat" || key.values.empty() || !tries(kernel_, key))
        continue;
      look_at_words(key.name, {key.values.begin(), key.values.end()});
    }
    look_at_packed();
    look_at_refused_bases();
    return finished();
  }

 private:
  [[nodiscard]] bool stopped() const { return stop_ && stop_(); }

  /// Returns true if the calls of the case compiled something; nullopt if it is not a case of the kernel or
  /// did not run.
  std::optional<bool> compiles(const Case& c) {
    if (stopped() || !possible(c) || !within_limits(kernel_, c)) return {};
    ++out_.calls;
    const CaseResult result = run_(c);
    const Verdict verdict = result.judgement.verdict;
    if (verdict == Verdict::crash && result.judgement.gate == kRefusal) {
      if (out_.refusal.empty()) out_.refusal = result.judgement.reason;
      refused_.push_back(c);
      return {};
    }
    if (!is_judged(verdict) && verdict != Verdict::vacuous) return {};
    taken_.push_back(c);
    out_.compile = std::max(out_.compile, result.spent.compile + result.spent.tune);
    const bool now = result.spent.compiled + result.spent.loaded > 0;
    out_.any = out_.any || now;
    return now;
  }

  bool find_base() {
    std::vector<std::string> parts(kernel_.system->plan.models.begin(), kernel_.system->plan.models.end());
    // These are sizes that functions with few accepted sizes ask for.
    if (kernel_.system->of_family())
      for (const char* more :
           {"Hk=16 Hv=16 dk=128 dv=128", "Hk=4 Hv=4 dk=64 dv=64", "dk=256 dv=256", "dk=16 dv=16"})
        parts.emplace_back(more);
    parts.emplace_back("");
    for (const std::string& part : parts) {
      try {
        Case c = kernel_.limits.nearest(with_part(kernel_, start_of(kernel_), part));
        c.T = kTokens, c.kernel = kernel_.name;
        if (compiles(c)) {
          base_ = c;
          return true;
        }
        // Cases that differ from the base in one of these sizes show which size it refuses.
        bases_.insert(bases_.end(), refused_.begin(), refused_.end());
        refused_.clear();
      } catch (const Error&) {
        continue;  // the system has no such sizes
      }
    }
    return false;
  }

  /// Returns the result for the base with another value of a size. The number of value heads is a multiple of
  /// the number of key heads.
  std::optional<bool> with_size(std::string_view name, Index value) {
    Case c = base_;
    if (name == "Hk" && c.Hk > 0 && c.Hv % value != 0) c.Hv = c.Hv / c.Hk * value;
    if (name == "Hv" && value % std::max<Index>(c.Hk, 1) != 0) c.Hk = std::gcd(c.Hk, value);
    number_in(c, name) = value;
    return compiles(c);
  }

  void look_at_size(std::string_view name) {
    if (!kernel_.system->has_key(name) && !base_.parameters.contains(name)) return;
    const Index now = number_in(base_, name);
    const bool sixteens = now % 16 == 0;
    // Take values of the same kind as the base's; for sizes of 1, values of a kind that it lacks, one after
    // another.
    const std::array<Index, 3> same = sixteens ? std::array<Index, 3>{now / 2, now * 2, now + 16}
                                               : std::array<Index, 3>{now + 1, now + 2, now * 3};
    std::optional<bool> first;
    std::size_t tried = 0;
    for (; tried < same.size() && !first; ++tried) {
      if (sixteens == (same[tried] % 16 == 0)) first = with_size(name, same[tried]);
    }
    if (!first) {  // the kernel takes only this value
      return;
    }
    if (*first && now > 1) return add(std::string(name));
    if (now == 1) {
      if (!*first) return;
      const std::optional<bool> again = with_size(name, same[tried - 1] + 2);
      return add(std::string(name) + (again && !*again ? std::string(kBySixteen) : ""));
    }
    std::optional<bool> other;
    for (const Index value :
         sixteens ? std::array{now / 2, now + 8, now + 1} : std::array{Index{16}, Index{48}, Index{160}}) {
      if (!other && sixteens != (value % 16 == 0)) other = with_size(name, value);
    }
    if (other && *other) add(std::string(name) + std::string(kBySixteen));
  }

  void look_at_words(std::string_view name, const std::vector<std::string>& values) {
    const Key* key = key_named(name);
    if (key == nullptr || key->parse == nullptr) return;
    std::vector<std::string> all = values;
    if (key->value != nullptr) all.push_back(key->value(Case{}));
    for (const std::string& value : all) {
      Case c = base_;
      try {
        key->parse(c, value);
      } catch (const Error&) {
        continue;
      }
      if (c == base_) continue;
      if (compiles(c).value_or(false)) return add(std::string(name));
    }
  }

  void look_at_packed() {
    Case c = base_;
    if (kernel_.system->form("packed") == nullptr) return;
    c.form = "packed", c.B = 1, c.lengths = {kTokens / 2, kTokens / 2}, c.T = kTokens;
    if (kernel_.form != "chunked") c.chunk = 0;
    if (compiles(c).value_or(false)) add("form");
  }

  void look_at_refused_bases() {
    for (const Case& c : bases_) {
      for (const CaseSize& size : kernel_.system->sizes) {
        const Index value = size_in(c, size.name);
        if (value != size_in(base_, size.name)) (void)with_size(size.name, value);
      }
    }
  }

  void add(std::string key) {
    if (std::ranges::find(out_.keys, key) == out_.keys.end()) out_.keys.push_back(std::move(key));
  }

  CompiledKeys finished() {
    out_.limits = separating_limits(refused_, taken_);
    return std::move(out_);
  }

  const KernelRow& kernel_;
  const std::function<CaseResult(const Case&)>& run_;
  const std::function<bool()>& stop_;
  Case base_;
  CompiledKeys out_;
  std::vector<Case> refused_, taken_;
  std::vector<Case> bases_;  ///< refused cases
};

}  // namespace

CompiledKeys find_compiled_keys(const KernelRow& kernel, const std::function<CaseResult(const Case&)>& run,
                                const std::function<bool()>& stop) {
  return Search(kernel, run, stop).find();
}

}  // namespace samestate
