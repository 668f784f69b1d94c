#include "harness/systems/model_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace samestate {
namespace {

std::map<std::string_view, std::int64_t> sizes_of(const char* system, const char* model,
                                                  std::int64_t divided) {
  for (const ModelSizes& row : model_sizes(system_named(system))) {
    if (row.model->name == model && row.divided == divided) return {row.sizes.begin(), row.sizes.end()};
  }
  return {};
}

// Worked out from the configurations by hand.
TEST(ModelSizes, AreThoseOfTheLayersAndOfTheirParts) {
  using Sizes = std::map<std::string_view, std::int64_t>;
  EXPECT_EQ(sizes_of("gated_delta_rule", "Qwen3-Next-80B-A3B", 1),
            (Sizes{{"Hk", 16}, {"Hv", 32}, {"dk", 128}, {"dv", 128}}));
  EXPECT_EQ(sizes_of("gated_delta_rule", "Qwen3.5-397B-A17B", 8),
            (Sizes{{"Hk", 2}, {"Hv", 8}, {"dk", 128}, {"dv", 128}}));
  EXPECT_EQ(sizes_of("short_convolution", "Qwen3-Next-80B-A3B", 1),
            (Sizes{{"C", 8192}, {"W", 4}, {"bias", 0}}));
  // Two key heads on eight devices: each has a copy of one.
  EXPECT_EQ(sizes_of("softmax_attention", "Qwen3-Next-80B-A3B", 8),
            (Sizes{{"H", 2}, {"Hkv", 1}, {"d", 256}, {"dv", 256}}));
  EXPECT_EQ(sizes_of("rotary_embedding", "Qwen3-Next-80B-A3B", 1),
            (Sizes{{"H", 16}, {"d", 256}, {"pairs", 32}}));
  EXPECT_EQ(sizes_of("state_space_duality", "Codestral-Mamba-7B", 2),
            (Sizes{{"H", 64}, {"G", 4}, {"P", 64}, {"N", 128}}));
  EXPECT_EQ(sizes_of("group_limited_router", "DeepSeek-V3", 1),
            (Sizes{{"D", 7168}, {"N", 256}, {"K", 8}, {"G", 8}, {"M", 4}, {"bias", 1}}));
}

TEST(ModelSizes, LeaveOutWhatDoesNotDivideAndWhatASystemDoesNotTake) {
  EXPECT_TRUE(sizes_of("gated_delta_rule", "Gated-DeltaNet-1.3B", 4).empty());  // six heads
  EXPECT_FALSE(sizes_of("gated_delta_rule", "Gated-DeltaNet-1.3B", 2).empty());
  EXPECT_TRUE(sizes_of("rotary_embedding", "Jamba-v0.1", 1).empty());  // which has none
  EXPECT_TRUE(sizes_of("gated_attention", "Llama-2-7B", 1).empty());
}

TEST(ModelSizes, EverySizeIsOneThatTheSystemTakesAndNoneStandsTwice) {
  for (const System* system : systems()) {
    std::set<std::pair<std::string_view, std::vector<std::pair<std::string_view, std::int64_t>>>> seen;
    for (const ModelSizes& row : model_sizes(*system)) {
      EXPECT_TRUE(seen.emplace(row.model->name, row.sizes).second) << system->name << " " << row.model->name;
      for (const auto& [name, value] : row.sizes) {
        const auto size = std::ranges::find(system->sizes, name, &CaseSize::name);
        ASSERT_NE(size, system->sizes.end()) << system->name << " " << name;
        EXPECT_GE(value, size->least);
        EXPECT_LE(value, size->most);
      }
    }
  }
}

}  // namespace
}  // namespace samestate
