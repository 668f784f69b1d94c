#include "harness/captured/captured_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <vector>

#include "fixtures/quote.h"
#include "harness/cases/declared_limits.h"
#include "harness/cases/system.h"
#include "harness/systems/saved_run.h"
#include "oracles/contracts.h"

namespace samestate {
namespace {

template <class... Arguments>
[[noreturn]] void differs(fmt::format_string<Arguments...> text, Arguments&&... arguments) {
  throw CapturedMismatch(fmt::format(text, std::forward<Arguments>(arguments)...));
}

/// B, T or a size that the system alone has.
std::int64_t& size_of(Case& c, const std::string& key) {
  return key == "B" ? c.B : key == "T" ? c.T : c.parameters.at(key);
}

std::map<std::string, std::vector<std::int64_t>> shapes_of(const Case& c) {
  std::map<std::string, std::vector<std::int64_t>> out;
  for (const NamedShape& tensor : tensors_in_file(Resolved(c))) out[tensor.name] = tensor.shape;
  return out;
}

/// A place in a shape that holds a size by itself: the extent that changes with it when only this size changes.
struct Extent {
  std::string tensor;
  std::size_t axis = 0, rank = 0;
};
std::vector<Extent> extents_of(const Case& c, const std::string& key) {
  const auto before = shapes_of(c);
  Case other = c;
  const std::int64_t size = size_of(other, key);
  for (const std::int64_t next : {size + 1, 2 * size, size - 1, 4 * size}) {
    size_of(other, key) = next;
    if (next < 1 || !possible(other)) continue;
    std::vector<Extent> out;
    for (const auto& [name, shape] : shapes_of(other)) {
      const auto found = before.find(name);
      for (std::size_t axis = 0; found != before.end() && axis < std::min(shape.size(), found->second.size());
           ++axis) {
        if (found->second[axis] == size && shape[axis] == next) out.push_back({name, axis, shape.size()});
      }
    }
    return out;
  }
  return {};
}

Format format_of(DType dtype) {
  return dtype == DType::bf16 ? Format::bf16 : dtype == DType::f16 ? Format::fp16 : Format::fp32;
}

}  // namespace

CapturedTensors::CapturedTensors(const std::filesystem::path& folder, const CapturedCall& call,
                                 const CapturedFunction& function, const CapturedWords& words)
    : call_(call), function_(function), file_(read_safetensors(folder / call.file)) {
  require_as_recorded(file_, call);
  const Declaration& declaration = *function.declaration;
  const System& system = system_named(declaration.system);
  try {
    Case c = system.standard();
    c.form = declaration.form;
    if (words.chunk > 0) c.chunk = words.chunk;
    if (const auto chunk = call_.values.find(argument_of(call_, function_, "chunk"));
        words.chunk == 0 && chunk != call_.values.end() && std::holds_alternative<double>(chunk->second))
      c.chunk = static_cast<std::int64_t>(std::clamp(std::get<double>(chunk->second), 1.0, 1048576.0));
    find(Resolved(c));
    std::vector<std::string> keys{"B", "T"};
    for (const auto& [key, unused] : c.parameters) keys.emplace_back(key);
    // A size that one shape shows may be what makes another possible: until nothing is new.
    for (std::set<std::string> known;;) {
      const std::size_t before = known.size();
      for (const std::string& key : keys) {
        if (known.contains(key)) continue;
        for (const Extent& extent : extents_of(c, key)) {
          const auto place = places_.find(extent.tensor);
          if (place == places_.end()) continue;
          const std::vector<std::int64_t>& shape = file_.shape(place->second);
          if (shape.size() != extent.rank) continue;
          Case sized = c;
          size_of(sized, key) = shape[extent.axis];
          if (!possible(sized)) continue;
          c = sized;
          known.insert(key);
          break;
        }
      }
      if (known.size() == before) break;
    }
    for (const auto& [name, shape] : shapes_of(c)) {
      const auto place = places_.find(name);
      if (place == places_.end() || file_.shape(place->second) == shape) continue;
      const std::vector<std::int64_t>& found = file_.shape(place->second);
      const auto count = [](const std::vector<std::int64_t>& of) {
        return std::accumulate(of.begin(), of.end(), std::int64_t{1}, std::multiplies<>());
      };
      if (name.starts_with(system.in_file.output) && count(found) != count(shape)) {
        fault_ = fmt::format("result {} is [{}], and [{}] is asked for", quote(place->second.substr(7)),
                             fmt::join(found, ", "), fmt::join(shape, ", "));
      } else {
        differs("{} is [{}], and {} has [{}] there at the sizes that the other tensors show",
                quote(place->second), fmt::join(file_.shape(place->second), ", "), declaration.system,
                fmt::join(shape, ", "));
      }
    }
    require_values(c, words);
    c.contract = contract(Resolved(c), words);
    resolved_.emplace(c);
    const std::string_view broken = DeclaredLimits(declaration.limits, system).broken_by(c);
    if (!broken.empty()) differs("outside the declared limit {}", broken);
  } catch (const Error& error) {
    throw CapturedMismatch(error.what());
  }
  for (const auto& [name, unused] : call.tensors) {
    const bool read = std::ranges::any_of(places_, [&](const auto& place) { return place.second == name; });
    if (name.starts_with("after.") && !read && !words.ignored.contains(name.substr(6)))
      edited_ = name.substr(6);
    if (name.starts_with("argument.") && !read && !words.ignored.contains(name.substr(9)))
      differs(
          "argument {0} is a tensor that the declaration does not name: --argument OURS={0}, or --ignore {0} "
          "where "
          "it changes nothing of what is computed",
          name.substr(9));
  }
}

/// Puts where each tensor of the system stands in the file into places_.
void CapturedTensors::find(const Resolved& r) {
  const Signature signature = r.system->signature(r.c);
  const auto theirs = [&](const std::string& ours) {
    const auto found = function_.arguments.find(ours);
    return found == function_.arguments.end() ? ours : found->second;
  };
  for (const TensorSpec& spec : signature.inputs) {
    const std::string name = "argument." + theirs(spec.name);
    if (!call_.tensors.contains(name))
      differs("no tensor for {0}: --argument {0}=NAME says what the function calls it", spec.name);
    places_[std::string(r.system->in_file.input) + spec.name] = name;
  }
  for (std::size_t i = 0; i < signature.outputs.size(); ++i) {
    const std::string& name = signature.outputs[i].name;
    std::string& place = places_[std::string(r.system->in_file.output) + name];
    place = output_of(call_, function_, i, name);
    if (const std::string known = "after." + theirs(name); place.empty() && call_.tensors.contains(known))
      place = known;
    if (!place.empty()) continue;
    if (!returned_none(call_, i))
      differs("no result is {0}, which is asked for by name or at place {1}: --argument {0}=NAME", name, i);
    fault_ = fmt::format("the call returned None where {} is asked for", name);
    places_.erase(std::string(r.system->in_file.output) + name);
  }
}

/// Sizes and an epsilon that arguments say are those of the case; nothing else that they say is read.
void CapturedTensors::require_values(const Case& c, const CapturedWords& words) const {
  constexpr double kEpsilon = 1e-6;  // of the systems that have one
  std::vector<std::string_view> read{"chunk"};
  const auto number_of = [&](std::string_view ours) -> const double* {
    const auto found = call_.values.find(argument_of(call_, function_, ours));
    return found == call_.values.end() ? nullptr : std::get_if<double>(&found->second);
  };
  const std::string epsilon = argument_of(call_, function_, "epsilon");
  const double* const own = number_of("epsilon");
  if (own != nullptr && !words.ignored.contains(epsilon) &&
      system_named(c.system).equation.find("1e-6") != std::string_view::npos) {
    if (static_cast<float>(*own) != static_cast<float>(kEpsilon))
      differs("argument {} is {:g}, and {} has {:g}: nothing to judge it by", epsilon, *own, c.system,
              kEpsilon);
    read.push_back("epsilon");
  }
  for (const auto& [size, value] : c.parameters) {
    const auto found = call_.values.find(size);
    if (found == call_.values.end() || found->second != CapturedValue(static_cast<double>(value))) continue;
    read.emplace_back(size);
  }
  require_values_read(call_, function_, read, words.ignored);
}

std::string CapturedTensors::contract(const Resolved& r, const CapturedWords& words) const {
  const std::vector<std::string> names =
      words.contract.empty() ? function_.declaration->contracts : std::vector{words.contract};
  for (const std::string& name : names) {
    const Contract& contract = contract_named(name);
    bool fits = true;
    for (const auto& [in_run, place] : places_) {
      const Format format = format_of(file_.dtype(place));
      const bool output = std::string_view(in_run).starts_with(r.system->in_file.output);
      const Format asked = output ? contract.output : contract.input;
      fits = fits && (format == asked ||
                      (output ? format == Format::fp32 : asked == Format::fp32 || format == Format::fp32));
    }
    if (fits) return contract.name;
  }
  differs("none of the contracts {} has the recorded dtypes: --contract NAME", fmt::join(names, ", "));
}

RunFile CapturedTensors::run_file() const {
  RunFile out;
  out.case_line = format_case(resolved_->c);
  out.kernel = function_.declaration->name;
  out.named = tensors_in_file(*resolved_);
  for (const auto& [name, place] : places_) {
    Tensor tensor = file_.tensor(place);
    tensor.name = name, tensor.dtype = DType::f32;
    out.tensors.emplace(name, std::move(tensor));
  }
  return out;
}

}  // namespace samestate
