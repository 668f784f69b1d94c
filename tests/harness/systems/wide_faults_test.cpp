#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "harness/run/kernel_table.h"
#include "harness/run/run_case.h"
#include "harness/systems/judge_tensors.h"
#include "harness/systems/model_shapes.h"
#include "oracles/reasons.h"
#include "tests/harness/operator_row.h"

/// At a model's width the worst case of fp32 is a large share of a layer's output: a fault of 2 % in one column has to die there
/// all the same (bounds_operators.md 12).
namespace samestate {
namespace {

/// A case in fp32, its kernel of this build and what it wrote.
struct Written {
  Written(const std::string& line, const OperatorKernel& kernel)
      : row(adapted(kernel)),
        r(parse_case(line)),
        system(dynamic_cast<const TensorSystem&>(*r.system)),
        inputs(system.inputs(r)),
        outputs(system.outputs(r, inputs, {&row, &row, &row}, {r.layout, 1})) {}

  [[nodiscard]] Judgement judge() const {
    return judge_tensors(r, system, system.calls(r, row.form), inputs, by_sequence(outputs), kGatePolicy);
  }
  /// The run with one column of an output off by a share of each of its elements.
  [[nodiscard]] Judgement with_column_off(std::size_t output, Index column, float share) const {
    Written wrong = *this;
    CaseTensor& x = wrong.outputs[output];
    const Index columns = x.spec.columns();
    for (Index i = column; i < std::ssize(x.data); i += columns)
      x.data[static_cast<std::size_t>(i)] *= 1.0F + share;
    return wrong.judge();
  }

  KernelRow row;
  Resolved r;
  const TensorSystem& system;
  std::vector<CaseTensor> inputs, outputs;
};

const OperatorKernel* cpu_kernel_of(std::string_view system) {
  for (const OperatorKernel& row : operator_kernels()) {
    if (row.system == system && row.name.starts_with("cpu.")) return &row;
  }
  return nullptr;
}

std::string line_of(const ModelShape& shape, const OperatorKernel& kernel, Index tokens) {
  std::string line = std::string("v1 ") + std::string(shape.system) + " form=" + std::string(kernel.form);
  const CaseForm* form = Resolved(parse_case(line)).form;
  if (form->chunked) line += " chunk=16";
  line += " T=" + std::to_string(std::min<Index>(shape.T, tokens));
  for (const auto& [size, value] : shape.sizes) line += " " + std::string(size) + "=" + std::to_string(value);
  return line;
}

void expect_faults_die(const std::string& line, const OperatorKernel& kernel) {
  SCOPED_TRACE(line);
  const Written run(line, kernel);
  const Judgement right = run.judge();
  EXPECT_EQ(right.verdict, Verdict::pass) << right.reason;
  const TensorSpec& spec = run.outputs.front().spec;
  const Judgement wrong = run.with_column_off(0, spec.columns() - 1, 0.02F);
  EXPECT_EQ(wrong.verdict, Verdict::fail)
      << spec.name << ": " << wrong.gate << " " << wrong.ratio << " " << wrong.reason;
}

// 0.0038 of a worst case of 0.0798, which passed.
TEST(WideFaults, OneColumnOfAMixtureOfExperts) {
  const Written run("v1 qwen3_next_moe form=sorted T=2 D=2048 N=8 F=512 Fs=64",
                    operator_row("cpu.qwen3_next_moe.sorted"));
  const Judgement wrong = run.with_column_off(0, 2047, 0.02F);
  EXPECT_EQ(wrong.verdict, Verdict::fail) << wrong.reason;
  EXPECT_LT(wrong.hard_ratio, 0.2) << "the worst case does not see it";
  EXPECT_TRUE(wrong.gate.starts_with("sampled")) << wrong.gate;
}

// If many tokens do not affect each other, a few are drawn: those that stand out.
TEST(WideFaults, OneColumnOfManyTokensOfAMixture) {
  const std::string line = "v1 qwen3_next_moe form=sorted T=12 D=512 N=4 F=128 Fs=64";
  const Written run(line, operator_row("cpu.qwen3_next_moe.sorted"));
  EXPECT_EQ(run.judge().verdict, Verdict::pass);
  Written wrong = run;
  const Index D = 512;
  wrong.outputs.front().data[static_cast<std::size_t>(7 * D + 3)] *= 1.02F;
  const Judgement judged = wrong.judge();
  EXPECT_EQ(judged.verdict, Verdict::fail) << judged.reason;
  EXPECT_EQ(judged.worst.token, 7);
}

// Every layer and operator at the width of each public model that the table has.
TEST(WideFaults, LongOneColumnOfEachSystemAtAModelsWidth) {
  std::set<std::string_view> systems;
  for (const ModelShape& shape : model_shapes()) {
    const OperatorKernel* kernel = cpu_kernel_of(shape.system);
    if (shape.once || kernel == nullptr) continue;
    systems.insert(shape.system);
    expect_faults_die(line_of(shape, *kernel, 2), *kernel);
  }
  EXPECT_GE(systems.size(), 20U);
}

}  // namespace
}  // namespace samestate
