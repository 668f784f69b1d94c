#include "fuzz/search/coverage.h"

#include <algorithm>
#include <array>

#include "fuzz/search/bug_conditions.h"

namespace samestate {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 4> kPairs{
    {{"form", "contract"}, {"form", "regime"}, {"contract", "regime"}, {"law", "contract"}}};

using DrawnValues = std::vector<std::pair<std::string, std::string>>;

void put(DrawnValues& values, const std::string& dimension, std::string_view value) {
  const std::pair<std::string, std::string> one{dimension, std::string(value)};
  if (std::find(values.begin(), values.end(), one) == values.end()) values.push_back(one);
}

void put_edges(DrawnValues& values, const System& system, const KernelRow& kernel) {
  for (std::size_t i = 0; i < edges().size(); ++i) {
    if (edge_applies(i, system, kernel.form, kernel.strided)) put(values, "edge", edges()[i].name);
  }
}

/// Returns the values of a system that draw_case can draw.
DrawnValues drawable(const SearchSystem& of) {
  DrawnValues values;
  const System& system = *of.system;
  for (const SearchKernel& searched : of.kernels) {
    const KernelRow* kernel = searched.row;
    put(values, "form", kernel->form);
    for (const CaseForm& form : system.forms) {
      if (!system.native(form.name) && (!form.whole || kernel->form == "chunked"))
        put(values, "form", form.name);
    }
    for (const std::string& contract : kernel->contracts) put(values, "contract", contract);
  }
  for (const Regime* regime : system.regimes) put(values, "regime", regime->name);
  for (const Law* law : system.laws) put(values, "law", law->name);
  for (const SearchKernel& searched : of.kernels) put_edges(values, system, *searched.row);
  return values;
}

bool is_refused(Verdict v) { return v == Verdict::unsupported || v == Verdict::skipped; }

std::string value_of(const Case& c, std::string_view dimension) {
  if (dimension == "form") return c.form;
  if (dimension == "contract") return c.contract;
  if (dimension == "regime") return c.regime;
  return c.law;
}

}  // namespace

Coverage::Coverage(const CaseSource& source) {
  for (const SearchSystem& system : source.systems()) {
    const std::string name(system.system->name);
    judged_[name] = 0;
    DrawnValues values = drawable(system);
    // Two kernels of a system each contribute values; those of one dimension are kept together.
    const auto rank = [](const auto& value) {
      const std::string_view order = "form contract regime law edge";
      return order.find(value.first);
    };
    std::stable_sort(values.begin(), values.end(),
                     [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
    for (const auto& [dimension, value] : values) {
      order_.emplace_back(name, dimension, value);
      counts_[order_.back()];
    }
  }
}

void Coverage::add(const Case& c, const CaseResult& finding) {
  const bool judged = is_judged(finding.judgement.verdict);
  const bool refused = is_refused(finding.judgement.verdict);
  judged_[c.system] += judged;
  const auto count = [&](std::string_view dimension, std::string_view value) {
    const auto at = counts_.find(Key{c.system, dimension, value});
    if (at == counts_.end()) return;
    ++at->second.drawn;
    at->second.judged += judged;
    at->second.refused += refused;
  };
  for (const char* dimension : {"form", "contract", "regime", "law"})
    count(dimension, value_of(c, dimension));
  for (std::size_t i = 0; i < edges().size(); ++i) {
    if ((finding.edges >> i & 1U) != 0) count("edge", edges()[i].name);
  }
  if (!judged) return;
  for (const auto& [first, second] : kPairs) {
    const std::string a = value_of(c, first);
    const std::string b = value_of(c, second);
    if (!a.empty() && !b.empty()) pairs_[Key{c.system, first, second}].insert(a + "\t" + b);
  }
}

std::vector<CoverageRow> Coverage::rows() const {
  std::vector<CoverageRow> out;
  for (const Key& key : order_) {
    const Count& count = counts_.at(key);
    out.push_back(
        {std::get<0>(key), std::get<1>(key), std::get<2>(key), count.drawn, count.judged, count.refused});
  }
  return out;
}

std::int64_t Coverage::values_of(const std::string& system, std::string_view dimension) const {
  return std::count_if(order_.begin(), order_.end(), [&](const Key& key) {
    return std::get<0>(key) == system && std::get<1>(key) == dimension;
  });
}

std::vector<CoveragePairs> Coverage::pairs() const {
  std::vector<CoveragePairs> out;
  for (const auto& [system, judged] : judged_) {
    for (const auto& [first, second] : kPairs) {
      const std::int64_t possible = values_of(system, first) * values_of(system, second);
      if (possible == 0) continue;
      const auto at = pairs_.find(Key{system, first, second});
      const auto reached = at == pairs_.end() ? 0 : static_cast<std::int64_t>(at->second.size());
      out.push_back({system, std::string(first) + " x " + second, reached, possible});
    }
  }
  return out;
}

std::int64_t Coverage::judged(const std::string& system) const {
  const auto at = judged_.find(system);
  return at == judged_.end() ? 0 : at->second;
}

std::vector<CoverageRow> Coverage::missing(std::int64_t minimum) const {
  std::vector<CoverageRow> out;
  for (CoverageRow& row : rows()) {
    if (judged(row.system) < minimum || row.judged > 0) continue;
    if (row.drawn > 0 && row.refused == row.drawn) continue;
    out.push_back(std::move(row));
  }
  return out;
}

}  // namespace samestate
