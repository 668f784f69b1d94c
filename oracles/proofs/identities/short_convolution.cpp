#include "reference/short_convolution.h"

#include <algorithm>

#include "oracles/proofs/identities/draw.h"
#include "oracles/proofs/identities/groups.h"
#include "reference/scalars.h"

namespace samestate::short_convolution_identities {
namespace {

constexpr Index kTokens = 9;
constexpr Index kChannels = 3;
constexpr Index kKernel = 4;

/// Inputs of every identity here. Mamba's convolution has a bias, so this one has.
template <class Scalar>
struct Data {
  Matrix<Scalar> x, kernel, state;
  Vector<Scalar> bias;
  explicit Data(std::uint64_t seed) {
    IdentityDraw<Scalar> draw(seed);
    x = draw.normal(kTokens, kChannels);
    kernel = draw.normal(kChannels, kKernel);
    state = draw.normal(kKernel - 1, kChannels);
    bias = draw.normal_vector(kChannels);
  }
  [[nodiscard]] Convolved<Scalar> whole() const { return short_convolution(x, kernel, bias, state); }
};

template <class Scalar>
double difference(const Convolved<Scalar>& a, const Convolved<Scalar>& b) {
  return std::max(relative_difference(a.y, b.y), relative_difference(a.state, b.state));
}

/// Segments [cut, next cut) one after another; `carry` makes the next state out of a segment's outcome.
template <class Scalar, class Carry>
Convolved<Scalar> in_segments(const Data<Scalar>& d, const std::vector<Index>& cuts, Carry&& carry) {
  Convolved<Scalar> out{Matrix<Scalar>(d.x.rows(), d.x.cols()), d.state};
  Index begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const Index end = i < cuts.size() ? cuts[i] : d.x.rows();
    const Matrix<Scalar> segment = d.x.middleRows(begin, end - begin);
    const Convolved<Scalar> part = short_convolution(segment, d.kernel, d.bias, out.state);
    out.y.middleRows(begin, end - begin) = part.y;
    out.state = carry(part);
    begin = end;
  }
  return out;
}

std::vector<Index> every_token() {
  std::vector<Index> cuts;
  for (Index t = 1; t < kTokens; ++t) cuts.push_back(t);
  return cuts;
}

template <class Scalar>
Matrix<Scalar> carried(const Convolved<Scalar>& part) {
  return part.state;
}

}  // namespace

std::vector<Identity> rows() {
  using enum Expectation;
  constexpr std::string_view kSystem = "short_convolution";
  return {
      {"EQ-12", "convolution_decode", kSystem, "prefill = token by token, state included (CONV-5)", exact,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         return difference(in_segments(d, every_token(), carried<Scalar>), d.whole());
       }},
      {"EQ-12", "convolution_any_split", kSystem, "prefill = any two cuts, also into less than W - 1 tokens",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         double worst = 0.0;
         for (Index a = 0; a <= kTokens; ++a) {
           for (Index b = a; b <= kTokens; ++b) {
             worst = std::max(worst, difference(in_segments(d, {a, b}, carried<Scalar>), d.whole()));
           }
         }
         return worst;
       }},
      // As public code does it: W - 1 zeros on BOTH sides, and the first T outputs kept (CONV-3).
      {"EQ-12", "convolution_padded_both_sides", kSystem,
       "state of zeros = W - 1 zeros on both sides, first T outputs kept (CONV-3)", exact,
       []<class Scalar>(std::uint64_t seed) {
         Data<Scalar> d(seed);
         d.state.setZero();
         Matrix<Scalar> padded = Matrix<Scalar>::Zero(kTokens + 2 * (kKernel - 1), kChannels);
         padded.middleRows(kKernel - 1, kTokens) = d.x;
         Matrix<Scalar> all(kTokens + kKernel - 1, kChannels);
         for (Index t = 0; t < all.rows(); ++t) {
           for (Index c = 0; c < kChannels; ++c) {
             Scalar sum = d.bias(c);
             for (Index j = 0; j < kKernel; ++j) sum += d.kernel(c, j) * padded(t + j, c);
             all(t, c) = silu(sum);
           }
         }
         const Matrix<Scalar> first = all.topRows(kTokens);
         return relative_difference(first, d.whole().y);
       }},
      // Upstream's state has W columns: pad(x, (W - T, 0)), a negative pad crops; a step shifts it and reads all W
      // (CONV-5). The oldest column is never read again.
      {"EQ-12", "convolution_state_of_width_w", kSystem,
       "state of W - 1 inputs = upstream's shifted state of W (CONV-4, CONV-5)", exact,
       []<class Scalar>(std::uint64_t seed) {
         Data<Scalar> d(seed);
         d.state.setZero();
         const Convolved<Scalar> whole = d.whole();
         double worst = 0.0;
         for (Index prefill = 0; prefill < kTokens; ++prefill) {
           Matrix<Scalar> state = Matrix<Scalar>::Zero(kKernel, kChannels);
           const Index kept = std::min(prefill, kKernel);
           state.bottomRows(kept) = d.x.middleRows(prefill - kept, kept);
           Matrix<Scalar> y(kTokens - prefill, kChannels);
           for (Index t = prefill; t < kTokens; ++t) {
             const Matrix<Scalar> newest = state.bottomRows(kKernel - 1);
             state.topRows(kKernel - 1) = newest;
             state.row(kKernel - 1) = d.x.row(t);
             for (Index c = 0; c < kChannels; ++c) {
               Scalar sum = d.bias(c);
               for (Index j = 0; j < kKernel; ++j) sum += d.kernel(c, j) * state(j, c);
               y(t - prefill, c) = silu(sum);
             }
           }
           const Matrix<Scalar> expected = whole.y.bottomRows(kTokens - prefill);
           worst = std::max(worst, relative_difference(y, expected));
           const Matrix<Scalar> last = state.bottomRows(kKernel - 1);
           worst = std::max(worst, relative_difference(last, whole.state));
         }
         return worst;
       }},
      {"EQ-12", "convolution_channels_apart", kSystem, "one depthwise convolution = each channel by itself",
       exact,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         Convolved<Scalar> apart{Matrix<Scalar>(kTokens, kChannels), Matrix<Scalar>(kKernel - 1, kChannels)};
         for (Index c = 0; c < kChannels; ++c) {
           const Matrix<Scalar> x = d.x.col(c);
           const Matrix<Scalar> kernel = d.kernel.row(c);
           const Vector<Scalar> bias = d.bias.segment(c, 1);
           const Matrix<Scalar> state = d.state.col(c);
           const Convolved<Scalar> one = short_convolution(x, kernel, bias, state);
           apart.y.col(c) = one.y;
           apart.state.col(c) = one.state;
         }
         return difference(apart, d.whole());
       }},
      // The sum is a product with a band of the kernel: T x (T + W - 1), constant along its diagonals.
      {"EQ-12", "convolution_band_matrix", kSystem, "loop over the kernel = product with its band matrix",
       equal,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         Matrix<Scalar> history(kTokens + kKernel - 1, kChannels);
         history << d.state, d.x;
         Matrix<Scalar> y(kTokens, kChannels);
         for (Index c = 0; c < kChannels; ++c) {
           Matrix<Scalar> band = Matrix<Scalar>::Zero(kTokens, history.rows());
           for (Index t = 0; t < kTokens; ++t) band.row(t).segment(t, kKernel) = d.kernel.row(c);
           const Vector<Scalar> column = history.col(c);
           y.col(c) = band * column;
         }
         y.rowwise() += d.bias.transpose();
         return relative_difference(silu(y), d.whole().y);
       }},
      // Only the last input carried: "the stride size" (CONV-4, E-31).
      {"NC-one-vector-cache", "convolution_one_vector_cache", kSystem,
       "decode that carries 1 input, not W - 1 (CONV-4, E-31)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         const auto last_only = [](const Convolved<Scalar>& part) {
           Matrix<Scalar> state = Matrix<Scalar>::Zero(kKernel - 1, kChannels);
           state.row(kKernel - 2) = part.state.row(kKernel - 2);
           return state;
         };
         return relative_difference(in_segments(d, every_token(), last_only).y, d.whole().y);
       }},
      {"NC-flipped-kernel", "convolution_flipped_kernel", kSystem,
       "a true convolution: the kernel reversed (CONV-3)", differs,
       []<class Scalar>(std::uint64_t seed) {
         Data<Scalar> d(seed);
         const Matrix<Scalar> y = d.whole().y;
         const Matrix<Scalar> flipped = d.kernel.rowwise().reverse();
         d.kernel = flipped;
         return relative_difference(d.whole().y, y);
       }},
      // The last outputs carried in place of the last inputs (CONV-5).
      {"NC-outputs-as-state", "convolution_outputs_as_state", kSystem,
       "state of outputs, not of inputs (CONV-5)", differs,
       []<class Scalar>(std::uint64_t seed) {
         const Data<Scalar> d(seed);
         std::vector<Index> cuts{4};
         const auto outputs = [](const Convolved<Scalar>& part) {
           return Matrix<Scalar>(part.y.bottomRows(std::min(part.y.rows(), kKernel - 1)));
         };
         return relative_difference(in_segments(d, cuts, outputs).y, d.whole().y);
       }},
      {"NC-convolution-state-ignored", "convolution_state_ignored", kSystem,
       "zero padding although a state is given", differs,
       []<class Scalar>(std::uint64_t seed) {
         Data<Scalar> d(seed);
         const Matrix<Scalar> y = d.whole().y;
         d.state.setZero();
         return relative_difference(d.whole().y, y);
       }},
      // Shifted by one token, as with padding on both sides and the LAST outputs kept: it sees the next token.
      {"NC-convolution-ahead", "convolution_one_ahead", kSystem,
       "a kernel that reaches one token ahead (CONV-7)", differs,
       []<class Scalar>(std::uint64_t seed) {
         Data<Scalar> d(seed);
         const Matrix<Scalar> y = d.whole().y;
         Matrix<Scalar> later = Matrix<Scalar>::Zero(kTokens, kChannels);
         later.topRows(kTokens - 1) = d.x.bottomRows(kTokens - 1);
         d.x = later;
         return relative_difference(d.whole().y, y);
       }},
  };
}

}  // namespace samestate::short_convolution_identities
