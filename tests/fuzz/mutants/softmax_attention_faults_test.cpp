#include "tests/fuzz/mutants/faults.h"

namespace samestate {
namespace {

using namespace planted;

float root(std::int64_t n) { return std::sqrt(static_cast<float>(n)); }

/// Head h of every row of `width`-wide heads becomes head `from(h)`.
void permute_heads(std::span<float> x, std::int64_t heads, std::int64_t width,
                   const std::function<std::int64_t(std::int64_t)>& from) {
  const std::vector<float> old(x.begin(), x.end());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    const std::int64_t head = at / width % heads;
    x[i] = old[static_cast<std::size_t>(at + (from(head) - head) * width)];
  }
}

/// Query head h reads key head h mod Hkv: the heads are put where the right kernel maps them so, and back.
Outcome tiled_head_map(const OperatorKernel& right, Damaged& c, const Contract& contract) {
  const std::int64_t H = c.call.parameter("H");
  const std::int64_t groups = c.call.parameter("Hkv");
  const std::int64_t size = H / groups;
  permute_heads(c.input("q"), H, c.call.parameter("d"),
                [&](std::int64_t h) { return h % size * groups + h / size; });
  const Outcome outcome = right.run(c.call, contract);
  permute_heads(c.output("o"), H, c.call.parameter("dv"),
                [&](std::int64_t h) { return h % groups * size + h / groups; });
  return outcome;
}

void drop_scale(Damaged& c) {
  c.each("q", [s = root(c.call.parameter("d"))](float x) { return x * s; });
}
/// Query t sees the keys 1 .. t + 1 in place of 0 .. t.
void mask_off_by_one(Damaged& c) {
  for (const char* name : {"k", "v"}) {
    const std::int64_t width = c.width(name);
    c.groups(name, width * c.call.input(name).extent(1), [&](std::span<float> x) {
      if (std::ssize(x) > width) std::rotate(x.begin(), x.begin() + width, x.end());
    });
  }
}
/// The keys of this call alone: the cache is lost.
void cache_forgotten(Damaged& c) {
  for (NamedTensor<const float>& tensor : c.call.inputs) {
    if (tensor.name == "q" || tensor.shape[1] == c.call.tokens) continue;
    const std::span<float> x = c.input(tensor.name);
    const std::int64_t lost = (tensor.shape[1] - c.call.tokens) * tensor.shape[2];
    const std::int64_t kept = c.call.tokens * tensor.shape[2];
    for (std::int64_t b = 0; b < tensor.shape[0]; ++b)
      std::copy_n(x.begin() + b * (lost + kept) + lost, kept, x.begin() + b * kept);
    tensor.shape[1] = c.call.tokens;
  }
}
void values_of_the_first_key_head(Damaged& c) {
  permute_heads(c.input("v"), c.call.parameter("Hkv"), c.call.parameter("dv"),
                [](std::int64_t) { return 0; });
}

std::vector<OperatorFault> faults_of(const char* kernel) {
  return {misread("no scale", kernel, drop_scale),
          misread("mask off by one", kernel, mask_off_by_one),
          {"tiled map of heads", kernel, tiled_head_map},
          misread("the cache forgotten", kernel, cache_forgotten),
          misread("values of the first key head", kernel, values_of_the_first_key_head),
          miswritten("sums not divided out", kernel, [](Damaged& c) {
            const auto width = static_cast<std::size_t>(c.call.parameter("H") * c.call.parameter("dv"));
            const std::span<float> o = c.output("o");
            for (std::size_t i = 0; i < o.size(); ++i)
              o[i] *= static_cast<float>(1 + i / width % static_cast<std::size_t>(c.call.tokens));
          })};
}

TEST(SoftmaxAttentionFaults, OfTheOnlineKernelDie) {
  expect_killed(faults_of("cpu.softmax_attention.online"));
}
TEST(SoftmaxAttentionFaults, OfTheMergedKernelDie) {
  expect_killed(faults_of("cpu.softmax_attention.merged"));
}
TEST(SoftmaxAttentionFaults, OfTheGroupedKernelDie) {
  expect_killed(faults_of("cpu.softmax_attention.grouped"));
}

constexpr const char* kLayer = "cpu.gated_attention.online";

/// The rows of q_proj of every head, first the gate, then the query.
void gate_before_query(Damaged& c) {
  const std::int64_t rows = c.call.parameter("d") * c.call.parameter("D");
  c.groups("q_proj", 2 * rows,
           [&](std::span<float> w) { std::rotate(w.begin(), w.begin() + rows, w.end()); });
}
/// q_proj as all queries, then all gates.
void queries_then_gates(Damaged& c) {
  const std::int64_t H = c.call.parameter("H");
  permute_heads(c.input("q_proj"), 2 * H, c.call.parameter("d") * c.call.parameter("D"),
                [H](std::int64_t i) { return i % 2 * H + i / 2; });
}
void table_of_the_token_before(Damaged& c) {
  for (const char* name : {"cosine", "sine"}) {
    const std::span<float> x = c.input(name);
    const auto n = static_cast<std::ptrdiff_t>(c.width(name));
    if (std::ssize(x) > n) std::rotate(x.begin(), x.end() - n, x.end());
  }
}
void pairs_interleaved(Damaged& c) {
  // Columns of a head that turn go 0 2 4 .. 1 3 5 ..: halves then are what interleaved pairs would be.
  const std::int64_t pairs = c.call.parameter("pairs");
  const std::int64_t d = c.call.parameter("d");
  const auto from = [&](std::int64_t i) {
    return i >= 2 * pairs ? i : i < pairs ? 2 * i : 2 * (i - pairs) + 1;
  };
  const std::int64_t D = c.call.parameter("D");
  permute_heads(c.input("k_proj"), d, D, from);
  permute_heads(c.input("k_norm"), d, 1, from);
}

TEST(GatedAttentionFaults, Die) {
  expect_killed({
      misread("gate before query", kLayer, gate_before_query),
      misread("queries, then gates", kLayer, queries_then_gates),
      misread("q_norm as w", kLayer, [](Damaged& c) { c.each("q_norm", [](float w) { return w - 1.0F; }); }),
      misread("k_norm of q", kLayer,
              [](Damaged& c) { std::ranges::copy(c.input("q_norm"), c.input("k_norm").begin()); }),
      misread("position off by one", kLayer, table_of_the_token_before),
      misread("interleaved keys", kLayer, pairs_interleaved),
      misread("turned the other way", kLayer, [](Damaged& c) { c.each("sine", [](float x) { return -x; }); }),
      misread("key heads exchanged", kLayer,
              [](Damaged& c) {
                const std::int64_t Hkv = c.call.parameter("Hkv");
                permute_heads(c.input("v_proj"), Hkv, c.call.parameter("d") * c.call.parameter("D"),
                              [Hkv](std::int64_t h) { return (h + 1) % Hkv; });
              }),
      miswritten("values scaled in the cache", kLayer,
                 [](Damaged& c) {
                   for (float& x : c.output("v")) x *= 2.0F;
                 }),
      miswritten("output not projected", kLayer,
                 [](Damaged& c) {
                   const std::span<float> out = c.output("out");
                   const std::span<float> gated = c.output("gated");
                   std::copy_n(gated.begin(), std::min(out.size(), gated.size()), out.begin());
                 }),
  });
}

}  // namespace
}  // namespace samestate
