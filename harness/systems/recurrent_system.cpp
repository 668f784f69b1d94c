#include "harness/systems/recurrent_system.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "harness/cases/keys.h"
#include "harness/run/family_run.h"
#include "harness/run/head_cost.h"
#include "harness/run/judge_batch.h"
#include "harness/run/judging_cost.h"
#include "harness/run/run_case.h"
#include "reference/error.h"

namespace samestate {

namespace {

/// More than 4096 packed sequences: most are empty, some have one token, and the last one has tokens too.
std::string many_sequences() {
  constexpr int kSequences = 4101;
  std::string text = "dk=4 dv=2 chunk=16 form=packed lengths=";
  for (int n = 1; n < kSequences; ++n) text += n % 5 == 1 ? "1," : "0,";
  return text + "3";
}

}  // namespace

Properties properties_of(const Family& family) {
  using enum Property;
  Properties has = streams | carries | packs | chunks | key_heads | linear;
  if (family.gated) has = has | decay;
  if (family.delta) has = has | delta;
  return has;
}

std::vector<CaseSize> family_sizes() {
  return {{{"Hk", 1, 1, kLargestExtent, "key heads"}, false, 1, 72},
          {{"Hv", 1, 1, kLargestExtent, "value heads: each key head serves Hv/Hk of them", "Hk"}, false},
          {{"dk", 64, 1, kLargestExtent, "width of keys"}, false, 16, 1030},
          {{"dv", 64, 1, kLargestExtent, "width of values"}, false, 8, 1030}};
}

RecurrentSystem::RecurrentSystem(const Family& row, bool parallel) : family(row) {
  name = row.name;
  equation = row.equation;
  numerics = Numerics::derived_bounds;
  kernel_rows = kFamilyRows;
  keys = keys_of({KeyOf::family_forward, KeyOf::family, KeyOf::passes, KeyOf::packed});
  sizes = family_sizes();
  forms = {{.name = "chunked", .chunked = true}, {.name = "recurrent"}};
  if (parallel) forms.push_back({.name = "parallel", .whole = true});
  forms.push_back({.name = "sequence_parallel", .chunked = true, .ranked = true});
  forms.push_back({.name = "head_parallel", .chunked = true, .ranked = true, .by_heads = true});
  forms.push_back({.name = "decode", .chunked = true, .decodes = true});
  forms.push_back({.name = "packed", .chunked = true, .packed = true});
  for (const Regime& regime : samestate::regimes()) {
    if ((!regime.gated || row.gated) && (!regime.delta || row.delta)) regimes.push_back(&regime);
  }
  properties = properties_of(row);
  laws = laws_on_heads(properties);
  plan = {
      .start = "T=33 chunk=16 state=random",
      // Long and wide enough for the twin's statistics; sequences of one token; and more chunks than
      // sequences, with the last row overall belonging to the last of them (BUGS M25, M37, M41).
      .every = {"T=130 dk=32 dv=40 chunk=64", "form=packed lengths=0,17,1,0,16,15,0",
                "form=packed lengths=1,52 state=none", "form=packed lengths=7,0,26 unowned=3,5"},
      .shapes =
          {"Hk=2 Hv=6", "Hk=2 Hv=6 heads=tiled", "Hv=8", "dk=1 dv=1", "dk=3 dv=70", "dk=70 dv=3",
           "dk=128 dv=128 T=70", "dk=160 dv=96 T=40", "dk=256 dv=256 T=20", "dv=16",
           // Heads of Qwen3-Next and DendAttn.
           "dk=128 dv=128 Hv=2 T=321 l2norm=1", "dk=160 dv=512 T=200", "B=3 Hk=2 Hv=4 layout=padded",
           "l2norm=1 regime=tiny_norms",
           // Widths of models that are not powers of two, with their tiles, normalised.
           "dk=96 dv=96 T=9 l2norm=1", "dk=192 dv=192 T=9 l2norm=1", "dk=64 dv=128 T=9 l2norm=1",
           // Many chunks of wide heads with the tiles that a kernel serves, and wide heads packed; and enough
           // whole chunks in a row for the effect of 16-bit storage on every 64th state to show.
           "dk=128 dv=128 T=529 chunk=64", "dk=128 dv=128 T=401 chunk=128",
           "dk=128 dv=128 T=113 chunk=32 l2norm=1", "dk=192 dv=192 T=209 chunk=64 l2norm=1",
           "dk=256 dv=64 T=145 chunk=64", "dk=64 dv=257 T=145 chunk=64", "dk=16 dv=16 T=2100 chunk=128 Hv=2",
           "dk=16 dv=64 T=1100 chunk=16 regime=slow", "dk=8 dv=64 T=2100 chunk=16 regime=slow final=in_place",
           "Hk=16 Hv=48 dk=16 dv=16 T=70 chunk=64", "Hk=2 Hv=6 heads=tiled dk=192 dv=32 T=70 chunk=32",
           "B=257 T=130 dk=4 dv=4 chunk=64",
           "form=packed lengths=70,9,0,71,3,66,1,69,2,75,67 dk=128 dv=32 chunk=64",
           "form=packed lengths=70,17 dk=192 dv=64 chunk=32 l2norm=1",
           // A scale that is neither the default nor one: kernels may omit it, square it, or lose it with
           // l2norm.
           "scale=2", "scale=2 l2norm=1 Hk=2 Hv=4", "scale=0", "scale=0 B=2 Hk=2 Hv=4 dk=128 dv=64",
           // Several heads in every memory order.
           "B=2 Hk=2 Hv=4 layout=mixed", "B=2 Hk=2 Hv=4 layout=fused", "B=2 Hk=2 Hv=4 layout=permuted",
           "B=2 Hk=2 Hv=4 layout=sliced",
           // Tokens of no sequence on one side only, ending at a chunk's end, and a whole chunk of them.
           "form=packed lengths=16,17 unowned=1,0 repeat=1", "form=packed lengths=16,17 unowned=130,65",
           "form=packed lengths=16,32 unowned=0,17", "form=packed lengths=19,14 final=none",
           "form=packed lengths=19,14 final=in_place",
           // Offsets of batch rows, tokens and sequences' states that no longer fit 32 bits (BUGS M38).
           "B=3 Hk=2 Hv=4 layout=far", "layout=far form=packed lengths=17,16"},
      .ranks =
          {"Hk=2 Hv=6 cuts=drawn", "Hk=2 Hv=6 heads=tiled", "dk=1 dv=1", "dk=3 dv=70 cuts=drawn",
           "dk=128 dv=128 T=70 l2norm=1", "B=3 Hk=2 Hv=4 layout=padded ranks=2",
           // As long and wide as the twin's statistics need, with the states of many ranks in a row.
           "T=130 dk=32 dv=40 chunk=16 ranks=7 regime=slow", "T=201 dk=32 dv=40 chunk=16 ranks=7 cuts=drawn",
           "T=130 dk=32 dv=40 chunk=16 ranks=5 cuts=drawn regime=slow state=none", "T=5 ranks=9 chunk=2",
           // Sequences that begin inside ranks, that end at cuts, that have ranks of their own, and that have
           // no tokens.
           "form=packed lengths=0,17,1,0,16,15,0 ranks=4 cuts=drawn",
           "form=packed lengths=16,16,40 ranks=9 chunk=8",
           "form=packed lengths=7,0,90 unowned=3,5 ranks=6 chunk=8",
           "form=packed lengths=130,70 ranks=5 cuts=drawn dk=32 dv=40 regime=slow",
           "T=70 ranks=7 chunk=8 regime=exact", "T=70 ranks=7 cuts=drawn chunk=8 regime=exact",
           // Drawn cuts against equal parts: by default the law compares equal parts with each other.
           "T=70 ranks=4 chunk=8 cuts=drawn law=path_equivalence",
           // Beyond what a kernel may hold: of ranks, of tokens in total and in one part, and of a state's
           // rows and columns.
           "ranks=40 chunk=1 T=40 dk=4 dv=3", "ranks=300 chunk=1 T=300 dk=2 dv=2", "T=8200 ranks=3 dk=4 dv=4",
           "T=2560 ranks=2 dk=4 dv=4", "dk=257 dv=3 T=33 ranks=2 chunk=16",
           "dk=3 dv=257 T=33 ranks=2 chunk=16", "dk=129 dv=3 T=33 ranks=2 chunk=16",
           // Everything at once: a batch, shared key heads, norms, a state in place, and more than eight
           // ranks.
           "B=2 T=200 ranks=9 dk=4 dv=3 chunk=16 Hk=1 Hv=2",
           "form=packed lengths=30,40 ranks=3 cuts=drawn chunk=16 Hk=1 Hv=2 dk=4 l2norm=1",
           "B=2 T=60 ranks=3 chunk=16 Hk=1 Hv=2 dk=4 l2norm=1 final=in_place"},
      // Cuts inside groups of value heads that share a key head, under both head maps; a short last rank and
      // empty ones after it; more ranks than heads; one head per rank, and one rank with all heads; packed
      // sequences, and a prefill.
      .heads = {"cuts=drawn",
                "cuts=drawn law=path_equivalence",
                "heads=tiled",
                "heads=tiled cuts=drawn",
                "ranks=2",
                "ranks=5",
                "ranks=6",
                "ranks=9",
                "ranks=1",
                "Hk=3 Hv=6 ranks=4",
                "Hk=3 Hv=6 ranks=4 heads=tiled",
                "B=2 T=20 chunk=16 Hk=2 Hv=4 ranks=2 final=in_place l2norm=1",
                "form=decode prefill=17 T=20 chunk=16 B=2 Hk=2 Hv=4 ranks=2 cuts=heads",
                "Hk=6 Hv=6 ranks=4 cuts=drawn",
                "Hk=1 Hv=7 ranks=3",
                "Hk=5 Hv=10 heads=tiled ranks=3",
                "Hk=16 Hv=48 dk=4 dv=4 ranks=5",
                "Hk=2 Hv=82 dk=4 dv=4 heads=tiled ranks=7 cuts=drawn",
                "dk=128 dv=128 T=20 l2norm=1 ranks=3",
                "B=3 layout=padded cuts=drawn",
                "regime=exact ranks=3",
                "T=70 regime=slow state=none",
                "form=packed lengths=0,17,1,0,16,15,0 cuts=heads",
                "form=packed lengths=7,0,26 unowned=3,5 cuts=heads heads=tiled ranks=5",
                "form=packed lengths=19,14 final=in_place cuts=heads ranks=3",
                "form=decode prefill=20 cuts=heads",
                "form=decode prefill=17 cuts=heads heads=tiled ranks=5"},
      // With a tail of one token: T (BUGS M12) and sequences times heads, the limit of a CUDA grid's y axis
      // (M39), that no longer fit 16 bits; many sequences and the longest of them; widths, and heads with
      // many tokens.
      .limits = {"dk=2 dv=2 T=65537 chunk=64", "dk=2 dv=2 Hv=2 T=65811 chunk=128",
                 "dk=2 dv=2 chunk=64 form=packed lengths=66000,70",
                 "dk=2 dv=2 chunk=64 form=packed lengths=66000,70 state=none",
                 "dk=2 dv=2 T=2 B=16400 Hk=4 Hv=4 chunk=64", "dk=2 dv=1 T=8193 Hk=2 Hv=4 chunk=64",
                 "dk=2049 dv=3 T=2 chunk=64", "dk=3 dv=2056 T=5 chunk=64",
                 "dk=8 dv=4 chunk=64 form=packed lengths=3,0,600,1", many_sequences()},
      // Qwen3-Next's sizes.
      .models = {"Hk=16 Hv=32 dk=128 dv=128 T=65 chunk=64 l2norm=1"},
      .regime = "T=80 Hv=2",
      .law = "B=2 T=35 Hk=2 Hv=4",
      .seeded = 200,
  };
}

Signature RecurrentSystem::signature(const Case& c) const {
  Signature s;
  s.inputs = {{"q", Axis::tokens, {c.T, c.Hk, c.dk}, Content::key},
              {"k", Axis::tokens, {c.T, c.Hk, c.dk}, Content::key},
              {"v", Axis::tokens, {c.T, c.Hv, c.dv}, Content::activation}};
  if (family.gated) s.inputs.push_back({"g", Axis::tokens, {c.T, c.Hv}, Content::log_decay});
  if (family.delta) s.inputs.push_back({"beta", Axis::tokens, {c.T, c.Hv}, Content::strength});
  if (c.state == "random")
    s.inputs.push_back({"initial_state", Axis::state, {c.Hv, c.dk, c.dv}, Content::activation});
  s.outputs = {{"o", Axis::tokens, {c.T, c.Hv, c.dv}}, {"final_state", Axis::state, {c.Hv, c.dk, c.dv}}};
  return s;
}

double RecurrentSystem::work(const Case& c, const JudgePolicy& policy) const {
  // In microseconds: the time to judge the heads (head_cost.h), and the time to draw, copy and compare all
  // data.
  const HeadCost cost = mean_cost_of_head(c, family);
  const Index sequences = sequences_of(c);
  const Index all = sequences * c.Hv;
  // If there are many heads, only a few are compared with their tolerance (ChosenHeads), and all or some of
  // the others are evaluated in float64.
  const Index held = c.law.empty() ? std::min(all, heads_to_hold(cost, policy)) : all;
  const double plain = share_in_float64(cost, all - held, policy) * static_cast<double>(all - held);
  const auto tokens = static_cast<double>(c.lengths.empty() ? c.B * c.T : c.T);
  const double elements =
      static_cast<double>(c.Hv) * (kElementCost * tokens * static_cast<double>(c.dk + c.dv) +
                                   kStateElementCost * static_cast<double>(sequences * c.dk * c.dv));
  const double of_heads = static_cast<double>(held) * cost.held + plain * cost.plain;
  return (of_heads + elements) * (c.law.empty() ? 1.0 : kFamilyLawFactor) / kFamilyUnit;
}

namespace {

std::vector<float>& tensor_in(Batch& batch, std::string_view name) {
  if (name == "q") return batch.q;
  if (name == "k") return batch.k;
  if (name == "v") return batch.v;
  if (name == "g") return batch.g;
  return name == "beta" ? batch.beta : batch.initial_state;
}

/// Returns a tensor [B, ...]; states are [sequences, ...].
CaseTensor case_tensor(const Resolved& r, const TensorSpec& spec, std::vector<float> data) {
  std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
  const std::int64_t sequences = sequences_of(r.c);
  shape.insert(shape.begin(), spec.axis == Axis::state ? sequences : r.c.B);
  return {spec, true, std::move(shape), std::move(data)};
}

}  // namespace

std::vector<CaseTensor> tensors_of(const Resolved& r, Batch batch) {
  std::vector<CaseTensor> out;
  for (const TensorSpec& spec : r.system->signature(r.c).inputs)
    out.push_back(case_tensor(r, spec, std::move(tensor_in(batch, spec.name))));
  return out;
}

std::vector<CaseTensor> tensors_of(const Resolved& r, Outputs outputs) {
  if (outputs.final_state.empty()) return {};
  const std::vector<TensorSpec> specs = r.system->signature(r.c).outputs;
  return {case_tensor(r, specs[0], std::move(outputs.o)),
          case_tensor(r, specs[1], std::move(outputs.final_state))};
}

Batch RecurrentSystem::batch(const Resolved& r, const std::vector<CaseTensor>& inputs,
                             const Given& given) const {
  Batch batch;
  batch.shape = batch_shape_of(r);
  batch.shape.given = given;
  for (const CaseTensor& x : inputs) tensor_in(batch, x.spec.name) = x.data;
  return batch;
}

Outputs outputs_of(const std::vector<CaseTensor>& outputs) {
  if (outputs.empty()) return {};
  return {outputs[0].data, outputs[1].data};
}

std::vector<CaseTensor> RecurrentSystem::inputs(const Resolved& r) const {
  return tensors_of(r, batch_of(r, family));
}

Judgement RecurrentSystem::run(const Resolved& r, const KernelChoice& kernels, const RunOptions& options,
                               const JudgePolicy& policy, Trace* trace) const {
  Batch batch = batch_of(r, family);
  if (kernels.named->given) batch.shape.given = kernels.named->given(r.promised);
  require_finite(batch);
  Outputs outputs;
  LawTrace law;
  const Runner runner = [&](const Batch& of, const Path& path) {
    return run_kernel(kernels, of, path, r.promised, options);
  };
  const auto judged = [&] {
    if (r.law != nullptr) {
      return judge_law(*r.law, {batch, family, r.promised, r.chunk, runner, trace ? &law : nullptr, r.ranks(),
                                options.deterministic});
    }
    outputs = runner(batch, r.path(batch.shape.T));
    return judge_batch(r, family, batch, outputs, policy, runner, takes_pieces(kernels, r));
  };
  if (trace == nullptr) return judged();
  // If a kernel fails, what exists at that point is kept too.
  const auto keep = [&] {
    const Given given = batch.shape.given;
    *trace = {tensors_of(r, std::move(batch)),
              tensors_of(r, std::move(outputs)),
              kernels.named->form,
              {},
              std::move(law),
              {},
              given};
  };
  try {
    Judgement judgement = judged();
    keep();
    return judgement;
  } catch (...) {
    keep();
    throw;
  }
}

std::vector<CaseTensor> RecurrentSystem::outputs(const Resolved& r, const std::vector<CaseTensor>& inputs,
                                                 const KernelChoice& kernels,
                                                 const RunOptions& options) const {
  const Batch of = batch(r, inputs, kernels.named->given ? kernels.named->given(r.promised) : Given{});
  return tensors_of(r, run_kernel(kernels, of, r.path(of.shape.T), r.promised, options));
}

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns the limits that a vacuous oracle leaves, which are infinite.
Held held_to_nothing(Held held) {
  held.allowed = Vector<double>::Constant(held.exact.rows(), kInfinity);
  held.limit = Matrix<double>::Constant(held.exact.rows(), held.exact.cols(), kInfinity);
  held.row_limit = held.worst_case = kInfinity;
  held.predicted = std::numeric_limits<double>::quiet_NaN();
  return held;
}

Held held_rows(const HeadOracle& oracle, Matrix<double> actual) {
  Held held{.output = "o", .axis = Axis::tokens, .exact = oracle.exact.o, .actual = std::move(actual)};
  if (oracle.vacuous) return held_to_nothing(std::move(held));
  held.allowed = oracle.rms.cwiseAbs2();
  held.limit = oracle.row.replicate(1, held.exact.cols());
  held.row_limit = oracle.row.size() > 0 ? oracle.row.maxCoeff() : 0.0;
  held.worst_case = oracle.row_hard.size() > 0 ? oracle.row_hard.maxCoeff() : 0.0;
  held.predicted = oracle.rms.squaredNorm();
  return held;
}

Held held_state(const HeadOracle& oracle, Matrix<double> actual) {
  Held held{
      .output = "final_state", .axis = Axis::state, .exact = oracle.exact.state, .actual = std::move(actual)};
  held.whole = true;
  const Index keys = held.exact.rows();
  const Vector<double> allowed =
      Vector<double>::Constant(keys, oracle.state * oracle.state / static_cast<double>(keys));
  if (oracle.vacuous) {
    held = held_to_nothing(std::move(held));
    held.allowed = allowed;
    return held;
  }
  held.allowed = allowed;
  held.limit = Matrix<double>::Constant(keys, held.exact.cols(), oracle.state);
  held.row_limit = oracle.state;
  held.worst_case = oracle.state_hard;
  const double predicted = oracle.state / oracle.policy.state_factor;
  held.predicted = predicted * predicted;
  return held;
}

}  // namespace

std::vector<Held> RecurrentSystem::held(const Resolved& r, const Trace& trace) const {
  const Batch of = batch(r, trace.inputs, trace.given);
  const Outputs outputs = outputs_of(trace.outputs);
  std::vector<Held> out;
  for (std::int64_t n = 0; n < of.shape.sequences(); ++n) {
    for (std::int64_t h = 0; h < of.shape.Hv; ++h) {
      const Sequence<double> x = sequence_of(of, n, h);
      const Path path = path_of_sequence(r.path(of.shape.T), of.shape, n);
      const HeadOracle oracle = oracle_of(x, path, r.promised, family, of.shape.l2norm);
      out.push_back(held_rows(oracle, rows_of(of, outputs, n, h)));
      out.push_back(held_state(oracle, state_of(of, outputs, n, h)));
      for (Held* held : {&out[out.size() - 2], &out.back()}) held->sequence = n, held->head = h;
    }
  }
  return out;
}

Judgement RecurrentSystem::judge(const Resolved& r, const Trace& run, const JudgePolicy& policy,
                                 std::vector<OperatorOracle>*) const {
  return judge_batch(r, family, batch(r, run.inputs, run.given), outputs_of(run.outputs), policy, {});
}

}  // namespace samestate
