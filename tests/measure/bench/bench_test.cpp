#include "measure/bench/bench.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <set>
#include <string>

#include "harness/run/judge_batch.h"
#include "measure/bench/time_case.h"
#include "reference/error.h"
#include "tests/facts.h"
#include "tests/harness/planted.h"

namespace samestate {
namespace {

using faulty::planted_table;

const Ceilings kCeilings{1e9, 4e12, 2e12, "made up"};
const std::string kSmall =
    "v1 gated_delta_rule form=chunked chunk=16 B=2 T=40 Hk=1 Hv=2 dk=16 dv=8 state=random";

BenchOptions quick() {
  BenchOptions options;
  options.request = {.seconds = 1e-3, .least_samples = 3, .most_samples = 5, .warm_up = 1};
  options.judged_heads = 0;
  return options;
}

TimedCase timed(const std::string& line, const KernelTable& table, const BenchOptions& options = quick(),
                Peer* peer = nullptr) {
  return Bench(table, options).run(parse_case(line), kCeilings, peer).timed;
}

std::string error_of(const BenchPlan& plan) {
  try {
    (void)bench_cases(KernelTable(kernels(), operator_kernels()), plan);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(Spread, OfTimes) {
  const TimeSpread spread = time_spread({5, 1, 4, 2, 3});
  EXPECT_EQ(spread.median, 3);
  EXPECT_DOUBLE_EQ(spread.p10, 1.4);
  EXPECT_DOUBLE_EQ(spread.p90, 4.6);
  EXPECT_EQ(spread.samples, 5);
  EXPECT_EQ(time_spread({2, 1}).median, 1.5);
  EXPECT_TRUE(std::isnan(time_spread({}).median));
}

TEST(BenchCases, EverySystemAndFormOfTheCpu) {
  const KernelTable table(kernels());
  std::set<std::string> named;
  for (const Case& c :
       bench_cases(table, {.kernels = {}, .system = "", .device = "cpu", .lines = {}, .quick = true}))
    named.insert(c.kernel);
  EXPECT_EQ(named.size(), 16U) << "four systems, four forms";
}

TEST(BenchCases, ShapesOfADeviceAreThoseOfTheDocuments) {
  Kernel row = kernels()[1];
  row.name = "planted.chunked";
  row.device = "cuda";
  KernelTable table(std::span<const Kernel>(&row, 1));
  const std::vector<Case> cases = bench_cases(table, {});
  ASSERT_EQ(cases.size(), 25U) << "five shapes, fp32, bf16 and the three fused contracts that it promises";
  EXPECT_EQ(format_case(cases[0]), "v1 gated_delta_rule T=1024 Hk=16 Hv=32 dk=128 kernel=planted.chunked");
  EXPECT_EQ(format_case(cases[9]),
            "v1 gated_delta_rule B=2 T=1024 Hk=128 dk=160 dv=512 contract=bf16 kernel=planted.chunked");
}

TEST(BenchCases, OwnCasesRunOnEveryKernelThatFits) {
  const KernelTable table(kernels(), operator_kernels());
  BenchPlan plan;
  plan.device = "cpu";
  plan.lines = {kSmall, "v1 retention form=recurrent T=3 dk=8",
                "v1 delta_rule T=9 dk=8 kernel=cpu.delta_rule.chunked"};
  const std::vector<Case> cases = bench_cases(table, plan);
  ASSERT_EQ(cases.size(), 3U);
  EXPECT_EQ(cases[0].kernel, "cpu.gated_delta_rule.chunked");
  EXPECT_EQ(cases[1].kernel, "cpu.retention.recurrent");
}

TEST(BenchCases, BadPlansAreNamed) {
  const auto line = [](const char* text) { return error_of({.lines = {text}}); };
  EXPECT_NE(error_of({.kernels = {"nope"}}).find("nope"), std::string::npos);
  EXPECT_NE(error_of({.system = "nope"}).find("nope"), std::string::npos);
  EXPECT_NE(error_of({.device = "tpu"}).find("tpu"), std::string::npos);
  EXPECT_EQ(lacking(line("v1 retention T=3 contract=tf32_truncated"), "cpu.retention.chunked fp32"), "")
      << "nobody promises it";
  EXPECT_NE(line("v1 retention form=decode T=4").find("several calls"), std::string::npos);
  EXPECT_NE(line("v1 retention form=parallel T=4").find("several calls"), std::string::npos);
  EXPECT_NE(line("v1 retention T=4 law=causality").find("law"), std::string::npos);
  EXPECT_NE(line("v1 retention T=4 layout=far").find("padded, mixed"), std::string::npos);
  EXPECT_NE(line("v1 retention T=4 layout=page_end").find("leave it out"), std::string::npos);
  EXPECT_EQ(line("v1 retention T=4 layout=padded"), "");
  EXPECT_NE(line("v1 retention T=0").find("T=0"), std::string::npos);
  EXPECT_NE(line("v1 retention T=4 kernel=cpu.delta_rule.chunked").find("computes"), std::string::npos);
}

TEST(Floors, ByHandAndByContract) {
  TimedCase fp32;
  const Case c = parse_case("v1 gated_delta_rule T=128 Hk=16 Hv=32 dk=128 contract=bf16 state=random");
  add_floor(fp32, Resolved(c), kCeilings, true);
  EXPECT_EQ(fp32.bytes, 24832 * 128 + 8 * 32 * 128 * 128);
  EXPECT_DOUBLE_EQ(fp32.memory_floor, static_cast<double>(fp32.bytes) / 1e9);
  EXPECT_DOUBLE_EQ(fp32.compute_floor, static_cast<double>(fp32.operations) / 4e12);
  TimedCase host;
  add_floor(host, Resolved(c), {1e9, 0, 0, "cpu"}, false);
  EXPECT_GT(host.bytes, fp32.bytes) << "on the CPU values travel in fp32";
  EXPECT_TRUE(std::isnan(host.compute_floor));
  TimedCase tf32;
  add_floor(tf32, Resolved(parse_case("v1 gated_delta_rule T=128 contract=tf32")), kCeilings, true);
  EXPECT_TRUE(std::isnan(tf32.compute_floor)) << "nobody measured tf32";
  TimedCase none;
  add_floor(none, Resolved(c), {}, true);
  EXPECT_TRUE(std::isnan(none.memory_floor));
  TimedCase recurrent;
  add_floor(recurrent, Resolved(parse_case("v1 linear_attention form=recurrent T=1 B=4 dk=8 contract=bf16")),
            kCeilings, true);
  EXPECT_EQ(recurrent.operations, 4 * 4 * 64);
  EXPECT_DOUBLE_EQ(recurrent.product_rate, 2e12) << "vectors, in fp32";
}

TEST(Ceilings, OfTheProcessor) {
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{1} << 12, std::int64_t{1} << 22}) {
    const Ceilings c = host_ceilings(bytes, 2);
    EXPECT_GT(c.copy, 0.0);
    EXPECT_LT(c.copy, 1e14);
    EXPECT_EQ(c.bf16, 0.0);
  }
}

TEST(Bench, ACorrectKernelHasATime) {
  const KernelTable table(kernels());
  for (const std::string& line :
       {kSmall + " kernel=cpu.gated_delta_rule.chunked",
        kSmall + " heads=tiled kernel=cpu.gated_delta_rule.chunked",
        std::string("v1 delta_rule form=recurrent T=1 B=3 Hk=2 Hv=4 dk=8 state=random "
                    "kernel=cpu.delta_rule.recurrent"),
        std::string("v1 retention form=packed chunk=8 lengths=9,0,12 Hk=1 Hv=2 dk=8 state=random "
                    "kernel=cpu.retention.chunked"),
        std::string("v1 linear_attention T=70 dk=16 contract=bf16 kernel=cpu.linear_attention.chunked")}) {
    const TimedCase t = timed(line, table);
    EXPECT_EQ(t.record.judgement.verdict, Verdict::pass) << line << ": " << t.record.judgement.reason;
    EXPECT_EQ(t.timed, "call");
    EXPECT_GT(t.time.median, 0.0);
    EXPECT_LE(t.time.p10, t.time.p90);
    EXPECT_DOUBLE_EQ(t.share, std::fmax(t.memory_floor, t.compute_floor) / t.time.median);
    EXPECT_EQ(t.heads_judged, t.heads);
    EXPECT_TRUE(std::isnan(t.peer_ratio));
  }
}

TEST(Bench, JudgesTheFirstTheLastAndTheEdgesOfBlocks) {
  using Parts = std::vector<std::int64_t>;
  EXPECT_EQ(parts_to_judge(3, 0), (Parts{0, 1, 2}));
  EXPECT_EQ(parts_to_judge(3, 9), (Parts{0, 1, 2}));
  EXPECT_EQ(parts_to_judge(1, 4), (Parts{0}));
  EXPECT_EQ(parts_to_judge(500, 1), (Parts{0}));
  EXPECT_EQ(parts_to_judge(500, 4), (Parts{0, 127, 128, 499}));
  EXPECT_EQ(parts_to_judge(32, 6), (Parts{0, 7, 8, 15, 16, 31}));
  EXPECT_EQ(parts_to_judge(1000, 20).size(), 20U);
  EXPECT_EQ(parts_to_judge(20, 19).size(), 19U);
}

TEST(Bench, JudgesSomeHeadsOfMany) {
  BenchOptions options = quick();
  options.judged_heads = 2;
  options.threads = 2;
  const TimedCase t = timed(kSmall + " kernel=cpu.gated_delta_rule.chunked", KernelTable(kernels()), options);
  EXPECT_EQ(t.heads, 4);
  EXPECT_EQ(t.heads_judged, 2);
  EXPECT_EQ(t.record.judgement.verdict, Verdict::pass);
}

/// A kernel is judged by the values that it received in place of g and of a norm, as in the gate.
TEST(Bench, AKernelWithConventionsIsHeldToThem) {
  Given given;
  given.norm = Given::NormPlace::maximum, given.norm_epsilon = 1e-3;
  const auto normalised = [given](const Kernel& base, Arguments a, const Contract& contract) {
    std::vector<std::vector<float>> rows;
    for (View<const float, 4>* x : {&a.q, &a.k}) {
      const std::int64_t dk = x->shape[3], count = x->shape[0] * x->shape[1] * x->shape[2];
      Matrix<double> all(count, dk);
      for (std::int64_t i = 0; i < all.size(); ++i) all.data()[i] = x->data[i];
      const Matrix<double> y = given.normalised(all);
      rows.emplace_back(y.data(), y.data() + y.size());
      *x = row_major<const float, 4>(rows.back().data(), x->shape);
    }
    a.l2norm = false;
    return base.run(a, contract);
  };
  const std::string line =
      "v1 gated_delta_rule form=chunked chunk=16 T=40 dk=16 dv=8 l2norm=1 scale=1 "
      "regime=tiny_norms kernel=planted.gated_delta_rule.chunked";
  KernelTable table = planted_table(normalised);
  EXPECT_EQ(timed(line, table).record.judgement.verdict, Verdict::fail);
  table.converts("planted.gated_delta_rule.chunked", false, {}, [given](const Contract&) { return given; });
  EXPECT_EQ(timed(line, table).record.judgement.verdict, Verdict::pass);
}

/// The planted kernel is fast and wrong: it fails, has no time, and no peer is asked about it.
TEST(Bench, AWrongKernelHasNoTime) {
  const KernelTable table = planted_table([](const Kernel& base, Arguments a, const Contract& contract) {
    const Outcome outcome = base.run(a, contract);
    a.o(1, 39, 1, 7) += 0.5F;
    return outcome;
  });
  Peer peer("exit 0", 5.0);
  const BenchResult result =
      Bench(table, quick())
          .run(parse_case(kSmall + " kernel=planted.gated_delta_rule.chunked"), kCeilings, &peer);
  EXPECT_EQ(result.timed.record.judgement.verdict, Verdict::fail);
  EXPECT_TRUE(std::isnan(result.timed.time.median));
  EXPECT_TRUE(std::isnan(result.timed.share));
  EXPECT_EQ(result.problem, "");
}

/// Planted: the last head of the last sequence is left unwritten, which no judged head need see.
TEST(Bench, AnUnwrittenHeadFailsWhereNoneIsJudged) {
  const KernelTable table = planted_table([](const Kernel& base, Arguments a, const Contract& contract) {
    const float before = a.o(1, 20, 0, 0);
    const Outcome outcome = base.run(a, contract);
    a.o(1, 20, 0, 0) = before;  // the poison
    return outcome;
  });
  BenchOptions options = quick();
  options.judged_heads = 1;
  const TimedCase t = timed(kSmall + " kernel=planted.gated_delta_rule.chunked", table, options);
  EXPECT_EQ(t.record.judgement.verdict, Verdict::fail);
  EXPECT_NE(t.record.judgement.reason.find("not written"), std::string::npos);
  EXPECT_TRUE(std::isnan(t.time.median));
}

Timing no_times(const Arguments& a, const Contract& c, const TimingRequest&) {
  return {kernels()[1].run(a, c), "events", {}, 1, 1};
}
/// Planted: says what a fast kernel says and computes nothing.
Timing computes_nothing(const Arguments&, const Contract&, const TimingRequest&) {
  return {{}, "graph", {1e-9, 1e-9}, 8, 1};
}
/// Planted: right outputs, and times that no clock gave.
Timing no_time_at_all(const Arguments& a, const Contract& c, const TimingRequest&) {
  return {kernels()[1].run(a, c), "graph", {1e-15, 1e-15}, 8, 4};
}
Timing a_nanosecond(const Arguments& a, const Contract& c, const TimingRequest&) {
  return {kernels()[1].run(a, c), "graph", {1e-9, 1e-9}, 8, 4};
}
Timing samples_of_no_call(const Arguments& a, const Contract& c, const TimingRequest&) {
  return {kernels()[1].run(a, c), "graph", {0.5, 0.5}, 0, 4};
}
Timing half_a_second(const Arguments& a, const Contract& c, const TimingRequest&) {
  return {kernels()[1].run(a, c), "graph", {0.5, 0.5, 0.5}, 8, 4};
}
Timing no_device(const Arguments&, const Contract&, const TimingRequest&) {
  return {{Outcome::Kind::no_device, "no CUDA device"}, "", {}, 1, 1};
}
Timing throws(const Arguments&, const Contract&, const TimingRequest&) { throw Error("out of memory"); }

TimedCase timed_by(Timing (*time)(const Arguments&, const Contract&, const TimingRequest&),
                   Peer* peer = nullptr) {
  Kernel row = kernels()[1];
  row.name = "timed.gated_delta_rule.chunked";
  row.time = time;
  KernelTable table(kernels());
  table.add(std::span<const Kernel>(&row, 1));
  return timed(kSmall + " kernel=" + row.name, table, quick(), peer);
}

TEST(Bench, AKernelThatTimesItselfIsTakenAtItsWordAndJudged) {
  const TimedCase good = timed_by(half_a_second);
  EXPECT_EQ(good.record.judgement.verdict, Verdict::pass);
  EXPECT_EQ(good.time.median, 0.5);
  EXPECT_EQ(good.timed, "graph");
  EXPECT_EQ(good.calls_per_sample, 8);
  EXPECT_EQ(good.copies, 4);
  EXPECT_EQ(timed_by(computes_nothing).record.judgement.verdict, Verdict::fail);
  EXPECT_TRUE(std::isnan(timed_by(computes_nothing).time.median));
  EXPECT_EQ(timed_by(no_times).record.judgement.verdict, Verdict::crash);
  EXPECT_EQ(timed_by(no_device).record.judgement.verdict, Verdict::skipped);
  EXPECT_EQ(timed_by(throws).record.judgement.verdict, Verdict::crash);
}

TEST(Bench, TimesThatCannotBeAreNoTimes) {
  for (const auto time : {no_time_at_all, samples_of_no_call}) {
    const TimedCase t = timed_by(time);
    EXPECT_EQ(t.record.judgement.verdict, Verdict::crash);
    EXPECT_TRUE(std::isnan(t.time.median));
  }
  const TimedCase doubted = timed_by(a_nanosecond);
  EXPECT_GT(doubted.share, 10.0);
  EXPECT_EQ(doubted.record.judgement.verdict, Verdict::vacuous);
  EXPECT_NE(doubted.record.judgement.reason.find("floor"), std::string::npos);
}

TEST(Bench, AgainstAPeer) {
  Peer peer(R"(read -r line; echo '{"id": 1, "kernel": "sh.slow", "seconds": [1, 2, 1], "note": "n"}')",
            10.0);
  const TimedCase t = timed_by(half_a_second, &peer);
  EXPECT_EQ(t.peer, "sh.slow");
  EXPECT_EQ(t.peer_time.median, 1.0);
  EXPECT_EQ(t.peer_ratio, 2.0) << "the peer takes twice as long";
  EXPECT_EQ(t.time.samples, 6) << "before the peer and after it";
}

TEST(Bench, APeerThatTalksNonsenseCostsOnlyTheRatio) {
  Peer peer("read -r line; echo hello", 10.0);
  Case c = parse_case(kSmall + " kernel=cpu.gated_delta_rule.chunked");
  const KernelTable table(kernels());
  const BenchResult result = Bench(table, quick()).run(c, kCeilings, &peer);
  EXPECT_NE(result.problem.find("not a JSON object"), std::string::npos);
  EXPECT_EQ(result.timed.record.judgement.verdict, Verdict::pass);
  EXPECT_GT(result.timed.time.median, 0.0);
  EXPECT_TRUE(std::isnan(result.timed.peer_ratio));
}

TEST(Bench, ACaseBeyondTheMemoryIsSkipped) {
  BenchOptions options = quick();
  options.most_bytes = 1000;
  const TimedCase t = timed(kSmall + " kernel=cpu.gated_delta_rule.chunked", KernelTable(kernels()), options);
  EXPECT_EQ(t.record.judgement.verdict, Verdict::skipped);
  EXPECT_NE(t.record.judgement.reason.find("--max-memory"), std::string::npos);
}

TEST(BenchData, IsTheSameOnAnyNumberOfThreads) {
  const Case c =
      parse_case("v1 gated_delta_rule form=packed lengths=200,3,150 Hk=2 Hv=4 dk=8 state=random seed=7");
  const Batch one = batch_of(Resolved(c), family_named(c.system), 1);
  const Batch three = batch_of(Resolved(c), family_named(c.system), 3);
  EXPECT_EQ(one.q, three.q);
  EXPECT_EQ(one.v, three.v);
  EXPECT_EQ(one.g, three.g);
  EXPECT_EQ(one.initial_state, three.initial_state);
}

/// A row whose trace is `trace`, or throws where that is null.
KernelTable with_trace(const std::function<KernelTrace(const Arguments&, const TraceRequest&)>& trace) {
  KernelTable table(kernels());
  Kernel row = table.named("cpu.gated_delta_rule.chunked");
  row.name = "planted.gated_delta_rule.chunked";
  if (trace)
    row.trace = [trace](const Arguments& a, const Contract&, const TraceRequest& r) { return trace(a, r); };
  table.add(std::array{row});
  return table;
}

KernelTrace one_wait(double begin, double end, int warp = 0) {
  KernelTrace trace;
  trace.variant = "planted";
  trace.block = 2, trace.blocks = 4;
  trace.roles = {"all"};
  trace.ends = {1e-5};
  trace.waits = {{warp, "copies", begin, end}};
  return trace;
}

std::string no_trace(const KernelTable& table) {
  try {
    (void)Bench(table, quick()).trace(parse_case(kSmall + " kernel=planted.gated_delta_rule.chunked"), {});
  } catch (const Error& error) {
    return error.what();
  }
  return "a trace";
}

TEST(BenchTrace, IsTheKernelsOfTheCase) {
  const KernelTable table = with_trace([](const Arguments& a, const TraceRequest& request) {
    KernelTrace trace = one_wait(1e-6, 2e-6);
    trace.block = request.block;
    trace.variant = request.variant + std::to_string(a.q.shape[1]);
    return trace;
  });
  const BlockTrace trace = Bench(table, quick())
                               .trace(parse_case(kSmall + " kernel=planted.gated_delta_rule.chunked"),
                                      {.block = 7, .variant = "x"});
  EXPECT_EQ(trace.block, 7);
  EXPECT_EQ(trace.variant, "x40");
  ASSERT_EQ(trace.waits.size(), 1U);
  EXPECT_EQ(trace.waits[0].what, "copies");
  EXPECT_DOUBLE_EQ(trace.waits[0].end, 2e-6);
  EXPECT_TRUE(std::isnan(trace.clock));
}

TEST(BenchTrace, WhatGivesNoneSaysWhy) {
  EXPECT_NE(no_trace(with_trace(nullptr)).find("has no trace"), std::string::npos);
  EXPECT_NE(no_trace(with_trace([](const Arguments&, const TraceRequest&) -> KernelTrace {
              throw Error("a fault of its own");
            })).find("a fault of its own"),
            std::string::npos);
  EXPECT_NE(no_trace(with_trace([](const Arguments&, const TraceRequest&) {
              KernelTrace refused;
              refused.outcome = {Outcome::Kind::unsupported, "not of this shape"};
              return refused;
            })).find("not of this shape"),
            std::string::npos);
}

TEST(BenchTrace, OneThatContradictsItselfIsRefused) {
  const auto trace = [](double begin, double end, int warp) {
    return no_trace(
        with_trace([=](const Arguments&, const TraceRequest&) { return one_wait(begin, end, warp); }));
  };
  EXPECT_EQ(trace(1e-6, 2e-6, 0), "a trace");
  for (const std::string& text : {trace(2e-6, 1e-6, 0), trace(-1e-6, 1e-6, 0), trace(1e-6, 2e-5, 0),
                                  trace(1e-6, 2e-6, 1), trace(1e-6, 2e-6, -1), trace(std::nan(""), 2e-6, 0)})
    EXPECT_NE(text.find("its trace has a wait for copies"), text.npos) << text;
  EXPECT_NE(no_trace(with_trace([](const Arguments&, const TraceRequest&) {
              return KernelTrace{};
            })).find("0 role(s)"),
            std::string::npos);
}

}  // namespace
}  // namespace samestate
