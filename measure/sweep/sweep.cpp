#include "measure/sweep/sweep.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <ranges>

#include "harness/cases/keys.h"
#include "oracles/contracts.h"
#include "oracles/judge_policy.h"
#include "oracles/numbers.h"
#include "oracles/systems/family.h"

namespace samestate {
namespace {

constexpr SweepSeries kSeries[] = {
    {"chunk", "error, bound, FLOPs and bytes against the chunk, 1 to 256"},
    {"dendritic", "the same at the heads of dendritic attention, dk = 160, dv = 512"},
    {"length", "error against the number of tokens"},
    {"decay", "error against the mean log-decay of a token"},
    {"condition", "error against the condition of the triangular system, by correlation of the keys"},
    {"width", "error against the head dimension"},
    {"drift", "error along one long decode, fp32 and bf16 state"},
};

/// An operator over chunks. Sizes that are not named have their row's standard value, and in a quick sweep
/// all sizes do.
struct OperatorSweep {
  const System& system;
  std::int64_t tokens;
  std::vector<std::pair<std::string_view, std::int64_t>> sizes;
  std::vector<std::string_view> regimes;
};

/// A few heads as in public models: what happens inside a head does not depend on their number.
const std::vector<OperatorSweep>& operator_sweeps() {
  static const std::vector<OperatorSweep> rows = {
      {system_named("state_space_duality"),
       1024,
       {{"H", 2}, {"G", 1}, {"P", 64}, {"N", 128}},
       {"normal", "tiny"}},
      {system_named("selective_scan"), 1024, {{"D", 64}, {"N", 16}}, {"normal", "tiny"}},
      {system_named("linear_attention_normalised"), 1024, {{"H", 1}, {"dk", 128}, {"dv", 128}}, {"normal"}},
      {system_named("normalised_retention"), 1024, {{"H", 1}, {"dk", 128}, {"dv", 128}}, {"normal"}},
      {system_named("multi_scale_retention"),
       512,
       {{"D", 128}, {"H", 1}, {"dk", 128}, {"dv", 128}},
       {"normal"}},
      {system_named("gated_delta_net"),
       512,
       {{"D", 128}, {"Hk", 1}, {"R", 2}, {"dk", 128}, {"dv", 128}},
       {"normal"}},
      {system_named("mamba_mixer"), 512, {{"D", 64}, {"Di", 128}, {"N", 16}, {"R", 4}}, {"normal"}},
      {system_named("mamba2_mixer"), 512, {{"D", 64}, {"H", 2}, {"G", 1}, {"P", 64}, {"N", 128}}, {"normal"}},
  };
  return rows;
}

/// The points of one sweep.
class SweepPlan {
 public:
  SweepPlan(const KernelTable& table, const SweepOptions& options) : table_(table), options_(options) {}

  std::vector<SweepCase> points() {
    if (!options_.over.empty()) {
      over();
      return std::move(points_);
    }
    // This comes first, since its longest point would otherwise be waited for at the end. Only the recurrent
    // kernel has it.
    if (wants("drift") && options_.kernel.empty()) drift();
    if (wants("chunk")) chunk();
    if (wants("dendritic")) dendritic();
    if (wants("length")) length();
    if (wants("decay")) decay();
    if (wants("condition")) condition();
    if (wants("width")) width();
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
    c.T = options_.quick ? 256 : 1024;
    c.kernel = options_.kernel;
    c.seed = 1;
    return c;
  }

  /// Adds the point if the kernel promises it; of a backward pass one a gradient.
  void put(std::string_view series, const std::string& curve, double x, const Case& c) {
    if (!options_.system.empty() && c.system != options_.system) return;
    const Resolved r(c);
    const std::vector<std::string>& contracts = table_.choose(r).named->contracts;
    if (std::find(contracts.begin(), contracts.end(), c.contract) == contracts.end()) return;
    const SweepCase point{std::string(series), curve, x, c, options_.quick ? 32 : 128, work_of(r)};
    if (!is_backward(c.system)) return points_.push_back(point);
    for (const TensorSpec& spec : r.system->signature(c).outputs) {
      points_.push_back(point);
      points_.back().curve = fmt::format("{} {}", curve, spec.name);
      points_.back().output = spec.name;
    }
  }

  /// Fitted by eye to a recorded sweep: the state and its covariance are propagated once per chunk, and the
  /// scores take the square of the chunk.
  [[nodiscard]] static double work_of(const Resolved& r) {
    const auto chunk = static_cast<double>(r.chunk > 0 ? r.chunk : 1);
    // Its bound is vacuous over the whole run, so it is judged token by token, each from its own state.
    const bool by_token = r.unchunked() && low_precision_state(*r.contract) && r.regime->lasting;
    return (by_token ? 20.0 : 1.0) * r.system->work(r.c, kGatePolicy) * (1.0 + 4.0 / chunk + chunk / 256.0);
  }

  [[nodiscard]] Case base(const OperatorSweep& row, std::string_view contract,
                          std::string_view regime) const {
    Case c = row.system.standard();
    c.form = "chunked";
    c.contract = contract;
    c.regime = regime;
    c.T = options_.quick ? 256 : row.tokens;
    c.kernel = options_.kernel;
    c.seed = 1;
    if (options_.quick) return c;
    for (const auto& [name, value] : row.sizes) c.parameters.find(name)->second = value;
    return c;
  }

  void over_chunks(std::string_view series, const Case& base, const std::string& curve) {
    for (std::int64_t chunk = 1; chunk <= 256; chunk *= options_.quick ? 4 : 2) {
      Case c = base;
      c.chunk = chunk;
      put(series, curve, static_cast<double>(chunk), c);
    }
  }

  /// Returns the contracts of the family's kernels that are changes of a named one.
  [[nodiscard]] std::vector<std::string_view> changed_contracts(const Family& family) const {
    std::vector<std::string_view> out;
    for (const KernelRow& row : table_.all()) {
      if (row.system->name != family.name || (!options_.kernel.empty() && row.name != options_.kernel))
        continue;
      for (const std::string& contract : row.contracts) {
        if (contract.find('+') != contract.npos && std::find(out.begin(), out.end(), contract) == out.end())
          out.push_back(contract);
      }
    }
    return out;
  }

  void chunk() {
    for (const Family& family : families()) {
      std::vector<std::string_view> contracts = {"fp32", "tf32", "bf16", "fp16"};
      for (const std::string_view contract : changed_contracts(family)) contracts.push_back(contract);
      for (const std::string_view contract : contracts) {
        for (const char* regime : {"normal", "slow", "none", "collinear"}) {
          const std::string_view name = regime;
          if (name == "slow" && !family.gated) continue;
          if (name == "none" && (!family.gated || options_.quick)) continue;
          if (name == "collinear" && (!family.delta || options_.quick)) continue;
          over_chunks("chunk", base(family.name, contract, regime),
                      fmt::format("{} {} {}", family.name, contract, regime));
        }
      }
    }
    for (const Family& family : families()) {
      const std::string system = std::string(family.name).append(kBackward);
      if (options_.system != system) continue;
      for (const char* contract : {"fp32", "tf32", "bf16", "fp16"}) {
        for (const std::string_view regime : {"normal", "slow"}) {
          if (regime != "slow" || (family.gated && !options_.quick))
            over_chunks("chunk", base(system, contract, regime),
                        fmt::format("{} {} {}", system, contract, regime));
        }
      }
    }
    for (const OperatorSweep& row : operator_sweeps()) {
      // A plugin's kernel belongs to one system; the other systems have no kernel of that name.
      if (!options_.system.empty() && row.system.name != options_.system) continue;
      for (const char* contract : {"fp32", "tf32", "tf32_truncated", "bf16", "fp16"}) {
        for (const std::string_view regime : row.regimes) {
          if (options_.quick && regime != row.regimes.front()) continue;
          over_chunks("chunk", base(row, contract, regime),
                      fmt::format("{} {} {}", row.system.name, contract, regime));
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
        c.T = options_.quick ? 256 : 512;
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

  /// Returns the cases whose axes a user's own sweep varies: the given line, or one case per contract.
  [[nodiscard]] std::vector<Case> begins() const {
    std::vector<Case> out;
    if (!options_.from.empty()) {
      out.push_back(parse_case(options_.from));
      if (!options_.kernel.empty()) out.front().kernel = options_.kernel;
    } else {
      const std::string system = options_.system.empty() ? "gated_delta_rule" : options_.system;
      const auto row =
          std::ranges::find(operator_sweeps(), system, [](const OperatorSweep& x) { return x.system.name; });
      std::vector<std::string_view> contracts = {"fp32", "tf32", "bf16", "fp16"};
      for (const KernelRow& kernel : table_.all()) {
        if (kernel.name != options_.kernel) continue;
        contracts.assign(kernel.contracts.begin(), kernel.contracts.end());
      }
      // An axis of contracts gives each its own.
      if (std::ranges::find(options_.over, "contract", &SweepAxis::key) != options_.over.end())
        contracts.resize(1);
      for (const std::string_view contract : contracts) {
        Case c = system_named(system).of_family() ? base(system, contract, "normal")
                 : row != operator_sweeps().end() ? base(*row, contract, "normal")
                                                  : system_named(system).standard();
        c.contract = contract;
        c.kernel = options_.kernel;
        if (!options_.kernel.empty()) c.form = table_.row_named(options_.kernel).form;
        if (system_named(system).of_family()) c.Hk = c.Hv = 1;
        out.push_back(std::move(c));
      }
    }
    for (Case& c : out) {
      if (options_.T > 0) c.T = options_.T;
    }
    return out;
  }

  /// The case with another value of a key. As in a line that does not name them, values are as wide as keys and as many
  /// heads have them, where they were so before.
  [[nodiscard]] static Case with_value(const Case& c, const std::string& key, const std::string& value) {
    Case out = with_keys(c, fmt::format("{}={}", key, value));
    if (key == "dk" && c.dv == c.dk) out.dv = out.dk;
    if (key == "Hk" && c.Hv == c.Hk) out.Hv = out.Hk;
    return out;
  }

  void over() {
    const SweepAxis& drawn = options_.over.front();
    std::vector<std::pair<std::string, Case>> curves;  // what tells them apart beside contract and regime
    for (Case& c : begins()) curves.emplace_back("", std::move(c));
    // Each combination of the other axes is a curve.
    for (const SweepAxis& axis : std::span(options_.over).subspan(1)) {
      const bool named = axis.key == "contract" || axis.key == "regime";
      std::vector<std::pair<std::string, Case>> more;
      for (const auto& [name, c] : curves) {
        for (const std::string& value : axis.values)
          more.emplace_back(named ? name : fmt::format("{} {}={}", name, axis.key, value),
                            with_value(c, axis.key, value));
      }
      curves = std::move(more);
    }
    for (const auto& [name, c] : curves) {
      const auto unless_drawn = [&](std::string_view key, const std::string& value) {
        return drawn.key == key ? "" : " " + value;
      };
      const std::string curve =
          c.system + unless_drawn("contract", c.contract) + unless_drawn("regime", c.regime) + name;
      for (std::size_t i = 0; i < drawn.values.size(); ++i)
        put_over(curve, with_value(c, drawn.key, drawn.values[i]), i);
    }
    if (points_.empty())
      throw Error(
          fmt::format("{} promises none of these contracts; `samestate list kernels` says which it promises",
                      options_.kernel.empty() ? "no kernel here" : options_.kernel));
  }

  /// The value of number `i` of the drawn axis: a number is its own place, and a name stands where it was given.
  void put_over(const std::string& curve, const Case& c, std::size_t i) {
    const SweepAxis& drawn = options_.over.front();
    // An existing series is drawn as usual.
    const std::string series = drawn.key == "T" ? "length" : drawn.key;
    double x = 0.0;
    const std::string& text = drawn.values[i];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
    if (error != std::errc{} || end != text.data() + text.size()) x = static_cast<double>(i + 1);
    put(series, curve, x, c);
  }

  const KernelTable& table_;
  const SweepOptions& options_;
  std::vector<SweepCase> points_;
};

/// Throws Error if the system does not exist or has no chunks.
void require_swept(const std::string& system) {
  std::vector<std::string_view> names;
  for (const Family& row : families()) names.push_back(row.name);
  for (const OperatorSweep& row : operator_sweeps()) names.push_back(row.system.name);
  if (std::ranges::find(names, forward_name(system_named(system).name)) != names.end()) return;
  throw Error(
      fmt::format("system {} has no chunked form, but a sweep varies the chunk; systems that have one: {}",
                  system, fmt::join(names, ", ")));
}

}  // namespace

std::span<const SweepSeries> sweep_series() { return kSeries; }

SweepAxis axis_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  SweepAxis axis{text.substr(0, equals), {}};
  for (const auto& word :
       std::views::split(text.substr(equals == text.npos ? text.size() : equals + 1), ',')) {
    if (!word.empty()) axis.values.emplace_back(word.begin(), word.end());
  }
  if (axis.key.empty() || axis.values.empty())
    throw Error(fmt::format("--over {}: write KEY=VALUE,VALUE.., as chunk=16,64,256", text));
  return axis;
}

std::vector<SweepCase> plan_sweep(const KernelTable& table, const SweepOptions& options) {
  if (!options.series.empty() &&
      std::none_of(std::begin(kSeries), std::end(kSeries),
                   [&](const SweepSeries& s) { return s.name == options.series; })) {
    std::string known;
    for (const SweepSeries& s : kSeries) known += (known.empty() ? "" : ", ") + std::string(s.name);
    throw Error("series " + options.series + ": no such series; known: " + known);
  }
  SweepOptions chosen = options;
  if (!options.over.empty()) {
    if (!options.series.empty())
      throw Error("--series names an existing sweep, but --over makes one; leave one of them out");
    if (!options.kernel.empty()) chosen.system = table.row_named(options.kernel).system->name;
    if (!options.from.empty()) {
      const Case from = parse_case(options.from);
      if (!from.law.empty())
        throw Error(
            fmt::format("--case: law={} compares runs and has no error to measure; drop it", from.law));
      chosen.system = from.system;
    }
    for (auto axis = options.over.begin(); axis != options.over.end(); ++axis) {
      if (std::find_if(options.over.begin(), axis, [&](const SweepAxis& x) { return x.key == axis->key; }) !=
          axis)
        throw Error(
            fmt::format("--over {}: given twice; list all values in one, as {}=1,2", axis->key, axis->key));
    }
    if (std::ranges::find(options.over, "law", &SweepAxis::key) != options.over.end())
      throw Error("--over law: a law compares runs and has no error to measure; vary another key");
    return SweepPlan(table, chosen).points();
  }
  if (!options.system.empty()) require_swept(options.system);
  if (!options.kernel.empty()) {
    if (options.series == "drift")
      throw Error(
          "series drift needs the recurrent kernel of the system, but --kernel names a chunked one; leave "
          "one of them out");
    const KernelRow* row = &table.row_named(options.kernel);
    const std::string system(row->system->name);
    if (row->form != "chunked")
      throw Error("kernel " + options.kernel + " is not a chunked kernel, but a sweep varies the chunk");
    if (!options.system.empty() && options.system != system) {
      throw Error("kernel " + options.kernel + " computes " + system + ", not " + options.system);
    }
    require_swept(system);
    chosen.system = system;
  }
  return SweepPlan(table, chosen).points();
}

}  // namespace samestate
