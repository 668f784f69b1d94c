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
#include "reports/records/summary.h"

namespace samestate {
namespace {

using ComparedKey = std::tuple<std::string, std::string, std::string, std::string, std::string>;
using Cases = std::map<ComparedKey, Record>;

constexpr std::array kOrder = {Verdict::pass,  Verdict::skipped, Verdict::unsupported, Verdict::vacuous,
                               Verdict::flaky, Verdict::fail,    Verdict::timeout,     Verdict::crash};

std::ptrdiff_t rank_of(Verdict verdict) {
  return std::find(kOrder.begin(), kOrder.end(), verdict) - kOrder.begin();
}

bool same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

ComparedKey key_of(const Record& r) { return {r.line, r.kernel, r.law, "", ""}; }
ComparedKey key_of(const Measurement& m) {
  return {m.record.line, m.record.kernel, m.record.law, m.series, m.curve};
}

/// A case that began in a run that was cut off has no verdict: it was the process that was killed, not the
/// kernel.
bool never_ended(const RecordFile& file, std::size_t record) {
  return record < file.places.size() && !file.places[record].ended;
}

Cases cases_of(const RecordFile& file, std::int64_t& repeated) {
  Cases cases;
  const auto add = [&](ComparedKey key, const Record& record) {
    const auto [where, fresh] = cases.insert_or_assign(std::move(key), record);
    if (!fresh) ++repeated;
  };
  for (std::size_t i = 0; i < file.records.size(); ++i) {
    if (!never_ended(file, i)) add(key_of(file.records[i]), file.records[i]);
  }
  for (const Measurement& m : file.points) add(key_of(m), m.record);
  return cases;
}

/// A record without a policy is older than policies, and was judged by the gate's policy.
std::string policy_of(const Record& record) { return record.policy.empty() ? "gate" : record.policy; }

/// Finds how the result of a case in both files changed; returns false if it did not.
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
  if (less_or_unknown(a, b)) {
    kind = std::isnan(b) || b > factor * a ? Change::Kind::ratio_grew : Change::Kind::ratio_changed;
  } else {
    kind = std::isnan(a) || a > factor * b ? Change::Kind::ratio_fell : Change::Kind::ratio_changed;
  }
  return true;
}

/// Compares kernel by kernel, in the order of the second file's lines; if a case appears twice its last
/// record counts.
std::vector<BitsOfKernel> bits_of(const Cases& was, const Cases& is, const RecordFile& after) {
  std::map<std::string, BitsOfKernel> kernels;
  std::set<ComparedKey> done;
  const auto hold = [&](const ComparedKey& key) {
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

/// Returns true if the record belongs to that kernel, and gives it the other name.
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

/// Returns the sentence about a file that is_cut.
std::string cut_text(const RecordFile& file) {
  std::int64_t open = 0;
  for (std::size_t i = 0; i < file.records.size(); ++i) open += never_ended(file, i);
  return fmt::format(
      "It is cut: the end of its run is missing, which was killed, still runs, or is here in part{}.",
      open == 0 ? "" : fmt::format("; {} of its cases began and never ended, and are left out", open));
}

/// Returns why the two files contain different cases; empty if their plans are the same.
std::vector<std::string> unlike(const RecordFile& before, const RecordFile& after) {
  if (before.runs.empty() || after.runs.empty()) return {};
  const RunPart& a = before.runs.back().part;
  const RunPart& b = after.runs.back().part;
  std::vector<std::string> out;
  const auto add = [&](std::string_view name, const std::string& was, const std::string& is) {
    if (was != is)
      out.push_back(fmt::format("{} {} and {}", name, was.empty() ? "none" : was, is.empty() ? "none" : is));
  };
  if (a.verb.empty() || b.verb.empty()) return {};
  add("verb", a.verb, b.verb);
  if (a.verb == b.verb) {
    const auto option = [](const RunPart& part, const char* name) {
      const auto found = part.options.find(name);
      return found == part.options.end() ? std::string() : found->second;
    };
    for (const char* name :
         {"seed", "effort", "max-cases", "system", "device", "where", "variants", "quick", "series"})
      add(name, option(a, name), option(b, name));
  }
  add("shard", fmt::format("{}/{}", a.shard, a.shards), fmt::format("{}/{}", b.shard, b.shards));
  return out;
}

double weight(const Change& change) {
  return change.kind == Change::Kind::gone ? change.before.judgement.ratio : change.after.judgement.ratio;
}

}  // namespace

bool is_cut(const RecordFile& file) {
  if (file.cut_lines > 0) return true;
  if (file.runs.empty() || file.runs.back().part.verb.empty()) return false;
  const RunPart& part = file.runs.back().part;
  if (part.verb != "sweep") return !file.ends.back().finished;
  // A sweep has no closing line; it continues after the points that its file contains.
  std::set<std::int64_t> points;
  for (const RecordPlace& place : file.point_places) points.insert(place.number);
  return std::ssize(points) < part.cases;
}

RecordFile of_kernel(RecordFile file, const std::string& kernel, const std::string& as) {
  std::vector<Record> records;
  std::vector<RecordPlace> places;
  for (std::size_t i = 0; i < file.records.size(); ++i) {
    if (!renamed(file.records[i], kernel, as)) continue;
    records.push_back(std::move(file.records[i]));
    if (i < file.places.size()) places.push_back(file.places[i]);
  }
  file.records = std::move(records);
  file.places = std::move(places);
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
  result.before_cut = is_cut(before);
  result.after_cut = is_cut(after);
  if (result.before_cut) result.before_short.insert(result.before_short.begin(), cut_text(before));
  if (result.after_cut) result.after_short.insert(result.after_short.begin(), cut_text(after));
  result.unlike = unlike(before, after);
  const Cases was = cases_of(before, result.repeated);
  const Cases is = cases_of(after, result.repeated);
  result.bits = bits_of(was, is, after);
  result.before = std::ssize(was);
  result.after = std::ssize(is);
  std::map<std::pair<std::string, std::string>, std::int64_t> policies;
  for (const auto& [key, record] : was) {
    const auto found = is.find(key);
    if (found == is.end() && result.after_cut) {
      ++result.not_judged;
      continue;
    }
    if (found == is.end()) {
      result.changes.push_back({Change::Kind::gone, record, {}});
      continue;
    }
    ++result.common;
    const std::string judged = policy_of(record), again = policy_of(found->second);
    if (judged != again) ++policies[{judged, again}];
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
  for (const auto& [names, cases] : policies) result.policies.push_back({names.first, names.second, cases});
  std::stable_sort(result.changes.begin(), result.changes.end(), [](const Change& a, const Change& b) {
    if (a.kind != b.kind) return a.kind < b.kind;
    const std::ptrdiff_t rank_a = rank_of(a.after.judgement.verdict);
    const std::ptrdiff_t rank_b = rank_of(b.after.judgement.verdict);
    return rank_a != rank_b ? rank_a > rank_b : less_or_unknown(weight(b), weight(a));
  });
  return result;
}

}  // namespace samestate
