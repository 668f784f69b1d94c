#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cases/resolved.h"
#include "harness/run/whole_call.h"
#include "harness/systems/model_shapes.h"
#include "measure/bench/bench.h"
#include "measure/bench/device_shapes.h"
#include "reference/error.h"

namespace samestate {
namespace {

struct Shape {
  std::int64_t B, T, Hk, Hv, dk, dv;
  bool quick;  ///< true if the smaller set has it too
};
constexpr Shape kDeviceChunked[] = {{1, 1024, 16, 32, 128, 128, true},
                                    {1, 4096, 16, 32, 128, 128, false},
                                    {1, 8192, 16, 32, 128, 128, false},
                                    {8, 4096, 16, 32, 128, 128, false}};
/// Long prefills with few heads, which would leave most of a device idle with one chain of chunks per head:
/// one rank every 16 chunks.
constexpr Shape kDeviceRanked[] = {{1, 8192, 16, 32, 128, 128, true}, {1, 65536, 2, 4, 128, 128, false}};
constexpr std::int64_t kTokensOfARank = 1024;
/// The core of dendritic attention, 8 branches x 16 heads, dense (EQUATIONS 5.9).
constexpr Shape kDendritic = {2, 1024, 128, 128, 160, 512, false};
constexpr std::string_view kDecode = "decode";
constexpr Shape kDeviceDecode[] = {{1, 1, 16, 32, 128, 128, true},
                                   {8, 1, 16, 32, 128, 128, false},
                                   {64, 1, 16, 32, 128, 128, true},
                                   {256, 1, 16, 32, 128, 128, false}};
constexpr Shape kHostChunked[] = {{1, 128, 1, 2, 64, 64, true}, {1, 1024, 2, 4, 128, 128, false}};
constexpr Shape kHostDecode[] = {{1, 1, 2, 4, 64, 64, true}, {16, 1, 4, 8, 128, 128, false}};

/// Returns fp32 and bf16, and the contracts of the fused kernels, if the kernel promises them, and otherwise
/// its first contract; on the CPU a low precision is emulated and its time says nothing.
std::vector<std::string> contracts_of(const KernelRow& kernel) {
  std::vector<std::string> chosen;
  for (const char* name : {"fp32", "bf16", "fp32_fused", "bf16_fused", "bf16_fused_state"}) {
    const bool timed = kernel.device != "cpu" || name == std::string_view("fp32");
    if (timed && std::find(kernel.contracts.begin(), kernel.contracts.end(), name) != kernel.contracts.end())
      chosen.emplace_back(name);
  }
  if (chosen.empty()) chosen.push_back(kernel.contracts.front());
  return chosen;
}

bool wanted(const KernelRow& kernel, const BenchPlan& plan) {
  if (!plan.system.empty() && kernel.system->name != plan.system) return false;
  if (!plan.kernels.empty())
    return std::find(plan.kernels.begin(), plan.kernels.end(), kernel.name) != plan.kernels.end();
  return plan.device.empty() || kernel.device == plan.device;
}

/// Returns the standard shapes for a kernel of the recurrent family.
std::vector<Case> family_cases(const KernelRow& kernel, bool quick) {
  const bool host = kernel.device == "cpu";
  const CaseForm& form = *kernel.system->form(kernel.form);
  const bool chunked = form.chunked;
  std::vector<Shape> shapes;
  if (host) {
    chunked ? shapes.assign(std::begin(kHostChunked), std::end(kHostChunked))
            : shapes.assign(std::begin(kHostDecode), std::end(kHostDecode));
  } else {
    if (form.ranked) {
      shapes.assign(std::begin(kDeviceRanked), std::end(kDeviceRanked));
    } else {
      chunked ? shapes.assign(std::begin(kDeviceChunked), std::end(kDeviceChunked))
              : shapes.assign(std::begin(kDeviceDecode), std::end(kDeviceDecode));
    }
    if (chunked && !form.ranked && kernel.system->name == "gated_delta_rule") shapes.push_back(kDendritic);
  }
  std::vector<Case> cases;
  for (const Shape& s : shapes) {
    if (quick && !s.quick) continue;
    Case& c = cases.emplace_back();
    c.B = s.B, c.T = s.T, c.Hk = s.Hk, c.Hv = s.Hv, c.dk = s.dk, c.dv = s.dv;
    c.state = chunked ? "none" : "random";
    if (form.ranked) c.ranks = host ? 4 : s.T / kTokensOfARank;
  }
  return cases;
}

/// Returns the shapes for a system of named tensors: on a device, the calls that fill it come first; the
/// smaller set has only the first of a model, with B=1 and T=64.
std::vector<Case> tensor_cases(const KernelRow& kernel, bool quick) {
  std::vector<Case> cases;
  for (const DeviceShape& shape : device_shapes()) {
    if (quick || kernel.device == "cpu" || shape.system != kernel.system->name) continue;
    cases.push_back(parse_case(fmt::format("v1 {} {}", shape.system, shape.sizes)));
  }
  for (const ModelShape& shape : model_shapes()) {
    // A shape that is planned for the sake of its indices is not a model's.
    if (shape.system != kernel.system->name || shape.once) continue;
    Case& c = cases.emplace_back(kernel.system->standard());
    c.B = quick ? 1 : shape.B, c.T = quick ? 64 : shape.T;
    if (quick) break;
    for (const auto& [name, value] : shape.sizes) c.parameters.find(name)->second = value;
  }
  return cases;
}

void add_standard(std::vector<Case>& cases, const KernelRow& kernel, bool quick) {
  std::vector<Case> shapes = tensor_cases(kernel, quick);
  if (shapes.empty()) shapes = family_cases(kernel, quick);
  for (const std::string& contract : contracts_of(kernel)) {
    for (Case c : shapes) {
      c.system = kernel.system->name;
      if (c.form != kDecode) c.form = kernel.form;
      c.contract = contract;
      c.kernel = kernel.name;
      cases.push_back(std::move(c));
    }
  }
}

/// Throws an Error that names the line.
Resolved one_call(const std::string& line) {
  const Resolved r(parse_case(line));
  try {
    require_one_call(r);
  } catch (const Error& error) {
    throw Error(fmt::format("--case '{}': {}", line, error.what()));
  }
  return r;
}

}  // namespace

namespace {

/// Says that no kernel fits a line, and what the kernels of its system accept.
std::string no_kernel(const Resolved& r, const std::string& line, const KernelTable& table,
                      const BenchPlan& plan) {
  std::vector<std::string> others;
  for (const KernelRow& kernel : table.all()) {
    if (kernel.system != r.system || !wanted(kernel, plan)) continue;
    others.push_back(r.system->evaluates(r, kernel.form)
                         ? fmt::format("{} promises {}", kernel.name, fmt::join(kernel.contracts, ", "))
                         : fmt::format("{} has form={}", kernel.name, kernel.form));
  }
  return fmt::format("--case '{}': no kernel that is timed computes it under {}: {}", line, r.c.contract,
                     others.empty() ? fmt::format("there is none of {}; `samestate list kernels`", r.c.system)
                                    : fmt::format("{}", fmt::join(others, "; ")));
}

}  // namespace

std::vector<Case> bench_cases(const KernelTable& table, const BenchPlan& plan) {
  for (const std::string& name : plan.kernels) (void)table.row_named(name);
  if (!plan.system.empty()) (void)system_named(plan.system);
  if (!plan.device.empty() && plan.device != "cpu" && plan.device != "cuda")
    throw Error("--device " + plan.device + ": must be cpu or cuda");
  std::vector<Case> cases;
  if (plan.lines.empty()) {
    for (const KernelRow& kernel : table.all()) {
      if (wanted(kernel, plan)) add_standard(cases, kernel, plan.quick);
    }
    return cases;
  }
  for (const std::string& line : plan.lines) {
    const Resolved r = one_call(line);
    if (!r.c.kernel.empty()) {
      (void)table.choose(r);
      cases.push_back(r.c);
      continue;
    }
    const std::size_t before = cases.size();
    for (const KernelRow& kernel : table.all()) {
      const bool promised =
          std::find(kernel.contracts.begin(), kernel.contracts.end(), r.c.contract) != kernel.contracts.end();
      if (kernel.system != r.system || !r.system->evaluates(r, kernel.form) || !promised ||
          !wanted(kernel, plan))
        continue;
      cases.push_back(r.c);
      cases.back().kernel = kernel.name;
    }
    if (cases.size() == before) throw Error(no_kernel(r, line, table, plan));
  }
  return cases;
}

}  // namespace samestate
