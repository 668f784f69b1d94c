#include "reports/records/evidence.h"

#include <gtest/gtest.h>

#include "reference/error.h"
#include "reports/records/json_lines.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;

class EvidenceFolder : public testing::Folder {
 protected:
  void write(const char* name, const std::vector<Record>& records) {
    JsonLinesWriter writer(path(name), testing::run());
    for (const Record& r : records) writer.end(writer.start(r), r);
  }
  static Record on(const char* kernel, const char* device, Verdict verdict) {
    Record made = record(verdict, 0.5);
    made.kernel = kernel;
    made.device = device;
    return made;
  }
};

TEST_F(EvidenceFolder, CountsWhatRanOnADevice) {
  write("run.jsonl",
        {on("cuda.retention.a", "H100", Verdict::pass), on("cuda.retention.a", "H100", Verdict::pass),
         on("cuda.retention.a", "H100", Verdict::fail), on("cuda.retention.a", "H100", Verdict::crash),
         on("cuda.retention.a", "H100", Verdict::timeout), on("cuda.retention.a", "H100", Verdict::flaky),
         on("cuda.retention.a", "H100", Verdict::vacuous),
         on("cuda.retention.a", "H100", Verdict::unsupported), on("cuda.retention.b", "H100", Verdict::pass),
         on("cuda.retention.c", "H100", Verdict::skipped), on("cpu.a", "cpu", Verdict::pass)});
  const std::vector<Evidence> evidence = read_evidence(path("."));
  ASSERT_EQ(evidence.size(), 2U) << "neither a kernel that was skipped throughout nor one on the CPU";
  EXPECT_EQ(evidence[0].kernel, "cuda.retention.a");
  EXPECT_EQ(evidence[0].passed, 2);
  EXPECT_EQ(evidence[0].failed, 4);
  EXPECT_EQ(evidence[0].device, "H100");
  EXPECT_EQ(evidence[0].driver, "13.0");
  EXPECT_EQ(evidence[0].toolkit, "13.1");
  EXPECT_EQ(evidence[0].kernel_sources, "0123abcd");
  EXPECT_EQ(evidence[0].file, "run.jsonl");
  EXPECT_EQ(evidence[1].kernel, "cuda.retention.b");
}

TEST(Sources, AreThoseOfTheKernel) {
  const std::string now = "cuda.a.b=0123 cuda.a.bc=4567";
  EXPECT_EQ(sources_of(now, "cuda.a.b"), "0123");
  EXPECT_EQ(sources_of(now, "cuda.a.bc"), "4567");
  EXPECT_EQ(sources_of(now, "cuda.a"), "");
  EXPECT_EQ(sources_of(now, "mine.a.b"), "") << "a kernel that is not ours has none";
  EXPECT_EQ(sources_of("0123abcd+4567+89", "cuda.a.b"), "0123abcd+4567+89") << "a record of before";
  EXPECT_TRUE(is_fresh("0123", now, "cuda.a.b"));
  EXPECT_FALSE(is_fresh("0124", now, "cuda.a.b"));
  EXPECT_FALSE(is_fresh("0123+4567", now, "cuda.a.b")) << "three hashes of before are no kernel's";
  EXPECT_FALSE(is_fresh("", now, "mine.a.b")) << "nobody knows its sources";
  EXPECT_EQ(sources_text("0123+4567"), "0123+4567");
  EXPECT_EQ(sources_text(now).substr(16), " of 2 CUDA kernels");
  EXPECT_NE(sources_text(now), sources_text("cuda.a.b=0123 cuda.a.bc=4568"));
}

TEST_F(EvidenceFolder, IsSortedByFileAndReadsNoOther) {
  write("b.jsonl", {on("cuda.retention.a", "H100", Verdict::pass)});
  write("a.jsonl", {on("cuda.retention.a", "H200", Verdict::pass)});
  testing::spit(path("notes.md"), "not a record");
  const std::vector<Evidence> evidence = read_evidence(path("."));
  ASSERT_EQ(evidence.size(), 2U);
  EXPECT_EQ(evidence[0].file, "a.jsonl");
  EXPECT_TRUE(read_evidence(path("absent")).empty());
}

TEST_F(EvidenceFolder, ADeadRunIsAFailure) {
  {
    JsonLinesWriter writer(path("run.jsonl"), testing::run());
    static_cast<void>(writer.start(on("cuda.retention.a", "H100", Verdict::vacuous)));
  }
  const std::vector<Evidence> evidence = read_evidence(path("."));
  ASSERT_EQ(evidence.size(), 1U);
  EXPECT_EQ(evidence[0].failed, 1);
}

TEST_F(EvidenceFolder, RejectsAFileThatIsNoRecord) {
  testing::spit(path("run.jsonl"), "{\"tests\": 3}\n");
  EXPECT_THROW(static_cast<void>(read_evidence(path("."))), Error);
}

}  // namespace
}  // namespace samestate
