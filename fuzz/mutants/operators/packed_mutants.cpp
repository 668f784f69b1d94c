#include <algorithm>
#include <utility>

#include "fuzz/mutants/operators/changed_call.h"

/// Bugs that packed batches show (OperatorArguments::cu_seqlens); they are alike in every system that takes
/// packed batches.
namespace samestate::mutants {
namespace {

using Offsets = std::vector<std::int64_t>;

Offsets offsets_of(const OperatorArguments& call) {
  Offsets offsets;
  for (std::int64_t n = 0; n < call.cu_seqlens.shape[0]; ++n) offsets.push_back(call.cu_seqlens(n));
  return offsets;
}

Outcome run_with(const OperatorKernel& right, OperatorArguments call, const Offsets& offsets,
                 const Contract& contract) {
  call.cu_seqlens = row_major<const std::int64_t, 1>(offsets.data(), {std::ssize(offsets)});
  return right.run(call, contract);
}

/// All sequences are run as one: a window, a state or keys continue across their boundaries.
Outcome run_together(const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
  const std::int64_t sequences = c.call.cu_seqlens.present() ? c.call.cu_seqlens.shape[0] - 1 : 0;
  if (sequences < 2) return right.run(c.call, contract);
  OperatorArguments one = c.call;
  const auto first_alone = [](auto& tensors) {
    for (auto& x : tensors) {
      if (x.axis == Axis::state || x.axis == Axis::request) x.shape[0] = 1;
    }
  };
  first_alone(one.inputs), first_alone(one.outputs);
  const Outcome outcome =
      run_with(right, one, {c.call.cu_seqlens(0), c.call.cu_seqlens(sequences)}, contract);
  for (const NamedTensor<float>& x : c.call.outputs) {
    if (x.axis != Axis::state) continue;
    const std::span<float> all = c.output(x.name);
    const std::ptrdiff_t each = std::ssize(all) / sequences;
    for (std::int64_t n = 1; n < sequences; ++n) std::copy_n(all.begin(), each, all.begin() + n * each);
  }
  return outcome;
}

Outcome state_of_the_neighbour(const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
  const std::int64_t sequences = c.call.cu_seqlens.present() ? c.call.cu_seqlens.shape[0] - 1 : 0;
  for (const NamedTensor<const float>& x : c.call.inputs) {
    if (x.axis != Axis::state || sequences < 2) continue;
    const std::span<float> all = c.input(x.name);
    rotate(all, std::ssize(all) / sequences);
  }
  return right.run(c.call, contract);
}

/// Offsets are read once per address, as by code that mistakes a refilled buffer for the earlier one.
Outcome offsets_kept(const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
  static thread_local std::pair<const std::int64_t*, Offsets> kept;
  if (!c.call.cu_seqlens.present()) return right.run(c.call, contract);
  Offsets now = offsets_of(c.call);
  if (kept.first != c.call.cu_seqlens.data || kept.second.size() != now.size())
    kept = {c.call.cu_seqlens.data, std::move(now)};
  return run_with(right, c.call, kept.second, contract);
}

/// Sequences begin where the rounded lengths before them end, as if offsets counted tiles.
Outcome tiles_of_two(const OperatorKernel& right, ChangedCall& c, const Contract& contract) {
  if (!c.call.cu_seqlens.present()) return right.run(c.call, contract);
  Offsets offsets = offsets_of(c.call);
  for (std::size_t n = 1; n + 1 < offsets.size(); ++n) {
    const std::int64_t odd = (offsets[n] - offsets[0]) % 2;
    offsets[n] = std::max(offsets[n - 1], offsets[n] - odd);
  }
  return run_with(right, c.call, offsets, contract);
}

}  // namespace

std::vector<Mutant> packed_mutants() {
  std::vector<Mutant> out;
  for (const std::string_view kernel :
       {"cpu.short_convolution.scatter", "cpu.short_convolution.backward.gather",
        "cpu.selective_scan.chunked", "cpu.state_space_duality.chunked", "cpu.softmax_attention.online",
        "cpu.softmax_attention.backward.online", "cpu.gated_attention.backward.online",
        "cpu.gated_attention.online", "cpu.latent_attention.absorbed", "cpu.latent_attention.backward.online",
        "cpu.gated_delta_net.chunked", "cpu.mamba2_mixer.chunked", "cpu.multi_scale_retention.chunked"}) {
    const bool attends = kernel.find("attention") != std::string_view::npos;
    std::vector<OperatorFault> faults{
        {"F", "packed_run_together", "packed sequences are evaluated as one", run_together},
        {"F", "packed_offsets_kept", "offsets are those of an earlier call in the same buffer", offsets_kept},
        {"F", "packed_offsets_rounded", "a sequence begins at an even token of the batch", tiles_of_two}};
    // Attention passes on keys but no state.
    if (!attends)
      faults.push_back({"F", "packed_state_of_neighbour",
                        "a packed sequence goes on from its neighbour's state", state_of_the_neighbour});
    const std::size_t before = out.size();
    add_faults(out, kernel, faults);
    for (std::size_t i = before; i < out.size(); ++i) out[i].operators.front().packed = true;
  }
  return out;
}

}  // namespace samestate::mutants
