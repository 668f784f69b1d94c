#include "harness/cases/resolved.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "harness/cases/keys.h"
#include "oracles/contracts.h"
#include "reference/error.h"

namespace samestate {
namespace {

template <class Rows>
std::string names_of(const Rows& rows) {
  std::vector<std::string_view> names;
  for (const auto& row : rows) {
    if constexpr (std::is_pointer_v<std::decay_t<decltype(row)>>) {
      names.push_back(row->name);
    } else {
      names.push_back(row.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

const Regime& regime_of(const System& system, const std::string& name) {
  if (const Regime* found = system.regime(name)) return *found;
  const auto elsewhere = std::find_if(regimes().begin(), regimes().end(),
                                      [&](const Regime& other) { return other.name == name; });
  const bool gates = elsewhere != regimes().end() && (elsewhere->gated || elsewhere->delta);
  throw Error(fmt::format("regime={}{}: {} has the regimes {}", name,
                          !gates             ? ""
                          : elsewhere->gated ? ", about the decay"
                                             : ", about beta",
                          system.name, names_of(system.regimes)));
}

/// A case built in code must satisfy what its line would: every value is one that its key's row reads.
void check_values(const Case& c) {
  Case read = c;
  for (const Key& key : keys()) {
    if (const std::string value = key.print(c); !value.empty()) key.parse(read, value);
  }
}

void check_sizes(const System& system, const Case& c) {
  for (const CaseSize& size : system.sizes) {
    if (size.own && !c.parameters.contains(size.name))
      throw Error(fmt::format("{} needs the key {}: {}", c.system, size.name, size.summary));
    const Index value = size_in(c, size.name);
    if (value < size.least || value > size.most) {
      throw Error(fmt::format("{}={}: must lie in {}..{} ({})", size.name, value, size.least, size.most,
                              size.summary));
    }
  }
  // This comes after all ranges are checked, so that no divisor is 0.
  for (const CaseSize& size : system.sizes) {
    if (size.multiple_of.empty()) continue;
    const Index value = size_in(c, size.name);
    if (const Index divisor = size_in(c, size.multiple_of); value % divisor != 0) {
      const Index below = value / divisor * divisor, above = below + divisor;
      throw Error(fmt::format(
          "{}={} is not a multiple of {}={} ({}); write {}={}{}", size.name, value, size.multiple_of, divisor,
          size.summary, size.name, below >= size.least ? below : above,
          below >= size.least && above <= size.most ? fmt::format(" or {}={}", size.name, above) : ""));
    }
  }
  const CaseForm& form = *system.form(c.form);
  if (form.chunked && system.native(form.name) && c.chunk < 1) {
    throw Error(fmt::format("chunk={}: form={} of {} needs a chunk of at least 1 token{}", c.chunk, c.form,
                            c.system,
                            system.native("recurrent") ? "; form=recurrent goes token by token" : ""));
  }
}

/// Only the forms over ranks have ranks, and their calls in packed and decoded cases. The message names the
/// key that does not fit together with the form that has it.
void check_ranks(const System& system, const CaseForm& form, const Case& c) {
  const bool cut = c.cuts != Case{}.cuts, heads = c.cuts == kCutHeads;
  if (c.ranks == 1 && !cut) return;
  const std::string key = c.ranks > 1 ? fmt::format("ranks={}", c.ranks) : fmt::format("cuts={}", c.cuts);
  const bool calls = !system.native(form.name) && form.chunked && system.ranked(heads) != nullptr;
  if (!form.ranked && !calls) {
    throw Error(
        fmt::format("{}: form={} has no ranks; write form=sequence_parallel, whose ranks divide the tokens, "
                    "form=head_parallel, whose ranks divide the value heads, or form=packed or decode, whose "
                    "calls may be of either",
                    key, form.name));
  }
  if (calls && c.chunk == 0) {
    throw Error(
        fmt::format("{}: form={} with chunk=0 goes token by token, which no ranks divide; write chunk=64",
                    key, form.name));
  }
  if (form.ranked && heads) {
    throw Error(
        form.by_heads
            ? fmt::format("cuts=heads: form={} divides value heads whatever its cuts; leave cuts out for "
                          "equal parts, or write cuts=drawn",
                          form.name)
            : fmt::format("cuts=heads: form={} divides tokens; write cuts=even or cuts=drawn, or "
                          "form=head_parallel for value heads",
                          form.name));
  }
  if (c.ranks == 1) throw Error(fmt::format("cuts={}: one rank has no cuts; write ranks=2", c.cuts));
}

void check_lengths(const CaseForm& form, const Case& c) {
  if (form.packed == c.lengths.empty()) {
    throw Error(c.lengths.empty() ? "form=packed needs lengths=N,N,...: the tokens of each sequence"
                                  : "lengths belongs to form=packed");
  }
  if (c.lengths.empty()) {
    if (c.lead == 0 && c.slack == 0) return;
    throw Error(
        fmt::format("unowned={},{}: tokens outside of all sequences belong to form=packed", c.lead, c.slack));
  }
  if (c.B != 1) throw Error(fmt::format("B={}: packed sequences share one batch row, so B=1", c.B));
  const std::int64_t sum = std::reduce(c.lengths.begin(), c.lengths.end());
  if (sum != c.T) throw Error(fmt::format("T={} but the lengths sum to {}: leave T out", c.T, sum));
}

/// Returns the number of tensors along the axis in a case.
double count_of(const Case& c, Axis axis) {
  if (axis == Axis::whole) return 1.0;
  return static_cast<double>(axis == Axis::tokens || axis == Axis::prefix ? c.B : sequences_of(c));
}

/// Returns the number of elements as a double, since the product of the sizes need not fit an Index.
double elements_of(const Case& c, const TensorSpec& spec) {
  double size = count_of(c, spec.axis);
  for (const Index extent : spec.shape) size *= static_cast<double>(extent);
  if ((spec.axis != Axis::tokens && spec.axis != Axis::prefix) || c.lead + c.slack == 0) return size;
  return size / static_cast<double>(std::max<Index>(c.T, 1)) * static_cast<double>(c.T + c.lead + c.slack);
}

void check_tensors(const System& system, const Case& c) {
  const Signature all = system.signature(c);
  for (const auto* list : {&all.inputs, &all.outputs}) {
    for (const TensorSpec& spec : *list) {
      if (const double size = elements_of(c, spec); size > static_cast<double>(kLargestCase)) {
        throw Error(
            fmt::format("{} of the case has {:.3g} elements: at most {}", spec.name, size, kLargestCase));
      }
    }
  }
}

void check_cached(const System& system, const CaseForm& form, const Case& c) {
  if (!c.cached) return;
  if (!form.decodes) throw Error("cached belongs to form=decode");
  if (!gets_cache(system, c)) {
    throw Error(
        fmt::format("cached=1: calls of {} carry a state, which no call but the first can leave", c.system));
  }
  if (c.prefill < 1 || c.prefill >= c.T)
    throw Error(fmt::format("cached=1: prefill={} must leave tokens before it and after it, with T={}",
                            c.prefill, c.T));
  if (!c.law.empty() || c.taps)
    throw Error("cached=1: neither laws nor taps are tried without the first call");
}

}  // namespace

bool gets_cache(const System& system, const Case& c) {
  const Signature signature = system.signature(c);
  return std::ranges::any_of(signature.inputs, [](const TensorSpec& x) { return x.axis == Axis::prefix; }) &&
         std::ranges::none_of(signature.outputs, [](const TensorSpec& x) { return x.axis == Axis::state; });
}

Resolved::Resolved(const Case& from) : c(from), system(&system_named(from.system)) {
  form = system->form(c.form);
  if (form == nullptr) {
    throw Error(fmt::format("form={}: {} has the forms {}", c.form, c.system, names_of(system->forms)));
  }
  check_values(c);
  check_sizes(*system, c);
  check_lengths(*form, c);
  check_ranks(*system, *form, c);
  if (!form->decodes && c.prefill != 0) throw Error("prefill belongs to form=decode");
  if (c.step != 1 && !form->decodes) throw Error("step belongs to form=decode");
  // Calls of several tokens would use the form with chunks, while the decoded calls use the other.
  if (c.step != 1 && form->chunked) {
    throw Error(fmt::format("step={}: several tokens of {} after a state are one call, with state=random",
                            c.step, c.system));
  }
  if (form->decodes && c.prefill > c.T) {
    throw Error(fmt::format("prefill={} is more than T={}: it counts the tokens before the decoded ones",
                            c.prefill, c.T));
  }
  check_cached(*system, *form, c);
  contract = &contract_named(c.contract);
  c.contract = contract->name;
  promised = c.l2norm ? with_l2norm(*contract) : *contract;
  regime = &regime_of(*system, c.regime);
  layout = layout_named(c.layout);
  final_state = final_state_named(c.final_state);
  if (final_state == FinalState::in_place && c.state == "none")
    throw Error("final=in_place: there is no initial state whose memory it could use; write state=random");
  if (!c.law.empty()) {
    law = system->law(c.law);
    if (law == nullptr) {
      throw Error(system->laws.empty() ? fmt::format("law={}: no law is tried on {}", c.law, c.system)
                                       : fmt::format("law={}: no such law of {}; known: {}", c.law, c.system,
                                                     names_of(system->laws)));
    }
    if (c.taps)
      throw Error(fmt::format(
          "taps=1: stages are judged in one run, but law={} compares several; drop one of them", c.law));
    if (!system->native(c.form)) {
      throw Error(
          fmt::format("law={} is tried on a form that kernels are written for, not form={}", c.law, c.form));
    }
  }
  check_tensors(*system, c);
  chunk = form->whole ? std::max<Index>(c.T, 1) : form->chunked ? c.chunk : 0;
}

double scale_of(const Case& c, const Regime& regime) {
  const double root = 1.0 / std::sqrt(static_cast<double>(c.dk));
  const double usual =
      regime.exact ? std::exp2(std::round(std::log2(root))) : static_cast<double>(static_cast<float>(root));
  return c.scale.value_or(usual);
}

Ranks Resolved::ranks() const { return {c.ranks, c.cuts == "drawn", c.seed, divides_heads() ? c.Hv : 0}; }

Path Resolved::path(Index tokens) const {
  if (form->decodes) return prefill_and_decode(tokens, chunk, c.prefill, ranks());
  return whole(tokens, chunk, ranks());
}

std::optional<Resolved> resolved(const Case& c) {
  try {
    return Resolved(c);
  } catch (const Error&) {
    return {};
  }
}

bool possible(const Case& c) { return resolved(c).has_value(); }

double size_of_case(const Resolved& r) {
  const Signature signature = r.system->signature(r.c);
  double size = 0.0;
  for (const auto* list : {&signature.inputs, &signature.outputs}) {
    for (const TensorSpec& spec : *list) size += elements_of(r.c, spec);
  }
  return size;
}

}  // namespace samestate
