#include "harness/card/probe_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>

#include "harness/systems/recurrent_system.h"
#include "harness/systems/saved_run.h"
#include "reference/error.h"

namespace samestate {
namespace {

namespace fs = std::filesystem;

fs::path path_of(const std::string& folder, const std::vector<Probe>& probes, std::size_t i) {
  std::string name = fmt::format("{:02}_{}", i, probes[i].name);
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == ' ' || c == ','; }, '_');
  return fs::path(folder) / (name + ".safetensors");
}

/// The probe with zeros for outputs.
RunFile file_of(const std::string& kernel, const Probe& probe) {
  const Resolved r(probe.c);
  Trace run = unwritten_run(r, r.c.form);
  run.inputs = tensors_of(r, probe.batch);
  run.given = probe.batch.shape.given;
  for (CaseTensor& output : run.outputs) std::ranges::fill(output.data, 0.0F);
  Record record;
  record.line = format_case(probe.c);
  record.kernel = kernel;
  return run_file_of(record, run);
}

/// The file's case line says which probes the file was written for; the kernel named there does not matter.
void require_written_for(const Probe& probe, const RunFile& file, const std::string& path) {
  Case of = parse_case(file.case_line);
  if (of.contract != probe.c.contract)
    throw Error(fmt::format(
        "{}: it was written for contract={}, but is read under {}; read it with --contract {}, or write the "
        "probes again",
        path, of.contract, probe.c.contract, of.contract));
  if (file.given != text_of(probe.batch.shape.given))
    throw Error(fmt::format(
        "{}: written for a kernel of other conventions ({}); write the probes again with the same "
        "--kernel",
        path, file.given.empty() ? "canonical" : file.given));
  of.kernel = probe.c.kernel;
  if (const std::string line = format_case(of); line != format_case(probe.c))
    throw Error(fmt::format(
        "{}: its case line is {}, but the probe's is {}; write the probes again with the same --kernel", path,
        line, format_case(probe.c)));
}

std::vector<float> floats(const RunFile& file, const std::string& name) {
  const auto at = file.tensors.find(name);
  if (at == file.tensors.end()) return {};
  std::vector<float> out;
  for (const double x : at->second.values) out.push_back(static_cast<float>(x));
  return out;
}

/// A probe's file is written with zeros where the outputs belong.
bool any_written(const std::vector<float>& x) {
  return std::any_of(x.begin(), x.end(), [](float value) { return value != 0.0F; });
}

}  // namespace

std::string first_filled(const std::string& folder, const std::vector<Probe>& probes) {
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const fs::path path = path_of(folder, probes, i);
    if (!fs::exists(path)) continue;
    const RunFile file = read_run_file(path, named_shapes);
    if (any_written(floats(file, "o")) || any_written(floats(file, "final_state"))) return path.string();
  }
  return "";
}

std::vector<std::string> write_probes(const std::string& folder, const KernelRow& kernel,
                                      const std::vector<Probe>& probes) {
  fs::create_directories(folder);
  std::vector<std::string> names;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const fs::path path = path_of(folder, probes, i);
    write_run_file(path, file_of(kernel.name, probes[i]), named_shapes);
    names.push_back(path.string());
  }
  return names;
}

std::vector<ProbeRun> read_probes(const std::string& folder, const std::vector<Probe>& probes) {
  std::vector<ProbeRun> out;
  for (std::size_t i = 0; i < probes.size(); ++i) {
    const fs::path path = path_of(folder, probes, i);
    out.emplace_back();
    if (!fs::exists(path)) {
      out.back().refused = "no file " + path.string();
      continue;
    }
    const RunFile file = read_run_file(path, named_shapes);
    require_written_for(probes[i], file, path.string());
    const RunFile expected = file_of(file.kernel, probes[i]);
    for (const char* name : {"q", "k", "v", "g", "beta", "initial_state"}) {
      if (floats(file, name) != floats(expected, name))
        throw Error(fmt::format(
            "{}: {} is not the probe's; write the probes again with the same --kernel and --contract",
            path.string(), name));
    }
    out.back().outputs = {floats(file, "o"), floats(file, "final_state")};
    const std::vector<float>& o = out.back().outputs.o;
    if (out.back().outputs.final_state.empty() || !any_written(o)) {
      out.back().outputs = {};
      out.back().refused = "o was not written, or there is no final_state, in " + path.string();
    }
  }
  return out;
}

}  // namespace samestate
