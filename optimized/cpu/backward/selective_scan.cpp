#include "optimized/cpu/backward/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/backward/named_views.h"
#include "optimized/cpu/block.h"
#include "optimized/cpu/operators/layer_parts.h"
#include "reference/error.h"

namespace samestate::cpu {
namespace {

/// A block has this many channels at least, and a call at most kMostBlocks blocks, which bounds the partial sums of d.B and
/// d.C.
constexpr std::int64_t kLeastChannels = 8, kMostBlocks = 64;

/// The factor f of B u, and what its derivatives are made of.
struct HeldInput {
  float factor, by_delta, by_A;
};

/// For the decay a = e^{delta A}: delta, 1 and 0, or with zero-order hold (a - 1) / A and its derivatives. That by A is
/// delta^2 (1/2 + x/3 + x^2/8 + ..), of which the quotient would lose all digits near x = delta A = 0.
HeldInput held_input(float delta, float A, float a, bool hold) {
  if (!hold) return {delta, 1.0F, 0.0F};
  const float x = delta * A;
  const float factor = x == 0.0F ? delta : std::expm1(x) / A;
  if (x < -1.0F) return {factor, a, (delta * a - factor) / A};
  float rest = 0.0F;
  for (int n = 14; n >= 2; --n)
    rest = x * static_cast<float>(n) / static_cast<float>((n - 1) * (n + 1)) * (1.0F + rest);
  return {factor, a, 0.5F * delta * delta * (1.0F + rest)};
}

/// The tensors of a call.
struct ReverseScan {
  ReverseScan(const OperatorArguments& c, const Contract& k)
      : call(c),
        contract(k),
        D(c.parameter("D")),
        N(c.parameter("N")),
        sequences(sequences_of(c)),
        width(std::max(kLeastChannels, (D + kMostBlocks - 1) / kMostBlocks)),
        blocks((D + width - 1) / width),
        hold(c.parameter("hold") != 0),
        u(given<3>(c, "u")),
        dt(given<3>(c, "dt")),
        z(given<3>(c, "z")),
        B(given<3>(c, "B")),
        C(given<3>(c, "C")),
        h(given<3>(c, "h")),
        d_out(given<3>(c, "d.out")),
        d_last(given<3>(c, "d.h")),
        dt_bias(given<1>(c, "dt_bias")),
        skip(given<1>(c, "skip")),
        A_log(given<2>(c, "A_log")),
        d_u(view_of<3>(c.output("d.u"))),
        d_dt(view_of<3>(c.output("d.dt"))),
        d_z(view_of<3>(c.output("d.z"))),
        d_B(view_of<3>(c.output("d.B"))),
        d_C(view_of<3>(c.output("d.C"))),
        d_h(view_of<3>(c.output("d.h"))),
        sums(static_cast<std::size_t>(sequences * D * (N + 2)), 0.0F),
        shared(static_cast<std::size_t>(blocks * c.batch * c.tokens * 2 * N), 0.0F) {}

  /// The sums over the tokens of a sequence for one channel: of its N rates, its bias and its skip.
  [[nodiscard]] float* sums_of(std::int64_t n, std::int64_t channel) {
    return sums.data() + (n * D + channel) * (N + 2);
  }
  /// What a block of channels adds to d.B of a token, and behind it to d.C.
  [[nodiscard]] float* shared_of(std::int64_t block, std::int64_t batch, std::int64_t t) {
    return shared.data() + ((block * call.batch + batch) * call.tokens + t) * 2 * N;
  }

  const OperatorArguments& call;
  const Contract& contract;
  std::int64_t D, N, sequences, width, blocks;
  bool hold;
  View<const float, 3> u, dt, z, B, C, h, d_out, d_last;
  View<const float, 1> dt_bias, skip;
  View<const float, 2> A_log;
  View<float, 3> d_u, d_dt, d_z, d_B, d_C, d_h;
  std::vector<float> sums, shared;
};

/// Scratch of one thread, which takes channel after channel.
class ReverseChannel {
 public:
  explicit ReverseChannel(ReverseScan& all) : of_(all) {}

  void run(std::int64_t n, std::int64_t block, std::int64_t d) {
    const std::int64_t N = of_.N, chunk = std::max<std::int64_t>(of_.call.chunk, 1);
    at_ = tokens_of_sequence(of_.call, n);
    const std::int64_t chunks = (at_.count + chunk - 1) / chunk;
    rate_.resize(static_cast<std::size_t>(N));
    for (std::int64_t s = 0; s < N; ++s) rate_[static_cast<std::size_t>(s)] = -std::exp(of_.A_log(d, s));
    starts_.resize(chunks + 1, N);
    for (std::int64_t s = 0; s < N; ++s) starts_.row(0)[s] = of_.h(n, d, s);
    for (std::int64_t c = 0; c + 1 < chunks; ++c) {
      std::copy_n(starts_.row(c), N, starts_.row(c + 1));
      for (std::int64_t t = c * chunk; t < (c + 1) * chunk; ++t) advance(t, d, starts_.row(c + 1));
    }
    behind_.assign(static_cast<std::size_t>(N), 0.0F);
    for (std::int64_t s = 0; of_.d_last.present() && s < N; ++s)
      behind_[static_cast<std::size_t>(s)] = of_.d_last(n, d, s);
    for (std::int64_t c = chunks; c-- > 0;)
      reverse(n, block, d, c * chunk, std::min(chunk, at_.count - c * chunk), starts_.row(c));
    round_values(behind_.data(), behind_.data(), N, of_.contract.state);
    for (std::int64_t s = 0; s < N; ++s) of_.d_h(n, d, s) = behind_[static_cast<std::size_t>(s)];
    float* const sums = of_.sums_of(n, d);
    for (std::int64_t s = 0; s < N; ++s) sums[s] *= rate_[static_cast<std::size_t>(s)];
  }

 private:
  /// Element d of token t of the sequence.
  [[nodiscard]] float value(const View<const float, 3>& x, std::int64_t t, std::int64_t d) const {
    return x(at_.batch, at_.begin + t, d);
  }
  [[nodiscard]] float step(std::int64_t t, std::int64_t d) const {
    return layer::softplus(value(of_.dt, t, d) + of_.dt_bias(d));
  }

  void advance(std::int64_t t, std::int64_t d, float* h) const {
    const float delta = step(t, d), u = value(of_.u, t, d);
    for (std::int64_t s = 0; s < of_.N; ++s) {
      const float A = rate_[static_cast<std::size_t>(s)], a = std::exp(delta * A);
      h[s] = a * h[s] + held_input(delta, A, a, of_.hold).factor * value(of_.B, t, s) * u;
    }
  }

  /// The chunk of n tokens from `begin` on, whose first state is `start`.
  void reverse(std::int64_t sequence, std::int64_t block, std::int64_t d, std::int64_t begin, std::int64_t n,
               const float* start) {
    const std::int64_t N = of_.N;
    states_.resize(n + 1, N), decay_.resize(n, N), through_.resize(n, N), inside_.resize(n, N);
    std::copy_n(start, N, states_.row(0));
    for (std::int64_t i = 0; i < n; ++i) {
      std::copy_n(states_.row(i), N, states_.row(i + 1));
      advance(begin + i, d, states_.row(i + 1));
    }
    // dh at token i is inside_ + through_ * (dh behind the chunk), composed from the last token on.
    for (std::int64_t i = n; i-- > 0;) {
      const std::int64_t t = begin + i;
      const float delta = step(t, d), dy = cotangent(t, d);
      for (std::int64_t s = 0; s < N; ++s) {
        decay_.row(i)[s] = std::exp(delta * rate_[static_cast<std::size_t>(s)]);
        const float own = dy * value(of_.C, t, s);
        const bool last = i + 1 == n;
        through_.row(i)[s] = last ? 1.0F : decay_.row(i + 1)[s] * through_.row(i + 1)[s];
        inside_.row(i)[s] = last ? own : own + decay_.row(i + 1)[s] * inside_.row(i + 1)[s];
      }
    }
    for (std::int64_t i = 0; i < n; ++i) token(sequence, block, d, begin + i, i);
    for (std::int64_t s = 0; n > 0 && s < N; ++s) {
      float& dh = behind_[static_cast<std::size_t>(s)];
      dh = decay_.row(0)[s] * (inside_.row(0)[s] + through_.row(0)[s] * dh);
    }
  }

  /// The cotangent of y, before the gate.
  [[nodiscard]] float cotangent(std::int64_t t, std::int64_t d) const {
    return of_.d_out.present() ? value(of_.d_out, t, d) * layer::silu(value(of_.z, t, d)) : 0.0F;
  }

  void token(std::int64_t sequence, std::int64_t block, std::int64_t d, std::int64_t t, std::int64_t i) {
    const std::int64_t N = of_.N;
    const float delta = step(t, d), u = value(of_.u, t, d), dy = cotangent(t, d);
    float* const sums = of_.sums_of(sequence, d);
    float* const of_B = of_.shared_of(block, at_.batch, at_.begin + t);
    float y = 0.0F, du = 0.0F, d_delta = 0.0F;
    for (std::int64_t s = 0; s < N; ++s) {
      const float A = rate_[static_cast<std::size_t>(s)], a = decay_.row(i)[s], h = states_.row(i + 1)[s];
      const float dh = inside_.row(i)[s] + through_.row(i)[s] * behind_[static_cast<std::size_t>(s)];
      const HeldInput held = held_input(delta, A, a, of_.hold);
      const float B = value(of_.B, t, s);
      const float along = dh * (a * states_.row(i)[s]), df = dh * B * u;
      y += value(of_.C, t, s) * h;
      of_B[N + s] += dy * h;
      of_B[s] += dh * (held.factor * u);
      du += dh * (held.factor * B);
      d_delta += along * A + df * held.by_delta;
      sums[s] += along * delta + df * held.by_A;
    }
    y += of_.skip(d) * u;
    du += of_.skip(d) * dy;
    const float d_dt = d_delta * layer::logistic(value(of_.dt, t, d) + of_.dt_bias(d));
    sums[N] += d_dt;
    sums[N + 1] += dy * u;
    float dz = 0.0F;
    if (of_.d_out.present()) {
      const float z = value(of_.z, t, d), sigma = layer::logistic(z);
      dz = value(of_.d_out, t, d) * y * (sigma * (1.0F + z * (1.0F - sigma)));
    }
    write(of_.d_u, t, d, du);
    write(of_.d_dt, t, d, d_dt);
    write(of_.d_z, t, d, dz);
  }

  void write(const View<float, 3>& to, std::int64_t t, std::int64_t d, float x) const {
    round_values(&x, &to(at_.batch, at_.begin + t, d), 1, of_.contract.output);
  }

  ReverseScan& of_;
  TokenRange at_;
  std::vector<float> rate_, behind_;
  Block starts_, states_, decay_, through_, inside_;
};

/// d.B and d.C of the tokens that belong to sequences, over the blocks of channels.
void write_shared(ReverseScan& all, std::int64_t sequence) {
  const TokenRange at = tokens_of_sequence(all.call, sequence);
  for (std::int64_t t = at.begin; t < at.begin + at.count; ++t) {
    for (std::int64_t s = 0; s < all.N; ++s) {
      float d_B = 0.0F, d_C = 0.0F;
      for (std::int64_t block = 0; block < all.blocks; ++block) {
        const float* const part = all.shared_of(block, at.batch, t);
        d_B += part[s];
        d_C += part[all.N + s];
      }
      round_values(&d_B, &all.d_B(at.batch, t, s), 1, all.contract.output);
      round_values(&d_C, &all.d_C(at.batch, t, s), 1, all.contract.output);
    }
  }
}

}  // namespace

Outcome selective_scan_backward_chunks(const OperatorArguments& call, const Contract& contract) {
  if (call.chunk < 1) throw Error("chunk=" + std::to_string(call.chunk) + ": a chunk holds at least 1 token");
  ReverseScan all(call, contract);
  for_each_task(all.sequences * all.blocks, call.threads, [&] {
    return [&, channel = ReverseChannel(all)](std::int64_t task) mutable {
      const std::int64_t n = task / all.blocks, block = task % all.blocks;
      const std::int64_t end = std::min(all.D, (block + 1) * all.width);
      for (std::int64_t d = block * all.width; d < end; ++d) channel.run(n, block, d);
    };
  });
  for (std::int64_t n = 0; n < all.sequences; ++n) write_shared(all, n);
  const View<float, 2> d_A_log = view_of<2>(call.output("d.A_log"));
  const View<float, 1> d_bias = view_of<1>(call.output("d.dt_bias")),
                       d_skip = view_of<1>(call.output("d.skip"));
  for (std::int64_t d = 0; d < all.D; ++d) {
    for (std::int64_t j = 0; j < all.N + 2; ++j) {
      float sum = 0.0F;
      for (std::int64_t n = 0; n < all.sequences; ++n) sum += all.sums_of(n, d)[j];
      (j < all.N ? d_A_log(d, j) : j == all.N ? d_bias(d) : d_skip(d)) = sum;
    }
  }
  return {};
}

}  // namespace samestate::cpu
