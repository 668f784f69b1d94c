#include "harness/captured/captured_heads.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "fixtures/quote.h"
#include "harness/cases/declared_limits.h"
#include "harness/cases/system.h"
#include "harness/run/judge_batch.h"
#include "oracles/contracts.h"

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

Format format_of(DType dtype, std::string_view tensor) {
  if (dtype == DType::f32) return Format::fp32;
  if (dtype == DType::bf16) return Format::bf16;
  if (dtype == DType::f16) return Format::fp16;
  differs("{} is {}: contracts have F32, BF16 and F16", quote(tensor, 60), name_of(dtype));
}

std::string_view word_of(Format format) {
  return format == Format::bf16 ? "bf16" : format == Format::fp16 ? "fp16" : "fp32";
}

/// Returns true for the names alpha and decay, which say that the decay is given as the factor itself.
bool names_factor(std::string_view name) { return name == "alpha" || name == "decay"; }

/// The one chunk that limits allow for; 0 where they leave a choice.
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
    differs("nobody said what {} computes: --system and --form, or `python3 -m samestate.capture --declare`",
            function.name);
  return *function.declaration;
}

}  // namespace

CapturedHeads::CapturedHeads(const std::filesystem::path& folder, const CapturedCall& call,
                             const CapturedFunction& function, const CapturedWords& words)
    : call_(call),
      function_(function),
      conventions_(declaration_of(function).conventions),
      file_(read_safetensors(folder / call.file)) {
  require_as_recorded(file_, call);
  const Declaration& declaration = *function.declaration;
  family_ = &family_named(declaration.system);
  if (declaration.form != "chunked" && declaration.form != "recurrent")
    differs("form {}: recorded calls are of the forms chunked and recurrent", declaration.form);
  for (const auto& [name, held] : function.options) {
    const auto found = call.values.find(name);
    if (found != call.values.end() && found->second != held && !std::holds_alternative<std::monostate>(held))
      differs("argument {} is not what the declaration holds for", quote(name, 60));
  }
  Case c;
  c.system = declaration.system, c.form = declaration.form;
  take_sizes(c);
  take_lengths(c);
  take_settings(c, words);
  take_outputs(c);
  require_all_named(words);
  c.contract = contract(words);
  try {
    resolved_.emplace(c);
    Case called = c;
    const std::string_view broken = DeclaredLimits(declaration.limits, *resolved_->system).broken_by(called);
    if (!broken.empty()) differs("outside the declared limit {}", broken);
  } catch (const Error& error) {
    throw CapturedMismatch(error.what());
  }
  const bool initial = !initial_.empty();
  shape_ = batch_shape_of(*resolved_);
  shape_.initial_state = initial;
  if (!lengths_.empty()) {
    for (std::int64_t& offset : shape_.offsets) offset += c.lead;
    shape_.T = c.T + c.lead + c.slack;
  }
  Given& given = shape_.given;
  const std::string decay = argument_of(call_, function_, "g");
  given.decay = function.declaration->conventions.decay;
  const std::vector<std::string>& said = declaration.said;
  if (names_factor(decay) && std::ranges::find(said, "decay") == said.end())
    given.decay = Given::Decay::linear;
  given.strength = conventions_.beta;
  take_norm(given);
}

void CapturedHeads::take_norm(Given& given) const {
  given.norm = conventions_.norm_place;
  given.norm_epsilon = conventions_.norm_epsilon;
  const CapturedValue* const own = value("epsilon");
  if (own == nullptr || !shape_.l2norm) return;
  const double* const number = std::get_if<double>(own);
  if (number == nullptr || !(*number >= kLeastEpsilon && *number <= kLargestEpsilon))
    differs("argument {} is no epsilon from {:g} to {:g}", argument_of(call_, function_, "epsilon"),
            kLeastEpsilon, kLargestEpsilon);
  given.norm_epsilon = *number;
}

std::string CapturedHeads::tensor(std::string_view ours, bool required) {
  const std::string name = argument_of(call_, function_, ours);
  std::string in_file = "argument." + name;
  if (!name.empty() && call_.tensors.contains(in_file)) return in_file;
  if (!required) return "";
  std::vector<std::string_view> there;
  for (const auto& [known, unused] : call_.tensors) {
    if (known.starts_with("argument.")) there.push_back(std::string_view(known).substr(9));
  }
  differs("no tensor for {}: --argument {}=NAME; there are {}", ours, ours, fmt::join(there, ", "));
}

const CapturedValue* CapturedHeads::value(std::string_view ours) const {
  const auto found = call_.values.find(argument_of(call_, function_, ours));
  if (found == call_.values.end() || std::holds_alternative<std::monostate>(found->second)) return nullptr;
  return &found->second;
}

void CapturedHeads::take_sizes(Case& c) {
  q_ = tensor("q", true), k_ = tensor("k", true), v_ = tensor("v", true);
  g_ = family_->gated ? tensor("g", true) : "";
  beta_ = family_->delta ? tensor("beta", true) : "";
  initial_ = tensor("initial_state", false);
  lengths_ = tensor("cu_seqlens", false);
  const bool flat = conventions_.layout == Conventions::Tokens::THD;
  const bool heads_first = conventions_.layout == Conventions::Tokens::BHTD;
  // [B, T, H, D] of a tensor whatever its layout.
  const auto sizes = [&](const std::string& name, bool width) {
    std::vector<std::int64_t> shape = file_.shape(name);
    const std::size_t rank = (flat ? 2U : 3U) + (width ? 1U : 0U);
    if (shape.size() != rank)
      differs("{} is {}, and a tensor of rank {} is declared (layout)", quote(name), shape_text(shape), rank);
    if (flat) shape.insert(shape.begin(), 1);
    if (heads_first) std::swap(shape[1], shape[2]);
    return shape;
  };
  const std::vector<std::int64_t> q = sizes(q_, true), k = sizes(k_, true), v = sizes(v_, true);
  c.B = q[0], c.T = q[1], c.Hk = q[2], c.dk = q[3], c.Hv = v[2], c.dv = v[3];
  if (k != q) differs("k is {} and q {}: they are alike", shape_text(k), shape_text(q));
  if (v[0] != c.B || v[1] != c.T)
    differs("v is {} and q {}: they have the same batch and tokens", shape_text(v), shape_text(q));
  for (const std::string& name : {g_, beta_}) {
    if (name.empty()) continue;
    if (const std::vector<std::int64_t> x = sizes(name, false); x != std::vector{c.B, c.T, c.Hv})
      differs("{} is {}, and {} is asked for", quote(name), shape_text(x), shape_text({c.B, c.T, c.Hv}));
  }
  if (std::min({c.B, c.Hk, c.Hv, c.dk, c.dv}) < 1)
    differs("q is {} and v {}: nothing to judge", shape_text(q), shape_text(v));
}

void CapturedHeads::take_lengths(Case& c) {
  if (lengths_.empty()) {
    if (conventions_.layout == Conventions::Tokens::THD)
      differs("layout THD, and the call has no cu_seqlens");
    return;
  }
  const DType dtype = file_.dtype(lengths_);
  if (dtype != DType::i32 && dtype != DType::i64)
    differs("cu_seqlens is {}: I32 or I64 is asked for", name_of(dtype));
  const std::vector<double>& ends = file_.tensor(lengths_).values;
  if (file_.shape(lengths_).size() != 1 || ends.size() < 2 || c.B != 1)
    differs("cu_seqlens is {} of a batch of {}: [N + 1] of one row is asked for",
            shape_text(file_.shape(lengths_)), c.B);
  if (!std::is_sorted(ends.begin(), ends.end()) || ends.front() < 0 || ends.back() > static_cast<double>(c.T))
    differs("cu_seqlens runs from {} to {} of {} tokens, and never down", ends.front(), ends.back(), c.T);
  for (std::size_t n = 0; n + 1 < ends.size(); ++n)
    c.lengths.push_back(static_cast<std::int64_t>(ends[n + 1] - ends[n]));
  c.lead = static_cast<std::int64_t>(ends.front());
  c.slack = c.T - static_cast<std::int64_t>(ends.back());
  c.T -= c.lead + c.slack;
}

void CapturedHeads::take_settings(Case& c, const CapturedWords& words) {
  using enum Conventions::Norm;
  const bool chunked = c.form == "chunked";
  if (chunked) {
    const auto* const own = value("chunk");
    c.chunk = words.chunk > 0 ? words.chunk : chunk_of(function_.declaration->limits);
    if (const double* const number = own != nullptr ? std::get_if<double>(own) : nullptr;
        number != nullptr && words.chunk == 0 && *number >= 1 && *number <= 1 << 20)
      c.chunk = static_cast<std::int64_t>(*number);
    if (c.chunk < 1)
      differs("{}", "the tokens of its chunks are neither an argument nor a limit: --chunk 64");
  } else {
    c.chunk = lengths_.empty() ? Case{}.chunk : 0;
  }
  if (!lengths_.empty()) c.form = "packed";
  const CapturedValue* const norm = value("l2norm");
  c.l2norm = conventions_.l2norm == in_kernel ||
             (conventions_.l2norm == argument && norm != nullptr &&
              ((std::holds_alternative<bool>(*norm) && std::get<bool>(*norm)) ||
               (std::holds_alternative<double>(*norm) && std::get<double>(*norm) != 0.0)));
  if (conventions_.heads == Conventions::Heads::tiled) c.heads = HeadMap::tiled;
  if (const CapturedValue* const map = value("head_map"); map != nullptr &&
                                                          conventions_.heads == Conventions::Heads::both &&
                                                          *map == CapturedValue(std::string("tiled")))
    c.heads = HeadMap::tiled;
  double scale = 1.0 / std::sqrt(static_cast<double>(c.dk));
  const double usual = scale;
  if (conventions_.scale == Conventions::Scale::dv) scale = 1.0 / std::sqrt(static_cast<double>(c.dv));
  if (conventions_.scale == Conventions::Scale::folded) scale = 1.0;
  if (const CapturedValue* const own = value("scale");
      own != nullptr && conventions_.scale == Conventions::Scale::argument) {
    const double* const number = std::get_if<double>(own);
    if (number == nullptr) differs("{}", "scale is no number");
    scale = *number;
  }
  if (static_cast<float>(scale) != static_cast<float>(usual))
    c.scale = static_cast<double>(static_cast<float>(scale));
}

void CapturedHeads::take_outputs(Case& c) {
  o_ = output_of(call_, function_, 0, "o");
  const std::vector<std::int64_t>& wanted = file_.shape(v_);
  if (o_.empty()) {
    if (!returned_none(call_, 0))
      differs("{}", "no result is o, which is asked for first or by name: --argument o=NAME");
    fault_ = "the call returned None where o is asked for";
  } else if (file_.shape(o_) != wanted) {
    if (count_of(file_.shape(o_)) == count_of(wanted))
      differs("o is {}, and {} is asked for, as v is: is another layout meant?", shape_text(file_.shape(o_)),
              shape_text(wanted));
    fault_ =
        fmt::format("o is {}, and {} is asked for, as v is", shape_text(file_.shape(o_)), shape_text(wanted));
    o_.clear();
  }
  take_state(c);
}

void CapturedHeads::take_state(Case& c) {
  const CapturedValue* const wish = value("output_final_state");
  const bool wished =
      wish != nullptr && (*wish == CapturedValue(true) ||
                          (std::holds_alternative<double>(*wish) && std::get<double>(*wish) != 0.0));
  const bool unwished = wish != nullptr && !wished;
  const bool in_place = conventions_.state == Conventions::State::in_place;
  if (in_place && !initial_.empty()) {
    const std::string after = "after." + argument_of(call_, function_, "initial_state");
    final_ = call_.tensors.contains(after) ? after : initial_;
  } else if (!unwished) {
    final_ = output_of(call_, function_, 1, "final_state");
    if (final_.empty() && wished && fault_.empty())
      fault_ = fmt::format("{} is True, and the call returned no final state",
                           argument_of(call_, function_, "output_final_state"));
  }
  const std::int64_t N = lengths_.empty() ? c.B : std::ssize(c.lengths);
  const std::vector<std::int64_t> state =
      conventions_.values_first ? std::vector{N, c.Hv, c.dv, c.dk} : std::vector{N, c.Hv, c.dk, c.dv};
  for (const auto& [name, tensor] : {std::pair{"initial_state", &initial_}, {"final_state", &final_}}) {
    if (tensor->empty() || file_.shape(*tensor) == state) continue;
    const std::string wrong = fmt::format("{} is {}, and {} is asked for", name,
                                          shape_text(file_.shape(*tensor)), shape_text(state));
    if (tensor == &initial_ || count_of(file_.shape(*tensor)) == count_of(state))
      differs("{}: are others declared (state kv or vk)?", wrong);
    if (fault_.empty()) fault_ = wrong;
    tensor->clear();
  }
  if (!initial_.empty()) c.state = "random";
  if (final_.empty()) c.final_state = "none";
}

std::string CapturedHeads::contract(const CapturedWords& words) const {
  const Format q = format_of(file_.dtype(q_), "q"), k = format_of(file_.dtype(k_), "k"),
               v = format_of(file_.dtype(v_), "v");
  std::vector<Format> outputs;  // none where o is missing
  if (!o_.empty()) outputs.push_back(format_of(file_.dtype(o_), "o"));
  std::vector<Format> states;
  for (const std::string& name : {initial_, final_}) {
    if (!name.empty()) states.push_back(format_of(file_.dtype(name), name));
  }
  for (const auto& [name, tensor] : {std::pair{"g", &g_}, {"beta", &beta_}}) {
    if (!tensor->empty()) (void)format_of(file_.dtype(*tensor), name);
  }
  // An input may have fewer bits than the contract takes, an output more.
  const auto fits = [&](const Contract& contract, bool exactly) {
    const auto input = [&](Format is) {
      return is == contract.input || (!exactly && contract.input == Format::fp32);
    };
    const auto output = [&](Format is, Format asked) {
      return is == asked || (!exactly && is == Format::fp32);
    };
    return input(q) && input(k) && input(v) &&
           std::ranges::all_of(outputs, [&](Format is) { return output(is, contract.output); }) &&
           std::ranges::all_of(states, [&](Format is) { return output(is, contract.state); });
  };
  const std::vector<std::string> names =
      words.contract.empty() ? function_.declaration->contracts : std::vector{words.contract};
  for (const bool exactly : {true, false}) {
    for (const std::string& name : names) {
      if (fits(contract_named(name), exactly)) return contract_named(name).name;
    }
  }
  differs("none of the contracts {} has the recorded dtypes (q {}, k {}, v {}, o {}{}): --contract NAME",
          fmt::join(names, ", "), word_of(q), word_of(k), word_of(v),
          outputs.empty() ? "none" : word_of(outputs.front()),
          states.empty() ? "" : fmt::format(", states {}", word_of(states.back())));
}

void CapturedHeads::require_all_named(const CapturedWords& words) {
  for (const auto& [name, unused] : call_.tensors) {
    if (name.starts_with("after.") && name != final_ && !words.ignored.contains(name.substr(6)))
      edited_ = name.substr(6);
  }
  for (const auto& [name, unused] : call_.tensors) {
    if (!name.starts_with("argument.") || words.ignored.contains(name.substr(9))) continue;
    const std::array read{&q_, &k_, &v_, &g_, &beta_, &initial_, &lengths_};
    if (std::ranges::none_of(read, [&](const std::string* one) { return *one == name; }))
      differs(
          "argument {0} is a tensor that the declaration does not name: --argument OURS={0}, or --ignore {0} "
          "where it changes nothing of what is computed",
          name.substr(9));
  }
  require_values_read(call_, function_,
                      {"q", "k", "v", "g", "beta", "initial_state", "cu_seqlens", "scale", "chunk", "l2norm",
                       "head_map", "output_final_state", "epsilon"},
                      words.ignored);
}

}  // namespace samestate
