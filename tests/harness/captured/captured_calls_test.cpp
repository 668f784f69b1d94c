#include "harness/captured/captured_calls.h"

#include <gtest/gtest.h>

#include "reference/error.h"

namespace samestate {
namespace {

const std::string kFunction =
    R"({"event":"function","format":"samestate-capture-1","function":"m:f","declaration":null})"
    "\n";
const std::string kCall =
    R"({"event":"call","function":"m:f","call":3,"file":"a.safetensors","values":{"n":2,"on":true,"no":null,"x":{"object":"T"}},)"
    R"("tensors":{"argument.q":{"dtype":"BF16","shape":[2,3],"strides":[8,1]}}})"
    "\n";
const std::string kDeclare =
    R"({"event":"declare","function":"m:f","declaration":{"name":"a.retention.chunked","system":"retention","form":"chunked",)"
    R"("contracts":["fp32"]},"arguments":{"q":"query"}})"
    "\n";

std::string complaint(const std::string& text) {
  try {
    (void)parse_captured(text, "calls.jsonl");
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(CapturedCalls, WhatWasRecorded) {
  const CapturedFolder found = parse_captured(kFunction + kCall + kDeclare, "calls.jsonl");
  ASSERT_EQ(found.calls.size(), 1U);
  const CapturedCall& call = found.calls.front();
  EXPECT_EQ(call.number, 3);
  EXPECT_EQ(call.values.at("n"), CapturedValue(2.0));
  EXPECT_EQ(call.values.at("on"), CapturedValue(true));
  EXPECT_EQ(call.values.at("x"), CapturedValue(std::monostate{}));
  const CapturedTensor& q = call.tensors.at("argument.q");
  EXPECT_EQ(q.dtype, DType::bf16);
  EXPECT_EQ(q.strides, (std::vector<std::int64_t>{8, 1}));
  const CapturedFunction& function = found.functions.at("m:f");
  ASSERT_TRUE(function.declaration.has_value());
  EXPECT_EQ(function.declaration->system, "retention");
  EXPECT_EQ(function.arguments.at("q"), "query");
  EXPECT_EQ(found.unfinished, 0);
}

TEST(CapturedCalls, ValuesThatAreNoDefaultsAreKnown) {
  const std::string begin = kFunction.substr(0, kFunction.rfind('}'));
  const CapturedFolder found = parse_captured(begin +
                                                  R"(,"defaults":{"n":2,"on":false,"no":null}})"
                                                  "\n" +
                                                  kCall,
                                              "calls.jsonl");
  EXPECT_EQ(found.calls.at(0).given, (std::set<std::string, std::less<>>{"on", "x"})) << "x has no default";
  EXPECT_TRUE(parse_captured(kFunction, "calls.jsonl").calls.empty());
}

/// Outputs are found by name anywhere, or else by place; an object that contains several tensors has no place
/// for one.
TEST(CapturedCalls, OutputsAreFoundByNameOrByPlace) {
  const auto of = [](const std::vector<std::string>& names, std::size_t place, std::string_view ours) {
    CapturedCall call;
    for (const std::string& name : names) call.tensors["output." + name] = {};
    return output_of(call, {}, place, ours);
  };
  EXPECT_EQ(of({"0", "1"}, 1, "final_state"), "output.1");
  EXPECT_EQ(of({"0.final_state", "0.o"}, 0, "o"), "output.0.o");
  EXPECT_EQ(of({"0.final_state", "1.o"}, 0, "o"), "output.1.o") << "a named tuple the other way round";
  EXPECT_EQ(of({"0.y"}, 0, "y"), "output.0.y");
  EXPECT_EQ(of({"0.first", "1.second"}, 1, "final_state"), "output.1.second");
  EXPECT_EQ(of({"0.first", "0.second"}, 0, "o"), "");
  EXPECT_EQ(of({"0"}, 1, "final_state"), "");
}

TEST(CapturedCalls, ALineThatWasCutOffIsCounted) {
  const CapturedFolder found = parse_captured(
      kFunction + kCall + kCall.substr(0, 50) + "\n" + kCall + kCall.substr(0, 20), "calls.jsonl");
  EXPECT_EQ(found.calls.size(), 2U);
  EXPECT_EQ(found.unfinished, 2);
}

TEST(CapturedCalls, NothingIsTrusted) {
  const auto changed = [](std::string text, const std::string& from, const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  const std::string deep(200, '[');
  for (const auto& [text, word] : std::vector<std::pair<std::string, std::string>>{
           {"", "samestate-capture-1"},
           {kCall, "no line for the function"},
           {"[1]\n", "not a JSON object"},
           {"{" + deep + "}\n", "not a JSON object"},
           {changed(kFunction, "capture-1", "capture-9") + kCall, "format is 'samestate-capture-9'"},
           {kFunction + changed(kCall, "a.safetensors", "../a.safetensors"),
            "not the name of a file in this folder"},
           {kFunction + changed(kCall, "a.safetensors", "a\\u0000b"), "file"},
           {kFunction + changed(kCall, "\"file\"", "\"other\""), "no \"file\""},
           {kFunction + changed(kCall, "BF16", "F8"), "F8"},
           {kFunction + changed(kCall, "[2,3]", "[2,3.5]"), "3.5"},
           {kFunction + changed(kCall, "[2,3]", "7"), "shape"},
           {kFunction + kCall + changed(kDeclare, "retention\",\"form", "retention\",\"fork"), "fork"},
           {kFunction + kCall + changed(kDeclare, "m:f", "m:g"), "m:g"},
           {kFunction + kCall + changed(kDeclare, "\"query\"", "3"), "not a name"}}) {
    EXPECT_NE(complaint(text).find(word), std::string::npos) << text << "\n" << complaint(text);
    EXPECT_EQ(complaint(text).find('\n'), std::string::npos);
    EXPECT_EQ(complaint(text).rfind("calls.jsonl", 0), 0U) << complaint(text);
  }
}

}  // namespace
}  // namespace samestate
