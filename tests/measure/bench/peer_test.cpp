#include "measure/bench/peer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "reference/error.h"

namespace samestate {
namespace {

const Case& a_case() {
  static const Case c = parse_case("v1 retention T=9 dk=8 seed=0x2a");
  return c;
}

std::string problem_of(const std::string& answer) { return parse_peer_answer(7, answer).problem; }

TEST(PeerAnswers, GoodOnes) {
  const PeerAnswer timed =
      parse_peer_answer(7, R"({"id": 7, "kernel": "fla.chunk", "seconds": [1e-3, 2e-3], "note": "graph"})");
  EXPECT_EQ(timed.problem, "");
  EXPECT_EQ(timed.kernel, "fla.chunk");
  EXPECT_EQ(timed.seconds, (std::vector<double>{1e-3, 2e-3}));
  EXPECT_EQ(timed.note, "graph");
  const PeerAnswer refused = parse_peer_answer(7, R"({"id": 7, "unsupported": "no fp32"})");
  EXPECT_EQ(refused.problem, "");
  EXPECT_EQ(refused.unsupported, "no fp32");
  EXPECT_TRUE(refused.seconds.empty());
}

/// A peer that lies about its JSON, in every way that this version knows.
TEST(PeerAnswers, BadOnesAreProblems) {
  const std::pair<const char*, const char*> lies[] = {
      {"", "not a JSON object"},
      {"warming up ...", "not a JSON object"},
      {"[7]", "not a JSON object"},
      {"{\"id\": 7, \"kernel\": \"x\", \"seconds\": [1e-3", "not a JSON object"},
      {R"({"kernel": "x", "seconds": [1e-3]})", "lacks \"id\""},
      {R"({"id": 6, "kernel": "x", "seconds": [1e-3]})", "lacks \"id\""},
      {R"({"id": "7", "kernel": "x", "seconds": [1e-3]})", "lacks \"id\""},
      {R"({"id": 7, "seconds": [1e-3]})", "names no \"kernel\""},
      {R"({"id": 7, "kernel": 3, "seconds": [1e-3]})", "names no \"kernel\""},
      {R"({"id": 7, "kernel": "x"})", "not an array"},
      {R"({"id": 7, "kernel": "x", "seconds": 1e-3})", "not an array"},
      {R"({"id": 7, "kernel": "x", "seconds": []})", "not an array"},
      {R"({"id": 7, "kernel": "x", "seconds": [0]})", "not a time above 0"},
      {R"({"id": 7, "kernel": "x", "seconds": [-1e-3]})", "not a time above 0"},
      {R"({"id": 7, "kernel": "x", "seconds": ["fast"]})", "not a time above 0"},
      {R"({"id": 7, "kernel": "x", "seconds": [1e-3, null]})", "not a time above 0"},
      {R"({"id": 7, "unsupported": true})", "gives no reason"},
  };
  for (const auto& [answer, said] : lies)
    EXPECT_NE(problem_of(answer).find(said), std::string::npos) << answer << ": " << problem_of(answer);
}

TEST(PeerAnswers, TextIsMadeFitForALine) {
  const PeerAnswer answer = parse_peer_answer(
      7, nlohmann::json{{"id", 7}, {"kernel", "x\n\x1b[31m" + std::string(5000, 'y')}, {"seconds", {1e-3}}}
             .dump());
  EXPECT_EQ(answer.kernel.substr(0, 4), "x??[");
  EXPECT_EQ(answer.kernel.size(), 200U);
}

TEST(PeerRequest, HoldsTheCaseAndItsFields) {
  const nlohmann::json request = nlohmann::json::parse(peer_request(3, a_case(), 0.25));
  EXPECT_EQ(request["id"], 3);
  EXPECT_EQ(parse_case(request["line"].get<std::string>()), a_case());
  EXPECT_EQ(request["system"], "retention");
  EXPECT_EQ(request["T"], 9);
  EXPECT_EQ(request["seconds"], 0.25);
  EXPECT_EQ(request["scale"].get<float>(), 0.35355338F);  // 8^-1/2
}

/// Shells that stand in for a peer.
PeerAnswer answer_of(const std::string& shell, double timeout = 10.0) {
  Peer peer(shell, timeout);
  return peer.ask(a_case(), 0.1);
}

TEST(Peer, AnswersLineByLine) {
  Peer peer(
      R"(n=0; while read -r line; do n=$((n + 1)); printf '{"id": %d, "kernel": "sh", "seconds": [%d]}\n' $n $n; done)",
      10.0);
  EXPECT_EQ(peer.ask(a_case(), 0.1).seconds, std::vector<double>{1.0});
  EXPECT_EQ(peer.ask(a_case(), 0.1).seconds, std::vector<double>{2.0});
}

TEST(Peer, ThatDiesIsAProblem) {
  EXPECT_NE(answer_of("exit 3").problem.find("ended"), std::string::npos);
  EXPECT_NE(answer_of("read -r line; kill -9 $$").problem.find("ended"), std::string::npos);
  EXPECT_NE(answer_of("/no/such/command 2>/dev/null").problem.find("ended"), std::string::npos);
}

TEST(Peer, ThatHangsIsEnded) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_NE(answer_of("sleep 60", 0.2).problem.find("no answer"), std::string::npos);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
}

TEST(Peer, ThatTalksWithoutEndIsEnded) {
  EXPECT_NE(answer_of("tr '\\0' x </dev/zero").problem.find("longer than"), std::string::npos);
}

TEST(Peer, IsStartedAgainTwiceAndThenLeftAlone) {
  Peer peer("read -r line; echo nonsense", 10.0);
  for (int i = 0; i < 3; ++i)
    EXPECT_NE(peer.ask(a_case(), 0.1).problem.find("not a JSON object"), std::string::npos) << i;
  EXPECT_NE(peer.ask(a_case(), 0.1).problem.find("not asked"), std::string::npos);
}

/// An earlier output of the peer cannot pass for the answer to a later case.
TEST(Peer, ASecondLineIsNoAnswerToTheNextCase) {
  Peer peer(
      R"(read -r line; printf '{"id": 1, "kernel": "sh", "seconds": [1]}\n{"id": 1, "kernel": "sh", "seconds": [9]}\n'; read -r line; sleep 5)",
      10.0);
  EXPECT_EQ(peer.ask(a_case(), 0.1).seconds, std::vector<double>{1.0});
  EXPECT_NE(peer.ask(a_case(), 0.1).problem.find("lacks \"id\""), std::string::npos);
}

}  // namespace
}  // namespace samestate
