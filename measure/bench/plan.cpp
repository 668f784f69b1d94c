#include <fmt/format.h>

#include <algorithm>

#include "harness/cases/systems.h"
#include "harness/run/judge_batch.h"
#include "measure/bench/bench.h"
#include "reference/error.h"

namespace samestate {
namespace {

struct Shape {
  std::int64_t B, T, Hk, Hv, dk, dv;
  bool quick;  ///< in the smaller set too
};
constexpr Shape kDeviceChunked[] = {{1, 1024, 16, 32, 128, 128, true},
                                    {1, 4096, 16, 32, 128, 128, false},
                                    {1, 8192, 16, 32, 128, 128, false},
                                    {8, 4096, 16, 32, 128, 128, false}};
/// The core of dendritic attention, 8 branches x 16 heads, dense (EQUATIONS 5.9).
constexpr Shape kDendritic = {2, 1024, 128, 128, 160, 512, false};
constexpr Shape kDeviceDecode[] = {{1, 1, 16, 32, 128, 128, true},
                                   {8, 1, 16, 32, 128, 128, false},
                                   {64, 1, 16, 32, 128, 128, true},
                                   {256, 1, 16, 32, 128, 128, false}};
constexpr Shape kHostChunked[] = {{1, 128, 1, 2, 64, 64, true}, {1, 1024, 2, 4, 128, 128, false}};
constexpr Shape kHostDecode[] = {{1, 1, 2, 4, 64, 64, true}, {16, 1, 4, 8, 128, 128, false}};

/// fp32 and bf16, and those of the fused kernels, where it promises them, else the first that it does; on the
/// CPU a low precision is emulated and its time says nothing.
std::vector<std::string> contracts_of(const Kernel& kernel) {
  std::vector<std::string> chosen;
  for (const char* name : {"fp32", "bf16", "fp32_fused", "bf16_fused", "bf16_fused_state"}) {
    const bool timed = kernel.device != "cpu" || name == std::string_view("fp32");
    if (timed && std::find(kernel.contracts.begin(), kernel.contracts.end(), name) != kernel.contracts.end())
      chosen.emplace_back(name);
  }
  if (chosen.empty()) chosen.push_back(kernel.contracts.front());
  return chosen;
}

bool wanted(const Kernel& kernel, const BenchPlan& plan) {
  if (!plan.system.empty() && kernel.system != plan.system) return false;
  if (!plan.kernels.empty())
    return std::find(plan.kernels.begin(), plan.kernels.end(), kernel.name) != plan.kernels.end();
  return plan.device.empty() || kernel.device == plan.device;
}

void add_standard(std::vector<Case>& cases, const Kernel& kernel, bool quick) {
  const bool host = kernel.device == "cpu";
  const bool chunked = kernel.form == "chunked";
  std::vector<Shape> shapes;
  if (host) {
    chunked ? shapes.assign(std::begin(kHostChunked), std::end(kHostChunked))
            : shapes.assign(std::begin(kHostDecode), std::end(kHostDecode));
  } else {
    chunked ? shapes.assign(std::begin(kDeviceChunked), std::end(kDeviceChunked))
            : shapes.assign(std::begin(kDeviceDecode), std::end(kDeviceDecode));
    if (chunked && kernel.system == "gated_delta_rule") shapes.push_back(kDendritic);
  }
  for (const std::string& contract : contracts_of(kernel)) {
    for (const Shape& s : shapes) {
      if (quick && !s.quick) continue;
      Case c;
      c.system = kernel.system;
      c.form = kernel.form;
      c.B = s.B, c.T = s.T, c.Hk = s.Hk, c.Hv = s.Hv, c.dk = s.dk, c.dv = s.dv;
      c.contract = contract;
      c.state = chunked ? "none" : "random";
      c.kernel = kernel.name;
      cases.push_back(std::move(c));
    }
  }
}

/// Throws Error unless the case is one call of a kernel of the recurrent family.
void require_one_call(const Case& c, const std::string& line) {
  const auto refuse = [&](const std::string& what) {
    throw Error(fmt::format("--case '{}': {}", line, what));
  };
  if (is_operator_case(c))
    refuse(c.system + " is described by named tensors; bench times the kernels of the recurrent family");
  if (!c.law.empty()) refuse("law=" + c.law + " is a relation between runs; leave it out");
  if (c.form != "chunked" && c.form != "recurrent" && c.form != "packed")
    refuse("form=" + c.form + " is several calls; time form=chunked, recurrent or packed");
  if (c.layout != "dense") refuse("layout=" + c.layout + ": bench times dense tensors; leave it out");
  if (c.T < 1) refuse("T=0: nothing to time");
}

}  // namespace

std::vector<Case> bench_cases(const KernelTable& table, const BenchPlan& plan) {
  for (const std::string& name : plan.kernels) (void)table.named(name);
  if (!plan.system.empty()) (void)system_named(plan.system);
  if (!plan.device.empty() && plan.device != "cpu" && plan.device != "cuda")
    throw Error("--device " + plan.device + ": must be cpu or cuda");
  std::vector<Case> cases;
  if (plan.lines.empty()) {
    for (const Kernel& kernel : table.rows()) {
      if (wanted(kernel, plan)) add_standard(cases, kernel, plan.quick);
    }
    return cases;
  }
  for (const std::string& line : plan.lines) {
    Case c = parse_case(line);
    require_one_call(c, line);
    check_names(c);
    if (!c.kernel.empty()) {
      (void)table.pair_for(c);
      cases.push_back(std::move(c));
      continue;
    }
    const std::string_view form = runs_recurrent_only(c) ? "recurrent" : "chunked";
    for (const Kernel& kernel : table.rows()) {
      const bool promised =
          std::find(kernel.contracts.begin(), kernel.contracts.end(), c.contract) != kernel.contracts.end();
      if (kernel.system != c.system || kernel.form != form || !promised || !wanted(kernel, plan)) continue;
      cases.push_back(c);
      cases.back().kernel = kernel.name;
    }
  }
  return cases;
}

}  // namespace samestate
