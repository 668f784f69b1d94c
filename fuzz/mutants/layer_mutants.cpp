#include <cmath>

#include "fuzz/mutants/changed_call.h"
#include "reference/layers/gated_delta_net.h"

/// Attention (M31, M47, M90), the Gated DeltaNet layer (M46), dendrites (M74, M76, M78-M80), experts
/// (M81-M83), latent attention and rotation (M84-M86), scans (M87, M88).
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

/// Block i of every row of `count` blocks of `width` becomes block from(i).
template <class From>
void permute(std::span<float> x, std::int64_t count, std::int64_t width, From&& from) {
  const std::vector<float> old(x.begin(), x.end());
  for (std::int64_t i = 0; i < std::ssize(x); ++i) {
    const std::int64_t block = i / width % count;
    x[static_cast<std::size_t>(i)] = old[static_cast<std::size_t>(i + (from(block) - block) * width)];
  }
}

// Query heads go where the right map gives them the key head of the wrong one, and their outputs back.
constexpr auto heads_tiled = [](Call& c) {
  const std::int64_t groups = c.at("Hkv"), size = c.at("H") / groups;
  permute(c.input("q"), c.at("H"), c.at("d"), [&](std::int64_t h) { return h % size * groups + h / size; });
};
constexpr auto heads_back = [](Call& c) {
  const std::int64_t groups = c.at("Hkv"), size = c.at("H") / groups;
  permute(c.output("o"), c.at("H"), c.at("dv"),
          [&](std::int64_t h) { return h % groups * size + h / groups; });
};
constexpr auto scale_dropped = [](Call& c) {
  for (float& x : c.input("q")) x *= std::sqrt(static_cast<float>(c.at("d")));
};
constexpr auto scale_of_values = [](Call& c) {
  for (float& x : c.input("q"))
    x *= std::sqrt(static_cast<float>(c.at("d")) / static_cast<float>(c.at("dv")));
};
constexpr auto mask_off_by_one = [](Call& c) {
  for (const char* name : {"k", "v"}) {
    const std::int64_t width = c.width(name);
    each_row(c.input(name), width * c.call.input(name).extent(1), [width](std::span<float> x) {
      if (std::ssize(x) > width) std::rotate(x.begin(), x.begin() + width, x.end());
    });
  }
};

constexpr auto flat_projection = [](Call& c) {
  GatedDeltaNetShape shape;
  shape.key_heads = c.at("Hk");
  shape.value_heads = c.at("Hk") * c.at("R");
  shape.key_width = c.at("dk");
  shape.value_width = c.at("dv");
  const std::vector<Index> to = grouped_rows(shape).qkvz;
  const std::span<float> weight = c.input("in_proj_qkvz");
  const std::vector<float> rows(weight.begin(), weight.end());
  const std::int64_t width = c.width("in_proj_qkvz");
  for (std::size_t i = 0; i < to.size(); ++i)
    std::copy_n(rows.begin() + static_cast<std::int64_t>(i) * width, width, weight.begin() + to[i] * width);
};

/// Calls f(shares) for the branches of every token and head.
template <class Function>
void each_choice(Call& c, Function&& f) {
  each_row(c.output("omega"), c.at("Es") + c.at("K") + c.at("idle"), f);
}
constexpr auto equal_shares = [](Call& c) {
  const float share = 1.0F / static_cast<float>(c.at("Es") + c.at("K"));
  each_choice(c, [share](std::span<float> omega) {
    for (float& w : omega) w = w > 0.0F ? share : 0.0F;
  });
};
constexpr auto index_not_shifted = [](Call& c) {
  const std::int64_t Es = c.at("Es"), candidates = c.at("K") + c.at("idle");
  const auto shift = [&](std::span<float> row) {
    // The choice among candidates is stored from branch 0 on; shared branches keep what is not overwritten.
    for (std::int64_t i = 0; i < candidates; ++i) {
      const float x = row[static_cast<std::size_t>(Es + i)];
      row[static_cast<std::size_t>(Es + i)] = 0.0F;
      if (x != 0.0F) row[static_cast<std::size_t>(i)] = x;
    }
  };
  each_choice(c, shift);
  each_row(c.output("mask"), Es + candidates, shift);
};
std::int64_t channels_of(const Call& c) { return c.at("N") * c.at("stride") + c.at("O"); }
std::int64_t window_of(const Call& c) { return c.at("N") > 1 ? c.at("stride") + c.at("O") : channels_of(c); }
constexpr auto last_channels_unread = [](Call& c) {
  if (c.at("N") < 2) return;
  each_row(c.output("windows"), c.at("N") * window_of(c), [](std::span<float> row) { row.back() = 0.0F; });
};
constexpr auto windows_averaged = [](Call& c) {
  const std::int64_t N = c.at("N"), s = c.at("stride"), w = window_of(c);
  each_row(c.output("sum"), channels_of(c), [&](std::span<float> row) {
    for (std::int64_t i = 0; i < std::ssize(row); ++i) {
      float windows = 0.0F;
      for (std::int64_t n = 0; n < N; ++n) windows += i >= n * s && i < n * s + w ? 1.0F : 0.0F;
      row[static_cast<std::size_t>(i)] /= windows;
    }
  });
};
constexpr auto scale_of_head = [](Call& c) {
  const float f = std::sqrt(static_cast<float>(window_of(c)) / static_cast<float>(channels_of(c)));
  for (float& x : c.output("a")) x *= f;
};

constexpr auto not_renormalised = [](Call& c) {
  const std::span<float> w = c.output("weights");
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = w[i] == 0.0F ? 0.0F : c.output("probabilities")[i];
};
// Experts are numbered backwards for the right kernel, which resolves ties downwards.
void backwards(std::span<float> x, std::int64_t experts) {
  const std::int64_t each = std::ssize(x) / experts;
  permute(x, experts, each, [experts](std::int64_t i) { return experts - 1 - i; });
}
constexpr auto experts_backwards = [](Call& c) {
  backwards(c.input("router"), c.at("N"));
  if (c.at("bias") == 1) backwards(c.input("bias"), c.at("N"));
};
constexpr auto experts_forwards = [](Call& c) {
  for (const char* name : {"logits", "probabilities", "weights"})
    each_row(c.output(name), c.at("N"), [](std::span<float> row) { std::ranges::reverse(row); });
};
constexpr auto frequency_of_other_kind = [](Call& c) { c.set("per_token", 1 - c.at("per_token")); };

constexpr auto no_rotary_key = [](Call& c) {
  if (c.at("dr") > 0) c.fill("kr", 0.0F);
};
constexpr auto scale_without_rotary = [](Call& c) {
  const auto dn = static_cast<float>(c.at("dn"));
  for (float& w : c.input("q_up")) w *= std::sqrt((dn + static_cast<float>(c.at("dr"))) / dn);
};
constexpr auto halves = [](Call& c) { c.set("interleaved", 0); };
constexpr auto interleaved = [](Call& c) { c.set("interleaved", 1); };

constexpr auto euler = [](Call& c) { c.set("hold", 0); };
constexpr auto skip_after_gate = [](Call& c) {
  const std::span<float> out = c.output("out");
  const std::size_t D = c.input("skip").size();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float z = c.input("z")[i];
    const float gate = z / (1.0F + std::exp(-z));
    out[i] += (1.0F - gate) * c.input("skip")[i % D] * c.input("u")[i];
  }
};

}  // namespace

std::vector<Mutant> layer_mutants() {
  std::vector<Mutant> out;
  add_operator<"cpu.softmax_attention.online", heads_tiled, heads_back>(out, "M31", "other_head_map",
                                                                        "key head of h as h mod Hkv");
  add_operator<"cpu.gated_delta_net.chunked", flat_projection>(
      out, "M46", "flat_projection", "q, k, v, z read as four blocks where columns are grouped by key head");
  add_operator<"cpu.softmax_attention.online", scale_dropped>(out, "M47", "no_scale", "the scale is ignored");
  add_operator<"cpu.softmax_attention.online", scale_of_values>(out, "M47", "scale_of_value_width",
                                                                "dv^-1/2 for d^-1/2");
  add_output_fault<"cpu.dendritic_router.chosen", equal_shares>(out, "M74", "equal_shares",
                                                                "all selected branches weigh the same");
  add_output_fault<"cpu.dendritic_attention.compacted", scale_of_head>(out, "M76", "scale_of_head",
                                                                       "d^-1/2 for w^-1/2");
  add_output_fault<"cpu.overlap_windows.channels", last_channels_unread>(
      out, "M78", "last_channels_unread", "the last window ends before the last channel");
  add_output_fault<"cpu.overlap_windows.channels", windows_averaged>(
      out, "M79", "windows_averaged", "windows are averaged where they overlap");
  add_output_fault<"cpu.dendritic_router.chosen", index_not_shifted>(
      out, "M80", "index_not_shifted", "routed indices count from the first shared branch");
  add_output_fault<"cpu.expert_router.logits_first", not_renormalised>(
      out, "M81", "not_renormalised", "the weights of the chosen are not brought to one");
  add_operator<"cpu.expert_router.logits_first", experts_backwards, experts_forwards>(
      out, "M82", "ties_to_the_higher", "of equal experts the higher");
  add_operator<"cpu.load_balance.direct", frequency_of_other_kind>(
      out, "M83", "frequency_of_other_kind", "frequencies by token for frequencies by assignment");
  add_operator<"cpu.latent_attention.absorbed", no_rotary_key>(out, "M84", "no_rotary_key",
                                                               "the rotary key does not reach the scores");
  add_operator<"cpu.rotary_embedding.full_width", halves>(
      out, "M85", "always_halves", "pairs (i, i + d / 2) where (2 i, 2 i + 1) are meant");
  add_operator<"cpu.rotary_embedding.full_width", interleaved>(
      out, "M85", "always_interleaved", "pairs (2 i, 2 i + 1) where (i, i + d / 2) are meant");
  add_operator<"cpu.latent_attention.absorbed", scale_without_rotary>(out, "M86", "scale_without_rotary",
                                                                      "dn^-1/2 for (dn + dr)^-1/2");
  add_operator<"cpu.selective_scan.chunked", euler>(out, "M87", "euler",
                                                    "Euler where zero-order hold is meant");
  add_operator<"cpu.selective_scan.blelloch", euler>(out, "M87", "euler",
                                                     "Euler where zero-order hold is meant");
  add_output_fault<"cpu.selective_scan.chunked", skip_after_gate>(out, "M88", "skip_after_gate",
                                                                  "D u is added after the gate");
  add_operator<"cpu.softmax_attention.online", mask_off_by_one>(
      out, "M90", "mask_off_by_one", "a query sees the next key and not the first");
  return out;
}

}  // namespace samestate::mutants
