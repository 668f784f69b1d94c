#include "measure/bench/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "harness/cases/keys.h"
#include "harness/processes/campaign.h"
#include "harness/processes/workers.h"
#include "measure/bench/time_case.h"

namespace samestate {
namespace {

using Json = nlohmann::json;

/// The requests to the worker: the case line, which names the job, followed by one of these.
constexpr std::string_view kFirst = "\tfirst", kAgain = "\tagain", kCeilings = "\tceilings",
                           kTrace = "\ttrace";

/// Returns the sizes that only this case's system has: "D=2048 H=16".
std::string sizes_text(const Resolved& r) {
  std::string text;
  if (r.form->decodes) text = fmt::format("form={} prefill={}", r.c.form, r.c.prefill);
  for (const CaseSize& size : r.system->sizes) {
    if (size.own) text += fmt::format("{}{}={}", text.empty() ? "" : " ", size.name, size_in(r.c, size.name));
  }
  return text;
}

std::string text_of(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json json_of(const KernelTrace& trace) {
  Json waits = Json::array();
  for (const KernelWait& wait : trace.waits) waits.push_back({wait.warp, wait.what, wait.begin, wait.end});
  return {{"variant", trace.variant}, {"block", trace.block},      {"blocks", trace.blocks},
          {"clock", trace.clock},     {"roles", trace.roles},      {"ends", trace.ends},
          {"waits", waits},           {"complete", trace.complete}};
}

/// NaN is sent as null.
double number(const Json& json) {
  return json.is_number() ? json.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

BlockTrace trace_of(const Json& json) {
  BlockTrace trace;
  trace.variant = json.at("variant");
  trace.block = json.at("block"), trace.blocks = json.at("blocks");
  trace.clock = number(json.at("clock"));
  trace.roles = json.at("roles").get<std::vector<std::string>>();
  for (const Json& end : json.at("ends")) trace.ends.push_back(number(end));
  trace.complete = json.at("complete");
  for (const Json& wait : json.at("waits"))
    trace.waits.push_back({wait.at(0), wait.at(1), number(wait.at(2)), number(wait.at(3))});
  return trace;
}

/// Throws Error if a trace contradicts itself, as a plugin's trace may.
void require_possible(const BlockTrace& trace) {
  if (trace.roles.empty() || trace.ends.size() != trace.roles.size())
    throw Error(fmt::format("its trace names {} role(s) and {} end(s) of warps; give one of each a warp",
                            trace.roles.size(), trace.ends.size()));
  std::vector<double> until(trace.roles.size(), 0.0);
  for (const WarpWait& wait : trace.waits) {
    const bool there = wait.warp >= 0 && wait.warp < std::ssize(until);
    if (!there || !(wait.begin >= until[static_cast<std::size_t>(wait.warp)]) || !(wait.end >= wait.begin) ||
        !(wait.end <= trace.ends[static_cast<std::size_t>(wait.warp)]))
      throw Error(fmt::format(
          "its trace has a wait for {} of warp {} from {:g} to {:g} s, which is not of a warp of the "
          "block, after its wait before and until its end",
          wait.what, wait.warp, wait.begin, wait.end));
    until[static_cast<std::size_t>(wait.warp)] = wait.end;
  }
}

/// Runs in the worker and keeps the case that it timed last.
class Timer {
 public:
  Timer(const KernelTable& table, const BenchOptions& options) : table_(table), options_(options) {}

  Answer answer(const std::string& text) {
    const std::size_t tab = text.find('\t');
    const std::string_view asked = std::string_view(text).substr(tab);
    if (asked == kCeilings) {
      const Ceilings c = device_ceilings();
      return {text_of({{"copy", c.copy}, {"bf16", c.bf16}, {"fp32", c.fp32}, {"note", c.note}}), {}};
    }
    if (asked == kAgain) return again();
    if (asked.starts_with(kTrace)) return trace(parse_case(text.substr(0, tab)), asked.substr(kTrace.size()));
    return first(parse_case(text.substr(0, tab)), std::string(asked.substr(kFirst.size())));
  }

 private:
  Answer first(const Case& c, const std::string& variant) {
    TimedCase timed;
    timed.record = planned_record(c, table_);
    timed.record.policy = kBenchPolicy.name;
    BenchOptions options = options_;
    options.request.variant = variant;
    run_.emplace(c, table_, options);
    set_judgement(timed.record, [&] { return run_->judge(timed); });
    const Judgement& j = timed.record.judgement;
    return {text_of({{"result", result_text(case_result(timed.record))},
                     {"timed", timed.timed},
                     {"variant", timed.variant},
                     {"calls_per_sample", timed.calls_per_sample},
                     {"copies", timed.copies},
                     {"clock", timed.clock},
                     {"power", timed.power},
                     {"slowed", timed.slowed},
                     {"heads", timed.heads},
                     {"heads_judged", timed.heads_judged},
                     {"seconds", run_->seconds()}}),
            broken_by(j)};
  }

  Answer trace(const Case& c, std::string_view asked) {
    try {
      const Json request = Json::parse(asked);
      return {
          text_of(json_of(BenchRun(c, table_, options_).trace({request.at("block"), request.at("variant")}))),
          {}};
    } catch (const Unavailable& refused) {
      return {text_of({{"reason", refused.what()}}), {}};
    } catch (const std::exception& thrown) {
      return {text_of({{"reason", thrown.what()}}), thrown.what()};
    }
  }

  /// If the kernel throws now, that becomes a reason.
  Answer again() {
    if (!run_) return {text_of({{"reason", "its process was lost meanwhile"}}), {}};
    try {
      return {text_of({{"seconds", run_->once_more().seconds}}), {}};
    } catch (const std::exception& thrown) {
      return {text_of({{"reason", thrown.what()}}), thrown.what()};
    }
  }

  const KernelTable& table_;
  const BenchOptions& options_;
  std::optional<BenchRun> run_;
};

/// A kernel's own clock may be wrong although its outputs are right. Nothing is this much faster than a copy
/// of its tensors or than a large matrix product: a last-level cache is 2 to 5 times as fast as the memory
/// behind it.
void doubt_times_below_the_floor(TimedCase& timed) {
  constexpr double kMostShare = 10.0;
  Judgement& j = timed.record.judgement;
  if (timed.timed == "call" || !(timed.share > kMostShare) || j.verdict != Verdict::pass) return;
  j.verdict = Verdict::vacuous;
  j.reason = fmt::format(
      "its `time` says {:.3g} s, {:.3g} times faster than the floor of the case; above {:g} times it is not "
      "believed: time the whole call",
      timed.time.median, timed.share, kMostShare);
}

WorkerOptions one_process(const BenchOptions& options) {
  WorkerOptions worker;
  worker.timeout = options.timeout;
  return worker;
}

}  // namespace

TimeSpread time_spread(std::vector<double> seconds) {
  TimeSpread spread;
  if (seconds.empty()) return spread;
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double part) {
    const double place = part * static_cast<double>(seconds.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, seconds.size() - 1);
    return seconds[below] + (place - static_cast<double>(below)) * (seconds[above] - seconds[below]);
  };
  spread.median = at(0.5);
  spread.p10 = at(0.1);
  spread.p90 = at(0.9);
  spread.samples = std::ssize(seconds);
  return spread;
}

Bench::Bench(const KernelTable& table, const BenchOptions& options)
    : table_(table),
      options_(options),
      pool_([timer = std::make_shared<Timer>(table_, options_)](
                std::int64_t, const std::string& text) { return timer->answer(text); },
            one_process(options_)) {}

Ceilings Bench::ceilings_of_device() {
  const JobResult done = pool_.run_one({0, std::string(kCeilings)}, options_.stop);
  if (done.kind != JobResult::Kind::answered) return {0.0, 0.0, 0.0, "not measured: " + done.reason};
  const Json json = Json::parse(done.text);
  return {json.at("copy"), json.at("bf16"), json.at("fp32"), json.at("note")};
}

std::vector<double> Bench::first(const Case& c, const std::string& variant, TimedCase& timed) {
  const JobResult done = pool_.run_one({0, format_case(c) + std::string(kFirst) + variant}, options_.stop);
  if (const std::optional<Judgement> lost = judgement_of_loss(done)) {
    timed.record.judgement = *lost;
    timed.record.seconds = done.seconds;
    return {};
  }
  const Json json = Json::parse(done.text);
  const CaseResult result = parse_result(json.at("result").get<std::string>());
  timed.record.judgement = result.judgement;
  timed.record.seconds = result.seconds;
  timed.record.policy = result.policy;
  timed.timed = json.at("timed");
  timed.variant = json.at("variant");
  timed.calls_per_sample = json.at("calls_per_sample");
  timed.copies = json.at("copies");
  timed.clock = number(json.at("clock"));
  timed.power = number(json.at("power"));
  timed.slowed = json.at("slowed");
  timed.heads = json.at("heads");
  timed.heads_judged = json.at("heads_judged");
  return json.at("seconds");
}

std::vector<double> Bench::again(const Case& c, Judgement& judgement) {
  const JobResult done = pool_.run_one({0, format_case(c) + std::string(kAgain)}, options_.stop);
  constexpr std::string_view kWhen = "timed a second time, after the peer, ";
  if (const std::optional<Judgement> lost = judgement_of_loss(done)) {
    judgement.verdict = lost->verdict;
    judgement.reason = std::string(kWhen) + lost->reason;
    return {};
  }
  const Json json = Json::parse(done.text);
  if (json.contains("seconds")) return json.at("seconds");
  judgement.verdict = Verdict::crash;
  judgement.reason = std::string(kWhen) + json.at("reason").get<std::string>();
  return {};
}

BlockTrace Bench::trace(const Case& c, const TraceRequest& request) {
  const Json asked = {{"block", request.block}, {"variant", request.variant}};
  const JobResult done =
      pool_.run_one({0, format_case(c) + std::string(kTrace) + text_of(asked)}, options_.stop);
  if (done.kind != JobResult::Kind::answered) throw Error("no trace: " + done.reason);
  const Json json = Json::parse(done.text);
  if (json.contains("reason")) throw Error("no trace: " + json.at("reason").get<std::string>());
  BlockTrace trace = trace_of(json);
  require_possible(trace);
  return trace;
}

BenchResult Bench::run(const Case& c, const Ceilings& ceilings, Peer* peer, const std::string& variant) {
  BenchResult result;
  TimedCase& timed = result.timed;
  const Resolved r(c);
  timed.record = planned_record(c, table_);
  timed.sizes = sizes_text(r);
  timed.B = c.B, timed.T = c.T;
  if (timed.sizes.empty()) timed.Hk = c.Hk, timed.Hv = c.Hv, timed.dk = c.dk, timed.dv = c.dv;
  timed.chunk = r.chunk;
  if (r.form->ranked || c.ranks > 1) timed.ranks = c.ranks;
  if (c.ranks > 1) timed.cuts = c.cuts;
  add_floor(timed, r, ceilings, timed.record.device != "cpu");
  if (losses_.skip(timed.record)) return result;
  if (const double bytes = 4.0 * size_of_case(r); bytes > options_.most_bytes) {
    timed.record.judgement.verdict = Verdict::skipped;
    timed.record.judgement.reason =
        fmt::format("its tensors take {:.1f} GB, more than the {:.1f} GB of --max-memory", bytes / 1e9,
                    options_.most_bytes / 1e9);
    return result;
  }
  std::vector<double> seconds = first(c, variant, timed);
  losses_.add(timed.record);
  const Verdict verdict = timed.record.judgement.verdict;
  if (verdict != Verdict::pass && verdict != Verdict::vacuous) return result;
  if (peer) {
    PeerAnswer answer = peer->ask(c, options_.request.seconds);
    result.problem = answer.problem;
    timed.peer_note = !answer.problem.empty()       ? answer.problem
                      : !answer.unsupported.empty() ? "unsupported: " + answer.unsupported
                                                    : answer.note;
    if (!answer.seconds.empty()) {
      timed.peer = answer.kernel;
      timed.peer_time = time_spread(std::move(answer.seconds));
      const std::vector<double> second = again(c, timed.record.judgement);
      losses_.add(timed.record);
      if (second.empty()) return result;
      seconds.insert(seconds.end(), second.begin(), second.end());
    }
  }
  timed.time = time_spread(std::move(seconds));
  // A NaN is not a floor: fmax returns the other one.
  const double floor = std::fmax(timed.memory_floor, timed.compute_floor);
  timed.share = floor / timed.time.median;
  doubt_times_below_the_floor(timed);
  timed.peer_ratio = timed.peer_time.median / timed.time.median;
  return result;
}

}  // namespace samestate
