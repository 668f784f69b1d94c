#include "tests/fuzz/mutants/faults.h"

namespace samestate {
namespace {

using namespace planted;

constexpr const char* kCache = "cpu.latent_cache.direct";
constexpr const char* kAttention = "cpu.latent_attention.absorbed";

void scale(Damaged& c, const char* name, double factor) {
  c.each(name, [f = static_cast<float>(factor)](float x) { return f * x; });
}
void other_way_round(Damaged& c) {
  if (c.call.parameter("dr") > 0) scale(c, "sin", -1.0);
}
void table_of_the_token_before(Damaged& c) {
  if (c.call.parameter("dr") == 0) return;
  for (const char* name : {"cos", "sin"}) {
    const std::span<float> x = c.input(name);
    const auto n = static_cast<std::ptrdiff_t>(c.width(name));
    if (std::ssize(x) > n) std::rotate(x.begin(), x.end() - n, x.end());
  }
}

/// The norm does not see a power of two, but for its epsilon; of the rest it is taken back.
Outcome cache_without_epsilon(const OperatorKernel& right, Damaged& c, const Contract& contract) {
  scale(c, "x", 0x1p20);
  const Outcome outcome = right.run(c.call, contract);
  if (c.call.parameter("dr") > 0) {
    for (float& x : c.output("kr")) x *= 0x1p-20F;
  }
  return outcome;
}

/// Pairs (i, i + dr / 2): the columns are put where the right kernel pairs them so, and back.
Outcome pairs_of_halves(const OperatorKernel& right, Damaged& c, const Contract& contract) {
  const std::int64_t dr = c.call.parameter("dr");
  if (dr == 0) return right.run(c.call, contract);
  const auto half = [dr](std::int64_t i) { return i / 2 + i % 2 * (dr / 2); };
  const std::span<float> down = c.input("kv_down");
  const std::vector<float> old(down.begin(), down.end());
  const std::int64_t D = c.width("kv_down");
  const std::int64_t first = c.call.parameter("dc");
  for (std::int64_t i = 0; i < dr; ++i)
    std::copy_n(old.begin() + (first + half(i)) * D, D, down.begin() + (first + i) * D);
  const Outcome outcome = right.run(c.call, contract);
  const std::span<float> kr = c.output("kr");
  for (std::int64_t row = 0; row < std::ssize(kr); row += dr) {
    const std::vector<float> turned(kr.begin() + row, kr.begin() + row + dr);
    for (std::int64_t i = 0; i < dr; ++i)
      kr[static_cast<std::size_t>(row + half(i))] = turned[static_cast<std::size_t>(i)];
  }
  return outcome;
}

TEST(LatentCacheFaults, Die) {
  expect_killed({
      misread("no weight of the norm", kCache, [](Damaged& c) { c.fill("kv_norm", 1.0F); }),
      misread("norm weight as 1 + w", kCache,
              [](Damaged& c) { c.each("kv_norm", [](float w) { return 1.0F + w; }); }),
      {"no epsilon", kCache, cache_without_epsilon},
      misread("rotary rows first", kCache,
              [](Damaged& c) {
                const std::span<float> w = c.input("kv_down");
                std::rotate(w.begin(), w.begin() + c.call.parameter("dr") * c.width("kv_down"), w.end());
              }),
      {"pairs of halves", kCache, pairs_of_halves},
      misread("turned the other way", kCache, other_way_round),
      misread("position off by one", kCache, table_of_the_token_before),
  });
}

/// Query t sees the tokens 1 .. t + 1 in place of 0 .. t.
void mask_off_by_one(Damaged& c) {
  for (const NamedTensor<const float>& tensor : c.call.inputs) {
    if (tensor.name != "c" && tensor.name != "kr") continue;
    const std::int64_t width = tensor.shape[2];
    c.groups(tensor.name, std::max<std::int64_t>(width * tensor.shape[1], 1), [&](std::span<float> x) {
      if (std::ssize(x) > width) std::rotate(x.begin(), x.begin() + width, x.end());
    });
  }
}
/// The tokens of this call alone.
void cache_forgotten(Damaged& c) {
  for (NamedTensor<const float>& tensor : c.call.inputs) {
    if (tensor.name != "c" && tensor.name != "kr") continue;
    const std::span<float> x = c.input(tensor.name);
    const std::int64_t lost = (tensor.shape[1] - c.call.tokens) * tensor.shape[2];
    const std::int64_t kept = c.call.tokens * tensor.shape[2];
    for (std::int64_t b = 0; b < tensor.shape[0]; ++b)
      std::copy_n(x.begin() + b * (lost + kept) + lost, kept, x.begin() + b * kept);
    tensor.shape[1] = c.call.tokens;
  }
}
void scale_of_the_non_rotary_width(Damaged& c) {
  const auto dn = static_cast<double>(c.call.parameter("dn"));
  scale(c, "q_up", std::sqrt((dn + static_cast<double>(c.call.parameter("dr"))) / dn));
}
/// Heads [W_UV | W_UK].
void values_before_keys(Damaged& c) {
  const std::int64_t dc = c.width("kv_up");
  c.groups("kv_up", (c.call.parameter("dn") + c.call.parameter("dv")) * dc, [&](std::span<float> w) {
    std::rotate(w.begin(), w.begin() + c.call.parameter("dn") * dc, w.end());
  });
}
/// Every head restores with the rows of the first.
void one_head_for_all(Damaged& c) {
  const std::span<float> w = c.input("kv_up");
  const std::int64_t rows = std::ssize(w) / c.call.parameter("H");
  for (std::int64_t i = rows; i < std::ssize(w); ++i)
    w[static_cast<std::size_t>(i)] = w[static_cast<std::size_t>(i % rows)];
}

TEST(LatentAttentionFaults, Die) {
  expect_killed({
      misread("scale of the non-rotary width", kAttention, scale_of_the_non_rotary_width),
      misread("no rotary key", kAttention,
              [](Damaged& c) {
                if (c.call.parameter("dr") > 0) c.fill("kr", 0.0F);
              }),
      misread("no weight of the query norm", kAttention,
              [](Damaged& c) {
                if (c.call.parameter("q_lora") > 0) c.fill("q_norm", 1.0F);
              }),
      misread("no epsilon of the query norm", kAttention,
              [](Damaged& c) {
                if (c.call.parameter("q_lora") > 0) scale(c, "x", 0x1p20);
              }),
      misread("values before keys", kAttention, values_before_keys),
      misread("one head for all", kAttention, one_head_for_all),
      misread("mask off by one", kAttention, mask_off_by_one),
      misread("the cache forgotten", kAttention, cache_forgotten),
      misread("queries turned the other way", kAttention, other_way_round),
      misread("position off by one", kAttention, table_of_the_token_before),
  });
}

}  // namespace
}  // namespace samestate
