#include <algorithm>
#include <cmath>

#include "fuzz/mutants/operators/changed_call.h"

/// Windows, routers and the dendritic layer: M26, M30, M52, M66, M74, M76, M78-M80, M82, and branches, states
/// and overlaps; bugs inside the layer are in dendritic_layer_mutants.cpp.
namespace samestate::mutants {
namespace {

using Call = ChangedCall;

std::int64_t channels_of(const Call& c) { return c.at("N") * c.at("stride") + c.at("O"); }
std::int64_t window_of(const Call& c) { return c.at("N") > 1 ? c.at("stride") + c.at("O") : channels_of(c); }
std::int64_t candidates_of(const Call& c) { return c.at("K") + c.at("idle"); }
std::int64_t branches_of(const Call& c) { return c.at("Es") + candidates_of(c); }

void last_channels_unread(Call& c) {
  if (c.at("N") < 2) return;
  each_row(c.output("windows"), c.at("N") * window_of(c), [](std::span<float> row) { row.back() = 0.0F; });
}
void windows_averaged(Call& c) {
  const std::int64_t N = c.at("N"), s = c.at("stride"), w = window_of(c);
  each_row(c.output("sum"), channels_of(c), [&](std::span<float> row) {
    for (std::int64_t i = 0; i < std::ssize(row); ++i) {
      float windows = 0.0F;
      for (std::int64_t n = 0; n < N; ++n) windows += i >= n * s && i < n * s + w ? 1.0F : 0.0F;
      row[static_cast<std::size_t>(i)] /= windows;
    }
  });
}
void first_overlap_halved(Call& c) {
  const auto s = static_cast<std::size_t>(c.at("stride")), w = static_cast<std::size_t>(window_of(c));
  each_row(c.output("sum"), channels_of(c), [&](std::span<float> row) {
    for (std::size_t i = s; i < w; ++i) row[i] *= 0.5F;
  });
}
void windows_begin_late(Call& c) {
  each_row(c.input("x"), c.width("x"), [](std::span<float> row) { rotate(row, 1); });
}
void earlier_window_alone(Call& c) {
  std::int64_t n = 0;
  each_row(c.input("parts"), window_of(c), [&](std::span<float> part) {
    if (n++ % c.at("N") != 0) std::fill_n(part.begin(), c.at("O"), 0.0F);
  });
}
void overlap_one_short(Call& c) {
  if (c.at("O") > 0) c.set("O", c.at("O") - 1);
}

void equal_shares(Call& c) {
  const float share = 1.0F / static_cast<float>(c.at("Es") + c.at("K"));
  for (float& w : c.output("omega")) w = w > 0.0F ? share : 0.0F;
}
void index_not_shifted(Call& c) {
  const std::int64_t Es = c.at("Es"), candidates = candidates_of(c);
  const auto shift = [&](std::span<float> row) {
    // The choice among candidates is stored starting at branch 0; shared branches keep whatever is not
    // overwritten.
    for (std::int64_t i = 0; i < candidates; ++i) {
      const float x = row[static_cast<std::size_t>(Es + i)];
      row[static_cast<std::size_t>(Es + i)] = 0.0F;
      if (x != 0.0F) row[static_cast<std::size_t>(i)] = x;
    }
  };
  each_row(c.output("omega"), branches_of(c), shift);
  each_row(c.output("mask"), branches_of(c), shift);
}
Ties ties_of(const Call& c) { return {{"router"}, {}, {"omega", "mask"}, candidates_of(c), c.at("Es")}; }
void one_branch_too_few(Call& c) {
  if (c.at("K") < 2) return;
  c.set("K", c.at("K") - 1);
  c.set("idle", c.at("idle") + 1);
}
void router_off_by_one(Call& c) { rotate(c.input("router"), c.width("router")); }
void temperature_of_the_width(Call& c) {
  c.each("router", [root = root_of(c.at("d"))](float w) { return w / root; });
}

void scale_of_head(Call& c) {
  const float f = std::sqrt(static_cast<float>(window_of(c)) / static_cast<float>(channels_of(c)));
  for (float& x : c.output("a")) x *= f;
}
/// [first, second] blocks of `size` become [second, first].
void transpose_blocks(std::span<float> x, std::int64_t first, std::int64_t second, std::int64_t size) {
  permute(x, first * second, size, [=](std::int64_t i) { return i % first * second + i / first; });
}
void gates_by_head(Call& c) { transpose_blocks(c.input("A_log"), c.at("H"), branches_of(c), 1); }
void expansion_of_another_head(Call& c) {
  const std::span<float> x = c.input("q_expansion");
  rotate(x, std::ssize(x) / c.at("H"));
}
void states_by_head(Call& c) {
  const std::int64_t heads = branches_of(c) * c.at("H"), size = window_of(c) * c.at("dv");
  each_row(c.output("S"), c.at("N") * heads * size,
           [&](std::span<float> all) { transpose_blocks(all, c.at("N"), heads, size); });
}

}  // namespace

std::vector<Mutant> dendritic_mutants() {
  std::vector<Mutant> out;
  add_faults(
      out, "cpu.overlap_windows.channels",
      {{"M78", "last_channels_unread", "the last window ends before the last channel",
        miswritten(last_channels_unread)},
       {"M79", "windows_averaged", "windows are averaged where they overlap", miswritten(windows_averaged)},
       {"M79", "first_overlap_halved", "the channels that the first two windows share are averaged",
        miswritten(first_overlap_halved)},
       {"F", "windows_begin_late", "windows begin a channel late", misread(windows_begin_late)},
       {"F", "earlier_window_alone", "shared channels come from the earlier window alone",
        misread(earlier_window_alone)},
       {"F", "overlap_one_short", "the overlap is one channel short", misread(overlap_one_short)}});
  add_faults(
      out, "cpu.dendritic_router.chosen",
      {{"M74", "equal_shares", "all selected branches weigh the same", miswritten(equal_shares)},
       {"M80", "index_not_shifted", "routed indices count from the first shared branch",
        miswritten(index_not_shifted)},
       {"M82", "ties_to_the_higher", "of equal branches the higher", ties_upwards(ties_of)},
       {"F", "one_branch_too_few", "K - 1 branches are chosen", misread(one_branch_too_few)},
       {"F", "router_off_by_one", "a branch's row of the router is the next's", misread(router_off_by_one)},
       {"F", "temperature_of_the_width", "logits are divided by d^1/2", misread(temperature_of_the_width)},
       {"F", "shares_not_halved", "shared and chosen branches each sum to one",
        miswritten(scaled("omega", [](const Call&) { return 2.0F; }))}});
  add_faults(
      out, "cpu.dendritic_attention.compacted",
      {{"M26", "state_not_read", "every call starts from zero", misread(filled("S", 0.0F))},
       {"M30", "padding_not_masked", "the padding mask is ignored", misread(filled("mask", 1.0F))},
       {"M52", "weight_plus_one", "1 + w where w is meant",
        misread(mapped("o_norm", [](float w) { return 1.0F + w; }))},
       {"M66", "query_convolution_state_not_read", "every call's convolution of q starts from zero",
        misread(filled("conv_q", 0.0F))},
       {"M66", "value_convolution_state_not_read", "every call's convolution of v starts from zero",
        misread(filled("conv_v", 0.0F))},
       {"M76", "scale_of_head", "d^-1/2 for w^-1/2", miswritten(scale_of_head)},
       {"F", "least_probable_branches", "the branches with the least scores are chosen",
        misread(mapped("scores", [](float p) { return 1.0F - p; }))},
       {"F", "gates_by_head", "gates are stored by head, then branch", misread(gates_by_head)},
       {"F", "expansion_of_another_head", "a head has the expansion of the next",
        misread(expansion_of_another_head)},
       {"F", "states_by_head", "states are written by head, then window", miswritten(states_by_head)}});
  for (Mutant& m : dendritic_layer_mutants()) out.push_back(std::move(m));
  return out;
}

}  // namespace samestate::mutants
