#include "harness/card/operator_neighbours.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "harness/systems/saved_run.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Clock = std::chrono::steady_clock;

/// Returns `c` with these operands; `c` itself if it already has them.
Contract with_operands(const Contract& c, Format operand) {
  if (unit_operand(c) == operand) return c;
  const char* name = operand == Format::tf32             ? "tf32"
                     : operand == Format::tf32_truncated ? "tf32_truncated"
                     : operand == Format::tf32x3         ? "tf32x3"
                                                         : "fp32";
  Contract other = contract_named(name);
  other.output = c.output;
  other.state = c.state;
  other.exponential = c.exponential;
  other.nearest = c.nearest;
  settle(other);
  return other;
}

/// Returns the 16-bit formats that hold every value the kernel wrote.
std::vector<Format> written_in(const Resolved& r, const Trace& run) {
  const std::vector<std::string>& taps = r.system->taps;
  std::vector<Format> out;
  for (const Format format : {Format::bf16, Format::fp16}) {
    bool some = false, all = true;
    for (const CaseTensor& tensor : run.outputs) {
      if (std::ranges::find(taps, tensor.spec.name) != taps.end()) continue;
      for (const float value : tensor.data) {
        const auto x = static_cast<double>(value);
        some = some || x != 0.0;
        all = all && (!std::isfinite(x) || round_to(x, format) == x);
      }
    }
    if (some && all) out.push_back(format);
  }
  return out;
}

}  // namespace

std::vector<Contract> operator_contracts_near(const Contract& c, int changes,
                                              std::span<const Format> written) {
  std::vector<Contract> out;
  std::vector<Format> operands{unit_operand(c)};
  if (c.input == Format::fp32)
    operands = {Format::none, Format::tf32x3, Format::tf32, Format::tf32_truncated};
  std::vector<Format> outputs{c.output};
  std::vector<Format> others{Format::fp32, c.input};
  others.insert(others.end(), written.begin(), written.end());
  for (const Format format : others) {
    if (std::ranges::find(outputs, format) == outputs.end()) outputs.push_back(format);
  }
  for (const Format operand : operands) {
    for (const char* exponential : {"exact", "ex2"}) {
      for (const Format output : outputs) {
        Contract other = with_operands(c, operand);
        const bool fits = (contract_point("exponential").value(other) == exponential ||
                           changed(other, "exponential", exponential)) &&
                          (other.output == output || changed(other, "output", name_of(output)));
        if (!fits) continue;
        const int differs = (operand != unit_operand(c) ? 1 : 0) +
                            (other.exponential != c.exponential ? 1 : 0) + (output != c.output ? 1 : 0);
        if (differs == changes) out.push_back(std::move(other));
      }
    }
  }
  return out;
}

Neighbours operator_neighbours_of(const Resolved& r, const Trace& run, double seconds,
                                  const std::function<bool()>& stop) {
  const Clock::time_point end =
      Clock::now() + std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1e3));
  Neighbours out;
  out.coarser = unit_operand(*r.contract) == Format::none && r.contract->input == Format::fp32;
  const std::vector<Format> written = written_in(r, run);
  for (out.changes = 1; out.changes <= 2 && out.passes.empty(); ++out.changes) {
    for (const Contract& c : operator_contracts_near(*r.contract, out.changes, written)) {
      if (Clock::now() >= end || (stop && stop())) {
        out.complete = false;
        return out;
      }
      Case as = r.c;
      as.contract = contract_of(c).name;
      try {
        const Judgement j = judge_run(Resolved(as), run);
        const bool passes = j.verdict == Verdict::pass && j.twin_ratio <= 1.0 && j.sampled_ratio <= 1.0;
        if (passes) out.passes.push_back(as.contract);
      } catch (const Error&) {
        continue;  // this contract does not apply to the case
      }
    }
  }
  out.changes = std::min(out.changes, 2);
  return out;
}

}  // namespace samestate
