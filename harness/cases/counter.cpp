#include "harness/cases/counter.h"

#include <Random123/philox.h>

#include <cmath>

namespace samestate {
namespace {

/// FNV-1a: the tensor's name as 64 bits.
std::uint64_t hash(std::string_view text) {
  std::uint64_t h = 0xcbf29ce484222325U;
  for (char c : text) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return h;
}

r123::Philox4x64::ctr_type draw(std::uint64_t seed, std::uint64_t tensor, const Coordinates& at) {
  const r123::Philox4x64::ctr_type counter = {
      {static_cast<std::uint64_t>(at.sequence), static_cast<std::uint64_t>(at.token),
       static_cast<std::uint64_t>(at.head), static_cast<std::uint64_t>(at.channel)}};
  const r123::Philox4x64::key_type key = {{seed, tensor}};
  return r123::Philox4x64()(counter, key);
}

}  // namespace

Counter::Counter(std::uint64_t seed, std::string_view tensor) : seed_(seed), tensor_(hash(tensor)) {}

double Counter::uniform(const Coordinates& at) const {
  return static_cast<double>(draw(seed_, tensor_, at)[0] >> 11) * 0x1p-53;
}

double Counter::normal(const Coordinates& at) const {
  const auto bits = draw(seed_, tensor_, at);
  // One word holds two sums, those of the even and of the odd pairs of bytes; each is below 2^20.
  constexpr std::uint64_t kEven = 0x0000FFFF0000FFFFU;
  const auto halves = [](std::uint64_t word) { return (word & kEven) + (word >> 16U & kEven); };
  std::uint64_t sums = halves(bits[0]) + halves(bits[1]);
  asm("" : "+r"(sums));  // kept apart, since one vector would wait for the four words just stored
  sums += halves(bits[2]) + halves(bits[3]);
  const auto sum = static_cast<std::int64_t>((sums & 0xFFFFFFFFU) + (sums >> 32U));
  // The mean is 16 * 65535 / 2, the variance 16 (65536^2 - 1) / 12.
  constexpr std::int64_t kTwiceMean = 16 * 65535;
  const double deviation = std::sqrt(16.0 * (65536.0 * 65536.0 - 1.0) / 12.0);
  return static_cast<double>(2 * sum - kTwiceMean) / (2.0 * deviation);
}

std::int64_t Counter::below(const Coordinates& at, std::int64_t n) const {
  return static_cast<std::int64_t>(uniform(at) * static_cast<double>(n));
}

}  // namespace samestate
