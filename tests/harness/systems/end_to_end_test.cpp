#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <span>
#include <string>

#include "harness/cases/resolved.h"
#include "harness/explain/explain.h"
#include "harness/run/run_case.h"
#include "harness/systems/saved_run.h"
#include "harness/systems/tensor_system.h"
#include "optimized/operator_kernel.h"
#include "reference/error.h"

/// Systems of which an output is a sum over all sequences of a call, on the right kernels and on faults in one sequence.
namespace samestate {
namespace {

/// Changes what the right kernel has written for a call.
using Spoil = std::function<void(const OperatorArguments&)>;

Record run_spoilt(const std::string& line, std::string_view kernel, const Spoil& spoil,
                  Trace* trace = nullptr) {
  const auto right = std::ranges::find(operator_kernels(), kernel, &OperatorKernel::name);
  OperatorKernel row = *right;
  row.name = "spoilt." + row.system + "." + row.form;
  row.run = [run = right->run, spoil](const OperatorArguments& call, const Contract& contract) {
    Outcome outcome = run(call, contract);
    if (spoil) spoil(call);
    return outcome;
  };
  return run_case(parse_case(line), KernelTable({}, std::span<const OperatorKernel>(&row, 1)), 1, trace);
}

constexpr const char* kNorm = "cpu.rms_norm.backward.fused";
constexpr const char* kConvolution = "cpu.short_convolution.backward.gather";
const std::string kNormLine = "v1 rms_norm pass=backward form=fused B=3 T=7 H=2 D=10 seed=0x5";
const std::string kPackedLine =
    "v1 short_convolution pass=backward form=packed lengths=9,0,2,14 unowned=2,1 C=5 bias=1 seed=0x6";

/// Element `at` of an output becomes 1.01 times as large.
Spoil scaled_at(std::string_view output, std::int64_t at) {
  return [=](const OperatorArguments& call) { call.output(output).data[at] *= 1.01F; };
}

TEST(EndToEnd, RightKernelsPass) {
  for (const std::string contract : {"fp32", "bf16", "fp16"}) {
    for (const std::string cotangents : {"normal", "output", "ones", "basis"}) {
      const std::string more = " contract=" + contract + " cotangents=" + cotangents;
      for (const auto& [line, kernel] : {std::pair{kNormLine, kNorm}, std::pair{kPackedLine, kConvolution}}) {
        const Judgement j = run_spoilt(line + more, kernel, nullptr).judgement;
        EXPECT_EQ(j.verdict, Verdict::pass) << line << more << ": " << j.reason << " " << j.ratio;
      }
    }
  }
}

TEST(EndToEnd, ASumIsJudgedOverAllSequences) {
  for (const auto& [line, kernel, output] :
       {std::tuple{kNormLine, kNorm, "d.weight"}, std::tuple{kPackedLine, kConvolution, "d.kernel"},
        std::tuple{kPackedLine, kConvolution, "d.bias"}}) {
    const Judgement j = run_spoilt(line, kernel, scaled_at(output, 3)).judgement;
    EXPECT_EQ(j.verdict, Verdict::fail) << output;
    EXPECT_EQ(j.reason, std::string("output ") + output);
    EXPECT_EQ(j.worst.sequence, -1) << "a sum belongs to no sequence";
  }
}

TEST(EndToEnd, AFaultInASequenceHasItsPlaceThere) {
  // Row 3 of 14 rows of sequence 2: token 1, of whose two rows it is the second.
  const Judgement norm = run_spoilt(kNormLine, kNorm, scaled_at("d.x", (2 * 14 + 3) * 10 + 4)).judgement;
  EXPECT_EQ(norm.verdict, Verdict::fail);
  EXPECT_EQ(norm.worst.sequence, 2);
  EXPECT_EQ(norm.worst.token, 3);
  EXPECT_EQ(norm.worst.channel, 4);
  // Tokens 0 and 1 belong to no sequence, 2 to 10 to the first, 11 and 12 to the third.
  const auto second_of_third = [](const OperatorArguments& call) {
    const NamedTensor<float>& x = call.output("d.x");
    const std::int64_t stride = x.stride.empty() ? x.shape[2] : x.stride[1];
    x.data[12 * stride + 2] *= 1.01F;
  };
  const Judgement packed = run_spoilt(kPackedLine, kConvolution, second_of_third).judgement;
  EXPECT_EQ(packed.verdict, Verdict::fail);
  EXPECT_EQ(packed.worst.sequence, 2);
  EXPECT_EQ(packed.worst.token, 1);
  EXPECT_EQ(packed.worst.channel, 2);
}

TEST(EndToEnd, AFailureIsExplained) {
  Trace trace;
  const Record record = run_spoilt(
      kNormLine, kNorm,
      [](const OperatorArguments& call) {
        const NamedTensor<float>& x = call.output("d.weight");
        for (std::int64_t j = 0; j < x.shape.back(); ++j) x.data[j] *= 1.5F;
      },
      &trace);
  ASSERT_EQ(record.judgement.verdict, Verdict::fail);
  const Explanation found = explain(Resolved(parse_case(record.line)), trace);
  EXPECT_TRUE(std::ranges::any_of(found.patterns, [](const std::string& text) {
    return text.find("d.weight: the right values times 1.5") != std::string::npos;
  }));
}

TEST(EndToEnd, ARunInAFileIsTheSame) {
  Trace trace;
  const Record record = run_spoilt(kPackedLine, kConvolution, scaled_at("d.bias", 1), &trace);
  const RunFile file = run_file_of(record, trace);
  EXPECT_EQ(file.tensors.at("output.d.bias").shape, (std::vector<std::int64_t>{5}));
  const Record again = judge_run_file(file);
  EXPECT_EQ(again.judgement.verdict, Verdict::fail);
  EXPECT_EQ(again.judgement.ratio, record.judgement.ratio);
}

TEST(EndToEnd, LawsCompareSequences) {
  for (const char* law : {"batch_permutation", "packing", "linearity"}) {
    const Judgement j = run_spoilt(kNormLine + " law=" + law, kNorm, nullptr).judgement;
    EXPECT_EQ(j.verdict, Verdict::pass) << law << ": " << j.reason;
  }
  const auto clipped = [](const OperatorArguments& call) {
    const NamedTensor<float>& x = call.output("d.x");
    for (std::int64_t i = 0; i < x.shape[0] * x.shape[1] * x.shape[2] * x.shape[3]; ++i)
      x.data[i] = std::clamp(x.data[i], -0.1F, 0.1F);
  };
  EXPECT_EQ(run_spoilt(kNormLine + " law=linearity", kNorm, clipped).judgement.verdict, Verdict::fail);
}

TEST(EndToEnd, TheDataAreThoseOfTheForwardPass) {
  for (const std::string line : {"v1 gated_rms_norm{} B=2 T=5 D=7 contract=bf16 regime=large seed=0x8",
                                 "v1 activation_gates{} B=2 T=5 seed=0x8",
                                 "v1 short_convolution{} form=packed lengths=3,4 C=5 bias=1 seed=0x8"}) {
    const std::size_t at = line.find("{}");
    const auto inputs = [&](const std::string& pass) {
      const Resolved r(parse_case(std::string(line).replace(at, 2, pass)));
      return r.system->inputs(r);
    };
    const std::vector<CaseTensor> forward = inputs(""), backward = inputs(" pass=backward");
    for (std::size_t i = 0; i < forward.size(); ++i) {
      EXPECT_EQ(backward[i].spec.name, forward[i].spec.name);
      EXPECT_EQ(backward[i].data, forward[i].data) << line << " " << forward[i].spec.name;
    }
    EXPECT_GT(backward.size(), forward.size());
  }
}

// The forward pass chooses the largest logits, the lower index among equals; its choice is an input of the backward pass.
TEST(EndToEnd, TheExpertsAreThoseThatTheForwardPassChooses) {
  for (const std::string line :
       {"v1 mixture_of_experts pass=backward B=3 T=40 N=9 K=4 contract=bf16 seed=0x4",
        "v1 mixture_of_experts pass=backward B=2 T=5 N=3 K=3 regime=repeated",
        "v1 mixture_of_experts pass=backward T=0"}) {
    const Resolved r(parse_case(line));
    std::map<std::string, CaseTensor> given;
    for (CaseTensor& x : r.system->inputs(r)) given.emplace(x.spec.name, x);
    const CaseTensor &logits = given.at("logits"), &experts = given.at("experts");
    const auto N = static_cast<std::size_t>(logits.spec.columns()),
               K = static_cast<std::size_t>(experts.spec.columns());
    ASSERT_EQ(experts.data.size() * N, logits.data.size() * K);
    for (std::size_t t = 0; t * N < logits.data.size(); ++t) {
      std::vector<float> order(N);
      std::iota(order.begin(), order.end(), 0.0F);
      std::ranges::stable_sort(order, std::greater<>(),
                               [&](float e) { return logits.data[t * N + static_cast<std::size_t>(e)]; });
      for (std::size_t k = 0; k < K; ++k) ASSERT_EQ(experts.data[t * K + k], order[k]) << line << " " << t;
    }
  }
}

TEST(EndToEnd, RightGradientsOfExpertsPassAndASpoiltOneFails) {
  for (const std::string contract : {"fp32", "tf32", "tf32_truncated", "bf16", "fp16"}) {
    for (const auto& [line, kernel, output] :
         {std::tuple{"v1 mixture_of_experts pass=backward form=sorted B=2 T=9 N=7",
                     "cpu.mixture_of_experts.backward.sorted", "d.up"},
          std::tuple{"v1 expert_router pass=backward form=logits_first B=2 T=9 bias=1",
                     "cpu.expert_router.backward.logits_first", "d.router"}}) {
      const std::string whole = std::string(line) + " contract=" + contract;
      const Judgement right = run_spoilt(whole, kernel, nullptr).judgement;
      EXPECT_EQ(right.verdict, Verdict::pass) << whole << ": " << right.reason << " " << right.ratio;
      const Judgement wrong = run_spoilt(whole, kernel, [&](const OperatorArguments& call) {
                                const NamedTensor<float>& x = call.output(output);
                                for (std::int64_t i = 0; i < x.shape.back(); ++i)
                                  x.data[i] = 1.25F * x.data[i] + 0.25F;
                              }).judgement;
      EXPECT_EQ(wrong.verdict, Verdict::fail) << whole;
      EXPECT_TRUE(wrong.reason.starts_with(std::string("output ") + output)) << wrong.reason;
    }
  }
}

TEST(EndToEnd, ALineHasTheKeysOfItsSystem) {
  EXPECT_NO_THROW((void)parse_case("v1 short_convolution pass=backward cotangent=state"));
  EXPECT_THROW((void)parse_case("v1 rms_norm pass=backward cotangent=state"), Error)
      << "one output, no state";
  EXPECT_THROW((void)parse_case("v1 short_convolution cotangent=o"), Error) << "a key of gradients alone";
  EXPECT_EQ(format_case(parse_case("v1 rms_norm.backward form=fused D=8")),
            "v1 rms_norm pass=backward form=fused D=8");
  EXPECT_EQ(format_case(parse_case("v1 rms_norm pass=forward form=fused D=8")), "v1 rms_norm form=fused D=8");
}

}  // namespace
}  // namespace samestate
