/// The backward passes in chunks for the CUDA device: the kernels' own source, executed by threads of the host, against the
/// kernels of the CPU, which round at the same points and are tested against differences in double. A fault between two launches
/// is planted for what each of them has to hand on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "optimized/cuda/backward/launch.cuh"
#include "optimized/cuda/host/fp16_operands.h"
#include "tests/optimized/backward_call.h"
#include "tests/optimized/contracts.h"

namespace samestate::cuda {
namespace {

using testing::BackwardCall;
using testing::kUnwritten;
using testing::Shape;
using GradientValues = testing::Values;

/// A call in memory that ends where its tensors do, whose outputs and scratch begin as NaN.
template <class Operand>
class BackwardInMemory {
 public:
  BackwardInMemory(const BackwardCall& x, KeptFormat kept) : x_(x) {
    const auto [B, T, Hk, Hv, dk, dv, offsets] = x.forward.shape;
    const std::int64_t N = x.forward.sequences(), rows = B * T;
    BackwardParameters<Operand>& p = parameters;
    p.Hk = Hk, p.Hv = Hv, p.dk = static_cast<int>(dk), p.dv = static_cast<int>(dv);
    p.chunk = static_cast<int>(std::min(x.forward.chunk, T));
    p.tile = dv <= 16 ? 16 : 32;
    p.scale = x.forward.scale;
    p.delta = testing::has_delta(x.system);
    p.tiled_heads = x.forward.head_map == HeadMap::tiled;
    p.kept = kept;
    p.first_row = offsets.empty() ? 0 : offsets.front();
    p.rows = (offsets.empty() ? rows : offsets.back()) - p.first_row;
    for (std::int64_t n = 0; n < N; ++n) {
      const std::int64_t first = offsets.empty() ? n * T : offsets[static_cast<std::size_t>(n)],
                         end = offsets.empty() ? first + T : offsets[static_cast<std::size_t>(n) + 1],
                         begin = std::ssize(chunks_);
      for (std::int64_t t = first; t < end; t += x.forward.chunk)
        chunks_.push_back({t, std::min(x.forward.chunk, end - t)});
      sequences_.push_back({begin, std::ssize(chunks_) - begin});
    }
    p.chunk_count = std::ssize(chunks_), p.sequence_count = N;
    p.chunks = chunks_.data(), p.sequences = sequences_.data();
    p.q = given<Operand>(x.forward.q), p.k = given<Operand>(x.forward.k), p.v = given<Operand>(x.forward.v);
    p.d_o = given<Operand>(x.d_o);
    p.g = given<float>(x.forward.g), p.beta = given<float>(x.forward.beta);
    p.initial_state = given<float>(x.forward.initial_state);
    p.d_final_state = given<float>(x.d_final_state);
    const std::int64_t keys = rows * Hk * dk, parts = rows * Hv * dk, values = rows * Hv * dv,
                       states = (p.chunk_count + 1) * Hv * dk * dv;  // a fault reads one more
    p.d_q = memory<Operand>(keys), p.d_k = memory<Operand>(keys), p.d_v = memory<Operand>(values);
    if (testing::has_decay(x.system)) p.d_g = memory<float>(rows * Hv);
    if (p.delta) p.d_beta = memory<float>(rows * Hv);
    p.d_initial_state = memory<float>(N * Hv * dk * dv);
    p.sums = memory<float>(rows * Hv);
    p.inverse = memory<Operand>(p.chunk_count * Hv * p.padded_chunk() * p.padded_chunk());
    p.w = memory<Operand>(parts), p.n = memory<Operand>(values), p.d_n = memory<Operand>(values);
    p.states = memory<Operand>(states), p.d_states = memory<Operand>(states);
    p.q_part = memory<Operand>(parts), p.k_part = memory<Operand>(parts);
    p.k_correction = memory<Operand>(parts);
    if (!x.forward.l2norm) return;
    p.raw_q = p.q, p.raw_k = p.k;
    p.q = p.normalised_q = memory<Operand>(keys), p.k = p.normalised_k = memory<Operand>(keys);
  }

  /// The gradients, of rows that no sequence owns kUnwritten, which fails a test if they were written.
  [[nodiscard]] GradientValues gradients() const {
    const BackwardParameters<Operand>& p = parameters;
    GradientValues out;
    out["q"] = read("q", p.d_q), out["k"] = read("k", p.d_k), out["v"] = read("v", p.d_v);
    if (p.d_g != nullptr) out["g"] = read("g", p.d_g);
    if (p.d_beta != nullptr) out["beta"] = read("beta", p.d_beta);
    out["initial_state"].assign(p.d_initial_state, p.d_initial_state + p.sequence_count * p.Hv * p.dk * p.dv);
    return out;
  }

  BackwardParameters<Operand> parameters;

 private:
  template <class T>
  const T* given(const std::vector<float>& values) {
    if (values.empty()) return nullptr;
    T* const to = memory<T>(std::ssize(values));
    for (std::size_t i = 0; i < values.size(); ++i) to[i] = stored<T>(values[i]);
    return to;
  }
  template <class T>
  T* memory(std::int64_t size) {
    return static_cast<T*>(memory_.emplace_back(static_cast<std::size_t>(size) * sizeof(T)).data());
  }

  template <class T>
  [[nodiscard]] std::vector<float> read(std::string_view name, const T* from) const {
    const std::size_t columns = x_.columns(name);
    const std::int64_t rows = x_.forward.shape.B * x_.forward.shape.T;
    std::vector<float> out;
    for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * columns; ++i) {
      const bool owned = x_.owned(static_cast<std::int64_t>(i / columns));
      out.push_back(owned ? loaded(from[i]) : kUnwritten);
      EXPECT_TRUE(owned || std::isnan(loaded(from[i]))) << name << " of a row that no sequence owns";
    }
    return out;
  }

  const BackwardCall& x_;
  std::vector<BackwardChunk> chunks_;
  std::vector<BackwardSequence> sequences_;
  std::deque<GuardedMemory> memory_;
};

enum class Launch { prepare, forward, reverse, gradients, keys };

/// The launches of launch_backward, before each of which a fault may change the parameters.
template <class Operand>
using Fault = std::function<void(Launch, BackwardParameters<Operand>&)>;

template <class Operand>
GradientValues run_emulated(const BackwardCall& x, KeptFormat kept, const Fault<Operand>& fault = nullptr) {
  BackwardInMemory<Operand> memory(x, kept);
  BackwardParameters<Operand>& p = memory.parameters;
  if (fault == nullptr) {
    launch_backward(p, nullptr);
    return memory.gradients();
  }
  fault(Launch::prepare, p), ChunkPreparation<Operand>::launch(p, nullptr);
  fault(Launch::forward, p), ForwardStates<Operand>::launch(p, nullptr);
  fault(Launch::reverse, p), ReverseStates<Operand>::launch(p, nullptr);
  fault(Launch::gradients, p), ChunkGradients<Operand>::launch(p, nullptr);
  fault(Launch::keys, p), EachWarp<KeyGradients<Operand>>::launch(p, nullptr);
  return memory.gradients();
}

Contract contract_of(KeptFormat kept) {
  if (kept == KeptFormat::fp32) return {};
  Contract c = testing::bf16();
  if (kept == KeptFormat::fp16) c.name = "fp16", c.input = c.output = c.qk = Format::fp16;
  return c;
}

template <class Operand>
void round_inputs(BackwardCall& x) {
  for (std::vector<float>* tensor : {&x.forward.q, &x.forward.k, &x.forward.v, &x.d_o}) {
    for (float& e : *tensor) e = std::isnan(e) ? e : loaded(stored<Operand>(e));
  }
}

/// The largest distance of a gradient from that of the CPU's kernel, in the 2-norm.
double distance(const GradientValues& got, const GradientValues& expected) {
  double worst = 0;
  for (const auto& [name, values] : expected)
    worst = std::max(worst, testing::relative_error(got.at(name), values));
  return worst;
}

struct BackwardCase {
  Shape shape;
  std::int64_t chunk = 0;
  HeadMap map = HeadMap::interleaved;
};

const std::vector<BackwardCase> kCases = {
    // A tail, groups, widths below a tile.
    {{.B = 2, .T = 11, .Hk = 1, .Hv = 2, .dk = 5, .dv = 3}, 4},
    // Packed, with an empty sequence and rows of none; the other map of heads; chunks of several tiles.
    {{.B = 1, .T = 43, .Hk = 2, .Hv = 4, .dk = 24, .dv = 40, .offsets = {2, 2, 21, 22, 40}},
     18,
     HeadMap::tiled},
    // Two panels of keys and of values, the last ragged; a whole chunk of 64 and one token behind it.
    {{.B = 1, .T = 65, .Hk = 1, .Hv = 1, .dk = 72, .dv = 66}, 64},
};

/// A rounding to 16 bits that falls the other way moves an element by its spacing.
constexpr double limit_of(KeptFormat kept) {
  return kept == KeptFormat::fp32 ? 2e-6 : kept == KeptFormat::bf16 ? 2e-3 : 3e-4;
}

template <class Operand>
void expect_gradients(KeptFormat kept, bool l2norm) {
  for (const std::string& system : testing::kSystems) {
    for (const BackwardCase& c : kCases) {
      if (l2norm && c.shape.dk > 24) continue;
      BackwardCall x = testing::make_backward_call(system, c.shape, c.chunk);
      if (kept == KeptFormat::bf16) round_inputs<Bf16>(x);
      if (kept == KeptFormat::fp16) round_inputs<Fp16>(x);
      x.forward.head_map = c.map;
      x.forward.l2norm = l2norm;
      const GradientValues got = run_emulated<Operand>(x, kept);
      const GradientValues expected = testing::run_backward(x, "chunked", contract_of(kept));
      for (const auto& [name, values] : expected)
        EXPECT_LE(testing::relative_error(got.at(name), values), limit_of(kept))
            << system << " chunk " << c.chunk << " d." << name;
    }
  }
}

TEST(CudaBackward, GradientsOfFp32AreThoseOfTheCpu) { expect_gradients<float>(KeptFormat::fp32, false); }
TEST(CudaBackward, GradientsOfBf16AreThoseOfTheCpu) { expect_gradients<Bf16>(KeptFormat::bf16, false); }
TEST(CudaBackward, GradientsOfFp16AreThoseOfTheCpu) { expect_gradients<Fp16>(KeptFormat::fp16, false); }

TEST(CudaBackward, NormalisedKeysAreMultipliedInFp32AndResultsRounded) {
  for (const KeptFormat kept : {KeptFormat::fp32, KeptFormat::bf16, KeptFormat::fp16})
    expect_gradients<float>(kept, true);
}

TEST(CudaBackward, AbsentTensorsAreZero) {
  for (const char* system : {"gated_delta_rule", "linear_attention"}) {
    for (const bool o : {false, true}) {
      BackwardCall x = testing::make_backward_call(system, kCases.front().shape, 4);
      x.forward.initial_state.clear();
      (o ? x.d_final_state : x.d_o).clear();
      const GradientValues got = run_emulated<float>(x, KeptFormat::fp32);
      EXPECT_LE(distance(got, testing::run_backward(x, "chunked")), 2e-6) << system;
    }
  }
}

/// From a reset on nothing reaches the tokens before it; e^G of a chunk that begins with one is zero.
TEST(CudaBackward, ResetsAreNoInfinities) {
  BackwardCall x = testing::make_backward_call("gated_delta_rule", kCases.front().shape, 4);
  x.forward.g[0] = x.forward.g[10] = -1e38F;
  round_inputs<Fp16>(x);
  EXPECT_LE(distance(run_emulated<Fp16>(x, KeptFormat::fp16),
                     testing::run_backward(x, "chunked", contract_of(KeptFormat::fp16))),
            limit_of(KeptFormat::fp16));
  // Decays below the numbers of fp16, whose dg is a difference of much larger numbers.
  for (float& g : x.forward.g) g = -12.0F;
  GradientValues expected = testing::run_backward(x, "chunked", contract_of(KeptFormat::fp16));
  expected.erase("g");
  EXPECT_LE(distance(run_emulated<Fp16>(x, KeptFormat::fp16), expected), limit_of(KeptFormat::fp16));
}

TEST(CudaBackward, AFaultBetweenLaunchesIsSeen) {
  using P = BackwardParameters<float>;
  const BackwardCall x = testing::make_backward_call("gated_delta_rule", kCases.front().shape, 4);
  const GradientValues expected = testing::run_backward(x, "chunked");
  EXPECT_LE(distance(run_emulated<float>(x, KeptFormat::fp32, [](Launch, P&) {}), expected), 2e-6);
  const auto states = [](const P& p) { return p.Hv * p.dk * p.dv; };
  const std::vector<std::pair<std::string, Fault<float>>> faults = {
      {"the final state's cotangent is ignored",
       [](Launch at, P& p) {
         if (at == Launch::reverse) p.d_final_state = nullptr;
       }},
      {"the initial state is ignored",
       [](Launch at, P& p) {
         if (at == Launch::forward) p.initial_state = nullptr;
       }},
      {"the state after the chunk is read",
       [&](Launch at, P& p) {
         if (at != Launch::gradients) return;
         std::fill_n(p.states + p.chunk_count * states(p), states(p), 0.0F);
         p.states += states(p);
       }},
      {"the next chunk's cotangent is read",
       [&](Launch at, P& p) {
         if (at != Launch::gradients) return;
         std::fill_n(p.d_states + p.chunk_count * states(p), states(p), 0.0F);
         p.d_states += states(p);
       }},
      {"the states are not corrected by W",
       [](Launch at, P& p) {
         if (at == Launch::forward) std::fill_n(p.w, p.rows * p.Hv * p.dk, 0.0F);
       }},
      {"G is the last head's",
       [](Launch at, P& p) {
         if (at == Launch::gradients)
           for (std::int64_t i = 0; i < p.rows; ++i) p.sums[i * p.Hv] = p.sums[i * p.Hv + p.Hv - 1];
       }},
      {"beta does not multiply",
       [](Launch at, P& p) {
         if (at == Launch::gradients) p.beta = nullptr;
       }},
      {"T is the identity",
       [](Launch at, P& p) {
         if (at != Launch::gradients) return;
         const std::int64_t n = p.padded_chunk();
         for (std::int64_t i = 0; i < p.chunk_count * p.Hv * n * n; ++i)
           p.inverse[i] = i / n % n == i % n ? 1.0F : 0.0F;
       }},
      {"dk has no part through T and A",
       [](Launch at, P& p) {
         if (at == Launch::keys) std::fill_n(p.k_correction, p.rows * p.Hv * p.dk, 0.0F);
       }},
      {"one head of a group",
       [](Launch at, P& p) {
         if (at == Launch::keys)
           for (std::int64_t i = 0; i < p.rows * p.Hv * p.dk; ++i)
             if (i / p.dk % p.Hv > 0) p.q_part[i] = 0.0F;
       }},
      {"the scale is counted twice",
       [](Launch at, P& p) {
         if (at == Launch::gradients) p.scale *= p.scale;
       }},
  };
  for (const auto& [name, fault] : faults)
    EXPECT_GT(distance(run_emulated<float>(x, KeptFormat::fp32, fault), expected), 1e-3) << name;
}

/// A kernel that keeps fp32 where the contract says bf16 is as far from one that does not as these roundings are.
TEST(CudaBackward, ResultsThatAreNotRoundedAreSeen) {
  BackwardCall x = testing::make_backward_call("gated_delta_rule", kCases.front().shape, 4);
  round_inputs<Bf16>(x);
  const GradientValues expected = testing::run_backward(x, "chunked", contract_of(KeptFormat::bf16));
  const GradientValues kept = run_emulated<float>(x, KeptFormat::bf16),
                       not_kept = run_emulated<float>(x, KeptFormat::fp32);
  for (const auto& [name, values] : expected) {
    const double distance = testing::relative_error(kept.at(name), values);
    EXPECT_LE(distance, limit_of(KeptFormat::bf16)) << "d." << name;
    EXPECT_GT(testing::relative_error(not_kept.at(name), values), 3 * distance) << "d." << name;
  }
}

/// Sums that two blocks share, or a tie that a schedule breaks, would differ.
TEST(CudaBackward, TheSameBitsInEverySchedule) {
  BackwardCall x = testing::make_backward_call("gated_delta_rule", kCases[1].shape, 18);
  round_inputs<Bf16>(x);
  const GradientValues first = run_emulated<Bf16>(x, KeptFormat::bf16);
  for (int i = 0; i < 2; ++i) {
    emulation::take_next_schedule();
    emulation::copies_land_late_here = i == 0;
    const GradientValues again = run_emulated<Bf16>(x, KeptFormat::bf16);
    for (const auto& [name, values] : first) EXPECT_EQ(again.at(name), values) << "d." << name;
  }
  emulation::copies_land_late_here.reset();
}

/// The emulation gives a block what it asks for, a multiprocessor of compute capability 9.0 at most 227 KiB.
template <class Operand>
void expect_shared_memory() {
  constexpr int kMost = 227 * 1024;
  BackwardParameters<Operand> p;
  p.dk = kKeyLimit, p.dv = 256, p.chunk = kChunkLimit, p.tile = 32;
  EXPECT_LE(ForwardStates<Operand>::bytes(p), kMost);
  EXPECT_LE(ReverseStates<Operand>::bytes(p), kMost);
  EXPECT_LE(ChunkPreparation<Operand>::Shared::bytes(p.padded_chunk()), kMost);
  EXPECT_LE(sizeof(GradientBuffers<Operand>), static_cast<std::size_t>(kMost));
  p.dk += 64;
  EXPECT_GT(ForwardStates<float>::bytes({.dk = p.dk, .chunk = p.chunk, .tile = p.tile}), kMost)
      << "the limit of dk is where this memory ends";
}

TEST(CudaBackward, TheWidestKeysFitSharedMemory) {
  expect_shared_memory<float>();
  expect_shared_memory<Bf16>();
  expect_shared_memory<Fp16>();
}

TEST(CudaBackward, NumbersOfFp16AreRoundedToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7c00U; ++bits) {
    const float x = loaded(Fp16{static_cast<std::uint16_t>(bits)}),
                next = bits + 1 < 0x7c00U ? loaded(Fp16{static_cast<std::uint16_t>(bits + 1)}) : 65536.0F;
    const float middle = x + (next - x) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    ASSERT_EQ(stored<Fp16>(x).bits, bits);
    ASSERT_EQ(stored<Fp16>(-x).bits, bits | 0x8000U);
    ASSERT_EQ(stored<Fp16>(middle).bits, even);
    ASSERT_EQ(stored<Fp16>(std::nextafterf(middle, 0.0F)).bits, bits);
    ASSERT_EQ(stored<Fp16>(std::nextafterf(middle, INFINITY)).bits, bits + 1);
  }
  EXPECT_EQ(stored<Fp16>(-INFINITY).bits, 0xfc00U);
  EXPECT_TRUE(std::isnan(loaded(stored<Fp16>(NAN))));
}

/// The products of fp16 are made of these parts, so that they are exact only if the parts are.
TEST(CudaBackward, NumbersOfFp16AreSumsOfTwoOfBf16) {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    const float x = cuda::float_of(cuda::Fp16{static_cast<std::uint16_t>(bits)});
    if (std::isnan(x)) continue;
    const cuda::Fp16Parts parts(bits << 16 | bits);
    for (const std::uint32_t shift : {0U, 16U}) {
      const auto part = [&](std::uint32_t pair) {
        return cuda::widen(cuda::Bf16{static_cast<std::uint16_t>(pair >> shift)});
      };
      EXPECT_EQ(part(parts.leading) + part(parts.rest), x) << bits;
      EXPECT_LE(std::abs(part(parts.rest)), std::abs(x) * 0x1p-8F) << bits;
    }
  }
}

}  // namespace
}  // namespace samestate::cuda
