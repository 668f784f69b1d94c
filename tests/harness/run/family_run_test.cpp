#include "harness/run/family_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "harness/run/judge_batch.h"
#include "oracles/contracts.h"
#include "tests/facts.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::after;
using faulty::Fault;
using faulty::planted_table;
using faulty::undamaged;

constexpr const char* kCase =
    "v1 gated_delta_rule chunk=16 B=2 Hk=2 Hv=4 dk=16 dv=8 state=random "
    "kernel=planted.gated_delta_rule.chunked";

Judgement judged(const Fault& fault, const std::string& keys = "", const std::string& line = kCase) {
  const std::string tokens = keys.find("T=0") == keys.npos ? " T=33 " : " ";
  return run_case(parse_case(line + tokens + keys), planted_table(fault)).judgement;
}

float* last(const View<float, 4>& v) {
  return &v(v.shape[0] - 1, v.shape[1] - 1, v.shape[2] - 1, v.shape[3] - 1);
}

TEST(Runner, UndamagedRowPasses) {
  for (const char* keys : {"", "layout=padded", "layout=far", "layout=mixed", "layout=fused",
                           "layout=permuted", "final=none", "final=in_place", "repeat=1",
                           "repeat=1 final=in_place layout=mixed", "contract=bf16", "regime=exact"}) {
    const Judgement j = judged(faulty::undamaged, keys);
    EXPECT_EQ(j.verdict, Verdict::pass) << keys << ": " << j.reason;
  }
}

struct Trespassing {
  const char* name;
  const char* keys;
  std::function<void(const Arguments&)> act;
  const char* says;
};
class WritesWhatIsNotItsOwn : public testing::TestWithParam<Trespassing> {};

TEST_P(WritesWhatIsNotItsOwn, FailsAsMemory) {
  const Judgement j = judged(after(GetParam().act), GetParam().keys);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.gate, "memory");
  EXPECT_TRUE(std::isinf(j.ratio));
  EXPECT_NE(j.reason.find(GetParam().says), std::string::npos) << j.reason;
}

/// The second row of whichever dimension lies far apart.
float* second_far_row(const View<float, 4>& v) {
  std::array<std::int64_t, 4> at{};
  at.at(static_cast<std::size_t>(std::max_element(v.stride.begin(), v.stride.end()) - v.stride.begin())) = 1;
  return &v(at[0], at[1], at[2], at[3]);
}

float& writable(const float& x) { return const_cast<float&>(x); }

INSTANTIATE_TEST_SUITE_P(
    Runner, WritesWhatIsNotItsOwn,
    testing::Values(
        Trespassing{"PastTheEndOfO", "", [](const Arguments& a) { last(a.o)[1] = 0; }, "outside o"},
        Trespassing{"FarPastTheEndOfO", "", [](const Arguments& a) { last(a.o)[16] = 0; }, "outside o"},
        Trespassing{"SixtyFourPastTheEndOfO", "", [](const Arguments& a) { last(a.o)[64] = 0; },
                    "wrote outside o: 64 elements behind its last"},
        Trespassing{"FiveThousandPastTheEndOfO", "", [](const Arguments& a) { last(a.o)[5000] = 0; },
                    "wrote outside o: 5000 elements behind its last"},
        Trespassing{"AMillionBeforeO", "seed=0x1", [](const Arguments& a) { a.o.data[-1'000'000] = 0; },
                    "wrote outside o: 1000000 elements before its first"},
        Trespassing{"PastTheEndOfOAndPutBack", "",
                    [](const Arguments& a) {
                      volatile float* x = last(a.o) + 5000;
                      const float was = *x;
                      *x = 7;
                      *x = was;
                    },
                    "read outside o: 5000 elements behind its last"},
        Trespassing{"BeforeO", "", [](const Arguments& a) { a.o.data[-1] = 0; }, "outside o"},
        Trespassing{"NanPastTheEndOfO", "",
                    [](const Arguments& a) { last(a.o)[1] = std::numeric_limits<float>::quiet_NaN(); },
                    "outside o"},
        Trespassing{"PastTheEndOfTheState", "", [](const Arguments& a) { last(a.final_state)[1] = 0; },
                    "outside final_state"},
        Trespassing{"PaddingOfHeads", "layout=padded", [](const Arguments& a) { (&a.o(0, 0, 0, 7))[1] = 0; },
                    "outside o"},
        Trespassing{"PaddingOfTokens", "layout=padded",
                    [](const Arguments& a) { (&a.o(0, 1, 0, 0))[-1] = 0; }, "outside o"},
        Trespassing{"BesideAFarRow", "layout=far", [](const Arguments& a) { second_far_row(a.o)[-1] = 0; },
                    "outside o"},
        Trespassing{"EditsAFarInput", "layout=far",
                    [](const Arguments& a) { writable(a.v(1, 32, 3, 7)) = 7; }, "its input v"},
        Trespassing{"PaddingOfTheState", "layout=padded",
                    [](const Arguments& a) { (&a.final_state(1, 0, 3, 7))[1] = 1; }, "outside final_state"},
        Trespassing{"PaddingOfAnInput", "layout=padded",
                    [](const Arguments& a) { writable((&a.q(0, 0, 0, 15))[1]) = 1; }, "its input q"},
        Trespassing{"GuardOfAnInput", "", [](const Arguments& a) { writable(a.g.data[-1]) = 0; },
                    "outside g"},
        Trespassing{"EditsQ", "", [](const Arguments& a) { writable(a.q(0, 0, 0, 0)) += 1; }, "its input q"},
        Trespassing{"EditsK", "layout=padded", [](const Arguments& a) { writable(a.k(1, 32, 1, 15)) *= 2; },
                    "its input k"},
        Trespassing{"EditsV", "", [](const Arguments& a) { writable(a.v(0, 0, 0, 0)) += 1; }, "its input v"},
        Trespassing{"EditsG", "", [](const Arguments& a) { writable(a.g(1, 2, 3)) = 0; }, "its input g"},
        Trespassing{"EditsBeta", "", [](const Arguments& a) { writable(a.beta(1, 2, 3)) = 2; },
                    "its input beta"},
        Trespassing{"EditsTheInitialState", "",
                    [](const Arguments& a) { writable(a.initial_state(0, 0, 0, 0)) += 1; },
                    "its input initial_state"}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(Runner, OffsetsOfPackedSequencesAreAnInput) {
  const std::string line =
      "v1 gated_delta_rule form=packed chunk=16 lengths=17,16 dk=16 dv=8 "
      "kernel=planted.gated_delta_rule.chunked";
  EXPECT_EQ(judged(faulty::undamaged, "", line).verdict, Verdict::pass);
  const auto offset = [](const Arguments& a, std::int64_t i) -> std::int64_t& {
    return const_cast<std::int64_t*>(a.cu_seqlens.data)[i];
  };
  for (const std::int64_t i : {-1, 0, 2, 3}) {
    const Judgement j = judged(after([&](const Arguments& a) { ++offset(a, i); }), "", line);
    EXPECT_EQ(j.gate, "memory") << i;
    EXPECT_NE(j.reason.find("cu_seqlens"), std::string::npos) << j.reason;
  }
}

/// A fault that mixes each element of o with what it was before the call.
template <class Mix>
Fault mixes(Mix mix) {
  return [mix](const Kernel& base, const Arguments& a, const Contract& c) {
    std::vector<float> before;
    faulty::each(a.o, [&](float& x, const auto&) { before.push_back(x); });
    const Outcome outcome = base.run(a, c);
    std::size_t i = 0;
    faulty::each(a.o, [&](float& x, const auto&) { x = mix(x, before[i++]); });
    return outcome;
  };
}

// NaN alone would not show these: each of them leaves it out.
TEST(Runner, WhatOutputsHeldBeforeTheCallMustNotMatter) {
  for (const char* keys : {"", "layout=padded", "contract=bf16", "regime=exact"}) {
    const auto verdict = [&](float (*mix)(float, float)) { return judged(mixes(mix), keys).verdict; };
    EXPECT_EQ(verdict([](float x, float) { return x; }), Verdict::pass) << keys;
    EXPECT_EQ(verdict([](float x, float was) { return std::isnan(was) ? x : x + was; }), Verdict::fail);
    EXPECT_EQ(verdict([](float x, float was) { return std::fmax(x, was); }), Verdict::fail) << keys;
    EXPECT_EQ(verdict([](float x, float was) { return std::fmin(x, was); }), Verdict::fail) << keys;
    EXPECT_EQ(verdict([](float x, float was) { return x + 0.0F * was; }), Verdict::fail) << keys;
  }
}

TEST(Runner, AnInputEditedAndPutBackIsATrespass) {
  const Judgement j = judged(after([](const Arguments& a) {
    volatile float& x = writable(a.q(0, 0, 0, 0));
    const float old = x;
    x = 7;
    x = old;
  }));
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.reason, "the kernel wrote to its input q: element 0 of its buffer");
}

struct Unwritten {
  const char* name;
  const char* keys;
  Fault fault;
};
class LeavesOutputs : public testing::TestWithParam<Unwritten> {};

TEST_P(LeavesOutputs, Fails) {
  for (const char* contract : {"fp32", "fp16"}) {
    const Judgement j = judged(GetParam().fault, std::string(GetParam().keys) + " contract=" + contract);
    EXPECT_EQ(j.verdict, Verdict::fail) << contract << " by " << j.gate;
    EXPECT_FALSE(j.ratio <= 1) << j.ratio;
    EXPECT_FALSE(j.reason.empty());
  }
}

/// As if element x had not been written.
template <class Pick>
Fault skips(Pick pick) {
  return [pick](const Kernel& base, const Arguments& a, const Contract& c) {
    float& x = pick(a);
    const float poison = x;
    const Outcome outcome = base.run(a, c);
    x = poison;
    return outcome;
  };
}

INSTANTIATE_TEST_SUITE_P(
    Runner, LeavesOutputs,
    testing::Values(
        Unwritten{"Nothing", "", [](const Kernel&, const Arguments&, const Contract&) { return Outcome{}; }},
        Unwritten{"NothingOfNoTokens", "T=0",
                  [](const Kernel&, const Arguments&, const Contract&) { return Outcome{}; }},
        Unwritten{"NothingExact", "regime=exact",
                  [](const Kernel&, const Arguments&, const Contract&) { return Outcome{}; }},
        Unwritten{"OneElementOfO", "", skips([](const Arguments& a) -> float& { return a.o(1, 32, 3, 7); })},
        Unwritten{"OneElementOfOExact", "regime=exact",
                  skips([](const Arguments& a) -> float& { return a.o(1, 32, 3, 7); })},
        Unwritten{"OneElementOfTheState", "",
                  skips([](const Arguments& a) -> float& { return a.final_state(1, 3, 15, 7); })},
        Unwritten{"OneElementPadded", "layout=padded",
                  skips([](const Arguments& a) -> float& { return a.o(0, 0, 0, 0); })},
        Unwritten{"Nan", "", after([](const Arguments& a) {
                    a.o(0, 3, 1, 2) = std::numeric_limits<float>::quiet_NaN();
                  })},
        Unwritten{"Infinity", "", after([](const Arguments& a) {
                    a.o(0, 3, 1, 2) = std::numeric_limits<float>::infinity();
                  })},
        Unwritten{"NanState", "", after([](const Arguments& a) {
                    a.final_state(0, 0, 0, 0) = std::numeric_limits<float>::quiet_NaN();
                  })}),
    [](const auto& parameter) { return std::string(parameter.param.name); });

TEST(Runner, ThrowsIsACrashWithItsWords) {
  const Judgement own = judged(
      [](const Kernel&, const Arguments&, const Contract&) -> Outcome { throw Error("out of workspace"); });
  EXPECT_EQ(own.verdict, Verdict::crash);
  EXPECT_NE(own.reason.find("out of workspace"), std::string::npos) << own.reason;
  const Judgement standard =
      judged([](const Kernel&, const Arguments&, const Contract&) -> Outcome { throw std::bad_alloc(); });
  EXPECT_EQ(standard.verdict, Verdict::crash);
  EXPECT_FALSE(standard.reason.empty());
  const Judgement other =
      judged([](const Kernel&, const Arguments&, const Contract&) -> Outcome { throw 42; });
  EXPECT_EQ(other.verdict, Verdict::crash);
  EXPECT_FALSE(other.reason.empty());
}

/// The verdict of the planted chunked kernel, whose row declares `limits`, on a part of a line.
Judgement within(const std::vector<std::string>& limits, const Fault& fault, const std::string& part = {}) {
  KernelTable table = planted_table(undamaged);
  Kernel row = table.named("planted.gated_delta_rule.chunked");
  row.name = "limited.gated_delta_rule.chunked";
  row.limits = limits;
  row.run = [base = table.named("cpu.gated_delta_rule.chunked"), fault](
                const Arguments& a, const Contract& c) { return fault(base, a, c); };
  table.add(std::span(&row, 1));
  return run_case(parse_case("v1 gated_delta_rule chunk=16 T=33 kernel=limited.gated_delta_rule.chunked " +
                             (part.starts_with("dk=") ? part : "dk=16 " + part)),
                  table)
      .judgement;
}

Outcome dk_to_8(const Kernel& base, const Arguments& a, const Contract& c) {
  if (a.q.shape[3] > 8) return {Outcome::Kind::unsupported, "dk = 16: at most 8"};
  return base.run(a, c);
}

TEST(Runner, WhatIsRefusedOutsideTheLimitsIsUnsupported) {
  const Judgement j = within({"dk <= 8"}, dk_to_8);
  EXPECT_EQ(j.verdict, Verdict::unsupported);
  EXPECT_EQ(j.reason, "dk = 16: at most 8");
  EXPECT_EQ(within({"dk <= 8"}, dk_to_8, "dk=8").verdict, Verdict::pass);
}

TEST(Runner, WhatIsRefusedInsideTheLimitsFails) {
  for (const std::vector<std::string>& limits : {std::vector<std::string>{},
                                                 {"dk <= 16"},
                                                 {"dk <= 8 if contract = bf16"},
                                                 {"chunk = 16", "dv % 2 = 0"}}) {
    const Judgement j = within(limits, dk_to_8);
    EXPECT_EQ(j.verdict, Verdict::fail);
    EXPECT_EQ(j.gate, "limits");
    EXPECT_EQ(lacking(j.reason, "limits dk = 16 8"), "") << j.reason;
  }
}

TEST(Runner, WhatIsRunOutsideTheLimitsIsJudged) {
  EXPECT_EQ(within({"dk <= 8"}, undamaged).verdict, Verdict::pass);
  const Fault zeroes = [](const Kernel& base, const Arguments& a, const Contract& c) {
    const Outcome outcome = base.run(a, c);
    a.o.data[0] += 1.0F;
    return outcome;
  };
  EXPECT_EQ(within({"dk <= 8"}, zeroes).verdict, Verdict::fail);
}

TEST(Runner, AKernelOfTheProcessorLacksNoDevice) {
  const Fault absent = [](const Kernel&, const Arguments&, const Contract&) {
    return Outcome{Outcome::Kind::no_device, "no GPU"};
  };
  const Judgement j = within({"dk <= 8"}, absent);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_NE(j.reason.find("no GPU"), std::string::npos) << j.reason;
}

// The law's other path asks for another chunk, and a call of the case's own for this one.
TEST(Runner, TheCallsOfALawAreHeldAgainstTheLimitsOneByOne) {
  const Fault only_16 = [](const Kernel& base, const Arguments& a, const Contract& c) {
    if (a.chunk != 16) return Outcome{Outcome::Kind::unsupported, "chunk is not 16"};
    return base.run(a, c);
  };
  const Judgement j = within({"chunk = 16"}, only_16, "law=path_equivalence");
  EXPECT_EQ(j.verdict, Verdict::unsupported);
  EXPECT_EQ(j.reason, "chunk is not 16");
  EXPECT_EQ(within({}, only_16, "law=path_equivalence").verdict, Verdict::fail);
}

TEST(Runner, WithinLimitsSpeaksOfTheCalls) {
  Kernel row = KernelTable(kernels()).named("cpu.gated_delta_rule.recurrent");
  row.name = "limited.gated_delta_rule.recurrent";
  row.limits = {"T = 1", "form = recurrent"};
  const KernelRow limited = adapted(row);
  const auto inside = [&](const std::string& line) { return within_limits(limited, parse_case(line)); };
  EXPECT_TRUE(inside("v1 gated_delta_rule form=recurrent T=1"));
  EXPECT_FALSE(inside("v1 gated_delta_rule form=recurrent T=2"));
  EXPECT_TRUE(inside("v1 gated_delta_rule form=decode prefill=40 T=50"))
      << "the prefill is the chunked kernel's";
  EXPECT_FALSE(inside("v1 gated_delta_rule form=decode chunk=0 prefill=40 T=50"));
  EXPECT_TRUE(inside("v1 gated_delta_rule form=decode chunk=0 T=50"));
  EXPECT_FALSE(inside("v1 gated_delta_rule form=packed lengths=1 chunk=0"));
  EXPECT_FALSE(inside("v1 retention form=recurrent T=1"));
}

// The law path_equivalence runs the other form's kernel too, which need not promise the contract of this one.
TEST(Runner, ACompanionMayRefuseAContractThatItDoesNotPromise) {
  const auto judged = [](const std::vector<std::string>& promised) {
    std::vector<Kernel> rows{KernelTable(kernels()).named("cpu.gated_delta_rule.recurrent"),
                             KernelTable(kernels()).named("cpu.gated_delta_rule.chunked")};
    rows[0].name = "mine.gated_delta_rule.recurrent";
    rows[1].name = "mine.gated_delta_rule.chunked";
    rows[1].contracts = promised;
    rows[1].run = [](const Arguments&, const Contract&) {
      return Outcome{Outcome::Kind::unsupported, "no bf16"};
    };
    KernelTable table(kernels());
    table.add(rows);
    return run_case(parse_case("v1 gated_delta_rule form=recurrent B=2 T=17 dk=8 dv=4 contract=bf16 "
                               "law=path_equivalence kernel=mine.gated_delta_rule.recurrent"),
                    table)
        .judgement;
  };
  EXPECT_EQ(judged({"fp32"}).verdict, Verdict::unsupported);
  EXPECT_EQ(judged({"fp32", "bf16"}).verdict, Verdict::fail);
}

// Its answers would be judged by a contract that it does not promise.
TEST(Runner, ACompanionIsAskedForWhatItPromisesAlone) {
  const auto judged = [](const char* chunked, const char* recurrent, const std::string& line) {
    std::vector<Kernel> rows{KernelTable(kernels()).named("cpu.gated_delta_rule.recurrent"),
                             KernelTable(kernels()).named("cpu.gated_delta_rule.chunked")};
    const Kernel base = rows[1];
    rows[0].name = "mine.gated_delta_rule.recurrent";
    rows[0].contracts = {recurrent};
    rows[1].name = "mine.gated_delta_rule.chunked";
    rows[1].contracts = {chunked};
    rows[1].run = [run = base.run, contract = contract_named(chunked)](const Arguments& a, const Contract&) {
      return run(a, contract);
    };
    KernelTable table(kernels());
    table.add(rows);
    return run_case(parse_case("v1 gated_delta_rule " + line), table).judgement;
  };
  const std::string law =
      "form=recurrent B=2 T=17 dk=8 dv=4 law=path_equivalence kernel=mine.gated_delta_rule.recurrent";
  const Judgement other = judged("bf16", "fp32", law);
  EXPECT_EQ(other.verdict, Verdict::unsupported) << "seen to fail: the chunked kernel computes in bf16";
  EXPECT_NE(other.reason.find("under fp32;"), std::string::npos) << other.reason;
  EXPECT_EQ(judged("fp32_tree", "fp32", law).verdict, Verdict::unsupported);

  // A token by itself has no chunk operands, so bf16 is what the chunked kernel's contract makes of it.
  const std::string decode = "form=decode chunk=16 prefill=20 T=30 dk=16 contract=bf16_block16_tf32";
  const std::string kernel = " kernel=mine.gated_delta_rule.chunked";
  EXPECT_EQ(judged("bf16_block16_tf32", "bf16", decode + kernel).verdict, Verdict::pass);
  EXPECT_EQ(judged("bf16_block16_tf32", "fp32", decode + kernel).verdict, Verdict::unsupported);
  // How a norm is rounded is a difference where there is one.
  EXPECT_EQ(judged("bf16_block16_tf32", "bf16+norm:unrounded", decode + kernel).verdict, Verdict::pass);
  const std::string normed = "form=decode chunk=16 prefill=20 T=30 dk=16 l2norm=1 contract=bf16_block16_tf32";
  EXPECT_EQ(judged("bf16_block16_tf32", "bf16+norm:unrounded", normed + kernel).verdict,
            Verdict::unsupported);
}

TEST(Runner, DecodingWithoutACompanionIsUnsupported) {
  std::vector<Kernel> rows{KernelTable(kernels()).named("cpu.gated_delta_rule.chunked")};
  rows[0].name = "lone.gated_delta_rule.chunked";
  KernelTable table(kernels());
  table.add(rows);
  const std::string line = "v1 gated_delta_rule chunk=16 T=33 dk=16 kernel=lone.gated_delta_rule.chunked";
  EXPECT_EQ(run_case(parse_case(line), table).judgement.verdict, Verdict::pass);
  const Judgement j = run_case(parse_case(line + " form=decode prefill=20"), table).judgement;
  EXPECT_EQ(j.verdict, Verdict::unsupported);
  EXPECT_NE(j.reason.find("recurrent"), std::string::npos) << j.reason;
}

TEST(Runner, DecodeCarriesTheStateToTheCompanion) {
  const std::string line = std::string(kCase) + " T=33 form=decode prefill=20";
  int calls = 0;
  const Fault counted = [&calls](const Kernel& base, const Arguments& a, const Contract& c) {
    ++calls;
    EXPECT_EQ(a.q.shape[1], 1);
    EXPECT_EQ(a.initial_state.data, a.final_state.data);  // in place
    return base.run(a, c);
  };
  KernelTable table = planted_table(faulty::undamaged, counted);
  EXPECT_EQ(run_case(parse_case(line), table).judgement.verdict, Verdict::pass);
  EXPECT_EQ(calls, 13);
  // A companion that forgets the state it is handed: the chunked case does not see it, decoding does.
  const Fault forgets = [](const Kernel& base, Arguments a, const Contract& c) {
    a.initial_state = {};
    return base.run(a, c);
  };
  table = planted_table(faulty::undamaged, forgets);
  EXPECT_EQ(run_case(parse_case(std::string(kCase) + " T=33"), table).judgement.verdict, Verdict::pass);
  EXPECT_EQ(run_case(parse_case(line), table).judgement.verdict, Verdict::fail);
}

// Integers: layout, threads, path and twin must all give the same bits.
TEST(Runner, ExactDataGiveTheSameBitsOnEveryWay) {
  const Case c = parse_case(
      "v1 gated_delta_rule chunk=16 B=2 T=33 Hk=2 Hv=4 dk=16 dv=8 regime=exact_reset state=random");
  const Batch batch = batch_of(Resolved(c), family_named(c.system));
  const KernelTable table(kernels());
  const KernelChoice pair = table.choose(Resolved(c));
  const Contract fp32;
  const Outputs dense = run_kernel(pair, batch, whole(33, 16), fp32, {});
  const auto same = [&](const Outputs& other) {
    return other.o == dense.o && other.final_state == dense.final_state;
  };
  EXPECT_TRUE(same(run_kernel(pair, batch, whole(33, 16), fp32, {Layout::padded, 2})));
  EXPECT_TRUE(same(run_kernel(pair, batch, whole(33, 5), fp32, {})));
  EXPECT_TRUE(same(run_kernel(pair, batch, whole(33, 0), fp32, {Layout::padded, 1})));
  EXPECT_TRUE(same(run_kernel(pair, batch, split(33, 16, 20), fp32, {})));
  EXPECT_TRUE(same(run_kernel(pair, batch, prefill_and_decode(33, 16, 20), fp32, {Layout::padded, 1})));
  EXPECT_TRUE(same(run_on_twin("gated_delta_rule", batch, whole(33, 16), fp32)));
  EXPECT_TRUE(same(run_on_twin("gated_delta_rule", batch, whole(33, 0), fp32)));
}

}  // namespace
}  // namespace samestate
