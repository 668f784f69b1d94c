/// Routers and the order of assignments for the CUDA device: their own source, executed by threads of the host, against the
/// kernels of the CPU.
#include "optimized/cuda/experts/routing.cuh"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "optimized/cpu/operators/dendritic_parts.h"
#include "optimized/cpu/operators/expert_router.h"
#include "optimized/cpu/operators/group_limited_router.h"
#include "optimized/cpu/operators/routing.h"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/dendritic/router.cuh"
#include "optimized/cuda/experts/experts.cuh"
#include "optimized/cuda/experts/routing_groups.cuh"
#include "tests/optimized/contracts.h"

namespace samestate::cuda {
namespace {

using Values = std::vector<float>;

/// Numbers of few values, so that some are equal.
template <class Operand>
Values drawn(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, 2.0F);
  Values out(static_cast<std::size_t>(count));
  for (float& x : out) x = loaded(stored<Operand>(std::round(8.0F * normal(random)) / 8.0F));
  return out;
}
template <class Operand>
DeviceBuffer<Operand> on_device(const Values& values) {
  std::vector<Operand> out;
  for (const float x : values) out.push_back(stored<Operand>(x));
  return DeviceBuffer<Operand>(out);
}
template <class Operand>
Values loaded_of(const DeviceBuffer<Operand>& buffer) {
  Values out;
  for (const Operand x : buffer.download()) out.push_back(loaded(x));
  return out;
}
template <class Operand>
constexpr float kNear = std::is_same_v<Operand, float> ? 4e-6F : 0x1.02p-7F;
template <class Operand>
Contract contract_of() {
  if constexpr (std::is_same_v<Operand, float>) return {};
  return testing::bf16();
}
template <class Operand>
void expect_near(const Values& found, const Values& expected, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], kNear<Operand> * std::fabs(expected[i])) << what << ' ' << i;
}

template <class Operand>
void check_routing(int experts, int chosen) {
  constexpr std::int64_t kTokens = 11;
  const Values logits = drawn<Operand>(kTokens * experts, static_cast<unsigned>(experts));
  Values probabilities, weights(logits.size(), 0.0F), share;
  std::vector<std::int32_t> choice;
  const Format format = std::is_same_v<Operand, float> ? Format::fp32 : Format::bf16;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    cpu::TokenRouting routing(chosen);
    routing.choose(logits.data() + t * experts, experts, format);
    Values p(static_cast<std::size_t>(experts));
    cpu::softmax_of(logits.data() + t * experts, experts, p.data());
    probabilities.insert(probabilities.end(), p.begin(), p.end());
    share.insert(share.end(), routing.weights().begin(), routing.weights().end());
    for (std::size_t r = 0; r < routing.experts().size(); ++r) {
      choice.push_back(static_cast<std::int32_t>(routing.experts()[r]));
      weights[static_cast<std::size_t>(t * experts + routing.experts()[r])] = routing.weights()[r];
    }
  }
  const DeviceBuffer<Operand> in = on_device<Operand>(logits), p(logits.size()), w(logits.size());
  const DeviceBuffer<std::int32_t> c(choice.size());
  const DeviceBuffer<float> s(choice.size());
  const RoutingParameters<Operand> parameters{in.data(), kTokens,  experts,  chosen,
                                              p.data(),  w.data(), c.data(), s.data()};
  route_tokens<false>(parameters, nullptr);
  route_tokens<true>(parameters, nullptr);
  const std::string what = std::to_string(experts) + " experts";
  expect_near<Operand>(loaded_of(p), probabilities, what);
  expect_near<Operand>(loaded_of(w), weights, what);
  expect_near<Operand>(s.download(), share, what);
  EXPECT_EQ(c.download(), choice) << what;
}

TEST(CudaRouting, TokensGoWhereThoseOfTheCpuGo) {
  for (const auto& [experts, chosen] : {std::pair{8, 2}, {512, 10}, {1024, 64}, {5, 5}, {77, 33}, {1, 1}}) {
    check_routing<float>(experts, chosen);
    check_routing<Bf16>(experts, chosen);
  }
}

/// All of the chosen in one lane, or several, in every order, zeros of both signs among them: a lane keeps four.
template <class Operand>
void check_crowded_lanes(int experts, int chosen) {
  constexpr std::int64_t kTokens = 40;
  Values logits = drawn<Operand>(kTokens * experts, 9);
  std::mt19937 random(5);
  for (std::int64_t t = 0; t < kTokens; ++t) {
    float* const row = logits.data() + t * experts;
    for (int i = 0; i < experts; ++i) row[i] = random() % 2 == 0 ? -0.0F : 0.0F;
    const auto lane = static_cast<int>(random() % 32), high = static_cast<int>(t % 4) * 8;
    for (int i = 0; i < experts; ++i) {
      if (i / 8 % 32 == lane && i % 32 >= high % 32) row[i] = static_cast<float>(random() % 9) - 4.0F;
    }
  }
  std::vector<std::int32_t> choice;
  const Format format = std::is_same_v<Operand, float> ? Format::fp32 : Format::bf16;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    cpu::TokenRouting routing(chosen);
    routing.choose(logits.data() + t * experts, experts, format);
    for (const auto expert : routing.experts()) choice.push_back(static_cast<std::int32_t>(expert));
  }
  const DeviceBuffer<Operand> in = on_device<Operand>(logits), p(logits.size()), w(logits.size());
  const DeviceBuffer<std::int32_t> c(choice.size());
  const DeviceBuffer<float> s(choice.size());
  route_tokens<true>(
      RoutingParameters<Operand>{in.data(), kTokens, experts, chosen, p.data(), w.data(), c.data(), s.data()},
      nullptr);
  EXPECT_EQ(c.download(), choice) << experts << " experts";
}

TEST(CudaRouting, ALaneMayHaveAllOfTheChosen) {
  for (const auto& [experts, chosen] : {std::pair{512, 16}, {1024, 40}, {256, 10}, {253, 20}}) {
    check_crowded_lanes<float>(experts, chosen);
    check_crowded_lanes<Bf16>(experts, chosen);
  }
}

/// Logits are the tokens themselves, because the router is the identity. They have few values, so that
/// experts and groups are tied. Those of the last token are so low that their scores underflow in fp32.
template <class Operand>
void check_groups(int experts, int groups, int kept, int chosen, bool biased) {
  constexpr std::int64_t kTokens = 9;
  Values logits = drawn<Operand>(kTokens * experts, static_cast<unsigned>(experts + chosen));
  for (auto x = logits.end() - experts; x != logits.end(); ++x) *x = *x / 16.0F - 100.0F;
  for (float& x : logits) x = loaded(stored<Operand>(x));
  Values identity(static_cast<std::size_t>(experts) * static_cast<std::size_t>(experts), 0.0F);
  for (int i = 0; i < experts; ++i) identity[static_cast<std::size_t>(i * (experts + 1))] = 1.0F;
  Values bias(static_cast<std::size_t>(experts));
  for (int i = 0; i < experts; ++i)
    bias[static_cast<std::size_t>(i)] = 0.25F * static_cast<float>(i * 7 % 5 - 2);
  const Values scaling{2.5F};
  Values same(logits.size()), probabilities(same), weights(same);
  OperatorArguments call;
  const std::vector<std::int64_t> rows{1, kTokens, experts};
  call.inputs = {{"x", rows, logits.data()},
                 {"router", {experts, experts}, identity.data()},
                 {"scaling", {1}, scaling.data()},
                 {"selection_bias", {experts}, bias.data()}};
  call.outputs = {{"logits", rows, same.data()},
                  {"probabilities", rows, probabilities.data()},
                  {"weights", rows, weights.data()}};
  call.parameters = {{"D", experts}, {"N", experts}, {"G", groups},
                     {"M", kept},    {"K", chosen},  {"bias", biased ? 1 : 0}};
  call.tokens = kTokens;
  (void)cpu::group_limited_router_ordered(call, contract_of<Operand>());
  ASSERT_EQ(same, logits);
  const DeviceBuffer<Operand> in = on_device<Operand>(logits), p(logits.size()), w(logits.size());
  const DeviceBuffer<float> b(bias), factor(scaling);
  route_tokens_in_groups(
      GroupRoutingParameters<Operand>{in.data(), biased ? b.data() : nullptr, factor.data(), kTokens, experts,
                                      groups, kept, chosen, p.data(), w.data()},
      nullptr);
  const std::string what = std::to_string(experts) + " experts in " + std::to_string(groups);
  expect_near<Operand>(loaded_of(p), probabilities, what);
  const Values found = loaded_of(w);
  expect_near<Operand>(found, weights, what);
  float last = 0.0F;
  for (auto x = found.end() - experts; x != found.end(); ++x) last += *x;
  EXPECT_NEAR(last, 2.5F, 0.02F * 2.5F) << what;
}

TEST(CudaRouting, ExpertsOfTheBestGroupsAreThoseOfTheCpu) {
  struct Row {
    int experts, groups, kept, chosen;
  };
  for (const Row& row : {Row{256, 8, 4, 8},
                         {16, 4, 2, 2},
                         {160, 1, 1, 8},
                         {77, 7, 3, 33},
                         {64, 64, 9, 9},
                         {512, 64, 33, 40},
                         {1024, 32, 2, 64},
                         {605, 55, 54, 20},
                         {1, 1, 1, 1},
                         {34, 2, 1, 1}}) {
    for (const bool biased : {false, true}) {
      check_groups<float>(row.experts, row.groups, row.kept, row.chosen, biased);
      check_groups<Bf16>(row.experts, row.groups, row.kept, row.chosen, biased);
    }
  }
}

TEST(CudaRouting, LoadsAreThoseOfTheCpu) {
  constexpr std::int64_t kBatch = 2, kTokens = 70, kExperts = 24, kChosen = 3;
  const Values logits = drawn<float>(kBatch * kTokens * kExperts, 1), alpha{0.5F};
  Values mask(kBatch * kTokens, 1.0F), load(kBatch * kExperts), mean(load), loss(kBatch);
  std::fill_n(mask.begin() + 3, 12, 0.0F);
  OperatorArguments call;
  call.inputs = {{"logits", {kBatch, kTokens, kExperts}, logits.data()},
                 {"mask", {kBatch, kTokens, 1}, mask.data()},
                 {"alpha", {1}, alpha.data()}};
  call.outputs = {{"load", {kBatch, kExperts}, load.data()},
                  {"mean", {kBatch, kExperts}, mean.data()},
                  {"loss", {kBatch, 1}, loss.data()}};
  call.parameters = {{"N", kExperts}, {"K", kChosen}, {"per_token", 0}};
  call.batch = kBatch;
  call.tokens = kTokens;
  (void)cpu::load_balance_one_pass(call, {});
  constexpr std::int64_t kParts = 3;
  const DeviceBuffer<float> in(logits), counts(mask), strength(alpha), f(load.size()), p(mean.size()),
      l(kBatch);
  const DeviceBuffer<float> sums(kBatch * kParts * kExperts);
  const DeviceBuffer<std::int32_t> counted(kBatch * kParts), assigned(kBatch * kParts * kExperts);
  const LoadParameters<float> parameters{in.data(), counts.data(),  strength.data(), f.data(),
                                         p.data(),  l.data(),       kBatch,          kTokens,
                                         kExperts,  kChosen,        false,           32,
                                         kParts,    counted.data(), assigned.data(), sums.data()};
  using Part = LoadOfPart<float, 8, 4>;
  launch<Part>(kBatch * kParts, Part::shared_bytes(parameters), parameters, nullptr);
  launch<LoadOfSequence<float>>(kBatch, 64, parameters, nullptr);
  EXPECT_EQ(f.download(), load);
  expect_near<float>(p.download(), mean, "mean");
  expect_near<float>(l.download(), loss, "loss");
}

/// In parts of `part`, or in one, which one block orders.
void check_assignments(std::int64_t part) {
  constexpr int kExperts = 300, kChosen = 4, kTile = 16;
  constexpr std::int64_t kAssignments = 4 * 350;
  std::vector<std::int32_t> choice(kAssignments), order(kAssignments);
  std::mt19937 random(1);
  for (std::int32_t& e : choice) e = static_cast<std::int32_t>(random() % 7 == 0 ? 299 : random() % 290);
  std::iota(order.begin(), order.end(), 0);
  const auto expert_of = [&](std::int32_t a) { return choice[static_cast<std::size_t>(a)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int32_t a, std::int32_t b) { return expert_of(a) < expert_of(b); });
  AssignmentParameters p;
  const DeviceBuffer<std::int32_t> in(choice), total(kExperts), first(kExperts), token(kAssignments),
      place(kAssignments);
  p.choice = in.data(), p.assignments = kAssignments, p.experts = kExperts, p.chosen = kChosen;
  p.part = part, p.parts = (kAssignments + part - 1) / part;
  const DeviceBuffer<std::int32_t> before(static_cast<std::size_t>(p.parts * kExperts));
  p.tile_rows = kTile, p.tile_count = product_tiles(kAssignments, kExperts, ProductTiling::skinny);
  const DeviceBuffer<ProductTile> tiles(static_cast<std::size_t>(p.tile_count));
  p.before = before.data(), p.total = total.data(), p.first = first.data(), p.token_at = token.data();
  p.place_of = place.data(), p.tiles = tiles.data();
  order_assignments(p, nullptr);
  for (std::int32_t i = 0; i < kAssignments; ++i) {
    EXPECT_EQ(token.data()[i], order[static_cast<std::size_t>(i)] / kChosen);
    EXPECT_EQ(place.data()[order[static_cast<std::size_t>(i)]], i);
  }
  std::int64_t next = 0;
  for (const ProductTile& tile : tiles.download()) {
    EXPECT_EQ(tile.rows > 0 ? tile.first : 0, tile.rows > 0 ? next : 0);
    for (std::int32_t r = 0; r < tile.rows; ++r, ++next)
      EXPECT_EQ(expert_of(order[static_cast<std::size_t>(next)]), tile.group);
  }
  EXPECT_EQ(next, kAssignments);
}

TEST(CudaRouting, AssignmentsStandByExpertThenByToken) {
  check_assignments(37);
  check_assignments(4 * 350);
}

template <class Operand, int slots>
void check_branches(int width, int shared, int routed, int idle) {
  constexpr std::int64_t kTokens = 150, kHeads = 2;
  const int candidates = routed + idle;
  const Values q = drawn<Operand>(kTokens * kHeads * width, 1);
  Values router = drawn<Operand>(std::int64_t{candidates} * width, 2);
  if (candidates > 1) std::copy_n(router.begin(), width, router.begin() + width);  // equal in any arithmetic
  Values omega(static_cast<std::size_t>(kTokens * kHeads * (shared + candidates))), mask(omega);
  OperatorArguments call;
  const std::vector<std::int64_t> out{1, kTokens, kHeads * (shared + candidates)};
  call.inputs = {{"q", {1, kTokens, kHeads * width}, q.data()},
                 {"router", {candidates, width}, router.data()}};
  call.outputs = {{"omega", out, omega.data()}, {"mask", out, mask.data()}};
  call.parameters = {{"H", kHeads}, {"d", width}, {"Es", shared}, {"K", routed}, {"idle", idle}};
  call.tokens = kTokens;
  (void)cpu::dendritic_router_chosen(call, contract_of<Operand>());
  const DeviceBuffer<Operand> in = on_device<Operand>(q), weights = on_device<Operand>(router),
                              o(omega.size()), m(omega.size());
  const RouterParameters<Operand> p{in.data(), weights.data(), o.data(), m.data(), kTokens * kHeads,
                                    width,     candidates,     shared,   routed};
  using Routes = StagedRoutes<Operand, slots>;
  ASSERT_TRUE(Routes::takes(p));
  const auto compare = [&] {
    EXPECT_EQ(loaded_of(m), mask) << width;
    const Values found = loaded_of(o);
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], omega[i], std::max(kNear<Operand>, 1e-4F) * omega[i]) << width << ' ' << i;
  };
  Routes::launch(p, nullptr);
  compare();
  // One block that goes round, as those of more rows than a device holds do; copies that land as late as they may.
  o.fill(0xff, nullptr), m.fill(0xff, nullptr);
  emulation::copies_land_late = true;
  launch<Routes>(1, Routes::shared_bytes(p), p, nullptr);
  emulation::copies_land_late = false;
  compare();
}

TEST(CudaRouting, BranchesAreThoseOfTheCpu) {
  check_branches<float, 8>(20, 1, 2, 5);
  check_branches<float, 16>(4, 0, 9, 7);
  check_branches<Bf16, 8>(72, 3, 2, 6);
  check_branches<Bf16, 16>(8, 5, 1, 8);
  check_branches<float, 8>(100, 0, 1, 6);   // more steps than a ring holds
  check_branches<Bf16, 8>(264, 1, 2, 5);    // the same, the last one a quarter
  check_branches<Bf16, 16>(160, 0, 3, 13);  // the second tile's candidates too
}

}  // namespace
}  // namespace samestate::cuda
