#include <algorithm>
#include <vector>

#include "fuzz/mutants/operators/changed_call.h"
#include "optimized/cpu/rounding.h"
#include "oracles/contracts.h"

/// Precision of kernels on tf32 units: operands truncated where rounding is promised, one operand of a
/// product left unrounded, 16-bit operands, and tensors rounded to tf32 that no product uses. Each is tried
/// only under tf32, since fp32 reveals it in any case.
namespace samestate::mutants {
namespace {

const std::vector<std::string> kTf32 = {"tf32"};

struct Product {
  const char* kernel;
  const char* operand;  ///< an input that is only an operand; the output is linear in it apart from `offset`
  const char* output;   ///< the output of that product
  const char* besides;  ///< an input that no product takes unchanged; null if there is none
  const char* offset = nullptr;  ///< an input set to zero when only the product is wanted
};

constexpr Product kProducts[] = {
    {"cpu.linear_attention_bidirectional.state_first", "q", "o", nullptr},
    {"cpu.linear_attention_normalised.chunked", "v", "o", "z", "S"},
    {"cpu.multi_scale_retention.chunked", "out_proj", "y", nullptr},
    {"cpu.softmax_attention.online", "v", "o", nullptr},
    {"cpu.softmax_attention.merged", "v", "o", nullptr},
    {"cpu.softmax_attention.grouped", "v", "o", nullptr},
    {"cpu.gated_attention.online", "o_proj", "out", "q_norm"},
    {"cpu.gated_delta_net.chunked", "out_proj", "y", "conv1d"},
    {"cpu.gated_delta_net_output.fused", "out_proj", "y", "z"},
    {"cpu.state_space_duality.chunked", "C", "y", "dt", "skip"},
    {"cpu.mamba_mixer.chunked", "out_proj", "out", "conv1d"},
    {"cpu.mamba2_mixer.chunked", "out_proj", "out", "conv1d"},
    {"cpu.dendritic_attention.compacted", "o_proj", "y", "o_norm"},
    {"cpu.latent_attention.absorbed", "output", "y", nullptr},
};
/// Its output is not linear in the router.
constexpr Product kRouter{"cpu.qwen3_next_moe.sorted", "router", "y", nullptr};

/// Adds every output of `more` to the output of the same name in `to`.
void add(std::span<float> to, std::span<const float> more) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += more[i];
}

/// Computes x w with w unrounded: x times the rounded w, plus x times what rounding took from w, whose own
/// rounding is as small as one of fp32.
CallFault one_operand_as_it_is(const Product& p) {
  return [operand = p.operand, output = p.output, offset = p.offset](
             const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
    const std::span<float> w = c.input(operand);
    std::vector<float> rest(w.size());
    for (std::size_t i = 0; i < w.size(); ++i) rest[i] = w[i] - cpu::to_tf32(w[i]);
    const Outcome outcome = right.run(c.call, contract);
    if (outcome.kind != Outcome::Kind::ran) return outcome;
    std::vector<std::vector<float>> first;
    for (const NamedTensor<float>& x : c.call.outputs) {
      const std::span<float> values = c.output(x.name);
      first.emplace_back(values.begin(), values.end());
    }
    std::ranges::copy(rest, w.begin());
    if (offset != nullptr) c.fill(offset, 0.0F);
    const Outcome again = right.run(c.call, contract);
    for (std::size_t i = 0; i < first.size(); ++i) {
      const std::span<float> values = c.output(c.call.outputs[i].name);
      if (c.call.outputs[i].name == output) add(first[i], values);
      std::ranges::copy(first[i], values.begin());
    }
    return again;
  };
}

CallFault cut_off() {
  return [](const OperatorKernel& right, ChangedCall& c, const Contract&) {
    return right.run(c.call, contract_named("tf32_truncated"));
  };
}

}  // namespace

std::vector<Mutant> tf32_mutants() {
  std::vector<Mutant> out;
  const auto add_product = [&](const Product& p, bool linear) {
    std::vector<OperatorFault> faults = {
        {"F", "tf32_cut_off", "operands of tf32 products are cut off instead of rounded", cut_off()},
        {"F", "tf32_operand_of_bf16", "an operand of a tf32 product is rounded to bf16",
         misread(mapped(p.operand, cpu::to_bf16))}};
    if (linear)
      faults.push_back({"F", "tf32_one_operand", "one operand of a tf32 product is multiplied as it is",
                        one_operand_as_it_is(p)});
    if (p.besides != nullptr)
      faults.push_back({"F", "tf32_besides_products", "what no product takes is rounded to tf32",
                        misread(mapped(p.besides, cpu::to_tf32))});
    add_faults(out, p.kernel, faults);
  };
  for (const Product& p : kProducts) add_product(p, true);
  add_product(kRouter, false);
  for (Mutant& m : out) m.operators.front().contracts = kTf32;
  return out;
}

}  // namespace samestate::mutants
