#include "harness/cases/regimes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <thread>

#include "harness/cases/counter.h"
#include "oracles/rounding.h"
#include "reference/error.h"

namespace samestate {
namespace {

constexpr std::array kRegimes = {
    Regime{"normal", "unit random q and k, g = logsigmoid(N)/4, beta = sigmoid(N)"},
    Regime{"slow", "g in (-1e-3, 0]: long memory", false, true},
    Regime{"none", "g = 0: no decay", false, true},
    Regime{"strong", "g in (-100, -20]: nothing survives a token", false, true},
    Regime{"plateau", "one token in ten decays by e^-20 .. e^-120, the rest hardly", false, true},
    Regime{"reset", "now and then g = -1e38 or -150 (alpha = 0), else slow", false, true},
    Regime{"measured", "g in [-316, 0), v in [-0.28, 24.8): ranges of a served model (BUGS)", false, true},
    Regime{"retnet", "g = log(1 - 2^(-5-h)), constant a head", false, true},
    Regime{"beta_zero", "beta < 1e-3, slow", false, false, true},
    Regime{"beta_one", "beta > 0.999, slow", false, false, true},
    Regime{"beta_two", "beta in [1.5, 2): the widest stable write", false, false, true},
    Regime{"collinear", "keys within 1 % of one direction"},
    Regime{"identical", "one key for all tokens"},
    Regime{"identical_beta_two", "one key, beta in [1.8, 2): worst conditioned inverse", false, false, true},
    Regime{"pool4", "four keys, drawn again and again"},
    Regime{"constant", "every token the same"},
    Regime{"constant_gates", "g and beta constant, q, k, v random"},
    Regime{"period2", "two tokens in turn"},
    Regime{"unnormalised", "keys of random length about 1.3"},
    Regime{"unnormalised15", "keys of length 1.5: the step expands the state", false, false, true},
    Regime{"tiny_v", "v about 1e-6: fp16 subnormals"},
    Regime{"huge_v", "v about 1e4"},
    Regime{"tiny_norms", "q and k of length 1e-4"},
    Regime{"positive", "q, k, v from the positive orthant"},
    Regime{"spike", "lognormal v and k: a few tokens and channels dominate"},
    Regime{"memorised", "pairs (k, v) repeated, so that delta is almost zero"},
    Regime{"zeros", "half of the tokens are no-ops: q = k = v = 0, beta = 0, g = 0"},
    Regime{"exact", "one-hot keys, small integers, beta in {0, 1}, g = 0: bit for bit", true},
    Regime{"exact_reset", "the same with tokens that forget everything", true, true},
};

/// Shared tokens (base directions, pools) sit at negative token coordinates.
constexpr std::int64_t kShared = -1;

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

/// All draws of one batch.
struct Source {
  const Draw& draw;
  Counter q, k, v, g, beta, state, pick, gate;

  explicit Source(const Draw& d)
      : draw(d),
        q(d.seed, "q"),
        k(d.seed, "k"),
        v(d.seed, "v"),
        g(d.seed, "g"),
        beta(d.seed, "beta"),
        state(d.seed, "state"),
        pick(d.seed, "pick"),
        gate(d.seed, "gate") {}

  [[nodiscard]] bool is(std::string_view name) const { return draw.regime == name; }

  /// Which token's vector stands at this token: itself, or one of a small pool.
  [[nodiscard]] std::int64_t token_of(const Coordinates& at) const {
    if (is("identical") || is("identical_beta_two") || is("constant")) return kShared;
    if (is("period2")) return kShared - at.token % 2;
    // One draw for all heads: a value head's v must repeat with its key head's k.
    const Coordinates anyhead{at.sequence, at.token, 0, 0};
    if (is("pool4")) return kShared - pick.below(anyhead, 4);
    if (is("memorised"))
      return kShared - pick.below(anyhead, std::clamp<std::int64_t>(draw.shape.dk / 2, 2, 16));
    return at.token;
  }

  [[nodiscard]] bool no_op(const Coordinates& at) const {
    return is("zeros") && pick.below({at.sequence, at.token, 0, 0}, 2) == 0;
  }
};

using Row = std::vector<double>;

void fill(Row& row, const Counter& counter, Coordinates at) {
  for (std::size_t c = 0; c < row.size(); ++c) {
    at.channel = static_cast<std::int64_t>(c);
    row[c] = counter.normal(at);
  }
}

void set_length(Row& row, double length) {
  double sum = 0;
  for (double x : row) sum += x * x;
  const double factor = length / std::max(std::sqrt(sum), 1e-6);
  for (double& x : row) x *= factor;
}

/// One-hot with a sign: S^T k is then a single row, so sums of integers stay small and exact.
void set_one_hot(Row& row, const Counter& counter, Coordinates at) {
  std::fill(row.begin(), row.end(), 0.0);
  at.channel = kShared;
  const std::int64_t hot = counter.below(at, static_cast<std::int64_t>(row.size()));
  at.channel = kShared - 1;
  row[static_cast<std::size_t>(hot)] = counter.below(at, 2) == 0 ? 1.0 : -1.0;
}

void make_key(Row& row, const Source& source, const Coordinates& at) {
  const Coordinates from{at.sequence, source.token_of(at), at.head, 0};
  if (regime_named(source.draw.regime).exact) return set_one_hot(row, source.k, at);
  if (source.no_op(at)) return std::fill(row.begin(), row.end(), 0.0);
  fill(row, source.k, from);
  if (source.is("collinear")) {
    Row base(row.size());
    fill(base, source.k, {at.sequence, kShared, at.head, 0});
    for (std::size_t c = 0; c < row.size(); ++c) row[c] = base[c] + 1e-2 * row[c];
  }
  if (source.is("positive")) {
    for (double& x : row) x = std::abs(x);
  }
  if (source.is("spike")) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] *=
          std::exp(2.0 * source.gate.normal({at.sequence, at.token, at.head, static_cast<std::int64_t>(c)}));
    }
  }
  if (source.draw.shape.l2norm) {
    if (source.is("tiny_norms")) set_length(row, 1e-4);
    return;  // the kernel normalises
  }
  if (source.is("unnormalised")) {
    for (double& x : row) x *= 1.3 / std::sqrt(static_cast<double>(row.size()));
  } else {
    set_length(row, source.is("unnormalised15") ? 1.5 : source.is("tiny_norms") ? 1e-4 : 1.0);
  }
}

void make_query(Row& row, const Source& source, const Coordinates& at) {
  if (regime_named(source.draw.regime).exact) {
    set_one_hot(row, source.q, at);
    for (double& x : row) x *= 2.0;
    return;
  }
  if (source.no_op(at)) return std::fill(row.begin(), row.end(), 0.0);
  if (source.is("memorised") || source.is("period2")) return make_key(row, source, at);
  fill(row, source.q, {at.sequence, source.is("constant") ? kShared : at.token, at.head, 0});
  if (source.is("positive")) {
    for (double& x : row) x = std::abs(x);
  }
  if (!source.draw.shape.l2norm || source.is("tiny_norms"))
    set_length(row, source.is("tiny_norms") ? 1e-4 : 1.0);
}

void make_value(Row& row, const Source& source, const Coordinates& at) {
  if (regime_named(source.draw.regime).exact) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      row[c] = static_cast<double>(
                   source.v.below({at.sequence, at.token, at.head, static_cast<std::int64_t>(c)}, 3)) -
               1;
    }
    return;
  }
  if (source.no_op(at)) return std::fill(row.begin(), row.end(), 0.0);
  const bool shared = source.is("constant") || source.is("period2") || source.is("memorised");
  fill(row, source.v, {at.sequence, shared ? source.token_of(at) : at.token, at.head, 0});
  double factor = 1.0;
  if (source.is("tiny_v")) factor = 1e-6;
  if (source.is("huge_v")) factor = 1e4;
  if (source.is("spike"))
    factor = std::exp(3.0 * source.gate.normal({at.sequence, at.token, at.head, kShared}));
  for (double& x : row) {
    if (source.is("positive")) x = std::abs(x);
    if (source.is("measured")) x = -0.28 + 25.08 * std::min(x * x / 16.0, 1.0);
    x *= factor;
  }
}

double make_gate(const Source& source, const Coordinates& at) {
  if (source.no_op(at) || source.is("none") || source.is("exact") || source.is("memorised")) return 0.0;
  const double r = source.g.uniform(at);
  const double slow = -1e-3 * r;
  if (source.is("slow") || source.is("beta_zero") || source.is("identical_beta_two")) return slow;
  if (source.is("strong")) return -20.0 - 80.0 * r;
  if (source.is("plateau")) return source.gate.uniform(at) < 0.1 ? -20.0 - 100.0 * r : slow;
  if (source.is("reset")) {
    const double kind = source.gate.uniform(at);
    return kind < 0.03 ? -1e38 : kind < 0.08 ? -150.0 : slow;
  }
  if (source.is("exact_reset")) return source.gate.uniform(at) < 0.1 ? -1e38 : 0.0;
  if (source.is("measured")) return -316.0 * r * r * r * r;
  if (source.is("retnet"))
    return std::log1p(-std::ldexp(1.0, static_cast<int>(-5 - std::min<std::int64_t>(at.head, 40))));
  if (source.is("beta_one") || source.is("beta_two") || source.is("collinear") || source.is("identical") ||
      source.is("pool4")) {
    return -1e-2 * r;
  }
  if (source.is("constant")) return -0.03 * source.g.uniform({at.sequence, kShared, at.head, 0});
  if (source.is("constant_gates") || source.is("period2")) {
    return -0.003 * source.g.uniform({at.sequence, kShared, at.head, 0});
  }
  if (source.is("unnormalised15")) return -0.1 * r;
  return -std::log1p(std::exp(-source.g.normal(at))) / 4.0;
}

double make_beta(const Source& source, const Coordinates& at) {
  if (source.no_op(at)) return 0.0;
  const double r = source.beta.uniform(at);
  if (regime_named(source.draw.regime).exact) return r < 0.75 ? 1.0 : 0.0;
  if (source.is("beta_zero")) return 1e-3 * r;
  if (source.is("beta_one")) return 1.0 - 1e-3 * r;
  if (source.is("beta_two")) return 1.5 + 0.5 * r;
  if (source.is("identical_beta_two")) return 1.8 + 0.2 * r;
  if (source.is("constant") || source.is("constant_gates") || source.is("period2")) {
    return source.beta.uniform({at.sequence, kShared, at.head, 0});
  }
  if (source.is("unnormalised15")) return 0.5 + 0.5 * r;
  if (source.is("memorised")) return 0.9 + 0.1 * r;
  return sigmoid(source.beta.normal(at));
}

/// Calls work(begin, end) for parts of [0, count) that together are all of it, on `threads` threads.
template <class Work>
void in_parts(std::int64_t count, int threads, const Work& work) {
  constexpr std::int64_t kLeast = 64;  // fewer are not worth a thread
  const std::int64_t parts = std::clamp<std::int64_t>(count / kLeast, 1, std::max(threads, 1));
  std::vector<std::jthread> helpers;
  for (std::int64_t i = 1; i < parts; ++i)
    helpers.emplace_back([&, i] { work(count * i / parts, count * (i + 1) / parts); });
  work(0, count / parts);
}

/// A [sequences or B, T, H, D] tensor filled row by row. Packed sequences count tokens from their own start.
void tensor(std::vector<float>& out, const Draw& draw, std::int64_t H, std::int64_t D, Format format,
            const std::function<void(Row&, const Coordinates&)>& make) {
  const BatchShape& s = draw.shape;
  out.resize(static_cast<std::size_t>(s.B * s.T * H * D));
  // Inputs saturate at half the format's range: an infinite input is not a test of the kernel.
  const double largest = largest_finite(format) / 2;
  for (std::int64_t n = 0; n < s.sequences(); ++n) {
    const std::int64_t b = s.offsets.empty() ? n : 0;
    in_parts(s.end(n) - s.begin(n), draw.threads, [&](std::int64_t begin, std::int64_t end) {
      Row row(static_cast<std::size_t>(D));
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

std::span<const Regime> regimes() { return kRegimes; }

const Regime& regime_named(std::string_view name) {
  std::string known;
  for (const Regime& regime : kRegimes) {
    if (regime.name == name) return regime;
    known += (known.empty() ? "" : ", ") + std::string(regime.name);
  }
  throw Error("regime=" + std::string(name) + ": no such regime; known: " + known);
}

Batch generate(const Draw& draw) {
  const Source source(draw);
  const BatchShape& s = draw.shape;
  Batch batch;
  batch.shape = s;
  const Format input = draw.contract->input;
  tensor(batch.q, draw, s.Hk, s.dk, input,
         [&](Row& row, const Coordinates& at) { make_query(row, source, at); });
  tensor(batch.k, draw, s.Hk, s.dk, input,
         [&](Row& row, const Coordinates& at) { make_key(row, source, at); });
  tensor(batch.v, draw, s.Hv, s.dv, input,
         [&](Row& row, const Coordinates& at) { make_value(row, source, at); });
  if (draw.gated) {
    tensor(batch.g, draw, s.Hv, 1, Format::fp32,
           [&](Row& row, const Coordinates& at) { row[0] = make_gate(source, at); });
  }
  if (draw.beta) {
    tensor(batch.beta, draw, s.Hv, 1, Format::fp32,
           [&](Row& row, const Coordinates& at) { row[0] = make_beta(source, at); });
  }
  if (s.initial_state) {
    const bool exact = regime_named(draw.regime).exact;
    const double size = 0.3 * (source.is("tiny_v") ? 1e-6 : source.is("huge_v") ? 1e4 : 1.0);
    batch.initial_state.resize(static_cast<std::size_t>(s.sequences() * s.Hv * s.dk * s.dv));
    in_parts(s.sequences() * s.Hv * s.dk, draw.threads, [&](std::int64_t begin, std::int64_t end) {
      float* to = batch.initial_state.data() + begin * s.dv;
      for (std::int64_t row = begin; row < end; ++row) {
        for (std::int64_t c = 0; c < s.dv; ++c) {
          const Coordinates at{row / s.dk / s.Hv, row % s.dk, row / s.dk % s.Hv, c};
          const double x =
              exact ? static_cast<double>(source.state.below(at, 7)) - 3.0 : size * source.state.normal(at);
          *to++ =
              static_cast<float>(round_to(static_cast<double>(static_cast<float>(x)), draw.contract->state));
        }
      }
    });
  }
  return batch;
}

}  // namespace samestate
