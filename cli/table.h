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

/// The same for the cases of a filter: a kernel that keeps any contract then promises those with changes that the
/// filter names. With `strict`, the twin also gates kernels with a nearest card.
[[nodiscard]] KernelTable kernel_table(const std::vector<std::string>& plugins, const CaseFilter& filter,
                                       bool strict = false);

/// Returns the names of the kernels to use, separated by commas as in --kernel: `asked` if it is not empty; else the
/// kernels of plugins and subjects, because users who bring a kernel ask about it, and of these the ones of `system`
/// and `device` if there are any; else all. An empty text means every kernel.
[[nodiscard]] std::string kernels_asked(const std::string& asked, const KernelTable& table,
                                        const std::string& system, const std::string& device,
                                        const CaseFilter& filter);

/// Returns the case with the kernel of --plugin or --subject that computes it if its line names none, because users who
/// bring a kernel ask about that one. Unchanged if nothing was brought. Throws Error that names the kernels if several
/// compute it, and the remedy if none does.
[[nodiscard]] Case about_brought(Case c, const KernelTable& table);

/// Returns a table for a single line.
[[nodiscard]] KernelTable table_for(const KernelTable& table, const Case& c);

/// The text of --kernel in the help of a verb that has a plan.
inline constexpr const char* kKernelHelp =
    "only this kernel (repeatable; patterns with * and ?); default: those of --plugin and --subject, without "
    "them all";

/// The text of --strict in the help of a verb.
inline constexpr const char* kStrictHelp =
    "also let the twin gate contracts with a nearest card (otherwise its distance is only reported)";

/// Returns the names and hashes of the plugins for a record: "libmine.so (0123456789abcdef), ..". The hash is that of
/// each file's bytes, since a build has no version. Throws Error if a file cannot be read.
[[nodiscard]] std::string plugin_identities(const std::vector<std::string>& plugins);

/// Returns sentences that subjects want to be printed once per run, for example that a package's kernels run in an
/// interpreter (`interpreter` in what a subject says about itself).
[[nodiscard]] std::vector<std::string> said_by_subjects(const std::vector<std::string>& plugins);

/// Returns true if --plugin or --subject names a program that speaks the protocol of docs/lookup/subjects.md, and false
/// for a shared library.
[[nodiscard]] bool is_subject(const std::string& spec);

/// Returns the options that load those plugins again: " --plugin FILE" or --subject for each; kOfClient for the client
/// of `samestate serve`.
[[nodiscard]] std::string plugin_options(const std::vector<std::string>& plugins);

/// The name of the accelerator that this build could run on; empty if there is none. A separate process looks
/// for it, because a process that forks workers must not have called a GPU itself.
struct Accelerator {
  std::string name, driver, toolkit;
};
[[nodiscard]] Accelerator accelerator();

/// Returns the head of a record made by this build with those plugins; `commit` is the value of --commit. Throws Error.
[[nodiscard]] Run this_run(const Accelerator& device, const std::vector<std::string>& plugins,
                           const std::string& commit);

/// Throws Error for a case that no kernel of the table can run, and if its kernel does not promise its contract: its
/// result would otherwise be judged by a promise that it never made.
void require_promise(const Case& c, const KernelTable& table);

/// Returns a line that says how far twins are that do not gate because their cards are nearest. Empty if none is beyond
/// its limit.
[[nodiscard]] std::string nearest_cards(std::span<const Record> records);

/// Returns the exit code for a single verdict.
[[nodiscard]] int exit_code_of(Verdict verdict);

}  // namespace samestate::cli
