#include "harness/cases/laws.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "harness/cases/resolved.h"
#include "harness/cases/system.h"
#include "oracles/systems/family.h"
#include "oracles/systems/operator.h"

namespace samestate {
namespace {

std::vector<std::string> names_of(const std::vector<const Law*>& laws) {
  std::vector<std::string> out;
  for (const Law* law : laws) out.emplace_back(law->name);
  return out;
}

/// The names that stand there more than once.
std::set<std::string> repeated(std::vector<std::string> names) {
  std::set<std::string> out, seen;
  for (std::string& name : names) {
    if (!seen.insert(name).second) out.insert(std::move(name));
  }
  return out;
}

Properties every_property() {
  Properties out;
  for (const PropertyWords& words : property_words()) out = out | words.property;
  return out;
}

TEST(LawTable, EachRowSaysWhatItIsAndHasAJudge) {
  for (const Law& law : laws()) {
    EXPECT_TRUE(law.on_heads.judge != nullptr || law.on_tensors.judge != nullptr) << law.name;
    EXPECT_FALSE(law.ids.empty() || law.says.empty()) << law.name;
    EXPECT_TRUE(std::ranges::any_of(
        systems(), [&](const System* s) { return std::ranges::find(s->laws, &law) != s->laws.end(); }))
        << law.name << ": no system has it";
  }
}

// A line names a law by its name alone, and two rows have one: no system may have both.
TEST(LawTable, ALineNamesOneOfASystem) {
  EXPECT_EQ(repeated({"reset", "split", "reset"}), std::set<std::string>{"reset"});
  EXPECT_EQ(repeated(names_of(laws_on_heads(every_property()))), std::set<std::string>{});
  // Gradients have laws of the same names as systems whose calls go on, and no system has both properties.
  EXPECT_EQ(repeated(names_of(laws_on_tensors(every_property().without(Property::gradients)))),
            std::set<std::string>{});
  for (const System* system : systems()) {
    EXPECT_EQ(repeated(names_of(system->laws)), std::set<std::string>{}) << system->name;
    for (const Law* law : system->laws) {
      Case c = system->standard();
      for (const CaseForm& form : system->forms) {
        if (system->native(form.name)) c.form = form.name;
      }
      c.law = law->name;
      EXPECT_EQ(Resolved(c).law, law) << system->name;
    }
  }
}

// Without the property, no system has the law, whatever else it has; with only this one of the properties
// that the law needs, neither.
TEST(LawTable, FollowFromProperties) {
  for (const Law& law : laws()) {
    const auto has = [&](Properties properties) {
      const std::vector<const Law*> heads = laws_on_heads(properties), tensors = laws_on_tensors(properties);
      return std::ranges::count(heads, &law) + std::ranges::count(tensors, &law) > 0;
    };
    EXPECT_TRUE(has(every_property())) << law.name;
    EXPECT_TRUE(has(law.needs)) << law.name;
    for (const PropertyWords& need : property_words()) {
      EXPECT_EQ(has(every_property().without(need.property)), !law.needs.has(need.property))
          << law.name << " without " << need.noun;
    }
  }
  EXPECT_EQ(names_of(laws_on_tensors({})), std::vector<std::string>{"batch_permutation"});
  EXPECT_EQ(names_of(laws_on_tensors(Property::token_wise)),
            (std::vector<std::string>{"batch_permutation", "packing"}));
}

// The order in which a system has its laws is part of what a seed draws.
TEST(LawTable, KeepTheOrderOfASystem) {
  EXPECT_EQ(names_of(system_named("gated_delta_rule").laws),
            (std::vector<std::string>{"path_equivalence", "split", "causality", "batch_permutation",
                                      "head_permutation", "linearity", "no_op", "packing", "serving", "reset",
                                      "norm_bounds", "recall"}));
  EXPECT_EQ(
      names_of(system_named("gated_delta_step").laws),
      (std::vector<std::string>{"split", "causality", "batch_permutation", "reset", "serving", "pool"}));
  EXPECT_EQ(names_of(system_named("rms_norm").laws),
            (std::vector<std::string>{"batch_permutation", "packing"}));
}

TEST(LawTable, SystemsDeclareWhatTheirRowsSay) {
  for (const Family& row : families()) {
    const System& system = system_named(row.name);
    EXPECT_EQ(system.has(Property::decay), row.gated) << row.name;
    EXPECT_EQ(system.has(Property::delta), row.delta) << row.name;
    EXPECT_EQ(system.law("recall") != nullptr, row.delta) << row.name;
    EXPECT_TRUE(system.has(Property::linear)) << row.name;
  }
  for (const Operator& row : operators()) {
    const System& system = system_named(row.name);
    EXPECT_EQ(system.has(Property::streams), row.streams) << row.name;
    EXPECT_EQ(system.has(Property::token_wise), row.token_wise) << row.name;
    EXPECT_EQ(system.has(Property::packs), system.form("packed") != nullptr) << row.name;
    EXPECT_FALSE(system.has(Property::linear)) << row.name;
  }
}

TEST(LawTable, PropertiesHaveWordsInTheirOrder) {
  for (std::size_t i = 0; i < property_words().size(); ++i) {
    const PropertyWords& words = property_words()[i];
    EXPECT_EQ(words.property, static_cast<Property>(i));
    EXPECT_EQ(names_of(words.property), std::vector<std::string_view>{words.noun});
    EXPECT_FALSE(words.means.empty());
  }
  EXPECT_EQ(property_words().back().property, Property::gradients);
  EXPECT_EQ(names_of(every_property()).size(), property_words().size());
}

}  // namespace
}  // namespace samestate
