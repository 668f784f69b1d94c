#include "oracles/bounds/sampled_model.h"

#include "oracles/contracts.h"
#include "oracles/limits.h"
#include "oracles/named_points.h"

namespace samestate {
namespace {

std::uint64_t mixed(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15U;
  x = (x ^ (x >> 30U)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27U)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31U);
}

/// Uniform in [0, 1).
double uniform(std::uint64_t x) { return static_cast<double>(mixed(x) >> 11U) * 0x1p-53; }

/// One out of this many samples rounds to nearest as kernels do: numbers of the format times a factor near
/// one all have that relative error, and a draw of signs never has such a slope.
constexpr int kRoundsToNearest = 32;

void set_formats(const Contract& contract, SampledModel& model) {
  if (contract.input == Format::bf16 || contract.input == Format::fp16) model.kept = contract.input;
  model.operand = unit_operand(contract);
  model.switched = switched_by(contract);
}

}  // namespace

SampledModel SampledModel::sample(const Contract& contract, std::uint64_t seed, int n) {
  SampledModel model;
  set_formats(contract, model);
  model.salt = mixed(seed ^ mixed(static_cast<std::uint64_t>(n)));
  // A tensor core truncates its sums, and by how much is a property of a kernel: half of the samples have
  // some truncation, the others none. The same holds for the mean error of an exponential.
  if (contract.accumulator == Accumulator::tensor_core && uniform(model.salt + 1) < 0.5)
    model.truncation = uniform(model.salt + 2);
  model.by_base_two = contract.exponential == Exponential::ex2;
  if (model.by_base_two) {
    model.exponential_bias = 1.4 * (2.0 * uniform(model.salt + 3) - 1.0);
    model.base_two_slope = kEx2BiasSlope * (2.0 * uniform(model.salt + 6) - 1.0);
  }
  model.stagnation = kStagnation * uniform(model.salt + 8);
  model.working = true;
  model.near_normal = model.kept == Format::none && model.operand == Format::none;
  model.by_place = n % 2 == 1;
  model.alike = n % 4 >= 2;
  model.size_of_nearest = n % 8 >= 4;
  model.sums_stored = uniform(model.salt + 4) < 0.5;
  model.associates_otherwise = uniform(model.salt + 5) < 0.5;
  model.adds_one = uniform(model.salt + 7) < 0.5;
  model.drawn = n % kRoundsToNearest != kRoundsToNearest - 1;
  return model;
}

SampledModel SampledModel::twin(const Contract& contract) {
  SampledModel model;
  set_formats(contract, model);
  model.drawn = false;
  return model;
}

SampledModel SampledModel::jitter(const Contract& contract, std::uint64_t seed, int n) {
  SampledModel model = sample(contract, seed, n);
  model.drawn = model.near_normal = false;
  model.truncation = model.stagnation = model.exponential_bias = model.base_two_slope = 0.0;
  model.by_base_two = model.sums_stored = model.adds_one = false;
  // The other order of three factors has other products, with other operands.
  if (model.operand != Format::none) model.associates_otherwise = false;
  return model;
}

}  // namespace samestate
