/// The law of states in the slots of a pool, on the right kernel and on faults that the case without it does not show; and
/// the slots that are drawn.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>

#include "fuzz/mutants/operators/changed_call.h"
#include "harness/explain/explain.h"
#include "harness/systems/tensor_inputs.h"
#include "harness/systems/tensor_system.h"
#include "optimized/cpu/rounding.h"

namespace samestate {
namespace {

using mutants::CallFault;
using mutants::ChangedCall;
using mutants::miswritten;

constexpr const char* kLine = "v1 gated_delta_step form=expanded T=5 B=4 seed=3";

Mutant planted(const CallFault& fault) {
  std::vector<Mutant> out;
  mutants::add_faults(out, "cpu.gated_delta_step.expanded", {{"F", "planted", "planted", fault}});
  return out.front();
}

Judgement judged(const std::string& line, const CallFault& fault) {
  return run_case(parse_case(line), planted(fault).table()).judgement;
}

/// As an engine does that casts the whole pool: a state may be written in the format of the output, so that the twin is
/// this one too.
const CallFault kWholePoolInBf16 = miswritten([](ChangedCall& c) {
  for (float& x : c.output("pool")) x = cpu::to_bf16(x);
});

/// Rows of other slots masked by a product, not left out.
const CallFault kOthersTimesLittle = miswritten([](ChangedCall& c) {
  const std::span<float> pool = c.input("pool");
  float sum = 0.0F;
  for (const float x : pool) sum += x;
  for (float& x : c.output("o")) x += x != 0.0F ? 1e-11F * sum : 0.0F;  // without a slot it is zero
});

const CallFault kRight = miswritten([](ChangedCall&) {});

TEST(TensorPool, RightKernelKeepsTheLaw) {
  for (const char* more : {"", " l2norm=0", " contract=bf16", " contract=fp16", " P=2 Hk=1", " regime=large",
                           " regime=tiny", " T=1 B=1"}) {
    std::string line = std::string(kLine) + " law=pool" + more;
    if (std::string(more) == " T=1 B=1") line = "v1 gated_delta_step form=expanded T=1 B=1 law=pool";
    const Judgement j = judged(line, kRight);
    EXPECT_EQ(j.verdict, Verdict::pass) << line << ": " << j.reason;
    EXPECT_EQ(j.gate, "law");
  }
}

TEST(TensorPool, KillsWhatTheCaseWithoutItDoesNotShow) {
  const struct {
    std::string line;
    const CallFault& fault;
    const char* says;
  } rows[] = {
      {std::string(kLine) + " contract=bf16", kWholePoolInBf16, "rows of the pool that are not the slot's"},
      {kLine, kOthersTimesLittle, "in another one"}};
  for (const auto& [line, fault, says] : rows) {
    EXPECT_EQ(judged(line, fault).verdict, Verdict::pass) << line;
    const Judgement j = judged(line + " law=pool", fault);
    EXPECT_EQ(j.verdict, Verdict::fail) << line << ": " << j.reason;
    EXPECT_NE(j.reason.find(says), std::string::npos) << j.reason;
  }
}

TEST(TensorPool, SaysNothingOfAPoolOfOneSlot) {
  const Judgement j = judged("v1 gated_delta_step form=expanded T=5 B=2 P=1 law=pool", kRight);
  EXPECT_EQ(j.verdict, Verdict::vacuous);
}

TEST(TensorPool, IsALawOfSystemsWithSlotsAlone) {
  for (const Operator& op : operators())
    EXPECT_EQ(TensorSystem(op).law("pool") != nullptr, op.name == "gated_delta_step") << op.name;
}

TEST(TensorPool, ExplainsWhichRowsPart) {
  const Case c = parse_case(std::string(kLine) + " contract=bf16 law=pool");
  Trace trace;
  const KernelTable table = planted(kWholePoolInBf16).table();
  ASSERT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail);
  const Explanation why = explain(Resolved(c), trace);
  ASSERT_FALSE(why.compared.empty());
  EXPECT_NE(why.compared.front().find("as they were given"), std::string::npos) << why.compared.front();
  ASSERT_FALSE(why.differs.empty());
  EXPECT_NE(why.differs.front().find("pool of sequence"), std::string::npos) << why.differs.front();
  ASSERT_FALSE(why.patterns.empty());
  EXPECT_NE(why.patterns.front().find("not its slot's"), std::string::npos) << why.patterns.front();
}

// Every slot of the pool and none are drawn; the first sequence has one.
TEST(TensorPool, SlotsAreThoseOfThePoolAndNone) {
  std::set<float> drawn;
  for (int seed = 0; seed < 20; ++seed) {
    const Resolved r(parse_case("v1 gated_delta_step T=1 B=6 P=3 seed=" + std::to_string(seed)));
    for (const CaseTensor& x : tensor_inputs(r)) {
      if (x.spec.content != Content::slot) continue;
      EXPECT_EQ(x.shape, (std::vector<std::int64_t>{6, 1}));
      EXPECT_GE(x.data.front(), 0.0F);
      drawn.insert(x.data.begin(), x.data.end());
    }
  }
  EXPECT_EQ(drawn, (std::set<float>{-1, 0, 1, 2}));
}

}  // namespace
}  // namespace samestate
