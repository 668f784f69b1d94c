#include "fuzz/plan/corpus.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "optimized/operator_kernel.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

class Corpus : public testing::Test {
 protected:
  Corpus() : folder_(fs::temp_directory_path() / ("samestate-corpus-" + std::to_string(::getpid()))) {
    fs::create_directories(folder_);
  }
  ~Corpus() override { fs::remove_all(folder_); }
  void file(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string error() const {
    try {
      (void)read_corpus(folder_);
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }
  fs::path folder_;
};

TEST_F(Corpus, ReadsCasesWithTheirComments) {
  file("retention.txt", "# one\n#  two\nv1 retention T=3 dk=2\n\n\nv1 retention T=4 dk=2\r\n");
  file("delta_rule.txt", "# first by name\nv1 delta_rule T=5\n");
  file("notes.md", "not a case\n");
  const std::vector<CorpusEntry> all = read_corpus(folder_);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].c.system, "delta_rule");
  EXPECT_EQ(all[1].comment, "one two");
  EXPECT_EQ(all[1].line, 3);
  EXPECT_EQ(all[2].c.T, 4);
  EXPECT_EQ(all[2].comment, "");
}

TEST_F(Corpus, DamagedLinesNameFileAndLine) {
  const auto says = [&](const std::string& text, const std::string& word) {
    file("retention.txt", text);
    EXPECT_NE(error().find("retention.txt: line 2: "), std::string::npos) << error();
    EXPECT_NE(error().find(word), std::string::npos) << error();
  };
  says("# x\nv1 retention T=\n", "T");
  says("# x\nv2 retention T=4\n", "v1");
  says("# x\nv1 retention regime=beta_one\n", "beta");
  says("# x\nv1 delta_rule T=4\n", "delta_rule.txt");
  says("# x\n\xff\xfe\n", "ASCII");
  fs::remove_all(folder_);
  EXPECT_NE(error().find("no corpus folder"), std::string::npos);
}

TEST_F(Corpus, ACaseIsTriedOnEveryKernelThatItFits) {
  file("retention.txt", "v1 retention T=3 dk=2\nv1 retention form=decode chunk=0 T=3 dk=2 contract=bf16\n");
  file("l2norm.txt", "v1 l2norm form=fused T=3\n");
  const auto corpus = read_corpus(folder_);
  const auto names = [&](const KernelTable& kernels_of, const PlanOptions& options) {
    std::vector<std::string> out;
    for (const Case& c : corpus_cases(corpus, kernels_of, options)) {
      out.push_back(planned_record(c, kernels_of).kernel);
    }
    return out;
  };
  PlanOptions cpu;
  cpu.device = "cpu";
  EXPECT_EQ(names(table(), cpu), (std::vector<std::string>{"cpu.l2norm.fused", "cpu.retention.chunked",
                                                           "cpu.retention.recurrent"}));
  KernelTable more(kernels(), operator_kernels());
  std::vector<Kernel> mine{more.named("cpu.retention.chunked")};
  mine[0].name = "mine.retention.chunked";
  mine[0].contracts = {"fp32"};
  more.add(mine);
  PlanOptions only;
  only.kernel = "mine.retention.chunked";
  EXPECT_EQ(names(more, only), (std::vector<std::string>{"mine.retention.chunked"}));
}

TEST_F(Corpus, AnEntryIsAppendedOnce) {
  const Case c = parse_case("v1 retention T=3 dk=2 seed=7");
  const std::string one = with_entry("", "found", c);
  EXPECT_EQ(one, "# found\nv1 retention T=3 dk=2 seed=0x7\n");
  EXPECT_EQ(with_entry(one, "again", c), one);
  const std::string two = with_entry("# no end\nv1 retention T=9", "found", c);
  EXPECT_EQ(two, "# no end\nv1 retention T=9\n\n# found\nv1 retention T=3 dk=2 seed=0x7\n");
  EXPECT_THROW((void)with_entry("", "two\nlines", c), Error);
}

TEST(OurCorpus, IsReadAndPasses) {
  const auto corpus = read_corpus(fs::path(SAMESTATE_SOURCE_DIR) / "fuzz" / "corpus");
  EXPECT_GE(corpus.size(), 20U);
  PlanOptions cpu;
  cpu.device = "cpu";
  const std::vector<Case> cases = corpus_cases(corpus, table(), cpu);
  for (const CorpusEntry& entry : corpus) {
    EXPECT_FALSE(entry.comment.empty()) << entry.file << ": " << entry.line;
    EXPECT_FALSE(corpus_cases({entry}, table(), cpu).empty())
        << entry.file << ": " << entry.line << " fits no kernel";
  }
  for (const Case& c : cases) {
    const Judgement j = run_case(c, table()).judgement;
    EXPECT_EQ(j.verdict, Verdict::pass) << format_case(c) << ": " << j.reason;
  }
}

}  // namespace
}  // namespace samestate
