#include "reports/text/junit.h"

#include <gtest/gtest.h>

#include <pugixml.hpp>

#include "oracles/reasons.h"
#include "tests/reports/records.h"

namespace samestate {
namespace {

using testing::record;

class Junit : public testing::Folder {
 protected:
  static pugi::xml_document parsed(const std::vector<Record>& records) {
    const std::string text = junit_text(records, testing::run());
    pugi::xml_document document;
    const pugi::xml_parse_result result = document.load_string(text.c_str());
    EXPECT_TRUE(result) << result.description();
    return document;
  }
};

TEST_F(Junit, MapsEveryVerdict) {
  std::vector<Record> records;
  for (Verdict verdict : {Verdict::pass, Verdict::fail, Verdict::vacuous, Verdict::unsupported,
                          Verdict::skipped, Verdict::crash, Verdict::timeout, Verdict::flaky}) {
    records.push_back(record(verdict, 0.5, "v1 " + std::string(name_of(verdict))));
    records.back().judgement.reason = "";
  }
  const pugi::xml_document document = parsed(records);
  const pugi::xml_node suite = document.child("testsuites").child("testsuite");
  EXPECT_STREQ(suite.attribute("name").value(), "cpu.gated_delta_rule.chunked");
  EXPECT_EQ(suite.attribute("tests").as_int(), 8);
  EXPECT_EQ(suite.attribute("failures").as_int(), 2);
  EXPECT_EQ(suite.attribute("errors").as_int(), 2);
  EXPECT_EQ(suite.attribute("skipped").as_int(), 3);
  EXPECT_STREQ(suite.find_child_by_attribute("name", "absent").name(), "");
  EXPECT_STREQ(
      suite.child("properties").find_child_by_attribute("name", "cases.vacuous").attribute("value").value(),
      "1");
  EXPECT_STREQ(suite.child("properties").find_child_by_attribute("name", "commit").attribute("value").value(),
               "abc123");
  const char* elements[] = {"", "failure", "skipped", "skipped", "skipped", "error", "error", "failure"};
  std::size_t i = 0;
  for (pugi::xml_node node : suite.children("testcase")) {
    EXPECT_STREQ(node.attribute("classname").value(), "gated_delta_rule.chunked");
    EXPECT_EQ(node.attribute("name").value(), records[i].line);
    EXPECT_STREQ(node.attribute("time").value(), "0.250000");
    const std::string element = elements[i];
    for (const char* kind : {"failure", "error", "skipped"}) {
      EXPECT_EQ(static_cast<bool>(node.child(kind)), element == kind) << records[i].line;
    }
    if (!element.empty()) {
      const std::string message = node.child(element.c_str()).attribute("message").value();
      EXPECT_EQ(message.rfind(name_of(records[i].judgement.verdict), 0), 0U) << message;
      EXPECT_NE(message.find(records[i].line), std::string::npos) << message;
    }
    if (element == "failure" || element == "error") {
      EXPECT_NE(std::string(node.child(element.c_str()).text().get()).find("samestate repro"),
                std::string::npos);
    }
    ++i;
  }
  EXPECT_EQ(i, 8U);
}

TEST_F(Junit, ASuiteAKernelAndALawInTheName) {
  std::vector<Record> records(3, record(Verdict::pass, 0.5, "v1 a"));
  records[1].law = "split";
  records[1].line = "v1 a law=split";
  records[2].kernel = "cuda.gated_delta_rule.chunked";
  const pugi::xml_document document = parsed(records);
  const pugi::xml_node root = document.child("testsuites");
  EXPECT_EQ(root.attribute("tests").as_int(), 3);
  const pugi::xml_node first = root.child("testsuite");
  EXPECT_EQ(first.attribute("tests").as_int(), 2);
  EXPECT_STREQ(first.find_child_by_attribute("testcase", "name", "v1 a law=split").name(), "testcase");
  EXPECT_STREQ(first.next_sibling().attribute("name").value(), "cuda.gated_delta_rule.chunked");
}

// Kernels that could not run are listed together with those that ran.
TEST_F(Junit, ASuiteSaysWhatItLacksADeviceFor) {
  std::vector<Record> records = {record(Verdict::pass, 0.5, "v1 a"), record(Verdict::skipped, 0, "v1 b"),
                                 record(Verdict::skipped, 0, "v1 c")};
  records[1].kernel = records[2].kernel = "cuda.one";
  records[1].judgement.gate = kNoDevice;
  const pugi::xml_document document = parsed(records);
  const auto of = [&](const char* kernel) {
    const pugi::xml_node suite =
        document.child("testsuites").find_child_by_attribute("testsuite", "name", kernel);
    const pugi::xml_node property =
        suite.child("properties").find_child_by_attribute("property", "name", "no_device");
    return std::string(property.attribute("value").value());
  };
  EXPECT_EQ(
      of("cuda.one"),
      "not run for want of a device: 1 case of 1 kernel; on a machine with one: samestate gate --device "
      "cuda");
  EXPECT_EQ(of("cpu.gated_delta_rule.chunked"), "");
}

TEST_F(Junit, StaysXmlWhateverAKernelSays) {
  Record odd = record(Verdict::fail, 2.0);
  odd.judgement.reason =
      "bell \a escape \x1b[31m ]]> <b> & \" \xff \xed\xa0\x80 nul " + std::string(1, '\0') + "end";
  const std::string text = junit_text(std::vector{odd}, {});
  for (char c : text) {
    EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 0x20) << static_cast<int>(c);
  }
  EXPECT_EQ(text.find("&#x"), std::string::npos);
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(text.c_str()));
  const std::string message = document.child("testsuites")
                                  .child("testsuite")
                                  .child("testcase")
                                  .child("failure")
                                  .attribute("message")
                                  .value();
  EXPECT_NE(message.find("]]> <b> & \" \uFFFD \uFFFD\uFFFD\uFFFD nul end"), std::string::npos) << message;
}

// One failure of a kind is explained, and a reader may open any of them.
TEST_F(Junit, EveryFailureOfAKindHasItsLikeness) {
  std::vector<Record> records(3, record(Verdict::fail, 2.0, "v1 a T=1"));
  records[1].line = "v1 a T=64";
  records[2].line = "v1 a law=split", records[2].law = "split";
  records[0].looks_like = "no delta term (mutant no_delta_term)";
  const pugi::xml_document document = parsed(records);
  std::vector<std::string> texts;
  for (const pugi::xml_node node : document.child("testsuites").child("testsuite").children("testcase"))
    texts.emplace_back(node.child("failure").text().get());
  ASSERT_EQ(texts.size(), 3U);
  EXPECT_NE(texts[0].find("looks like: no delta term (mutant no_delta_term)\n"), std::string::npos)
      << texts[0];
  EXPECT_NE(texts[1].find("looks like: no delta term (mutant no_delta_term), as far as an example"),
            std::string::npos)
      << texts[1];
  EXPECT_NE(texts[1].find("v1 a T=1\n"), std::string::npos) << "the example is named";
  EXPECT_EQ(texts[2].find("looks like"), std::string::npos) << "another law is another kind";
}

// A reader of the XML alone must not take a run that was cut short for a green one.
TEST_F(Junit, AShortRunIsATestOfItsOwn) {
  const std::vector<Record> records = {record(Verdict::pass, 0.5)};
  RunEnd end{1.0, "7", 3, "Interrupted before 9 of 10 cases.", {"too little"}};
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(junit_text(records, {}, end).c_str()));
  const pugi::xml_node root = document.child("testsuites");
  EXPECT_STREQ(root.attribute("tests").value(), "2");
  EXPECT_STREQ(root.attribute("errors").value(), "1");
  const pugi::xml_node suite = root.find_child_by_attribute("name", "samestate gate");
  EXPECT_STREQ(suite.child("testcase").child("error").attribute("message").value(),
               "exit 3: Interrupted before 9 of 10 cases. too little");
  end.exit = 0;
  end.remarks.clear();
  ASSERT_TRUE(document.load_string(junit_text(records, {}, end).c_str()));
  EXPECT_STREQ(document.child("testsuites").attribute("errors").value(), "0");
  EXPECT_STREQ(document.child("testsuites").child("testsuite").attribute("skipped").value(), "1");
}

TEST_F(Junit, WritesTheFile) {
  const std::vector<Record> records = {record(Verdict::pass, 0.5)};
  write_junit(path("out/gate.xml"), records, {});
  EXPECT_EQ(testing::slurp(path("out/gate.xml")), junit_text(records, {}));
  EXPECT_NE(junit_text({}, {}).find("tests=\"0\""), std::string::npos);
}

}  // namespace
}  // namespace samestate
