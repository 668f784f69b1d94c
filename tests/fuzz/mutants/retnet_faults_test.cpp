#include <cmath>

#include "tests/fuzz/mutants/faults.h"

namespace samestate::planted {
namespace {

constexpr const char* kChunked = "cpu.normalised_retention.chunked";
constexpr const char* kCore = "cpu.normalised_retention_recurrence.core";
constexpr const char* kLayer = "cpu.multi_scale_retention.chunked";

/// The columns of two heads exchanged in every row.
void exchange_heads(std::span<float> x, std::int64_t heads, std::int64_t width) {
  if (heads < 2) return;
  const auto w = static_cast<std::size_t>(width);
  const auto row = static_cast<std::size_t>(heads) * w;
  for (std::size_t i = 0; i + row <= x.size(); i += row) {
    for (std::size_t c = 0; c < w; ++c) std::swap(x[i + c], x[i + w + c]);
  }
}

/// Every head with its neighbour's decay: heads exchanged on the way in and back on the way out.
Outcome decay_of_neighbour(const OperatorKernel& right, Damaged& call, const Contract& contract) {
  const std::int64_t H = call.call.parameter("H");
  const std::int64_t dk = call.call.parameter("dk");
  const std::int64_t dv = call.call.parameter("dv");
  exchange_heads(call.input("q"), H, dk);
  exchange_heads(call.input("k"), H, dk);
  exchange_heads(call.input("v"), H, dv);
  const Outcome outcome = right.run(call.call, contract);
  exchange_heads(call.output("o"), H, dv);
  return outcome;
}

/// Tokens from the first chunk's end on, as if nothing had been before them.
Outcome forgets_chunks(const OperatorKernel& right, Damaged& call, const Contract& contract) {
  const Outcome outcome = right.run(call.call, contract);
  const std::span<float> o = call.output("o");
  const std::vector<float> whole(o.begin(), o.end());
  if (call.call.tokens <= call.call.chunk) return outcome;
  const auto first = static_cast<std::size_t>(call.call.chunk);
  call.groups("k", call.call.tokens * call.width("k"), [&](std::span<float> k) {
    std::fill_n(k.begin(), static_cast<std::ptrdiff_t>(first) * call.width("k"), 0.0F);
  });
  (void)right.run(call.call, contract);
  const auto T = static_cast<std::size_t>(call.call.tokens);
  const std::size_t columns = o.size() / (T * static_cast<std::size_t>(call.call.batch));
  for (std::size_t i = 0; i < o.size(); ++i) {
    if (i / columns % T < first) o[i] = whole[i];
  }
  return outcome;
}

/// x <- f x for every element of an output.
std::function<void(Damaged&)> times(std::string_view name, double (*factor)(const OperatorArguments&)) {
  return [name, factor](Damaged& call) {
    for (float& x : call.output(name)) x *= static_cast<float>(factor(call.call));
  };
}

double root_of_values(const OperatorArguments& call) {
  return std::sqrt(static_cast<double>(call.parameter("dv")));
}

TEST(RetnetFaults, TheEdgesKillEach) {
  expect_killed({
      {"decay of the neighbouring head", kChunked, decay_of_neighbour},
      {"the state of earlier chunks is lost", kChunked, forgets_chunks},
      miswritten("norm by the sum of squares, not their mean", kChunked,
                 times("o", [](const OperatorArguments& call) { return 1.0 / root_of_values(call); })),
      misread("keys of the next token", kChunked,
              [](Damaged& call) {
                call.groups("k", call.call.tokens * call.width("k"), [&](std::span<float> k) {
                  std::rotate(k.begin(), k.begin() + call.width("k"), k.end());
                });
              }),
      {"decay of the neighbouring head", kCore, decay_of_neighbour},
      misread("state not carried", kCore, [](Damaged& call) { call.fill("S", 0.0F); }),
      misread("scale not carried", kCore, [](Damaged& call) { call.fill("s", 0.0F); }),
      miswritten("the state left with another scale", kCore,
                 times("S", [](const OperatorArguments&) { return std::sqrt(2.0); })),
      misread("scale one step behind", kCore,
              [](Damaged& call) { call.each("s", [](float s) { return s > 1.0F ? s - 1.0F : s; }); }),
      misread("positions begin anew", kLayer, [](Damaged& call) { call.fill("position", 0.0F); }),
      misread("state not carried", kLayer, [](Damaged& call) { call.fill("S", 0.0F); }),
      misread("keys without dk^-1/2", kLayer,
              [](Damaged& call) {
                const auto root = std::sqrt(static_cast<float>(call.call.parameter("dk")));
                call.each("k_proj", [root](float w) { return root * w; });
              }),
      misread("pairs (2i, 2i + 1) taken in the other order", kLayer,
              [](Damaged& call) {
                const std::int64_t D = call.width("q_proj");
                for (const char* name : {"q_proj", "k_proj"}) {
                  call.groups(name, 2 * D, [D](std::span<float> pair) {
                    std::rotate(pair.begin(), pair.begin() + D, pair.end());
                  });
                }
              }),
      misread("the values as their own gate", kLayer,
              [](Damaged& call) {
                const std::span<float> v = call.input("v_proj");
                std::copy(v.begin(), v.end(), call.input("g_proj").begin());
              }),
  });
}

}  // namespace
}  // namespace samestate::planted
