#include "harness/run/saved_run.h"

#include <fmt/format.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "fixtures/quote.h"
#include "harness/cases/systems.h"
#include "harness/run/judge_batch.h"
#include "harness/run/operator_run.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"

namespace samestate {
namespace {

Tensor tensor_of(const std::string& name, const std::vector<float>& values, std::vector<std::int64_t> shape) {
  return {name, DType::f32, std::move(shape), {values.begin(), values.end()}};
}

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

const std::string kInput = "input.";
const std::string kOutput = "output.";

/// The shape of a tensor in a file.
std::vector<std::int64_t> file_shape(const TensorSpec& spec, std::int64_t B, bool batched) {
  std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
  if (batched) shape.insert(shape.begin(), B);
  return shape;
}

RunFile operator_file(const Record& record, const Trace& trace) {
  const Case c = parse_case(record.line);
  if (trace.operator_outputs.empty()) throw Error("--dump: the kernel returned nothing to write");
  RunFile file;
  file.case_line = record.line;
  file.kernel = record.kernel;
  file.named = named_shapes(record.line);
  if (c.form == "decode") file.form = trace.operator_form;
  for (const OperatorTensor& input : trace.operator_inputs) {
    const std::string name = kInput + input.spec.name;
    file.tensors[name] = tensor_of(name, input.data, file_shape(input.spec, c.B, input.batched));
  }
  for (const TensorSpec& spec : find_operator(c.system)->signature(call_of(c, trace.operator_form)).outputs) {
    Tensor out{kOutput + spec.name, DType::f32, file_shape(spec, c.B, true), {}};
    for (const Tensors<double>& sequence : trace.operator_outputs) {
      const Matrix<double>& x = get(sequence, spec.name);
      out.values.insert(out.values.end(), x.data(), x.data() + x.size());
    }
    file.tensors[out.name] = std::move(out);
  }
  return file;
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
std::string native_form(const Case& c, const RunFile& file) {
  if (c.form != "decode") return c.form;
  const Operator& op = *find_operator(c.system);
  if (file.form.empty() && op.forms.size() == 1) return std::string(op.forms.front().name);
  if (op.form(file.form) != nullptr) return file.form;
  std::vector<std::string_view> names;
  for (const OperatorForm& form : op.forms) names.push_back(form.name);
  throw Error(fmt::format("judge: form=decode of {} is calls of one of {}; the file's metadata 'form' is {}",
                          c.system, fmt::join(names, ", "), quote(file.form)));
}

Record judge_operator_file(const Case& c, const RunFile& file) {
  if (file.named != named_shapes(file.case_line))
    throw Error("judge: the file's tensors were read as those of another case");
  const std::string native = native_form(c, file);
  const Contract& contract = contract_named(c.contract);
  const Signature signature = find_operator(c.system)->signature(call_of(c, native));
  OperatorRun run;
  for (const TensorSpec& spec : signature.inputs) {
    const std::string name = kInput + spec.name;
    const std::vector<double>& values = file.tensors.at(name).values;
    const auto bad = std::find_if(values.begin(), values.end(), [](double x) { return !std::isfinite(x); });
    if (bad != values.end()) {
      throw Error(fmt::format("tensor '{}' element {} is {}: inputs must be finite", name,
                              bad - values.begin(), *bad));
    }
    run.inputs.push_back({spec, spec.axis != Axis::whole, floats(file, name, input_format(spec, contract))});
  }
  run.outputs.resize(static_cast<std::size_t>(c.B));
  for (const TensorSpec& spec : signature.outputs) {
    const double* from = file.tensors.at(kOutput + spec.name).values.data();
    for (Tensors<double>& sequence : run.outputs) {
      Matrix<double> x(spec.rows(), spec.columns());
      std::copy_n(from, x.size(), x.data());
      from += x.size();
      sequence.emplace(spec.name, std::move(x));
    }
  }
  Record record = record_elsewhere(c, file);
  record.judgement = judge_operator_run(c, native, run);
  return record;
}

}  // namespace

std::vector<NamedShape> named_shapes(const std::string& case_line) {
  const Case c = parse_case(case_line);
  check_names(c);
  if (!is_operator_case(c)) return {};
  const Operator& op = *find_operator(c.system);
  const Signature signature = op.signature(call_of(c, op.forms.front().name));
  std::vector<NamedShape> out;
  for (const TensorSpec& spec : signature.inputs)
    out.push_back({kInput + spec.name, file_shape(spec, c.B, spec.axis != Axis::whole)});
  for (const TensorSpec& spec : signature.outputs)
    out.push_back({kOutput + spec.name, file_shape(spec, c.B, true)});
  return out;
}

RunFile run_file_of(const Record& record, const Trace& trace) {
  const BatchShape& s = trace.batch.shape;
  if (!record.law.empty()) throw Error("--dump: a law compares several runs; drop law= from the case line");
  if (!trace.operator_form.empty()) return operator_file(record, trace);
  if (s.T == 0) throw Error("--dump: a case without tokens has no tensors");
  if (trace.outputs.o.empty()) throw Error("--dump: the kernel returned nothing to write");
  RunFile file;
  file.case_line = record.line;
  file.kernel = record.kernel;
  const auto put = [&](const std::string& name, const std::vector<float>& values,
                       std::vector<std::int64_t> shape) {
    if (!values.empty()) file.tensors[name] = tensor_of(name, values, std::move(shape));
  };
  const std::int64_t N = s.sequences();
  put("q", trace.batch.q, {s.B, s.T, s.Hk, s.dk});
  put("k", trace.batch.k, {s.B, s.T, s.Hk, s.dk});
  put("v", trace.batch.v, {s.B, s.T, s.Hv, s.dv});
  put("g", trace.batch.g, {s.B, s.T, s.Hv});
  put("beta", trace.batch.beta, {s.B, s.T, s.Hv});
  put("initial_state", trace.batch.initial_state, {N, s.Hv, s.dk, s.dv});
  put("o", trace.outputs.o, {s.B, s.T, s.Hv, s.dv});
  put("final_state", trace.outputs.final_state, {N, s.Hv, s.dk, s.dv});
  if (!s.offsets.empty()) {
    file.tensors["cu_seqlens"] = {"cu_seqlens", DType::i64, {N + 1}, {s.offsets.begin(), s.offsets.end()}};
  }
  return file;
}

Record judge_run_file(const RunFile& file) {
  check_run(file);
  Case c = parse_case(file.case_line);
  check_names(c);
  if (is_operator_case(c)) return judge_operator_file(c, file);
  if (!c.law.empty()) throw Error("judge: the case line names a law, which needs several runs; drop law=");
  const Family& family = *system_named(c.system).family;
  const Contract& contract = contract_named(c.contract);
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
  batch.shape = batch_shape_of(c);
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
  if (!batch.shape.offsets.empty()) {
    const auto offsets = file.tensors.find("cu_seqlens");
    if (offsets == file.tensors.end() ||
        !std::equal(batch.shape.offsets.begin(), batch.shape.offsets.end(), offsets->second.values.begin(),
                    offsets->second.values.end(),
                    [](std::int64_t a, double b) { return static_cast<double>(a) == b; })) {
      throw Error("judge: cu_seqlens in the file and lengths= in the case line disagree");
    }
  } else if (file.tensors.contains("cu_seqlens")) {
    throw Error("judge: the file is packed (cu_seqlens): write form=packed lengths=... in its case line");
  }
  require_finite(batch);
  if (!file.tensors.contains("final_state")) {
    throw Error("judge: the file has no final_state: o alone does not show what the next call starts from");
  }
  const Outputs outputs{floats(file, "o", Format::none), floats(file, "final_state", Format::none)};
  Record record = record_elsewhere(c, file);
  record.judgement = judge_batch(c, batch, outputs, {});
  return record;
}

}  // namespace samestate
