#include "optimized/slots.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "optimized/cpu/operators/gated_delta_step.h"

namespace samestate {
namespace {

/// A serving step of one token a request on a pool of P slots, its sizes 1.
class Step {
 public:
  Step(std::vector<float> slots, std::int64_t P) : slots_(std::move(slots)) {
    const auto requests = static_cast<std::int64_t>(slots_.size());
    memory_.assign(static_cast<std::size_t>(requests * P), 1.0F);
    o_ = next_ = memory_;
    call_.batch = requests;
    call_.tokens = 1;
    for (const char* name : {"q", "k", "v"})
      call_.inputs.push_back({name, {requests, 1, 1, 1}, memory_.data()});
    for (const char* name : {"a", "b"}) call_.inputs.push_back({name, {requests, 1, 1}, memory_.data()});
    for (const char* name : {"A_log", "dt_bias"}) call_.inputs.push_back({name, {1}, memory_.data()});
    call_.inputs.push_back({"slot", {requests, 1}, slots_.data()});
    call_.inputs.push_back({"pool", {requests, P, 1, 1, 1}, memory_.data()});
    call_.outputs.push_back({"o", {requests, 1, 1, 1}, o_.data()});
    call_.outputs.push_back({"pool", {requests, P, 1, 1, 1}, next_.data()});
    call_.parameters = {{"P", P}, {"Hk", 1}, {"Hv", 1}, {"dk", 1}, {"dv", 1}, {"l2norm", 1}};
  }
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  [[nodiscard]] OperatorArguments& call() { return call_; }

 private:
  std::vector<float> slots_, memory_, o_, next_;
  OperatorArguments call_;
};

/// Returns what `work` throws; empty if it throws nothing.
template <class Work>
std::string error_of(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Slots, WholeNumbersOfThePoolAndNone) {
  EXPECT_EQ(slots_of(Step({2.0F, -1.0F, 0.0F, -0.0F}, 3).call()), (std::vector<std::int64_t>{2, -1, 0, 0}));
  EXPECT_EQ(slots_of(Step({1023.0F}, 1024).call()), (std::vector<std::int64_t>{1023}));
}

TEST(Slots, AreReadWhereTheyLie) {
  Step step({0.0F, 0.5F, 2.0F, 0.5F}, 3);
  step.call().batch = 2;
  for (auto& x : step.call().inputs) {
    if (x.name == "slot") x.shape = {2, 1}, x.stride = {2, 1};
  }
  EXPECT_EQ(slots_of(step.call()), (std::vector<std::int64_t>{0, 2}));
}

// Rounded, 2.7 is slot 3 of a pool of 3, and -0.5 slot 0 or none.
TEST(Slots, WhatIsNoSlotIsRefused) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float slot : {2.7F, 3.0F, -2.0F, -0.5F, 0.5F, std::nanf(""), infinity, -infinity}) {
    const std::string why = error_of([&] { (void)slots_of(Step({0.0F, slot}, 3).call()); });
    for (const std::string& part :
         {"slot=" + std::to_string(slot), std::string("of request 1"), std::string("P=3"),
          std::string("from 0 to 2"), std::string("-1 for none")})
      EXPECT_NE(why.find(part), std::string::npos) << why;
  }
}

TEST(Slots, TheStepOnTheCpuRefusesThem) {
  for (const float slot : {2.7F, -0.5F, 3.0F}) {
    Step step({0.0F, slot}, 3);
    const std::string why = error_of([&] { (void)cpu::gated_delta_step_expanded(step.call(), {}); });
    EXPECT_NE(why.find("slot=" + std::to_string(slot)), std::string::npos) << why;
  }
  Step step({0.0F, -1.0F}, 3);
  EXPECT_EQ(error_of([&] { (void)cpu::gated_delta_step_expanded(step.call(), {}); }), "");
}

}  // namespace
}  // namespace samestate
