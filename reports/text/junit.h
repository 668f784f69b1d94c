#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "harness/records/record.h"
#include "reports/records/run.h"

namespace samestate {

/// JUnit XML, the xunit2 subset that CI systems agree on: testsuites > testsuite (one a kernel) > testcase
/// (classname system.form, name the case line). fail and flaky are failures, crash and timeout are errors;
/// vacuous, unsupported and skipped are skipped, with the verdict first in the message; each suite's
/// properties count all eight verdicts and say what was not run for want of a device (no_device). Every message is non-empty and holds the case line. Characters that
/// XML forbids are dropped, bytes that are not UTF-8 become U+FFFD. The same records give the same bytes.
/// A run that was cut short or covered too little has a suite "samestate gate" too, whose one test is skipped where
/// the run passed nonetheless and an error where it did not.
[[nodiscard]] std::string junit_text(std::span<const Record> records, const Run& run, const RunEnd& end = {});

/// The same as a file, replaced atomically. Throws Error when it cannot be written.
void write_junit(const std::filesystem::path& path, std::span<const Record> records, const Run& run,
                 const RunEnd& end = {});

}  // namespace samestate
