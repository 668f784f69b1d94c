/// The laws of states, caches and packed sequences of named tensors, on right kernels and on the faults that
/// they are there for. Each fault passes the case without the law.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/run/run_case.h"
#include "harness/systems/tensor_system.h"
#include "oracles/systems/family.h"
#include "tests/harness/operator_row.h"

namespace samestate {
namespace {

using Run = std::function<Outcome(OperatorArguments, const Contract&)>;

const std::string kRecurrent = "v1 linear_attention_normalised form=chunked chunk=4 T=13 B=2";
const std::string kNorm = "v1 rms_norm form=fused T=9 B=2";

const OperatorKernel& row_of(const std::string& line) {
  return operator_row(line.find("rms_norm") != std::string::npos ? "cpu.rms_norm.fused"
                                                                 : "cpu.linear_attention_normalised.chunked");
}

Judgement judged(const OperatorKernel& kernel, const std::string& line) {
  const KernelRow row = adapted(kernel);
  const Resolved r(parse_case(line));
  return r.system->run(r, {&row, &row, &row}, {r.layout, 1}, kGatePolicy, nullptr);
}

OperatorKernel planted(const std::string& line, Run run) {
  OperatorKernel kernel = row_of(line);
  kernel.strided = false;
  kernel.run = std::move(run);
  return kernel;
}

/// A kernel of the recurrent line that reads other states than it is given where `wants` says so.
class OtherStates {
 public:
  using Wants = std::function<bool(const OperatorArguments&)>;
  explicit OtherStates(Wants wants) : wants_(std::move(wants)) {}

  Outcome operator()(OperatorArguments call, const Contract& contract) {
    for (auto& x : call.inputs) {
      const auto kept = left_.find(std::string(x.name));
      if (kept == left_.end() || std::ssize(kept->second) != size_of(x.shape) || !wants_(call)) continue;
      x.data = kept->second.data();
    }
    const Outcome outcome = row_of(kRecurrent).run(call, contract);
    std::map<std::string, std::vector<float>> left;
    for (const char* name : {"S", "z"}) {
      const auto& x = call.output(name);
      left[name].assign(x.data, x.data + size_of(x.shape));
    }
    left_ = std::move(left);
    return outcome;
  }

  static std::int64_t size_of(const std::vector<std::int64_t>& shape) {
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    return size;
  }

 private:
  Wants wants_;
  std::map<std::string, std::vector<float>> left_;
};

/// BUGS M25: a state of zeros is taken for none, and what the last request left is read.
OperatorKernel ignores_zeros() {
  return planted(kRecurrent, OtherStates([](const OperatorArguments& call) {
                   const auto& S = call.input("S");
                   const std::int64_t size = OtherStates::size_of(S.shape);
                   return std::all_of(S.data, S.data + size, [](float x) { return x == 0.0F; });
                 }));
}

/// The state is kept in the kernel: right as long as calls of one request follow each other.
OperatorKernel keeps_its_own() {
  return planted(kRecurrent, OtherStates([](const OperatorArguments& call) { return call.tokens == 1; }));
}

/// Each sequence goes on from the state of its neighbour.
OperatorKernel reads_the_next_slot() {
  return planted(kRecurrent, [](OperatorArguments call, const Contract& contract) {
    std::vector<std::vector<float>> turned;
    turned.reserve(2);
    for (auto& x : call.inputs) {
      if (call.batch < 2 || (x.name != "S" && x.name != "z")) continue;
      const std::int64_t size = OtherStates::size_of(x.shape);
      turned.emplace_back(x.data, x.data + size);
      std::rotate(turned.back().begin(), turned.back().begin() + size / call.batch, turned.back().end());
      x.data = turned.back().data();
    }
    return row_of(kRecurrent).run(call, contract);
  });
}

/// BUGS M27: the first token of every sequence but the first of a call reads the token before it.
OperatorKernel reads_over_the_boundary() {
  return planted(kNorm, [](OperatorArguments call, const Contract& contract) {
    const Outcome outcome = row_of(kNorm).run(call, contract);
    const auto& y = call.output("y");
    const std::int64_t row = y.extent(2) * y.extent(3);
    if (call.batch == 1 && call.tokens > 9) y.data[9 * row] += y.data[8 * row];
    return outcome;
  });
}

TEST(TensorServing, EachLawKillsTheFaultThatItIsThereFor) {
  const struct {
    std::string line;
    const char* law;
    OperatorKernel (*fault)();
  } rows[] = {{kRecurrent, "reset", ignores_zeros},
              {kRecurrent, "serving", ignores_zeros},
              {kRecurrent, "serving", keeps_its_own},
              {kRecurrent, "serving", reads_the_next_slot},
              {kNorm, "packing", reads_over_the_boundary}};
  for (const auto& [line, law, fault] : rows) {
    const std::string lawful = line + " law=" + law;
    EXPECT_EQ(judged(row_of(line), lawful).verdict, Verdict::pass) << lawful;
    EXPECT_EQ(judged(fault(), line).verdict, Verdict::pass) << line << ": the oracle alone does not see it";
    const Judgement j = judged(fault(), lawful);
    EXPECT_EQ(j.verdict, Verdict::fail) << lawful << ": " << j.reason;
    EXPECT_EQ(j.gate, "law");
  }
}

/// The running errors of a whole layer in 16 bits say nothing of two runs of it: drawn roundings do.
TEST(TensorLaws, LayersInSixteenBitsAreHeldToDrawnRoundings) {
  for (const char* name : {"cpu.latent_attention.absorbed", "cpu.gated_delta_net.chunked",
                           "cpu.dendritic_attention.compacted"}) {
    const OperatorKernel& right = operator_row(name);
    const std::string line =
        "v1 " + right.system + " form=" + right.form + " B=2 T=13 contract=bf16 law=batch_permutation";
    const Judgement j = judged(right, line);
    EXPECT_EQ(j.verdict, Verdict::pass) << line << ": " << j.reason;
    OperatorKernel wrong = right;
    wrong.strided = false;
    // The last row of a batch twice as large: what vacuous lets no run be.
    wrong.run = [&right](OperatorArguments call, const Contract& contract) {
      const Outcome outcome = right.run(call, contract);
      for (const auto& y : call.outputs) {
        const std::int64_t size = OtherStates::size_of(y.shape);
        for (std::int64_t i = size / 2; call.batch == 2 && i < size; ++i) y.data[i] *= 2.0F;
      }
      return outcome;
    };
    const Judgement seen = judged(wrong, line);
    EXPECT_EQ(seen.verdict, Verdict::fail) << line << ": " << seen.reason;
    EXPECT_EQ(seen.gate, "law");
  }
}

/// The worst case of fp32 does not say anything about an attention over long sums either, where one part in a
/// thousand shows.
TEST(TensorSystem, WhereTheWorstCaseOfFp32SaysNothingRoundingsAreDrawn) {
  const OperatorKernel& right = operator_row("cpu.latent_attention.absorbed");
  const std::string line = "v1 latent_attention form=absorbed T=16 D=256 dn=32 dr=16 dv=32 dc=64 q_lora=0";
  const Judgement j = judged(right, line);
  EXPECT_EQ(j.verdict, Verdict::pass) << j.reason;
  EXPECT_TRUE(j.gate.starts_with("sampled")) << j.gate;
  OperatorKernel wrong = right;
  wrong.strided = false;
  wrong.run = [&right](OperatorArguments call, const Contract& contract) {
    const Outcome outcome = right.run(call, contract);
    const auto& y = call.outputs.front();
    for (std::int64_t i = 0; i < OtherStates::size_of(y.shape); ++i) y.data[i] *= 1.001F;
    return outcome;
  };
  const Judgement seen = judged(wrong, line);
  EXPECT_EQ(seen.verdict, Verdict::fail);
  EXPECT_LT(seen.hard_ratio, 0.1) << "the worst case does not see it";
}

/// Decoding in order does not show it: the calls of one request follow each other.
TEST(TensorServing, AStateOfItsOwnIsRightWhileNobodyElseIsServed) {
  const std::string line = "v1 linear_attention_normalised form=decode chunk=4 prefill=5 T=13";
  EXPECT_EQ(judged(keeps_its_own(), line).verdict, Verdict::pass);
}

TEST(TensorServing, LawsAreThoseThatTheInterfaceAllows) {
  for (const Operator& op : operators()) {
    const TensorSystem system(op);
    Case c;
    c.system = op.name;
    c.form = op.forms.front().name;
    for (const Parameter& p : op.parameters) c.parameters.emplace(p.name, p.standard);
    bool carried = false;
    for (const TensorSpec& x : system.signature(c).inputs)
      carried = carried || ((x.axis == Axis::state || x.axis == Axis::prefix) && op.streams);
    EXPECT_EQ(system.law("reset") != nullptr, carried || (op.family != nullptr && op.family->gated))
        << op.name;
    EXPECT_EQ(system.law("serving") != nullptr, carried) << op.name;
    EXPECT_EQ(system.law("packing") != nullptr, op.token_wise) << op.name;
    EXPECT_FALSE(carried && op.token_wise) << op.name;
  }
}

/// No right kernel breaks one, and none is vacuous in fp32.
TEST(TensorServing, EveryKernelKeepsTheLawsOfItsSystem) {
  for (const OperatorKernel& kernel : operator_kernels()) {
    if (kernel.device != "cpu") continue;  // a device may not be here
    const System& system = system_named(kernel.system);
    for (const Law* law : system.laws) {
      const std::string line =
          "v1 " + kernel.system + " form=" + kernel.form + " T=9 B=3 law=" + std::string(law->name);
      const Judgement j = judged(kernel, line);
      EXPECT_EQ(j.verdict, Verdict::pass) << line << ": " << j.reason;
    }
  }
}

}  // namespace
}  // namespace samestate
