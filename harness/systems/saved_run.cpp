#include "harness/systems/saved_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "fixtures/quote.h"
#include "harness/run/judge_batch.h"
#include "harness/systems/judge_tensors.h"
#include "harness/systems/tensor_inputs.h"
#include "oracles/rounding.h"
#include "oracles/systems/input_format.h"

namespace samestate {
namespace {

/// Values as fp32, where they are: a kernel's data travel in fp32.
std::vector<float> floats(const RunFile& file, const std::string& name, Format format) {
  std::vector<float> out;
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) return out;
  out.reserve(at->second.values.size());
  for (std::size_t i = 0; i < at->second.values.size(); ++i) {
    const double x = at->second.values[i];
    if (std::isfinite(x) && round_to(static_cast<double>(static_cast<float>(x)), format) != x) {
      throw Error(fmt::format(
          "tensor '{}' element {} is {}, which the contract's input format does not hold: round the inputs "
          "before the kernel and the judge see them",
          name, i, x));
    }
    out.push_back(static_cast<float>(x));
  }
  return out;
}

/// What is known of the record of a run made elsewhere.
Record record_elsewhere(const Case& c, const RunFile& file) {
  Record record;
  record.line = format_case(c);
  record.kernel = file.kernel;
  record.system = c.system;
  record.form = c.form;
  record.contract = c.contract;
  record.regime = c.regime;
  record.device = "elsewhere";
  return record;
}

/// The form whose calls made the run.
std::string native_form(const Resolved& r, const TensorSystem& system, const RunFile& file) {
  if (!r.form->of_any_form()) return r.c.form;
  const Operator& op = system.row;
  if (file.form.empty() && op.forms.size() == 1) return std::string(op.forms.front().name);
  if (op.form(file.form) != nullptr) return file.form;
  std::vector<std::string_view> names;
  for (const OperatorForm& form : op.forms) names.push_back(form.name);
  throw Error(fmt::format("judge: form={} of {} is calls of one of {}; the file's metadata 'form' is {}",
                          r.c.form, r.c.system, fmt::join(names, ", "), quote(file.form)));
}

/// The name of a tensor in a file.
std::string in_file(std::string_view prefix, const TensorSpec& spec) {
  return std::string(prefix) + spec.name;
}

/// Throws Error if the file's offsets are not those of the case.
void require_offsets(const Resolved& r, const RunFile& file) {
  const auto offsets = file.tensors.find("cu_seqlens");
  if (!r.form->packed) {
    if (offsets == file.tensors.end()) return;
    throw Error("judge: the file is packed (cu_seqlens): write form=packed lengths=... in its case line");
  }
  if (offsets == file.tensors.end() ||
      !std::ranges::equal(offsets_of(r.c), offsets->second.values,
                          [](std::int64_t a, double b) { return static_cast<double>(a) == b; }))
    throw Error("judge: cu_seqlens in the file and lengths= in the case line disagree");
}

constexpr std::string_view kTap = "tap.";

/// The name in a file of what a kernel wrote.
std::string written_in_file(const Resolved& r, const Signature& signature, const TensorSpec& spec) {
  const bool output =
      std::ranges::find(signature.outputs, spec.name, &TensorSpec::name) != signature.outputs.end();
  return in_file(output ? r.system->in_file.output : kTap, spec);
}

/// The tensors of a file as those of a run here.
std::vector<CaseTensor> outputs_in(const Resolved& r, const Signature& signature,
                                   const std::vector<TensorSpec>& written, const RunFile& file) {
  std::vector<CaseTensor> outputs;
  for (const TensorSpec& spec : written) {
    outputs.push_back({spec, true, output_shape(spec, r.c),
                       floats(file, written_in_file(r, signature, spec), Format::none), r.c.lengths});
  }
  return outputs;
}

}  // namespace

Judgement judge_tensor_file(const Resolved& r, const TensorSystem& system, const RunFile& file,
                            const JudgePolicy& policy, Trace* trace) {
  if (!file.given.empty())
    throw Error(
        fmt::format("judge: metadata 'given' is of the recurrent family, and {} is none of it", r.c.system));
  if (file.named != tensors_in_file(r))
    throw Error("judge: the file's tensors were read as those of another case");
  const std::string native = native_form(r, system, file);
  const Signature signature = system.row.signature(system.call(r.c, native));
  std::vector<CaseTensor> inputs;
  for (const TensorSpec& spec : signature.inputs) {
    const std::string name = in_file(system.in_file.input, spec);
    const std::vector<double>& values = file.tensors.at(name).values;
    const auto bad = std::find_if(values.begin(), values.end(), [](double x) { return !std::isfinite(x); });
    if (bad != values.end()) {
      throw Error(fmt::format("tensor '{}' element {} is {}: inputs must be finite", name,
                              bad - values.begin(), *bad));
    }
    inputs.push_back({spec, spec.axis != Axis::whole, input_shape(spec, r.c),
                      floats(file, name, input_format(spec, *r.contract)), r.c.lengths});
  }
  require_offsets(r, file);
  std::vector<TensorSpec> written = signature.outputs;
  for (TensorSpec& tap : system.taps_of(r, native)) {
    if (file.tensors.contains(in_file(kTap, tap))) written.push_back(std::move(tap));
  }
  std::vector<CaseTensor> outputs = outputs_in(r, signature, written, file);
  const std::vector<Tensors<double>> sequences = by_sequence(outputs);
  if (trace != nullptr) *trace = {inputs, std::move(outputs), native, {}, {}, {}};
  return judge_tensors(r, system, native, inputs, sequences, policy,
                       trace != nullptr ? &trace->oracles : nullptr);
}

Judgement judge_family_file(const Resolved& r, const Family& family, const RunFile& file,
                            const JudgePolicy& policy, Trace* trace) {
  const Case& c = r.c;
  const Contract& contract = *r.contract;
  const std::vector<std::int64_t>& q = file.tensors.at("q").shape;
  const std::vector<std::int64_t>& v = file.tensors.at("v").shape;
  for (const auto& [key, line, tensor] : {std::tuple{"B", c.B, q[0]},
                                          {"T", c.T, q[1]},
                                          {"Hk", c.Hk, q[2]},
                                          {"dk", c.dk, q[3]},
                                          {"Hv", c.Hv, v[2]},
                                          {"dv", c.dv, v[3]}}) {
    if (line != tensor)
      throw Error(fmt::format("judge: {}={} in the case line but {} in the tensors", key, line, tensor));
  }
  Batch batch;
  batch.shape = batch_shape_of(r);
  batch.shape.given = given_in(file.given);
  batch.q = floats(file, "q", contract.input);
  batch.k = floats(file, "k", contract.input);
  batch.v = floats(file, "v", contract.input);
  batch.g = floats(file, "g", Format::fp32);
  batch.beta = floats(file, "beta", Format::fp32);
  batch.initial_state = floats(file, "initial_state", contract.state);
  if (family.gated == batch.g.empty() || family.delta == batch.beta.empty()) {
    throw Error(fmt::format("judge: {} reads {} and {}: the file must hold just those", c.system,
                            family.gated ? "g" : "no g", family.delta ? "beta" : "no beta"));
  }
  if (batch.initial_state.empty() != (c.state == "none")) {
    throw Error(fmt::format("judge: state={} in the case line, but the file {} an initial_state", c.state,
                            batch.initial_state.empty() ? "lacks" : "holds"));
  }
  require_offsets(r, file);
  require_finite(batch);
  if (!file.tensors.contains("final_state")) {
    throw Error("judge: the file has no final_state: o alone does not show what the next call starts from");
  }
  const Outputs outputs{floats(file, "o", Format::none), floats(file, "final_state", Format::none)};
  if (trace != nullptr) {
    const Signature signature = r.system->signature(r.c);
    *trace = {{}, outputs_in(r, signature, signature.outputs, file), r.c.form, {}, {}, {}, batch.shape.given};
    for (const TensorSpec& spec : signature.inputs) {
      trace->inputs.push_back(
          {spec, spec.axis != Axis::whole, input_shape(spec, r.c), floats(file, spec.name, Format::none)});
    }
  }
  return judge_batch(r, family, batch, outputs, policy, {});
}

std::vector<NamedShape> tensors_in_file(const Resolved& r) {
  const Signature signature = r.system->signature(r.c);
  const TensorPrefixes& prefix = r.system->in_file;
  std::vector<NamedShape> out;
  for (const TensorSpec& spec : signature.inputs)
    out.push_back({in_file(prefix.input, spec), input_shape(spec, r.c)});
  for (const TensorSpec& spec : signature.outputs)
    out.push_back({in_file(prefix.output, spec), output_shape(spec, r.c)});
  if (r.form->packed) out.push_back({"cu_seqlens", {sequences_of(r.c) + 1}});
  // Which form decode calls is the file's to say: taps of any.
  for (const CaseForm& form : r.system->forms) {
    if (!r.system->native(form.name) || (!r.form->of_any_form() && form.name != r.c.form)) continue;
    for (const TensorSpec& tap : r.system->taps_of(r, form.name)) {
      NamedShape named{in_file(kTap, tap), output_shape(tap, r.c), true};
      if (std::ranges::find(out, named) == out.end()) out.push_back(std::move(named));
    }
  }
  return out;
}

namespace {

std::vector<NamedShape> named_shapes(const Resolved& r) {
  return r.system->in_file.none() ? std::vector<NamedShape>{} : tensors_in_file(r);
}

}  // namespace

std::vector<NamedShape> named_shapes(const std::string& case_line) {
  return named_shapes(Resolved(parse_case(case_line)));
}

RunFile run_file_of(const Record& record, const Trace& trace) {
  const Resolved r(parse_case(record.line));
  const TensorPrefixes& prefix = r.system->in_file;
  if (r.law != nullptr) throw Error("--dump: a law compares several runs; drop law= from the case line");
  if (prefix.none() && r.c.T == 0) throw Error("--dump: a case without tokens has no tensors");
  if (trace.outputs.empty()) throw Error("--dump: the kernel returned nothing to write");
  RunFile file;
  file.case_line = record.line;
  file.kernel = record.kernel;
  file.named = named_shapes(r);
  file.given = text_of(trace.given);
  if (r.form->of_any_form()) file.form = trace.native;
  const auto add = [&](const std::string& name, const CaseTensor& x) {
    file.tensors[name] = {name, DType::f32, x.shape, {x.data.begin(), x.data.end()}};
  };
  const Signature signature = r.system->signature(r.c);
  for (const CaseTensor& x : trace.inputs) add(in_file(prefix.input, x.spec), x);
  for (const CaseTensor& x : trace.outputs) add(written_in_file(r, signature, x.spec), x);
  if (r.form->packed) {
    const std::vector<std::int64_t> offsets = offsets_of(r.c);
    file.tensors["cu_seqlens"] = {
        "cu_seqlens", DType::i64, {std::ssize(offsets)}, {offsets.begin(), offsets.end()}};
  }
  return file;
}

RunFile unwritten_run(const Resolved& r, const std::string& kernel) {
  Record record;
  record.line = format_case(r.c);
  record.kernel = kernel;
  Trace trace;
  trace.inputs = r.system->inputs(r);
  trace.native = r.c.form;
  for (const TensorSpec& spec : r.system->signature(r.c).outputs) {
    std::vector<std::int64_t> shape = output_shape(spec, r.c);
    std::int64_t size = 1;
    for (const std::int64_t extent : shape) size *= extent;
    trace.outputs.push_back(
        {spec, true, std::move(shape), std::vector<float>(static_cast<std::size_t>(size), std::nanf(""))});
  }
  return run_file_of(record, trace);
}

Record judge_run_file(const RunFile& file, Trace* trace) {
  check_run(file);
  const Resolved r(parse_case(file.case_line));
  if (r.law != nullptr) throw Error("judge: the case line names a law, which needs several runs; drop law=");
  Record record = record_elsewhere(r.c, file);
  record.policy = kFilePolicy.name;
  record.judgement = r.system->judge(r, file, kFilePolicy, trace);
  return record;
}

}  // namespace samestate
