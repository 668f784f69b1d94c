#include "harness/subjects/declaration.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "reference/error.h"
#include "tests/facts.h"

namespace samestate {
namespace {

const std::string kReady =
    R"({"type":"ready","protocol":1,"kernels":[{"name":"a.gated_delta_rule.chunked","system":"gated_delta_rule",)"
    R"("form":"chunked","device":"cuda","contracts":["bf16"],"limits":["dk <= 128"],"conventions":{"decay":"linear",)"
    R"("state":"vk","heads":"tiled","l2norm":"in_kernel","scale":"dk","beta":"logit","layout":"THD",)"
    R"("state_argument":"in_place","cu_seqlens":"int32","dtypes":{"g":"bf16"}},"strided":true,"variant":["dk"],"about":{"file":"a.py"}}],)"
    R"("about":{"torch":"2.11"}})";

TEST(Declaration, IsRead) {
  const Ready ready = parse_ready(kReady);
  ASSERT_EQ(ready.kernels.size(), 1U);
  const Declaration& d = ready.kernels.front();
  EXPECT_EQ(d.device, "cuda");
  EXPECT_EQ(d.limits, std::vector<std::string>{"dk <= 128"});
  EXPECT_TRUE(d.strided && d.conventions.values_first);
  EXPECT_EQ(d.variant, std::vector<std::string>{"dk"});
  EXPECT_EQ(d.conventions.decay, Given::Decay::linear);
  EXPECT_EQ(d.conventions.layout, Conventions::Tokens::THD);
  EXPECT_EQ(d.conventions.dtypes.at("g"), Dtype::bf16);
  EXPECT_EQ(ready.about, R"({"torch":"2.11"})");
  const std::vector<std::string> limits = limits_of(d.conventions);
  EXPECT_NE(std::find(limits.begin(), limits.end(), "l2norm = 1"), limits.end());
  EXPECT_NE(std::find(limits.begin(), limits.end(), "regime != beta_two"), limits.end());
}

TEST(Declaration, TapsAreRead) {
  std::string text = kReady;
  text.replace(text.find("\"variant\":[\"dk\"]"), 16, R"("taps":["q","gated"])");
  EXPECT_EQ(parse_ready(text).kernels.front().taps, (std::vector<std::string>{"q", "gated"}));
  text.replace(text.find("[\"q\",\"gated\"]"), 13, "\"q\"");
  EXPECT_THROW((void)parse_ready(text), Error);
}

TEST(Declaration, AKernelIsDeterministicUnlessItSaysOtherwise) {
  std::string text = kReady;
  EXPECT_TRUE(parse_ready(text).kernels.front().deterministic);
  text.replace(text.find("\"contracts\""), 0, R"("deterministic":false,)");
  EXPECT_FALSE(parse_ready(text).kernels.front().deterministic);
  text.replace(text.find("false"), 5, "\"no\"");
  EXPECT_THROW((void)parse_ready(text), Error);
}

TEST(Declaration, MemoryIsRead) {
  std::string text = kReady;
  EXPECT_FALSE(parse_ready(text).kernels.front().device_memory);
  text.replace(text.find("\"contracts\""), 0, R"("memory":"cuda",)");
  EXPECT_TRUE(parse_ready(text).kernels.front().device_memory);
  text.replace(text.find("\"cuda\",\"memory\""), 6, "\"cpu\"");
  EXPECT_THROW((void)parse_ready(text), Error);
}

TEST(Declaration, ANormInTheKernelHasItsEpsilonAndPlace) {
  EXPECT_EQ(parse_ready(kReady).kernels.front().conventions.norm_epsilon, 1e-6);
  std::string text = kReady;
  const std::string from = R"("l2norm":"in_kernel")";
  text.replace(text.find(from), from.size(), from + R"(,"l2norm_place":"outside","l2norm_epsilon":1e-5)");
  const Conventions c = parse_ready(text).kernels.front().conventions;
  EXPECT_EQ(c.norm_place, Given::NormPlace::outside);
  EXPECT_EQ(c.norm_epsilon, 1e-5);
}

TEST(Declaration, ConventionsThatASystemHasNoUseForAreNamed) {
  Declaration d;
  d.name = "mine", d.system = "rms_norm";
  const auto refused = [&](std::vector<std::string> said, bool family, bool pool) {
    d.said = std::move(said);
    try {
      require_conventions(d, family, pool);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused({"dtypes"}, false, false), "");
  EXPECT_EQ(refused({"dtypes", "null_slot"}, false, true), "");
  EXPECT_EQ(refused({"decay", "l2norm_epsilon"}, true, false), "");
  d.conventions.dtypes = {{"q", Dtype::bf16}};
  EXPECT_EQ(refused({"dtypes"}, false, false), "") << "of named tensors each has its own";
  EXPECT_NE(refused({"dtypes"}, true, false).find("\"dtypes\" of q is what the contract says"),
            std::string::npos);
  d.conventions.dtypes = {{"G", Dtype::bf16}};
  EXPECT_EQ(lacking(refused({"dtypes"}, true, false), "G initial_state"), "");
  d.conventions.dtypes = {{"q", Dtype::fp32}, {"g", Dtype::bf16}};
  EXPECT_EQ(refused({"dtypes"}, true, false), "");
  EXPECT_NE(refused({"state"}, false, true).find("recurrent family"), std::string::npos);
  EXPECT_EQ(lacking(refused({"null_slot"}, true, false), "rms_norm none"), "");
  EXPECT_EQ(lacking(refused({"null_slot"}, false, false), "rms_norm none"), "");
}

/// The error names what is wrong.
TEST(Declaration, BadOnesAreNamed) {
  const auto refused = [](const std::string& from, const std::string& to) {
    std::string text = kReady;
    text.replace(text.find(from), from.size(), to);
    try {
      (void)parse_ready(text);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(lacking(refused("\"linear\"", "\"linaer\""), "ln log2 linear raw"), "");
  EXPECT_NE(refused("\"protocol\":1", "\"protocol\":2").find("protocol"), std::string::npos);
  EXPECT_NE(refused("\"decay\"", "\"decoy\"").find("'decoy' is not a convention"), std::string::npos);
  EXPECT_NE(refused("\"strided\":true", "\"strided\":1").find("true or false"), std::string::npos);
  EXPECT_NE(refused("[\"bf16\"]", "[]").find("no \"contracts\""), std::string::npos);
  EXPECT_NE(refused("[\"bf16\"]", "[3]").find("not a string"), std::string::npos);
  EXPECT_NE(refused("\"system\":\"gated", "\"system\":\"\\ngated").find("contains a control character"),
            std::string::npos);
  EXPECT_NE(refused("\"scale\":\"dk\"", "\"scale\":\"folded\"").find("does not survive"), std::string::npos);
  const std::string norm = R"("l2norm":"in_kernel")";
  for (const char* epsilon : {"0", "1e-13", "0.1", "\"1e-6\"", "-1e-6"})
    EXPECT_NE(refused(norm, norm + ",\"l2norm_epsilon\":" + epsilon).find("from 1e-12 to 0.01"),
              std::string::npos)
        << epsilon;
  EXPECT_NE(refused(norm, norm + R"(,"l2norm_place":"root")").find("inside, outside, max"),
            std::string::npos);
  EXPECT_NE(refused(norm, norm + R"(,"l2norm_place":"outside","l2norm_epsilon":1e-12)").find("underflow"),
            std::string::npos);
  EXPECT_NE(refused(norm, R"("l2norm":"outside","l2norm_epsilon":1e-5)").find("it has none"),
            std::string::npos);
  EXPECT_EQ(refused(norm, norm + R"(,"null_slot":"0")"), "") << "it is the system that has no pool";
  EXPECT_NE(refused(norm, norm + R"(,"null_slot":"1")").find("-1, 0, none"), std::string::npos);
  EXPECT_NE(
      refused("\"a.gated_delta_rule.chunked\"", std::string(1'000'000, '[')).find("nested deeper than 64"),
      std::string::npos);
  EXPECT_NE(refused("{\"type\":\"ready\"", "Loading weights..").find("stderr"), std::string::npos);
}

/// Whatever a subject says is read or refused, and nothing else happens: bytes changed, left out, put in twice.
TEST(Declaration, SurvivesAnything) {
  std::mt19937_64 bits(11);
  int read = 0;
  for (int i = 0; i < 100'000; ++i) {
    std::string text = kReady;
    for (std::uint64_t edits = 1 + bits() % 4; edits > 0; --edits) {
      if (text.empty()) text = "{";
      const std::size_t at = bits() % text.size();
      switch (bits() % 4) {
        case 0:
          text[at] = static_cast<char>(bits());
          break;
        case 1:
          text.erase(at, 1 + bits() % 8);
          break;
        case 2:
          text.insert(at, text.substr(bits() % text.size(), bits() % 40));
          break;
        default:
          text.resize(at + 1);
      }
    }
    try {
      (void)parse_ready(text);
      ++read;
    } catch (const Error&) {
    }
  }
  EXPECT_GT(read, 100);
}

}  // namespace
}  // namespace samestate
