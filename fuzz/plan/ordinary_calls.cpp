#include "fuzz/plan/ordinary_calls.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "fuzz/plan/factors.h"
#include "fuzz/plan/interpreted.h"
#include "fuzz/plan/smaller_call.h"
#include "harness/cases/keys.h"
#include "harness/cases/shards.h"
#include "oracles/judge_policy.h"

namespace samestate {
namespace {

/// Sets the data: every regime takes its turn, alternating with regimes whose decays let a long call's last
/// token see its first.
void put_data(Case& c, const KernelRow& kernel, Index index, const Dice& dice) {
  constexpr Index kLong = 64;
  const System& system = *kernel.system;
  if (c.regime != Case{}.regime) return;
  if (dice.one_in(3)) {
    c.regime = system.regimes[static_cast<std::size_t>(index) % system.regimes.size()]->name;
  } else if (c.T > kLong && dice.one_in(2)) {
    for (const std::string_view alive : {"slow", "wide_rates", "trained"}) {
      if (system.regime(alive) != nullptr) c.regime = alive;
    }
  }
}

void put_settings(Case& c, const KernelRow& kernel, const ModelSizes& sizes, const Dice& dice) {
  constexpr Index kLawTokens = 9;  // a law on fewer tokens is not a call of its kind
  const System& system = *kernel.system;
  for (const CaseSize& size : system.sizes) {
    const bool stated =
        std::ranges::any_of(sizes.sizes, [&](const auto& one) { return one.first == size.name; });
    if (size.least == 0 && size.most == 1 && (!stated || dice.one_in(4)))
      size_in(c, size.name) = dice.below(2);
  }
  if (kernel.system->of_family()) {
    c.l2norm = sizes.normalises != dice.one_in(6);
    if (dice.one_in(8)) c.heads = HeadMap::tiled;
    if (dice.one_in(8)) c.scale = 1.0;
  }
  if (serves_slots(kernel)) size_in(c, "P") = dice.pick(std::array<Index, 5>{2, 4, 16, 64, 300});
  if (system.form(kernel.form)->chunked)
    c.chunk = dice.pick(std::array<Index, 8>{64, 64, 64, 128, 128, 32, 16, 256});
  if (kernel.strided && dice.one_in(4))
    c.layout = std::array{"fused", "permuted", "padded"}[static_cast<std::size_t>(dice.below(3))];
  c.repeat = dice.one_in(6);
  if (!kernel.taps.empty()) c.taps = dice.one_in(3);
  if (c.law.empty() && c.T >= kLawTokens && !system.laws.empty() && dice.one_in(10))
    c.law = system.laws[static_cast<std::size_t>(dice.below(std::ssize(system.laws)))]->name;
}

}  // namespace

double seconds_of_call(const KernelRow& kernel, const Case& c) {
  // On two threads of one core a plan takes about twice as long as its work on a core of its own: 148 seconds for 70, over
  // 16,175 cases of all kernels of the processor.
  constexpr double kSecondsOfWorkBesideOthers = 2.0 * kSecondsOfWork;
  constexpr double kOfToken = 0.5;  // every decoded token is a call that receives all weights again
  double work = work_of(kernel, c);
  if (kernel.interpreted && std::isfinite(work))
    return kSecondsOfWorkBesideOthers * (kStartingWork + kernel.system->work(c, kGatePolicy)) +
           interpreted_seconds(kernel, c);
  if (!kernel.system->of_family()) {
    work *= measured_share(kernel.system->name);
    if (kernel.system->form(c.form)->decodes) {
      Case token = c;
      token.form = kernel.form;
      token.T = 1, token.prefill = 0, token.step = 1, token.cached = false;
      work += kOfToken * static_cast<double>((c.T - c.prefill) / c.step) * work_of(kernel, token);
    }
  }
  return kSecondsOfWorkBesideOthers * (kStartingWork + work);
}

OrdinaryCalls::OrdinaryCalls(const KernelRow& kernel) : kernel_(kernel) {
  for (ModelSizes& row : model_sizes(*kernel.system)) {
    if (models_.empty() || models_.back().front().model != row.model) models_.emplace_back();
    models_.back().push_back(std::move(row));
  }
}

Index OrdinaryCalls::round() const { return models() * static_cast<Index>(call_kinds().size()); }

bool OrdinaryCalls::draw_once(const std::vector<ModelSizes>& of, const CallKind& kind, Index index,
                              const Dice& dice, OrdinaryCall& out) const {
  constexpr std::string_view kUsual = "bf16";  // the format in which models are trained and served
  // Every second pair of model and kind begins with the whole layer, which takes all of the time that a call
  // may take.
  const bool whole = index < round() && (index / std::ssize(call_kinds()) + index) % 2 == 0;
  const ModelSizes& sizes = whole || dice.one_in(3) ? of.front() : dice.pick(of);
  Case c = start_of(kernel_);
  c.state = Case{}.state;
  for (const auto& [name, value] : sizes.sizes) size_in(c, name) = value;
  const std::vector<std::string>& contracts = kernel_.contracts;
  c.contract = whole || dice.one_in(3) ? contracts.front() : dice.pick(contracts);
  if (!whole && dice.one_in(3) && std::ranges::find(contracts, kUsual) != contracts.end())
    c.contract = kUsual;
  out.why = kNoSuchCall;
  if (!kind.put(c, kernel_, dice)) return false;
  put_data(c, kernel_, index, dice);
  put_settings(c, kernel_, sizes, dice);
  settle(c, kernel_, dice);
  out.why = "no kernel here makes one of its calls";
  if (!has_kernels(kernel_, c)) return false;
  // A scan needs so much memory that an expensive call takes up to twenty seconds on a busy machine.
  const double dear = measured_share(kernel_.system->name) < 1.0 ? kSecondsOfDearCall : kSecondsOfCall;
  const std::array seconds_of{dear,           kSecondsOfCall,       kSecondsOfCall,
                              kSecondsOfCall, kSecondsOfCall / 4.0, kSecondsOfCall / 8.0};
  const double seconds = whole && !dice.one_in(8) ? kSecondsOfCall : dice.pick(seconds_of);
  out.why = "its smallest form takes too long";
  if (!SmallerCall(kernel_, kind, dice).fit(c, seconds, whole, out.smaller)) return false;
  out.why = "outside the kernel's limits";
  if (!possible(c) || !within_limits(kernel_, c)) return false;
  out.why = {};
  out.c = std::move(c);
  return true;
}

const std::vector<ModelSizes>& OrdinaryCalls::model_of(Index index) const {
  // Kinds begin at different models, so that the first calls meet many of both.
  const auto kinds = static_cast<Index>(call_kinds().size());
  const Index stride = models() / kinds + 1;
  return models_[static_cast<std::size_t>((index / kinds + index % kinds * stride) % models())];
}

OrdinaryCall OrdinaryCalls::turn(Index index) const {
  const CallKind& kind = call_kinds()[static_cast<std::size_t>(index) % call_kinds().size()];
  return {{}, model_of(index).front().model->name, kind.name};
}

OrdinaryCall OrdinaryCalls::draw(Index index, const Dice& dice) const {
  constexpr int kAttempts = 6;
  if (models_.empty()) return {};
  OrdinaryCall out = turn(index);
  const CallKind& kind = call_kinds()[static_cast<std::size_t>(index) % call_kinds().size()];
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    out.smaller = false;
    if (draw_once(model_of(index), kind, index, dice, out)) break;
  }
  return out;
}

}  // namespace samestate
