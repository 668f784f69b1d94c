/// The law of states in the slots of a pool, on the right kernel and on faults that the case without it does not show; and
/// the slots that are drawn.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

constexpr const char* kPoolLine = "v1 gated_delta_step form=expanded T=5 B=4 seed=3";

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

/// Calls f(element) for the rows that the request does not own.
template <class Function>
CallFault in_unowned_rows(Function f) {
  return miswritten([f](ChangedCall& c) {
    const auto size = static_cast<std::size_t>(c.at("Hv") * c.at("dk") * c.at("dv"));
    const std::span<float> pool = c.output("pool");
    for (std::size_t i = 0; i < pool.size(); ++i) {
      const std::size_t row = i / size, P = static_cast<std::size_t>(c.at("P"));
      if (c.input("slot")[row / P] != static_cast<float>(row % P)) pool[i] = f(pool[i]);
    }
  });
}

/// Copies through arithmetic: -0 + 0 is 0, and a subnormal is flushed, and a number that is none loses what it carries.
const CallFault kPlusZero = in_unowned_rows([](float x) { return x == 0.0F ? 0.0F : x; });
const CallFault kFlushed =
    in_unowned_rows([](float x) { return std::fpclassify(x) == FP_SUBNORMAL ? 0.0F : x; });
const CallFault kQuieted =
    in_unowned_rows([](float x) { return std::isnan(x) ? std::numeric_limits<float>::quiet_NaN() : x; });
const CallFault kFinite = in_unowned_rows(
    [](float x) { return std::isinf(x) ? std::copysign(std::numeric_limits<float>::max(), x) : x; });

const CallFault kRight = miswritten([](ChangedCall&) {});

TEST(TensorPool, RightKernelKeepsTheLaw) {
  for (const char* more : {"", " l2norm=0", " contract=bf16", " contract=fp16", " P=2 Hk=1", " regime=large",
                           " regime=tiny", " T=1 B=1"}) {
    std::string line = std::string(kPoolLine) + " law=pool" + more;
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
  } rows[] = {{std::string(kPoolLine) + " contract=bf16", kWholePoolInBf16,
               "rows of the pool that are not the slot's"},
              {kPoolLine, kPlusZero, "-0 (0x80000000) became 0 (0x00000000)"},
              {kPoolLine, kFlushed, "rows of the pool that are not the slot's"},
              {kPoolLine, kQuieted, "nan (0x7fc12345) became nan (0x7fc00000)"},
              {kPoolLine, kFinite, "inf (0x7f800000) became 3.40282e+38"},
              {kPoolLine, kOthersTimesLittle, "in another one"}};
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
  const Case c = parse_case(std::string(kPoolLine) + " contract=bf16 law=pool");
  Trace trace;
  const KernelTable table = planted(kWholePoolInBf16).table();
  ASSERT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail);
  const Explanation why = explain(Resolved(c), trace);
  ASSERT_FALSE(why.compared.empty());
  EXPECT_NE(why.compared.front().find("as they were given"), std::string::npos) << why.compared.front();
  ASSERT_FALSE(why.differs.empty());
  EXPECT_NE(why.differs.front().find("pool of sequence"), std::string::npos) << why.differs.front();
  ASSERT_FALSE(why.patterns.empty());
  EXPECT_NE(why.patterns.front().find("is its slot's): its numbers rounded to bf16"), std::string::npos)
      << why.patterns.front();
}

// The contents of the rows that no sequence owns are described afterwards as a whole.
TEST(TensorPool, ExplainsWhatWasWrittenToRowsThatNobodyOwns) {
  const struct {
    CallFault fault;
    const char* says;
  } rows[] = {{kPlusZero, "no sequence owns (none is its slot's): 0 where -0 was, as adding zero does"},
              {kFlushed, "no sequence owns (none is its slot's): zeros where subnormal numbers were"},
              {in_unowned_rows([](float) { return 0.0F; }), "(none is its slot's): zeros"},
              {in_unowned_rows([](float x) { return 2.0F * x; }), "(none is its slot's): other numbers"},
              {kQuieted, "reads or writes a row of the pool that is not its slot's"},
              {kOthersTimesLittle, "reads or writes a row of the pool that is not its slot's"}};
  for (const auto& [fault, says] : rows) {
    const Case c = parse_case(std::string(kPoolLine) + " law=pool");
    Trace trace;
    const KernelTable table = planted(fault).table();
    ASSERT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail) << says;
    const Explanation why = explain(Resolved(c), trace);
    ASSERT_FALSE(why.patterns.empty()) << says;
    EXPECT_NE(why.patterns.front().find(says), std::string::npos) << why.patterns.front();
  }
}

// A difference that only the words show has no pair of values to print.
TEST(TensorPool, ExplainsWhatOnlyTheWordsTellApart) {
  const Case c = parse_case(std::string(kPoolLine) + " law=pool");
  Trace trace;
  const KernelTable table = planted(kPlusZero).table();
  ASSERT_EQ(run_case(c, table, 1, &trace).judgement.verdict, Verdict::fail);
  const Explanation why = explain(Resolved(c), trace);
  ASSERT_EQ(why.differs.size(), 1U);
  EXPECT_NE(why.differs.front().find("0x80000000"), std::string::npos) << why.differs.front();
  EXPECT_FALSE(why.patterns.empty());
}

// Every slot of the pool and none are drawn, at the first sequence too; no batch is without a state.
TEST(TensorPool, SlotsAreThoseOfThePoolAndNone) {
  std::set<float> drawn, first, only;
  for (int seed = 0; seed < 40; ++seed) {
    const auto slots = [&](const char* batch) {
      const Resolved r(parse_case(fmt::format("v1 gated_delta_step T=1 P=3 seed={} B={}", seed, batch)));
      const std::vector<CaseTensor> inputs = tensor_inputs(r);
      return std::ranges::find(inputs, Content::slot, [](const CaseTensor& x) { return x.spec.content; })
          ->data;
    };
    const std::vector<float> six = slots("6");
    ASSERT_EQ(six.size(), 6U);
    EXPECT_GE(*std::ranges::max_element(six), 0.0F);
    first.insert(six.front());
    drawn.insert(six.begin(), six.end());
    only.insert(slots("1").front());
  }
  EXPECT_EQ(drawn, (std::set<float>{-1, 0, 1, 2}));
  EXPECT_EQ(first, (std::set<float>{-1, 0, 1, 2}));
  EXPECT_EQ(only, (std::set<float>{0, 1, 2}));
}

// The last slot of a large pool is met in a few cases, where offsets are largest.
TEST(TensorPool, TheLastSlotOfALargePoolIsMet) {
  int met = 0;
  for (int seed = 0; seed < 40; ++seed) {
    const Resolved r(
        parse_case(fmt::format("v1 gated_delta_step T=1 B=4 P=1024 Hv=1 Hk=1 dk=1 dv=1 seed={}", seed)));
    for (const CaseTensor& x : tensor_inputs(r))
      met += x.spec.content == Content::slot && std::ranges::count(x.data, 1023.0F) > 0 ? 1 : 0;
  }
  EXPECT_GE(met, 8);
}

}  // namespace
}  // namespace samestate
