#include "optimized/cpu/chunked.h"
#include "optimized/cpu/recurrent.h"
#include "optimized/kernel.h"
#ifdef SAMESTATE_HAVE_CUDA
#include "optimized/cuda/cuda_kernels.h"
#endif

namespace samestate {
namespace {

using Contracts = std::vector<std::string>;

// clang-format off
const Contracts CPU_RECURRENT = {"fp32", "bf16", "fp16", "bf16_state", "fp16_state", "bf16_state_out_fp32"};
const Contracts CPU_CHUNKED = {"fp32", "fp32_tree", "tf32", "tf32_block16", "fp16", "bf16", "bf16_beta_in_T",
                               "bf16_k_decayed", "bf16_block16_tf32", "bf16_block16_bf16", "bf16_u_fp32",
                               "bf16_out_fp32", "bf16_state", "fp16_state", "bf16_state_out_fp32"};

const std::vector<Kernel> TABLE = {
    // CPU
    {"cpu.gated_delta_rule.recurrent", "gated_delta_rule", "recurrent", "cpu", CPU_RECURRENT, cpu::run_recurrent<cpu::GATED_DELTA_RULE>},
    {"cpu.gated_delta_rule.chunked",   "gated_delta_rule", "chunked",   "cpu", CPU_CHUNKED,   cpu::run_chunked<cpu::GATED_DELTA_RULE>},
    {"cpu.delta_rule.recurrent",       "delta_rule",       "recurrent", "cpu", CPU_RECURRENT, cpu::run_recurrent<cpu::DELTA_RULE>},
    {"cpu.delta_rule.chunked",         "delta_rule",       "chunked",   "cpu", CPU_CHUNKED,   cpu::run_chunked<cpu::DELTA_RULE>},
    {"cpu.retention.recurrent",        "retention",        "recurrent", "cpu", CPU_RECURRENT, cpu::run_recurrent<cpu::RETENTION>},
    {"cpu.retention.chunked",          "retention",        "chunked",   "cpu", CPU_CHUNKED,   cpu::run_chunked<cpu::RETENTION>},
    {"cpu.linear_attention.recurrent", "linear_attention", "recurrent", "cpu", CPU_RECURRENT, cpu::run_recurrent<cpu::LINEAR_ATTENTION>},
    {"cpu.linear_attention.chunked",   "linear_attention", "chunked",   "cpu", CPU_CHUNKED,   cpu::run_chunked<cpu::LINEAR_ATTENTION>},
#ifdef SAMESTATE_HAVE_CUDA
    // CUDA
#endif
};
// clang-format on

}  // namespace

std::span<const Kernel> kernels() { return TABLE; }

}  // namespace samestate
