#include "reference/layers/mamba.h"

#include <algorithm>
#include <string_view>

#include "oracles/proofs/identities/groups.h"
#include "oracles/proofs/identities/state_space_draw.h"
#include "reference/layers/mamba2.h"
#include "reference/scalars.h"

namespace samestate::state_space::layer_identities {
namespace {

constexpr Index kHidden = 6;

template <class Cache>
double cache_difference(const Cache& a, const Cache& b) {
  return std::max(relative_difference(a.convolution, b.convolution), relative_difference(a.state, b.state));
}

template <class Scalar>
struct Mamba {
  MambaWeights<Scalar> w;
  Matrix<Scalar> x;
  explicit Mamba(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    constexpr Index kInner = 5;
    constexpr Index kRank = 2;
    w.in_proj = draw.normal(2 * kInner, kHidden, 0.5);
    w.conv1d = draw.normal(kInner, 4, 0.5);
    w.conv1d_bias = draw.normal_vector(kInner);
    w.x_proj = draw.normal(kRank + 2 * kStates, kInner, 0.5);
    w.dt_proj = draw.normal(kInner, kRank, 0.5);
    w.dt_bias = draw.normal_vector(kInner);
    w.A_log = draw.normal(kInner, kStates, 0.5);
    w.skip = draw.normal_vector(kInner);
    w.out_proj = draw.normal(kHidden, kInner, 0.5);
    x = draw.normal(kTokens, kHidden);
  }
};

template <class Scalar>
struct Mamba2 {
  Mamba2Weights<Scalar> w;
  Matrix<Scalar> x;
  explicit Mamba2(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    constexpr Index kHeads = 4;
    constexpr Index kInner = kHeads * kChannels;
    w.groups = 2;
    w.in_proj = draw.normal(2 * kInner + 2 * 2 * kStates + kHeads, kHidden, 0.5);
    w.conv1d = draw.normal(kInner + 2 * 2 * kStates, 4, 0.5);
    w.conv1d_bias = draw.normal_vector(kInner + 2 * 2 * kStates);
    w.dt_bias = draw.normal_vector(kHeads);
    w.A_log = draw.normal_vector(kHeads, 0.5);
    w.skip = draw.normal_vector(kHeads);
    w.norm = draw.uniform_vector(kInner, 0.5, 1.5);
    w.out_proj = draw.normal(kHidden, kInner, 0.5);
    x = draw.normal(kTokens, kHidden);
  }
};

// --- EQ-18: the layers ----------------------------------------------------------------------------------

/// Cuts after every token; uneven ones, with an empty part and parts shorter than the convolution.
std::vector<std::vector<Index>> all_cuts() {
  return {{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, {0, 2, 2, 3, 9}};
}

// --- Negative controls ----------------------------------------------------------------------------------

template <class Scalar>
double norm_groups(std::uint64_t seed) {
  Mamba2<Scalar> layer(seed);
  const Matrix<Scalar> whole = mamba2(layer.x, layer.w, empty_mamba2_cache(layer.w)).out;
  layer.w.norm_groups = layer.w.groups;
  return relative_difference(mamba2(layer.x, layer.w, empty_mamba2_cache(layer.w)).out, whole);
}

}  // namespace

std::vector<Identity> rows() {
  constexpr std::string_view kMamba = "mamba";
  constexpr std::string_view kMamba2 = "mamba2";
  constexpr Expectation equal = Expectation::equal;
  constexpr Expectation differs = Expectation::differs;
  return {
      {"EQ-18", "mamba_decode", kMamba,
       "Blelloch prefill = single steps, and uneven parts: out, conv and ssm state", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Mamba<Scalar> layer(seed);
         const MambaOutput<Scalar> whole =
             mamba(layer.x, layer.w, empty_mamba_cache(layer.w), selective_scan_blelloch<Scalar>);
         double worst = 0.0;
         for (const std::vector<Index>& cuts : all_cuts()) {
           const MambaOutput<Scalar> parts = mamba_resumed(layer.x, layer.w, empty_mamba_cache(layer.w), cuts,
                                                           selective_scan_recurrent<Scalar>);
           worst = std::max({worst, relative_difference(parts.out, whole.out),
                             cache_difference(parts.cache, whole.cache)});
         }
         return worst;
       }},
      {"EQ-18", "mamba2_decode", kMamba2,
       "chunked prefill = single steps, and uneven parts: out, conv and ssm state", equal,
       []<class Scalar>(std::uint64_t seed) {
         const Mamba2<Scalar> layer(seed);
         const auto by_chunks = [](const StateSpaceHead<Scalar>& x) { return state_space_chunked(x, 5); };
         const Mamba2Output<Scalar> whole = mamba2(layer.x, layer.w, empty_mamba2_cache(layer.w), by_chunks);
         double worst = 0.0;
         for (const std::vector<Index>& cuts : all_cuts()) {
           const Mamba2Output<Scalar> parts = mamba2_resumed(layer.x, layer.w, empty_mamba2_cache(layer.w),
                                                             cuts, state_space_recurrent<Scalar>);
           worst = std::max({worst, relative_difference(parts.out, whole.out),
                             cache_difference(parts.cache, whole.cache)});
         }
         return worst;
       }},
      {"NC-mamba-no-convolution-bias", "mamba_no_convolution_bias", kMamba, "convolution without its bias",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         Mamba<Scalar> layer(seed);
         const Matrix<Scalar> right = mamba(layer.x, layer.w, empty_mamba_cache(layer.w)).out;
         layer.w.conv1d_bias.resize(0);
         return relative_difference(mamba(layer.x, layer.w, empty_mamba_cache(layer.w)).out, right);
       }},
      {"NC-mamba-no-step-bias", "mamba_no_step_bias", kMamba, "softplus(dt) without the bias", differs,
       []<class Scalar>(std::uint64_t seed) {
         Mamba<Scalar> layer(seed);
         const Matrix<Scalar> right = mamba(layer.x, layer.w, empty_mamba_cache(layer.w)).out;
         layer.w.dt_bias.setZero();
         return relative_difference(mamba(layer.x, layer.w, empty_mamba_cache(layer.w)).out, right);
       }},
      {"NC-mamba-lost-convolution", "mamba_lost_convolution_state", kMamba,
       "decode that carries the ssm state alone", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Mamba<Scalar> layer(seed);
         const MambaCache<Scalar> empty = empty_mamba_cache(layer.w);
         const Matrix<Scalar> head = layer.x.topRows(6);
         const Matrix<Scalar> tail = layer.x.bottomRows(kTokens - 6);
         MambaCache<Scalar> cache = mamba(head, layer.w, empty).cache;
         const Matrix<Scalar> right = mamba(tail, layer.w, cache).out;
         cache.convolution = empty.convolution;
         return relative_difference(mamba(tail, layer.w, cache).out, right);
       }},
      {"NC-mamba2-norm-order", "mamba2_norm_order", kMamba2, "norm, then gate; Mamba-2 gates first (5.1)",
       differs,
       []<class Scalar>(std::uint64_t seed) {
         const Mamba2<Scalar> layer(seed);
         const Mamba2Output<Scalar> right = mamba2(layer.x, layer.w, empty_mamba2_cache(layer.w));
         const Matrix<Scalar> normed = rms_norm_gated(right.y, right.z, layer.w.norm, layer.w.epsilon);
         return relative_difference(linear(normed, layer.w.out_proj), right.out);
       }},
      {"NC-mamba2-norm-groups", "mamba2_norm_groups", kMamba2,
       "a mean for each group, not one over all channels", differs,
       []<class Scalar>(std::uint64_t seed) { return norm_groups<Scalar>(seed); }},
      // Heads 0 1 2 3 on groups 0 1 0 1, where they belong on 0 0 1 1.
      {"NC-mamba2-tiled-groups", "mamba2_tiled_groups", kMamba2,
       "B and C of head h from group h mod G, not h / (H/G)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Mamba2<Scalar> layer(seed);
         const Mamba2Output<Scalar> right = mamba2(layer.x, layer.w, empty_mamba2_cache(layer.w));
         const Index Di = layer.w.inner();
         const Index GN = layer.w.group_width();
         StateSpaceHeads<Scalar> x{right.convolved.leftCols(Di),       right.delta,
                                   decay_rates<Scalar>(layer.w.A_log), right.convolved.middleCols(Di, GN),
                                   right.convolved.rightCols(GN),      layer.w.skip,
                                   Matrix<Scalar>::Zero(Di, kStates),  2};
         Matrix<Scalar> y(kTokens, Di);
         for (Index h = 0; h < x.heads(); ++h) {
           StateSpaceHead<Scalar> head = x.head(h);
           head.B = x.B.middleCols(h % 2 * kStates, kStates);
           head.C = x.C.middleCols(h % 2 * kStates, kStates);
           y.middleCols(h * kChannels, kChannels) = state_space_recurrent(head).y;
         }
         return relative_difference(y, right.y);
       }},
  };
}

}  // namespace samestate::state_space::layer_identities
