#include "harness/run/family_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "optimized/cpu/twin.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"

namespace samestate {

CallLoop family_loop(const Batch& batch, const Path& path) {
  const BatchShape& s = batch.shape;
  const std::int64_t N = s.sequences();
  CallLoop loop;
  loop.in_place = true;
  loop.path = path;
  loop.offsets = s.offsets;
  loop.settings.batch = s.B;
  loop.settings.parameters = {{"Hk", s.Hk}, {"Hv", s.Hv}, {"dk", s.dk}, {"dv", s.dv}};
  loop.settings.set("scale", static_cast<double>(static_cast<float>(s.scale)));
  loop.settings.set("tiled", s.head_map == HeadMap::tiled ? 1.0 : 0.0);
  loop.settings.set("l2norm", s.l2norm ? 1.0 : 0.0);
  loop.inputs = {{"q", Axis::tokens, true, {s.B, s.T, s.Hk, s.dk}, &batch.q},
                 {"k", Axis::tokens, true, {s.B, s.T, s.Hk, s.dk}, &batch.k},
                 {"v", Axis::tokens, true, {s.B, s.T, s.Hv, s.dv}, &batch.v}};
  // It has rank 4, so that a padded layout has gaps between heads here too.
  if (!batch.g.empty()) loop.inputs.push_back({"g", Axis::tokens, true, {s.B, s.T, s.Hv, 1}, &batch.g});
  if (!batch.beta.empty())
    loop.inputs.push_back({"beta", Axis::tokens, true, {s.B, s.T, s.Hv, 1}, &batch.beta});
  if (!batch.initial_state.empty()) {
    loop.inputs.push_back({"initial_state", Axis::state, true, {N, s.Hv, s.dk, s.dv}, &batch.initial_state});
  }
  loop.outputs = {{"o", Axis::tokens, true, {s.B, s.T, s.Hv, s.dv}, nullptr},
                  {"final_state", Axis::state, true, {N, s.Hv, s.dk, s.dv}, nullptr, "initial_state"}};
  return loop;
}

namespace {

Outputs run_path(const Batch& batch, const Path& path, const RunOptions& options, const OneCall& call) {
  std::vector<std::vector<float>> written = run_calls(family_loop(batch, path), options, call);
  return {std::move(written[0]), std::move(written[1])};
}

/// Converts what a kernel with conventions of its own was given into the canonical conventions, for a kernel
/// of ours.
Batch in_our_conventions(Batch batch, const Contract& contract) {
  const Given given = std::exchange(batch.shape.given, Given{});
  if (given == Given{}) return batch;
  const auto read = [](std::vector<float>& values, auto&& as) {
    for (float& x : values) x = static_cast<float>(as(x));
  };
  read(batch.g, [&](double g) { return given.read_g(g); });
  read(batch.beta, [&](double beta) { return given.read_beta(beta); });
  if (!batch.shape.l2norm) read(batch.q, [&](double q) { return given.read_q(q, batch.shape.scale); });
  if (!batch.shape.l2norm || given.usual_norm()) return batch;
  batch.shape.l2norm = false;
  for (std::vector<float>* rows : {&batch.q, &batch.k}) {
    const std::int64_t dk = batch.shape.dk;
    const auto count = static_cast<Index>(rows->size()) / std::max<std::int64_t>(dk, 1);
    const Matrix<double> x =
        Eigen::Map<const Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>>(rows->data(),
                                                                                                count, dk)
            .cast<double>();
    const Matrix<double> y = given.normalised(x);
    const Format kept = contract.norm == Norm::operand ? contract.qk : Format::fp32;
    for (Index t = 0; t < count; ++t) {
      for (Index d = 0; d < dk; ++d)
        (*rows)[static_cast<std::size_t>(t * dk + d)] = static_cast<float>(round_to(y(t, d), kept));
    }
  }
  return batch;
}

/// Returns the name of the same kernel's other form, as tables name kernels.
std::string sibling_name(std::string_view name, std::string_view form) {
  return fmt::format("{}{}", name.substr(0, name.rfind('.') + 1), form);
}

}  // namespace

Outputs run_kernel(const KernelChoice& kernels, const Batch& batch, const Path& path,
                   const Contract& contract, const RunOptions& options) {
  return run_path(batch, path, options, [&](const Segment& segment, const KernelCall& call) {
    const bool chunked = segment.chunk > 0;
    const KernelRow* kernel = chunked ? kernels.chunked : kernels.unchunked;
    if (kernel == nullptr) {
      throw Unavailable(
          {Outcome::Kind::unsupported,
           fmt::format("{} is called with and without chunks here, which takes {} too, under {}; a "
                       "kernel alone is judged by its other cases",
                       kernels.named->name,
                       sibling_name(kernels.named->name, chunked ? "chunked" : "recurrent"), contract.name)});
    }
    run_row(*kernel, call, chunked ? contract : recurrent_contract(contract), options.of);
  });
}

Outputs run_on_twin(std::string_view system, const Batch& batch, const Path& path, const Contract& contract,
                    bool reordered) {
  return run_path(
      in_our_conventions(batch, contract), path, {}, [&](const Segment& segment, const KernelCall& call) {
        const bool chunked = segment.chunk > 0;
        Contract used = chunked ? contract : recurrent_contract(contract);
        if (reordered) {
          used.accumulator =
              used.accumulator == Accumulator::fp32 ? Accumulator::tensor_core : Accumulator::fp32;
        }
        const char* form = !segment.cuts.empty() ? "sequence_parallel" : chunked ? "chunked" : "recurrent";
        const Outcome outcome = run_twin(system, form, arguments_of(call), used);
        if (outcome.kind != Outcome::Kind::ran) throw Unavailable(outcome);
      });
}

Outputs run_on_cpu(std::string_view system, const Batch& batch, const Path& path, const Contract& contract) {
  return run_path(
      in_our_conventions(batch, contract), path, {}, [&](const Segment& segment, const KernelCall& call) {
        const bool chunked = segment.chunk > 0;
        const std::string name = fmt::format("cpu.{}.{}", system, chunked ? "chunked" : "recurrent");
        const auto row = std::ranges::find(kernels(), name, &Kernel::name);
        if (row == kernels().end())
          throw Unavailable({Outcome::Kind::unsupported, "there is no kernel " + name});
        const Outcome outcome =
            row->run(arguments_of(call), chunked ? contract : recurrent_contract(contract));
        if (outcome.kind != Outcome::Kind::ran) throw Unavailable(outcome);
      });
}

}  // namespace samestate
