#include "reports/records/merge_runs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "harness/records/hash.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// A run of a file.
struct Part {
  const NamedRecords* file;
  std::size_t at;  ///< index among the file's runs
  [[nodiscard]] const Run& run() const { return file->content.runs[at]; }
  [[nodiscard]] const RunEnd& end() const { return file->content.ends[at]; }
  [[nodiscard]] const RunPart& part() const { return run().part; }
  [[nodiscard]] std::string shard() const { return fmt::format("shard {}/{}", part().shard, part().shards); }
};

/// Where the case with a number is found.
struct Found {
  const Part* part;
  std::size_t at;  ///< index among the file's records or points
};

using Shards = std::map<std::int64_t, std::vector<const Part*>>;

constexpr std::size_t kShown = 5;

std::vector<Part> parts_of(const std::vector<NamedRecords>& files, const std::string& version) {
  std::vector<Part> parts;
  for (const NamedRecords& file : files) {
    if (file.content.runs.empty())
      throw Error(file.name +
                  ": no run in it; name a file that gate, fuzz or sweep wrote with --jsonl or --out");
    if (!file.content.timings.empty())
      throw Error(file.name +
                  ": of a bench, whose times are of one machine; merge takes gate, fuzz and sweep");
    for (std::size_t i = 0; i < file.content.runs.size(); ++i) {
      const Part& part = parts.emplace_back(Part{&file, i});
      if (part.run().version != version) {
        throw Error(
            fmt::format("{}: written by samestate {}, and this is {}; merge it with the one that wrote it",
                        file.name, part.run().version, version));
      }
      if (part.part().verb.empty()) {
        throw Error(fmt::format(
            "{}: does not say of which plan it is, as runs of gate, fuzz and sweep do; run it again",
            file.name));
      }
    }
  }
  if (parts.empty()) throw Error("no file to merge; name those that the shards wrote with --jsonl");
  return parts;
}

[[noreturn]] void differ(const Part& a, const Part& b, const std::string& what, const std::string& of_a,
                         const std::string& of_b) {
  const auto named = [](const std::string& text) { return text.empty() ? "none" : text; };
  throw Error(fmt::format(
      "{} and {} are not of one run: {} is {} in the first and {} in the second; merge the shards of "
      "one command",
      a.file->name, b.file->name, what, named(of_a), named(of_b)));
}

/// Throws Error if two parts belong to different runs.
void check_alike(const Part& a, const Part& b) {
  const auto same = [&](const char* what, const std::string& x, const std::string& y) {
    if (x != y) differ(a, b, what, x, y);
  };
  const RunPart& p = a.part();
  const RunPart& q = b.part();
  same("the verb", p.verb, q.verb);
  same("the number of shards", std::to_string(p.shards), std::to_string(q.shards));
  // Options come first: they explain why plans differ.
  std::set<std::string> names;
  for (const auto& [name, value] : p.options) names.insert(name);
  for (const auto& [name, value] : q.options) names.insert(name);
  for (const std::string& name : names) {
    const auto value = [&](const RunPart& of) {
      const auto found = of.options.find(name);
      return found == of.options.end() ? std::string() : found->second;
    };
    same(("--" + name).c_str(), value(p), value(q));
  }
  same("the plugins", a.run().plugins, b.run().plugins);
  same("the CUDA sources", a.run().kernel_sources, b.run().kernel_sources);
  if (!a.run().commit.empty() && !b.run().commit.empty()) same("the commit", a.run().commit, b.run().commit);
  same("the number of cases", std::to_string(p.total), std::to_string(q.total));
  same("the hash of the plan", p.plan, q.plan);
}

/// Returns the runs of each shard. A search and a sweep continue in the file that they began.
Shards by_shard(const std::vector<Part>& parts) {
  Shards shards;
  for (const Part& part : parts) {
    check_alike(parts.front(), part);
    std::vector<const Part*>& of = shards[part.part().shard];
    if (!of.empty() && (of.front()->file != part.file || part.part().verb == "gate")) {
      throw Error(
          of.front()->file == part.file
              ? fmt::format("{}: {} is in it twice; give each shard once", part.file->name, part.shard())
              : fmt::format("{} is in {} and in {}; give each shard once", part.shard(),
                            of.front()->file->name, part.file->name));
    }
    of.push_back(&part);
  }
  std::vector<std::string> missing;
  const std::int64_t count = parts.front().part().shards;
  for (std::int64_t i = 0; i < count && missing.size() <= kShown; ++i) {
    if (!shards.contains(i)) missing.push_back(fmt::format("{}/{}", i, count));
  }
  if (missing.empty()) return shards;
  const std::int64_t all = count - std::ssize(shards);
  const bool more = all > static_cast<std::int64_t>(kShown);
  if (more) missing.resize(kShown);
  throw Error(fmt::format(
      "shard{} {}{} {} missing; name {} too, or run {} with --shard", all > 1 ? "s" : "",
      fmt::join(missing, ", "), more ? fmt::format(" and {} more", all - std::ssize(missing)) : "",
      all > 1 ? "are" : "is", all > 1 ? "their files" : "its file", all > 1 ? "them" : "it"));
}

/// The shards' cases by number.
class MergedCases {
 public:
  explicit MergedCases(const Shards& shards)
      : sweep_(shards.begin()->second.front()->part().verb == "sweep") {
    for (const auto& [shard, parts] : shards) take(parts);
  }
  [[nodiscard]] const std::map<std::int64_t, Found>& all() const { return cases_; }

 private:
  void take(const std::vector<const Part*>& parts) {
    std::map<std::int64_t, Found> own;
    for (const Part* part : parts) read(*part, part == parts.back(), own);
    const Part& last = *parts.back();
    const std::int64_t wanted = last.part().cases;
    const bool gate = last.part().verb == "gate";
    std::int64_t left = 0;
    for (const auto& [kernel, count] : last.end().not_started) left += count;
    // A complete run of the gate contains more than its plan: cases for pairs that the plan did not cover.
    const bool whole = gate && last.part().shards == 1;
    const std::int64_t there = std::ssize(own) + (gate ? left : 0);
    if ((gate || sweep_) && (whole ? there < wanted : there != wanted)) {
      throw Error(fmt::format("{}: holds {} of the {} {} of {}; {}", last.file->name, there, wanted,
                              sweep_ ? "points" : "cases", last.shard(),
                              sweep_ ? "the same sweep again goes on with it" : "run that shard again"));
    }
    for (const auto& [number, found] : own) {
      const auto [at, fresh] = cases_.emplace(number, found);
      if (!fresh) {
        throw Error(fmt::format("case {} is in {} and in {}: a file was changed; run that shard again",
                                number, at->second.part->file->name, found.part->file->name));
      }
    }
  }

  void read(const Part& part, bool last, std::map<std::int64_t, Found>& own) const {
    const std::string& name = part.file->name;
    const std::string& verb = part.part().verb;
    if (last && !sweep_ && !part.end().finished) {
      throw Error(fmt::format(
          "{}: {} has no end: it was killed or cut, or still runs; {}", name, part.shard(),
          verb == "fuzz" ? "go on with it by --resume, or run it again" : "run that shard again"));
    }
    const RecordFile& content = part.file->content;
    const std::vector<RecordPlace>& places = sweep_ ? content.point_places : content.places;
    for (std::size_t i = 0; i < places.size(); ++i) {
      const RecordPlace& place = places[i];
      if (place.run != part.at) continue;
      const std::int64_t number = place.number;
      // A search that was killed begins such a case again.
      if (!place.ended && !last) continue;
      if (!place.ended) {
        throw Error(fmt::format("{}: case {} began and has no end: lines are missing; run {} again", name,
                                number, part.shard()));
      }
      const RunPart& of = part.part();
      const bool extra = verb == "gate" && of.shards == 1;
      const bool inside = number >= 0 && (of.total == 0 || extra || number < of.total);
      if (!inside || (verb == "fuzz" && number % of.shards != of.shard)) {
        throw Error(
            fmt::format("{}: case {} is not of {} of a plan of {} cases: the file was changed; run it again",
                        name, number, part.shard(), of.total));
      }
      const auto [at, fresh] = own.emplace(number, Found{&part, i});
      if (fresh) continue;
      if (at->second.part == &part && !sweep_)
        throw Error(fmt::format("{}: case {} is in it twice; run {} again", name, number, part.shard()));
      at->second = {&part, i};
    }
  }

  bool sweep_;
  std::map<std::int64_t, Found> cases_;
};

std::string joined(const std::vector<Part>& parts, std::string Run::*field) {
  std::vector<std::string> distinct;
  for (const Part& part : parts) {
    const std::string& text = part.run().*field;
    if (!text.empty() && std::find(distinct.begin(), distinct.end(), text) == distinct.end())
      distinct.push_back(text);
  }
  std::sort(distinct.begin(), distinct.end());
  return fmt::format("{}", fmt::join(distinct, ", "));
}

void add(std::map<std::string, std::int64_t>& to, const std::map<std::string, std::int64_t>& other) {
  for (const auto& [name, count] : other) to[name] += count;
}

/// Adds those of `other` that `to` does not contain yet.
void add_new(std::vector<std::string>& to, const std::vector<std::string>& other) {
  for (const std::string& text : other) {
    if (std::find(to.begin(), to.end(), text) == to.end()) to.push_back(text);
  }
}

/// Combines what the ends of the parts say.
void join_ends(const Shards& shards, MergedRun& out) {
  for (const auto& [shard, parts] : shards) {
    double seconds = 0.0;
    for (const Part* part : parts) seconds += part->end().seconds;
    out.seconds.push_back(seconds);
    const RunEnd& end = parts.back()->end();
    RunEnd& all = out.end;
    all.seconds += seconds;
    all.seed = end.seed;
    all.finished = true;
    all.interrupted = all.interrupted || end.interrupted;
    if (!end.not_complete.empty()) {
      all.not_complete +=
          fmt::format("{}{}{}", all.not_complete.empty() ? "" : " ",
                      shards.size() > 1 ? "In " + parts.back()->shard() + ": " : "", end.not_complete);
    }
    add(all.not_started, end.not_started);
    add(all.kinds, end.kinds);
    all.looks_like.insert(end.looks_like.begin(), end.looks_like.end());
    all.grown.insert(all.grown.end(), end.grown.begin(), end.grown.end());
    all.compared += end.compared;
    add_new(all.notes, end.notes);
    add_new(all.lacking, end.lacking);
    all.limits.insert(end.limits.begin(), end.limits.end());
    all.left_out = std::max(all.left_out, end.left_out);  // every shard states it for the whole plan
  }
  for (const auto& [kernel, count] : out.end.not_started) out.left += count;
}

/// If every case of the plan is present, they are its cases.
void check_plan(const MergedRun& merged) {
  const RunPart& part = merged.run.part;
  const bool sweep = part.verb == "sweep";
  const auto total = static_cast<std::size_t>(part.total);
  // Numbers ascend from 0: the last one shows that none before it is missing.
  if (part.verb == "fuzz" || merged.numbers.size() < total) return;
  if (total > 0 && merged.numbers[total - 1] != part.total - 1) return;
  PlanHash hash;
  for (std::size_t i = 0; i < total; ++i) {
    if (sweep) {
      const Measurement& m = merged.points[i];
      hash.add(m.record.line, m.series + "\t" + m.curve);
    } else {
      hash.add(merged.records[i].line, merged.records[i].kernel);
    }
  }
  if (hash.text() == part.plan) return;
  throw Error(fmt::format(
      "the cases of the files are not those of plan {}, but of {}: a line was changed, or two kernels "
      "are of one name; run the shards again",
      part.plan, hash.text()));
}

}  // namespace

MergedRun merge_runs(const std::vector<NamedRecords>& files, const std::string& version) {
  const std::vector<Part> parts = parts_of(files, version);
  const Shards shards = by_shard(parts);
  const MergedCases cases(shards);
  MergedRun out;
  out.run = parts.front().run();
  for (std::string Run::*field : {&Run::device, &Run::driver, &Run::toolkit, &Run::commit})
    out.run.*field = joined(parts, field);
  std::set<std::string> gpus;
  for (const Part& part : parts) gpus.insert(part.run().gpus.begin(), part.run().gpus.end());
  out.run.gpus.assign(gpus.begin(), gpus.end());
  out.run.part.shard = 0;
  out.run.part.shards = 1;
  out.run.part.cases = out.run.part.total;
  join_ends(shards, out);
  for (const auto& [number, found] : cases.all()) {
    out.numbers.push_back(number);
    const RecordFile& content = found.part->file->content;
    if (out.run.part.verb == "sweep") {
      out.points.push_back(content.points[found.at]);
      continue;
    }
    out.records.push_back(content.records[found.at]);
    const auto explained = out.end.looks_like.find(std::to_string(number));
    if (explained != out.end.looks_like.end()) out.records.back().looks_like = explained->second;
  }
  out.run.planned =
      parts.front().run().planned == 0 ? 0 : std::max(out.run.part.total, std::ssize(out.records));
  check_plan(out);
  return out;
}

}  // namespace samestate
