#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "harness/records/record.h"
#include "reference/error.h"
#include "reports/records/json_lines.h"
#include "reports/records/run.h"

namespace samestate::testing {

/// A record with every field set, so that a field that is lost shows.
inline Record record(Verdict verdict, double ratio, std::string line = "v1 gated_delta_rule T=65 seed=0x2a") {
  Record made{std::move(line),
              "cpu.gated_delta_rule.chunked",
              "gated_delta_rule",
              "chunked",
              "bf16",
              "slow",
              "",
              "cpu",
              {},
              0.25};
  made.judgement = {.verdict = verdict,
                    .gate = "row",
                    .ratio = ratio,
                    .error = 1.0 / 3.0,
                    .bound = 5e-324,
                    .worst = {0, 2, 17, 3},
                    .expected = -0.0,
                    .actual = 0.1,
                    .row_ratio = ratio,
                    .head_ratio = 1.5e300,
                    .state_ratio = 1e-17,
                    .hard_ratio = 0.2,
                    .twin_ratio = 0.3,
                    .median_ratio = 0.0625,
                    .relative_rms = 2.8e-3,
                    .rows = 130,
                    .held = 26,
                    .held_of = 65600,
                    .held_which = "0:0,3 1:1",
                    .stages = {},
                    .stage = {},
                    .reason = "because"};
  return made;
}

/// A run with every field set.
inline Run run() {
  return {"0.1.0", "abc123", "H100", "13.0", "13.1", "0123abcd", "mine.so (0123456789abcdef)"};
}

inline std::string slurp(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline void spit(const std::filesystem::path& path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::size_t occurrences(std::string_view text, std::string_view part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

/// A folder that goes when the test does.
class Folder : public ::testing::Test {
 protected:
  void SetUp() override {
    const ::testing::TestInfo* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("samestate." + std::string(info->test_suite_name()) + "." + info->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path path(const char* name) const { return folder_ / name; }

  /// The message of the Error that reading `text` as JSON Lines throws; empty when it throws none.
  [[nodiscard]] std::string rejection(const std::string& text) const {
    spit(path("bad.jsonl"), text);
    try {
      static_cast<void>(read_json_lines(path("bad.jsonl")));
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

 private:
  std::filesystem::path folder_;
};

}  // namespace samestate::testing
