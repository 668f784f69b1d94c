#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "harness/records/record.h"
#include "reports/records/run.h"

namespace samestate {

/// JUnit XML in the xunit2 subset that CI systems agree on: testsuites > testsuite (one per kernel) >
/// testcase (classname system.form, name the case line). fail and flaky are failures, crash and timeout are
/// errors; vacuous, unsupported and skipped are skipped, with the verdict first in the message. The
/// properties of each suite count all eight verdicts and the cases that did not run because there is no
/// device (no_device). Every message is non-empty and contains the case line. Characters that XML forbids are
/// dropped, and bytes that are not UTF-8 become U+FFFD. The same records give the same bytes. A run that
/// ended early or covered too little also has a suite "samestate gate", whose single test is skipped if the
/// run passed nevertheless and an error if it did not.
[[nodiscard]] std::string junit_text(std::span<const Record> records, const Run& run, const RunEnd& end = {});

/// The same as a file, replaced atomically. Throws Error if it cannot be written.
void write_junit(const std::filesystem::path& path, std::span<const Record> records, const Run& run,
                 const RunEnd& end = {});

}  // namespace samestate
