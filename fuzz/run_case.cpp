#include "fuzz/run_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>

#include "fuzz/generators/regimes.h"
#include "fuzz/systems.h"
#include "oracles/contracts.h"
#include "oracles/judge.h"
#include "oracles/laws/edit.h"

namespace samestate {
namespace {

/// Tokens of a segment of the recurrent form where a run is judged segment by segment: long enough to carry,
/// short enough that a low-precision state does not drift (BOUNDS 10.1).
constexpr Index kRecurrentSegment = 4;

double default_scale(const Case& c) {
  const double root = 1.0 / std::sqrt(static_cast<double>(c.dk));
  // A power of two keeps integers exact.
  if (regime_named(c.regime).exact) return std::exp2(std::round(std::log2(root)));
  return static_cast<double>(static_cast<float>(root));
}

/// The companion's name differs in the form alone.
std::string with_form(const Kernel& kernel, std::string_view form) {
  const std::size_t dot = kernel.name.rfind('.');
  return kernel.name.substr(0, dot == std::string::npos ? 0 : dot + 1) + std::string(form);
}

class CaseRun {
 public:
  CaseRun(const Case& c, const KernelTable& table, int threads)
      : case_(c),
        system_(system_named(c.system)),
        contract_(contract_named(c.contract)),
        pair_(table.pair_for(c)),
        options_{c.layout == "padded", threads},
        batch_(batch_of(c)) {
    require_finite(batch_);
  }

  [[nodiscard]] Judgement judge() {
    if (!case_.law.empty()) {
      const LawSubject subject{batch_, *system_.family, contract_,
                               case_.form == "recurrent" ? 0 : case_.chunk,
                               [this](const Batch& batch, const Path& path) { return run(batch, path); }};
      return judge_law(law_named(case_.law), subject);
    }
    outputs_ = run(batch_, path_of(case_, batch_.shape.T));
    return judge_against_oracle();
  }

  [[nodiscard]] Trace take_trace() { return {std::move(batch_), std::move(outputs_)}; }
  [[nodiscard]] const KernelPair& pair() const { return pair_; }

 private:
  [[nodiscard]] Outputs run(const Batch& batch, const Path& path) const {
    return run_kernel(pair_, batch, path, contract_, options_);
  }

  [[nodiscard]] bool has_twin() const {
    return low_precision(contract_) && batch_.shape.T >= kTwinTokens &&
           batch_.shape.T * batch_.shape.dv >= kTwinElements;
  }

  Judgement judge_against_oracle() {
    const BatchShape& s = batch_.shape;
    const bool exact = regime_named(case_.regime).exact;
    std::optional<Outputs> twin;
    if (!exact && has_twin()) twin = run_on_twin(case_.system, batch_, path_of(case_, s.T), contract_);

    std::optional<Judgement> worst;
    for (std::int64_t n = 0; n < s.sequences(); ++n) {
      for (std::int64_t h = 0; h < s.Hv; ++h) {
        const Sequence<double> x = sequence_of(batch_, n, h);
        const HeadOracle oracle =
            oracle_of(x, path_of(case_, x.tokens()), contract_, *system_.family, s.l2norm);
        const Matrix<double> o = rows_of(batch_, outputs_, n, h);
        const Matrix<double> state = state_of(batch_, outputs_, n, h);
        Judgement j = exact || x.tokens() == 0 ? judge_exact(oracle, contract_, o, state)
                                               : judge_head(oracle, o, state);
        // An empty sequence beside others is no evidence of its own, and no reason to distrust theirs.
        if (x.tokens() == 0 && j.verdict == Verdict::vacuous && s.sequences() > 1) continue;
        if (j.verdict == Verdict::vacuous && oracle.vacuous) j = judge_segments(n, h, std::move(j));
        if (twin && j.verdict != Verdict::fail) {
          const Judgement t = judge_twin(oracle, contract_, o, rows_of(batch_, *twin, n, h));
          if (t.verdict == Verdict::fail) {
            merge(j, t);
          } else {
            j.twin_ratio = t.twin_ratio;
          }
        }
        j.worst.sequence = n;
        j.worst.head = h;
        if (worst) {
          merge(*worst, j);
        } else {
          worst = std::move(j);
        }
      }
    }
    if (worst) return *worst;
    Judgement nothing;
    nothing.reason = "nothing was compared";
    return nothing;
  }

  /// BOUNDS 10.1: the oracle starts from the kernel's own state, one segment at a time; nothing accumulates.
  Judgement judge_segments(std::int64_t n, std::int64_t h, Judgement whole_run) {
    const BatchShape& s = batch_.shape;
    const Index length = segment_length();
    if (!s.offsets.empty() || s.T <= length) return whole_run;
    if (segments_.empty()) {
      Batch part;
      std::vector<float> state = batch_.initial_state;
      for (std::int64_t t = 0; t < s.T; t += length) {
        part = tokens_of(batch_, t, std::min<std::int64_t>(t + length, s.T));
        part.initial_state = state;
        Outputs out = run(part, segment_path(part.shape.T));
        state = out.final_state;
        segments_.push_back({std::move(part), std::move(out)});
      }
    }
    std::optional<Judgement> worst;
    std::int64_t begin = 0;
    for (const Trace& segment : segments_) {
      const Sequence<double> x = sequence_of(segment.batch, n, h);
      const HeadOracle oracle = oracle_of(x, segment_path(x.tokens()), contract_, *system_.family, s.l2norm);
      Judgement j = judge_head(oracle, rows_of(segment.batch, segment.outputs, n, h),
                               state_of(segment.batch, segment.outputs, n, h));
      if (j.worst.token >= 0) j.worst.token += begin;
      begin += segment.batch.shape.T;
      if (worst) {
        merge(*worst, j);
      } else {
        worst = std::move(j);
      }
    }
    worst->gate = "segment " + worst->gate;
    if (worst->verdict == Verdict::vacuous)
      worst->reason = whole_run.reason + "; nor for one segment: " + worst->reason;
    return *worst;
  }

  [[nodiscard]] bool recurrent_only() const {
    return case_.form == "recurrent" || case_.form == "decode" ||
           (case_.form == "packed" && case_.chunk == 0);
  }
  [[nodiscard]] Index segment_length() const { return recurrent_only() ? kRecurrentSegment : case_.chunk; }
  [[nodiscard]] Path segment_path(Index tokens) const {
    return whole(tokens, recurrent_only() ? 0 : case_.chunk);
  }

  const Case& case_;
  const System& system_;
  const Contract& contract_;
  KernelPair pair_;
  RunOptions options_;
  Batch batch_;
  Outputs outputs_;
  std::vector<Trace> segments_;
};

}  // namespace

void KernelTable::add(std::span<const Kernel> rows) {
  for (const Kernel& row : rows) {
    if (row.run == nullptr) throw Error("kernel " + row.name + ": its row has no function");
    if (std::any_of(rows_.begin(), rows_.end(), [&](const Kernel& k) { return k.name == row.name; })) {
      throw Error("kernel " + row.name + ": the name is taken; rename the plugin's row");
    }
    (void)system_named(row.system);
    if (row.form != "recurrent" && row.form != "chunked") {
      throw Error(fmt::format("kernel {}: form {} must be recurrent or chunked", row.name, row.form));
    }
    for (const std::string& contract : row.contracts) (void)contract_named(contract);
    rows_.push_back(row);
  }
}

const Kernel& KernelTable::named(std::string_view name) const {
  std::string known;
  for (const Kernel& row : rows_) {
    if (row.name == name) return row;
    known += (known.empty() ? "" : ", ") + row.name;
  }
  throw Error(fmt::format("kernel={}: no such kernel; known: {}", name, known));
}

KernelPair KernelTable::pair_for(const Case& c) const {
  const bool recurrent =
      c.form == "recurrent" || (c.chunk == 0 && (c.form == "decode" || c.form == "packed"));
  const std::string name =
      c.kernel.empty() ? fmt::format("cpu.{}.{}", c.system, recurrent ? "recurrent" : "chunked") : c.kernel;
  const Kernel& kernel = named(name);
  if (kernel.system != c.system) {
    throw Error(fmt::format("kernel={} computes {}, not {}", name, kernel.system, c.system));
  }
  KernelPair pair;
  (kernel.form == "chunked" ? pair.chunked : pair.recurrent) = &kernel;
  const std::string companion = with_form(kernel, kernel.form == "chunked" ? "recurrent" : "chunked");
  for (const Kernel& row : rows_) {
    if (row.name == companion) (row.form == "chunked" ? pair.chunked : pair.recurrent) = &row;
  }
  return pair;
}

Batch batch_of(const Case& c) {
  check_names(c);
  const System& system = system_named(c.system);
  Draw draw;
  draw.shape = {c.B,
                c.T,
                c.Hk,
                c.Hv,
                c.dk,
                c.dv,
                {},
                c.heads,
                c.scale.value_or(default_scale(c)),
                c.l2norm,
                c.state == "random"};
  if (!c.lengths.empty()) {
    draw.shape.offsets = {0};
    for (std::int64_t length : c.lengths) draw.shape.offsets.push_back(draw.shape.offsets.back() + length);
  }
  draw.regime = c.regime;
  draw.seed = c.seed;
  draw.gated = system.family->gated;
  draw.beta = system.family->delta;
  draw.contract = &contract_named(c.contract);
  return generate(draw);
}

Path path_of(const Case& c, std::int64_t tokens) {
  if (c.form == "recurrent") return whole(tokens, 0);
  if (c.form == "parallel") return whole(tokens, std::max<std::int64_t>(c.T, 1));
  if (c.form == "decode") return prefill_and_decode(tokens, c.chunk, c.prefill);
  return whole(tokens, c.chunk);
}

Record run_case(const Case& c, const KernelTable& table, int threads, Trace* trace) {
  Record record;
  record.line = format_case(c);
  record.system = c.system;
  record.form = c.form;
  record.contract = c.contract;
  record.regime = c.regime;
  record.law = c.law;
  CaseRun run(c, table, threads);
  const KernelPair& pair = run.pair();
  const Kernel& kernel =
      c.kernel.empty()
          ? *(pair.chunked && (c.form != "recurrent" && c.chunk > 0) ? pair.chunked : pair.recurrent)
          : table.named(c.kernel);
  record.kernel = kernel.name;
  record.device = kernel.device;
  const auto started = std::chrono::steady_clock::now();
  try {
    record.judgement = run.judge();
  } catch (const Unavailable& unavailable) {
    record.judgement.verdict =
        unavailable.kind == Outcome::Kind::no_device ? Verdict::skipped : Verdict::unsupported;
    record.judgement.reason = unavailable.what();
  } catch (const Trespass& trespass) {
    record.judgement.verdict = Verdict::fail;
    record.judgement.gate = "memory";
    record.judgement.ratio = std::numeric_limits<double>::infinity();
    record.judgement.reason = trespass.what();
  } catch (const std::exception& thrown) {
    record.judgement.verdict = Verdict::crash;
    record.judgement.reason = std::string("the kernel threw: ") + thrown.what();
  }
  record.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (trace) *trace = run.take_trace();
  return record;
}

}  // namespace samestate
