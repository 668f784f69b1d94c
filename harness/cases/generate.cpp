#include "harness/cases/generate.h"

#include <algorithm>
#include <functional>
#include <thread>
#include <vector>

#include "oracles/rounding.h"

namespace samestate {

BatchSource::BatchSource(std::uint64_t seed, std::int64_t width)
    : q(seed, "q"),
      k(seed, "k"),
      v(seed, "v"),
      g(seed, "g"),
      beta(seed, "beta"),
      state(seed, "state"),
      pick(seed, "pick"),
      gate(seed, "gate"),
      dk(width) {}

namespace {

/// Draws the inputs of one batch element by element: as the regime's row says, with no-ops where it asks for
/// them.
struct Elements {
  const FamilyDraws& draws;
  BatchSource source;
  bool normalises;  ///< true if the kernel normalises

  void zero_or(DrawnRow row, const Coordinates& at, RowOf make, TokenOf token, const Counter& own) const {
    if (draws.idle(source, at)) return std::fill(row.begin(), row.end(), 0.0);
    make(row, source, own, {at.sequence, token(source, at), at.head, 0});
  }

  void key(DrawnRow row, const Coordinates& at) const {
    zero_or(row, at, draws.key, draws.key_token, source.k);
    draws.key_length(row, normalises);
  }
  void query(DrawnRow row, const Coordinates& at) const {
    if (draws.query_is_key) return key(row, at);
    zero_or(row, at, draws.query, draws.query_token, source.q);
    draws.query_length(row, normalises);
  }
  void value(DrawnRow row, const Coordinates& at) const {
    zero_or(row, at, draws.value, draws.value_token, source.v);
    for (double& x : row) x *= draws.size;
  }
  [[nodiscard]] double number(NumberOf make, const Coordinates& at) const {
    return draws.idle(source, at) ? 0.0 : make(source, at);
  }
};

/// Calls work(begin, end) on `threads` threads for parts that together cover [0, count).
template <class Work>
void in_parts(std::int64_t count, int threads, const Work& work) {
  constexpr std::int64_t kLeast = 64;  // fewer elements are not worth a thread
  const std::int64_t parts = std::clamp<std::int64_t>(count / kLeast, 1, std::max(threads, 1));
  std::vector<std::jthread> helpers;
  for (std::int64_t i = 1; i < parts; ++i)
    helpers.emplace_back([&, i] { work(count * i / parts, count * (i + 1) / parts); });
  work(0, count / parts);
}

/// A [sequences or B, T, H, D] tensor filled row by row. Packed sequences count tokens from their own start.
void tensor(std::vector<float>& out, const Draw& draw, std::int64_t H, std::int64_t D, Format format,
            const std::function<void(DrawnRow, const Coordinates&)>& make) {
  const BatchShape& s = draw.shape;
  out.resize(static_cast<std::size_t>(s.B * s.T * H * D));
  // Inputs saturate at half the format's range: an infinite input is not a test of the kernel.
  const double largest = largest_finite(format) / 2;
  for (std::int64_t n = 0; n < s.sequences(); ++n) {
    const std::int64_t b = s.offsets.empty() ? n : 0;
    in_parts(s.end(n) - s.begin(n), draw.threads, [&](std::int64_t begin, std::int64_t end) {
      std::vector<double> row(static_cast<std::size_t>(D));
      for (std::int64_t t = begin; t < end; ++t) {
        for (std::int64_t h = 0; h < H; ++h) {
          make(row, {n, t, h, 0});
          float* at = out.data() + ((b * s.T + s.begin(n) + t) * H + h) * D;
          for (double x : row) *at++ = static_cast<float>(round_to(std::clamp(x, -largest, largest), format));
        }
      }
    });
  }
}

}  // namespace

Batch generate(const Draw& draw) {
  const BatchShape& s = draw.shape;
  const FamilyDraws& draws = draw.regime->family;
  const Elements elements{draws, BatchSource(draw.seed, s.dk), s.l2norm};
  Batch batch;
  batch.shape = s;
  const Format input = draw.contract->input;
  tensor(batch.q, draw, s.Hk, s.dk, input,
         [&](DrawnRow row, const Coordinates& at) { elements.query(row, at); });
  tensor(batch.k, draw, s.Hk, s.dk, input,
         [&](DrawnRow row, const Coordinates& at) { elements.key(row, at); });
  tensor(batch.v, draw, s.Hv, s.dv, input,
         [&](DrawnRow row, const Coordinates& at) { elements.value(row, at); });
  if (draw.gated) {
    tensor(batch.g, draw, s.Hv, 1, Format::fp32,
           [&](DrawnRow row, const Coordinates& at) { row[0] = elements.number(draws.gate, at); });
  }
  if (draw.beta) {
    tensor(batch.beta, draw, s.Hv, 1, Format::fp32,
           [&](DrawnRow row, const Coordinates& at) { row[0] = elements.number(draws.beta, at); });
  }
  if (s.initial_state) {
    batch.initial_state.resize(static_cast<std::size_t>(s.sequences() * s.Hv * s.dk * s.dv));
    // The operands' format limits it too: matrix units read the state in that format.
    const double largest = std::min(largest_finite(draw.contract->state), largest_finite(input)) / 2;
    in_parts(s.sequences() * s.Hv * s.dk, draw.threads, [&](std::int64_t begin, std::int64_t end) {
      float* to = batch.initial_state.data() + begin * s.dv;
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t c = 0; c < s.dv; ++c) {
          const double x =
              draws.state(elements.source, {row / s.dk / s.Hv, row % s.dk, row / s.dk % s.Hv, c}, draws.size);
          const double single = static_cast<double>(static_cast<float>(std::clamp(x, -largest, largest)));
          *to++ = static_cast<float>(round_to(single, draw.contract->state));
        }
      }
    });
  }
  return batch;
}

}  // namespace samestate
