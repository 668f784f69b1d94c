#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "optimized/call.h"
#include "optimized/cpu/twin.h"
#include "optimized/cuda/delta/chunk_mma_dense_generic.cuh"
#include "optimized/cuda/delta/dense_call.h"
#include "optimized/cuda/delta/token_fma_dense_generic.cuh"
#include "tests/optimized/contracts.h"

/// The CUDA kernels' own source, executed by threads of the host (optimized/cuda/units/emulation.h).
namespace samestate::cuda {
namespace {

using testing::bf16;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

Contract fp32() { return {}; }

/// A call with its memory.
struct Call {
  std::int64_t B = 1, T = 1, Hk = 1, Hv = 1, dk = 1, dv = 1, chunk = 16;
  std::vector<std::int64_t> offsets;
  bool initial = true, l2norm = false;
  HeadMap map = HeadMap::interleaved;
  float scale = 1.0F;
  std::vector<float> q, k, v, g, beta, state, o, final_state;

  [[nodiscard]] std::int64_t sequences() const {
    return offsets.empty() ? B : static_cast<std::int64_t>(offsets.size()) - 1;
  }

  /// Tensors filled by `draw(name)`, outputs poisoned.
  template <class Draw>
  void fill(const cpu::System& system, Draw&& draw) {
    const auto make = [&](char name, std::int64_t size) {
      std::vector<float> values(static_cast<std::size_t>(size));
      for (float& x : values) x = draw(name);
      return values;
    };
    q = make('q', B * T * Hk * dk);
    k = make('k', B * T * Hk * dk);
    v = make('v', B * T * Hv * dv);
    if (system.decay) g = make('g', B * T * Hv);
    if (system.delta) beta = make('b', B * T * Hv);
    if (initial) state = make('s', sequences() * Hv * dk * dv);
    poison();
  }

  void poison() {
    o.assign(static_cast<std::size_t>(B * T * Hv * dv), kPoison);
    final_state.assign(static_cast<std::size_t>(sequences() * Hv * dk * dv), kPoison);
  }

  [[nodiscard]] Arguments arguments() {
    Arguments a;
    a.q = row_major<const float, 4>(q.data(), {B, T, Hk, dk});
    a.k = row_major<const float, 4>(k.data(), {B, T, Hk, dk});
    a.v = row_major<const float, 4>(v.data(), {B, T, Hv, dv});
    if (!g.empty()) a.g = row_major<const float, 3>(g.data(), {B, T, Hv});
    if (!beta.empty()) a.beta = row_major<const float, 3>(beta.data(), {B, T, Hv});
    if (!state.empty()) a.initial_state = row_major<const float, 4>(state.data(), {sequences(), Hv, dk, dv});
    if (!offsets.empty()) {
      a.cu_seqlens =
          row_major<const std::int64_t, 1>(offsets.data(), {static_cast<std::int64_t>(offsets.size())});
    }
    a.o = row_major<float, 4>(o.data(), {B, T, Hv, dv});
    a.final_state = row_major<float, 4>(final_state.data(), {sequences(), Hv, dk, dv});
    a.scale = scale;
    a.chunk = chunk;
    a.head_map = map;
    a.l2norm = l2norm;
    return a;
  }
};

/// Exactly `bytes` of shared memory, so that a sanitizer sees an overrun; poisoned.
std::unique_ptr<unsigned char[], void (*)(unsigned char*)> shared_memory(std::size_t bytes) {
  auto* memory = static_cast<unsigned char*>(::operator new (bytes, std::align_val_t{16}));
  std::fill_n(memory, bytes, static_cast<unsigned char>(0xff));
  return {memory, [](unsigned char* p) { ::operator delete (p, std::align_val_t{16}); }};
}

template <class Operand, bool delta>
void run_chunked_blocks(const Parameters<Operand>& p, int panel, int threads) {
  const ChunkLayout layout = chunk_layout<Operand>(p.chunk, p.dk, p.tile, panel, delta);
  const auto shared = shared_memory(static_cast<std::size_t>(layout.bytes));
  emulation::run_block(threads, [&] {
    for (std::int64_t item = 0; item < p.items(); ++item) {
      ChunkedBlock<Operand, delta>(p, layout, shared.get()).run(item);
    }
  });
}

template <class Operand, bool delta>
void run_recurrent_blocks(const Parameters<Operand>& p) {
  constexpr int kRows = 8;
  const int warps = (p.dk + kRows - 1) / kRows;
  const auto shared = shared_memory(sizeof(float) * static_cast<std::size_t>(recurrent_words(warps, kRows)));
  emulation::run_block(32 * warps, [&] {
    for (std::int64_t item = 0; item < p.items(); ++item) {
      recurrent_block<Operand, kRows, delta>(p, item, reinterpret_cast<float*>(shared.get()));
    }
  });
}

/// How a chunked call is cut up: value columns a block, columns of W at once, threads a block.
struct Cut {
  int tile = 16, panel = 16, threads = 64;
};

template <class Operand>
void evaluate(const cpu::System& system, bool chunked, const Arguments& a, const Contract& contract,
              Cut cut) {
  Packed<Operand> packed = pack<Operand>(a, cpu::checked_sizes(a), contract);
  Parameters<Operand> p = packed.parameters;
  std::vector<Operand> o(static_cast<std::size_t>(a.o.size()), stored<Operand>(0.0F));
  std::vector<float> final_state(static_cast<std::size_t>(a.final_state.size()), kPoison);
  const auto pointer = [](auto& values) { return values.empty() ? nullptr : values.data(); };
  p.q = pointer(packed.q), p.k = pointer(packed.k), p.v = pointer(packed.v);
  p.g = pointer(packed.g), p.beta = pointer(packed.beta), p.initial_state = pointer(packed.initial_state);
  p.cu_seqlens = pointer(packed.cu_seqlens);
  p.o = pointer(o);
  p.final_state = packed.initial_state.empty() ? pointer(final_state) : pointer(packed.initial_state);
  p.tile = chunked ? cut.tile : 32;
  if (chunked) {
    system.delta ? run_chunked_blocks<Operand, true>(p, cut.panel, cut.threads)
                 : run_chunked_blocks<Operand, false>(p, cut.panel, cut.threads);
  } else {
    system.delta ? run_recurrent_blocks<Operand, true>(p) : run_recurrent_blocks<Operand, false>(p);
  }
  scatter(o, a.o);
  scatter(packed.initial_state.empty() ? final_state : packed.initial_state, a.final_state);
}

void emulate(const cpu::System& system, bool chunked, Call& call, const Contract& contract, Cut cut = {}) {
  const Arguments a = call.arguments();
  ASSERT_EQ(refusal(system, chunked, a, contract), "");
  call.poison();
  contract.output == Format::bf16 ? evaluate<Bf16>(system, chunked, a, contract, cut)
                                  : evaluate<float>(system, chunked, a, contract, cut);
}

const std::vector<const cpu::System*> kSystems = {&cpu::GATED_DELTA_RULE, &cpu::DELTA_RULE, &cpu::RETENTION,
                                                  &cpu::LINEAR_ATTENTION};

/// The recurrence in float64, straight from EQUATIONS 5.5; without l2norm.
void recur(const cpu::System& system, Call& call) {
  call.poison();
  for (std::int64_t n = 0; n < call.sequences(); ++n) {
    for (std::int64_t h = 0; h < call.Hv; ++h) {
      const std::int64_t kh = call.map == HeadMap::tiled ? h % call.Hk : h / (call.Hv / call.Hk);
      const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
      const std::int64_t base = (n * call.Hv + h) * call.dk * call.dv;
      std::vector<double> S(at(call.dk * call.dv), 0.0);
      if (call.initial) std::copy_n(call.state.begin() + base, call.dk * call.dv, S.begin());
      const std::int64_t begin = call.offsets.empty() ? n * call.T : call.offsets[at(n)];
      const std::int64_t end = call.offsets.empty() ? begin + call.T : call.offsets[at(n + 1)];
      for (std::int64_t t = begin; t < end; ++t) {
        const float* k = &call.k[at((t * call.Hk + kh) * call.dk)];
        const float* q = &call.q[at((t * call.Hk + kh) * call.dk)];
        const double decay = system.decay ? std::exp(static_cast<double>(call.g[at(t * call.Hv + h)])) : 1.0;
        for (double& s : S) s *= decay;
        for (std::int64_t c = 0; c < call.dv; ++c) {
          double u = static_cast<double>(call.v[at((t * call.Hv + h) * call.dv + c)]);
          double o = 0.0;
          if (system.delta) {
            for (std::int64_t l = 0; l < call.dk; ++l)
              u -= static_cast<double>(k[l]) * S[at(l * call.dv + c)];
            u *= static_cast<double>(call.beta[at(t * call.Hv + h)]);
          }
          for (std::int64_t l = 0; l < call.dk; ++l) {
            S[at(l * call.dv + c)] += static_cast<double>(k[l]) * u;
            o += static_cast<double>(q[l]) * S[at(l * call.dv + c)];
          }
          call.o[at((t * call.Hv + h) * call.dv + c)] =
              static_cast<float>(o * static_cast<double>(call.scale));
        }
      }
      std::copy(S.begin(), S.end(), call.final_state.begin() + base);
    }
  }
}

/// Small integers on few keys, beta 0 or 1, decay none or a hard reset: every intermediate of either form is
/// an integer that bf16 and fp32 hold.
void fill_exact(const cpu::System& system, Call& call, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::uint32_t n) { return static_cast<int>(random() % n); };
  call.fill(system, [&](char name) {
    switch (name) {
      case 'q':
        return static_cast<float>(below(3) - 1);
      case 'b':
        return static_cast<float>(below(2));
      case 'g':
        return below(8) == 0 ? -1e38F : 0.0F;
      case 'k':
        return 0.0F;
      default:
        return static_cast<float>(below(7) - 3);
    }
  });
  for (std::int64_t i = 0; i < call.B * call.T * call.Hk; ++i) {
    call.k[static_cast<std::size_t>(i * call.dk + below(static_cast<std::uint32_t>(call.dk)))] = 1.0F;
  }
}

float bf16_of(float x) { return loaded(stored<Bf16>(x)); }

void expect_exact(const cpu::System& system, bool chunked, Call call, const Contract& contract,
                  Cut cut = {}) {
  Call expected = call;
  recur(system, expected);
  emulate(system, chunked, call, contract, cut);
  const bool rounded = contract.output == Format::bf16;
  std::size_t differing = 0;
  for (std::size_t i = 0; i < call.o.size(); ++i) {
    differing += call.o[i] == (rounded ? bf16_of(expected.o[i]) : expected.o[i]) ? 0 : 1;
  }
  EXPECT_EQ(differing, 0U) << system.name << " chunked=" << chunked << " " << contract.name << " T=" << call.T
                           << " chunk=" << call.chunk << " dk=" << call.dk << " dv=" << call.dv
                           << ": elements of o";
  EXPECT_EQ(call.final_state, expected.final_state)
      << system.name << " chunked=" << chunked << " " << contract.name << " T=" << call.T
      << " chunk=" << call.chunk;
}

Call sized(std::int64_t T, std::int64_t dk, std::int64_t dv, std::int64_t chunk) {
  Call call;
  call.T = T, call.dk = dk, call.dv = dv, call.chunk = chunk;
  return call;
}

TEST(CudaEmulation, ExactRegimeIsBitForBit) {
  std::uint32_t seed = 1;
  for (const cpu::System* system : kSystems) {
    for (const Contract& contract : {fp32(), bf16()}) {
      Call call = sized(21, 18, 20, 16);
      call.Hk = 1, call.Hv = 2, call.scale = 0.5F;
      fill_exact(*system, call, ++seed);
      expect_exact(*system, true, call, contract, {16, 16, 64});
      expect_exact(*system, false, call, contract);
    }
  }
}

TEST(CudaEmulation, EveryChunkAndTail) {
  for (const std::int64_t chunk : {1, 7, 16, 33, 64}) {
    for (const std::int64_t T : {chunk - 1, chunk, chunk + 1}) {
      Call call = sized(T, 5, 3, chunk);
      fill_exact(cpu::GATED_DELTA_RULE, call, static_cast<std::uint32_t>(100 * chunk + T));
      expect_exact(cpu::GATED_DELTA_RULE, true, call, fp32(), {16, 16, 96});
      expect_exact(cpu::GATED_DELTA_RULE, true, call, bf16(), {16, 16, 32});
    }
  }
}

TEST(CudaEmulation, WideKeysAndValuesInPanelsAndTiles) {
  Call call = sized(19, 72, 40, 64);
  fill_exact(cpu::GATED_DELTA_RULE, call, 7);
  expect_exact(cpu::GATED_DELTA_RULE, true, call, bf16(), {32, 64, 64});
  expect_exact(cpu::GATED_DELTA_RULE, true, call, fp32(), {16, 80, 64});
  expect_exact(cpu::GATED_DELTA_RULE, false, call, bf16());
}

TEST(CudaEmulation, PackedBatchedAndTiledHeads) {
  for (const bool chunked : {false, true}) {
    Call packed = sized(23, 9, 8, 16);
    packed.offsets = {1, 1, 6, 22, 22};  // tokens 0 and 22 belong to no sequence
    packed.Hk = 2, packed.Hv = 4, packed.map = HeadMap::tiled;
    fill_exact(cpu::GATED_DELTA_RULE, packed, 11);
    Call expected = packed;
    recur(cpu::GATED_DELTA_RULE, expected);
    for (std::vector<float>* x : {&packed.q, &packed.k, &packed.v, &packed.g, &packed.beta}) {
      const std::size_t row = x->size() / 23;
      std::fill_n(x->begin(), row, std::numeric_limits<float>::quiet_NaN());
      std::fill_n(x->end() - static_cast<std::ptrdiff_t>(row), row, std::numeric_limits<float>::quiet_NaN());
    }
    std::fill_n(expected.o.begin(), 32, 0.0F);
    std::fill_n(expected.o.end() - 32, 32, 0.0F);
    emulate(cpu::GATED_DELTA_RULE, chunked, packed, fp32());
    EXPECT_EQ(packed.o, expected.o);
    EXPECT_EQ(packed.final_state, expected.final_state);

    Call batched = sized(6, 4, 4, 4);
    batched.B = 2, batched.Hk = 2, batched.Hv = 4, batched.initial = false;
    fill_exact(cpu::RETENTION, batched, 12);
    expect_exact(cpu::RETENTION, chunked, batched, fp32());
    batched.map = HeadMap::tiled;
    expect_exact(cpu::RETENTION, chunked, batched, bf16());
  }
}

TEST(CudaEmulation, NoTokensCopyTheState) {
  for (const bool chunked : {false, true}) {
    Call call = sized(0, 3, 5, 4);
    fill_exact(cpu::DELTA_RULE, call, 13);
    emulate(cpu::DELTA_RULE, chunked, call, bf16());
    EXPECT_EQ(call.final_state, call.state);
  }
}

/// Ordinary data: l2-normalised keys of spread length, decay, beta in (0, 1).
void fill_ordinary(const cpu::System& system, Call& call, bool rounded, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  call.fill(system, [&](char name) {
    const float x = normal(random);
    if (name == 'g') return -0.3F * std::fabs(x);
    if (name == 'b') return 1.0F / (1.0F + std::exp(-x));
    if (name == 's') return x;
    const float scaled = name == 'v' || call.l2norm ? x : x / std::sqrt(static_cast<float>(call.dk));
    return rounded ? bf16_of(scaled) : scaled;
  });
}

/// ||a - b|| / ||b||.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    difference += d * d;
    size += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(difference / size);
}

/// ||o - twin's o|| / ||twin's o||, the twin under a contract of its own, and the same of the state; the
/// larger.
double from_twin(const cpu::System& system, bool chunked, Call call, const Contract& contract,
                 const Contract& twin_contract, Cut cut = {16, 32, 64}) {
  Call twin = call;
  const Outcome outcome =
      run_twin(system.name, chunked ? "chunked" : "recurrent", twin.arguments(), twin_contract);
  EXPECT_EQ(outcome.kind, Outcome::Kind::ran) << outcome.reason;
  emulate(system, chunked, call, contract, cut);
  return std::max(distance(call.o, twin.o), distance(call.final_state, twin.final_state));
}

/// fp32: sums of n terms in another order differ by at most 2 n u |terms|, u = 2^-24 (BOUNDS 2, det);
/// ordinary data stay far below. Here n is the longest sum, over keys and over a chunk.
TEST(CudaEmulation, Fp32IsTheTwinUpToTheOrderOfSums) {
  std::uint32_t seed = 21;
  for (const cpu::System* system : kSystems) {
    for (const bool chunked : {false, true}) {
      Call call = sized(37, 24, 16, 20);
      call.l2norm = system->decay;
      call.scale = 0.3F;
      fill_ordinary(*system, call, false, ++seed);
      EXPECT_LT(from_twin(*system, chunked, call, fp32(), fp32()), 2.0 * (24 + 20) * 0x1p-24)
          << system->name << " chunked=" << chunked;
    }
  }
}

/// bf16: every rounding point is where the contract says. The twin without one of them is farther away than
/// the twin with all of them, by ten times at least.
TEST(CudaEmulation, Bf16RoundsWhereTheContractSays) {
  struct Point {
    const char* name;
    Format Contract::*field;
    bool delta;
  };
  const std::vector<Point> points = {{"T", &Contract::T, true},
                                     {"beta_v", &Contract::beta_v, true},
                                     {"beta_exp_k", &Contract::beta_exp_k, true},
                                     {"U", &Contract::U, true},
                                     {"W", &Contract::W, true},
                                     {"state_operand", &Contract::state_operand, false},
                                     {"v_new", &Contract::v_new, true},
                                     {"v_decayed", &Contract::v_decayed, true},
                                     {"P", &Contract::P, false},
                                     {"qk", &Contract::qk, false},
                                     {"output", &Contract::output, false}};
  std::uint32_t seed = 41;
  for (const cpu::System* system : kSystems) {
    Call call = sized(37, 24, 16, 20);
    call.l2norm = true;
    call.scale = 0.3F;
    fill_ordinary(*system, call, true, ++seed);
    const double all = from_twin(*system, true, call, bf16(), bf16());
    for (const Point& point : points) {
      if (point.delta && !system->delta) continue;
      Contract without = bf16();
      without.*point.field = Format::fp32;
      EXPECT_GT(from_twin(*system, true, call, bf16(), without), 10.0 * all)
          << system->name << " " << point.name;
    }
    Contract unrounded = bf16();
    unrounded.output = Format::fp32;
    const double recurrent = from_twin(*system, false, call, bf16(), bf16());
    EXPECT_GT(from_twin(*system, false, call, bf16(), unrounded), 10.0 * recurrent) << system->name;
  }
}

/// The largest call that is taken, in a block of full size.
TEST(CudaEmulation, LargestKeysAndChunk) {
  Call call = sized(70, 256, 16, 64);
  call.initial = false;
  fill_ordinary(cpu::GATED_DELTA_RULE, call, true, 61);
  EXPECT_LT(from_twin(cpu::GATED_DELTA_RULE, true, call, fp32(), fp32(), {16, 64, 256}),
            2.0 * (256 + 64) * 0x1p-24);
  Contract without = bf16();
  without.W = Format::fp32;
  const double all = from_twin(cpu::GATED_DELTA_RULE, true, call, bf16(), bf16(), {16, 64, 256});
  EXPECT_GT(from_twin(cpu::GATED_DELTA_RULE, true, call, bf16(), without, {16, 64, 256}), 10.0 * all);
}

/// Some tile fits the 227 KiB of shared memory that a block of compute capability 9.0 may ask for.
TEST(CudaEmulation, SharedMemorySufficesForEveryShape) {
  constexpr int kAvailable = 227 * 1024;
  for (int dk = 1; dk <= kKeyLimit; ++dk) {
    const int panel = std::min((dk + 15) / 16 * 16, 64);
    EXPECT_LE(chunk_layout<float>(kChunkLimit, dk, 16, panel, true).bytes, kAvailable) << dk;
    EXPECT_LE(chunk_layout<Bf16>(kChunkLimit, dk, 32, panel, true).bytes, kAvailable) << dk;
  }
  EXPECT_GT(chunk_layout<float>(kChunkLimit, kKeyLimit, 32, 64, true).bytes, kAvailable);
}

TEST(CudaEmulation, RefusalsNameTheLimit) {
  Call call = sized(2, 3, 4, 65);
  fill_exact(cpu::GATED_DELTA_RULE, call, 1);
  EXPECT_NE(refusal(cpu::GATED_DELTA_RULE, true, call.arguments(), fp32()).find("chunk=65"),
            std::string::npos);
  EXPECT_EQ(refusal(cpu::GATED_DELTA_RULE, false, call.arguments(), fp32()), "");
  EXPECT_NE(refusal(cpu::LINEAR_ATTENTION, false, call.arguments(), fp32()), "");
  call.chunk = 64;
  EXPECT_EQ(refusal(cpu::GATED_DELTA_RULE, true, call.arguments(), bf16()), "");
  Contract other = bf16();
  other.U = Format::fp32;
  EXPECT_NE(refusal(cpu::GATED_DELTA_RULE, true, call.arguments(), other), "");
  EXPECT_EQ(refusal(cpu::GATED_DELTA_RULE, false, call.arguments(), other), "");
  other = bf16();
  other.state = Format::bf16;
  EXPECT_NE(refusal(cpu::GATED_DELTA_RULE, false, call.arguments(), other), "");
  call.l2norm = true;
  other = bf16();
  other.qk = Format::fp32;
  EXPECT_NE(refusal(cpu::GATED_DELTA_RULE, true, call.arguments(), other).find("qk"), std::string::npos);
  Call wide = sized(1, 257, 1, 1);
  fill_exact(cpu::GATED_DELTA_RULE, wide, 1);
  EXPECT_NE(refusal(cpu::GATED_DELTA_RULE, false, wide.arguments(), fp32()).find("dk=257"),
            std::string::npos);
}

/// A copy to shared memory is there when its group has been waited for: before, it may be or not.
TEST(CudaEmulation, CopiesLandAtOnceOrWhenWaitedFor) {
  alignas(16) const float from[4] = {1.0F, 2.0F, 3.0F, 4.0F};
  for (const bool late : {false, true}) {
    emulation::copies_land_late = late;
    alignas(16) float first[4] = {}, second[4] = {}, third[4] = {};
    float at_once = -1.0F, other_group = -1.0F, waited_for = -1.0F, all = -1.0F;
    emulation::run_block(32, [&] {
      if (thread_index() != 0) return;
      copy_async_16(first, from);
      copies_commit();
      copy_async_16(second, from);
      copies_commit();
      copy_async_16(third, from);
      at_once = first[3];
      copies_wait<1>();
      waited_for = first[3];
      other_group = second[3];
      copy_wait();
      all = second[3] + third[3];
    });
    EXPECT_EQ(at_once, late ? 0.0F : 4.0F);
    EXPECT_EQ(waited_for, 4.0F);
    EXPECT_EQ(other_group, late ? 0.0F : 4.0F);
    EXPECT_EQ(all, 8.0F);
  }
  emulation::copies_land_late = false;
}

}  // namespace
}  // namespace samestate::cuda
