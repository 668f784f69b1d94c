#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fuzz/mutants/family/evaluator.h"
#include "fuzz/mutants/mutant.h"

/// Makes rows of the table of mutants from evaluators with a fault.
namespace samestate::mutants {

/// The systems to which a fault applies.
enum Systems : unsigned {
  kGatedDelta = 1,
  kDelta = 2,
  kRetention = 4,
  kLinear = 8,
  kDeltas = kGatedDelta | kDelta,
  kGated = kGatedDelta | kRetention,
  kAll = 15
};

[[nodiscard]] constexpr const cpu::System& system_of(unsigned system) {
  return system == kGatedDelta  ? cpu::GATED_DELTA_RULE
         : system == kDelta     ? cpu::DELTA_RULE
         : system == kRetention ? cpu::RETENTION
                                : cpu::LINEAR_ATTENTION;
}

/// The row of a kernel whose function is the evaluator Fault.
template <class Fault>
[[nodiscard]] Kernel kernel_of(const cpu::System& system, const std::string& stem,
                               const std::vector<std::string>& contracts) {
  const std::string name(system.name);
  return {stem + "." + name + "." + Fault::form,
          name,
          Fault::form,
          "cpu",
          contracts,
          [&system](const Arguments& arguments, const Contract& contract) {
            const Contract kept = Fault::kept(contract);
            return Fault(system, arguments, kept).run();
          }};
}

struct Entry {
  const char* bug;
  const char* fault;
  const char* summary;
  /// The contracts that the row promises. A kernel that promises only bf16 is never run in fp32, in which
  /// logic errors and undeclared roundings are most visible.
  std::vector<std::string> contracts = {"fp32", "bf16", "fp16", "bf16_state"};
};

inline const std::vector<std::string> kOnlyBf16 = {"bf16"};
inline const std::vector<std::string> kOnlyFp16 = {"fp16"};

/// Fault derives from Recurrent or Chunked; the companion is the other form, without a fault.
template <class Fault,
          class Companion = std::conditional_t<std::is_base_of_v<Chunked, Fault>, Recurrent, Chunked>>
void add(std::vector<Mutant>& out, const Entry& entry, unsigned systems) {
  for (unsigned system = 1; system <= kLinear; system *= 2) {
    if ((systems & system) == 0) continue;
    Mutant m;
    m.bug = entry.bug;
    m.fault = entry.fault;
    m.system = system_of(system).name;
    m.form = Fault::form;
    m.summary = entry.summary;
    m.name = m.fault + "." + m.system + "." + m.form;
    m.rows = {kernel_of<Fault>(system_of(system), "mutant." + m.fault, entry.contracts),
              kernel_of<Companion>(system_of(system), "mutant." + m.fault, entry.contracts)};
    out.push_back(std::move(m));
  }
}

/// Adds the same fault to both forms.
template <template <class> class Fault>
void add_both(std::vector<Mutant>& out, const Entry& entry, unsigned systems) {
  add<Fault<Chunked>>(out, entry, systems);
  add<Fault<Recurrent>>(out, entry, systems);
}

/// One list per file.
[[nodiscard]] std::vector<Mutant> decay_mutants();
[[nodiscard]] std::vector<Mutant> delta_mutants();
[[nodiscard]] std::vector<Mutant> state_mutants();
[[nodiscard]] std::vector<Mutant> layout_mutants();
[[nodiscard]] std::vector<Mutant> interface_mutants();
[[nodiscard]] std::vector<Mutant> precision_mutants();
[[nodiscard]] std::vector<Mutant> fused_mutants();
[[nodiscard]] std::vector<Mutant> ranks_mutants();
[[nodiscard]] std::vector<Mutant> heads_mutants();
[[nodiscard]] std::vector<Mutant> backward_mutants();
[[nodiscard]] std::vector<Mutant> adversaries();

}  // namespace samestate::mutants
