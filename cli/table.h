#pragma once

#include <span>
#include <string>
#include <vector>

#include "harness/cases/case_filter.h"
#include "harness/run/run_case.h"
#include "reports/records/run.h"

namespace samestate::cli {

/// The kernels of this build and of the named plugins. Throws Error.
[[nodiscard]] KernelTable kernel_table(const std::vector<std::string>& plugins);

/// The same for cases of a filter: kernels that keep any contract promise those with changes that it names. `strict`:
/// the twin gates kernels with a nearest card too.
[[nodiscard]] KernelTable kernel_table(const std::vector<std::string>& plugins, const CaseFilter& filter,
                                       bool strict = false);

/// Names with commas between, as --kernel has them: `asked`; where nothing is, those of plugins and subjects, since
/// whoever brings a kernel asks about it, of `system` and `device` where some of them are, else all. Empty: every kernel.
[[nodiscard]] std::string kernels_asked(const std::string& asked, const KernelTable& table,
                                        const std::string& system, const std::string& device);

/// The case, about the kernel of --plugin or --subject that computes it where its line names none: nobody who brings a kernel
/// asks about another. Unchanged where nothing was brought. Throws Error that names the kernels where several compute it, and
/// the remedy where none does.
[[nodiscard]] Case about_brought(Case c, const KernelTable& table);

/// The same for one line.
[[nodiscard]] KernelTable table_for(const KernelTable& table, const Case& c);

/// What --kernel says of itself in the help of a verb that has a plan.
inline constexpr const char* kKernelHelp =
    "only this kernel (repeatable; patterns with * and ?); default: those of --plugin and --subject, without "
    "them all";

/// What --strict says of itself in the help of a verb.
inline constexpr const char* kStrictHelp =
    "the twin gates contracts whose card is nearest too (else its distance is reported)";

/// What a record says of them: "libmine.so (0123456789abcdef), ..", with a hash of each file's bytes, since a build has
/// no version. Throws Error.
[[nodiscard]] std::string plugin_identities(const std::vector<std::string>& plugins);

/// Sentences that subjects want to be said once of a run, as that a package's kernels run in an interpreter (`interpreter` of what a
/// subject says about itself).
[[nodiscard]] std::vector<std::string> said_by_subjects(const std::vector<std::string>& plugins);

/// Whether what --plugin or --subject names is a program that speaks docs/lookup/subjects.md, and no shared library.
[[nodiscard]] bool is_subject(const std::string& spec);

/// The options that load those plugins again: " --plugin FILE" for each, or --subject; kOfClient for the client of
/// `samestate serve`.
[[nodiscard]] std::string plugin_options(const std::vector<std::string>& plugins);

/// The name of the accelerator that this build could run on, empty where there is none. A process of its own
/// looks for it: one that forks workers must not have called a GPU itself.
struct Accelerator {
  std::string name, driver, toolkit;
};
[[nodiscard]] Accelerator accelerator();

/// What stands at the head of a record of this build with those plugins; `commit` is what --commit says. Throws Error.
[[nodiscard]] Run this_run(const Accelerator& device, const std::vector<std::string>& plugins,
                           const std::string& commit);

/// Throws Error for a case that no kernel of the table can run, and where its kernel does not promise its contract:
/// what it returns would be judged by a promise that it never made.
void require_promise(const Case& c, const KernelTable& table);

/// A line about cards that are nearest: how far the twins are that do not gate. Empty where none is beyond its limit.
[[nodiscard]] std::string nearest_cards(std::span<const Record> records);

/// The exit code of a set of verdicts.
[[nodiscard]] int exit_code_of(Verdict verdict);

}  // namespace samestate::cli
