#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/merge.h"
#include "fuzz/mutants/mutant.h"
#include "oracles/proofs/identities/identity.h"
#include "reference/error.h"

/// Replaces the mutants and the proofs in a build with SAMESTATE_JUDGE_ONLY (CMakeLists.txt): tables without
/// a row, and verbs that say that they are not there, and which build has them.
namespace samestate {

std::span<const Mutant> all_mutants() { return {}; }
std::span<const NotModelled> not_modelled() { return {}; }
std::span<const Kernel> unmutated_kernels() { return {}; }
std::span<const Identity> identities() { return {}; }

namespace cli {
namespace {

/// Takes whatever its namesake takes, so that the error is about the build and not about an option.
Command refusing(CLI::App& app) {
  app.allow_extras()->footer("This build does not have this verb; run it to learn which build does.");
  return [&app]() -> int {
    throw Error(app.get_name() + ": this build contains the judge only.  " + kWithEverything);
  };
}

}  // namespace

Command add_mutants(CLI::App& app) { return refusing(app); }
Command add_identities(CLI::App& app) { return refusing(app); }
Command add_equations(CLI::App& app) { return refusing(app); }
Command add_goldens(CLI::App& app) { return refusing(app); }

int merge_mutants(const std::vector<std::string>& files, const MergeOptions&) {
  throw Error((files.empty() ? "merge" : files.front()) +
              ": only a build with mutants can join their tables. " + kWithEverything);
}

}  // namespace cli
}  // namespace samestate
