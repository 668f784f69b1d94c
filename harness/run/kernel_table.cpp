#include "harness/run/kernel_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>

#include "fixtures/quote.h"
#include "harness/cases/keys.h"
#include "harness/run/call_variant.h"
#include "harness/run/clock.h"
#include "harness/run/contract_dtypes.h"
#include "harness/run/float_environment.h"
#include "harness/run/forwarded.h"
#include "harness/run/output_hashes.h"
#include "harness/run/whole_call.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Throws Unavailable for a tensor that the kernel cannot take.
void require_dense(const CallKernel& kernel, const KernelCall& call) {
  for (const auto* side : {&call.inputs, &call.outputs}) {
    for (const CallTensor& x : *side) {
      if (kernel.strided || x.dense()) continue;
      throw Unavailable(
          {Outcome::Kind::unsupported,
           fmt::format("{} takes dense tensors, but {} has strides of its own; use layout=dense", kernel.name,
                       x.name)});
    }
  }
}

/// A row, and the dtypes of its tensors where it asks for the contract's.
struct Called {
  CallKernel kernel;
  std::optional<ContractDtypes> dtypes;
};

/// Calls f(call, spoil) with the call as the row is given it; `spoil` makes its outputs stale again. What takes one of the older
/// structs is not told its own name.
template <class F>
auto as_given(const Called& row, const KernelCall& call, const Contract& contract, F&& f) {
  require_dense(row.kernel, call);
  if (row.kernel.listed_by != kCallRows) return f(call, [&] { poison(call); });
  KernelCall named = call;
  named.system = row.kernel.system;
  named.form = row.kernel.form;
  if (!row.dtypes) return f(named, [&] { poison(named); });
  ContractCall narrow(named, contract, *row.dtypes);
  auto result = f(narrow.call(), [&] { narrow.spoil(); });
  narrow.give_back();
  return result;
}

/// Reads the row's limits once.
DeclaredLimits limits_of(const CallKernel& row, const System& system) {
  try {
    return {row.limits, system};
  } catch (const Error& error) {
    throw Error(fmt::format("kernel {}: {}", row.name, error.what()));
  }
}

bool keeps_any(const std::vector<std::string>& declared) {
  return std::find(declared.begin(), declared.end(), kAnyContract) != declared.end();
}

}  // namespace

std::vector<std::string> contracts_of(const std::string& kernel, const std::vector<std::string>& declared) {
  std::vector<std::string> out;
  for (const std::string& text : declared) {
    if (text == kAnyContract) continue;
    const std::string& name = contract_named(text).name;
    if (std::find(out.begin(), out.end(), name) == out.end()) out.push_back(name);
  }
  if (out.empty())
    throw Error(fmt::format(
        "kernel {}: its row promises {}; `samestate list contracts` shows the named ones", kernel,
        declared.empty() ? "no contract"
                         : "only any, which must be given together with the contract that it is called with "
                           "if none is requested, as in {\"fp32\", \"any\"}"));
  return out;
}

/// Oracles of named tensors cover 16-bit, fp32 and tf32 operands of fp32, but not 16-bit storage together
/// with tf32 operands.
bool has_bound(const System& system, const std::string& contract) {
  const Contract& c = contract_named(contract);
  const bool between = c.qk == Format::tf32 || c.qk == Format::tf32_truncated;
  return system.of_family() || !between || unit_operand(c) != Format::none;
}

KernelRow adapted(const CallKernel& of) {
  CallKernel kernel = of;
  const System& system = system_named(kernel.system);
  if (!kernel.packed && std::ranges::any_of(system.forms, &CaseForm::packed)) {
    kernel.limits.emplace_back("form != packed");
    // It would mistake the row of all sequences for one sequence.
    kernel.run = [run = of.run, name = of.name](const KernelCall& call, const Contract& contract) {
      if (!call.cu_seqlens.present()) return run(call, contract);
      return Outcome{Outcome::Kind::unsupported,
                     name + " takes no packed batches: its row does not say packed"};
    };
  }
  KernelRow row;
  row.name = kernel.name;
  row.system = &system;
  row.form = kernel.form;
  row.device = kernel.device;
  row.contracts = contracts_of(kernel.name, kernel.contracts);
  for (const std::string& contract : row.contracts) {
    if (has_bound(system, contract)) continue;
    throw Error(fmt::format(
        "kernel {}: its row promises {}, and no bound of system {} knows tf32 operands of "
        "what is stored in 16 bit: promise tf32, fp32, bf16, fp16 or a contract with such operands",
        kernel.name, contract, system.name));
  }
  row.strided = kernel.strided;
  row.any_contract = keeps_any(kernel.contracts);
  row.variants = kernel.variants;
  row.limits = limits_of(kernel, system);
  row.taps = declared_taps(kernel.name, kernel.taps, system);
  std::optional<ContractDtypes> dtypes;
  if (kernel.contract_dtypes) dtypes.emplace(system);
  const auto called = std::make_shared<const Called>(std::move(kernel), std::move(dtypes));
  row.run = [called](const KernelCall& call, const Contract& contract) {
    return as_given(*called, call, contract, [&](const KernelCall& given, const auto&) {
      return called->kernel.run(given, contract);
    });
  };
  row.time = [called](const KernelCall& call, const Contract& contract, const TimingRequest& request) {
    return as_given(*called, call, contract, [&](const KernelCall& given, const auto& spoil) {
      const CallKernel& of_row = called->kernel;
      return of_row.time && (of_row.packed || !given.cu_seqlens.present())
                 ? of_row.time(given, contract, request)
                 : time_by_clock(spoil, request, [&] { return of_row.run(given, contract); });
    });
  };
  if (called->kernel.trace) {
    row.trace = [called](const KernelCall& call, const Contract& contract, const TraceRequest& request) {
      return as_given(*called, call, contract, [&](const KernelCall& given, const auto&) {
        return called->kernel.trace(given, contract, request);
      });
    };
  }
  return row;
}

void run_row(const KernelRow& kernel, const KernelCall& call, const Contract& contract, const Case* of) {
  if (kernel.only_inside && of != nullptr && !kernel.limits.none()) {
    const CallShape shape(call);
    const std::string_view broken = kernel.limits.broken_by(as_called(*of, kernel, shape));
    if (!broken.empty())
      throw Refused({Outcome::Kind::unsupported, fmt::format("outside its limits: {}", broken)}, kernel,
                    shape);
  }
  Outcome outcome;
  {
    const FloatEnvironment environment;
    outcome = called([&] { return kernel.run(call, contract); });
    require_unchanged();
  }
  if (outcome.kind != Outcome::Kind::ran) throw Refused(outcome, kernel, CallShape(call));
  OutputHashes::count(kernel, call);
  Forwarded::note(outcome.reason);
}

CallShape::CallShape(const KernelCall& call)
    : sizes(call.parameters.begin(), call.parameters.end()),
      batch(call.batch),
      tokens(call.tokens),
      chunk(call.chunk()),
      ranks(std::max<std::int64_t>(std::ssize(call.cuts) - 1, 1)),
      initial_state(call.input("initial_state") != nullptr && call.input("initial_state")->data != nullptr),
      head_map(call.head_map()),
      l2norm(call.l2norm()) {
  if (call.cu_seqlens.present()) lengths.emplace();
  for (std::int64_t n = 1; n < call.cu_seqlens.shape[0]; ++n)
    lengths->push_back(call.cu_seqlens(n) - call.cu_seqlens(n - 1));
}

Case as_called(Case c, const KernelRow& kernel, const CallShape& call) {
  const auto form = std::find_if(kernel.system->forms.begin(), kernel.system->forms.end(),
                                 [](const CaseForm& row) { return row.packed; });
  c.form = call.lengths && form != kernel.system->forms.end() ? std::string(form->name) : kernel.form;
  c.lengths = call.lengths.value_or(std::vector<std::int64_t>());
  // Tokens of no sequence do not count.
  c.T = call.lengths ? std::accumulate(call.lengths->begin(), call.lengths->end(), std::int64_t{0})
                     : call.tokens;
  c.chunk = call.chunk;
  c.ranks = call.ranks;
  if (c.ranks == 1) c.cuts = Case{}.cuts;
  c.B = call.batch;
  for (const auto& [name, value] : call.sizes) size_in(c, name) = value;
  if (kernel.system->has_key("state")) c.state = call.initial_state ? "random" : "none";
  c.heads = call.head_map;
  c.l2norm = call.l2norm;
  return c;
}

namespace {

/// Returns true if the case's calls continue earlier tokens: those of form=decode, and those of a law that
/// cuts a sequence where a call reads all keys so far. A limit refers to them as form=decode.
bool goes_on(const Resolved& r) {
  if (r.form->decodes && r.form->of_any_form()) return true;
  if (r.law == nullptr || !r.law->resumes) return false;
  const auto prefix = [](const TensorSpec& x) { return x.axis == Axis::prefix; };
  return std::ranges::any_of(r.system->signature(r.c).inputs, prefix);
}

/// Returns true if the limits hold in every call of the case that this kernel makes; false for a case of
/// another system.
bool hold_in_calls(const DeclaredLimits& limits, const KernelRow& kernel, const Resolved& r) {
  if (limits.none()) return true;
  if (r.system != kernel.system) return false;
  const Case& c = r.c;
  const bool any_form = r.form->of_any_form(), decodes = goes_on(r);
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  bool given = c.cached;  // the first call is not made
  for (const Segment& segment : r.path(c.T)) {
    if (std::exchange(given, false) || (segment.tokens == 0 && c.T > 0)) continue;
    if (!any_form && (segment.chunk > 0) != chunked) continue;  // this call is the other kernel's
    Case call = c;
    if (!r.form->packed) call.form = decodes ? "decode" : kernel.form;
    call.T = segment.token_by_token ? c.step : segment.tokens;
    if (!any_form) call.chunk = segment.chunk;
    if (segment.cuts.empty() && segment.head_cuts.empty()) call.ranks = 1, call.cuts = Case{}.cuts;
    if (!limits.hold(call)) return false;
  }
  return true;
}

}  // namespace

bool within_limits(const KernelRow& kernel, const Case& c) {
  if (!has_kernels(kernel, c)) return false;
  if (kernel.limits.none()) return true;
  const std::optional<Resolved> r = resolved(c);
  return r && hold_in_calls(kernel.limits, kernel, *r);
}

std::vector<TensorSpec> handed_out(const KernelRow& kernel, std::vector<TensorSpec> taps, const Resolved& r) {
  std::erase_if(taps, [&](const TensorSpec& tap) {
    const auto row = std::ranges::find(kernel.taps, tap.name, &DeclaredTap::name);
    return row == kernel.taps.end() || !hold_in_calls(row->when, kernel, r);
  });
  return taps;
}

KernelTable::KernelTable(std::span<const CallKernel> rows) {
  for (const CallKernel& row : rows) all_.push_back(adapted(row));
  own_ = all_.size();
  pair_rows();
}

KernelTable::KernelTable(std::span<const Kernel> rows, std::span<const OperatorKernel> operators) {
  for (const Kernel& row : rows) append(row);
  for (const OperatorKernel& row : operators) all_.push_back(adapted(by_call(row)));
  own_ = all_.size();
  pair_rows();
}

void KernelTable::append(const Kernel& row) {
  all_.push_back(adapted(by_call(row)));
  rows_.push_back(row);
  rows_.back().contracts = all_.back().contracts;
}

void KernelTable::pair_rows() {
  for (KernelRow& row : all_) {
    // If the system has such a form, calls with and without chunks follow each other.
    if (std::ranges::none_of(row.system->forms, [](const CaseForm& f) { return f.decodes && f.chunked; }))
      continue;
    const std::string_view form = row.system->form(row.form)->chunked ? "recurrent" : "chunked";
    row.companion = {with_form(row.name, form), false, std::string(form)};
    const KernelRow* other = find(row.companion.name);
    if (other == nullptr || other->system != row.system) continue;
    row.companion.there = true;
    row.companion.contracts = other->contracts;
    row.companion.any_contract = other->any_contract;
  }
}

void KernelTable::check(const CallKernel& row) const {
  // The name is a value of the case line.
  if (row.name.empty() ||
      !std::all_of(row.name.begin(), row.name.end(), [](char c) { return c > ' ' && c < 0x7f; })) {
    throw Error(
        fmt::format("kernel {}: a name is printable ASCII without spaces, as my.gated_delta_rule.chunked",
                    quote(row.name)));
  }
  // The name appears in every line, record and command.
  constexpr std::size_t kLongestName = 200;
  if (row.name.size() > kLongestName) {
    throw Error(fmt::format("kernel {}: a name of {} characters, at most {}: choose a shorter one",
                            quote(row.name, 60), row.name.size(), kLongestName));
  }
  if (row.device != "cpu" && row.device != "cuda") {
    throw Error(fmt::format("kernel {}: device {} must be cpu or cuda", row.name, quote(row.device)));
  }
  (void)contracts_of(row.name, row.contracts);
  if (row.run == nullptr) throw Error("kernel " + row.name + ": its row has no function");
  if (find(row.name) != nullptr) {
    throw Error("kernel " + row.name + ": the name is taken; rename the plugin's row");
  }
  const System& system = system_named(row.system);
  if (row.listed_by != kCallRows && row.listed_by != system.kernel_rows) {
    throw Error(
        fmt::format("kernel {}: a kernel of {} is a row of {}", row.name, row.system, system.kernel_rows));
  }
  if (!system.native(row.form)) {
    std::vector<std::string_view> known;
    for (const CaseForm& form : system.forms) {
      if (system.native(form.name)) known.push_back(form.name);
    }
    throw Error(fmt::format("kernel {}: a kernel of {} has the form {}, not {}", row.name, row.system,
                            fmt::join(known, " or "), quote(row.form)));
  }
}

void KernelTable::add(std::span<const CallKernel> rows) {
  for (const CallKernel& row : rows) {
    check(row);
    all_.push_back(adapted(row));
  }
  pair_rows();
}

void KernelTable::add(std::span<const Kernel> rows) {
  for (const Kernel& row : rows) {
    check(by_call(row));
    append(row);
  }
  pair_rows();
}

void KernelTable::add(std::span<const OperatorKernel> rows) { add(by_calls(rows)); }

void KernelTable::keep(std::string_view contract) {
  const std::string& name = contract_named(contract).name;
  for (KernelRow& row : all_) {
    if (row.any_contract && has_bound(*row.system, name) &&
        std::find(row.contracts.begin(), row.contracts.end(), name) == row.contracts.end())
      row.contracts.push_back(name);
  }
  pair_rows();
}

void KernelTable::hold_exact() {
  for (KernelRow& row : all_) {
    for (std::string& contract : row.contracts) {
      if (contract_named(contract).nearest && !row.options.ends_with(" --strict")) row.options += " --strict";
      contract = exact_contract(contract).name;
    }
  }
  pair_rows();
}

void KernelTable::converts(std::string_view name, bool strided, std::vector<std::string> compiled_for,
                           std::function<Given(const Contract&)> given,
                           std::map<std::string, Format, std::less<>> formats) {
  this->compiled_for(name, std::move(compiled_for));
  KernelRow& row = *std::ranges::find(all_, name, &KernelRow::name);
  row.only_inside = true;
  row.strided = strided;
  row.given = std::move(given);
  row.formats = std::move(formats);
}

void KernelTable::set(std::string_view name, bool KernelRow::*property, bool value) {
  (void)row_named(name);
  (*std::ranges::find(all_, name, &KernelRow::name)).*property = value;
}

void KernelTable::compiled_for(std::string_view name, std::vector<std::string> keys) {
  const KernelRow& row = row_named(name);
  for (const std::string_view key : keys)
    require_call_key(key.substr(0, key.size() - (key.ends_with(kBySixteen) ? kBySixteen.size() : 0)),
                     *row.system, "variant");
  std::ranges::find(all_, name, &KernelRow::name)->compiled_for = std::move(keys);
}

void KernelTable::added_by(const std::string& options) {
  for (std::size_t i = own_; i < all_.size(); ++i) all_[i].options = options;
}

const KernelRow* KernelTable::find(std::string_view name) const {
  const auto at = std::ranges::find(all_, name, &KernelRow::name);
  return at == all_.end() ? nullptr : &*at;
}

const Kernel& KernelTable::named(std::string_view name) const {
  const auto at = std::ranges::find(rows_, name, &Kernel::name);
  if (at != rows_.end()) return *at;
  throw Error(fmt::format("kernel {} computes {}, which is not of the recurrent family", name,
                          row_named(name).system->name));
}

const KernelRow& KernelTable::row_named(std::string_view name) const {
  if (const KernelRow* row = find(name)) return *row;
  std::vector<std::string_view> known;
  for (const KernelRow& row : all_) known.push_back(row.name);
  const std::vector<std::string_view> near = nearest_names(name, known);
  throw Error(
      fmt::format("kernel={}: no such kernel{}{}; `samestate list kernels` shows them, and a plugin's needs "
                  "--plugin FILE",
                  name, near.empty() ? "" : "; nearest: ", fmt::join(near, ", ")));
}

}  // namespace samestate
