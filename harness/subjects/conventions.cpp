#include "harness/subjects/conventions.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "oracles/given_words.h"

namespace samestate {
namespace {

using C = Conventions;

template <auto member>
void put(C& conventions, int value) {
  auto& of = conventions.*member;
  of = static_cast<std::remove_reference_t<decltype(of)>>(value);
}

/// Returns the words of a table that is kept elsewhere or here.
template <class Words>
std::vector<ConventionValue> words(const Words& rows) {
  std::vector<ConventionValue> out;
  for (const auto& [word, value, gives] : rows) out.push_back({word, gives, static_cast<int>(value)});
  return out;
}

template <class T>
std::vector<ConventionValue> words(std::initializer_list<GivenWord<T>> rows) {
  return words<std::initializer_list<GivenWord<T>>>(rows);
}

const std::vector<Convention>& table() {
  using enum ConventionOf;
  static const std::vector<Convention> rows = {
      {"decay", family, "g as given", words(kDecayWords), put<&C::decay>},
      {"state", family, "the states' axes",
       words<bool>({{"kv", false, "states [N, Hv, dk, dv]"},
                    {"vk", true,
                     "states [N, Hv, dv, dk], contiguous in that order where the case's are dense, also for "
                     "a subject "
                     "with `strided`"}}),
       put<&C::values_first>},
      {"heads", family, "which key head a value head reads",
       words<C::Heads>(
           {{"both", C::Heads::both, "the map, as an argument"},
            {"interleaved", C::Heads::interleaved,
             "value heads in the order in which neighbours share a key head"},
            {"tiled", C::Heads::tiled, "value heads in the order in which h reads key head h mod Hk"},
            {"repeated", C::Heads::repeated, "q and k repeated, so that Hk = Hv"}}),
       put<&C::heads>},
      {"l2norm", family, "the norm of q and k",
       words<C::Norm>({{"argument", C::Norm::argument, "an argument that asks for the norm or not"},
                       {"outside", C::Norm::outside, "q and k that it is never asked to normalise"},
                       {"in_kernel", C::Norm::in_kernel, "q and k that it always normalises"}}),
       put<&C::l2norm>},
      {"l2norm_place", family, "where a norm in the kernel has its epsilon", words(kNormPlaceWords),
       put<&C::norm_place>},
      {"l2norm_epsilon",
       family,
       "epsilon of a norm in the kernel, a number",
       {{"1e-6", "the norm's ε, a number from 1e-12 to 1e-2, outside the root from 1e-9"}}},
      {"scale", family, "the factor of q k",
       words<C::Scale>({{kFoldedWords[0].word, C::Scale::argument, kFoldedWords[0].gives},
                        {"dk", C::Scale::dk,
                         "no scale, since it has dk^-1/2 of its own: only cases of that scale are run"},
                        {"dv", C::Scale::dv,
                         "no scale, since it has dv^-1/2 of its own: only cases of that scale are run"},
                        {kFoldedWords[1].word, C::Scale::folded, kFoldedWords[1].gives}}),
       put<&C::scale>},
      {"beta", family, "beta as given", words(kStrengthWords), put<&C::beta>},
      {"layout", family, "the axes of tensors with tokens",
       words<C::Tokens>(
           {{"BTHD", C::Tokens::BTHD, "tensors with tokens as [B, T, H, D]"},
            {"BHTD", C::Tokens::BHTD, "tensors with tokens as [B, H, T, D]"},
            {"THD", C::Tokens::THD,
             "tensors with tokens as [T, H, D]: no batch, tokens end to end, `cu_seqlens` in every call"}}),
       put<&C::layout>},
      {"state_argument", family, "the initial state as an argument",
       words<C::State>(
           {{"optional", C::State::optional, "no initial state where it is zero"},
            {"required", C::State::required, "zeros where it is zero"},
            {"in_place", C::State::in_place,
             "zeros where it is zero, and `final_state` is the same memory, to be updated in place"}}),
       put<&C::state>},
      {"cu_seqlens", packed, "the offsets of packed sequences",
       words<Dtype>(
           {{"int64", Dtype::int64, "offsets of 64 bit"}, {"int32", Dtype::int32, "offsets of 32 bit"}}),
       put<&C::offsets>},
      {"null_slot", pool, "the slot of a request without a state",
       words<C::NullSlot>(
           {{"-1", C::NullSlot::minus_one, "-1 as the slot of a request without a state"},
            {"0", C::NullSlot::zero,
             "0 as that slot: each pool has one more row in front, which is NaN and belongs to no request, "
             "and its slots "
             "count from 1"},
            {"none", C::NullSlot::none,
             "one more row of zeros after those of the pool as that slot; its results are not judged"}}),
       put<&C::null_slot>},
      {"dtypes",
       every,
       "formats of tensors by name",
       {{"{}",
         "q, k and v in the contract's input format, o in its output's, states in its state's, everything "
         "else in fp32; "
         "or as named, `{\"g\": \"bf16\", \"q\": \"fp32\"}`: q, k, v, o and states may be wider than the "
         "contract says, not "
         "narrower"}}},
  };
  return rows;
}

}  // namespace

std::span<const Convention> conventions() { return table(); }

const Convention* convention_named(std::string_view key) {
  const auto found = std::ranges::find(table(), key, &Convention::key);
  return found == table().end() ? nullptr : &*found;
}

std::string_view name_of(ConventionOf of) {
  switch (of) {
    case ConventionOf::family:
      return "the recurrent family";
    case ConventionOf::packed:
      return "kernels that take packed batches";
    case ConventionOf::pool:
      return "systems with a pool of slots";
    case ConventionOf::every:
      break;
  }
  return "every system";
}

}  // namespace samestate
