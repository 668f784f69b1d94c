#include "harness/card/probe.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "harness/run/judge_batch.h"
#include "oracles/contracts.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

/// Significant bits of the data: eight, which no format rounds, or all bits of the input's format.
int bits_of(Format input, bool all) {
  return !all || input == Format::bf16 ? 8 : input == Format::fp16 ? 11 : 24;
}

/// Returns a magnitude in [1/2, 2) with `significant` significant bits.
float magnitude(std::mt19937_64& random, int significant) {
  const double steps = std::exp2(significant - 1);
  const auto bits = static_cast<double>(random() % static_cast<std::uint64_t>(steps));
  return static_cast<float>((1.0 + bits / steps) * (random() % 2 == 0 ? 0.5 : 1.0));
}

float signed_magnitude(std::mt19937_64& random, int significant) {
  return magnitude(random, significant) * (random() % 2 == 0 ? 1.0F : -1.0F);
}

/// Describes the data of a probe.
struct Recipe {
  std::string_view name;
  Shows shows;
  bool apart = true;  ///< each key has two channels of its own: A = 0, T = I
  bool fine = false;  ///< q, k and v have all bits of their format
  enum class Beta { one, zero, drawn } beta = Beta::one;
  bool gated = false;
  bool state = false;
  bool l2norm = false;
  int chunks = 1;
  /// Places where fp16 has fewer bits than tf32: small q meets large k or the reverse, or v is small. Both
  /// formats hold 11 bits of numbers that are not small.
  enum class Small { nothing, keys, values } small = Small::nothing;
};

/// Numbers of which fp16 holds about 7 bits, and their counterparts, whose products with them fp16 holds
/// completely.
constexpr float kSmall = 0x1p-17F, kLarge = 0x1p5F;

/// Channels come in pairs, one pair per key where keys are apart: in every other pair q is small, in the rest
/// k is.
float size_of_channel(std::int64_t channel, bool of_q) {
  return (channel / 2 % 2 == 0) == of_q ? kSmall : kLarge;
}

class Maker {
 public:
  Maker(const KernelRow& kernel, std::string_view contract)
      : kernel_(kernel), contract_(contract_named(contract)), family_(family_named(kernel.system->name)) {}

  [[nodiscard]] Probe make(const Recipe& recipe) {
    Probe probe;
    probe.name = recipe.name;
    probe.shows = recipe.shows;
    Case& c = probe.c;
    c = kernel_.system->standard();
    c.form = kernel_.form;
    c.contract = contract_.name;
    c.kernel = kernel_.name;
    c.chunk = kChunk;
    c.dk = c.dv = kWidth;
    c.state = recipe.state ? "random" : "none";
    c.l2norm = recipe.l2norm;
    c.scale = 0.375;  // not a power of two, so that it rounds what it multiplies; it has three bits
    const bool chunked = kernel_.system->form(kernel_.form)->chunked;
    c.T = chunked ? (recipe.apart ? kWidth / 2 : kChunk) : 32;
    c = kernel_.limits.nearest(std::move(c));
    if (recipe.chunks > 1) c.T = recipe.chunks * std::max<std::int64_t>(c.chunk, 16) + 5;
    if (recipe.apart) c.T = std::min(c.T, c.dk / 2);
    c = kernel_.limits.nearest(std::move(c));
    const Resolved r(c);
    probe.batch = batch_of(r, family_);
    if (kernel_.given) probe.batch.shape.given = kernel_.given(r.promised);
    fill(probe.batch, recipe);
    return probe;
  }

 private:
  static constexpr std::int64_t kWidth = 64;
  static constexpr std::int64_t kChunk = 64;

  void fill(Batch& batch, const Recipe& recipe) {
    const BatchShape& s = batch.shape;
    std::mt19937_64 random(0x5eedULL + static_cast<std::uint64_t>(recipe.name.size()));
    using enum Recipe::Small;
    const int bits = recipe.small != nothing ? std::min(11, bits_of(contract_.input, true))
                                             : bits_of(contract_.input, recipe.fine);
    for (std::vector<float>* x : {&batch.q, &batch.v}) {
      for (float& value : *x) value = signed_magnitude(random, bits);
    }
    // Keys have a length near one whatever the kernel's norm is; the factor is a power of two.
    const auto small =
        static_cast<float>(std::exp2(-std::round(std::log2(std::sqrt(static_cast<double>(s.dk))))));
    for (std::int64_t t = 0; t < s.B * s.T; ++t) {
      for (std::int64_t h = 0; h < s.Hk; ++h) {
        float* k = batch.k.data() + (t * s.Hk + h) * s.dk;
        for (std::int64_t l = 0; l < s.dk; ++l) {
          const bool own = l / 2 == t % std::max<std::int64_t>(s.dk / 2, 1);
          const float value = signed_magnitude(random, bits);
          k[l] = !recipe.apart ? value * small * (recipe.l2norm ? 8.0F : 1.0F) : own ? value * 0.5F : 0.0F;
          if (recipe.small == keys) k[l] *= size_of_channel(l, false);
        }
        // Neighbours share a direction, so that T is far from the identity.
        if (!recipe.apart && t % 3 != 0) {
          for (std::int64_t l = 0; l < s.dk; l += 2) k[l] = (k - s.Hk * s.dk)[l];
        }
      }
    }
    const auto dk = static_cast<std::size_t>(s.dk);
    for (std::size_t i = 0; recipe.small == keys && i < batch.q.size(); ++i)
      batch.q[i] *= size_of_channel(static_cast<std::int64_t>(i % dk), true);
    for (float& v : batch.v) v *= recipe.small == values ? kSmall : 1.0F;
    for (float& g : batch.g)
      g = recipe.gated ? -0.01F - 0.3F * static_cast<float>(random() % 1000003) / 1000003.0F : 0.0F;
    for (float& b : batch.beta) {
      const float drawn = 0.15F + 0.8F * static_cast<float>(random() % 1000003) / 1000003.0F;
      b = recipe.beta == Recipe::Beta::one ? 1.0F : recipe.beta == Recipe::Beta::zero ? 0.0F : drawn;
    }
    const bool wide = contract_.state == Format::fp32;
    for (float& x : batch.initial_state) x = signed_magnitude(random, wide ? 24 : 8);
  }

  const KernelRow& kernel_;
  const Contract& contract_;
  const Family& family_;
};

}  // namespace

std::vector<Probe> probes_of(const KernelRow& kernel, std::string_view contract) {
  using enum Recipe::Beta;
  const Family& family = family_named(kernel.system->name);
  const bool chunked = kernel.system->form(kernel.form)->chunked;
  const Format input = contract_named(contract).input;
  const bool fp32 = input == Format::fp32, finer = input != Format::bf16;
  std::vector<Recipe> recipes;
  if (chunked) {
    recipes.push_back({"keys apart", Shows::scores});
    if (finer)
      recipes.push_back({fp32 ? "keys apart, 24 bits" : "keys apart, 11 bits", Shows::scores, true, true});
    recipes.push_back({"nothing written", Shows::state, true, false, family.delta ? zero : one, false, true});
    if (family.gated) {
      recipes.push_back(
          {"nothing written, decaying", Shows::state, true, false, family.delta ? zero : one, true, true});
      recipes.push_back({"keys apart, decaying", Shows::writes, true, false, one, true});
    }
    if (family.delta) {
      recipes.push_back({"keys apart, beta drawn", Shows::writes, true, false, drawn});
      recipes.push_back({"keys shared, no state", Shows::inverse, false, false, drawn});
      recipes.push_back({"keys apart, a state", Shows::reads, true, false, drawn, false, true});
      recipes.push_back({"keys shared, a state", Shows::reads, false, false, drawn, false, true});
      if (family.gated)
        recipes.push_back({"keys shared, decaying", Shows::reads, false, false, drawn, true, true});
    }
  }
  recipes.push_back({"in-kernel norm", Shows::norm, chunked, false, drawn, false, false, true});
  recipes.push_back({"several chunks", Shows::all, false, false, drawn, family.gated, true, false, 3});
  if (finer) {
    recipes.push_back({fp32 ? "several chunks, 24 bits" : "several chunks, 11 bits", Shows::all, false, true,
                       drawn, family.gated, true, false, 3});
  }
  recipes.push_back({"several chunks, norm", Shows::norm, false, false, drawn, family.gated, true, true, 2});
  if (input != Format::fp16) {
    for (const auto& [name, small] :
         {std::pair{"small q and k", Recipe::Small::keys}, std::pair{"small v", Recipe::Small::values}}) {
      Recipe recipe{name, Shows::scores};
      recipe.small = small;
      recipes.push_back(recipe);
    }
  }
  Maker maker(kernel, contract);
  std::vector<Probe> out;
  for (const Recipe& recipe : recipes) out.push_back(maker.make(recipe));
  return out;
}

bool shown_by(Shows shows, std::string_view point) {
  const auto among = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), point) != names.end();
  };
  const bool scores = among({"qk", "P", "scale_in_P", "v_new"});
  const bool writes = among({"beta_v", "beta_in_T", "T", "residual", "U", "v_new", "v_decayed", "k_decayed",
                             "exponential", "log2e", "scan", "q_decayed"});
  const bool inverse =
      among({"beta_k", "A", "inverse", "merges", "T", "beta_in_T", "beta_v", "residual", "U"});
  switch (shows) {
    case Shows::scores:
      return scores;
    case Shows::state:
      return scores || among({"state_operand", "q_decayed", "scale_in_P"});
    case Shows::writes:
      return scores || writes;
    case Shows::inverse:
      return inverse || among({"v_new", "v_decayed"});
    case Shows::reads:
      return inverse || writes || among({"beta_exp_k", "W", "state_operand", "q_decayed", "accumulator"});
    case Shows::norm:
      return among({"norm", "qk"});
    case Shows::all:
      break;
  }
  return true;
}

}  // namespace samestate
