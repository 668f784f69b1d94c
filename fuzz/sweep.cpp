#include "fuzz/sweep.h"

#include <fmt/format.h>

#include <Eigen/SVD>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>

#include "fuzz/judge_batch.h"
#include "fuzz/systems.h"
#include "oracles/bounds/shared.h"
#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "reference/costs/recurrence.h"
#include "reference/recurrence.h"

namespace samestate {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// Points of a profile over tokens; a long run is averaged over windows.
constexpr Index kProfile = 256;

/// Sums of squares over some elements.
struct Squares {
  double error = 0.0;
  double bound = 0.0;
  double elements = 0.0;

  void add(double error_squared, double bound_squared, double count) {
    error += error_squared;
    bound += bound_squared;
    elements += count;
  }
  [[nodiscard]] ErrorAt at(double position) const {
    return {position, std::sqrt(error / elements), std::sqrt(bound / elements)};
  }
};

/// Largest singular value over smallest of I + A of the chunk that begins at `begin`.
double condition_of_chunk(const Sequence<double>& x, Index begin, Index end) {
  const Sequence<double> part = x.slice(begin, end, x.initial_state);
  Vector<double> g(part.g.size());
  for (Index t = 0; t < g.size(); ++t) g(t) = bounds::clamped(part.g(t));
  Matrix<double> A = lower<double>(
      part.beta.asDiagonal() * (part.k * part.k.transpose()).cwiseProduct(decay_between(g)), -1);
  A.diagonal().setOnes();
  const Eigen::VectorXd singular = Eigen::BDCSVD<Eigen::MatrixXd>(A).singularValues();
  return singular(0) / singular(singular.size() - 1);
}

/// Of the worst of the first chunks.
double condition_of(const Sequence<double>& x, Index chunk) {
  constexpr Index kChunks = 8;
  double worst = 1.0;
  for (Index begin = 0; begin < std::min(x.tokens(), kChunks * chunk); begin += chunk) {
    worst = std::max(worst, condition_of_chunk(x, begin, std::min(begin + chunk, x.tokens())));
  }
  return worst;
}

class Meter {
 public:
  Meter(const SweepCase& point, const KernelTable& table) : point_(point), c_(point.c), table_(table) {}

  void run(Measurement& m) {
    const Family& family = *system_named(c_.system).family;
    const Contract contract = contract_of(c_);
    const Batch batch = batch_of(c_);
    const KernelPair pair = table_.pair_for(c_);
    const auto runner = [&](const Batch& b, const Path& path) {
      return run_kernel(pair, b, path, contract, {layout_named(c_.layout), 1});
    };
    const Path path = path_of(c_, c_.T);
    const Outputs outputs = runner(batch, path);
    m.record.judgement = judge_batch(c_, batch, outputs, runner);
    chunk_ = c_.form == "chunked" ? c_.chunk : 0;
    Squares state;
    double state_tolerance = 0.0;
    double expected = 0.0;
    double expected_state = 0.0;
    std::vector<Squares> heads;
    for (std::int64_t n = 0; n < batch.shape.sequences(); ++n) {
      for (std::int64_t h = 0; h < batch.shape.Hv; ++h) {
        const Sequence<double> x = sequence_of(batch, n, h);
        const HeadOracle oracle = oracle_of(x, path_of(c_, x.tokens()), contract, family, batch.shape.l2norm);
        const Matrix<double> error = rows_of(batch, outputs, n, h) - oracle.exact.o;
        const Matrix<double> state_error = state_of(batch, outputs, n, h) - oracle.exact.state;
        heads.push_back(rows(error, oracle));
        m.max_error =
            std::max(m.max_error, error.size() > 0 ? error.cwiseAbs().maxCoeff<Eigen::PropagateNaN>() : 0.0);
        m.state_max = std::max(m.state_max, state_error.cwiseAbs().maxCoeff<Eigen::PropagateNaN>());
        expected += oracle.exact.o.squaredNorm();
        expected_state += oracle.exact.state.squaredNorm();
        state.add(state_error.squaredNorm(), 0.0, static_cast<double>(state_error.size()));
        state_tolerance += oracle.state * oracle.state;
        m.by_head.push_back(heads.back().at(static_cast<double>(m.by_head.size())));
        if (m.by_head.size() == 1) describe(m, x, family);
      }
    }
    Squares all;
    for (const Squares& head : heads) all.add(head.error, head.bound, head.elements);
    const ErrorAt whole = all.at(0.0);
    m.rms_error = whole.error;
    m.rms_bound = whole.bound;
    m.size = std::sqrt(expected / all.elements);
    m.state_rms = std::sqrt(state.error / state.elements);
    m.state_size = std::sqrt(expected_state / state.elements);
    m.state_bound = std::sqrt(state_tolerance / state.elements);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i].elements > 0) m.by_token.push_back(tokens_[i].at(static_cast<double>(i) * window_));
    }
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      if (positions_[i].elements > 0) m.by_chunk_position.push_back(positions_[i].at(static_cast<double>(i)));
    }
  }

 private:
  /// Adds the rows of one head to the profiles and returns their sum.
  Squares rows(const Matrix<double>& error, const HeadOracle& oracle) {
    const Index T = error.rows();
    const auto width = static_cast<double>(error.cols());
    window_ = static_cast<double>(std::max<Index>(1, (T + kProfile - 1) / kProfile));
    tokens_.resize(static_cast<std::size_t>(std::min(T, kProfile)) + 1);
    if (chunk_ > 0) positions_.resize(static_cast<std::size_t>(std::min(chunk_, T)));
    Squares all;
    for (Index t = 0; t < T; ++t) {
      const double e = error.row(t).squaredNorm();
      const double b =
          oracle.vacuous ? std::numeric_limits<double>::infinity() : oracle.rms(t) * oracle.rms(t);
      all.add(e, b, width);
      tokens_[static_cast<std::size_t>(static_cast<double>(t) / window_)].add(e, b, width);
      if (chunk_ > 0) positions_[static_cast<std::size_t>(t % chunk_)].add(e, b, width);
    }
    return all;
  }

  void describe(Measurement& m, const Sequence<double>& x, const Family& family) const {
    m.tokens = c_.T;
    m.flops = m.bytes = m.condition = kNaN;
    if (chunk_ > 0 && family.delta) m.condition = condition_of(x, chunk_);
    if (chunk_ > 0 && family.gated && family.delta) {
      const costs::RecurrenceConfig config{c_.dk, c_.dv};
      m.flops = costs::chunked_flops_per_token(config, chunk_);
      m.bytes = costs::chunked_bytes_per_token(config, chunk_);
    }
    if (!std::isnan(m.x)) return;
    if (m.series == "condition") m.x = m.condition;
    if (m.series == "decay") m.x = x.g.size() > 0 ? -x.g.mean() : kNaN;
  }

  const SweepCase& point_;
  const Case& c_;
  const KernelTable& table_;
  Index chunk_ = 0;
  double window_ = 1.0;
  std::vector<Squares> tokens_, positions_;
};

constexpr SweepSeries kSeries[] = {
    {"chunk", "error, bound, FLOPs and bytes against the chunk, 1 to 256"},
    {"dendritic", "the same at the heads of dendritic attention, dk = 160, dv = 512"},
    {"length", "error against the number of tokens"},
    {"decay", "error against the mean log-decay of a token"},
    {"condition", "error against the condition of the triangular system, by correlation of the keys"},
    {"width", "error against the head dimension"},
    {"drift", "error along one long decode, fp32 and bf16 state"},
};

/// The points of one sweep.
class SweepPlan {
 public:
  SweepPlan(const KernelTable& table, const SweepOptions& options) : table_(table), options_(options) {}

  std::vector<SweepCase> points() {
    if (wants("chunk")) chunk();
    if (wants("dendritic")) dendritic();
    if (wants("length")) length();
    if (wants("decay")) decay();
    if (wants("condition")) condition();
    if (wants("width")) width();
    if (wants("drift")) drift();
    return std::move(points_);
  }

 private:
  [[nodiscard]] bool wants(std::string_view series) const {
    return options_.series.empty() || options_.series == series;
  }

  [[nodiscard]] Case base(std::string_view system, std::string_view contract, std::string_view regime) const {
    Case c;
    c.system = system;
    c.contract = contract;
    c.regime = regime;
    c.state = "random";
    c.Hv = 2;
    c.Hk = 1;
    c.dk = c.dv = options_.quick ? 32 : 128;
    c.T = options_.quick ? 192 : 1024;
    c.kernel = options_.kernel;
    c.seed = 1;
    return c;
  }

  /// Only what the kernel promises.
  void put(std::string_view series, std::string curve, double x, const Case& c) {
    if (!options_.system.empty() && c.system != options_.system) return;
    const KernelPair pair = table_.pair_for(c);
    const Kernel& kernel =
        pair.chunked != nullptr && !runs_recurrent_only(c) ? *pair.chunked : *pair.recurrent;
    if (std::find(kernel.contracts.begin(), kernel.contracts.end(), c.contract) == kernel.contracts.end())
      return;
    points_.push_back({std::string(series), std::move(curve), x, c});
  }

  void over_chunks(std::string_view series, const Case& base, const std::string& curve) {
    for (std::int64_t chunk = 1; chunk <= 256; chunk *= options_.quick ? 4 : 2) {
      Case c = base;
      c.chunk = chunk;
      put(series, curve, static_cast<double>(chunk), c);
    }
  }

  void chunk() {
    for (const System& system : systems()) {
      for (const char* contract : {"fp32", "tf32", "bf16", "fp16"}) {
        for (const char* regime : {"normal", "slow", "none", "collinear"}) {
          const std::string_view name = regime;
          if (name == "slow" && !system.family->gated) continue;
          if (name == "none" && (!system.family->gated || options_.quick)) continue;
          if (name == "collinear" && (!system.family->delta || options_.quick)) continue;
          over_chunks("chunk", base(system.name(), contract, regime),
                      fmt::format("{} {} {}", system.name(), contract, regime));
        }
      }
    }
  }

  void dendritic() {
    for (const char* contract : {"fp32", "bf16"}) {
      Case c = base("gated_delta_rule", contract, "slow");
      c.dk = 160;
      c.dv = options_.quick ? 64 : 512;
      c.T = options_.quick ? 128 : 512;
      c.Hv = c.Hk = 1;
      over_chunks("dendritic", c, contract);
    }
  }

  void length() {
    const std::int64_t most = options_.quick ? 2048 : 65536;
    for (const char* contract : {"fp32", "bf16", "bf16_state"}) {
      for (const char* regime : {"normal", "slow"}) {
        for (std::int64_t T = 64; T <= most; T *= 4) {
          Case c = base("gated_delta_rule", contract, regime);
          c.dk = c.dv = 32;
          c.Hv = c.Hk = 1;
          c.T = T;
          put("length", fmt::format("{} {}", contract, regime), static_cast<double>(T), c);
        }
      }
    }
  }

  void decay() {
    for (const char* contract : {"fp32", "bf16"}) {
      for (const char* regime : {"none", "slow", "retnet", "normal", "plateau", "measured", "strong"}) {
        put("decay", contract, kNaN, base("gated_delta_rule", contract, regime));
      }
    }
  }

  void condition() {
    for (const char* contract : {"fp32", "tf32", "bf16", "fp16"}) {
      for (const char* regime : {"normal", "none", "positive", "pool4", "beta_one", "collinear", "identical",
                                 "identical_beta_two"}) {
        Case c = base("gated_delta_rule", contract, regime);
        c.T = options_.quick ? 128 : 512;
        put("condition", contract, kNaN, c);
      }
    }
  }

  void width() {
    for (const char* contract : {"fp32", "bf16"}) {
      for (std::int64_t d : {8, 16, 32, 64, 128, 256}) {
        if (options_.quick && d > 64) continue;
        Case c = base("gated_delta_rule", contract, "normal");
        c.dk = c.dv = d;
        c.T = options_.quick ? 192 : 512;
        put("width", contract, static_cast<double>(d), c);
      }
    }
  }

  void drift() {
    for (const char* contract : {"fp32", "bf16_state"}) {
      for (const char* regime : {"normal", "slow"}) {
        Case c = base("gated_delta_rule", contract, regime);
        c.form = "recurrent";
        c.chunk = 64;
        c.kernel.clear();
        c.dk = c.dv = 32;
        c.Hv = c.Hk = 1;
        c.T = options_.quick ? 4000 : 100000;
        put("drift", fmt::format("{} {}", contract, regime), static_cast<double>(c.T), c);
      }
    }
  }

  const KernelTable& table_;
  const SweepOptions& options_;
  std::vector<SweepCase> points_;
};

}  // namespace

std::span<const SweepSeries> sweep_series() { return kSeries; }

std::vector<SweepCase> plan_sweep(const KernelTable& table, const SweepOptions& options) {
  if (!options.series.empty() &&
      std::none_of(std::begin(kSeries), std::end(kSeries),
                   [&](const SweepSeries& s) { return s.name == options.series; })) {
    std::string known;
    for (const SweepSeries& s : kSeries) known += (known.empty() ? "" : ", ") + std::string(s.name);
    throw Error("series " + options.series + ": no such series; known: " + known);
  }
  if (!options.system.empty()) (void)system_named(options.system);
  SweepOptions chosen = options;
  if (!options.kernel.empty()) {
    const Kernel& kernel = table.named(options.kernel);
    if (kernel.form != "chunked")
      throw Error("kernel " + kernel.name + " is no chunked kernel: a sweep varies the chunk");
    if (!options.system.empty() && options.system != kernel.system) {
      throw Error("kernel " + kernel.name + " computes " + kernel.system + ", not " + options.system);
    }
    chosen.system = kernel.system;
  }
  return SweepPlan(table, chosen).points();
}

Measurement measure(const SweepCase& point, const KernelTable& table) {
  Measurement m;
  m.series = point.series;
  m.curve = point.curve;
  m.x = point.x;
  m.record = planned_record(point.c, table);
  const auto started = std::chrono::steady_clock::now();
  try {
    Meter(point, table).run(m);
  } catch (const Unavailable& unavailable) {
    m.record.judgement.verdict =
        unavailable.kind == Outcome::Kind::no_device ? Verdict::skipped : Verdict::unsupported;
    m.record.judgement.reason = unavailable.what();
    m.size = m.max_error = m.rms_error = m.rms_bound = kNaN;
  } catch (const std::exception& thrown) {
    m.record.judgement.verdict = Verdict::crash;
    m.record.judgement.reason = std::string("the kernel threw: ") + thrown.what();
    m.size = m.max_error = m.rms_error = m.rms_bound = kNaN;
  }
  m.record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return m;
}

}  // namespace samestate
