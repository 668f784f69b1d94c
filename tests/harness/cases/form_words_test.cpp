#include "harness/cases/form_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "harness/cases/system.h"

namespace samestate {
namespace {

TEST(FormWords, EveryFormOfEverySystemIsExplained) {
  for (const System* system : systems()) {
    for (const std::string_view form : system->form_names())
      EXPECT_GT(form_means(system->name, form).size(), 15U) << system->name << " " << form;
  }
}

TEST(FormWords, NoRowIsOfNothing) {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const FormWords& row : form_words()) {
    EXPECT_TRUE(seen.emplace(row.name, row.systems).second) << row.name << " stands twice";
    EXPECT_TRUE(std::ranges::any_of(systems(),
                                    [&](const System* system) {
                                      return system->form(row.name) != nullptr &&
                                             form_means(system->name, row.name) == row.means;
                                    }))
        << row.name << " " << row.systems;
  }
  EXPECT_EQ(form_means("retention", "nosuch"), "");
  EXPECT_NE(form_means("latent_attention", "naive"), form_means("softmax_attention", "naive"));
}

}  // namespace
}  // namespace samestate
