#include <algorithm>

#include "fuzz/mutants/operators/changed_call.h"

/// Linear attention without a mask, and with a normaliser: M26, M60, M61, and masks and tokens.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

/// o of the tokens after the first chunk is divided by the sums of its own chunk only.
void normaliser_per_chunk(Call& c) {
  const std::int64_t H = c.at("H"), dk = c.at("dk"), dv = c.at("dv"), T = c.call.tokens, C = c.call.chunk;
  const std::span<float> q = c.input("q"), k = c.input("k"), o = c.output("o");
  for (std::int64_t row = 0; row < c.call.batch * T * H; ++row) {
    const std::int64_t h = row % H, t = row / H % T, b = row / H / T;
    double all = 0.0, chunk = 0.0;
    for (std::int64_t i = 0; i < dk; ++i) {
      double sum = static_cast<double>(c.input("z")[static_cast<std::size_t>((b * H + h) * dk + i)]);
      double part = 0.0;
      for (std::int64_t s = 0; s <= t; ++s) {
        const double x = static_cast<double>(k[static_cast<std::size_t>(((b * T + s) * H + h) * dk + i)]);
        sum += x;
        if (s >= t / C * C) part += x;
      }
      const double x = static_cast<double>(q[static_cast<std::size_t>(row * dk + i)]);
      all += x * sum;
      chunk += x * part;
    }
    for (std::int64_t j = 0; t >= C && j < dv; ++j)
      o[static_cast<std::size_t>(row * dv + j)] *= static_cast<float>(all / chunk);
  }
}

/// o_t sums the tokens up to t.
void masked(Call& c) {
  const std::int64_t H = c.at("H"), dk = c.at("dk"), dv = c.at("dv"), T = c.call.tokens;
  const std::span<float> q = c.input("q"), k = c.input("k"), v = c.input("v"), o = c.output("o");
  const auto at = [&](std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t width) {
    return static_cast<std::size_t>(((b * T + t) * H + h) * width);
  };
  std::ranges::fill(o, 0.0F);
  for (std::int64_t row = 0; row < c.call.batch * T * H; ++row) {
    const std::int64_t h = row % H, t = row / H % T, b = row / H / T;
    for (std::int64_t s = 0; s <= t; ++s) {
      float score = 0.0F;
      for (std::size_t i = 0; i < static_cast<std::size_t>(dk); ++i)
        score += q[at(b, t, h, dk) + i] * k[at(b, s, h, dk) + i];
      for (std::size_t j = 0; j < static_cast<std::size_t>(dv); ++j)
        o[at(b, t, h, dv) + j] += score * v[at(b, s, h, dv) + j];
    }
  }
}
void last_token_unseen(Call& c) {
  each_row(c.input("k"), c.call.tokens * c.width("k"),
           [&](std::span<float> k) { std::fill(k.end() - c.width("k"), k.end(), 0.0F); });
}

}  // namespace

std::vector<Mutant> linear_attention_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.linear_attention_bidirectional.state_first",
      {{"F", "masked", "a token sees those up to itself, where all are meant", miswritten(masked)},
       {"F", "last_token_unseen", "nobody sees the last token", misread(last_token_unseen)},
       {"F", "values_of_the_next_token", "a key has the value of the next token", misread(next_token("v"))}});
  add_faults(out, "cpu.linear_attention_normalised.chunked",
             {{"M26", "state_not_read", "every call starts from zero", misread(filled("S", 0.0F))},
              {"M60", "normaliser_per_chunk", "the normaliser sums its own chunk alone",
               miswritten(normaliser_per_chunk)},
              {"M61", "normaliser_not_carried", "the normaliser starts from zero in every call",
               misread(filled("z", 0.0F))}});
  return out;
}

}  // namespace samestate::mutants
