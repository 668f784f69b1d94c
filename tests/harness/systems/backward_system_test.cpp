#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "fuzz/mutants/mutant.h"
#include "harness/cases/case_filter.h"
#include "harness/cases/resolved.h"
#include "harness/run/run_case.h"
#include "oracles/judge_policy.h"
#include "reference/error.h"

/// Lines with pass=backward: how they are written, and the data that they stand for.
namespace samestate {
namespace {

const CaseTensor& named(const std::vector<CaseTensor>& tensors, const std::string& name) {
  return *std::ranges::find(tensors, name, [](const CaseTensor& x) { return x.spec.name; });
}

std::vector<CaseTensor> inputs_of(const std::string& line) {
  const Resolved r(parse_case(line));
  return r.system->inputs(r);
}

TEST(BackwardSystem, ALineSaysPass) {
  const std::string line = "v1 gated_delta_rule pass=backward chunk=16 T=33 dk=16 state=random";
  const Case c = parse_case(line);
  EXPECT_EQ(c.system, "gated_delta_rule.backward");
  EXPECT_EQ(format_case(c), line);
  EXPECT_EQ(format_case(parse_case("v1 gated_delta_rule.backward T=33 chunk=16 dk=16 state=random")), line);
  EXPECT_EQ(format_case(parse_case("v1 gated_delta_rule pass=forward T=5")), "v1 gated_delta_rule T=5");
  try {
    (void)parse_case("v1 softmax_attention pass=backward");
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("gradients of softmax_attention are not judged"), std::string::npos) << text;
    EXPECT_NE(text.find("gated_delta_rule"), std::string::npos) << text;
  }
  EXPECT_THROW((void)parse_case("v1 gated_delta_rule cotangent=o"), Error) << "a key of gradients alone";
  EXPECT_THROW((void)parse_case("v1 gated_delta_rule pass=backward ranks=2"), Error)
      << "a key of the forward pass alone";
}

TEST(BackwardSystem, AFilterMayNameTheEquationOrThePass) {
  const Case backward = parse_case("v1 retention pass=backward T=5"),
             forward = parse_case("v1 retention T=5");
  const auto takes = [](const std::string& text, const Case& c) {
    CaseFilter filter;
    filter.where(text, "--where");
    return filter.takes(c, "k");
  };
  EXPECT_TRUE(takes("pass=backward", backward));
  EXPECT_FALSE(takes("pass=backward", forward));
  EXPECT_TRUE(takes("system=retention pass=backward", backward));
  EXPECT_TRUE(takes("system=retention.backward", backward));
  EXPECT_FALSE(takes("system=retention.backward", forward));
}

TEST(BackwardSystem, TheDataAreThoseOfTheForwardPass) {
  const std::string sizes = " T=9 Hk=2 Hv=4 dk=3 dv=5 contract=bf16 regime=slow state=random seed=0x7";
  const auto forward = inputs_of("v1 gated_delta_rule" + sizes),
             backward = inputs_of("v1 gated_delta_rule pass=backward" + sizes);
  for (const CaseTensor& x : forward) EXPECT_EQ(named(backward, x.spec.name).data, x.data) << x.spec.name;
}

TEST(BackwardSystem, CotangentsAreOfTheirKind) {
  const auto of = [](const std::string& kind, const std::string& name) {
    return named(inputs_of("v1 retention pass=backward B=3 T=7 Hv=2 dk=3 dv=4 seed=0x9 cotangents=" + kind),
                 name)
        .data;
  };
  EXPECT_TRUE(std::ranges::all_of(of("ones", "d.o"), [](float x) { return x == 1.0F; }));
  for (const char* name : {"d.o", "d.final_state"}) {
    const std::vector<float> one = of("basis", name);
    EXPECT_EQ(std::ranges::count(one, 1.0F), 3) << name << ": one for each sequence";
    EXPECT_EQ(std::ranges::count(one, 0.0F), std::ssize(one) - 3) << name;
    const auto largest = [&](const std::string& kind) {
      const std::vector<float> x = of(kind, name);
      return std::ranges::max(x, {}, [](float e) { return std::abs(e); });
    };
    EXPECT_LT(std::abs(largest("tiny")), 1e-3F) << name;
    EXPECT_GT(std::abs(largest("large")), 20.0F) << name;
    EXPECT_GT(std::abs(largest("normal")), 0.5F) << name;
  }
}

// One token of one head: o = scale q (k . v)^T, and the state is k v^T.
TEST(BackwardSystem, OutputsAsCotangentsAreThoseOfTheForwardPass) {
  const auto x =
      inputs_of("v1 linear_attention pass=backward T=1 dk=2 dv=2 scale=0.5 cotangents=output seed=0x3");
  const std::vector<float>&q = named(x, "q").data, &k = named(x, "k").data, &v = named(x, "v").data;
  const float read = 0.5F * (q[0] * k[0] + q[1] * k[1]);
  for (std::size_t c = 0; c < 2; ++c) {
    EXPECT_NEAR(named(x, "d.o").data[c], read * v[c], 1e-6F);
    EXPECT_NEAR(named(x, "d.final_state").data[2 + c], k[1] * v[c], 1e-6F);
  }
}

/// The last bit of the first element of d.v is wrong.
Outcome wrong_by_a_bit(const CallKernel& right, const KernelCall& call, const Contract& contract) {
  Outcome outcome = right.run(call, contract);
  const View<float, 4> d_v = call.view<float, 4>("d.v");
  d_v(0, 0, 0, 0) = std::nextafter(d_v(0, 0, 0, 0), HUGE_VALF);
  return outcome;
}

// With integers and powers of two nothing rounds, so that a wrong last bit fails a kernel that other data pass.
TEST(BackwardSystem, ExactDataAreJudgedBitForBit) {
  for (const std::string rule : {"gated_delta_rule", "delta_rule", "retention", "linear_attention"}) {
    for (const std::string form : {"chunked", "recurrent"}) {
      const auto right =
          std::ranges::find(call_kernels(), "cpu." + rule + ".backward." + form, &CallKernel::name);
      ASSERT_NE(right, call_kernels().end());
      CallKernel wrong = *right;
      wrong.run = [&right = *right](const KernelCall& call, const Contract& contract) {
        return wrong_by_a_bit(right, call, contract);
      };
      const auto judged = [&](const CallKernel& kernel, const std::string& more) {
        return run_case(parse_case("v1 " + rule + " pass=backward form=" + form +
                                   (form == "chunked" ? " chunk=8" : "") +
                                   " B=2 T=21 Hk=2 Hv=4 dk=8 dv=8 state=random " + more),
                        KernelTable(std::span(&kernel, 1)))
            .judgement;
      };
      for (const std::string more : {"", " cotangents=output", " cotangents=large", " cotangent=state",
                                     " contract=bf16", " regime=exact_reset"}) {
        if (more.ends_with("reset") && rule != "gated_delta_rule" && rule != "retention") continue;
        if (more.ends_with("bf16") && form == "recurrent") continue;
        const std::string line = (more.ends_with("reset") ? "" : "regime=exact") + more;
        const Judgement j = judged(*right, line);
        EXPECT_EQ(j.verdict, Verdict::pass) << rule << " " << form << " " << line << ": " << j.reason;
        EXPECT_EQ(j.gate, "exact") << rule << " " << form << " " << line;
        EXPECT_EQ(judged(wrong, line).verdict, Verdict::fail) << rule << " " << form << " " << line;
      }
      EXPECT_EQ(judged(wrong, "").verdict, Verdict::pass) << rule << " " << form;
    }
  }
}

// A sum in 16 bits often drowns among the other roundings of d.g, except where the state does nothing but decay.
TEST(BackwardSystem, ASumInSixteenBitsIsSeenWhereTheStateOnlyDecays) {
  constexpr int kSeeds = 5;
  const auto failing = [](const KernelTable& table, const std::string& more) {
    int count = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) {
      const Case c = parse_case(
          "v1 gated_delta_rule pass=backward T=33 chunk=16 dk=16 contract=bf16 state=random seed=" +
          std::to_string(seed) + more);
      if (run_case(c, table).judgement.verdict == Verdict::fail) ++count;
    }
    return count;
  };
  const std::string decay = " cotangent=state regime=only_decay";
  const KernelTable sums =
      mutant_named("last_token_in_sixteen_bits.gated_delta_rule.backward.chunked").table();
  EXPECT_EQ(failing(sums, decay), kSeeds);
  EXPECT_LT(failing(sums, ""), kSeeds);
  const auto right =
      std::ranges::find(call_kernels(), "cpu.gated_delta_rule.backward.chunked", &CallKernel::name);
  EXPECT_EQ(failing(KernelTable(std::span(&*right, 1)), decay), 0);
}

TEST(BackwardSystem, StatesOfSequencesWithoutTokensCostTimeToo) {
  const auto work = [](const std::string& line) {
    const Case c = parse_case(line);
    return system_named(c.system).work(c, kGatePolicy);
  };
  EXPECT_GT(work("v1 retention pass=backward form=packed lengths=0,0 dk=1024 dv=640 state=random"),
            100.0 * work("v1 retention pass=backward form=packed lengths=0,0 dk=8 dv=8 state=random"));
}

}  // namespace
}  // namespace samestate
