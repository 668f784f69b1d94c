#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>

#include "harness/run/guard.h"
#include "harness/run/judge_batch.h"
#include "measure/bench/bench.h"
#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/laws/edit.h"

namespace samestate {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

/// The whole call, dense, on tensors that outlive it.
Arguments arguments_of(const Batch& batch, Outputs& outputs, const Case& c, int threads) {
  const BatchShape& s = batch.shape;
  Arguments a;
  a.q = row_major<const float, 4>(batch.q.data(), {s.B, s.T, s.Hk, s.dk});
  a.k = row_major<const float, 4>(batch.k.data(), {s.B, s.T, s.Hk, s.dk});
  a.v = row_major<const float, 4>(batch.v.data(), {s.B, s.T, s.Hv, s.dv});
  const auto optional = [](const std::vector<float>& x) { return x.empty() ? nullptr : x.data(); };
  a.g = row_major<const float, 3>(optional(batch.g), {s.B, s.T, s.Hv});
  a.beta = row_major<const float, 3>(optional(batch.beta), {s.B, s.T, s.Hv});
  a.initial_state =
      row_major<const float, 4>(optional(batch.initial_state), {s.sequences(), s.Hv, s.dk, s.dv});
  if (!s.offsets.empty()) {
    a.cu_seqlens =
        row_major<const std::int64_t, 1>(s.offsets.data(), {static_cast<std::int64_t>(s.offsets.size())});
  }
  a.o = row_major<float, 4>(outputs.o.data(), {s.B, s.T, s.Hv, s.dv});
  a.final_state = row_major<float, 4>(outputs.final_state.data(), {s.sequences(), s.Hv, s.dk, s.dv});
  a.scale = static_cast<float>(s.scale);
  a.chunk = runs_recurrent_only(c) ? 0 : c.chunk;
  a.head_map = s.head_map;
  a.l2norm = s.l2norm;
  a.threads = threads;
  return a;
}

void poison(Outputs& outputs) {
  std::fill(outputs.o.begin(), outputs.o.end(), kPoison);
  std::fill(outputs.final_state.begin(), outputs.final_state.end(), kPoison);
}

/// A kernel that does not time itself: the wall clock around whole calls.
Timing time_by_clock(const Kernel& kernel, const Arguments& a, const Contract& contract,
                     const TimingRequest& request, Outputs& outputs) {
  Timing timing;
  timing.how = "call";
  double total = 0.0;
  for (int i = 0; i < std::max(1, request.warm_up); ++i) {
    timing.outcome = kernel.run(a, contract);
    if (timing.outcome.kind != Outcome::Kind::ran) return timing;
  }
  while (std::ssize(timing.seconds) < request.least_samples ||
         (total < request.seconds && std::ssize(timing.seconds) < request.most_samples)) {
    poison(outputs);
    const auto begin = Clock::now();
    (void)kernel.run(a, contract);
    timing.seconds.push_back(since(begin));
    total += timing.seconds.back();
  }
  return timing;
}

/// What was timed, or Unavailable.
Timing time_kernel(const Kernel& kernel, const Arguments& a, const Contract& contract,
                   const TimingRequest& request, Outputs& outputs) {
  poison(outputs);
  Timing timing =
      kernel.time ? kernel.time(a, contract, request) : time_by_clock(kernel, a, contract, request, outputs);
  if (timing.outcome.kind != Outcome::Kind::ran) throw Unavailable(timing.outcome);
  const bool usable =
      !timing.seconds.empty() && std::all_of(timing.seconds.begin(), timing.seconds.end(),
                                             [](double x) { return x > 0.0 && std::isfinite(x); });
  if (!usable)
    throw Error("its `time` returned no times above 0; return a sample of seconds for each timed call");
  return timing;
}

/// Value head h of sequence n with the key head that serves it, as a batch and a case of one head.
struct OneHead {
  Case c;
  Batch batch;
  Outputs outputs;
};

/// Elements [begin, end) of tokens, head `h` of `heads`, `width` wide.
std::vector<float> head_rows(const std::vector<float>& from, std::int64_t begin, std::int64_t end,
                             std::int64_t h, std::int64_t heads, std::int64_t width) {
  std::vector<float> rows;
  if (from.empty()) return rows;
  rows.reserve(static_cast<std::size_t>((end - begin) * width));
  for (std::int64_t t = begin; t < end; ++t) {
    const auto first = from.begin() + (t * heads + h) * width;
    rows.insert(rows.end(), first, first + width);
  }
  return rows;
}

OneHead one_head(const Case& c, const Batch& batch, const Outputs& outputs, std::int64_t n, std::int64_t h) {
  const BatchShape& s = batch.shape;
  const std::int64_t begin = s.offsets.empty() ? n * s.T : s.begin(n);
  const std::int64_t end = begin + s.end(n) - s.begin(n);
  const std::int64_t key = key_head(h, s.Hk, s.Hv, s.head_map);
  OneHead one{c, {}, {}};
  one.c.B = one.c.Hk = one.c.Hv = 1;
  one.c.T = end - begin;
  one.c.lengths.clear();
  if (c.form == "packed") one.c.form = runs_recurrent_only(c) ? "recurrent" : "chunked";
  one.batch.shape = s;
  one.batch.shape.B = one.batch.shape.Hk = one.batch.shape.Hv = 1;
  one.batch.shape.T = end - begin;
  one.batch.shape.offsets.clear();
  one.batch.q = head_rows(batch.q, begin, end, key, s.Hk, s.dk);
  one.batch.k = head_rows(batch.k, begin, end, key, s.Hk, s.dk);
  one.batch.v = head_rows(batch.v, begin, end, h, s.Hv, s.dv);
  one.batch.g = head_rows(batch.g, begin, end, h, s.Hv, 1);
  one.batch.beta = head_rows(batch.beta, begin, end, h, s.Hv, 1);
  one.batch.initial_state = head_rows(batch.initial_state, n, n + 1, h, s.Hv, s.dk * s.dv);
  one.outputs.o = head_rows(outputs.o, begin, end, h, s.Hv, s.dv);
  one.outputs.final_state = head_rows(outputs.final_state, n, n + 1, h, s.Hv, s.dk * s.dv);
  return one;
}

/// Fails at the first NaN: inputs are finite and so are outputs, in the heads that nobody else looks at too.
std::optional<Judgement> not_a_number(const Outputs& outputs) {
  for (const auto& [name, values] : {std::pair{"o", &outputs.o}, {"final_state", &outputs.final_state}}) {
    const auto found = std::find_if(values->begin(), values->end(), [](float x) { return std::isnan(x); });
    if (found == values->end()) continue;
    Judgement j;
    j.verdict = Verdict::fail;
    j.gate = "range";
    j.ratio = std::numeric_limits<double>::infinity();
    j.reason =
        fmt::format("{} element {}: NaN, or not written by the timed call", name, found - values->begin());
    return j;
  }
  return std::nullopt;
}

/// `count` of the heads [0, all), the first and the last among them.
std::vector<std::int64_t> spread_heads(std::int64_t all, std::int64_t count) {
  std::vector<std::int64_t> chosen;
  if (count <= 0 || count >= all) count = all;
  for (std::int64_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? 0 : i * (all - 1) / (count - 1));
  return chosen;
}

class BenchRun {
 public:
  BenchRun(const Case& c, const KernelTable& table, const BenchOptions& options)
      : c_(c), table_(table), options_(options), kernel_(table.named(c.kernel)) {}

  /// Throws what the kernel throws.
  [[nodiscard]] Judgement judge(TimedCase& timed) {
    require_device();
    batch_ = batch_of(c_, options_.threads);
    const BatchShape& s = batch_.shape;
    outputs_.o.resize(static_cast<std::size_t>(s.B * s.T * s.Hv * s.dv));
    outputs_.final_state.resize(static_cast<std::size_t>(s.sequences() * s.Hv * s.dk * s.dv));
    const Timing timing = once_more();
    timed.timed = timing.how;
    timed.variant = timing.variant;
    timed.calls_per_sample = timing.calls_per_sample;
    timed.copies = timing.copies;
    seconds_ = timing.seconds;
    timed.heads = s.sequences() * s.Hv;
    if (std::optional<Judgement> bad = not_a_number(outputs_)) return *bad;
    return judge_heads(timed);
  }

  /// Another set of times of the same call.
  [[nodiscard]] Timing once_more() {
    const Contract contract = runs_recurrent_only(c_) ? recurrent_contract(contract_of(c_)) : contract_of(c_);
    return time_kernel(kernel_, arguments_of(batch_, outputs_, c_, options_.threads), contract,
                       options_.request, outputs_);
  }

  [[nodiscard]] std::vector<double>& seconds() { return seconds_; }

 private:
  /// Without its device a kernel says so on one token too, before seconds go into filling large tensors. What
  /// else it says or throws is of that call, which nobody asked for.
  void require_device() const {
    if (kernel_.device == "cpu" || c_.form == "packed") return;
    Case one = c_;
    one.B = one.T = 1;
    const Batch batch = batch_of(one);
    Outputs outputs;
    outputs.o.resize(static_cast<std::size_t>(one.Hv * one.dv));
    outputs.final_state.resize(static_cast<std::size_t>(one.Hv * one.dk * one.dv));
    const Contract contract =
        runs_recurrent_only(one) ? recurrent_contract(contract_of(one)) : contract_of(one);
    Outcome outcome;
    try {
      outcome = kernel_.run(arguments_of(batch, outputs, one, 1), contract);
    } catch (const std::exception&) {
      return;
    }
    if (outcome.kind == Outcome::Kind::no_device) throw Unavailable(outcome);
  }

  Judgement judge_heads(TimedCase& timed) {
    const std::vector<std::int64_t> chosen = spread_heads(timed.heads, options_.judged_heads);
    timed.heads_judged = std::ssize(chosen);
    std::vector<Judgement> judgements(chosen.size());
    std::vector<std::exception_ptr> thrown(chosen.size());
    std::atomic<std::size_t> next{0};
    const auto work = [&] {
      for (std::size_t i = next++; i < chosen.size(); i = next++) {
        try {
          judgements[i] = judge_head_alone(chosen[i]);
        } catch (...) {
          thrown[i] = std::current_exception();
        }
      }
    };
    {
      std::vector<std::jthread> helpers;
      for (int i = 1; i < std::min<int>(options_.threads, static_cast<int>(chosen.size())); ++i)
        helpers.emplace_back(work);
      work();
    }
    for (const std::exception_ptr& exception : thrown) {
      if (exception) std::rethrow_exception(exception);
    }
    Judgement worst = judgements.front();
    for (std::size_t i = 1; i < judgements.size(); ++i) merge(worst, judgements[i]);
    return worst;
  }

  Judgement judge_head_alone(std::int64_t index) const {
    const std::int64_t Hv = batch_.shape.Hv;
    const OneHead one = one_head(c_, batch_, outputs_, index / Hv, index % Hv);
    const KernelPair pair = table_.pair_for(c_);
    const Contract contract = contract_of(c_);
    Judgement j = judge_batch(one.c, one.batch, one.outputs, [&](const Batch& batch, const Path& path) {
      return run_kernel(pair, batch, path, contract, {});
    });
    j.worst.sequence = index / Hv;
    j.worst.head = index % Hv;
    return j;
  }

  const Case& c_;
  const KernelTable& table_;
  const BenchOptions& options_;
  const Kernel& kernel_;
  Batch batch_;
  Outputs outputs_;
  std::vector<double> seconds_;
};

double host_bytes(const Case& c) {
  const double tokens = static_cast<double>(c.B * c.T);
  const double keys = static_cast<double>(2 * c.Hk * c.dk);
  const double values = static_cast<double>(2 * c.Hv * c.dv + 2 * c.Hv);
  const double sequences = static_cast<double>(c.lengths.empty() ? c.B : std::ssize(c.lengths));
  return 4.0 * (tokens * (keys + values) + 2.0 * sequences * static_cast<double>(c.Hv * c.dk * c.dv));
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

BenchResult bench_case(const Case& c, const KernelTable& table, const BenchOptions& options,
                       const Ceilings& ceilings, Peer* peer) {
  BenchResult result;
  TimedCase& timed = result.timed;
  timed.record = planned_record(c, table);
  timed.B = c.B, timed.T = c.T, timed.Hk = c.Hk, timed.Hv = c.Hv, timed.dk = c.dk, timed.dv = c.dv;
  timed.chunk = runs_recurrent_only(c) ? 0 : c.chunk;
  add_floor(timed, c, ceilings, timed.record.device != "cpu");
  if (const double bytes = host_bytes(c); bytes > options.most_bytes) {
    timed.record.judgement.verdict = Verdict::skipped;
    timed.record.judgement.reason =
        fmt::format("its tensors take {:.1f} GB, more than the {:.1f} GB of --max-memory", bytes / 1e9,
                    options.most_bytes / 1e9);
    return result;
  }
  BenchRun run(c, table, options);
  set_judgement(timed.record, [&] { return run.judge(timed); });
  const Verdict verdict = timed.record.judgement.verdict;
  if (verdict != Verdict::pass && verdict != Verdict::vacuous) return result;
  std::vector<double>& seconds = run.seconds();
  if (peer) {
    PeerAnswer answer = peer->ask(c, options.request.seconds);
    result.problem = answer.problem;
    timed.peer_note = !answer.problem.empty()       ? answer.problem
                      : !answer.unsupported.empty() ? "unsupported: " + answer.unsupported
                                                    : answer.note;
    if (!answer.seconds.empty()) {
      timed.peer = answer.kernel;
      timed.peer_time = time_spread(std::move(answer.seconds));
      try {
        const std::vector<double> again = run.once_more().seconds;
        seconds.insert(seconds.end(), again.begin(), again.end());
      } catch (const std::exception& thrown) {
        timed.record.judgement.verdict = Verdict::crash;
        timed.record.judgement.reason =
            std::string("timed a second time, after the peer, the kernel threw: ") + thrown.what();
        return result;
      }
    }
  }
  timed.time = time_spread(std::move(seconds));
  // A NaN is no floor: max takes the other one.
  const double floor = std::fmax(timed.memory_floor, timed.compute_floor);
  timed.share = floor / timed.time.median;
  timed.peer_ratio = timed.peer_time.median / timed.time.median;
  return result;
}

}  // namespace samestate
