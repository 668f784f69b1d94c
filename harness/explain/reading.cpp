#include "harness/explain/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

namespace samestate {
namespace {

using R = Reading;

constexpr std::array kDeviations = {
    Deviation{"state", "states are [dv, dk], in and out", "\"state\":\"vk\"",
              [](R& r) { r.state = R::State::vk; }},
    Deviation{"state", "the initial state is read transposed", "", [](R& r) { r.state = R::State::vk_in; }},
    Deviation{"state", "the final state is written transposed", "", [](R& r) { r.state = R::State::vk_out; }},
    Deviation{"decay", "g is the decay itself (alpha)", "\"decay\":\"linear\"",
              [](R& r) { r.decay = R::Decay::linear; }, true},
    Deviation{"decay", "g is a power of two (alpha = 2^g)", "\"decay\":\"log2\"",
              [](R& r) { r.decay = R::Decay::log2; }, true},
    Deviation{"decay", "g is raw (alpha = e^-softplus(g))", "\"decay\":\"raw\"",
              [](R& r) { r.decay = R::Decay::raw; }, true},
    Deviation{"decay", "the decay is left out (alpha = 1)", "", [](R& r) { r.decay = R::Decay::ignored; },
              true},
    Deviation{"decay", "the decay is applied twice", "", [](R& r) { r.decay = R::Decay::twice; }, true},
    Deviation{"place", "the state decays after the write of its token", "",
              [](R& r) { r.place = R::Place::after; }, true},
    Deviation{"place", "the delta is taken against the state before it decayed", "",
              [](R& r) { r.place = R::Place::undecayed; }, true, true},
    Deviation{"place", "o is read before the write of its token", "",
              [](R& r) { r.place = R::Place::early; }},
    Deviation{"rule", "what the state holds for the key is not removed (no delta rule)", "",
              [](R& r) { r.delta = false; }, false, true},
    Deviation{"scale", "the scale is dk^-1/2, whatever was given", "\"scale\":\"dk\"",
              [](R& r) { r.scale = R::Scale::by_width; }},
    Deviation{"scale", "there is no scale (1)", "\"scale\":\"folded\"",
              [](R& r) { r.scale = R::Scale::one; }},
    Deviation{"scale", "the scale is applied twice", "", [](R& r) { r.scale = R::Scale::squared; }},
    Deviation{"scale", "a scale of 0 is taken for the default", "",
              [](R& r) { r.scale = R::Scale::zero_by_width; }},
    Deviation{"l2norm", "q and k are never normalised", "\"l2norm\":\"outside\"",
              [](R& r) { r.norm = R::Norm::never; }},
    Deviation{"l2norm", "q and k are always normalised", "\"l2norm\":\"in_kernel\"",
              [](R& r) { r.norm = R::Norm::always; }},
    Deviation{"l2norm", "l2norm has epsilon 1e-6, in the root",
              "\"l2norm_place\":\"inside\",\"l2norm_epsilon\":1e-6", [](R& r) { r.norm = R::Norm::eps6; }},
    Deviation{"l2norm", "l2norm has epsilon 1e-5", "\"l2norm_place\":\"inside\",\"l2norm_epsilon\":1e-5",
              [](R& r) { r.norm = R::Norm::eps5; }},
    Deviation{"l2norm", "l2norm adds epsilon to the norm: x / (|x| + 1e-6)",
              "\"l2norm_place\":\"outside\",\"l2norm_epsilon\":1e-6",
              [](R& r) { r.norm = R::Norm::outside; }},
    Deviation{"l2norm", "l2norm divides by max(|x|, 1e-12)",
              "\"l2norm_place\":\"max\",\"l2norm_epsilon\":1e-12", [](R& r) { r.norm = R::Norm::maximum; }},
    Deviation{"heads", "the map of heads is the other one than was asked for", "\"heads\":\"tiled\"",
              [](R& r) { r.tiled = true; }},
    Deviation{"beta", "beta is a logit (sigmoid inside)", "\"beta\":\"logit\"",
              [](R& r) { r.beta = R::Strength::logit; }, false, true},
    Deviation{"beta", "beta is a logit of half of it (2 sigmoid inside)", "\"beta\":\"twice_logit\"",
              [](R& r) { r.beta = R::Strength::twice_logit; }, false, true},
    Deviation{"beta", "beta is left out (1)", "", [](R& r) { r.beta = R::Strength::one; }, false, true},
    Deviation{"beta", "beta is applied twice", "", [](R& r) { r.beta = R::Strength::squared; }, false, true},
    Deviation{"exchange", "q and k are exchanged", "", [](R& r) { r.exchange = R::Exchange::q_k; }},
    Deviation{"exchange", "g and beta are exchanged", "", [](R& r) { r.exchange = R::Exchange::g_beta; },
              true, true},
    Deviation{"layout", "tensors are read as [B, H, T, D]", "\"layout\":\"BHTD\"",
              [](R& r) { r.heads_first = true; }},
    Deviation{"start", "the initial state is ignored", "", [](R& r) { r.start = R::Start::zero; }},
    Deviation{"start", "every sequence begins with the first one's state", "",
              [](R& r) { r.start = R::Start::first; }},
    Deviation{"start", "the state of a packed sequence is read at the row of its first token", "",
              [](R& r) { r.start = R::Start::by_token; }},
    Deviation{"start", "a sequence begins with the state that the one before it left", "",
              [](R& r) { r.start = R::Start::carried; }},
    Deviation{"start", "the state in slot 0 is taken for none", "", [](R& r) { r.start = R::Start::slot0; }},
    Deviation{"final", "the final state is the initial one", "", [](R& r) { r.returns_start = true; }},
    Deviation{"sequences", "cu_seqlens is ignored", "", [](R& r) { r.whole = true; }},
    Deviation{"time", "tokens are read from the last to the first", "", [](R& r) { r.reversed = true; }},
    Deviation{"normaliser", "o is divided by q . sum of keys", "", [](R& r) { r.divides = true; }},
};

/// Returns the epsilon of a reading and its place; nullopt if it is as declared or there is none.
std::optional<Given> norm_of(R::Norm norm) {
  using enum Given::NormPlace;
  const auto at = [](Given::NormPlace place, double epsilon) {
    Given given;
    given.norm = place, given.norm_epsilon = epsilon;
    return given;
  };
  switch (norm) {
    case R::Norm::eps6:
      return at(inside, 1e-6);
    case R::Norm::eps5:
      return at(inside, 1e-5);
    case R::Norm::outside:
      return at(outside, 1e-6);
    case R::Norm::maximum:
      return at(maximum, 1e-12);
    default:
      return std::nullopt;
  }
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// Evaluates one call under one reading.
class Evaluation {
 public:
  Evaluation(const Batch& call, const Family& family, const Reading& reading)
      : b_(call), s_(call.shape), family_(family), r_(reading) {}

  Returned run() {
    const std::int64_t N = s_.sequences();
    out_.o.assign(static_cast<std::size_t>(s_.B * s_.T * s_.Hv * s_.dv), 0.0);
    out_.final_state.assign(static_cast<std::size_t>(N * s_.Hv * s_.dk * s_.dv), 0.0);
    if (r_.whole && !s_.offsets.empty()) {
      for (std::int64_t h = 0; h < s_.Hv; ++h) sequence(0, h, 0, 0, s_.T);
      // The states of the others are left as they were.
      for (std::int64_t n = 1; n < N; ++n) {
        for (std::int64_t h = 0; h < s_.Hv; ++h) store(n, h, start(n, h));
      }
      return std::move(out_);
    }
    for (std::int64_t n = 0; n < N; ++n) {
      for (std::int64_t h = 0; h < s_.Hv; ++h)
        sequence(n, h, s_.offsets.empty() ? n : 0, s_.begin(n), s_.end(n));
    }
    return std::move(out_);
  }

 private:
  using State = Matrix<double>;

  /// Returns the index of an element of a tensor with tokens, [B, T, H, D].
  [[nodiscard]] std::size_t at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d, std::int64_t H,
                               std::int64_t D) const {
    const std::int64_t row = r_.heads_first ? h * s_.T + t : t * H + h;
    return static_cast<std::size_t>((b * s_.T * H + row) * D + d);
  }
  [[nodiscard]] Vector<double> row(const std::vector<float>& x, std::int64_t b, std::int64_t t,
                                   std::int64_t h, std::int64_t H, std::int64_t D) const {
    Vector<double> out(D);
    for (std::int64_t d = 0; d < D; ++d) out(d) = x[at(b, t, h, d, H, D)];
    return out;
  }
  [[nodiscard]] double gate(const std::vector<float>& x, std::int64_t b, std::int64_t t, std::int64_t h,
                            double otherwise) const {
    return x.empty() ? otherwise : x[at(b, t, h, 0, s_.Hv, 1)];
  }

  [[nodiscard]] State stored(std::int64_t n, std::int64_t h) const {
    if (b_.initial_state.empty() || n >= s_.sequences()) return State::Zero(s_.dk, s_.dv);
    State out(s_.dk, s_.dv);
    const auto first = static_cast<std::size_t>((n * s_.Hv + h) * s_.dk * s_.dv);
    for (std::int64_t i = 0; i < out.size(); ++i)
      out.data()[i] = b_.initial_state[first + static_cast<std::size_t>(i)];
    // dk = dv in every call that can show it.
    if ((r_.state == R::State::vk || r_.state == R::State::vk_in) && s_.dk == s_.dv) out.transposeInPlace();
    return out;
  }
  [[nodiscard]] State start(std::int64_t n, std::int64_t h) const {
    switch (r_.start) {
      case R::Start::zero:
        return State::Zero(s_.dk, s_.dv);
      case R::Start::first:
        return stored(0, h);
      case R::Start::by_token:
        return s_.offsets.empty() ? stored(n, h) : stored(s_.begin(n), h);
      case R::Start::carried:
        return n == 0 ? stored(0, h) : carried_.at(static_cast<std::size_t>(h));
      case R::Start::slot0:
        return n == 0 ? State::Zero(s_.dk, s_.dv).eval() : stored(n, h);
      case R::Start::own:
        break;
    }
    return stored(n, h);
  }
  void store(std::int64_t n, std::int64_t h, State state) {
    if ((r_.state == R::State::vk || r_.state == R::State::vk_out) && s_.dk == s_.dv)
      state.transposeInPlace();
    const auto first = static_cast<std::size_t>((n * s_.Hv + h) * s_.dk * s_.dv);
    std::copy(state.data(), state.data() + state.size(),
              out_.final_state.begin() + static_cast<std::ptrdiff_t>(first));
  }

  [[nodiscard]] Vector<double> normalised(Vector<double> x) const {
    const bool on = r_.norm == R::Norm::always || (s_.l2norm && r_.norm != R::Norm::never);
    if (!on) return x;
    return norm_of(r_.norm).value_or(s_.given).normalised(x.transpose()).transpose();
  }
  [[nodiscard]] double alpha(double g) const {
    if (b_.g.empty()) return 1.0;
    const double of_reading = unlimited_alpha(g);
    return r_.least == kNoLimit ? of_reading : std::max(of_reading, std::exp(r_.least));
  }
  [[nodiscard]] double unlimited_alpha(double g) const {
    switch (r_.decay) {
      case R::Decay::log2:
        return std::exp2(g);
      case R::Decay::linear:
        return g;
      case R::Decay::raw:
        return sigmoid(-g);
      case R::Decay::ignored:
        return 1.0;
      case R::Decay::twice:
        return std::exp(2 * g);
      case R::Decay::ln:
        break;
    }
    return std::exp(g);
  }
  [[nodiscard]] double strength(double beta) const {
    if (b_.beta.empty()) return 1.0;
    switch (r_.beta) {
      case R::Strength::logit:
        return sigmoid(beta);
      case R::Strength::twice_logit:
        return 2 * sigmoid(beta);
      case R::Strength::one:
        return 1.0;
      case R::Strength::squared:
        return beta * beta;
      case R::Strength::beta:
        break;
    }
    return beta;
  }
  [[nodiscard]] double scale() const {
    const double by_width = 1.0 / std::sqrt(static_cast<double>(s_.dk));
    switch (r_.scale) {
      case R::Scale::by_width:
        return by_width;
      case R::Scale::one:
        return 1.0;
      case R::Scale::squared:
        return s_.scale * s_.scale;
      case R::Scale::zero_by_width:
        return s_.scale == 0.0 ? by_width : s_.scale;
      case R::Scale::given:
        break;
    }
    return s_.scale;
  }

  void sequence(std::int64_t n, std::int64_t h, std::int64_t b, std::int64_t begin, std::int64_t end) {
    const bool tiled = (s_.head_map == HeadMap::tiled) != r_.tiled;
    const std::int64_t kh = tiled ? h % s_.Hk : h / (s_.Hv / s_.Hk);
    State S = start(n, h);
    const State first = S;
    Vector<double> keys = Vector<double>::Zero(s_.dk);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t t = r_.reversed ? end - 1 - (i - begin) : i;
      Vector<double> q = row(b_.q, b, t, kh, s_.Hk, s_.dk), k = row(b_.k, b, t, kh, s_.Hk, s_.dk);
      const Vector<double> v = row(b_.v, b, t, h, s_.Hv, s_.dv);
      double g = gate(b_.g, b, t, h, 0.0), beta = gate(b_.beta, b, t, h, 1.0);
      if (r_.exchange == R::Exchange::q_k) q.swap(k);
      if (r_.exchange == R::Exchange::g_beta) std::swap(g, beta);
      q = normalised(std::move(q)), k = normalised(std::move(k));
      const double a = alpha(g);
      const State before = S;
      if (r_.place != R::Place::after) S *= a;
      const Vector<double> early = S.transpose() * q;
      const State& against = r_.place == R::Place::undecayed ? before : S;
      const bool removes = family_.delta && r_.delta;
      const Vector<double> u = strength(beta) * (removes ? (v - against.transpose() * k).eval() : v);
      S += k * u.transpose();
      if (r_.place == R::Place::after) S *= a;
      Vector<double> o = scale() * (r_.place == R::Place::early ? early : (S.transpose() * q).eval());
      keys += k;
      if (r_.divides) o /= q.dot(keys);
      for (std::int64_t d = 0; d < s_.dv; ++d) out_.o[at(b, t, h, d, s_.Hv, s_.dv)] = o(d);
    }
    if (carried_.size() < static_cast<std::size_t>(s_.Hv)) carried_.resize(static_cast<std::size_t>(s_.Hv));
    carried_[static_cast<std::size_t>(h)] = S;
    store(n, h, r_.returns_start ? first : S);
  }

  const Batch& b_;
  const BatchShape& s_;
  const Family& family_;
  const Reading& r_;
  Returned out_;
  std::vector<State> carried_;  ///< by head, the state that the previous sequence left
};

}  // namespace

void clip(Vector<double>& g, const Clip& by) {
  double sum = 0.0;
  for (Index t = 0; t < g.size(); ++t) {
    if (by.chunk == 0 || t % by.chunk == 0) sum = 0.0;
    const double before = std::max(sum, by.least);
    sum += g(t);
    g(t) = std::max(sum, by.least) - before;
  }
}

double fitted_limit(const std::function<double(double)>& rest) {
  constexpr double kStep = 1.25, kLargest = 120.0;
  double at = 0.25, least = rest(-at);
  for (double x = at * kStep; x < kLargest; x *= kStep) {
    if (const double now = rest(-x); now < least) least = now, at = x;
  }
  double low = at / kStep, high = at * kStep;
  for (int i = 0; i < 20; ++i) {
    const double third = (high - low) / 3;
    if (rest(-(low + third)) < rest(-(high - third))) {
      high -= third;
    } else {
      low += third;
    }
  }
  return -(low + high) / 2;
}

std::string clip_text(const Clip& by) {
  return fmt::format(
      "{} clipped at about {:.3g}",
      by.chunk == 0 ? "exponent of the decay" : "exponent, the sum of g from the chunk's begin on,",
      by.least);
}

std::vector<const Deviation*> deviations_of(const Family& family, const Given& declared) {
  std::vector<const Deviation*> out;
  for (const Deviation& d : kDeviations) {
    Reading reading;
    d.apply(reading);
    const std::optional<Given> norm = norm_of(reading.norm);
    if (norm && norm->norm == declared.norm && norm->norm_epsilon == declared.norm_epsilon) continue;
    if ((!d.gated || family.gated) && (!d.delta || family.delta)) out.push_back(&d);
  }
  return out;
}

Returned evaluate(const Batch& call, const Family& family, const Reading& reading) {
  return Evaluation(call, family, reading).run();
}

}  // namespace samestate
