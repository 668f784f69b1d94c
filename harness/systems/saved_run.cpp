#include "harness/systems/saved_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "fixtures/quote.h"
#include "harness/systems/tensor_system.h"
#include "oracles/rounding.h"
#include "oracles/systems/input_format.h"

namespace samestate {
namespace {

constexpr std::string_view kTap = "tap.";

/// Returns the name of a tensor in a file.
std::string in_file(std::string_view prefix, const TensorSpec& spec) {
  return std::string(prefix) + spec.name;
}

/// Returns the name in a file of a tensor that a kernel wrote.
std::string written_in_file(const Resolved& r, const Signature& signature, const TensorSpec& spec) {
  const bool output =
      std::ranges::find(signature.outputs, spec.name, &TensorSpec::name) != signature.outputs.end();
  return in_file(output ? r.system->in_file.output : kTap, spec);
}

[[noreturn]] void refuse(const std::string& name, std::size_t element, double value, const char* why) {
  throw Error(fmt::format("tensor '{}' element {} is {}{}", name, element, value, why));
}

constexpr const char* kNoInput =
    ", which the contract's input format cannot represent: round the inputs before the kernel and the judge "
    "see "
    "them";

/// Returns the values of a tensor in fp32, the format in which a kernel's data are passed.
std::vector<float> floats(const RunFile& file, const std::string& name) {
  const std::vector<double>& values = file.tensors.at(name).values;
  std::vector<float> out(values.begin(), values.end());
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (std::isfinite(values[i]) && static_cast<double>(out[i]) != values[i])
      refuse(name, i, values[i],
             ", which fp32 cannot represent: round it to fp32 before the kernel and the judge see it");
  }
  return out;
}

/// Throws Error if a kernel of the case cannot have been given these inputs.
void require_inputs(const Resolved& r, const std::vector<CaseTensor>& inputs) {
  for (const CaseTensor& x : inputs) {
    // States of the family have a format of their own; those of named tensors have the format of the data.
    const bool state = r.system->of_family() && x.spec.axis == Axis::state;
    const Format format = state ? r.contract->state : input_format(x.spec, *r.contract);
    for (std::size_t i = 0; i < x.data.size(); ++i) {
      const auto value = static_cast<double>(x.data[i]);
      // The bounds are of states that do not grow.
      if (r.system->of_family() && x.spec.name == "g" && value > 0.0)
        refuse(
            in_file(r.system->in_file.input, x.spec), i, value,
            ": a log decay is at most 0; write it with the other sign, or as the logarithm of what decays");
      if (std::isfinite(value) && round_to(value, format) == value) continue;
      refuse(in_file(r.system->in_file.input, x.spec), i, value,
             std::isfinite(value) ? kNoInput : ": inputs must be finite");
    }
  }
}

/// Returns the form whose calls made the run.
std::string native_form(const Resolved& r, const RunFile& file) {
  if (!r.form->of_any_form()) return r.c.form;
  std::vector<std::string_view> natives;
  for (const CaseForm& form : r.system->forms) {
    if (r.system->native(form.name)) natives.push_back(form.name);
  }
  if (file.form.empty() && natives.size() == 1) return std::string(natives.front());
  if (std::ranges::find(natives, file.form) != natives.end()) return file.form;
  throw Error(fmt::format(
      "judge: form={} of {} consists of calls of one of the forms {}, but the file's metadata 'form' is {}",
      r.c.form, r.c.system, fmt::join(natives, ", "), quote(file.form)));
}

/// Throws Error if the file's offsets are not those of the case.
void require_offsets(const Resolved& r, const RunFile& file) {
  if (r.form->packed &&
      !std::ranges::equal(offsets_of(r.c), file.tensors.at("cu_seqlens").values,
                          [](std::int64_t a, double b) { return static_cast<double>(a) == b; }))
    throw Error("judge: cu_seqlens in the file and lengths= in the case line disagree");
}

}  // namespace

std::vector<NamedShape> tensors_in_file(const Resolved& r) {
  const Signature signature = r.system->signature(r.c);
  const TensorPrefixes& prefix = r.system->in_file;
  std::vector<NamedShape> out;
  for (const TensorSpec& spec : signature.inputs)
    out.push_back({in_file(prefix.input, spec), case_shape(spec, r.c)});
  for (const TensorSpec& spec : signature.outputs)
    out.push_back({in_file(prefix.output, spec), case_shape(spec, r.c)});
  if (r.form->packed) out.push_back({"cu_seqlens", {sequences_of(r.c) + 1}});
  // The file says which form decode calls, so taps of any form are accepted.
  for (const CaseForm& form : r.system->forms) {
    if (!r.system->native(form.name) || (!r.form->of_any_form() && form.name != r.c.form)) continue;
    for (const TensorSpec& tap : r.system->taps_of(r, form.name)) {
      NamedShape named{in_file(kTap, tap), case_shape(tap, r.c), true};
      if (std::ranges::find(out, named) == out.end()) out.push_back(std::move(named));
    }
  }
  return out;
}

std::vector<NamedShape> named_shapes(const std::string& case_line) {
  return tensors_in_file(Resolved(parse_case(case_line)));
}

RunFile run_file_of(const Record& record, const Trace& trace) {
  const Resolved r(parse_case(record.line));
  if (r.law != nullptr) throw Error("--dump: a law compares several runs; drop law= from the case line");
  if (trace.outputs.empty()) throw Error("--dump: the kernel returned nothing to write");
  RunFile file{
      record.line, record.kernel, {}, r.form->of_any_form() ? trace.native : "", text_of(trace.given)};
  const auto add = [&](const std::string& name, const CaseTensor& x) {
    file.tensors[name] = {name, DType::f32, x.shape, {x.data.begin(), x.data.end()}};
  };
  const Signature signature = r.system->signature(r.c);
  for (const CaseTensor& x : trace.inputs) add(in_file(r.system->in_file.input, x.spec), x);
  for (const CaseTensor& x : trace.outputs) add(written_in_file(r, signature, x.spec), x);
  if (r.form->packed) {
    const std::vector<std::int64_t> offsets = offsets_of(r.c);
    file.tensors["cu_seqlens"] = {
        "cu_seqlens", DType::i64, {std::ssize(offsets)}, {offsets.begin(), offsets.end()}};
  }
  return file;
}

Trace run_in_file(const Resolved& r, const RunFile& file) {
  check_run(file, [&](const std::string&) { return tensors_in_file(r); });
  require_offsets(r, file);
  Trace run;
  run.native = native_form(r, file);
  run.given = given_in(file.given);
  const Signature signature = r.system->signature(r.c);
  for (const TensorSpec& spec : signature.inputs)
    run.inputs.push_back(case_tensor(spec, r.c, floats(file, in_file(r.system->in_file.input, spec))));
  const auto add = [&](const TensorSpec& spec) {
    const std::string name = written_in_file(r, signature, spec);
    if (file.tensors.contains(name)) run.outputs.push_back(case_tensor(spec, r.c, floats(file, name)));
  };
  for (const TensorSpec& spec : signature.outputs) add(spec);
  for (const TensorSpec& tap : r.system->taps_of(r, run.native)) add(tap);
  return run;
}

Trace unwritten_run(const Resolved& r, std::string native) {
  Trace run;
  run.inputs = r.system->inputs(r);
  run.native = std::move(native);
  for (const TensorSpec& spec : r.system->signature(r.c).outputs) {
    run.outputs.push_back(case_tensor(spec, r.c));
    std::size_t size = 1;
    for (const std::int64_t extent : run.outputs.back().shape) size *= static_cast<std::size_t>(extent);
    run.outputs.back().data.assign(size, std::nanf(""));
  }
  return run;
}

Judgement judge_run(const Resolved& r, const Trace& run, std::vector<OperatorOracle>* oracles) {
  require_inputs(r, run.inputs);
  return r.system->judge(r, run, kFilePolicy, oracles);
}

Record judge_run_file(const RunFile& file, Trace* trace) {
  check_run(file, named_shapes);
  const Resolved r(parse_case(file.case_line));
  if (r.law != nullptr) throw Error("judge: the case line names a law, which needs several runs; drop law=");
  Trace run = run_in_file(r, file);
  Record record;
  record.line = format_case(r.c);
  record.kernel = file.kernel;
  record.system = r.c.system;
  record.form = r.c.form;
  record.contract = r.c.contract;
  record.regime = r.c.regime;
  record.device = "elsewhere";
  record.policy = kFilePolicy.name;
  record.judgement = judge_run(r, run, trace != nullptr ? &run.oracles : nullptr);
  if (trace != nullptr) *trace = std::move(run);
  return record;
}

}  // namespace samestate
