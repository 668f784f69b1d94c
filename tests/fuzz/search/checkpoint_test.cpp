#include "fuzz/search/checkpoint.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "reference/error.h"
#include "tests/facts.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

class CheckpointMerge : public ::testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] fs::path path(const std::string& name) const { return folder_ / name; }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void spit(const std::string& name, const std::string& text) const {
    std::ofstream(path(name), std::ios::binary) << text;
  }

  /// Case `index`, whose ratio says which.
  static CheckpointEntry entry(std::int64_t index) {
    CheckpointEntry out{index, 0.5 * static_cast<double>(index), {}};
    out.finding.judgement.ratio = 1.0 / static_cast<double>(index + 3);
    return out;
  }

  /// The shard's cases below `most`.
  fs::path write(const std::string& name, CheckpointTitle title, std::int64_t most) const {
    Checkpoint file(path(name), title.text());
    for (std::int64_t i = title.shard; i < most; i += title.shards) file.append(entry(i));
    return path(name);
  }

  [[nodiscard]] std::string error_of(const std::vector<fs::path>& files) const {
    try {
      (void)merge_checkpoints(files, path("out"));
    } catch (const Error& error) {
      EXPECT_FALSE(fs::exists(path("out")));
      EXPECT_FALSE(fs::exists(path("out.partial")));
      return error.what();
    }
    return "";
  }

  const CheckpointTitle title_{"1", 7, 0, 3, "abc"};

 private:
  fs::path folder_ = fs::temp_directory_path() / ("samestate-checkpoints-" + std::to_string(::getpid()));
};

CheckpointTitle shard(CheckpointTitle title, std::int64_t of) {
  title.shard = of;
  return title;
}

TEST_F(CheckpointMerge, IsOneOfTheWhole) {
  const std::vector<fs::path> files{write("2", shard(title_, 2), 20), write("0", shard(title_, 0), 11),
                                    write("1", shard(title_, 1), 15)};
  EXPECT_TRUE(is_checkpoint(path("0")));
  // The write that a kill cut.
  spit("2", text("2") + "23\t1.0");
  EXPECT_EQ(merge_checkpoints(files, path("out")), 6 + 4 + 5);
  EXPECT_EQ(checkpoint_seed(path("out")), 7U);
  std::vector<CheckpointEntry> entries;
  const Checkpoint whole(path("out"), CheckpointTitle{"1", 7, 0, 1, "abc"}.text(), entries);
  ASSERT_EQ(entries.size(), 15U);
  for (std::size_t i = 1; i < entries.size(); ++i) EXPECT_GT(entries[i].index, entries[i - 1].index);
  for (const CheckpointEntry& e : entries) {
    EXPECT_EQ(e.finding.judgement.ratio, entry(e.index).finding.judgement.ratio);
    EXPECT_EQ(e.elapsed, entry(e.index).elapsed);
  }
}

TEST_F(CheckpointMerge, NamesWhatIsWrong) {
  const std::vector<fs::path> files{write("0", shard(title_, 0), 9), write("1", shard(title_, 1), 9),
                                    write("2", shard(title_, 2), 9)};
  EXPECT_NE(error_of({files[0], files[2]}).find("shard 1/3 is missing"), std::string::npos);
  EXPECT_NE(error_of({files[0], files[1], files[2], files[1]}).find("shard 1/3 is in"), std::string::npos);
  CheckpointTitle other = shard(title_, 1);
  other.seed = 8;
  EXPECT_NE(error_of({files[0], write("seed", other, 9), files[2]}).find("seed=0x8"), std::string::npos);
  other = shard(title_, 1);
  other.build = "2";
  EXPECT_NE(error_of({files[0], write("build", other, 9), files[2]}).find("build=2"), std::string::npos);
  other = shard(title_, 1);
  other.shards = 2;
  EXPECT_NE(error_of({files[0], write("shards", other, 9), files[2]}).find("shard=1/2"), std::string::npos);

  spit("damaged", text("1").replace(text("1").find('\n') + 3, 1, "x"));
  EXPECT_NE(error_of({files[0], path("damaged"), files[2]}).find("damaged"), std::string::npos);
  // A line of another shard, whole.
  const std::string foreign = text("2").substr(text("2").find('\n') + 1);
  spit("foreign", text("1") + foreign);
  EXPECT_EQ(lacking(error_of({files[0], path("foreign"), files[2]}), "case 2 shard 1/3"), "");
  const std::string own = text("1").substr(text("1").find('\n') + 1);
  spit("twice", text("1") + own);
  EXPECT_EQ(lacking(error_of({files[0], path("twice"), files[2]}), "case 1 shard 1/3"), "");
  for (const std::string begin : {"", "samestate-fuzz-checkpoint 1 build=1 seed=7 shard=1/3 kernels=abc\n",
                                  "samestate-fuzz-checkpoint 1 build=1 seed=0x7 shard=3/3 kernels=abc\n",
                                  "samestate-fuzz-checkpoint 1 build=1 seed=0x7 shard=1 kernels=abc\n",
                                  "samestate-fuzz-checkpoint 1 build=1 seed=0x7 kernels=abc\n",
                                  "samestate-fuzz-checkpoint 2 build=1 seed=0x7 shard=1/3 kernels=abc\n"}) {
    spit("bad", begin);
    EXPECT_NE(error_of({files[0], path("bad"), files[2]}).find("line 1"), std::string::npos) << begin;
  }
  spit("none", "my notes\n");
  EXPECT_FALSE(is_checkpoint(path("none")));
  EXPECT_FALSE(is_checkpoint(path("absent")));
}

}  // namespace
}  // namespace samestate
