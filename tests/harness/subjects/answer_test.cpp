#include "harness/subjects/answer.h"

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"

namespace samestate {
namespace {

std::string refused(const std::string& line) {
  try {
    (void)parse_answer(line, 3);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Answer, IsRead) {
  EXPECT_EQ(parse_answer(R"({"type":"ran","id":3})", 3).kind, SubjectAnswer::Kind::ran);
  EXPECT_EQ(parse_answer(R"({"id":3,"type":"busy","what":"compiling"})", 3).kind, SubjectAnswer::Kind::busy);
  EXPECT_EQ(parse_answer(R"({"type":"ran","id":3,"function":"a.py:1 f\u0007"})", 3).function, "a.py:1 f ");
  const SubjectAnswer no = parse_answer(R"({"type":"unsupported","id":3,"reason":"dk"})", 3);
  EXPECT_EQ(no.kind, SubjectAnswer::Kind::unsupported);
  EXPECT_EQ(no.reason, "dk");
  const SubjectAnswer error =
      parse_answer(R"({"type":"error","id":3,"reason":7,"trace":"a\nb","fatal":true})", 3);
  EXPECT_EQ(error.kind, SubjectAnswer::Kind::error);
  EXPECT_EQ(error.reason, "");
  EXPECT_EQ(error.trace, "a\nb");
  EXPECT_TRUE(error.fatal);
  EXPECT_FALSE(parse_answer(R"({"type":"error","id":3,"fatal":"true"})", 3).fatal);
  EXPECT_TRUE(parse_answer(R"({"type":"error","id":3,"environment":true})", 3).environment);
  EXPECT_FALSE(parse_answer(R"({"type":"error","id":3,"environment":1})", 3).environment);
}

TEST(Answer, SaysWhereItsTimeWentAndNothingThatIsNoTime) {
  const SubjectAnswer ran = parse_answer(
      R"({"type":"ran","id":3,"compiled":2,"loaded":1,"seconds":{"compile":1.5,"kernel":0.25,"import":3}})",
      3);
  EXPECT_EQ(ran.spent.calls, 1);
  EXPECT_EQ(ran.spent.compiled, 2);
  EXPECT_EQ(ran.spent.loaded, 1);
  EXPECT_EQ(ran.spent.compile, 1.5);
  EXPECT_EQ(ran.spent.kernel, 0.25);
  EXPECT_EQ(ran.spent.start, 3.0);
  const SubjectAnswer odd = parse_answer(
      R"({"type":"ran","id":3,"compiled":-2,"seconds":{"compile":1e300,"tune":"long","copy":-1}})", 3);
  EXPECT_EQ(odd.spent.compiled, 0);
  EXPECT_EQ(odd.spent.seconds(), 0.0);
  EXPECT_EQ(parse_answer(R"({"type":"ran","id":3,"seconds":7})", 3).spent.seconds(), 0.0);
}

TEST(Answer, ARefusalIsSaidAndNotGuessed) {
  const SubjectAnswer no =
      parse_answer(R"({"type":"error","id":3,"refusal":true,"where":"api.py:12\ncheck","reason":"dk"})", 3);
  EXPECT_TRUE(no.refusal);
  EXPECT_EQ(no.where.find('\n'), std::string::npos);
  EXPECT_FALSE(parse_answer(R"({"type":"error","id":3,"refusal":"true"})", 3).refusal);
}

TEST(Answer, NamesTheConfigurationsThatItsTunersChose) {
  const SubjectAnswer busy = parse_answer(
      R"({"type":"busy","id":3,"tuned":{"by":"first","configurations":["scan: BLOCK=64\n","norm: BLOCK=32",7]}})",
      3);
  EXPECT_EQ(busy.tuned_by, "first");
  EXPECT_EQ(busy.configurations, (std::vector<std::string>{"scan: BLOCK=64 ", "norm: BLOCK=32"}));
  for (const char* odd : {R"({"by":"first"})", R"({"by":"first","configurations":"scan"})", R"(["first"])",
                          "7", R"({"by":"first","configurations":[7]})"}) {
    const SubjectAnswer none = parse_answer(std::string(R"({"type":"ran","id":3,"tuned":)") + odd + "}", 3);
    EXPECT_EQ(none.tuned_by, "") << odd;
    EXPECT_TRUE(none.configurations.empty()) << odd;
  }
}

TEST(Answer, WhatIsNoneIsNamed) {
  EXPECT_EQ(refused("ok"), "answered 'ok', which is not a message");
  EXPECT_NE(refused(R"({"type":7,"id":3})").find("not a message"), std::string::npos);
  EXPECT_NE(refused(R"({"type":"ran","id":4})").find("lacks \"id\": 3"), std::string::npos);
  EXPECT_NE(refused(R"({"type":"ran"})").find("lacks \"id\": 3"), std::string::npos);
  EXPECT_NE(refused(R"({"type":"rain","id":3})").find("type is unknown"), std::string::npos);
  EXPECT_NE(refused("{\"type\":" + std::string(1'000'000, '[')).find("nested too deep"), std::string::npos);
}

}  // namespace
}  // namespace samestate
