#include "optimized/call.h"

#include <gtest/gtest.h>

#include <functional>

#include "reference/error.h"
#include "tests/facts.h"
#include "tests/optimized/call.h"

namespace samestate::cpu {
namespace {

using testing::Call;
using testing::make_call;
using testing::Shape;

const Shape plain{.B = 2, .T = 5, .Hk = 2, .Hv = 4, .dk = 3, .dv = 6};

/// Returns the message of the Error that a changed call gives; empty if none is thrown.
std::string error_of(const Shape& shape, const std::function<void(Arguments&)>& change) {
  Call call = make_call("gated_delta_rule", shape, 4);
  Arguments arguments = call.arguments();
  change(arguments);
  try {
    (void)checked_sizes(arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Calls, SizesOfAGoodCall) {
  Call call = make_call("gated_delta_rule", plain, 4);
  const Sizes sizes = checked_sizes(call.arguments());
  EXPECT_EQ(sizes.batch, 2);
  EXPECT_EQ(sizes.tokens, 5);
  EXPECT_EQ(sizes.key_heads, 2);
  EXPECT_EQ(sizes.value_heads, 4);
  EXPECT_EQ(sizes.dk, 3);
  EXPECT_EQ(sizes.dv, 6);
  EXPECT_EQ(sizes.sequences, 2);
  EXPECT_EQ(error_of(plain, [](Arguments&) {}), "");
}

TEST(Calls, ImpossibleViewsAreNamed) {
  static const std::int64_t descending[] = {0, 4, 3};
  static const std::int64_t beyond[] = {0, 4, 6};
  const struct {
    const char* part;
    std::function<void(Arguments&)> change;
  } faults[] = {
      {"k is [2, 5, 2, 2]", [](Arguments& a) { a.k.shape[3] = 2; }},
      {"v is [2, 4, 4, 6]", [](Arguments& a) { a.v.shape[1] = 4; }},
      {"v has 3 heads and q has 2", [](Arguments& a) { a.v.shape[2] = 3; }},
      {"dk must be at least 1", [](Arguments& a) { a.q.shape[3] = 0; }},
      {"dv must be at least 1", [](Arguments& a) { a.v.shape[3] = 0; }},
      {"q is absent", [](Arguments& a) { a.q.data = nullptr; }},
      {"o is absent", [](Arguments& a) { a.o.data = nullptr; }},
      {"g is [2, 5, 2]", [](Arguments& a) { a.g.shape[2] = 2; }},
      {"beta is [1, 5, 4]", [](Arguments& a) { a.beta.shape[0] = 1; }},
      {"initial_state is [2, 4, 6, 3]",
       [](Arguments& a) { std::swap(a.initial_state.shape[2], a.initial_state.shape[3]); }},
      {"final_state is [1, 4, 3, 6]", [](Arguments& a) { a.final_state.shape[0] = 1; }},
      {"o has stride 0", [](Arguments& a) { a.o.stride[1] = 0; }},
      {"q has stride 2 in its last dimension", [](Arguments& a) { a.q.stride[3] = 2; }},
      {"o has stride 5 in its last dimension", [](Arguments& a) { a.o.stride[3] = 5; }},
      {"initial_state has stride 6 in its last dimension",
       [](Arguments& a) { std::swap(a.initial_state.stride[2], a.initial_state.stride[3]); }},
      {"final_state has stride 0", [](Arguments& a) { a.final_state.stride[2] = 0; }},
      {"with other strides",
       [](Arguments& a) {
         a.initial_state = a.final_state;
         std::swap(a.final_state.stride[0], a.final_state.stride[1]);
       }},
      {"threads is 0", [](Arguments& a) { a.threads = 0; }},
      {"packed sequences need batch 1",
       [](Arguments& a) { a.cu_seqlens = row_major<const std::int64_t, 1>(descending, {3}); }},
  };
  for (const auto& [part, change] : faults) {
    const std::string message = error_of(plain, change);
    EXPECT_NE(message.find(part), message.npos) << part << " | " << message;
    EXPECT_EQ(message.find('\n'), message.npos);
  }
  const Shape packed{.B = 1, .T = 5, .dk = 2, .dv = 2, .offsets = {0, 2, 5}};
  const auto with = [&](const std::int64_t* offsets) {
    return error_of(packed,
                    [&](Arguments& a) { a.cu_seqlens = row_major<const std::int64_t, 1>(offsets, {3}); });
  };
  EXPECT_EQ(error_of(packed, [](Arguments&) {}), "");
  EXPECT_EQ(lacking(with(descending), "cu_seqlens[2] 3 [4, 5]"), "");
  EXPECT_NE(with(beyond).find("cu_seqlens[2] is 6"), std::string::npos);
}

TEST(Calls, AnEmptyOutputMayBeBroadcast) {
  const auto without_tokens = [](Arguments& a) {
    a.q = a.q.slice(1, 0, 0), a.k = a.k.slice(1, 0, 0), a.v = a.v.slice(1, 0, 0);
    a.g = a.g.slice(1, 0, 0), a.beta = a.beta.slice(1, 0, 0), a.o = a.o.slice(1, 0, 0);
    a.o.stride = {};
  };
  EXPECT_EQ(error_of(plain, without_tokens), "");
  EXPECT_NE(error_of(plain,
                     [&](Arguments& a) {
                       without_tokens(a);
                       a.final_state.stride[0] = 0;
                     })
                .find("final_state has stride 0"),
            std::string::npos)
      << "the states are there without tokens";
}

TEST(Calls, WhatASystemDoesNotDoIsUnsupported) {
  Call call = make_call("gated_delta_rule", plain, 4);
  const Arguments arguments = call.arguments();
  EXPECT_EQ(unsupported_reason(GATED_DELTA_RULE, arguments, {}), "");
  EXPECT_NE(unsupported_reason(DELTA_RULE, arguments, {}).find("leave g absent"), std::string::npos);
  EXPECT_NE(unsupported_reason(RETENTION, arguments, {}).find("leave beta absent"), std::string::npos);
  EXPECT_NE(unsupported_reason(LINEAR_ATTENTION, arguments, {}), "");
  Contract contract;
  contract.T = Format::fp64;
  EXPECT_NE(unsupported_reason(GATED_DELTA_RULE, arguments, contract).find("fp64"), std::string::npos);
}

TEST(Calls, HeadsFollowTheMapAndTheOffsets) {
  Call call =
      make_call("gated_delta_rule", {.T = 9, .Hk = 2, .Hv = 6, .dk = 3, .dv = 2, .offsets = {1, 4, 9}}, 4);
  Arguments arguments = call.arguments();
  const Sizes sizes = checked_sizes(arguments);
  const std::int64_t interleaved[] = {0, 0, 0, 1, 1, 1};
  const std::int64_t tiled[] = {0, 1, 0, 1, 0, 1};
  for (std::int64_t h = 0; h < 6; ++h) {
    arguments.head_map = HeadMap::interleaved;
    EXPECT_EQ(head_of(arguments, sizes, 0, h).k.data, &arguments.k(0, 1, interleaved[h], 0));
    arguments.head_map = HeadMap::tiled;
    const Head head = head_of(arguments, sizes, 1, h);
    EXPECT_EQ(head.q.data, &arguments.q(0, 4, tiled[h], 0));
    EXPECT_EQ(head.v.data, &arguments.v(0, 4, h, 0));
    EXPECT_EQ(head.g.row(2), &arguments.g(0, 6, h));
    EXPECT_EQ(head.final_state.row(2), &arguments.final_state(1, h, 2, 0));
    EXPECT_EQ(head.tokens, 5);
  }
}

TEST(Calls, EveryTaskRunsOnceAndErrorsComeBack) {
  for (const int threads : {1, 2, 5}) {
    std::vector<std::atomic<int>> runs(40);
    for_each_task(40, threads, [&] { return [&](std::int64_t i) { ++runs[i]; }; });
    for (const std::atomic<int>& count : runs) EXPECT_EQ(count, 1);
    EXPECT_THROW(for_each_task(40, threads,
                               [] {
                                 return [](std::int64_t i) {
                                   if (i == 17) throw Error("task 17");
                                 };
                               }),
                 Error);
  }
  for_each_task(0, 4, [] { return [](std::int64_t) { FAIL(); }; });
}

}  // namespace
}  // namespace samestate::cpu
