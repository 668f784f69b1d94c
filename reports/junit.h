#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "harness/records/record.h"
#include "reports/run.h"

namespace samestate {

/// JUnit XML, the xunit2 subset that CI systems agree on: testsuites > testsuite (one a kernel) > testcase
/// (classname system.form, name the case line). fail and flaky are failures, crash and timeout are errors;
/// vacuous, unsupported and skipped are skipped, with the verdict first in the message; each suite's
/// properties count all eight verdicts. Every message is non-empty and holds the case line. Characters that
/// XML forbids are dropped, bytes that are not UTF-8 become U+FFFD. The same records give the same bytes.
[[nodiscard]] std::string junit_text(std::span<const Record> records, const Run& run);

/// The same as a file, replaced atomically. Throws Error when it cannot be written.
void write_junit(const std::filesystem::path& path, std::span<const Record> records, const Run& run);

/// `text` as UTF-8 that XML 1.0 allows: what junit_text does to each string.
[[nodiscard]] std::string xml_safe(std::string_view text);

}  // namespace samestate
