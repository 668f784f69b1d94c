#include "measure/bench/time_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <set>
#include <thread>

#include "harness/run/clock.h"
#include "harness/run/float_environment.h"
#include "harness/run/laid_out_call.h"
#include "oracles/judge_policy.h"
#include "reference/error.h"

namespace samestate {
namespace {

/// Throws KernelThrew for times that no clock can measure: no call is shorter than a few processor cycles.
void require_possible(const Timing& timing) {
  constexpr double kShortest = 1e-9;
  const bool usable =
      !timing.seconds.empty() && std::all_of(timing.seconds.begin(), timing.seconds.end(),
                                             [](double x) { return x > 0.0 && std::isfinite(x); });
  if (!usable)
    throw KernelThrew("its `time` returned no times above 0; return a sample of seconds for each timed call");
  const double least = *std::min_element(timing.seconds.begin(), timing.seconds.end());
  if (least < kShortest) {
    throw KernelThrew(
        fmt::format("its `time` returned a sample of {:g} s, but no call is shorter than {:g} s; return "
                    "seconds of one call",
                    least, kShortest));
  }
  if (timing.calls_per_sample < 1 || timing.copies < 1) {
    throw KernelThrew(
        fmt::format("its `time` returned calls_per_sample={} and copies={}; both are at least 1",
                    timing.calls_per_sample, timing.copies));
  }
}

/// Returns the timing, or throws Unavailable. A row's own `time` takes dense tensors; all others are timed by
/// the clock.
Timing time_kernel(const KernelRow& kernel, const WholeCall& whole, Layout layout,
                   const TimingRequest& request) {
  poison(whole.call());
  Timing timing;
  const FloatEnvironment environment;
  if (layout == Layout::dense) {
    timing = called([&] { return kernel.time(whole.call(), whole.contract(), request); });
  } else {
    const LaidOutCall laid(whole, layout);
    timing = called([&] {
      return time_by_clock([&] { poison(laid.call()); }, request,
                           [&] { return kernel.run(laid.call(), whole.contract()); });
    });
    if (timing.outcome.kind == Outcome::Kind::ran) laid.give_back();
  }
  require_unchanged();
  if (timing.outcome.kind != Outcome::Kind::ran) throw Unavailable(timing.outcome);
  require_possible(timing);
  return timing;
}

}  // namespace

std::vector<std::int64_t> parts_to_judge(std::int64_t all, std::int64_t count) {
  if (count <= 0 || count >= all) count = all;
  std::set<std::int64_t> chosen;
  const auto take = [&](std::int64_t part) {
    if (part >= 0 && part < all && std::ssize(chosen) < count) chosen.insert(part);
  };
  take(0), take(all - 1);
  for (const std::int64_t block : {128, 64, 32, 16, 8}) take(block - 1), take(block);
  for (std::int64_t i = 1; i < all && std::ssize(chosen) < count; ++i) take(i * (all - 1) / count);
  for (std::int64_t i = 0; i < all && std::ssize(chosen) < count; ++i) take(i);
  return {chosen.begin(), chosen.end()};
}

BenchRun::BenchRun(const Case& c, const KernelTable& table, const BenchOptions& options)
    : r_(c), options_(options), kernels_(table.choose(r_)) {}

Judgement BenchRun::judge(TimedCase& timed) {
  require_device();
  whole_ = r_.system->whole_call(r_, options_.threads);
  whole_->prepare(kernels_);
  const Timing timing = once_more();
  timed.timed = timing.how;
  timed.variant = timing.variant;
  timed.calls_per_sample = timing.calls_per_sample;
  timed.copies = timing.copies;
  timed.clock = timing.clock, timed.power = timing.power;
  timed.slowed = timing.slowed;
  seconds_ = timing.seconds;
  timed.heads = whole_->parts();
  if (std::string found = not_a_number(whole_->call()); !found.empty()) {
    Judgement j;
    j.verdict = Verdict::fail;
    j.gate = "range";
    j.ratio = std::numeric_limits<double>::infinity();
    j.reason = std::move(found);
    return j;
  }
  return judge_parts(timed);
}

Timing BenchRun::once_more() { return time_kernel(*kernels_.named, *whole_, r_.layout, options_.request); }

void require_trace(const KernelRow& kernel) {
  if (!kernel.trace) {
    throw Error(fmt::format(
        "kernel {} has no trace; the cuda kernels of form chunked have one, and a row of a plugin that "
        "brings `trace` (optimized/kernel.h)",
        kernel.name));
  }
}

KernelTrace BenchRun::trace(const TraceRequest& request) {
  const KernelRow& kernel = *kernels_.named;
  require_trace(kernel);
  whole_ = r_.system->whole_call(r_, options_.threads);
  whole_->prepare(kernels_);
  const FloatEnvironment environment;
  KernelTrace trace = kernel.trace(whole_->call(), whole_->contract(), request);
  require_unchanged();
  if (trace.outcome.kind != Outcome::Kind::ran) throw Unavailable(trace.outcome);
  return trace;
}

/// A kernel whose device is missing says so on a single token too, before seconds are spent on filling large
/// tensors. Whatever else it reports or throws concerns that call, which the user did not ask for.
void BenchRun::require_device() const {
  if (kernels_.named->device == "cpu" || r_.form->packed) return;
  Case small = r_.c;
  small.B = small.T = 1;
  small.prefill = 0;
  const Resolved one(small);
  Outcome outcome;
  try {
    const std::unique_ptr<WholeCall> whole = one.system->whole_call(one, 1);
    whole->prepare(kernels_);
    outcome = kernels_.named->run(whole->call(), whole->contract());
  } catch (const std::exception&) {
    return;
  }
  if (outcome.kind == Outcome::Kind::no_device) throw Unavailable(outcome);
}

Judgement BenchRun::judge_parts(TimedCase& timed) const {
  const std::vector<std::int64_t> chosen = parts_to_judge(timed.heads, options_.judged_heads);
  timed.heads_judged = std::ssize(chosen);
  std::vector<Judgement> judgements(chosen.size());
  std::vector<std::exception_ptr> thrown(chosen.size());
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < chosen.size(); i = next++) {
      try {
        judgements[i] = whole_->judge(chosen[i], kernels_, kBenchPolicy);
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

}  // namespace samestate
