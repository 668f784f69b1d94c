/// The parts of the dendritic layer on CUDA, executed by threads of the host: which tokens a branch runs on, and the rule on them,
/// token by token and in chunks, against sums in double. The gate judges the layer; its bound of 16 bits is wide, this one is not.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimized/cpu/operators/gated_delta_net.h"
#include "optimized/cuda/delta/chunk_mma_list.cuh"
#include "optimized/cuda/delta/chunk_wgmma_list.cuh"
#include "optimized/cuda/delta/chunk_wgmma_list_tiles.cuh"
#include "optimized/cuda/pointwise/norms.cuh"
#include "optimized/cuda/products/product.cuh"
#include "optimized/cuda/units/wgmma_wide.cuh"
#include "tests/optimized/cuda_operator_calls.h"

namespace samestate::cuda {
namespace {

using testing::Aligned;
using testing::Draw;
using testing::Values;

/// A layer's call between its convolutions and its mixture: everything that the rule reads.
template <class Operand>
struct Rule {
  /// `heads_a_key`: neighbouring heads that have one q and one k.
  explicit Rule(const DendriticShape& shape, int heads_a_key = 1)
      : s(shape),
        group(heads_a_key),
        selected(static_cast<std::size_t>(s.rows())),
        entries(s.lists() * s.tokens) {
    Draw draw(static_cast<unsigned>(s.width + s.values));
    for (float& x : scores = draw.values<float>(s.rows() * s.candidates)) x = std::fabs(x);
    scores[0] = scores[1];  // of equals the first
    branch.resize(static_cast<std::size_t>(s.slot_rows()));
    omega.resize(branch.size());
    length.resize(static_cast<std::size_t>(s.lists()));
    const SelectionParameters selection{s, scores.data(), selected.data(), branch.data(), omega.data()};
    for (std::int64_t row = 0; row < s.rows(); ++row) select_branches(selection, row);
    launch<ListBody>(2, ListBody::kSharedBytes, {s, selected.data(), entries.data(), length.data()}, nullptr);
    q = draw.values<Operand>(s.slot_rows() * s.channels);
    k = draw.values<Operand>(s.slot_rows() * s.channels);
    v = draw.values<Operand>(s.rows() * s.values);
    a = draw.values<Operand>(s.batch * s.tokens * s.branches() * s.heads);
    b = draw.values<Operand>(s.batch * s.tokens * s.branches() * s.heads);
    A_log = draw.values<float>(s.branches() * s.heads);
    for (float& x : A_log) x -= 1.0F;
    A_log[0] = 5.0F;  // forgets more than fp32 holds
    bias = draw.values<float>(s.branches() * s.heads);
    mask.assign(static_cast<std::size_t>(s.batch * s.tokens), 1.0F);
    mask[1] = 0.0F;
    factor.assign(static_cast<std::size_t>(s.slot_rows() * s.windows), 0.0F);
    for (std::size_t i = 0; i < factor.size(); ++i)
      factor[i] = (1.0F + 0.125F * static_cast<float>(i % 3)) / std::sqrt(static_cast<float>(s.width));
    initial = draw.values<float>(s.lists() * s.windows * s.width * s.values);
  }

  /// o and S, in double.
  void expect(Values& o, Values& state) const {
    o.assign(static_cast<std::size_t>(s.slot_rows() * s.windows * s.values), 0.0F);
    state = initial;
    for (std::int64_t row = 0; row < s.rows() * s.slots() * s.windows; ++row) {
      const std::int64_t window = row % s.windows, slot_row = row / s.windows, of = slot_row / s.slots();
      const std::int64_t h = of % s.heads, token = of / s.heads, sequence = token / s.tokens;
      const std::int64_t e = branch[static_cast<std::size_t>(slot_row)], m = e * s.heads + h;
      const auto at = [](const Values& x, std::int64_t i) { return double{x[static_cast<std::size_t>(i)]}; };
      const std::int64_t gate = token * s.branches() * s.heads + m,
                         key_row = (token * (s.heads / group) + h / group) * s.slots() + slot_row % s.slots(),
                         key = key_row * s.channels + window * s.stride;
      const bool real = at(mask, token) != 0.0;
      const double beta = real ? 1.0 / (1.0 + std::exp(-at(b, gate))) : 0.0;
      const double rate = std::exp(at(A_log, m)) * std::log1p(std::exp(at(a, gate) + at(bias, m)));
      const double alpha = real ? std::exp(-rate) : 1.0,
                   length_of_key = at(factor, key_row * s.windows + window);
      const std::int64_t head = (sequence * s.windows + window) * s.branches() * s.heads + m;
      for (int c = 0; c < s.values; ++c) {
        float* const S = state.data() + head * s.width * s.values + c;
        double read = 0.0, sum = 0.0;
        for (int i = 0; i < s.width; ++i)
          read += alpha * double{S[i * s.values]} * at(k, key + i) * length_of_key;
        const double u = beta * (at(v, of * s.values + c) - read);
        for (int i = 0; i < s.width; ++i) {
          const double after = alpha * double{S[i * s.values]} + u * at(k, key + i) * length_of_key;
          S[i * s.values] = static_cast<float>(after);
          sum += after * at(q, key + i) * length_of_key;
        }
        o[static_cast<std::size_t>(row * s.values + c)] = static_cast<float>(sum * scale);
      }
    }
  }

  template <class Launch>
  void check(const std::string& what, double of_state, const Launch& run) const {
    const Aligned<Operand> in_q(q), in_k(k), in_v(v), in_a(a), in_b(b);
    const Aligned<float> factors(factor), rate(A_log), offset(bias), real(mask), before(initial);
    const Aligned<Operand> o(static_cast<std::size_t>(s.slot_rows() * s.windows * s.values));
    const Aligned<float> after(initial.size());
    run({s, entries.data(), length.data(), in_q.data(), in_k.data(), factors.data(), factors.data(),
         in_v.data(), in_a.data(), in_b.data(), rate.data(), offset.data(), real.data(), before.data(),
         after.data(), o.data(), scale, group, s.heads / group});
    Values expected_o, expected_state;
    expect(expected_o, expected_state);
    const Values found_o = o.values(), found_state = after.values();
    const double of_o = std::is_same_v<Operand, float> ? 0.0 : 0x1.01p-8;
    for (std::size_t i = 0; i < found_o.size(); ++i)
      ASSERT_NEAR(found_o[i], expected_o[i], of_o * std::fabs(expected_o[i]) + of_state)
          << what << " o " << i;
    for (std::size_t i = 0; i < found_state.size(); ++i)
      ASSERT_NEAR(found_state[i], expected_state[i], of_state * (1.0 + std::fabs(expected_state[i])))
          << what << " S " << i;
  }

  DendriticShape s;
  int group;
  std::vector<std::uint32_t> selected;
  std::vector<ListEntry> entries;
  std::vector<int> branch, length;
  Values scores, omega, q, k, v, a, b, A_log, bias, mask, factor, initial;
  float scale = 0.75F;
};

DendriticShape shape_of(std::int64_t batch, std::int64_t tokens, int windows, int stride, int width,
                        int values) {
  DendriticShape s;
  s.batch = batch, s.tokens = tokens, s.windows = windows, s.stride = stride, s.width = width;
  s.channels = (windows - 1) * stride + width, s.values = values;
  s.heads = 2, s.shared = 1, s.routed = 1, s.candidates = 2;
  return s;
}

template <class Operand, int rows>
void check_tokens(const DendriticShape& s, int heads_a_key = 1) {
  using Body = RuleBody<Operand, rows>;
  Rule<Operand>(s, heads_a_key).check("tokens", 2e-5, [&](const RuleParameters<Operand>& p) {
    launch<Body>(static_cast<unsigned>(s.lists() * s.windows * p.tiles(Body::kColumns)), Body::kSharedBytes,
                 p, nullptr);
  });
}

template <int width>
void check_chunks(const DendriticShape& s, int heads_a_key = 1) {
  using Body = ChunkBody<width>;
  Rule<Bf16>(s, heads_a_key).check("chunks", 3e-5, [&](const RuleParameters<Bf16>& rule) {
    ChunkParameters p{rule};
    std::vector<ChunkTile> tiles(static_cast<std::size_t>(p.tile_count()));
    p.tiles = tiles.data();
    launch<ChunkTileBody>(static_cast<unsigned>(p.tile_count()), ChunkTileBody::shared_bytes(s), p, nullptr);
    launch<Body>(static_cast<unsigned>(s.lists() * s.windows * rule.tiles(Body::kColumns)),
                 Body::kSharedBytes, p, nullptr);
  });
}

/// The same in chunks of 64 whose operands are bf16; `blocks` that take one item after the other.
template <int width>
void check_lists(const DendriticShape& s, unsigned blocks, int heads_a_key = 1) {
  using Body = ListChainBody<width>;
  Rule<Bf16>(s, heads_a_key).check("lists", 0.03, [&](const RuleParameters<Bf16>& rule) {
    ListChunkParameters p{rule};
    std::vector<ListTile> tiles(static_cast<std::size_t>(p.tile_count()));
    const Aligned<Bf16> keys(static_cast<std::size_t>(p.tile_count() * p.key_elements()));
    p.tiles = tiles.data();
    p.keys = keys.data();
    launch<ListTileBody>(static_cast<unsigned>(p.tile_count()), ListTileBody::shared_bytes(s), p, nullptr);
    launch<Body>(blocks, Body::kSharedBytes, p, nullptr);
  });
}

TEST(CudaDendritic, ListsHoldTheTokensOfEachBranchInOrder) {
  const DendriticShape s = shape_of(2, 300, 1, 8, 8, 1);
  const Rule<float> rule(s);
  for (std::int64_t list = 0; list < s.lists(); ++list) {
    const std::int64_t h = list % s.heads, e = list / s.heads % s.branches(),
                       b = list / s.heads / s.branches();
    std::vector<std::pair<int, int>> expected, found;
    for (std::int64_t t = 0; t < s.tokens; ++t) {
      for (int slot = 0; slot < s.slots(); ++slot) {
        const std::int64_t row = ((b * s.tokens + t) * s.heads + h) * s.slots() + slot;
        if (rule.branch[static_cast<std::size_t>(row)] == e) expected.emplace_back(static_cast<int>(t), slot);
      }
    }
    for (int i = 0; i < rule.length[static_cast<std::size_t>(list)]; ++i) {
      const ListEntry entry = rule.entries[static_cast<std::size_t>(list * s.tokens + i)];
      found.emplace_back(entry.token, entry.slot);
    }
    EXPECT_EQ(found, expected) << list;
  }
  EXPECT_EQ(rule.branch[1], 1);  // equal scores: the first candidate
}

TEST(CudaDendritic, RuleIsThatOfTheEquationsTokenByToken) {
  check_tokens<float, 8>(shape_of(1, 19, 2, 5, 7, 5));
  check_tokens<float, 16>(shape_of(2, 18, 1, 36, 36, 68));
  check_tokens<Bf16, 8>(shape_of(1, 35, 2, 8, 16, 8));
  check_tokens<float, 16>(shape_of(2, 18, 1, 36, 36, 68), 2);
}

TEST(CudaDendritic, RuleIsThatOfTheEquationsInChunks) {
  check_chunks<64>(shape_of(2, 70, 1, 37, 37, 5));
  emulation::copies_land_late = true;
  check_chunks<64>(shape_of(1, 70, 2, 8, 16, 72));
  emulation::copies_land_late = false;
  check_chunks<160>(shape_of(1, 40, 1, 152, 152, 16));
  check_chunks<64>(shape_of(2, 70, 1, 40, 40, 24), 2);
}

TEST(CudaDendritic, RuleOnListsIsThatOfTheEquations) {
  check_lists<64>(shape_of(2, 150, 1, 37, 37, 5), 2);
  emulation::copies_land_late = true;
  check_lists<64>(shape_of(1, 150, 2, 8, 16, 136), 3);
  emulation::copies_land_late = false;
  check_lists<160>(shape_of(1, 70, 1, 152, 152, 16), 4);
  check_lists<128>(shape_of(1, 70, 1, 104, 104, 24), 1, 2);
}

template <class Operand>
void check_output(std::int64_t tokens, std::int64_t heads, std::int64_t width, std::int64_t D) {
  Draw draw(7);
  const std::int64_t values = heads * width;
  const Values core = draw.values<Operand>(tokens * values), z = draw.values<Operand>(tokens * values);
  const Values weight = draw.values<float>(width), W = draw.values<Operand>(D * values);
  Values expected(static_cast<std::size_t>(tokens * D), NAN);
  OperatorArguments call;
  call.inputs = {{"core", {1, tokens, values}, core.data()},
                 {"z", {1, tokens, values}, z.data()},
                 {"norm", {1, width}, weight.data()},
                 {"out_proj", {D, values}, W.data()}};
  call.outputs = {{"y", {1, tokens, D}, expected.data()}};
  call.parameters = {{"D", D}, {"Hv", heads}, {"dv", width}};
  call.tokens = tokens;
  (void)cpu::gated_delta_net_output_fused(call, testing::contract_of<Operand>());
  const Aligned<Operand> in(core), gate(z), w(W), gated(core.size()), y(expected.size());
  const Aligned<float> scale(weight);
  launch_norm<RowNorm::gated>(NormParameters<Operand>{in.data(), gate.data(), scale.data(), gated.data(),
                                                      nullptr, tokens * heads, static_cast<int>(width)},
                              nullptr);
  ProductParameters<Operand, StoreProduct<Operand>> p;
  p.x = gated.data(), p.w = w.data(), p.rows = tokens, p.columns = D;
  p.depth = p.x_stride = p.w_stride = values;
  p.epilogue = {y.data(), D};
  Product<Operand, StoreProduct<Operand>>::launch(p, nullptr);
  const Values found = y.values();
  const double relative = std::is_same_v<Operand, float> ? 1e-5 : 0x1.02p-7;
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], relative * (0.1 + std::fabs(expected[i]))) << i;
}

TEST(CudaDendritic, GatedOutputIsThatOfTheCpu) {
  check_output<float>(3, 2, 12, 9);
  check_output<Bf16>(3, 2, 16, 9);
}

}  // namespace
}  // namespace samestate::cuda
