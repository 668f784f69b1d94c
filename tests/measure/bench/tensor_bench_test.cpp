/// Systems of named tensors against the clock.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/cases/case_cost.h"
#include "harness/systems/model_shapes.h"
#include "measure/bench/bench.h"
#include "measure/bench/device_shapes.h"
#include "oracles/rounding.h"
#include "tests/facts.h"
#include "tests/harness/operator_row.h"
#include "tests/kernel_table.h"

namespace samestate {
namespace {

const Ceilings kTensorCeilings{1e9, 4e12, 2e12, "made up"};

TimedCase timed_case(const std::string& line, const KernelTable& rows, double most_bytes = 16e9) {
  BenchOptions options;
  options.request = {.seconds = 1e-3, .least_samples = 3, .most_samples = 5, .warm_up = 1};
  options.judged_heads = 0;
  options.most_bytes = most_bytes;
  return Bench(rows, options).run(parse_case(line), kTensorCeilings, nullptr).timed;
}

CaseCost cost_of(const std::string& line, bool on_device = false) {
  const Resolved r(parse_case(line));
  return r.system->cost(r, on_device);
}

TEST(ModelShapes, EverySystemWithAKernelHasOneThatIsACase) {
  std::set<std::string_view> shaped;
  for (const ModelShape& shape : model_shapes()) shaped.insert(shape.system);
  for (const OperatorKernel& kernel : operator_kernels())
    EXPECT_TRUE(shaped.contains(kernel.system)) << kernel.name;
  for (const bool quick : {true, false}) {
    std::set<std::string> named;
    for (const Case& c : bench_cases(table(), {.device = "cpu", .quick = quick})) {
      EXPECT_TRUE(possible(c)) << format_case(c);
      named.insert(c.kernel);
    }
    EXPECT_EQ(std::ssize(named), std::count_if(table().all().begin(), table().all().end(),
                                               [](const KernelRow& row) { return row.device == "cpu"; }))
        << "quick: " << quick;
  }
}

TEST(DeviceShapes, EverySystemOfShapesHasOneThatFillsADevice) {
  std::set<std::string_view> filled, shaped;
  for (const DeviceShape& shape : device_shapes()) {
    const Case c = parse_case(fmt::format("v1 {} {}", shape.system, shape.sizes));
    EXPECT_TRUE(possible(c)) << format_case(c);
    // A copy of 3 TB/s moves so much while one launch begins.
    EXPECT_GT(static_cast<double>(cost_of(format_case(c), true).bytes), 8e6) << format_case(c);
    filled.insert(shape.system);
  }
  for (const ModelShape& shape : model_shapes()) shaped.insert(shape.system);
  for (const KernelRow& row : table().all()) {
    if (row.device != "cpu" && shaped.contains(row.system->name)) {
      EXPECT_TRUE(filled.contains(row.system->name)) << row.name;
    }
  }
}

TEST(TensorBench, OwnCasesRunOnEveryKernelThatFits) {
  BenchPlan plan;
  plan.device = "cpu";
  plan.lines = {"v1 rms_norm form=fused T=4"};
  ASSERT_EQ(bench_cases(table(), plan).size(), 1U);
  EXPECT_EQ(bench_cases(table(), plan).front().kernel, "cpu.rms_norm.fused");
  // This line has the oracle's form, which no kernel evaluates; next to one that fits, it would not be
  // missed.
  plan.lines.push_back("v1 rms_norm form=equation T=4");
  try {
    (void)bench_cases(table(), plan);
    ADD_FAILURE() << "a line that no kernel fits is left out without a word";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("form=equation"), std::string::npos) << text;
    EXPECT_EQ(lacking(text, "cpu.rms_norm.fused form=fused"), "") << text;
  }
  for (const char* line :
       {"v1 gated_delta_rule form=decode T=4", "v1 rms_norm form=fused T=4 law=batch_permutation",
        "v1 rms_norm form=fused T=0", "v1 rms_norm form=fused T=4 layout=far"}) {
    plan.lines = {line};
    EXPECT_THROW((void)bench_cases(table(), plan), Error) << line;
  }
}

void expect_timed(const std::string& line, const TimedCase& t) {
  EXPECT_EQ(t.record.judgement.verdict, Verdict::pass) << line << ": " << t.record.judgement.reason;
  EXPECT_GT(t.time.median, 0.0);
  EXPECT_EQ(t.heads_judged, parse_case(line).B);
}

/// Returns true if every element is a number of that format.
bool holds(const NamedTensor<const float>& x, Format format) {
  std::int64_t size = 1;
  for (const std::int64_t extent : x.shape) size *= extent;
  return std::all_of(x.data, x.data + size, [&](float value) { return value == round_to(value, format); });
}

/// A tensor that is declared as 16 bit is rounded before the call, as in the gate, and the oracle reads the
/// rounded values.
TEST(TensorBench, InputsAreRoundedToTheFormatsThatAKernelDeclares) {
  OperatorKernel row = operator_row("cpu.rms_norm.fused");
  row.name = "mine.rms_norm.fused";
  row.time = nullptr;
  const auto run = row.run;
  for (const bool declared : {false, true}) {
    row.run = [run, declared](const OperatorArguments& call, const Contract& contract) {
      // The weight is fp32 by the contract. It runs in a process of its own, which says so by its verdict.
      if (holds(call.input("weight"), Format::bf16) != declared) throw Error("another weight than declared");
      return run(call, contract);
    };
    KernelTable rows(kernels(), operator_kernels());
    rows.add(std::vector<OperatorKernel>{row});
    if (declared) rows.converts(row.name, false, {}, nullptr, {{"weight", Format::bf16}});
    const TimedCase t = timed_case("v1 rms_norm form=fused T=9 B=2 D=32 kernel=mine.rms_norm.fused", rows);
    EXPECT_EQ(t.record.judgement.verdict, Verdict::pass) << declared << t.record.judgement.reason;
  }
  // A kernel that rounds what it was not given so fails.
  row.run = [run](const OperatorArguments& call, const Contract& contract) {
    OperatorArguments changed = call;
    std::vector<float> weight;
    for (NamedTensor<const float>& x : changed.inputs) {
      if (x.name != "weight") continue;
      for (std::int64_t i = 0; i < x.shape.front(); ++i) weight.push_back(round_to(x.data[i], Format::bf16));
      x.data = weight.data();
    }
    return run(changed, contract);
  };
  KernelTable rows(kernels(), operator_kernels());
  rows.add(std::vector<OperatorKernel>{row});
  EXPECT_EQ(timed_case("v1 rms_norm form=fused T=9 B=2 D=32 kernel=mine.rms_norm.fused", rows)
                .record.judgement.verdict,
            Verdict::fail);
}

TEST(TensorBench, ARightKernelHasATime) {
  for (const char* line :
       {"v1 rms_norm form=fused T=9 B=2 kernel=cpu.rms_norm.fused",
        "v1 gated_delta_net form=chunked chunk=8 T=20 B=3 kernel=cpu.gated_delta_net.chunked",
        "v1 load_balance T=12 contract=bf16 kernel=cpu.load_balance.direct",
        "v1 softmax_attention form=grouped T=12 kernel=cpu.softmax_attention.grouped"}) {
    const TimedCase t = timed_case(line, table());
    expect_timed(line, t);
    EXPECT_GT(t.memory_floor, 0.0);
    EXPECT_EQ(t.heads, parse_case(line).B);
    EXPECT_EQ(t.heads_judged, t.heads);
    EXPECT_FALSE(t.sizes.empty());
  }
  EXPECT_EQ(timed_case("v1 rms_norm form=fused T=9 kernel=cpu.rms_norm.fused", table(), 100.0)
                .record.judgement.verdict,
            Verdict::skipped);
}

/// The tensors that a server gives to a decode step: q, k and v as columns of one buffer, and a cache with
/// gaps.
TEST(StridedBench, TokensOfStridedTensorsAreTimedAndJudged) {
  for (const char* line :
       {"v1 gated_delta_rule form=recurrent B=3 T=1 Hk=2 Hv=4 dk=8 dv=8 state=random layout=fused "
        "kernel=cpu.gated_delta_rule.recurrent",
        "v1 gated_delta_rule form=recurrent B=2 T=1 Hk=2 dk=8 layout=permuted",
        "v1 rms_norm form=fused T=9 B=2 layout=mixed kernel=cpu.rms_norm.fused",
        "v1 softmax_attention form=decode prefill=8 T=9 layout=padded "
        "kernel=cpu.softmax_attention.grouped"}) {
    const TimedCase t = timed_case(line, table());
    EXPECT_EQ(t.record.judgement.verdict, Verdict::pass) << line << ": " << t.record.judgement.reason;
    EXPECT_EQ(t.timed, "call") << line;
    EXPECT_GT(t.time.median, 0.0) << line;
  }
}

TEST(StridedBench, AKernelThatTakesRowsForDenseHasNoTime) {
  OperatorKernel row = operator_row("cpu.rms_norm.fused");
  row.name = "mine.rms_norm.fused";
  const auto run = row.run;
  row.run = [run](const OperatorArguments& call, const Contract& contract) {
    OperatorArguments changed = call;
    for (auto& x : changed.inputs) x.stride.clear();
    for (auto& x : changed.outputs) x.stride.clear();
    return run(changed, contract);
  };
  KernelTable rows(kernels(), operator_kernels());
  rows.add(std::vector<OperatorKernel>{row});
  EXPECT_EQ(
      timed_case("v1 rms_norm form=fused T=9 B=2 kernel=mine.rms_norm.fused", rows).record.judgement.verdict,
      Verdict::pass);
  const TimedCase t =
      timed_case("v1 rms_norm form=fused T=9 B=2 layout=padded kernel=mine.rms_norm.fused", rows);
  EXPECT_EQ(t.record.judgement.verdict, Verdict::fail);
  EXPECT_TRUE(std::isnan(t.time.median)) << t.time.median;
  row.strided = false;
  row.name = "dense.rms_norm.fused";
  rows.add(std::vector<OperatorKernel>{row});
  EXPECT_EQ(timed_case("v1 rms_norm form=fused T=9 B=2 layout=padded kernel=dense.rms_norm.fused", rows)
                .record.judgement.verdict,
            Verdict::unsupported);
}

/// A row like that of `name` that runs `run` and, where given, times itself by `time`.
TimedCase timed_by(
    std::function<Outcome(const OperatorArguments&, const Contract&)> run,
    std::function<Timing(const OperatorArguments&, const Contract&, const TimingRequest&)> time = nullptr) {
  OperatorKernel row = operator_row("cpu.rms_norm.fused");
  row.name = "planted.rms_norm.fused";
  row.run = std::move(run);
  row.time = std::move(time);
  KernelTable rows(kernels(), operator_kernels());
  rows.add(std::span<const OperatorKernel>(&row, 1));
  return timed_case("v1 rms_norm form=fused T=9 B=2 kernel=planted.rms_norm.fused", rows);
}

Outcome right(const OperatorArguments& a, const Contract& contract) {
  return operator_row("cpu.rms_norm.fused").run(a, contract);
}

TEST(TensorBench, AWrongKernelHasNoTime) {
  const TimedCase wrong = timed_by([](const OperatorArguments& a, const Contract& contract) {
    const Outcome outcome = right(a, contract);
    a.output("y").data[3] += 0.5F;
    return outcome;
  });
  EXPECT_EQ(wrong.record.judgement.verdict, Verdict::fail);
  EXPECT_TRUE(std::isnan(wrong.time.median));
  const TimedCase idle = timed_by([](const OperatorArguments&, const Contract&) { return Outcome{}; });
  EXPECT_EQ(idle.record.judgement.verdict, Verdict::fail);
  EXPECT_NE(idle.record.judgement.reason.find("not written"), std::string::npos);
}

TEST(TensorBench, AKernelThatTimesItselfIsTakenAtItsWordAndJudged) {
  const auto half_a_second = [](const OperatorArguments& a, const Contract& contract, const TimingRequest&) {
    return Timing{right(a, contract), "events", {0.5, 0.5, 0.5}, 8, 4};
  };
  const TimedCase good = timed_by(right, half_a_second);
  EXPECT_EQ(good.record.judgement.verdict, Verdict::pass);
  EXPECT_EQ(good.time.median, 0.5);
  EXPECT_EQ(good.timed, "events");
  EXPECT_EQ(good.copies, 4);
  const auto nothing = [](const OperatorArguments&, const Contract&, const TimingRequest&) {
    return Timing{{}, "events", {1e-9}, 8, 4};
  };
  EXPECT_EQ(timed_by(right, nothing).record.judgement.verdict, Verdict::fail);
}

/// A call after a cache, whose own tokens are judged.
TEST(TensorBench, OfACaseThatDecodesTheLastCallIsTimed) {
  for (const char* line :
       {"v1 softmax_attention form=decode prefill=70 T=71 B=3 contract=bf16 "
        "kernel=cpu.softmax_attention.merged",
        "v1 latent_attention form=decode prefill=9 T=12 B=2 kernel=cpu.latent_attention.absorbed",
        "v1 gated_delta_net form=decode prefill=5 T=7 B=2 kernel=cpu.gated_delta_net.chunked",
        "v1 latent_cache form=decode T=1 kernel=cpu.latent_cache.direct",
        "v1 multi_scale_retention form=decode T=3 kernel=cpu.multi_scale_retention.chunked"}) {
    const TimedCase t = timed_case(line, table());
    expect_timed(line, t);
    EXPECT_TRUE(t.sizes.starts_with("form=decode prefill=")) << t.sizes;
  }
}

/// Judges a row like that of `name` whose calls of `tokens` tokens are wrong in one element.
Verdict decoded_by(const std::string& name, std::int64_t tokens) {
  OperatorKernel row = operator_row(name);
  row.name = "planted.decoded";
  row.run = [tokens, as_before = row.run](const OperatorArguments& a, const Contract& contract) {
    const Outcome outcome = as_before(a, contract);
    if (a.tokens == tokens) a.outputs.front().data[0] += 0.5F;
    return outcome;
  };
  KernelTable rows(kernels(), operator_kernels());
  rows.add(std::span<const OperatorKernel>(&row, 1));
  return timed_case(fmt::format("v1 {} form=decode prefill=6 T=7 kernel=planted.decoded", row.system), rows)
      .record.judgement.verdict;
}

TEST(TensorBench, OfACaseThatDecodesTheLastCallIsJudged) {
  for (const char* name : {"cpu.softmax_attention.online", "cpu.selective_scan.chunked"})
    EXPECT_EQ(decoded_by(name, 1), Verdict::fail) << name;
  // Outputs of earlier tokens are not what was timed; a state that goes on from them is judged with all of them.
  EXPECT_EQ(decoded_by("cpu.softmax_attention.online", 6), Verdict::pass);
  EXPECT_EQ(decoded_by("cpu.selective_scan.chunked", 6), Verdict::fail);
}

/// The bytes are x and y [2, 9, 2, 32], and the weight [32] once; the operations of a norm are not counted.
TEST(TensorCosts, BytesAreThoseOfTheTensorsAndFollowTheContract) {
  const CaseCost host = cost_of("v1 rms_norm form=fused T=9 B=2 contract=bf16");
  EXPECT_EQ(host.bytes, 4 * (2 * 2 * 9 * 2 * 32 + 32));
  EXPECT_EQ(host.operations, 0);
  EXPECT_EQ(cost_of("v1 rms_norm form=fused T=9 B=2 contract=bf16", true).bytes,
            2 * (2 * 2 * 9 * 2 * 32) + 4 * 32);
  TimedCase timed;
  const Resolved r(parse_case("v1 rms_norm form=fused T=9"));
  add_floor(timed, r, kTensorCeilings, true);
  EXPECT_GT(timed.memory_floor, 0.0);
  EXPECT_TRUE(std::isnan(timed.compute_floor)) << "a floor of no operations is none";
}

TEST(TensorCosts, OperationsByHand) {
  // A causal square of 3 tokens has 6 pairs, and two products of H = 4 heads with 2 (32 + 32) operations
  // each.
  EXPECT_EQ(cost_of("v1 softmax_attention form=grouped T=3 B=2").operations, 2 * 6 * 4 * 2 * 64);
  // One query of H = 4 heads meets T = 3 keys; keys and values of the H_kv = 2 are read, its own row written.
  const CaseCost decoded = cost_of("v1 softmax_attention form=decode prefill=2 T=3 B=2");
  EXPECT_EQ(decoded.operations, 2 * 3 * 4 * 2 * 64);
  EXPECT_EQ(decoded.bytes, 4 * 2 * (2 * 4 * 32 + 2 * 3 * 2 * 32));
  // A token passes K = 2 of N = 5 experts of 3 x 20 x 12 weights; the others need not be read.
  const CaseCost experts = cost_of("v1 mixture_of_experts form=sorted T=7");
  EXPECT_EQ(experts.operations, 7 * 2 * 2 * 720);
  EXPECT_EQ(experts.bytes, 4 * (2 * 720 + 7 * (20 + 20 + 5)));
  // The recurrence token by token, 5 P N a head, is the chunked one's without a chunk.
  EXPECT_EQ(cost_of("v1 state_space_duality form=recurrent T=7").operations, 7 * 5 * 4 * 16 * 16);
  EXPECT_TRUE(std::isnan(cost_of("v1 state_space_duality form=recurrent T=7").token_operations));
  // A layer's maps come on top: 2 operations for each element of a weight.
  const double inside = cost_of("v1 mamba_mixer form=chunked chunk=4 T=4").token_operations * 4 * 24;
  EXPECT_EQ(static_cast<double>(cost_of("v1 mamba_mixer form=chunked chunk=4 T=4").operations),
            inside + 4 * 2 * (48 * 16 + 24 * 4 + 10 * 24 + 24 * 2 + 16 * 24));
  // A last chunk that is cut off counts as what it is.
  EXPECT_EQ(cost_of("v1 selective_scan form=chunked chunk=4 T=5 D=1 N=1").operations, 6 * 4 + 3 * 3 + 6);
  EXPECT_EQ(cost_of("v1 selective_scan form=blelloch T=5").operations, 0);
}

}  // namespace
}  // namespace samestate
