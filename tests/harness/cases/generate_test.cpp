#include "harness/cases/generate.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "harness/systems/tensor_inputs.h"
#include "oracles/contracts.h"
#include "oracles/rounding.h"

// Lines of the corpus and seeds of reports say what failed only as long as a seed draws the same data: these
// are the bits that every regime drew when it was written.
namespace samestate {
namespace {

using Sums = std::map<std::string_view, std::uint64_t>;

/// FNV-1a.
std::uint64_t sum_of(const std::string& bytes) {
  std::uint64_t sum = 14695981039346656037U;
  for (const char c : bytes) sum = (sum ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return sum;
}

void add(std::string& bytes, const std::vector<float>& values) {
  bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

std::string every_tensor(const Batch& batch) {
  std::string bytes;
  for (const auto* x : {&batch.q, &batch.k, &batch.v, &batch.g, &batch.beta, &batch.initial_state})
    add(bytes, *x);
  return bytes;
}

/// Fails, with the row that is wanted, where the bytes are others.
void expect_the_same(const Sums& sums, const Regime& regime, const std::string& bytes) {
  const auto row = sums.find(regime.name);
  EXPECT_EQ(row == sums.end() ? 0 : row->second, sum_of(bytes))
      << fmt::format("{{\"{}\", {:#018x}}},", regime.name, sum_of(bytes));
}

TEST(Generate, AFamilyRegimeDrawsTheSameBitsForEver) {
  const Sums sums = {
      {"normal", 0x2b9820c5eceb4cb9},         {"slow", 0x620e235ddcfbf555},
      {"none", 0xb0ecef771bb0f89d},           {"strong", 0xf7d08b92d8e51f4d},
      {"plateau", 0x72999c88be26eb81},        {"reset", 0x14a257fd64a2d7c9},
      {"measured", 0xd69d70e7441792d5},       {"retnet", 0x1b794b9ab0eff061},
      {"beta_zero", 0xa7613d27b22b7ec1},      {"beta_one", 0x4a47eea5e13aa9dd},
      {"beta_two", 0x12ff9f7bb92f6ab1},       {"collinear", 0xc9cd588fd2727079},
      {"identical", 0xd9162ad3a5fd13a6},      {"identical_beta_two", 0xca3992c90710c706},
      {"pool4", 0x4e00a44c610f583e},          {"constant", 0x1de59cc240f355bd},
      {"constant_gates", 0x278dfd60d479f245}, {"period2", 0x761ea7e5acd6114d},
      {"unnormalised", 0x5812fa4e8ea18500},   {"unnormalised15", 0xe588dccafa96371a},
      {"tiny_v", 0x4ff4745dbd01807c},         {"huge_v", 0xd7f0102b7a563d06},
      {"tiny_norms", 0x9017e3f0f1eb84a9},     {"positive", 0x67d80b1de0ee61b9},
      {"spike", 0x4b5db36230537dbf},          {"memorised", 0xa962269eea7c270f},
      {"zeros", 0xbe89cdbf6ae14050},          {"exact", 0xe1d127f7bf7d7b25},
      {"exact_reset", 0x847b78e4c375db81},    {"silence", 0x2a7d357c529826f4},
      {"zero_keys", 0xd27204ee96870b01},      {"huge_state", 0x01a32385690b8f95},
  };
  BatchShape dense;
  dense.B = 2, dense.T = 67, dense.Hk = 2, dense.Hv = 4, dense.dk = 16, dense.dv = 8;
  dense.initial_state = true;
  BatchShape packed = dense;
  packed.B = 1, packed.offsets = {0, 13, 13, 67};
  BatchShape normalised = dense;
  normalised.l2norm = true, normalised.initial_state = false;
  for (const Regime& regime : regimes()) {
    std::string bytes;
    for (const BatchShape& shape : {dense, packed, normalised}) {
      for (const char* contract : {"fp32", "bf16_state"})
        bytes += every_tensor(generate({shape, &regime, 3, true, true, &contract_named(contract)}));
    }
    expect_the_same(sums, regime, bytes);
  }
  EXPECT_EQ(sums.size(), regimes().size());
}

TEST(Generate, ARegimeOfNamedTensorsDrawsTheSameBitsForEver) {
  const Sums sums = {
      {"normal", 0x34a78687f36b3e37},       {"large", 0xcbe07b0e082ccb25},
      {"tiny", 0x3a5fe0ef366aafed},         {"zeros", 0xd3db2d0b295374fa},
      {"repeated", 0x498dfad3e00ce51e},     {"spiky", 0x0165e234049cdd93},
      {"mixed_scales", 0x5ec5a3372a2e4e5a}, {"padded", 0x547bea86b5b4858b},
      {"masked", 0x2c2502c3fd0ae860},       {"wide_rates", 0x7fcfcbebd0d8f628},
      {"trained", 0xb9783587dca3522b},      {"extremes", 0x32cdbd9ddc4f4cc9},
      {"sharp", 0xeaf0db1ea68d29f6},        {"long_context", 0x44e623096c0ec65c},
      {"only_decay", 0xde9cf422157b6ef8},
  };
  std::set<Content> seen;
  for (const Regime& regime : tensor_regimes()) {
    std::string bytes;
    const std::vector<const char*> any{"dendritic_attention", "latent_attention",
                                       "linear_attention_normalised", "selective_scan"};
    const std::vector<const char*> with_mask{"gated_delta_net", "load_balance"};
    const std::vector<const char*> with_rates{"gated_delta_net", "selective_scan"};
    const std::vector<const char*> with_head_norms{"gated_attention"};
    const std::vector<const char*> that_begin{"gated_delta_net", "linear_attention_normalised",
                                              "multi_scale_retention", "normalised_retention_recurrence"};
    const std::vector<const char*> that_count{"multi_scale_retention"};
    const std::vector<const char*> of_gradients{"gated_delta_rule pass=backward state=random",
                                                "retention pass=backward state=random"};
    for (const char* system : regime.gated                     ? of_gradients
                              : regime.tensors.long_context    ? that_count
                              : regime.tensors.masked_anywhere ? with_mask
                              : regime.tensors.of_rates        ? with_rates
                              : regime.tensors.of_head_norms   ? with_head_norms
                              : regime.tensors.trained         ? that_begin
                                                               : any) {
      for (const char* contract : {"fp32", "bf16"}) {
        const std::string line = "v1 " + std::string(system) + " T=37 B=2 seed=5 contract=" + contract +
                                 " regime=" + std::string(regime.name);
        for (const CaseTensor& tensor : tensor_inputs(Resolved(parse_case(line)))) {
          add(bytes, tensor.data);
          seen.insert(tensor.spec.content);
        }
      }
    }
    expect_the_same(sums, regime, bytes);
  }
  EXPECT_EQ(sums.size(), tensor_regimes().size());
  for (const Content content :
       {Content::activation, Content::weight, Content::scale, Content::offset, Content::log_rate,
        Content::strength, Content::cosine, Content::sine, Content::mask, Content::features, Content::zeros,
        Content::no_sum, Content::no_count})
    EXPECT_TRUE(seen.contains(content)) << static_cast<int>(content);
}

// Scores of a head whose norms are sharp reach what an exponential without a maximum taken off cannot have.
TEST(Generate, SharpNormsOfQueriesAndKeys) {
  const Resolved sharp(parse_case("v1 gated_attention T=3 seed=6 regime=sharp"));
  for (const CaseTensor& tensor : tensor_inputs(sharp)) {
    if (tensor.spec.content != Content::offset) continue;
    EXPECT_TRUE(is_head_norm(tensor.spec.name)) << tensor.spec.name;
    for (const float weight : tensor.data) EXPECT_NEAR(1.0F + weight, 8.0F, 1.5F);
  }
  EXPECT_EQ(sharp.system->regime("sharp"), sharp.regime);
  EXPECT_EQ(system_named("latent_attention").regime("sharp"), nullptr) << "has no such norms";
}

// All states of a sequence begin together or go on together, and hold what a call can have left in them.
TEST(Generate, TrainedSequencesHaveStatesPositionsAndSums) {
  std::set<Content> seen;
  for (const char* system : {"gated_delta_net", "linear_attention_normalised", "multi_scale_retention",
                             "normalised_retention_recurrence", "dendritic_attention"}) {
    const std::string line = "v1 " + std::string(system) + " T=3 B=12 seed=6 contract=bf16 regime=trained";
    std::vector<bool> goes_on(12, false);
    bool first = true;
    for (const CaseTensor& x : tensor_inputs(Resolved(parse_case(line)))) {
      if (x.spec.axis != Axis::state) continue;
      seen.insert(x.spec.content);
      for (std::size_t b = 0; b < goes_on.size(); ++b) {
        const auto size = static_cast<std::size_t>(x.spec.size());
        const std::span<const float> state(x.data.data() + b * size, size);
        const bool begun = std::ranges::any_of(state, [](float value) { return value != 0.0F; });
        if (first) goes_on[b] = begun;
        EXPECT_EQ(begun, goes_on[b]) << line << " " << x.spec.name << " " << b;
        for (const float value : state) {
          const Content content = x.spec.content;
          const auto nearest = static_cast<float>(round_to(static_cast<double>(value), Format::bf16));
          EXPECT_TRUE(content != Content::zeros || value == nearest) << line << " " << x.spec.name << value;
          EXPECT_TRUE(content != Content::no_sum || (value > 0.0F) == begun) << line << " " << value;
          EXPECT_TRUE(content != Content::no_count || value == std::round(value)) << line << " " << value;
        }
      }
      first = false;
    }
    const auto ones = std::ranges::count(goes_on, true);
    EXPECT_TRUE(ones > 4 && ones < 12) << line << " " << ones;
  }
  // An adversary's tables had 4,096 positions, and no call went beyond them.
  const Resolved far(parse_case("v1 multi_scale_retention T=3 B=12 seed=6 regime=long_context"));
  for (const CaseTensor& x : tensor_inputs(far)) {
    if (x.spec.content != Content::no_count) continue;
    EXPECT_GT(std::ranges::count_if(x.data, [](float count) { return count > 4096.0F; }), 4);
    EXPECT_LE(std::ranges::max(x.data), 36864.0F);
  }
  for (const char* system : {"selective_scan", "mamba_mixer", "gated_delta_step"}) {
    const std::string line = "v1 " + std::string(system) + " T=3 B=2 seed=6 regime=trained";
    for (const CaseTensor& x : tensor_inputs(Resolved(parse_case(line)))) {
      if (x.spec.name != kStepBias) continue;
      for (const float bias : x.data) {
        const double step = std::log1p(std::exp(static_cast<double>(bias)));
        EXPECT_TRUE(step > 0.99e-4 && step < 0.101) << line << " " << bias;
      }
    }
  }
  EXPECT_EQ(seen, (std::set<Content>{Content::zeros, Content::no_sum, Content::no_count}));
}

// Each kind of tensor gets values that a normal draw never has.
TEST(Generate, ExtremesAreBeyondNormalDraws) {
  const auto drawn = [](std::string_view system, std::string_view name, std::string_view regime) {
    const std::string line = fmt::format("v1 {} T=60 seed=6 regime={}", system, regime);
    for (const CaseTensor& tensor : tensor_inputs(Resolved(parse_case(line)))) {
      if (tensor.spec.name == name) return tensor.data;
    }
    return std::vector<float>{};
  };
  const auto count = [&](std::string_view system, std::string_view name, std::string_view regime,
                         const std::function<bool(float)>& has) {
    return std::ranges::count_if(drawn(system, name, regime), has);
  };
  const auto expect_new = [&](std::string_view system, std::string_view name,
                              const std::function<bool(float)>& has) {
    EXPECT_GT(count(system, name, "extremes", has), 0) << system << " " << name;
    EXPECT_EQ(count(system, name, "normal", has), 0) << system << " " << name;
  };
  expect_new("rms_norm", "x", [](float x) { return std::abs(x) > 6e4F; });
  expect_new("rms_norm", "x", [](float x) { return std::abs(x) < 1e-6F; });
  expect_new("rms_norm", "weight", [](float x) { return x == 0.0F; });
  expect_new("rms_norm", "weight", [](float x) { return x < 0.0F; });
  expect_new("zero_centred_rms_norm", "weight", [](float x) { return x == -1.0F; });
  expect_new("gradient_step", "eta", [](float x) { return x == 1.0F; });
  expect_new("gradient_step", "eta", [](float x) { return x > 1.0F; });
  expect_new("gradient_step", "eta", [](float x) { return x < 1e-8F; });
  expect_new("linear_attention_normalised", "k", [](float x) { return x < 1e-4F; });
}

// A kernel that reads the tables of the first sequence for all of them is wrong in every other one.
TEST(Generate, RotationTablesOfSequencesDiffer) {
  for (const char* line :
       {"v1 rotary_embedding T=3 B=3", "v1 gated_attention T=3 B=3", "v1 latent_attention T=3 B=3"}) {
    int tables = 0;
    for (const CaseTensor& x : tensor_inputs(Resolved(parse_case(line)))) {
      if (x.spec.content != Content::cosine && x.spec.content != Content::sine) continue;
      ++tables;
      const std::ptrdiff_t size = x.spec.size();
      const auto at = [&](std::ptrdiff_t b) { return x.data.begin() + b * size; };
      for (const auto& [a, b] : {std::pair{0, 1}, {0, 2}, {1, 2}})
        EXPECT_FALSE(std::equal(at(a), at(a) + size, at(b))) << line << " " << x.spec.name;
    }
    EXPECT_EQ(tables, 2) << line;
  }
}

}  // namespace
}  // namespace samestate
