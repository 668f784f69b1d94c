#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/mutants/evaluator.h"
#include "fuzz/mutants/mutant.h"

/// From an evaluator with a fault to a row of the table of mutants.
namespace samestate::mutants {

/// Which systems a fault fits.
enum Systems : unsigned {
  kGatedDelta = 1,
  kDelta = 2,
  kRetention = 4,
  kLinear = 8,
  kDeltas = kGatedDelta | kDelta,
  kGated = kGatedDelta | kRetention,
  kAll = 15
};

/// A kernel's function holds no state, so each (fault, system) has one of its own.
template <class Fault, const cpu::System& system>
Outcome run_fault(const Arguments& arguments, const Contract& contract) {
  return Fault(system, arguments, contract).run();
}

template <class Fault>
auto function_of(unsigned system) {
  return system == kGatedDelta  ? run_fault<Fault, cpu::GATED_DELTA_RULE>
         : system == kDelta     ? run_fault<Fault, cpu::DELTA_RULE>
         : system == kRetention ? run_fault<Fault, cpu::RETENTION>
                                : run_fault<Fault, cpu::LINEAR_ATTENTION>;
}

[[nodiscard]] constexpr std::string_view system_name(unsigned system) {
  return system == kGatedDelta  ? cpu::GATED_DELTA_RULE.name
         : system == kDelta     ? cpu::DELTA_RULE.name
         : system == kRetention ? cpu::RETENTION.name
                                : cpu::LINEAR_ATTENTION.name;
}

struct Entry {
  const char* bug;
  const char* fault;
  const char* summary;
  /// What the row promises. A kernel that promises bf16 alone is never run in fp32, where logic errors and
  /// undeclared roundings stand out most.
  std::vector<std::string> contracts = {"fp32", "bf16", "fp16", "bf16_state"};
};

inline const std::vector<std::string> kOnlyBf16 = {"bf16"};
inline const std::vector<std::string> kOnlyFp16 = {"fp16"};

/// Fault derives from Recurrent or Chunked; the companion is the other, without a fault.
template <class Fault,
          class Companion = std::conditional_t<std::is_base_of_v<Chunked, Fault>, Recurrent, Chunked>>
void add(std::vector<Mutant>& out, const Entry& entry, unsigned systems) {
  for (unsigned system = 1; system <= kLinear; system *= 2) {
    if ((systems & system) == 0) continue;
    Mutant m;
    m.bug = entry.bug;
    m.fault = entry.fault;
    m.system = system_name(system);
    m.form = Fault::form;
    m.summary = entry.summary;
    m.name = m.fault + "." + m.system + "." + m.form;
    const std::string stem = "mutant." + m.fault + "." + m.system + ".";
    m.rows = {{stem + m.form, m.system, m.form, "cpu", entry.contracts, function_of<Fault>(system)},
              {stem + Companion::form, m.system, Companion::form, "cpu", entry.contracts,
               function_of<Companion>(system)}};
    out.push_back(std::move(m));
  }
}

/// The same fault on either form.
template <template <class> class Fault>
void add_both(std::vector<Mutant>& out, const Entry& entry, unsigned systems) {
  add<Fault<Chunked>>(out, entry, systems);
  add<Fault<Recurrent>>(out, entry, systems);
}

/// One list a file.
[[nodiscard]] std::vector<Mutant> decay_mutants();
[[nodiscard]] std::vector<Mutant> delta_mutants();
[[nodiscard]] std::vector<Mutant> state_mutants();
[[nodiscard]] std::vector<Mutant> layout_mutants();
[[nodiscard]] std::vector<Mutant> precision_mutants();
[[nodiscard]] std::vector<Mutant> fused_mutants();
[[nodiscard]] std::vector<Mutant> adversaries();
[[nodiscard]] std::vector<Mutant> operator_mutants();

}  // namespace samestate::mutants
