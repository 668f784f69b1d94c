#include "harness/run/output_hashes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "harness/records/hash.h"
#include "harness/run/run_case.h"

namespace samestate {
namespace {

/// The outputs of a case on a right kernel of that device, whose call `change` then changes.
std::string outputs_of(const std::string& line, const std::string& device,
                       const std::function<void(const Arguments&)>& change = {}) {
  KernelTable table(kernels());
  Kernel row = table.named("cpu.gated_delta_rule.recurrent");
  row.name = "other.gated_delta_rule.recurrent";
  row.device = device;
  row.run = [run = row.run, change](const Arguments& a, const Contract& contract) {
    const Outcome outcome = run(a, contract);
    if (change) change(a);
    return outcome;
  };
  table.add({&row, 1});
  const Record record = run_case(parse_case(line + " kernel=" + row.name), table);
  EXPECT_EQ(record.judgement.verdict, Verdict::pass) << record.judgement.reason;
  return record.outputs;
}

const std::string kLine = "v1 gated_delta_rule form=recurrent T=5 dk=4 dv=3 state=random";

TEST(OutputHashes, AreThoseOfEveryOutputAndTheSameForTheSameBits) {
  const std::string hashes = outputs_of(kLine, "cuda");
  EXPECT_EQ(hashes.size(), std::string("o:0123456789abcdef final_state:0123456789abcdef").size()) << hashes;
  EXPECT_TRUE(hashes.starts_with("o:")) << hashes;
  EXPECT_EQ(outputs_of(kLine, "cuda"), hashes);
  // The memory between the elements does not belong to them.
  for (const char* layout : {" layout=padded", " layout=permuted"})
    EXPECT_EQ(outputs_of(kLine + layout, "cuda"), hashes) << layout;
  EXPECT_NE(outputs_of(kLine + " seed=1", "cuda"), hashes);
}

TEST(OutputHashes, OfTheProcessorAreNone) { EXPECT_EQ(outputs_of(kLine, "cpu"), ""); }

TEST(OutputHashes, TheLastBitOfOneElementShows) {
  const std::string hashes = outputs_of(kLine, "cuda");
  const auto nudge = [](float& x) { x = std::nextafter(x, 2.0F * x + 1.0F); };
  for (std::int64_t token = 0; token < 5; ++token) {
    const std::string other =
        outputs_of(kLine, "cuda", [&](const Arguments& a) { nudge(a.o(0, token, 0, 2)); });
    EXPECT_EQ(first_difference(hashes, other), "o") << token;
  }
  const std::string other =
      outputs_of(kLine, "cuda", [&](const Arguments& a) { nudge(a.final_state(0, 0, 3, 2)); });
  EXPECT_EQ(first_difference(hashes, other), "final_state");
}

TEST(OutputHashes, AnEarlyCallOfSeveralShows) {
  const std::string line = "v1 gated_delta_rule form=decode chunk=0 T=4 dk=4 dv=3";
  const std::string hashes = outputs_of(line, "cuda");
  int calls = 0;
  const std::string other = outputs_of(line, "cuda", [&](const Arguments& a) {
    if (calls++ == 1) a.o(0, 0, 0, 0) = std::nextafter(a.o(0, 0, 0, 0), 9.0F);
  });
  EXPECT_GE(calls, 4);
  EXPECT_EQ(first_difference(hashes, other), "o");
}

TEST(OutputHashes, TheFirstDifferenceIsNamed) {
  EXPECT_EQ(first_difference("o:1 s:2", "o:1 s:2"), "");
  EXPECT_EQ(first_difference("o:1 s:2", "o:1 s:3"), "s");
  EXPECT_EQ(first_difference("o:1", "o:1 s:3"), "s");
  EXPECT_EQ(first_difference("", "o:1"), "o");
  EXPECT_EQ(first_difference("a:b:1", "a:b:2"), "a:b");
}

}  // namespace
}  // namespace samestate
