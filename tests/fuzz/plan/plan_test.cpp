#include "fuzz/plan/plan.h"
#include "optimized/call_kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "fuzz/plan/ordinary_calls.h"
#include "harness/cases/keys.h"
#include "harness/cases/regimes.h"
#include "harness/cases/resolved.h"
#include "harness/run/judge_batch.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// The CPU rows: what every build has.
KernelTable cpu_table() {
  std::vector<Kernel> rows(kernels().begin(), kernels().end());
  std::erase_if(rows, [](const Kernel& k) { return k.device != "cpu"; });
  return KernelTable(rows);
}

std::vector<Case> plan(const PlanOptions& options = {}) { return plan_cases(cpu_table(), options); }

TEST(Plan, DefaultPlanIsLargeAndEveryCaseIsACase) {
  const KernelTable table = cpu_table();
  const std::vector<Case> cases = plan();
  EXPECT_GE(cases.size(), 2000U);
  for (const Case& c : cases) {
    ASSERT_NO_THROW((void)Resolved(c)) << format_case(c);
    ASSERT_EQ(parse_case(format_case(c)), c) << format_case(c);
    const KernelRow& kernel = *table.choose(Resolved(c)).named;
    ASSERT_NE(std::find(kernel.contracts.begin(), kernel.contracts.end(), c.contract), kernel.contracts.end())
        << format_case(c);
  }
}

// With no seeded case at all, each kernel still meets each of its contracts in each form, each regime and
// law.
TEST(Plan, EdgesCoverEveryContractFormRegimeAndLaw) {
  PlanOptions options;
  options.effort = 0;
  const KernelTable table = cpu_table();
  for (const Kernel& kernel : table.rows()) {
    options.kernel = kernel.name;
    const std::vector<Case> cases = plan_cases(table, options);
    std::set<std::pair<std::string, std::string>> forms;
    std::set<std::string> regimes_seen, laws_seen;
    std::set<std::int64_t> lengths;
    for (const Case& c : cases) {
      forms.emplace(c.contract, c.form);
      regimes_seen.insert(c.regime);
      laws_seen.insert(c.law);
      if (c.form == kernel.form && c.contract == "fp32") lengths.insert(c.T);
    }
    const System& system = system_named(kernel.system);
    for (const std::string& contract : kernel.contracts) {
      for (std::string_view form : system.form_names()) {
        const bool other =
            form != kernel.form && (system.native(form) || (form == "parallel" && kernel.form != "chunked"));
        EXPECT_EQ(forms.contains({contract, std::string(form)}), !other)
            << kernel.name << " " << contract << " " << form;
      }
    }
    for (const Regime& regime : regimes()) {
      const bool fits = system.regime(regime.name) != nullptr;
      EXPECT_EQ(regimes_seen.contains(std::string(regime.name)), fits) << kernel.name << " " << regime.name;
    }
    for (const Law& law : laws()) {
      const bool fits = system.law(law.name) != nullptr;
      EXPECT_EQ(laws_seen.contains(std::string(law.name)), fits) << kernel.name << " " << law.name;
    }
    const std::set<std::int64_t> edges = kernel.form == "chunked"
                                             ? std::set<std::int64_t>{0, 1, 15, 16, 17, 35}
                                             : std::set<std::int64_t>{0, 1, 2};
    EXPECT_TRUE(std::includes(lengths.begin(), lengths.end(), edges.begin(), edges.end())) << kernel.name;
  }
}

TEST(Plan, CasesBeyondTheEdgesReachEveryFormLayoutAndHeadMap) {
  PlanOptions options;
  const std::size_t edges = (options.effort = 0, plan(options).size());
  options.effort = 1;
  const std::vector<Case> cases = plan(options);
  std::set<std::string> forms, layouts, states, laws_seen;
  int tiled = 0, l2norm = 0, square = 0, batched = 0, grouped = 0;
  for (std::size_t i = edges; i < cases.size(); ++i) {
    const Case& c = cases[i];
    forms.insert(c.form), layouts.insert(c.layout), states.insert(c.state), laws_seen.insert(c.law);
    tiled += c.heads == HeadMap::tiled && c.Hk > 1 && c.Hv > c.Hk;
    l2norm += c.l2norm;
    square += c.dk == c.dv;
    batched += c.B > 1;
    grouped += c.Hv > c.Hk;
  }
  EXPECT_EQ(forms.size(), 7U);
  EXPECT_EQ(layouts.size(), layout_names().size());
  EXPECT_EQ(states.size(), 2U);
  std::set<std::string> laws_of_family{""};
  const KernelTable table = cpu_table();
  for (const KernelRow& kernel : table.all())
    for (const Law* law : kernel.system->laws) laws_of_family.emplace(law->name);
  EXPECT_EQ(laws_seen, laws_of_family);
  for (int count : {tiled, l2norm, square, batched, grouped}) EXPECT_GT(count, 100);
}

// Kernels share the time of a plan; what one of them takes alone is in kernel_plan_test.cpp.
TEST(Plan, KernelsShareTheTime) {
  const KernelTable table = cpu_table();
  const auto seconds = [&](const std::string& kernel, double effort) {
    PlanOptions options;
    options.kernel = kernel;
    options.effort = effort;
    std::map<std::string, double> of_kernel;
    for (const Case& c : plan_cases(table, options)) {
      const KernelRow& row = *table.choose(Resolved(c)).named;
      of_kernel[row.name] += seconds_of_call(row, c);
    }
    return of_kernel;
  };
  const std::string one = "cpu.retention.recurrent", two = "cpu.delta_rule.recurrent";
  const double alone = seconds(one, 1.0)[one];
  EXPECT_NEAR(alone, kSecondsOfPlan, 0.1 * kSecondsOfPlan);
  std::map<std::string, double> both = seconds(one + "," + two, 1.0);
  EXPECT_NEAR(both[one], kSecondsOfPlan / 2, 0.1 * kSecondsOfPlan);
  EXPECT_NEAR(both[two], kSecondsOfPlan / 2, 0.1 * kSecondsOfPlan);
  EXPECT_NEAR(seconds(one, 2.0)[one], 2 * kSecondsOfPlan, 0.2 * kSecondsOfPlan);
}

// Every system of the table, those of named tensors too, meets every value of every key that it has, each of its
// laws and every form that its kernels are called for.
TEST(Plan, EdgesCoverTheRowsOfEverySystem) {
  const KernelTable table(call_kernels());
  PlanOptions options;
  options.effort = 0;
  options.device = "cpu";  // those of the GPU are of the same systems, and plan as long again
  for (const System* system : systems()) {
    options.system = system->name;
    std::set<std::string> forms, laws_seen, regimes_seen, contracts_seen;
    std::set<std::pair<std::string_view, std::string>> values;
    std::set<std::pair<std::string_view, std::int64_t>> sizes;
    bool strided = false, taps = false;
    std::set<std::string> promised, written;
    for (const KernelRow& row : table.all()) {
      if (row.system != system || row.device != "cpu") continue;
      written.insert(row.form);
      strided = strided || row.strided;
      taps = taps || !row.taps.empty();
      promised.insert(row.contracts.begin(), row.contracts.end());
    }
    for (const Case& c : plan_cases(table, options)) {
      forms.insert(c.form), laws_seen.insert(c.law), regimes_seen.insert(c.regime);
      contracts_seen.insert(c.contract);
      for (const Key& key : keys()) values.emplace(key.name, key.print(c));
      for (const CaseSize& size : system->sizes) sizes.emplace(size.name, size_in(c, size.name));
    }
    for (const CaseForm& form : system->forms)
      EXPECT_TRUE((system->native(form.name) && !written.contains(std::string(form.name))) ||
                  forms.contains(std::string(form.name)))
          << system->name << " " << form.name;
    for (const Law* law : system->laws)
      EXPECT_TRUE(laws_seen.contains(std::string(law->name))) << system->name << " " << law->name;
    for (const Regime* regime : system->regimes)
      EXPECT_TRUE(regimes_seen.contains(std::string(regime->name))) << system->name << " " << regime->name;
    EXPECT_EQ(contracts_seen, promised) << system->name;
    for (const CaseSize& size : system->sizes) {
      EXPECT_TRUE(sizes.contains({size.name, size.start})) << system->name << " " << size.name;
      const auto differing = std::count_if(sizes.begin(), sizes.end(),
                                           [&](const auto& seen) { return seen.first == size.name; });
      EXPECT_GT(differing, size.least < size.most ? 1 : 0) << system->name << " " << size.name;
    }
    for (const Key& key : keys()) {
      if (!system->has_key(key.name) || (key.name == "layout" && !strided) || (key.name == "taps" && !taps))
        continue;
      for (const std::string_view value : key.values) {
        Case c = system->standard();
        key.parse(c, value);
        EXPECT_TRUE(values.contains({key.name, key.print(c)})) << system->name << " " << key.name << value;
      }
    }
  }
}

// A bug of decoding in a batch alone, of one width of convolution, needs three sizes at once: no pair meets it for certain.
TEST(Plan, AStreamOfNamedTensorsServesABatch) {
  PlanOptions options;
  options.effort = 0;
  options.kernel = "cpu.short_convolution.scatter";
  const KernelTable table(kernels(), operator_kernels());
  const std::vector<Case> plan = plan_cases(table, options);
  EXPECT_TRUE(std::any_of(plan.begin(), plan.end(), [](const Case& c) {
    return c.B > 256 && c.T == 1 && size_in(c, "C") == 32 && size_in(c, "W") == 4;
  }));
}

// Each is a bug that once survived the default gate, or the class that it is of.
TEST(Plan, ReachesWhatOnceSurvived) {
  const KernelTable table(kernels(), operator_kernels());
  const auto reaches = [&](const char* kernel, const std::function<bool(const Case&)>& wanted) {
    PlanOptions options;
    options.kernel = kernel;
    const std::vector<Case> plan = plan_cases(table, options);
    return std::any_of(plan.begin(), plan.end(), [&](const Case& c) { return c.law.empty() && wanted(c); });
  };
  const auto of = [](const Case& c, const char* name) { return size_in(c, name); };
  constexpr const char* kConvolution = "cpu.short_convolution.scatter";
  EXPECT_TRUE(reaches(kConvolution, [&](const Case& c) {
    return of(c, "C") > 2048 && of(c, "C") % 64 != 0 && of(c, "bias") == 1;
  }));
  for (const Index taps : {10, 12, 13, 14, 15})
    EXPECT_TRUE(reaches(kConvolution, [&](const Case& c) { return of(c, "W") == taps; })) << taps;
  EXPECT_TRUE(reaches(kConvolution, [&](const Case& c) { return c.T > 1024 && of(c, "W") == 4; }));
  EXPECT_TRUE(reaches(kConvolution, [&](const Case& c) { return c.T > 4096 && of(c, "W") > 1; }));
  EXPECT_TRUE(reaches("cpu.softmax_attention.grouped",
                      [&](const Case& c) { return of(c, "Hkv") == 5 && of(c, "H") == 10; }));
  for (const char* kernel : {"cpu.softmax_attention.grouped", "cpu.retention.recurrent", kConvolution})
    EXPECT_TRUE(reaches(kernel, [](const Case& c) {
      return c.form == "decode" && c.prefill > 512 && c.T > c.prefill && c.B > 1;
    })) << kernel;
  for (const HeadMap map : {HeadMap::tiled, HeadMap::interleaved})
    EXPECT_TRUE(reaches("cpu.retention.recurrent",
                        [&](const Case& c) { return c.Hk == 3 && c.Hv == 6 && c.heads == map; }));
  EXPECT_TRUE(reaches("cpu.retention.chunked", [](const Case& c) { return c.Hk == 3 && c.dv > 128; }));
  for (const char* regime : {"none", "slow"})
    EXPECT_TRUE(reaches("cpu.gated_delta_rule.chunked", [&](const Case& c) {
      return c.chunk > 128 && c.T > 129 && c.regime == regime;
    })) << regime;
  EXPECT_TRUE(
      reaches("cpu.gated_delta_rule.recurrent", [](const Case& c) { return c.dk == 96 && c.l2norm; }));
  EXPECT_TRUE(reaches("cpu.gated_delta_rule.recurrent", [](const Case& c) { return c.lead > 64; }));
  EXPECT_TRUE(reaches("cpu.rms_norm.fused", [&](const Case& c) { return c.T > 65536 && of(c, "D") > 1; }));
  EXPECT_TRUE(reaches("cpu.softmax_attention.online",
                      [&](const Case& c) { return of(c, "d") == 96 && c.T > 12 && c.regime == "normal"; }));
  EXPECT_TRUE(
      reaches("cpu.softmax_attention.online", [](const Case& c) { return c.chunk == 48 && c.T > 48; }));
  EXPECT_TRUE(reaches("cpu.rms_norm.fused", [](const Case& c) { return c.layout == "page_end"; }));
}

// Two independent people planted 512 bugs, and these classes survived: sizes that never occurred together.
// together.
TEST(Plan, ReachesWhereTwoStrangersBugsLived) {
  const KernelTable table(kernels(), operator_kernels());
  std::map<std::string, std::vector<Case>> plans;
  const auto reaches = [&](const std::string& kernel, const std::function<bool(const Case&)>& wanted) {
    const auto [plan, fresh] = plans.try_emplace(kernel);
    PlanOptions options;
    options.kernel = kernel;
    if (fresh) plan->second = plan_cases(table, options);
    return std::ranges::any_of(plan->second, wanted);
  };
  const auto of = [](const Case& c, const char* name) { return size_in(c, name); };
  const auto chunks = [](const Case& c) { return c.chunk > 0 ? (c.T + c.chunk - 1) / c.chunk : 0; };
  const char* const family = "cpu.gated_delta_rule.chunked";
  EXPECT_TRUE(reaches(family, [&](const Case& c) {
    return c.chunk == 64 && c.dk == 128 && c.dv == 128 && c.T > 256 && chunks(c) > 8;
  }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) { return c.chunk == 128 && c.dk == 128 && chunks(c) > 3; }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) { return c.chunk == 128 && c.T > 2048; }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) { return c.dk == 192 && c.chunk == 64 && chunks(c) > 2; }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) { return c.dv > 256 && c.chunk == 64 && chunks(c) > 1; }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) { return c.B > 256 && c.chunk == 64 && chunks(c) > 2; }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) { return c.T > 65600 && c.Hv > 1 && c.lengths.empty(); }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) {
    return std::accumulate(c.lengths.begin(), c.lengths.end(), Index{0}) > 65536;
  }));
  EXPECT_TRUE(reaches(family, [&](const Case& c) { return c.regime == "silence" && c.T > 72; }));
  EXPECT_TRUE(reaches("cpu.gated_delta_step.expanded", [&](const Case& c) {
    return of(c, "dk") == 128 && of(c, "dv") == 128 && of(c, "Hv") == 32 && c.T > 3 && c.B > 1;
  }));
  EXPECT_TRUE(reaches("cpu.gated_delta_step.expanded",
                      [&](const Case& c) { return of(c, "P") > 256 && of(c, "dk") > 63; }));
  EXPECT_TRUE(reaches("cpu.gated_delta_step.expanded", [](const Case& c) { return c.B > 1024; }));
  EXPECT_TRUE(reaches("cpu.short_convolution.scatter",
                      [&](const Case& c) { return of(c, "C") > 4096 && of(c, "bias") == 1; }));
  EXPECT_TRUE(reaches("cpu.rotary_embedding.full_width",
                      [&](const Case& c) { return of(c, "pairs") > 256 && c.T > 1; }));
  EXPECT_TRUE(reaches("cpu.load_balance.direct", [](const Case& c) { return c.T > 4096; }));
  EXPECT_TRUE(reaches("cpu.latent_cache.direct", [&](const Case& c) { return of(c, "D") > 4096; }));
  for (const char* kernel : {"cpu.softmax_attention.grouped", "cpu.linear_attention_normalised.chunked",
                             "cpu.multi_scale_retention.chunked"})
    EXPECT_TRUE(reaches(kernel, [](const Case& c) { return c.law == "split" && c.T > 129; })) << kernel;
  EXPECT_TRUE(reaches("cpu.gated_rms_norm.fused", [&](const Case& c) {
    return c.repeat && c.law.empty() && c.T > 64 && of(c, "D") > 64;
  }));
}

// A fault in only a process's first call shows in its first case, which a case without tokens would use up.
TEST(Plan, BeginsWithACaseThatShows) {
  for (const char* kernel :
       {"cpu.gated_delta_rule.recurrent", "cpu.gated_delta_rule.chunked", "cpu.rms_norm.fused"}) {
    PlanOptions options;
    options.kernel = kernel;
    const std::vector<Case> plan = plan_cases(KernelTable(kernels(), operator_kernels()), options);
    for (std::size_t i = 0; i < 2; ++i) EXPECT_GT(plan.at(i).T, 7) << kernel << ' ' << i;
  }
}

TEST(Plan, SaysHowManyKernelsArePlanned) {
  PlanOptions options;
  options.kernel = "cpu.load_balance.direct";
  std::vector<std::pair<std::size_t, std::size_t>> told;
  options.planned = [&](std::size_t done, std::size_t of) { told.emplace_back(done, of); };
  (void)plan_of(KernelTable(kernels(), operator_kernels()), options);
  EXPECT_EQ(told, (std::vector<std::pair<std::size_t, std::size_t>>{{0, 1}, {1, 1}}));
}

TEST(Plan, SameOptionsSamePlan) {
  PlanOptions options;
  options.effort = 0.2;
  const std::vector<Case> once = plan(options);
  EXPECT_EQ(once, plan(options));
  options.seed = 2;
  const std::vector<Case> other = plan(options);
  EXPECT_NEAR(static_cast<double>(other.size()), static_cast<double>(once.size()),
              0.1 * static_cast<double>(once.size()));
  int same = 0;
  for (std::size_t i = 1; i <= 500; ++i) same += once[once.size() - i] == other[other.size() - i];
  EXPECT_EQ(same, 0);
  // No case is the same as another: those after the edges bring data of their own.
  std::set<std::string> lines;
  for (const Case& c : once) lines.insert(format_case(c));
  EXPECT_EQ(lines.size(), once.size());
}

TEST(Plan, MaxCasesSpreadOverTheWholePlan) {
  PlanOptions options;
  const std::vector<Case> all = plan(options);
  options.max_cases = 100;
  const std::vector<Case> some = plan(options);
  ASSERT_EQ(some.size(), 100U);
  for (std::size_t i = 0; i < some.size(); ++i) EXPECT_EQ(some[i], all[i * all.size() / 100]);
  std::set<std::string> systems_seen;
  for (const Case& c : some) systems_seen.insert(c.system);
  EXPECT_EQ(systems_seen.size(), families().size());
  options.max_cases = std::ssize(all) + 1;
  EXPECT_EQ(plan(options), all);
}

TEST(Plan, FiltersKeepWhatTheyName) {
  const KernelTable table = cpu_table();
  PlanOptions options;
  options.effort = 0.1;
  options.system = "retention";
  for (const Case& c : plan(options)) ASSERT_EQ(c.system, "retention");
  options.system.clear();
  options.kernel = "cpu.delta_rule.recurrent";
  const std::vector<Case> of_kernel = plan(options);
  EXPECT_FALSE(of_kernel.empty());
  for (const Case& c : of_kernel) {
    ASSERT_EQ(c.system, "delta_rule");
    ASSERT_TRUE(Resolved(c).unchunked()) << format_case(c);
  }
  options.kernel.clear();
  options.device = "cpu";
  EXPECT_EQ(plan(options), (options.device = "", plan(options)));
  // No CUDA row in this table: nothing to run, which the command reports as such.
  options.device = "cuda";
  EXPECT_TRUE(plan(options).empty());
  // A row of somebody's own is named in its cases.
  Kernel mine = table.named("cpu.retention.chunked");
  mine.name = "mine.retention.chunked";
  KernelTable with_mine = table;
  with_mine.add(std::span(&mine, 1));
  PlanOptions only;
  only.kernel = mine.name;
  only.max_cases = 50;
  for (const Case& c : plan_cases(with_mine, only)) ASSERT_EQ(c.kernel, mine.name);
}

TEST(Plan, FiltersThatNameNothingAreErrors) {
  const auto refused = [](const PlanOptions& options) {
    try {
      (void)plan(options);
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  PlanOptions options;
  options.system = "mamba";
  EXPECT_NE(refused(options).find("mamba"), std::string::npos);
  options = {};
  options.kernel = "cpu.nope";
  EXPECT_NE(refused(options).find("cpu.nope"), std::string::npos);
  options = {};
  options.device = "gpu";
  EXPECT_NE(refused(options).find("gpu"), std::string::npos);
  options = {};
  options.kernel = "cpu.retention.chunked";
  options.system = "delta_rule";
  EXPECT_NE(refused(options).find("delta_rule"), std::string::npos);
  options = {};
  options.kernel = "cpu.retention.chunked";
  options.device = "cuda";
  EXPECT_NE(refused(options).find("cuda"), std::string::npos);
  options = {};
  options.kernel = "cpu.nope*";
  EXPECT_NE(refused(options).find("cpu.nope*"), std::string::npos);
}

// Without a device such a plan would take minutes, and each of its cases would be skipped.
TEST(Plan, KernelsOfADeviceAlone) {
  std::vector<Kernel> rows(kernels().begin(), kernels().end());
  rows.front().device = "cuda";
  KernelTable table(rows);
  const auto wanted = [&](const std::string& kernel) { return wanted_kernels(table, "", "", kernel); };
  EXPECT_TRUE(need_a_device(table, wanted(rows[0].name)));
  EXPECT_FALSE(need_a_device(table, wanted(rows[1].name)));
  EXPECT_FALSE(need_a_device(table, wanted(rows[0].name + "," + rows[1].name)));
  EXPECT_FALSE(need_a_device(table, {}));
  Kernel own = rows.front();
  own.name = "mine.of.a.device";
  table.add(std::vector{own});
  EXPECT_FALSE(need_a_device(table, wanted(own.name))) << "a plugin may see what this build does not";
}

TEST(Plan, NamesOfKernelsAndSystemsMayBeSeveralAndPatterns) {
  const KernelTable table(kernels(), operator_kernels());
  const auto names = [&table](const std::string& system, const std::string& kernel) {
    std::vector<std::string> found;
    for (const KernelRow* row : wanted_kernels(table, system, "cpu", kernel)) found.push_back(row->name);
    return found;
  };
  const std::vector<std::string> two{"cpu.delta_rule.recurrent", "cpu.retention.chunked"};
  EXPECT_EQ(names("", "cpu.retention.chunked,cpu.delta_rule.recurrent"), two);
  EXPECT_EQ(names("retention,delta_rule", "*.ch?nked,cpu.delta_rule.rec*").size(), 3U);
  EXPECT_EQ(names("rms_norm", ""), std::vector<std::string>{"cpu.rms_norm.fused"});
  EXPECT_THROW((void)names("rms_norm", "cpu.retention.chunked"), Error);
  // A condition of the filter leaves the other kernels unplanned, too.
  PlanOptions options;
  options.filter.where("kernel=cpu.load_balance.*");
  options.device = "cpu";
  EXPECT_EQ(plan_of(table, options).kernels.size(), 1U);
}

}  // namespace
}  // namespace samestate
