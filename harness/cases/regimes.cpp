#include "harness/cases/regimes.h"

#include <algorithm>
#include <cmath>

namespace samestate {
namespace {

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

void set_length(DrawnRow row, double length) {
  double sum = 0;
  for (double x : row) sum += x * x;
  const double factor = length / std::max(std::sqrt(sum), 1e-6);
  for (double& x : row) x *= factor;
}

Coordinates channel_of(Coordinates at, std::size_t channel) {
  at.channel = static_cast<std::int64_t>(channel);
  return at;
}

// Some tokens write, some write nothing but decay, and some do nothing: what remains of the state is then far
// below what was written to it, so its last digits show.

constexpr std::int64_t kWriting = 16, kDecaying = 72;

void then_zero(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  if (at.token < kWriting) return normal::row(row, source, own, at);
  std::fill(row.begin(), row.end(), 0.0);
}
double then_silent(const BatchSource& source, const Coordinates& at) {
  if (at.token < kWriting) return normal::gate(source, at);
  return at.token < kDecaying ? -0.3 - 1.7 * source.g.uniform(at) : 0.0;
}
double then_no_write(const BatchSource& source, const Coordinates& at) {
  return at.token < kWriting ? normal::beta(source, at) : 0.0;
}

// Draws which token's vector to use. All heads share the draw, since a value head's v must repeat together
// with its key head's k.

std::int64_t one_for_all(const BatchSource&, const Coordinates&) { return kShared; }
std::int64_t two_in_turn(const BatchSource&, const Coordinates& at) { return kShared - at.token % 2; }
std::int64_t one_of_four(const BatchSource& source, const Coordinates& at) {
  return kShared - source.pick.below({at.sequence, at.token, 0, 0}, 4);
}
std::int64_t one_of_few(const BatchSource& source, const Coordinates& at) {
  return kShared -
         source.pick.below({at.sequence, at.token, 0, 0}, std::clamp<std::int64_t>(source.dk / 2, 2, 16));
}

// Rows of q, k and v.

void collinear(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  normal::row(row, source, own, at);
  for (std::size_t c = 0; c < row.size(); ++c)
    row[c] = own.normal(channel_of({at.sequence, kShared, at.head, 0}, c)) + 1e-2 * row[c];
}

void positive(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  normal::row(row, source, own, at);
  for (double& x : row) x = std::abs(x);
}

void spiked_channels(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  normal::row(row, source, own, at);
  for (std::size_t c = 0; c < row.size(); ++c)
    row[c] *= std::exp(2.0 * source.gate.normal(channel_of(at, c)));
}

void spiked_tokens(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  normal::row(row, source, own, at);
  const double factor = std::exp(3.0 * source.gate.normal({at.sequence, at.token, at.head, kShared}));
  for (double& x : row) x *= factor;
}

void measured_values(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  normal::row(row, source, own, at);
  for (double& x : row) x = -0.28 + 25.08 * std::min(x * x / 16.0, 1.0);
}

/// The entry has a sign: S^T k is then a single row, so sums of integers stay small and exact.
void one_hot(DrawnRow row, const BatchSource&, const Counter& own, const Coordinates& at) {
  std::fill(row.begin(), row.end(), 0.0);
  const Coordinates where{at.sequence, at.token, at.head, kShared};
  const Coordinates sign{at.sequence, at.token, at.head, kShared - 1};
  const std::int64_t hot = own.below(where, static_cast<std::int64_t>(row.size()));
  row[static_cast<std::size_t>(hot)] = own.below(sign, 2) == 0 ? 1.0 : -1.0;
}

void two_hot(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  one_hot(row, source, own, at);
  for (double& x : row) x *= 2.0;
}

void small_integers(DrawnRow row, const BatchSource&, const Counter& own, const Coordinates& at) {
  for (std::size_t c = 0; c < row.size(); ++c)
    row[c] = static_cast<double>(own.below(channel_of(at, c), 3)) - 1;
}

/// A padding token has a zero key; its beta and g are those of any other token.
void zero_of_three(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at) {
  if (own.below({at.sequence, at.token, at.head, kShared}, 3) == 0)
    return std::fill(row.begin(), row.end(), 0.0);
  normal::row(row, source, own, at);
}

void zero_row(DrawnRow row, const BatchSource&, const Counter&, const Coordinates&) {
  std::fill(row.begin(), row.end(), 0.0);
}

// Lengths of q and k.

void as_drawn(DrawnRow, bool) {}
void about_1_3(DrawnRow row, bool normalises) {
  if (normalises) return;
  for (double& x : row) x *= 1.3 / std::sqrt(static_cast<double>(row.size()));
}
void one_and_a_half(DrawnRow row, bool normalises) {
  if (!normalises) set_length(row, 1.5);
}
void tiny_length(DrawnRow row, bool) { set_length(row, 1e-4); }

// g.

double no_decay(const BatchSource&, const Coordinates&) { return 0.0; }
double slow(const BatchSource& source, const Coordinates& at) { return -1e-3 * source.g.uniform(at); }
double mild(const BatchSource& source, const Coordinates& at) { return -1e-2 * source.g.uniform(at); }
double brisk(const BatchSource& source, const Coordinates& at) { return -0.1 * source.g.uniform(at); }
double strong(const BatchSource& source, const Coordinates& at) {
  return -20.0 - 80.0 * source.g.uniform(at);
}
double plateau(const BatchSource& source, const Coordinates& at) {
  return source.gate.uniform(at) < 0.1 ? -20.0 - 100.0 * source.g.uniform(at) : slow(source, at);
}
double now_and_then_a_reset(const BatchSource& source, const Coordinates& at) {
  const double kind = source.gate.uniform(at);
  return kind < 0.03 ? -1e38 : kind < 0.08 ? -150.0 : slow(source, at);
}
double exact_resets(const BatchSource& source, const Coordinates& at) {
  return source.gate.uniform(at) < 0.1 ? -1e38 : 0.0;
}
double measured(const BatchSource& source, const Coordinates& at) {
  const double r = source.g.uniform(at);
  return -316.0 * r * r * r * r;
}
double retnet(const BatchSource&, const Coordinates& at) {
  return std::log1p(-std::ldexp(1.0, static_cast<int>(-5 - std::min<std::int64_t>(at.head, 40))));
}
double constant_gate(const BatchSource& source, const Coordinates& at) {
  return -0.03 * source.g.uniform({at.sequence, kShared, at.head, 0});
}
double constant_slow(const BatchSource& source, const Coordinates& at) {
  return -0.003 * source.g.uniform({at.sequence, kShared, at.head, 0});
}

// beta.

double zero(const BatchSource&, const Coordinates&) { return 0.0; }
double near_zero(const BatchSource& source, const Coordinates& at) { return 1e-3 * source.beta.uniform(at); }
double near_one(const BatchSource& source, const Coordinates& at) {
  return 1.0 - 1e-3 * source.beta.uniform(at);
}
double to_two(const BatchSource& source, const Coordinates& at) {
  return 1.5 + 0.5 * source.beta.uniform(at);
}
double nearly_two(const BatchSource& source, const Coordinates& at) {
  return 1.8 + 0.2 * source.beta.uniform(at);
}
double upper_half(const BatchSource& source, const Coordinates& at) {
  return 0.5 + 0.5 * source.beta.uniform(at);
}
double upper_tenth(const BatchSource& source, const Coordinates& at) {
  return 0.9 + 0.1 * source.beta.uniform(at);
}
double constant_beta(const BatchSource& source, const Coordinates& at) {
  return source.beta.uniform({at.sequence, kShared, at.head, 0});
}
double zero_or_one(const BatchSource& source, const Coordinates& at) {
  return source.beta.uniform(at) < 0.75 ? 1.0 : 0.0;
}

double integer_state(const BatchSource& source, const Coordinates& at, double) {
  return static_cast<double>(source.state.below(at, 7)) - 3.0;
}

/// Sixteen times beyond what fp16 holds; in fp16 itself, sixteen times half of its range.
double state_of_a_million(const BatchSource& source, const Coordinates& at, double) {
  return 1e6 * source.state.normal(at);
}

bool every_other(const BatchSource& source, const Coordinates& at) {
  return source.pick.below({at.sequence, at.token, 0, 0}, 2) == 0;
}

constexpr FamilyDraws exact_draws(NumberOf gate) {
  return {.key = one_hot,
          .key_length = as_drawn,
          .query = two_hot,
          .query_length = as_drawn,
          .value = small_integers,
          .gate = gate,
          .beta = zero_or_one,
          .state = integer_state};
}

// clang-format off
constexpr Regime kRegimes[] = {
    {.name = "normal", .summary = "unit random q and k, g = logsigmoid(N)/4, beta = sigmoid(N)", .plain = true},
    {.name = "slow", .summary = "g in (-1e-3, 0]: long memory", .gated = true, .lasting = true,
     .family = {.gate = slow}},
    {.name = "none", .summary = "g = 0: no decay", .gated = true, .lasting = true, .plain = true,
     .family = {.gate = no_decay}},
    {.name = "strong", .summary = "g in (-100, -20]: nothing survives a token", .gated = true,
     .family = {.gate = strong}},
    {.name = "plateau", .summary = "one token in ten decays by e^-20 .. e^-120, the rest hardly", .gated = true,
     .family = {.gate = plateau}},
    {.name = "reset", .summary = "now and then g = -1e38 or -150 (alpha = 0), else slow", .gated = true,
     .family = {.gate = now_and_then_a_reset}},
    {.name = "measured", .summary = "g in [-316, 0), v in [-0.28, 24.8): ranges of a served model (BUGS)",
     .gated = true, .family = {.value = measured_values, .gate = measured}},
    {.name = "retnet", .summary = "g = log(1 - 2^(-5-h)), constant a head", .gated = true,
     .family = {.gate = retnet}},
    {.name = "beta_zero", .summary = "beta < 1e-3, slow", .delta = true, .lasting = true,
     .family = {.gate = slow, .beta = near_zero}},
    {.name = "beta_one", .summary = "beta > 0.999, g in (-1e-2, 0]", .delta = true, .plain = true,
     .family = {.gate = mild, .beta = near_one}},
    {.name = "beta_two", .summary = "beta in [1.5, 2): the widest stable write", .delta = true,
     .family = {.gate = mild, .beta = to_two}},
    {.name = "collinear", .summary = "keys within 1 % of one direction",
     .family = {.key = collinear, .gate = mild}},
    {.name = "identical", .summary = "one key for all tokens",
     .family = {.key_token = one_for_all, .gate = mild}},
    {.name = "identical_beta_two", .summary = "one key, beta in [1.8, 2): worst conditioned inverse",
     .delta = true, .lasting = true,
     .family = {.key_token = one_for_all, .gate = slow, .beta = nearly_two}},
    {.name = "pool4", .summary = "four keys, drawn again and again",
     .family = {.key_token = one_of_four, .gate = mild}},
    {.name = "constant", .summary = "every token the same",
     .family = {.key_token = one_for_all, .query_token = one_for_all, .value_token = one_for_all,
                .gate = constant_gate, .beta = constant_beta}},
    {.name = "constant_gates", .summary = "g and beta constant, q, k, v random",
     .family = {.gate = constant_slow, .beta = constant_beta}},
    {.name = "period2", .summary = "two tokens in turn",
     .family = {.key_token = two_in_turn, .query_is_key = true, .value_token = two_in_turn,
                .gate = constant_slow, .beta = constant_beta}},
    {.name = "unnormalised", .summary = "keys of random length about 1.3", .family = {.key_length = about_1_3}},
    {.name = "unnormalised15", .summary = "keys of length 1.5: the step expands the state", .delta = true,
     .expands = true, .family = {.key_length = one_and_a_half, .gate = brisk, .beta = upper_half}},
    {.name = "tiny_v", .summary = "v about 1e-6: fp16 subnormals", .family = {.size = 1e-6}},
    {.name = "huge_v", .summary = "v about 1e4", .family = {.size = 1e4}},
    {.name = "tiny_norms", .summary = "q and k of length 1e-4",
     .family = {.key_length = tiny_length, .query_length = tiny_length}},
    {.name = "positive", .summary = "q, k, v from the positive orthant",
     .family = {.key = positive, .query = positive, .value = positive}},
    {.name = "spike", .summary = "lognormal v and k: a few tokens and channels dominate",
     .family = {.key = spiked_channels, .value = spiked_tokens}},
    {.name = "memorised", .summary = "pairs (k, v) repeated, so that delta is almost zero", .lasting = true,
     .family = {.key_token = one_of_few, .query_is_key = true, .value_token = one_of_few,
                .gate = no_decay, .beta = upper_tenth}},
    {.name = "silence", .summary = "tokens 16 to 71 write nothing and decay by e^-0.3 .. e^-2 each, later ones keep that",
     .gated = true, .family = {.value = then_zero, .gate = then_silent, .beta = then_no_write}},
    {.name = "zeros", .summary = "half of the tokens are no-ops: q = k = v = 0, beta = 0, g = 0",
     .family = {.idle = every_other}},
    {.name = "zero_keys", .summary = "one key in three is zero, and one query, at tokens that decay and write as others do",
     .family = {.key = zero_of_three, .query = zero_of_three}},
    {.name = "huge_state", .summary = "an initial state about 1e6, kept: beyond fp16's 65504", .lasting = true,
     .family = {.gate = slow, .beta = near_zero, .state = state_of_a_million}},
    {.name = "exact", .summary = "one-hot keys, small integers, beta in {0, 1}, g = 0: bit for bit",
     .exact = true, .lasting = true, .family = exact_draws(no_decay)},
    {.name = "exact_reset", .summary = "the same with tokens that forget everything",
     .exact = true, .gated = true, .family = exact_draws(exact_resets)},
};
// clang-format on

// Elements of named tensors.

double large(const Counter& own, const Coordinates& at) { return 30.0 * own.normal(at); }
double tiny(const Counter& own, const Coordinates& at) { return 1e-4 * own.normal(at); }
double zero_at_even_tokens(const Counter& own, const Coordinates& at) {
  return at.token % 2 == 0 ? 0.0 : own.normal(at);
}
double spiky(const Counter& own, const Coordinates& at) {
  const double x = own.normal(at);
  return own.below({at.sequence, 0, 1, at.channel}, 16) == 0 ? 100.0 * x : x;
}
double mixed_scales(const Counter& own, const Coordinates& at) {
  return std::ldexp(own.normal(at), static_cast<int>(own.below({at.sequence, at.token, 2, -1}, 17)) - 8);
}
double one_at_even_tokens(const Counter& own, const Coordinates& at) {
  return at.token % 2 == 0 ? 1.0 : normal::feature(own, at);
}
double wide_feature(const Counter& own, const Coordinates& at) { return std::exp(2.0 * own.normal(at)); }
/// A is 0 now and then, as a checkpoint in a low precision can hold it (BUGS M59): exp of this value is 0 in
/// fp32.
double some_rates_zero(const Counter& own, const Coordinates& at) {
  return own.below(at, 4) == 0 ? -200.0 : normal::log_rate(own, at);
}
/// Rates from e^-6 to e^6: trained checkpoints also hold rates above the initial ones.
double wide_rate(const Counter& own, const Coordinates& at) { return 12.0 * own.uniform(at) - 6.0; }
/// In every four tokens the first is 2^16 times as large as the second, the second 2^16 times as large as the
/// third, and the fourth is zero, separately for each tensor: sums of squares above 1e12 (for widths from
/// 256) stand beside sums that an epsilon outweighs, and a zero key stands beside a state and a value that
/// are not zero.
double extreme(const Counter& own, const Coordinates& at) {
  const auto kind = (at.token + own.below({at.sequence, 0, 2, -1}, 4)) % 4;
  return kind == 3 ? 0.0 : std::ldexp(own.normal(at), 16 * (static_cast<int>(kind) - 1));
}
/// For some tokens the sums of products lie below any epsilon.
double small_feature(const Counter& own, const Coordinates& at) {
  return std::ldexp(normal::feature(own, at),
                    -static_cast<int>(own.below({at.sequence, at.token, 2, -1}, 16)));
}
double zero_or_negative_scale(const Counter& own, const Coordinates& at) {
  const double x = normal::scale(own, at);
  const auto kind = own.below({at.sequence, at.token, at.head, -1 - at.channel}, 4);
  return kind == 0 ? 0.0 : kind == 1 ? -x : x;
}
/// Values near -1, and -1 itself: a zero-centred weight, to which 1 is added, then cancels almost or
/// completely.
double about_minus_one(const Counter& own, const Coordinates& at) {
  return own.below({at.sequence, at.token, at.head, -1 - at.channel}, 4) == 0
             ? -1.0
             : -1.0 + 0.1 * normal::offset(own, at);
}
/// The operator adds 1 to it.
double times_eight(const Counter& own, const Coordinates& at) { return 7.0 + normal::offset(own, at); }
/// From nearly zero through one up to two. Never zero: the sum of the chosen weights of a router is a
/// divisor.
double to_twice_one(const Counter& own, const Coordinates& at) {
  const auto kind = own.below({at.sequence, at.token, at.head, -1 - at.channel}, 4);
  return kind == 0 ? 0x1p-30 : kind == 1 ? 1.0 : 2.0 * own.uniform(at);
}

// clang-format off
constexpr Regime kTensorRegimes[] = {
    {.name = "normal", .summary = "unit normal data, weights divided by the root of their width", .plain = true},
    {.name = "large", .summary = "data times 30: gates saturate, softmax has one winner",
     .tensors = {.activation = large, .feature = wide_feature, .log_decay = 200.0}},
    {.name = "tiny", .summary = "data times 1e-4: epsilons count",
     .tensors = {.activation = tiny, .log_rate = some_rates_zero, .log_decay = 1e-4}},
    {.name = "zeros", .summary = "every second token is zero: ties in routing, norms of zero",
     .tensors = {.activation = zero_at_even_tokens, .feature = one_at_even_tokens}},
    {.name = "repeated", .summary = "every token is the same one", .tensors = {.one_token = true}},
    {.name = "spiky", .summary = "one channel in 16 is 100 times the others", .tensors = {.activation = spiky}},
    {.name = "mixed_scales", .summary = "every token has a scale of its own, 2^-8 to 2^8",
     .tensors = {.activation = mixed_scales}},
    {.name = "padded", .summary = "the mask begins with zeros, up to a third of the tokens",
     .tensors = {.masked_to_third = true}},
    {.name = "masked", .summary = "the mask ends with zeros, up to a third of the tokens, or has them anywhere",
     .tensors = {.masked_anywhere = true}},
    {.name = "wide_rates", .summary = "rates of e^-6 to e^6, and every token has a scale of its own, 2^-8 to 2^8",
     .tensors = {.activation = mixed_scales, .log_rate = wide_rate, .of_rates = true}},
    {.name = "sharp", .summary = "weights of the norms of queries and keys are 8: scores beyond 88, where e^s leaves fp32",
     .tensors = {.head_norm = times_eight, .of_head_norms = true}},
    {.name = "trained", .summary = "steps of 1e-4 to 0.1; states and positions of an earlier call, in three sequences of four",
     .tensors = {.trained = true}},
    {.name = "long_context", .summary = "trained, three sequences in four going on behind 4,097 to 36,864 tokens",
     .tensors = {.trained = true, .long_context = true}},
    {.name = "extremes", .summary = "tokens 0, 2^-16, 1 and 2^16 times normal; weights of 0, about -1, negative; strengths of 2^-30, 1 and above",
     .tensors = {.activation = extreme, .feature = small_feature, .scale = zero_or_negative_scale,
                 .offset = about_minus_one, .head_norm = about_minus_one, .strength = to_twice_one}},
    // Without a cotangent of o, dg of every token is then e^G <S, dS> and nothing else.
    {.name = "only_decay", .summary = "k = 0 and beta = 0: nothing is written, and the state only decays; for gradients",
     .gated = true, .family = {.key = zero_row, .beta = zero}},
};
// clang-format on

}  // namespace

namespace normal {

std::int64_t token(const BatchSource&, const Coordinates& at) { return at.token; }

void row(DrawnRow row, const BatchSource&, const Counter& own, const Coordinates& at) {
  for (std::size_t c = 0; c < row.size(); ++c) row[c] = own.normal(channel_of(at, c));
}

void length(DrawnRow row, bool normalises) {
  if (!normalises) set_length(row, 1.0);
}

double gate(const BatchSource& source, const Coordinates& at) {
  return -std::log1p(std::exp(-source.g.normal(at))) / 4.0;
}

double beta(const BatchSource& source, const Coordinates& at) { return sigmoid(source.beta.normal(at)); }

double state(const BatchSource& source, const Coordinates& at, double size) {
  return 0.3 * size * source.state.normal(at);
}

bool idle(const BatchSource&, const Coordinates&) { return false; }

double activation(const Counter& own, const Coordinates& at) { return own.normal(at); }

double feature(const Counter& own, const Coordinates& at) { return std::exp(0.5 * own.normal(at)); }

double scale(const Counter& own, const Coordinates& at) { return 1.0 + 0.2 * own.normal(at); }

double offset(const Counter& own, const Coordinates& at) { return 0.2 * own.normal(at); }

double strength(const Counter& own, const Coordinates& at) { return own.uniform(at); }

double log_rate(const Counter& own, const Coordinates& at) {
  return -1.0 + own.uniform(at) * (std::log(16.0) + 1.0);
}

}  // namespace normal

const std::vector<std::string_view>& cotangent_kinds() {
  static const std::vector<std::string_view> kinds{"normal", "output", "ones", "tiny", "large", "basis"};
  return kinds;
}

std::span<const Regime> regimes() { return kRegimes; }

std::span<const Regime> tensor_regimes() { return kTensorRegimes; }

}  // namespace samestate
