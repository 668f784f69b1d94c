#include "harness/captured/captured_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>

#include "fixtures/quote.h"
#include "harness/cases/declared_limits.h"
#include "harness/cases/keys.h"
#include "harness/cases/system.h"
#include "oracles/contracts.h"
#include "oracles/systems/input_format.h"

namespace samestate {
namespace {

template <class... Arguments>
[[noreturn]] void differs(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw CapturedMismatch(fmt::format(text, std::forward<Arguments>(arguments)...));
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

std::int64_t count_of(const std::vector<std::int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

bool of_tokens(const TensorSpec& spec) { return spec.axis == Axis::tokens || spec.axis == Axis::prefix; }

/// Returns true for the names alpha and decay, which say that the decay is given as the factor itself.
bool names_factor(std::string_view name) { return name == "alpha" || name == "decay"; }

/// Returns the only chunk that the limits allow; 0 if they leave a choice.
std::int64_t chunk_of(const std::vector<std::string>& limits) {
  for (const std::string& limit : limits) {
    for (const std::string_view begin : {"chunk = ", "chunk in "}) {
      std::int64_t chunk = 0;
      if (!limit.starts_with(begin)) continue;
      const char* const last = limit.data() + limit.size();
      const auto [end, error] = std::from_chars(limit.data() + begin.size(), last, chunk);
      if (error == std::errc{} && end == last) return chunk;
    }
  }
  return 0;
}

const Declaration& declaration_of(const CapturedFunction& function) {
  if (!function.declaration)
    differs(
        "it is not declared what {} computes; give --system and --form, or run `python3 -m samestate.capture "
        "--declare`",
        function.name);
  return *function.declaration;
}

/// Returns the case's B or T, or a size of its system.
std::int64_t& size_of(Case& c, std::string_view key) {
  return key == "B" ? c.B : key == "T" ? c.T : size_in(c, key);
}

}  // namespace

CapturedRun::CapturedRun(const std::filesystem::path& folder, const CapturedCall& call,
                         const CapturedFunction& function, const CapturedWords& words)
    : call_(call), function_(function), file_(read_safetensors(folder / call.file)) {
  require_as_recorded(file_, call);
  const Declaration& declaration = declaration_of(function);
  require_options();
  try {
    system_ = &system_named(declaration.system);
    Case c = system_->standard();
    c.form = declaration.form;
    const CaseForm* const form = system_->form(c.form);
    if (form == nullptr || !system_->native(form->name) || form->ranked || form->whole)
      differs("form {}: a recorded call has a single form of {}, and no ranks", c.form, c.system);
    find_inputs(c);
    take_sizes(c);
    take_chunk(c, words);
    take_lengths(c);
    if (system_->of_family()) take_family_settings(c);
    find_outputs(c);
    require_shapes(c);
    require_all_named(c, words);
    c.contract = contract(c, words);
    resolved_.emplace(c);
    const DeclaredLimits limits(declaration.limits, *system_);
    const std::string_view broken = limits.broken_by(c);
    if (!broken.empty()) differs("the call is outside the declared limit {}", broken);
  } catch (const Error& error) {
    throw CapturedMismatch(error.what());
  }
}

const Conventions& CapturedRun::conventions() const { return function_.declaration->conventions; }

const std::string& CapturedRun::place(std::string_view name) const {
  static const std::string none;
  const auto found = places_.find(name);
  return found == places_.end() ? none : found->second;
}

void CapturedRun::require_options() const {
  for (const auto& [name, held] : function_.options) {
    const auto found = call_.values.find(name);
    if (found != call_.values.end() && found->second != held && !std::holds_alternative<std::monostate>(held))
      differs("argument {} does not have the value for which the function was declared", quote(name, 60));
  }
}

std::vector<CapturedRun::Wanted> CapturedRun::wanted(const Case& c) const {
  const Signature signature = system_->signature(c);
  std::vector<Wanted> out;
  const auto add = [&](const TensorSpec& spec, bool output, std::string_view prefix) {
    std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
    if (spec.axis != Axis::whole) shape.insert(shape.begin(), of_tokens(spec) ? c.B : sequences_of(c));
    out.push_back({spec, output, std::string(prefix) + spec.name, std::move(shape)});
  };
  for (const TensorSpec& spec : signature.inputs) add(spec, false, system_->in_file.input);
  for (const TensorSpec& spec : signature.outputs) add(spec, true, system_->in_file.output);
  return out;
}

/// Returns the name in the file of the tensor that is our argument `ours`; empty if the call has none.
std::string CapturedRun::argument(std::string_view ours) const {
  // Conventions define what other names of the family's tensors mean. In other systems, a tensor with another
  // name is another tensor.
  const bool usual = system_->of_family() || function_.arguments.contains(ours);
  const std::string name = usual ? argument_of(call_, function_, ours) : std::string(ours);
  std::string place = "argument." + name;
  return !name.empty() && call_.tensors.contains(place) ? place : "";
}

const CapturedValue* CapturedRun::value(std::string_view ours) const {
  const auto found = call_.values.find(argument_of(call_, function_, ours));
  if (found == call_.values.end() || std::holds_alternative<std::monostate>(found->second)) return nullptr;
  return &found->second;
}

/// Returns the shape in the system's layout. A shape with another number of axes is returned unchanged.
std::vector<std::int64_t> CapturedRun::in_our_layout(const Wanted& tensor,
                                                     std::vector<std::int64_t> shape) const {
  if (of_tokens(tensor.spec)) {
    if (conventions().layout == Conventions::Tokens::THD) shape.insert(shape.begin(), 1);
    if (conventions().layout == Conventions::Tokens::BHTD && shape.size() > 2) std::swap(shape[1], shape[2]);
  } else if (tensor.spec.axis == Axis::state && conventions().values_first && shape.size() > 1) {
    std::swap(shape[shape.size() - 2], shape.back());
  }
  return shape;
}

/// Returns the shape that the file's tensor must have at the sizes of the case.
std::vector<std::int64_t> CapturedRun::in_its_layout(const Wanted& tensor, const Case& c) const {
  std::vector<std::int64_t> shape = tensor.shape;
  if (of_tokens(tensor.spec)) shape[1] += c.lead + c.slack;
  if (of_tokens(tensor.spec) && conventions().layout == Conventions::Tokens::THD) {
    shape.erase(shape.begin());
    return shape;
  }
  return in_our_layout(tensor, std::move(shape));  // this only exchanges two axes
}

void CapturedRun::find_inputs(Case& c) {
  if (system_->has_key("state") && !argument("initial_state").empty()) c.state = "random";
  if (system_->has(Property::packs)) lengths_ = argument("cu_seqlens");
  for (const Wanted& tensor : wanted(c)) {
    if (tensor.output) continue;
    std::string& place = places_[tensor.name] = argument(tensor.spec.name);
    if (!place.empty()) continue;
    std::vector<std::string_view> there;
    for (const auto& [known, unused] : call_.tensors) {
      if (known.starts_with("argument.")) there.push_back(std::string_view(known).substr(9));
    }
    differs("there is no tensor for {0}; say with --argument {0}=NAME what the function calls it; it has {1}",
            tensor.spec.name, fmt::join(there, ", "));
  }
}

/// Finds the final state of the family, which a call may leave out. Returns an empty name if it does, and
/// records a fault if the state was requested.
std::string CapturedRun::final_state(const Case& c, std::size_t place) {
  const CapturedValue* const wish = value("output_final_state");
  const bool wished =
      wish != nullptr && (*wish == CapturedValue(true) ||
                          (std::holds_alternative<double>(*wish) && std::get<double>(*wish) != 0.0));
  if (conventions().state == Conventions::State::in_place && c.state != "none") {
    const std::string initial = argument("initial_state"), after = "after." + initial.substr(9);
    return call_.tensors.contains(after) ? after : initial;
  }
  if (wish != nullptr && !wished) return "";
  std::string found = output_of(call_, function_, place, "final_state");
  if (found.empty() && wished && fault_.empty())
    fault_ = fmt::format("{} is True, but the call returned no final state",
                         argument_of(call_, function_, "output_final_state"));
  return found;
}

void CapturedRun::find_outputs(Case& c) {
  std::size_t i = 0;
  for (const Wanted& tensor : wanted(c)) {
    if (!tensor.output) continue;
    const std::string& name = tensor.spec.name;
    const std::size_t at = i++;
    std::string place;
    if (system_->has_key("final") && tensor.spec.axis == Axis::state) {
      place = final_state(c, at);
      if (place.empty()) c.final_state = "none";
    } else {
      place = output_of(call_, function_, at, name);
      const auto said = function_.arguments.find(name);
      const std::string after = "after." + (said == function_.arguments.end() ? name : said->second);
      if (place.empty() && call_.tensors.contains(after)) place = after;
      if (place.empty() && !returned_none(call_, at))
        differs("there is no result {0}, neither by name nor at place {1}; give --argument {0}=NAME", name,
                at);
      if (place.empty()) fault_ = fmt::format("the call returned None instead of {}", name);
    }
    if (!place.empty()) places_[tensor.name] = place;
  }
}

void CapturedRun::take_sizes(Case& c) const {
  std::vector<std::string_view> keys{"B", "T"};
  for (const CaseSize& size : system_->sizes) keys.push_back(size.name);
  /// Returns the size that one extent of a shape shows by itself: the extent that changes with this size
  /// alone.
  const auto shown = [&](std::string_view key) -> std::optional<std::int64_t> {
    const std::vector<Wanted> before = wanted(c);
    Case other = c;
    const std::int64_t size = size_of(other, key);
    std::vector<std::int64_t> tries{size + 1, 2 * size, size - 1, 4 * size};
    for (const CaseSize& multiple : system_->sizes) {
      if (multiple.multiple_of == key) tries.push_back(size_in(c, multiple.name));
    }
    for (const std::int64_t next : tries) {
      size_of(other, key) = next;
      if (next < 1 || next == size || !possible(other)) continue;
      const std::vector<Wanted> after = wanted(other);
      for (std::size_t i = 0; i < std::min(before.size(), after.size()); ++i) {
        const auto place = places_.find(before[i].name);
        if (place == places_.end() || after[i].shape.size() != before[i].shape.size()) continue;
        const std::vector<std::int64_t> found = in_our_layout(before[i], file_.shape(place->second));
        if (found.size() != before[i].shape.size()) continue;
        for (std::size_t axis = 0; axis < found.size(); ++axis) {
          if (before[i].shape[axis] != size || after[i].shape[axis] != next) continue;
          Case sized = c;
          size_of(sized, key) = found[axis];
          if (possible(sized)) return found[axis];
        }
      }
      break;
    }
    return std::nullopt;
  };
  // A size that one shape shows may make it possible to find another, so this repeats until there is nothing
  // new.
  for (std::set<std::string_view> known;;) {
    const std::size_t before = known.size();
    for (const std::string_view key : keys) {
      if (known.contains(key)) continue;
      const std::optional<std::int64_t> size = shown(key);
      if (!size) continue;
      size_of(c, key) = *size;
      known.insert(key);
    }
    if (known.size() == before) break;
  }
}

void CapturedRun::take_chunk(Case& c, const CapturedWords& words) const {
  constexpr double kMost = 1 << 20;
  if (!system_->form(c.form)->chunked) return;
  const CapturedValue* const own = value("chunk");
  const double* const number = own != nullptr ? std::get_if<double>(own) : nullptr;
  std::int64_t chunk = chunk_of(function_.declaration->limits);
  if (number != nullptr && *number >= 1 && *number <= kMost) chunk = static_cast<std::int64_t>(*number);
  if (words.chunk > 0) chunk = words.chunk;
  if (chunk < 1 && system_->of_family())
    differs("{}",
            "the number of tokens in a chunk is neither an argument nor a limit; give it, for example "
            "--chunk 64");
  if (chunk > 0) c.chunk = chunk;
}

void CapturedRun::take_lengths(Case& c) const {
  if (lengths_.empty()) {
    if (conventions().layout == Conventions::Tokens::THD)
      differs("{}", "the layout is THD, but the call has no cu_seqlens");
    return;
  }
  const DType dtype = file_.dtype(lengths_);
  if (dtype != DType::i32 && dtype != DType::i64)
    differs("cu_seqlens is {} instead of I32 or I64", name_of(dtype));
  const std::vector<double>& ends = file_.tensor(lengths_).values;
  if (file_.shape(lengths_).size() != 1 || ends.size() < 2 || c.B != 1)
    differs("cu_seqlens is {} for a batch of {}; it must be [N + 1] for a batch of 1",
            shape_text(file_.shape(lengths_)), c.B);
  if (!std::is_sorted(ends.begin(), ends.end()) || ends.front() < 0 || ends.back() > static_cast<double>(c.T))
    differs("cu_seqlens runs from {} to {}, but must rise from 0 or more to at most {}, the number of tokens",
            ends.front(), ends.back(), c.T);
  for (std::size_t n = 0; n + 1 < ends.size(); ++n)
    c.lengths.push_back(static_cast<std::int64_t>(ends[n + 1] - ends[n]));
  c.lead = static_cast<std::int64_t>(ends.front());
  c.slack = c.T - static_cast<std::int64_t>(ends.back());
  c.T -= c.lead + c.slack;
  if (!system_->form(c.form)->chunked && system_->has(Property::chunks)) c.chunk = 0;
  c.form = "packed";
}

void CapturedRun::take_family_settings(Case& c) {
  using enum Conventions::Norm;
  const Conventions& conventions = this->conventions();
  const CapturedValue* const norm = value("l2norm");
  c.l2norm = conventions.l2norm == in_kernel ||
             (conventions.l2norm == argument && norm != nullptr &&
              ((std::holds_alternative<bool>(*norm) && std::get<bool>(*norm)) ||
               (std::holds_alternative<double>(*norm) && std::get<double>(*norm) != 0.0)));
  if (conventions.heads == Conventions::Heads::tiled) c.heads = HeadMap::tiled;
  if (const CapturedValue* const map = value("head_map"); map != nullptr &&
                                                          conventions.heads == Conventions::Heads::both &&
                                                          *map == CapturedValue(std::string("tiled")))
    c.heads = HeadMap::tiled;
  double scale = 1.0 / std::sqrt(static_cast<double>(c.dk));
  const double usual = scale;
  if (conventions.scale == Conventions::Scale::dv) scale = 1.0 / std::sqrt(static_cast<double>(c.dv));
  if (conventions.scale == Conventions::Scale::folded) scale = 1.0;
  if (const CapturedValue* const own = value("scale");
      own != nullptr && conventions.scale == Conventions::Scale::argument) {
    const double* const number = std::get_if<double>(own);
    if (number == nullptr) differs("{}", "scale is not a number");
    scale = *number;
  }
  if (static_cast<float>(scale) != static_cast<float>(usual))
    c.scale = static_cast<double>(static_cast<float>(scale));
  const std::vector<std::string>& said = function_.declaration->said;
  given_.decay = conventions.decay;
  if (names_factor(argument_of(call_, function_, "g")) && std::ranges::find(said, "decay") == said.end())
    given_.decay = Given::Decay::linear;
  given_.strength = conventions.beta;
  given_.norm = conventions.norm_place;
  given_.norm_epsilon = conventions.norm_epsilon;
  const CapturedValue* const own = value("epsilon");
  if (own == nullptr || !c.l2norm) return;
  const double* const number = std::get_if<double>(own);
  if (number == nullptr || !(*number >= kLeastEpsilon && *number <= kLargestEpsilon))
    differs("argument {} is not an epsilon from {:g} to {:g}", argument_of(call_, function_, "epsilon"),
            kLeastEpsilon, kLargestEpsilon);
  given_.norm_epsilon = *number;
}

/// Inputs must agree on the sizes that they show together. A result of another size is the kernel's fault.
void CapturedRun::require_shapes(const Case& c) {
  for (const Wanted& tensor : wanted(c)) {
    const auto place = places_.find(tensor.name);
    if (place == places_.end()) continue;
    const std::vector<std::int64_t>&found = file_.shape(place->second), shape = in_its_layout(tensor, c);
    if (found == shape) continue;
    const std::string wrong =
        fmt::format("{} is {} instead of {}", tensor.spec.name, shape_text(found), shape_text(shape));
    if (!tensor.output)
      differs(
          "{} ({}), which the sizes of the other tensors require; is the declared layout wrong, or the "
          "declared "
          "order of the state (kv, vk)?",
          wrong, place->second);
    if (count_of(found) == count_of(shape))
      differs("{}; is the declared layout wrong, or the declared order of the state (kv, vk)?", wrong);
    if (fault_.empty()) fault_ = wrong;
    places_.erase(place);
  }
}

std::vector<std::string_view> CapturedRun::values_read(const Case& c, const CapturedWords& words) const {
  constexpr double kEpsilon = 1e-6;  // the epsilon of all systems of named tensors that have one
  std::vector<std::string_view> read{"chunk"};
  for (const auto& [size, value] : c.parameters) {
    const auto found = call_.values.find(size);
    if (found != call_.values.end() && found->second == CapturedValue(static_cast<double>(value)))
      read.push_back(size);
  }
  if (system_->of_family()) {
    read.insert(read.end(), {"q", "k", "v", "g", "beta", "initial_state", "cu_seqlens", "scale", "l2norm",
                             "head_map", "output_final_state", "epsilon"});
    return read;
  }
  const CapturedValue* const own = value("epsilon");
  const double* const number = own != nullptr ? std::get_if<double>(own) : nullptr;
  const std::string epsilon = argument_of(call_, function_, "epsilon");
  if (number == nullptr || words.ignored.contains(epsilon) ||
      system_->equation.find("1e-6") == std::string_view::npos)
    return read;
  if (static_cast<float>(*number) != static_cast<float>(kEpsilon))
    differs("argument {} is {:g}, but {} has {:g}, so that the call cannot be judged", epsilon, *number,
            c.system, kEpsilon);
  read.push_back("epsilon");
  return read;
}

void CapturedRun::require_all_named(const Case& c, const CapturedWords& words) {
  for (const auto& [name, unused] : call_.tensors) {
    const bool read = name == lengths_ ||
                      std::ranges::any_of(places_, [&](const auto& place) { return place.second == name; });
    const std::string_view whole = name, theirs = whole.substr(std::min(whole.find('.') + 1, whole.size()));
    if (read || words.ignored.contains(theirs)) continue;
    if (whole.starts_with("after.")) edited_ = theirs;
    if (whole.starts_with("argument."))
      differs(
          "argument {0} is a tensor that the declaration does not name; give --argument OURS={0}, or "
          "--ignore {0} "
          "if it does not affect the result",
          theirs);
  }
  require_values_read(call_, function_, values_read(c, words), words.ignored);
}

std::string CapturedRun::contract(const Case& c, const CapturedWords& words) const {
  const bool family = system_->of_family();
  std::string dtypes;
  // An input may have fewer bits than the contract takes, and an output may have more.
  const auto fits = [&](const Wanted& tensor, Format is, const Contract& contract, bool exactly) {
    const Format asked = tensor.output ? contract.output : input_format(tensor.spec, contract);
    const bool wide = !exactly && is == Format::fp32;
    if (tensor.spec.axis == Axis::state)
      return is == contract.state || wide || (!family && is == contract.input);
    if (tensor.output) return is == asked || wide;
    // Every contract takes these inputs in fp32, whatever dtype a call has.
    if (input_format(tensor.spec, contract_named("bf16")) == Format::fp32) return true;
    // If named tensors are in fp32, their values are checked one by one later.
    return is == asked || (!exactly && asked == Format::fp32) || (!family && wide);
  };
  const auto fits_all = [&](const Contract& contract, bool exactly) {
    return std::ranges::all_of(wanted(c), [&](const Wanted& tensor) {
      const std::string& place = this->place(tensor.name);
      if (place.empty()) return true;
      const DType dtype = file_.dtype(place);
      if (family && dtype != DType::f32 && dtype != DType::bf16 && dtype != DType::f16)
        differs("{} is {}, but contracts have only F32, BF16 and F16", tensor.spec.name, name_of(dtype));
      const Format is = dtype == DType::bf16  ? Format::bf16
                        : dtype == DType::f16 ? Format::fp16
                                              : Format::fp32;
      return fits(tensor, is, contract, exactly);
    });
  };
  const std::vector<std::string> names =
      words.contract.empty() ? function_.declaration->contracts : std::vector{words.contract};
  for (const bool exactly : {true, false}) {
    for (const std::string& name : names) {
      if (fits_all(contract_named(name), exactly)) return contract_named(name).name;
    }
  }
  for (const Wanted& tensor : wanted(c)) {
    if (const std::string& place = this->place(tensor.name); !place.empty())
      dtypes +=
          fmt::format("{}{} {}", dtypes.empty() ? "" : ", ", tensor.spec.name, name_of(file_.dtype(place)));
  }
  differs("none of the contracts {} has the recorded dtypes ({}); give another with --contract NAME",
          fmt::join(names, ", "), dtypes);
}

}  // namespace samestate
