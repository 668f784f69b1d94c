#include "cli/help.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "cli/terminal.h"

namespace samestate::cli {
namespace {

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
  return longest;
}

TEST(HelpText, ParagraphsFlow) {
  EXPECT_EQ(help_text("One sentence that goes on and on,\nas it was written, and another one behind it, "
                      "which is too long.\n"
                      "\nNext."),
            "One sentence that goes on and on, as it was written, and another one behind it,\n"
            "which is too long.\n\nNext.\n");
}

TEST(HelpText, AnExampleHasItsCommentBelowWhereBothDoNotFit) {
  EXPECT_EQ(help_text("  samestate list    what there is\n"
                      "  samestate gate --shard 0/4 --jsonl part-0.jsonl    the first of four jobs; merge\n"
                      "                                                     joins them\n"),
            "  samestate list    what there is\n"
            "  samestate gate --shard 0/4 --jsonl part-0.jsonl\n"
            "      the first of four jobs; merge joins them\n");
  EXPECT_EQ(
      help_text(
          "  chunk      error, bound, operations and bytes against the size of the chunk, from one to 256\n"),
      "  chunk      error, bound, operations and bytes against the size of the chunk,\n"
      "             from one to 256\n");
  // A command that is too long continues after a backslash, and its case line stays whole.
  EXPECT_EQ(
      help_text(
          "  samestate repro --plugin ./libmine.so --timeout 5m 'v1 gated_delta_rule T=65 contract=bf16 "
          "regime=slow'   one case\n"),
      "  samestate repro --plugin ./libmine.so --timeout 5m \\\n"
      "      'v1 gated_delta_rule T=65 contract=bf16 regime=slow'\n"
      "      one case\n");
  EXPECT_EQ(help_text("  " + std::string(40, 'a') + " " + std::string(40, 'b') + "\n"),
            "  " + std::string(40, 'a') + "\n  " + std::string(40, 'b') + "\n");
}

TEST(HelpFormatter, FitsWhateverTheTextsAre) {
  CLI::App app("A description that is longer than any line of a terminal of eighty columns would ever be.");
  app.formatter(std::make_shared<HelpFormatter>());
  std::string value;
  app.add_option("--an-option-of-a-name-that-is-long", value,
                 std::string(40, 'x') + " and words behind it, many of them");
  CLI::App* sub = app.add_subcommand(
      "verb", "what the verb does, in a sentence that is longer than its line can be here");
  sub->add_option("--short", value, "an option whose description does not fit beside its name in one line");
  for (const CLI::App* one : std::initializer_list<const CLI::App*>{&app, sub})
    EXPECT_LE(longest_line(one->help()), kHelpColumns) << one->help();
}

TEST(LaidOut, WrapsBelowTheTitlesAndPaintsTheVerdict) {
  const std::string page =
      "case      v1 retention T=65 chunk=16 seed=0x2a regime=slow\n"
      "verdict   fail: row gate: error 2 > 1, which no rounding makes\n";
  EXPECT_EQ(laid_out(page, 0, false), page);
  EXPECT_EQ(laid_out(page, 40, false),
            "case      v1 retention T=65 chunk=16 seed=0x2a regime=slow\n"
            "verdict   fail: row gate: error 2 > 1,\n"
            "          which no rounding makes\n");
  EXPECT_NE(laid_out(page, 40, true).find("\033[31;1mfail\033[0m: row"), std::string::npos);
  EXPECT_NE(laid_out("verdict   pass\n", 80, true).find("\033[32mpass\033[0m\n"), std::string::npos);
  EXPECT_EQ(
      laid_out("verdict   no contract of the grammar explains it\n12 of 14 points told apart; 90 twins\n", 30,
               false),
      "verdict   no contract of the\n"
      "          grammar explains it\n"
      "12 of 14 points told apart; 90\n"
      "          twins\n");
}

// A command that repeats a case is copied, so that only the terminal itself may break it.
TEST(Folded, WrapsSentencesAndLeavesCommandsWhole) {
  const std::string text =
      "  2 of cpu.one, form chunked: the state is wrong\n"
      "    samestate repro 'v1 retention T=65 chunk=16 seed=0x2a'\n"
      "  none           0.1       0.2\n"
      "3 cases in 0.1 s";
  EXPECT_EQ(folded(text, 0), text);
  EXPECT_EQ(folded(text, 32),
            "  2 of cpu.one, form chunked:\n"
            "    the state is wrong\n"
            "    samestate repro 'v1 retention T=65 chunk=16 seed=0x2a'\n"
            "  none           0.1       0.2\n"
            "3 cases in 0.1 s");
}

}  // namespace
}  // namespace samestate::cli
