#include "cli/gate_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "cli/interrupt.h"
#include "fuzz/plan/compiled_variants.h"
#include "fuzz/plan/corpus.h"
#include "fuzz/plan/factors.h"
#include "fuzz/plan/filtered.h"
#include "harness/cases/system.h"
#include "harness/records/hash.h"
#include "reference/error.h"

namespace samestate::cli {
namespace {

Plan whole_plan(const PlanOptions& options, const KernelTable& table) {
  PlanOptions all = options;
  all.max_cases = 0;
  // Readers that wait for the list through a pipe get a message as well.
  static constexpr std::chrono::seconds kPatience(30);
  all.planned = [last = std::chrono::steady_clock::now(), &options](std::size_t done,
                                                                    std::size_t of) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (done == of || (done > 0 ? now - last < kPatience : options.effort < kTriples)) return;
    last = now;
    fmt::print(stderr, "samestate: planning, {} of {} kernels{}\n", done, of,
               options.effort < kTriples
                   ? ""
                   : "; covering every triple of choices takes up to some minutes per kernel");
  };
  all.stop = interrupted;
  return plan_of(table, all);
}

/// Keeps only the shard's cases.
void divide(const Shard& shard, GatePlan& of) {
  std::vector<double> work;
  for (const Case& c : of.plan.cases) work.push_back(shard.count > 1 ? judging_work(c) : 0.0);
  const std::vector<std::size_t> own = part_of(work, shard);
  of.numbers.assign(own.begin(), own.end());
  of.plan.keep(own);
}

template <class Number>
void read(const RunPart& part, const std::string& name, Number& value) {
  const auto found = part.options.find(name);
  if (found == part.options.end()) return;
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size())
    throw Error(fmt::format(
        "the run in the files has --{} '{}', which is not a number; the files were changed", name, text));
}

void read(const RunPart& part, const std::string& name, std::string& value) {
  const auto found = part.options.find(name);
  if (found != part.options.end()) value = found->second;
}

/// Says what the kernels promise if --contract names something that none of them does; empty otherwise.
std::string not_promised(const CaseFilter& filter, const Plan& plan) {
  for (const KeyCondition& condition : filter.conditions()) {
    if (condition.key != "contract") continue;
    std::set<std::string> promised;
    for (const KernelCoverage& of : plan.kernels) {
      Case c = start_of(*of.kernel);
      for (const std::string& contract : of.kernel->contracts) {
        c.contract = contract;
        if (condition.holds(c, of.kernel->name)) return "";
        promised.insert(contract);
      }
    }
    return fmt::format(": {} {} only {}; a row must promise a contract to be judged under it",
                       plan.kernels.size() == 1 ? plan.kernels.front().kernel->name : "these kernels",
                       plan.kernels.size() == 1 ? "promises" : "promise", fmt::join(promised, ", "));
  }
  return "";
}

/// Says why no case of the system can meet the condition; empty if one can.
std::string beyond_sizes(const KeyCondition& condition, const System& system) {
  if (condition.key == "system" || condition.key == "kernel") return "";
  const auto size = std::ranges::find(system.sizes, condition.key, &CaseSize::name);
  if (size == system.sizes.end()) {
    if (std::ranges::find(system.keys, condition.key) != system.keys.end()) return "";
    std::vector<std::string_view> names;
    for (const CaseSize& s : system.sizes) names.push_back(s.name);
    return fmt::format("{} has no key {}; its sizes are {}", system.name, condition.key,
                       fmt::join(names, ", "));
  }
  const auto least = static_cast<double>(size->least), most = static_cast<double>(size->most);
  const auto all = [&](auto&& out) { return std::ranges::all_of(condition.any, out); };
  using Value = KeyCondition::Value;
  if (all([&](const Value& v) { return v.range && v.least > most; }))
    return fmt::format("{} of {} is at most {}", condition.key, system.name, size->most);
  if (all([&](const Value& v) { return v.range && v.most < least; }))
    return fmt::format("{} of {} is at least {}", condition.key, system.name, size->least);
  return "";
}

/// Names the first condition of the filter that no system of the plan can meet, and why; empty if every
/// condition can be met.
std::string beyond_all_sizes(const CaseFilter& filter, const Plan& plan) {
  for (const KeyCondition& condition : filter.conditions()) {
    std::set<std::string> why;
    for (const KernelCoverage& of : plan.kernels) why.insert(beyond_sizes(condition, *of.kernel->system));
    if (!why.empty() && !why.contains("")) return fmt::format(": {}", fmt::join(why, "; "));
  }
  return "";
}

}  // namespace

GatePlan gate_plan(const GatePlanOptions& options, const KernelTable& table,
                   const std::vector<CorpusEntry>& corpus) {
  GatePlan out;
  Plan plan = whole_plan(options.plan, table);  // this also checks the filters
  if (interrupted()) return out;
  std::vector<Case>& cases = plan.cases;
  const std::vector<Case> replayed = corpus_cases(corpus, table, options.plan);
  cases.insert(cases.begin(), replayed.begin(), replayed.end());
  plan.lists.insert(plan.lists.begin(), replayed.size(), &plan_list(kCorpusList));
  for (const KernelCoverage& of : plan.kernels) {
    if (std::string text = not_planned(*of.kernel); !text.empty()) out.notes.push_back(std::move(text));
  }
  if (const std::vector<std::string> none = values_not_met(options.plan.filter, cases, table); !none.empty())
    out.notes.push_back(fmt::format(
        "the filter's {} {} in no case: no kernel here takes {}, or its calls take too long",
        fmt::join(none, ", "), none.size() == 1 ? "is" : "are", none.size() == 1 ? "it" : "them"));
  for (const auto& [kernel, texts] : options.learned) {
    const DeclaredLimits limits(texts, *table.row_named(kernel).system);
    std::vector<std::size_t> inside;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (table.choose(Resolved(cases[i])).named->name != kernel || limits.hold(cases[i]))
        inside.push_back(i);
    }
    out.refused += std::ssize(cases) - std::ssize(inside);
    plan.keep(inside);
  }
  std::vector<std::size_t> places;
  const std::vector<LeftOut> left_out =
      keep_callable(cases, table, options.compiles.value_or(kStandardCompiles), &places);
  std::vector<const PlanList*> lists;
  for (const std::size_t i : places) lists.push_back(plan.lists[i]);
  plan.lists = std::move(lists);
  for (const LeftOut& left : left_out) {
    out.notes.push_back(text_of(left));
    for (PlannedCall& call : plan.calls) {
      const auto brought = left.lines.find(call.line);
      if (brought == left.lines.end() || call.kernel->name != left.kernel) continue;
      call.line = brought->second, call.smaller = true;
    }
  }
  const std::int64_t total = plan.total = std::ssize(cases);
  if (total == 0 && !options.plan.filter.empty()) {
    std::string why = not_promised(options.plan.filter, plan);
    if (why.empty()) why = beyond_all_sizes(options.plan.filter, plan);
    if (why.empty()) why = "; `samestate gate --list` with fewer conditions shows what there is";
    throw Error(fmt::format("no case of the plan fits {}{}", options.plan.filter.text(), why));
  }
  const std::int64_t most = options.plan.max_cases;
  if (most > 0 && total > most) {
    plan.keep_at_most(most);
    out.notes.push_back(fmt::format("--max-cases kept {} of {} planned cases{}.", most, total,
                                    2 * most < total ? ": most faults need more" : ""));
  }
  out.plan = std::move(plan);
  out.total = std::ssize(out.plan.cases);
  PlanHash hash;
  for (const Case& c : out.plan.cases) {
    const Record planned = planned_record(c, table);
    hash.add(planned.line, planned.kernel);
  }
  out.hash = hash.text();
  divide(options.shard, out);
  return out;
}

RunPart part_of_gate(const GatePlanOptions& options, const GatePlan& plan,
                     std::map<std::string, std::string> more) {
  RunPart part{"gate",     options.shard.index, options.shard.count, std::ssize(plan.plan.cases),
               plan.total, plan.hash,           std::move(more)};
  const PlanOptions& of = options.plan;
  const auto put = [&](const char* name, const std::string& value) {
    if (!value.empty()) part.options[name] = value;
  };
  put("seed", std::to_string(of.seed));
  put("effort", fmt::format("{}", of.effort));
  put("system", of.system);
  put("device", of.device);
  put("kernel", of.kernel);
  put("max-cases", std::to_string(of.max_cases));
  put("where", of.filter.text());
  put("compiles", options.compiles ? std::to_string(*options.compiles) : "");
  put("strict", options.strict ? "on" : "");
  return part;
}

GatePlanOptions options_of(const RunPart& part) {
  GatePlanOptions out;
  read(part, "seed", out.plan.seed);
  read(part, "effort", out.plan.effort);
  read(part, "system", out.plan.system);
  read(part, "device", out.plan.device);
  read(part, "kernel", out.plan.kernel);
  read(part, "max-cases", out.plan.max_cases);
  if (part.options.contains("compiles")) read(part, "compiles", out.compiles.emplace());
  out.strict = part.options.contains("strict");
  std::string where;
  read(part, "where", where);
  out.plan.filter = filter_of(where);
  return out;
}

bool owes_pairs(const PlanOptions& options, double budget) {
  return options.max_cases == 0 && options.filter.empty() && options.effort > 0 && budget == 0;
}

PlanCoverage judged_of(const Plan& plan, std::span<const Record> records) {
  PlanCoverage coverage(plan);
  for (const Record& record : records) {
    if (is_judged(record.judgement.verdict)) coverage.add(parse_case(record.line), record.kernel);
  }
  return coverage;
}

CallCoverage judged_calls(const Plan& plan, std::span<const Record> records) {
  CallCoverage calls(plan);
  for (const Record& record : records) {
    if (is_judged(record.judgement.verdict)) calls.add(record.line, record.kernel);
  }
  return calls;
}

std::string with_calls(const std::string& coverage_json, const CallCoverage& calls) {
  auto all = nlohmann::ordered_json::parse(coverage_json);
  all["calls"] = nlohmann::ordered_json::parse(calls.json());
  return all.dump(1);
}

std::vector<Case> further_cases(const PlanCoverage& judged, const GatePlanOptions& options,
                                const KernelTable& table, int round) {
  std::vector<Case> cases = judged.again(table, options.plan.seed, round);
  (void)keep_callable(cases, table, 0);
  if (options.compiles != 0) leave_compiled(cases, table);
  return cases;
}

}  // namespace samestate::cli
