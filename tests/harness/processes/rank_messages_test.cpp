#include "harness/processes/rank_messages.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "harness/processes/rank_link.h"
#include "reference/error.h"

namespace samestate {
namespace {

RankReport report() {
  JobResult result;
  result.kind = JobResult::Kind::unrepeated;
  result.text = std::string("a\0b\n", 4);
  result.how = "signal";
  result.reason = "killed";
  result.beside = {"one", "two"};
  result.seconds = 0.1;
  result.process = 7;
  result.order = 9;
  result.device = "GPU-8f6d";
  return {3, true, {4, 5}, {{6, result}}, {8}};
}

std::vector<RankMessage> messages() {
  WorkerOptions workers;
  workers.threads = 3;
  workers.memory = 1U << 30;
  workers.confirm = true;
  return {RankHello{"b", "c", "w", "r"},
          RankBegin{1, workers, 0.25},
          RankPiece{2, {{1, "v1 retention", 5, true, 0.125, "GPU-8f6d"}, {2, "", 0}}},
          RankRecall{4},
          report(),
          RankFailure{"why"}};
}

TEST(RankMessages, ComeBackAsTheyWere) {
  for (const RankMessage& message : messages()) {
    const std::string text = text_of_message(message);
    const RankMessage back = parse_message(text);
    EXPECT_EQ(back.index(), message.index());
    EXPECT_EQ(text_of_message(back), text);  // every field, in the one order that there is
  }
  const auto done = std::get<RankReport>(parse_message(text_of_message(report()))).done.at(0);
  EXPECT_EQ(done.index, 6);
  EXPECT_EQ(done.result.text, report().done[0].result.text);
  EXPECT_EQ(done.result.beside, (std::vector<std::string>{"one", "two"}));
  EXPECT_EQ(done.result.order, 9U);
  EXPECT_EQ(done.result.device, "GPU-8f6d");
}

TEST(RankMessages, ThatAreCutOrNoneAreRefused) {
  for (const RankMessage& message : messages()) {
    const std::string text = text_of_message(message);
    for (std::size_t i = 0; i < text.size(); ++i)
      EXPECT_THROW((void)parse_message(text.substr(0, i)), Error) << message.index() << " cut at " << i;
    EXPECT_THROW((void)parse_message(text + "x"), Error);
  }
  EXPECT_THROW((void)parse_message("\x63"), Error);
  // A list that claims to be longer than the message takes no memory.
  std::string list = text_of_message(RankPiece{1, {}});
  list[list.size() - 1] = 0x7f;
  EXPECT_THROW((void)parse_message(list), Error);
}

TEST(RankLink, CarriesFramesWholeWhateverTheirSize) {
  int pair[2] = {-1, -1};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  RankLink one(pair[0], 0, 4);
  auto other = std::make_unique<RankLink>(pair[1], 2, 4);
  std::vector<std::string> texts = {"", std::string("\0\n", 2), std::string(3'000'000, 'x'), "end"};
  std::vector<RankFrame> frames;
  for (const std::string& text : texts) ASSERT_TRUE(one.post({3, RankFrame::Kind::text, text}));
  EXPECT_TRUE(one.has_unsent());  // more than a socket holds, and nobody waits
  while (frames.size() < texts.size()) {
    ASSERT_TRUE(other->receive(frames));
    ASSERT_TRUE(one.flush());
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(frames[i].rank, 3);
    EXPECT_EQ(frames[i].text, texts[i]);
  }
  EXPECT_EQ(one.sent_bytes, other->received_bytes);
  other.reset();
  EXPECT_FALSE(one.receive(frames));
  EXPECT_FALSE(one.send({1, RankFrame::Kind::text, "nobody"}) &&
               one.send({1, RankFrame::Kind::text, "nobody"}));
}

}  // namespace
}  // namespace samestate
