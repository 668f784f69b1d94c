#include "harness/subjects/said_once.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace samestate {
namespace {

TEST(SaidOnce, SaysATextOnce) {
  SaidOnce said;
  EXPECT_EQ(said.say("a"), SaidOnce::Answer::new_text);
  EXPECT_EQ(said.say("a"), SaidOnce::Answer::nothing);
  EXPECT_EQ(said.say("b"), SaidOnce::Answer::new_text);
  EXPECT_EQ(said.say(""), SaidOnce::Answer::new_text);
  EXPECT_EQ(said.say(""), SaidOnce::Answer::nothing);
  SaidOnce other;
  EXPECT_EQ(other.say("a"), SaidOnce::Answer::new_text);
}

TEST(SaidOnce, KnowsWhatAProcessThatWasForkedOffHasSaid) {
  SaidOnce said;
  const pid_t child = ::fork();
  if (child == 0) ::_exit(said.say("a") == SaidOnce::Answer::new_text ? 0 : 1);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(said.say("a"), SaidOnce::Answer::nothing);
}

TEST(SaidOnce, LeavesOthersOutBehindTheLast) {
  SaidOnce said;
  for (std::size_t i = 0; i + 1 < SaidOnce::kMost; ++i)
    EXPECT_EQ(said.say(std::to_string(i)), SaidOnce::Answer::new_text);
  EXPECT_EQ(said.say("last"), SaidOnce::Answer::last_new);
  EXPECT_EQ(said.say("another"), SaidOnce::Answer::nothing);
  EXPECT_EQ(said.say("0"), SaidOnce::Answer::nothing);
}

}  // namespace
}  // namespace samestate
