/// Two systems whose headers are renamed, with every line at another number (cmake/moved_headers.cmake), next
/// to the tree's own.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "oracles/systems/operator_twin.h"
#include "oracles/systems/rows.h"
#include "tests/oracles/systems/drawn_call.h"

namespace samestate {
namespace moved {
[[nodiscard]] std::vector<Operator> softmax_attention_operators();
}  // namespace moved

namespace {

/// Points by name in the order in which they are met, and as a search sorts them.
std::string names_of(SkippedPoints met) {
  std::string out;
  for (const Point& point : met.points) out += point.name() + " ";
  met.sort();
  for (const Point& point : met.points) out += "> " + point.name();
  return out;
}

/// The points of `met` at those places.
SkippedPoints chosen_from(const SkippedPoints& met, const std::vector<std::size_t>& places) {
  SkippedPoints out;
  for (const std::size_t i : places) out.add(met.points[i]);
  out.sort();
  return out;
}

struct Twins {
  Twins(const Operator& here, const Operator& there, const std::string& form, const char* under,
        std::uint64_t seed)
      : own(here.name.data(), form.c_str(), 13, {}, under, seed), call(own.call), moved{there} {}

  DrawnSubject own;
  Call call;
  const Operator& moved;

  [[nodiscard]] TwinSubject subject(const Operator& op) const {
    return {op, call, own.inputs, own.cuts, own.contract, own.oracle};
  }
};

/// All that a judgement says, numbers to the last bit.
void expect_same(const TwinJudgement& a, const TwinJudgement& b, const std::string& of) {
  EXPECT_EQ(a.judgement.verdict, b.judgement.verdict) << of;
  EXPECT_EQ(a.judgement.ratio, b.judgement.ratio) << of;
  EXPECT_EQ(a.judgement.error, b.judgement.error) << of;
  EXPECT_EQ(a.judgement.bound, b.judgement.bound) << of;
  EXPECT_EQ(a.judgement.reason, b.judgement.reason) << of;
  EXPECT_EQ(a.judgement.gate, b.judgement.gate) << of;
  EXPECT_EQ(a.same, b.same) << of;
}

// Right kernels that leave points out or take their keys in tiles, and wrong ones: what a search finds hangs on no line and on no
// name of a header.
TEST(MovedPoints, VerdictsAndRatiosAreThoseOfTheTreesOwnHeaders) {
  const std::vector<Operator> own = softmax_attention_operators(),
                              there = moved::softmax_attention_operators();
  ASSERT_EQ(own.size(), there.size());
  int judged = 0, failed = 0, named = 0;
  for (std::size_t i = 0; i < own.size(); ++i) {
    for (const OperatorForm& form : own[i].forms) {
      for (const char* under : {"bf16", "tf32"}) {
        const Twins of(own[i], there[i], std::string(form.name), under, 3);
        SkippedPoints met, moved;
        ASSERT_EQ(twin_values(of.subject(own[i]), {}, &met), twin_values(of.subject(there[i]), {}, &moved));
        ASSERT_EQ(names_of(met), names_of(moved)) << own[i].name << " " << form.name << " " << under;
        std::mt19937_64 engine(7);
        for (int n = 0; n < 6; ++n) {
          TwinVariant variant;
          std::vector<std::size_t> out;
          for (std::size_t k = 0; k < met.points.size(); ++k) {
            if (n > 1 && engine() % 3 == 0) out.push_back(k);
          }
          variant.skipped = chosen_from(met, out);
          variant.softmax.divides_last = n % 2 == 1;
          variant.softmax.key_tile = n % 2 == 1 ? 16 : 0;
          const Tensors<double> kernel =
              drawn_kernel(of.own, variant, n == 5 ? Planted::functions : Planted::none);
          const TwinJudgement a = judge_operator_twin(of.subject(own[i]), kernel, 7, kGatePolicy);
          const TwinJudgement b = judge_operator_twin(of.subject(there[i]), kernel, 7, kGatePolicy);
          expect_same(a, b, std::string(own[i].name) + " " + std::string(form.name) + " " + under);
          ++judged;
          failed += a.judgement.verdict == Verdict::fail;
          named += a.judgement.reason.find("not stored at") != std::string::npos;
        }
      }
    }
  }
  EXPECT_GE(judged, 70);
  EXPECT_GT(failed, 0) << "a wrong kernel is seen";
  EXPECT_GT(named, 5) << "some leave points out, and say which";
}

}  // namespace
}  // namespace samestate
