#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "harness/run/run_case.h"
#include "harness/systems/tensor_inputs.h"
#include "harness/systems/tensor_system.h"
#include "optimized/kernel.h"
#include "oracles/reasons.h"
#include "oracles/rounding.h"
#include "tests/harness/operator_row.h"

namespace samestate {
namespace {

constexpr const char* kLine = "v1 linear_attention_normalised form=chunked chunk=8 T=21 B=2";

const OperatorKernel& right() { return operator_row("cpu.linear_attention_normalised.chunked"); }

/// Returns what the case says about a row: its judgement, or what System::run throws.
Judgement judged_case(const OperatorKernel& kernel, const std::string& line = kLine) {
  const KernelRow row = adapted(kernel);
  const Resolved r(parse_case(line));
  return r.system->run(r, {&row, &row, &row}, {r.layout, 1}, kGatePolicy, nullptr);
}

/// The right kernel after `change` has had its way with the outputs of the call.
OperatorKernel planted(Outcome (*change)(const OperatorArguments&)) {
  OperatorKernel kernel = right();
  kernel.run = [change](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right().run(call, contract);
    const Outcome changed = change(call);
    return changed.kind == Outcome::Kind::ran ? outcome : changed;
  };
  return kernel;
}

Outcome one_element(const OperatorArguments& call) {
  if (call.tokens > 0) call.output("o").data[0] *= 1.001F;
  return {};
}
Outcome not_written(const OperatorArguments& call) {
  if (call.tokens > 0) call.output("o").data[1] = std::nanf("");
  return {};
}
Outcome writes_before(const OperatorArguments& call) {
  call.output("o").data[-1] = 0.0F;
  return {};
}
Outcome writes_input(const OperatorArguments& call) {
  if (call.tokens > 0) const_cast<float*>(call.input("q").data)[0] += 1.0F;
  return {};
}
Outcome drops_state(const OperatorArguments& call) {
  const auto& S = call.output("S");
  std::int64_t size = 1;
  for (std::int64_t extent : S.shape) size *= extent;
  std::fill_n(S.data, size, 0.0F);
  return {};
}
Outcome refuses(const OperatorArguments&) { return {Outcome::Kind::unsupported, "no"}; }

TEST(OperatorRun, RightKernelPasses) {
  EXPECT_EQ(judged_case(right()).verdict, Verdict::pass);
  EXPECT_EQ(judged_case(right(), std::string(kLine) + " contract=bf16").verdict, Verdict::pass);
  EXPECT_EQ(judged_case(right(), "v1 linear_attention_normalised form=decode prefill=7 T=15 chunk=4").verdict,
            Verdict::pass);
}

// A card that is nearest knows the points that were found, and the kernel may have others.
TEST(OperatorRun, TheTwinOfANearestCardIsReported) {
  const OperatorKernel& right = operator_row("cpu.latent_attention.absorbed");
  OperatorKernel kernel = right;
  kernel.strided = false;
  kernel.contracts = {"bf16", "bf16+card:nearest"};
  kernel.run = [&right](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    const auto& y = call.output("y");
    std::int64_t size = 1;
    for (const std::int64_t extent : y.shape) size *= extent;
    for (float& x : std::span(y.data, static_cast<std::size_t>(size))) x = round_to(1.008F * x, Format::bf16);
    return outcome;
  };
  const std::string line = "v1 latent_attention form=absorbed T=24 contract=bf16";
  const Judgement exact = judged_case(kernel, line);
  EXPECT_EQ(exact.verdict, Verdict::fail);
  const Judgement nearest = judged_case(kernel, line + "+card:nearest");
  EXPECT_NE(nearest.verdict, Verdict::fail) << nearest.reason;
  EXPECT_GT(std::max(nearest.twin_ratio, nearest.sampled_ratio), 1.0);
}

/// The layer's kernel with other taps, after `change` has had its way with what it wrote.
OperatorKernel layer_with(std::vector<std::string> taps, void (*change)(const OperatorArguments&)) {
  OperatorKernel kernel = operator_row("cpu.gated_delta_net.chunked");
  kernel.taps = std::move(taps);
  kernel.run = [right = kernel.run, change](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = right(call, contract);
    change(call);
    return outcome;
  };
  return kernel;
}
void as_it_is(const OperatorArguments&) {}
constexpr const char* kLayer = "v1 gated_delta_net form=chunked chunk=8 T=21 B=2 contract=bf16 taps=1";

std::string stages_in(const Judgement& j) {
  std::string names;
  for (const StageFinding& s : j.stages) names += "/" + s.stage;
  return names;
}

TEST(OperatorRun, TapsAreAskedForUnderTheirKeyAlone) {
  const std::vector<std::string> all = operator_row("cpu.gated_delta_net.chunked").taps;
  EXPECT_EQ(stages_in(judged_case(layer_with(all, as_it_is), kLayer)),
            "/projections/convolution/norm of q/norm of k/gates/rule/norm/output");
  const std::string without = "v1 gated_delta_net form=chunked chunk=8 T=21 B=2 contract=bf16";
  EXPECT_TRUE(judged_case(layer_with(all, as_it_is), without).stages.empty());
  EXPECT_TRUE(judged_case(layer_with({}, as_it_is), kLayer).stages.empty())
      << "a row without taps is judged as a whole";
  EXPECT_EQ(stages_in(judged_case(layer_with({"gated", "z"}, as_it_is), kLayer)), "/norm/output");
  for (const char* form :
       {"form=decode prefill=5", "form=chunked chunk=4 layout=permuted", "form=chunked chunk=1"}) {
    const Judgement j = judged_case(operator_row("cpu.gated_delta_net.chunked"),
                                    fmt::format("v1 gated_delta_net {} T=11 contract=fp16 taps=1", form));
    EXPECT_EQ(j.verdict, Verdict::pass) << form << ": " << j.reason;
    EXPECT_EQ(j.stages.size(), 8U) << form;
  }
}

// A tap that a kernel hands out need not be what it used: then the stage after it is blamed, or the tap's
// own.
TEST(OperatorRun, TapsThatAreNotWhatWasReadFail) {
  const auto other = [](const OperatorArguments& call) {
    if (const auto* tap = call.tap("gated")) tap->data[0] += 1.0F;
  };
  const Judgement j = judged_case(layer_with({"z", "gated"}, other), kLayer);
  EXPECT_EQ(j.verdict, Verdict::fail);
  EXPECT_EQ(j.stage, "norm");
  EXPECT_NE(j.reason.find("output gated"), std::string::npos) << j.reason;
  EXPECT_NE(j.reason.find("the whole layer shows nothing of it"), std::string::npos) << j.reason;
  const auto unwritten = [](const OperatorArguments& call) {
    if (const auto* tap = call.tap("q")) tap->data[3] = std::nanf("");
  };
  EXPECT_EQ(judged_case(layer_with({"convolved", "q"}, unwritten), kLayer).stage, "norm of q");
}

// The first call of a decoded case has more tokens than one, and the others have not.
TEST(OperatorRun, ATapWithALimitIsHandedOutWhereAllCallsHoldIt) {
  const OperatorKernel some = layer_with({"mixed", "a", "b", "convolved if T != 1"}, as_it_is);
  EXPECT_EQ(stages_in(judged_case(some, kLayer)), "/convolution/norms, gates and rule");
  const std::string rest = " chunk=4 T=11 contract=bf16 taps=1";
  EXPECT_EQ(stages_in(judged_case(some, "v1 gated_delta_net form=decode prefill=5" + rest)),
            "/convolution to rule");
  EXPECT_EQ(stages_in(judged_case(some, "v1 gated_delta_net form=chunked" + rest)),
            "/convolution/norms, gates and rule");
  EXPECT_EQ(stages_in(judged_case(some, "v1 gated_delta_net form=chunked chunk=4 T=1 taps=1")),
            "/convolution to rule");
  try {
    (void)adapted(layer_with({"convolved if tokens > 1"}, as_it_is));
    ADD_FAILURE() << "no limit";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("its tap 'convolved'"), std::string::npos) << error.what();
  }
}

TEST(OperatorRun, TapsThatTheSystemHasNotAreRefused) {
  for (const auto& [taps, says] :
       {std::pair{std::vector<std::string>{"gated", "gaited"}, "'gaited', which gated_delta_net has not"},
        {std::vector<std::string>{"gated", "gated"}, "twice"}}) {
    try {
      (void)adapted(layer_with(taps, as_it_is));
      ADD_FAILURE() << says;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("convolved"), std::string::npos) << "names what there is";
    }
  }
  OperatorKernel norm = operator_row("cpu.l2norm.fused");
  norm.taps = {"x"};
  EXPECT_THROW((void)adapted(norm), Error);
}

TEST(OperatorRun, PlantedFaultsFail) {
  EXPECT_EQ(judged_case(planted(one_element)).verdict, Verdict::fail);
  EXPECT_EQ(judged_case(planted(not_written)).verdict, Verdict::fail);
  EXPECT_EQ(judged_case(planted(drops_state)).verdict, Verdict::fail);
  EXPECT_THROW((void)judged_case(planted(writes_before)), Trespass);
  EXPECT_THROW((void)judged_case(planted(writes_input)), Trespass);
  EXPECT_THROW((void)judged_case(planted(refuses)), Unavailable);
}

Outcome ones_for_zeros(const OperatorArguments& call) {
  const auto& o = call.output("o");
  std::int64_t size = 1;
  for (const std::int64_t extent : o.shape) size *= extent;
  for (float& x : std::span(o.data, static_cast<std::size_t>(size))) x = x == 0.0F ? 1.0F : x;
  return {};
}

// Some of many requests have no slot: their outputs are zero by definition, which says nothing against the
// others. An output that is not zero there is a failure.
TEST(OperatorRun, ASequenceOfZerosLeavesTheOthersJudged) {
  const OperatorKernel& kernel = operator_row("cpu.gated_delta_step.expanded");
  const std::string of = "v1 gated_delta_step form=expanded T=2 dk=2 dv=2 seed=1 ";
  EXPECT_EQ(judged_case(kernel, of + "B=128 regime=trained").verdict, Verdict::pass);
  OperatorKernel faulty = kernel;
  faulty.run = [&kernel](const OperatorArguments& call, const Contract& contract) {
    const Outcome outcome = kernel.run(call, contract);
    return outcome.kind == Outcome::Kind::ran ? ones_for_zeros(call) : outcome;
  };
  EXPECT_EQ(judged_case(faulty, of + "B=128 regime=trained").verdict, Verdict::fail);
  const Judgement all =
      judged_case(operator_row("cpu.rms_norm.fused"), "v1 rms_norm form=fused B=3 T=1 regime=zeros");
  EXPECT_EQ(all.verdict, Verdict::vacuous);
  EXPECT_EQ(all.gate, kZeroGate);
}

TEST(OperatorRun, AStateThatIsNotCarriedFailsInDecodeOnly) {
  const Judgement j =
      judged_case(planted(drops_state), "v1 linear_attention_normalised form=decode prefill=7 T=15");
  EXPECT_EQ(j.verdict, Verdict::fail);
}

std::string error_of(const std::string& line) {
  try {
    (void)parse_case(line);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(OperatorCase, BadLinesNameTheKey) {
  const std::string v1 = "v1 linear_attention_normalised ";
  EXPECT_NE(error_of(v1 + "Hk=2").find("Hk"), std::string::npos);
  EXPECT_NE(error_of(v1 + "l2norm=1").find("l2norm"), std::string::npos);
  EXPECT_NE(error_of(v1 + "H=0").find("H=0"), std::string::npos);
  EXPECT_NE(error_of(v1 + "H=65").find("1..64"), std::string::npos);
  EXPECT_NE(error_of(v1 + "form=parallel").find("recurrent, chunked, decode"), std::string::npos);
  EXPECT_NE(error_of(v1 + "form=chunked chunk=0").find("chunk=0"), std::string::npos);
  EXPECT_NE(error_of(v1 + "regime=collinear").find("collinear"), std::string::npos);
  EXPECT_NE(error_of(v1 + "contract=fp7").find("fp7"), std::string::npos);
  EXPECT_NE(error_of(v1 + "prefill=3").find("form=decode"), std::string::npos);
  EXPECT_NE(error_of(v1 + "form=decode prefill=99 T=9").find("prefill=99"), std::string::npos);
  EXPECT_NE(error_of(v1 + "T=16777216 B=16777216").find("elements"), std::string::npos);
  EXPECT_NE(error_of("v1 linear_attention_bidirectional form=decode").find("form=decode"), std::string::npos);
}

TEST(OperatorCase, InputsDoNotMoveWithTheSizes) {
  const auto small = tensor_inputs(Resolved(parse_case("v1 linear_attention_bidirectional T=5 seed=4")));
  const auto large = tensor_inputs(Resolved(parse_case("v1 linear_attention_bidirectional T=9 B=2 seed=4")));
  for (std::size_t i = 0; i < small.size(); ++i) {
    for (std::size_t e = 0; e < small[i].data.size(); ++e) EXPECT_EQ(small[i].data[e], large[i].data[e]);
  }
}

/// If a kernel receives a tensor in 16 bits, that tensor is rounded, and no other.
TEST(OperatorCase, InputsAreRoundedAsAKernelIsGivenThem) {
  const auto exact = tensor_inputs(Resolved(parse_case("v1 gated_rms_norm form=fused T=3 D=64 seed=4")));
  auto given = exact;
  given[1].data[0] = 1e6F;
  given[1].data[1] = -std::numeric_limits<float>::infinity();
  ASSERT_EQ(given[1].spec.name, "z");
  round_inputs(given, {{"weight", Format::bf16}, {"z", Format::fp16}, {"absent", Format::bf16}});
  EXPECT_EQ(given[0].data, exact[0].data);
  EXPECT_EQ(given[1].data[0], 65504.0F);
  EXPECT_EQ(given[1].data[1], -std::numeric_limits<float>::infinity());
  ASSERT_EQ(given[2].spec.name, "weight");
  EXPECT_NE(given[2].data, exact[2].data);
  for (std::size_t i = 0; i < exact[2].data.size(); ++i)
    EXPECT_EQ(given[2].data[i], static_cast<float>(round_to(exact[2].data[i], Format::bf16)));
}

TEST(OperatorCase, SlotsAreNumbersOfRows) {
  const auto exact = tensor_inputs(Resolved(parse_case("v1 gated_delta_step P=300 B=4 T=1 seed=4")));
  auto given = exact;
  round_inputs(given, {{"slot", Format::bf16}, {"A_log", Format::bf16}});
  for (std::size_t i = 0; i < exact.size(); ++i)
    EXPECT_EQ(given[i].data == exact[i].data, exact[i].spec.name != "A_log") << exact[i].spec.name;
}

TEST(OperatorCase, KernelOfAnotherSystemIsAnError) {
  const KernelTable table(kernels(), operator_kernels());
  const auto choose = [&](const std::string& line) { (void)table.choose(Resolved(parse_case(line))); };
  EXPECT_THROW(choose("v1 linear_attention_normalised form=chunked "
                      "kernel=cpu.linear_attention_bidirectional.state_first"),
               Error);
  EXPECT_THROW(choose("v1 normalised_retention_recurrence form=recurrent"), Error);
}

// A layout changes where the values lie, and neither they nor the verdict.
TEST(TensorSystem, ALayoutChangesNoValue) {
  for (const char* more : {"", " form=decode prefill=7"}) {
    const std::string line = "v1 linear_attention_normalised form=chunked chunk=8 T=21 B=2";
    const std::string of =
        *more == 0 ? line : "v1 linear_attention_normalised chunk=8 T=21 B=2" + std::string(more);
    const Judgement dense = judged_case(right(), of);
    EXPECT_EQ(dense.verdict, Verdict::pass);
    for (const std::string_view layout : layout_names())
      EXPECT_EQ(judged_case(right(), of + " layout=" + std::string(layout)).ratio, dense.ratio)
          << of << layout;
    EXPECT_EQ(judged_case(right(), of + " repeat=1").ratio, dense.ratio) << of;
  }
}

Outcome sees_the_last_token(const OperatorArguments& call) {
  const auto& v = call.input("v");
  const std::int64_t size = v.extent(1) * v.extent(2) * v.extent(3);
  if (call.tokens > 1) call.output("o").data[0] += v.data[size - 1];
  return {};
}
Outcome sees_the_first_row(const OperatorArguments& call) {
  const auto& v = call.input("v");
  const std::int64_t size = v.extent(1) * v.extent(2) * v.extent(3);
  if (call.batch > 1 && size > 0) call.output("o").data[size] += v.data[0];
  return {};
}

TEST(TensorLaws, EachKillsTheFaultThatItIsThereFor) {
  const struct {
    const char* law;
    Outcome (*fault)(const OperatorArguments&);
  } rows[] = {
      {"split", drops_state}, {"causality", sees_the_last_token}, {"batch_permutation", sees_the_first_row}};
  for (const auto& [law, fault] : rows) {
    const std::string line = std::string(kLine) + " law=" + law;
    EXPECT_EQ(judged_case(right(), line).verdict, Verdict::pass) << law;
    const Judgement j = judged_case(planted(fault), line);
    EXPECT_EQ(j.verdict, Verdict::fail) << law << ": " << j.reason;
    EXPECT_EQ(j.gate, "law");
  }
}

/// Evaluations of the oracle.
int evaluations = 0;
Tensors<double> counted(const Call& call, const Tensors<double>& inputs) {
  ++evaluations;
  return find_operator("linear_attention_normalised")->exact(call, inputs);
}

// A law costs mainly running errors: for the run with which the others are compared, there is one per
// sequence and not one per comparison.
TEST(TensorLaws, OneOracleIsHeldAgainstAllOtherRuns) {
  Operator row = *find_operator("linear_attention_normalised");
  row.exact = counted;
  const TensorSystem counting(row);
  const KernelRow kernel = adapted(right());
  const struct {
    const char* law;
    int others;  ///< cuts before tokens 1, 7, 8, 9, 10 and 20
  } rows[] = {{"split", 6}, {"causality", 6}};
  for (const auto& [law, others] : rows) {
    Resolved r(parse_case(std::string(kLine) + " law=" + law));
    r.law = counting.law(law);
    evaluations = 0;
    EXPECT_EQ(counting.run(r, {&kernel, &kernel, &kernel}, {r.layout, 1}, kGatePolicy, nullptr).verdict,
              Verdict::pass);
    EXPECT_EQ(evaluations, 2 * (1 + others)) << law;
  }
}

// A kernel that says it takes strides and does not look at them.
TEST(TensorSystem, IgnoredStridesFail) {
  OperatorKernel blind = right();
  blind.run = [](OperatorArguments call, const Contract& contract) {
    for (auto& x : call.inputs) x.stride.clear();
    for (auto& x : call.outputs) x.stride.clear();
    return right().run(call, contract);
  };
  const std::string padded = std::string(kLine) + " layout=padded";
  bool noticed = false;
  try {
    noticed = judged_case(blind, padded).verdict == Verdict::fail;
  } catch (const Trespass&) {
    noticed = true;
  }
  EXPECT_TRUE(noticed);
  OperatorKernel dense = right();
  dense.strided = false;
  EXPECT_THROW((void)judged_case(dense, padded), Unavailable) << "it says that it takes none";
}

// The sizes that a call names are its run's, and a refusal outlives both.
TEST(OperatorRun, ARefusalKnowsTheSizesOfItsCall) {
  const auto verdict = [](const std::vector<std::string>& limits) {
    OperatorKernel kernel = operator_row("cpu.short_convolution.scatter");
    kernel.limits = limits;
    kernel.run = [](const OperatorArguments&, const Contract&) {
      return Outcome{Outcome::Kind::unsupported, "no activation"};
    };
    return run_case(parse_case("v1 short_convolution form=scatter T=9 C=30 W=3 activation=0"),
                    KernelTable({}, std::span(&kernel, 1)), 1)
        .judgement.verdict;
  };
  EXPECT_EQ(verdict({"activation = 1"}), Verdict::unsupported);
  EXPECT_EQ(verdict({"activation = 0", "C <= 30"}), Verdict::fail) << "it lies inside";
}

// Expected -74524 of a token whose experts no bound decides: fp16 has no such number, and -infinity is right.
TEST(OperatorRun, AValueBeyondTheFormatIsNoFaultWhereTheChoiceIsOpen) {
  const Case c = parse_case(
      "v1 qwen3_next_moe form=sorted B=112 T=2 D=2 N=3 F=2 Fs=1 contract=fp16 regime=mixed_scales "
      "seed=0x3228000040a");
  const Judgement j = run_case(c, KernelTable({}, operator_kernels()), 1).judgement;
  EXPECT_NE(j.verdict, Verdict::fail) << j.reason;
  EXPECT_GT(j.ratio, 0.0);
}

// Experts 4 and 10 are equal to bf16's logits. The kernel takes 4, with weights of logits in bf16, and what 10 makes by weights of
// exact ones is nearer to it than what 4 does: neither is told to be its choice.
TEST(OperatorRun, AChoiceIsNotReadFromWeightsThatMayBeRounded) {
  const Case c = parse_case(
      "v1 qwen3_next_moe form=sorted B=25 T=16 D=10 N=32 F=1 contract=bf16 regime=large "
      "seed=0x5f802cdcabde24d1");
  const Judgement j = run_case(c, KernelTable({}, operator_kernels()), 1).judgement;
  EXPECT_EQ(j.verdict, Verdict::pass) << j.reason;
}

}  // namespace
}  // namespace samestate
