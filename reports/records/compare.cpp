#include "reports/records/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "harness/records/hash.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
using Cases = std::map<Key, Record>;

constexpr std::array kOrder = {Verdict::pass,  Verdict::skipped, Verdict::unsupported, Verdict::vacuous,
                               Verdict::flaky, Verdict::fail,    Verdict::timeout,     Verdict::crash};

std::ptrdiff_t rank_of(Verdict verdict) {
  return std::find(kOrder.begin(), kOrder.end(), verdict) - kOrder.begin();
}

/// NaN is above everything: a ratio that is not a number is the worst one.
bool less(double a, double b) { return std::isnan(a) ? false : std::isnan(b) || a < b; }

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

Key key_of(const Record& r) { return {r.line, r.kernel, r.law, "", ""}; }
Key key_of(const Measurement& m) { return {m.record.line, m.record.kernel, m.record.law, m.series, m.curve}; }

Cases cases_of(const RecordFile& file, std::int64_t& repeated) {
  Cases cases;
  const auto add = [&](Key key, const Record& record) {
    const auto [where, fresh] = cases.insert_or_assign(std::move(key), record);
    if (!fresh) ++repeated;
  };
  for (const Record& r : file.records) add(key_of(r), r);
  for (const Measurement& m : file.points) add(key_of(m), m.record);
  return cases;
}

/// What became of a case that both hold; false where nothing did.
bool changed(const Record& before, const Record& after, double factor, Change::Kind& kind) {
  const std::ptrdiff_t was = rank_of(before.judgement.verdict);
  const std::ptrdiff_t is = rank_of(after.judgement.verdict);
  if (was != is) {
    kind = is > was ? Change::Kind::verdict_worse : Change::Kind::verdict_better;
    return true;
  }
  if (!is_judged(after.judgement.verdict)) return false;
  const double a = before.judgement.ratio;
  const double b = after.judgement.ratio;
  if (same(a, b)) return false;
  if (less(a, b)) {
    kind = std::isnan(b) || b > factor * a ? Change::Kind::ratio_grew : Change::Kind::ratio_changed;
  } else {
    kind = std::isnan(a) || a > factor * b ? Change::Kind::ratio_fell : Change::Kind::ratio_changed;
  }
  return true;
}

/// Kernel by kernel, in the order of the second record's lines; of a case that is there twice its last record.
std::vector<BitsOfKernel> bits_of(const Cases& was, const Cases& is, const RecordFile& after) {
  std::map<std::string, BitsOfKernel> kernels;
  std::set<Key> done;
  const auto hold = [&](const Key& key) {
    const auto a = was.find(key), b = is.find(key);
    if (a == was.end() || !done.insert(key).second) return;
    if (a->second.outputs.empty() || b->second.outputs.empty()) return;
    BitsOfKernel& bits = kernels[b->second.kernel];
    bits.kernel = b->second.kernel;
    std::string output = first_difference(a->second.outputs, b->second.outputs);
    if (output.empty()) {
      ++bits.equal;
    } else {
      bits.differences.push_back({b->second, std::move(output)});
    }
  };
  for (const Record& r : after.records) hold(key_of(r));
  for (const Measurement& m : after.points) hold(key_of(m));
  std::vector<BitsOfKernel> out;
  for (auto& [name, bits] : kernels) out.push_back(std::move(bits));
  return out;
}

/// Says whether the record is of that kernel, and gives it the other name.
bool renamed(Record& record, const std::string& kernel, const std::string& as) {
  if (record.kernel != kernel) return false;
  record.kernel = as;
  const std::string key = " kernel=" + kernel;
  if (const std::size_t at = record.line.find(key + " "); at != std::string::npos) {
    record.line.erase(at, key.size());
  } else if (record.line.ends_with(key)) {
    record.line.erase(record.line.size() - key.size());
  }
  return true;
}

double weight(const Change& change) {
  return change.kind == Change::Kind::gone ? change.before.judgement.ratio : change.after.judgement.ratio;
}

}  // namespace

RecordFile of_kernel(RecordFile file, const std::string& kernel, const std::string& as) {
  std::erase_if(file.records, [&](Record& r) { return !renamed(r, kernel, as); });
  std::erase_if(file.points, [&](Measurement& m) { return !renamed(m.record, kernel, as); });
  if (file.records.empty() && file.points.empty())
    throw Error(fmt::format("kernel {}: no case of it in the record", kernel));
  return file;
}

const char* name_of(Change::Kind kind) {
  switch (kind) {
    case Change::Kind::verdict_worse:
      return "verdict worse";
    case Change::Kind::ratio_grew:
      return "ratio grew";
    case Change::Kind::new_failure:
      return "new and failing";
    case Change::Kind::verdict_better:
      return "verdict better";
    case Change::Kind::ratio_fell:
      return "ratio fell";
    case Change::Kind::ratio_changed:
      return "ratio changed";
    case Change::Kind::appeared:
      return "new";
    case Change::Kind::gone:
      return "gone";
  }
  return "";
}

bool is_regression(Change::Kind kind) { return kind <= Change::Kind::new_failure; }

std::int64_t Comparison::count(Change::Kind kind) const {
  return std::count_if(changes.begin(), changes.end(), [&](const Change& c) { return c.kind == kind; });
}

std::int64_t Comparison::regressions() const {
  return std::count_if(changes.begin(), changes.end(), [](const Change& c) { return is_regression(c.kind); });
}

Comparison compare(const RecordFile& before, const RecordFile& after, double factor) {
  Comparison result;
  result.factor = factor;
  result.before_short = shortcomings(before);
  result.after_short = shortcomings(after);
  const Cases was = cases_of(before, result.repeated);
  const Cases is = cases_of(after, result.repeated);
  result.bits = bits_of(was, is, after);
  result.before = std::ssize(was);
  result.after = std::ssize(is);
  for (const auto& [key, record] : was) {
    const auto found = is.find(key);
    if (found == is.end()) {
      result.changes.push_back({Change::Kind::gone, record, {}});
      continue;
    }
    ++result.common;
    Change::Kind kind{};
    if (changed(record, found->second, factor, kind)) {
      result.changes.push_back({kind, record, found->second});
    } else {
      ++result.unchanged;
    }
  }
  for (const auto& [key, record] : is) {
    if (was.contains(key)) continue;
    const bool failing = is_failure(record.judgement.verdict);
    result.changes.push_back({failing ? Change::Kind::new_failure : Change::Kind::appeared, {}, record});
  }
  std::stable_sort(result.changes.begin(), result.changes.end(), [](const Change& a, const Change& b) {
    if (a.kind != b.kind) return a.kind < b.kind;
    const std::ptrdiff_t rank_a = rank_of(a.after.judgement.verdict);
    const std::ptrdiff_t rank_b = rank_of(b.after.judgement.verdict);
    return rank_a != rank_b ? rank_a > rank_b : less(weight(b), weight(a));
  });
  return result;
}

}  // namespace samestate
