#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "harness/records/record.h"
#include "reports/records/run.h"

namespace samestate {

/// The limit of a CI step summary is 1 MiB.
inline constexpr std::size_t kMarkdownLimit = 1'000'000;

/// The run as GitHub-flavoured Markdown, the worst first: if it is complete; counts by verdict; the first 50
/// failures in full; the 20 cases farthest above their groups (surprise.h), each with the command that
/// repeats it, and the groups that attain their bound; one row for each system, form and contract; the spread
/// of the ratio in each regime; what was not judged, and why. Never longer than `kMarkdownLimit` bytes: the
/// rows that do not fit are counted in the last line.
[[nodiscard]] std::string markdown_text(std::span<const Record> records, const Run& run,
                                        const RunEnd& end = {});

/// The same as a file, replaced atomically. Throws Error if it cannot be written.
void write_markdown(const std::filesystem::path& path, std::span<const Record> records, const Run& run,
                    const RunEnd& end = {});

}  // namespace samestate
