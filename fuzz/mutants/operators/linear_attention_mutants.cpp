#include "fuzz/mutants/operators/changed_call.h"

/// The normaliser of linear attention: M60, M61.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

/// o of the tokens after the first chunk is divided by the sums of its own chunk alone.
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

}  // namespace

std::vector<Mutant> linear_attention_mutants() {
  std::vector<Mutant> out;
  add_faults(out, "cpu.linear_attention_normalised.chunked",
             {{"M60", "normaliser_per_chunk", "the normaliser sums its own chunk alone",
               miswritten(normaliser_per_chunk)},
              {"M61", "normaliser_not_carried", "the normaliser starts from zero in every call",
               misread(filled("z", 0.0F))}});
  return out;
}

}  // namespace samestate::mutants
