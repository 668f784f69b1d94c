#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "fuzz/mutants/fused.h"
#include "fuzz/mutants/rows.h"
#include "reference/error.h"

namespace samestate {
namespace {

using namespace mutants;

/// What CI runs: of each bug the first fault in either form, of the gated delta rule where it fits, and every
/// operator's and adversary's. The slow ones wait for the whole run.
void mark_smoke(std::vector<Mutant>& all) {
  static const std::set<std::string_view> kSlow = {"sleeps", "long_sequence_tail_lost", "grid_of_65535"};
  std::set<std::pair<std::string_view, std::string_view>> have;
  for (const bool preferred : {true, false}) {
    for (Mutant& m : all) {
      if (!m.equivalent.empty() || kSlow.count(m.fault) > 0 || m.rows.empty()) continue;
      if (preferred && m.system != "gated_delta_rule") continue;
      m.smoke = m.smoke || m.bug == "H1.7" || have.emplace(m.bug, m.form).second;
    }
  }
}

std::vector<Mutant> make_table() {
  std::vector<Mutant> all;
  for (auto make : {decay_mutants, delta_mutants, state_mutants, layout_mutants, precision_mutants,
                    fused_mutants, adversaries, operator_mutants}) {
    for (Mutant& m : make()) all.push_back(std::move(m));
  }
  // F01..F08, M01..M90, then the subjects of the harness.
  std::stable_sort(all.begin(), all.end(), [](const Mutant& x, const Mutant& y) {
    return std::pair(x.bug[0] == 'H', x.bug) < std::pair(y.bug[0] == 'H', y.bug);
  });
  mark_smoke(all);
  return all;
}

constexpr std::array kNotModelled = {
    NotModelled{"M73", "gradients of one compiler on one architecture: there is no backward kernel"},
};

}  // namespace

std::span<const Mutant> all_mutants() {
  static const std::vector<Mutant> table = make_table();
  return table;
}

const Mutant& mutant_named(std::string_view name) {
  std::string near;
  for (const Mutant& m : all_mutants()) {
    if (m.name == name) return m;
    if (m.name.find(name) != std::string::npos || m.fault == name.substr(0, name.find('.')))
      near += (near.empty() ? "" : ", ") + m.name;
  }
  throw Error(fmt::format("mutant {}: no such mutant; {}", name,
                          near.empty() ? "`samestate list mutants` shows them" : "did you mean " + near));
}

std::span<const NotModelled> not_modelled() { return kNotModelled; }

std::span<const Kernel> unmutated_kernels() {
  static const std::vector<Kernel> rows = [] {
    std::vector<Kernel> all;
    const std::vector<std::string> contracts = Entry{"", "", ""}.contracts;
    for (unsigned system = 1; system <= kLinear; system *= 2) {
      const std::string name(system_name(system));
      all.push_back({"evaluator." + name + ".chunked", name, "chunked", "cpu", contracts,
                     function_of<Chunked>(system)});
      all.push_back({"evaluator." + name + ".recurrent", name, "recurrent", "cpu", contracts,
                     function_of<Recurrent>(system)});
      const std::vector<std::string> fused = {"fp32_fused", "tf32_fused", "bf16_fused", "bf16_fused_state"};
      all.push_back({"evaluator_fused." + name + ".chunked", name, "chunked", "cpu", fused,
                     function_of<FusedChunked>(system)});
      all.push_back({"evaluator_fused." + name + ".recurrent", name, "recurrent", "cpu", fused,
                     function_of<FusedRecurrent>(system)});
    }
    return all;
  }();
  return rows;
}

}  // namespace samestate
