#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/script/script_parts.h"
#include "oracles/batch_edit.h"
#include "oracles/head_bound.h"
#include "oracles/systems/numpy_text.h"
#include "reference/error.h"

/// Scripts of the recurrent family.
namespace samestate::script_detail {
namespace {

constexpr float kNone = std::numeric_limits<float>::infinity();

/// An exact run may differ by this much, since the judge treats smaller values as zero.
constexpr double kFlushed = 0x1p-40;

struct Place {
  std::int64_t sequence = 0, head = 0;
};

/// The judge's limits of one head.
struct Limits {
  std::vector<float> rows;  ///< 2-norm of the error of each row of o
  float head = kNone;       ///< RMS of those over the head
  float state = kNone;      ///< Frobenius norm of the state's error
};

Limits limits_of(const Resolved& r, const RecurrentSystem& system, const Sequence<double>& x,
                 const Path& path, bool l2norm) {
  Limits limits;
  const auto count = static_cast<std::size_t>(x.tokens());
  if (r.regime->exact || x.tokens() == 0) {
    const double width = std::sqrt(static_cast<double>(x.value_width()));
    limits.rows.assign(count, rounded_up(kFlushed * width));
    limits.state = rounded_up(kFlushed * width * std::sqrt(static_cast<double>(x.key_width())));
    return limits;
  }
  const HeadOracle oracle = oracle_of(x, path, r.promised, system.family, l2norm);
  // If the statistical bound is vacuous, the worst case still gives one.
  const Vector<double>& rows = oracle.vacuous ? oracle.row_hard : oracle.row;
  for (const double limit : rows) limits.rows.push_back(rounded_up(limit));
  if (!oracle.vacuous) limits.head = rounded_up(head_bound(oracle));
  limits.state = rounded_up(oracle.vacuous ? oracle.state_hard : oracle.state);
  return limits;
}

/// Returns the lines of `expected` that convert what the kernel was given into the terms of the equation.
std::string reading(const Given& given, const RecurrentSystem& system, const BatchShape& shape) {
  std::string out;
  const auto line = [&](const char* text) { out += fmt::format("    {}\n", text); };
  if (system.family.gated && given.decay != Given::Decay::ln) {
    line(given.decay == Given::Decay::linear
             ? "with np.errstate(divide=\"ignore\"):\n"
               "        g = np.log(g)  # the kernel takes the decay as a factor"
         : given.decay == Given::Decay::log2
             ? "g = g * np.log(2)  # the kernel takes the logarithm of base 2"
             : "g = -np.logaddexp(0, g)  # the kernel applies -softplus itself");
  }
  if (system.family.delta && given.strength != Given::Strength::beta) {
    line(given.strength == Given::Strength::logit
             ? "beta = 1 / (1 + np.exp(-beta))  # the kernel takes a logit"
             : "beta = 2 / (1 + np.exp(-beta))  # the kernel takes a logit, and doubles its sigmoid");
  }
  if (given.folded_scale && !shape.l2norm) line("# q is multiplied by the scale before the call");
  if (!shape.l2norm) return out;
  const char* norm =
      given.norm == Given::NormPlace::inside
          ? "q, k = (y / np.sqrt(np.sum(y * y, 1, keepdims=True) + {}) for y in (q, k))"
      : given.norm == Given::NormPlace::outside
          ? "q, k = (y / (np.sqrt(np.sum(y * y, 1, keepdims=True)) + {}) for y in (q, k))"
          : "q, k = (y / np.maximum(np.sqrt(np.sum(y * y, 1, keepdims=True)), {}) for y in (q, k))";
  line(fmt::format(fmt::runtime(norm), given.norm_epsilon).c_str());
  return out;
}

constexpr const char* kFamilyExpected = R"py(
def expected(n, h):
    """o [T, dv] and the final state [dk, dv] of sequence n, value head h, in float64 from what the kernel is given."""
    b, begin, end = SEQUENCES[n]
    kh = @KEY_HEAD@
    q, k, v = (DATA[x][b, begin:end, i].astype(float) for x, i in (("q", kh), ("k", kh), ("v", h)))
    g = @G@
    beta = @BETA@
@READING@    S = @STATE@
    return reference(q, k, v, g, beta, S, @SCALE@)
)py";

constexpr const char* kFamilyCalled = R"py(
def results():
    """o and the final state: the calls of the case in their order, the state carried from each to the next."""
    state, parts = DATA.get("initial_state"), []
    for begin, end, chunk in CALLS:
        x = {name: DATA[name][:, begin:end] for name in ("q", "k", "v", "g", "beta") if name in DATA}
        o, state = kernel(x, state, CU_SEQLENS, chunk)
        parts.append(o)
    return np.concatenate(parts, 1), state
)py";

constexpr const char* kFamilyRecorded = R"py(
def results():
    """o and the final state, as the kernel gave them."""
    return DATA["recorded o"].astype(float), DATA["recorded final_state"].astype(float)
)py";

constexpr const char* kFamilyMain = R"py(    o, final_state = results()
    for i, (n, h) in enumerate(HEADS):
        b, begin, end = SEQUENCES[n]
        wanted, S = expected(n, h)
        actual, where = o[b, begin:end, h], f"sequence {n}, head {h}"
        errors = np.linalg.norm(actual - wanted, axis=1)
        look("o", actual, wanted)
        hold("o", "row, 2-norm", errors, DATA["limit row"][i, :end - begin], lambda t: f"{where}, token {t}")
        if end > begin:
            rms = np.sqrt(np.mean(errors ** 2))
            hold("o", "rows of a head, RMS", [rms], DATA["limit head"][i:i + 1], lambda _: where)
        look("final_state", final_state[n, h], S)
        norm = np.linalg.norm(final_state[n, h] - S)
        hold("final_state", "state, Frobenius norm", [norm], DATA["limit state"][i:i + 1], lambda _: where)
)py";

/// Returns true if a script fails on the values that it compares.
bool fails_here(const Limits& limits, const Trajectory<double>& exact, const Matrix<double>& o,
                const Matrix<double>& state) {
  const Vector<double> error = (o - exact.o).rowwise().norm();
  bool fails = breaks((state - exact.state).norm(), limits.state) ||
               (error.size() > 0 && breaks(root_mean_square(error), limits.head));
  for (Index t = 0; t < error.size(); ++t)
    fails = fails || breaks(error(t), limits.rows[static_cast<std::size_t>(t)]);
  return fails;
}

/// Returns all heads if there are few, otherwise the worst one and others spread over the rest.
std::vector<Place> places_of(const BatchShape& shape, const Location& worst) {
  std::vector<Place> places;
  const std::int64_t first =
      std::max<std::int64_t>(worst.sequence, 0) * shape.Hv + std::max<std::int64_t>(worst.head, 0);
  for (const std::int64_t i : compared_of(shape.sequences() * shape.Hv, first))
    places.push_back({i / shape.Hv, i % shape.Hv});
  return places;
}

std::string sequences_of(const BatchShape& shape) {
  std::vector<std::string> all;
  for (std::int64_t n = 0; n < shape.sequences(); ++n)
    all.push_back(fmt::format("({}, {}, {})", shape.offsets.empty() ? n : 0, shape.begin(n), shape.end(n)));
  return fmt::format("[{}]", fmt::join(all, ", "));
}

}  // namespace

std::string offsets_of(const BatchShape& shape) {
  return shape.offsets.empty() ? "None" : fmt::format("[{}]", fmt::join(shape.offsets, ", "));
}

std::string calls_of(const Path& path) {
  std::vector<std::string> calls;
  Index begin = 0;
  for (const Segment& segment : path) {
    if (!segment.cuts.empty() || !segment.head_cuts.empty())
      throw Error("--script: calls over ranks are more than one file can make; leave ranks out of the line");
    const Index step = segment.token_by_token ? 1 : std::max<Index>(segment.tokens, 1);
    for (Index t = 0; t < std::max<Index>(segment.tokens, 1); t += step)
      calls.push_back(
          fmt::format("({}, {}, {})", begin + t, begin + std::min(t + step, segment.tokens), segment.chunk));
    begin += segment.tokens;
  }
  return fmt::format("[{}]", fmt::join(calls, ", "));
}

std::string settings_of(const Resolved& r, const BatchShape& shape) {
  const auto dtype = [](Format format) {
    return format == Format::bf16 ? "bf16" : format == Format::fp16 ? "fp16" : "fp32";
  };
  return fmt::format(
      "SCALE, L2NORM, HEAD_MAP, CONTRACT = {}, {}, \"{}\", {}\n"
      "DTYPES = {{\"q\": \"{}\", \"k\": \"{}\", \"v\": \"{}\", \"g\": \"fp32\", \"beta\": \"fp32\", "
      "\"initial_state\": \"{}\"}}\n",
      static_cast<double>(static_cast<float>(shape.scale)), shape.l2norm ? "True" : "False",
      shape.head_map == HeadMap::tiled ? "tiled" : "interleaved", python_string(r.promised.name),
      dtype(r.promised.input), dtype(r.promised.input), dtype(r.promised.input), dtype(r.promised.state));
}

std::string data_of(const Batch& batch, const std::string& prefix) {
  const BatchShape& s = batch.shape;
  const Given& given = s.given;
  std::string out;
  const auto add = [&](const char* name, std::vector<std::int64_t> shape, std::vector<float> values,
                       auto&& as) {
    for (float& x : values) x = static_cast<float>(as(static_cast<double>(x)));
    if (!values.empty() || std::ranges::count(shape, 0) > 0)
      out += python_array(prefix + name, shape, values);
  };
  const auto itself = [](double x) { return x; };
  add("q", {s.B, s.T, s.Hk, s.dk}, batch.q,
      [&](double x) { return s.l2norm ? x : given.given_q(x, s.scale); });
  add("k", {s.B, s.T, s.Hk, s.dk}, batch.k, itself);
  add("v", {s.B, s.T, s.Hv, s.dv}, batch.v, itself);
  if (!batch.g.empty()) add("g", {s.B, s.T, s.Hv}, batch.g, [&](double x) { return given.given_g(x); });
  if (!batch.beta.empty())
    add("beta", {s.B, s.T, s.Hv}, batch.beta, [&](double x) { return given.given_beta(x); });
  if (!batch.initial_state.empty())
    add("initial_state", {s.sequences(), s.Hv, s.dk, s.dv}, batch.initial_state, itself);
  return out;
}

Parts family_parts(const RecurrentSystem& system, const Resolved& r, const Record& record, const Trace& trace,
                   const ScriptWords& words, bool alone) {
  Parts parts;
  Batch batch = system.batch(r, trace.inputs, trace.given);
  Outputs outputs = outputs_of(trace.outputs);
  Path path = r.path(batch.shape.T);
  std::vector<Place> places = places_of(batch.shape, record.judgement.worst);
  if (alone) {
    const auto [n, h] = places.front();
    const Matrix<double> o = rows_of(batch, outputs, n, h), state = state_of(batch, outputs, n, h);
    path = path_of_sequence(path, batch.shape, n);
    batch = heads_of(sequence_alone(batch, n), {h});
    outputs = {{o.data(), o.data() + o.size()}, {state.data(), state.data() + state.size()}};
    places = {{0, 0}};
    parts.cut =
        fmt::format("sequence {}, value head {} of the case alone: here they are sequence 0, head 0", n, h);
  }
  const BatchShape& s = batch.shape;
  const bool recorded = words.call.empty();
  std::vector<float> rows, heads, states;
  std::vector<std::string> compared;
  std::int64_t longest = 0;
  for (const Place& place : places)
    longest = std::max(longest, s.end(place.sequence) - s.begin(place.sequence));
  for (const auto& [n, h] : places) {
    const Sequence<double> x = sequence_of(batch, n, h);
    const Limits limits = limits_of(r, system, x, path_of_sequence(path, s, n), s.l2norm);
    compared.push_back(fmt::format("({}, {})", n, h));
    rows.insert(rows.end(), limits.rows.begin(), limits.rows.end());
    rows.resize(compared.size() * static_cast<std::size_t>(longest), kNone);
    heads.push_back(limits.head);
    states.push_back(limits.state);
    const auto finite = [](float limit) { return std::isfinite(limit); };
    parts.judged = parts.judged || finite(limits.state) || std::ranges::any_of(limits.rows, finite);
    if (!outputs.final_state.empty())
      parts.fails = parts.fails || fails_here(limits, system.family.recurrent(x),
                                              rows_of(batch, outputs, n, h), state_of(batch, outputs, n, h));
  }
  const bool folded = s.given.folded_scale && !s.l2norm;
  parts.constants = fmt::format(
      "SEQUENCES = {}  # of each: row of the batch, first token, end\n"
      "HEADS = [{}]  # sequence and value head of all that is compared\n{}",
      sequences_of(s), fmt::join(compared, ", "), settings_of(r, s));
  if (!recorded)
    parts.constants +=
        fmt::format("CALLS = {}  # first token, end, chunk (0: none) of each\nCU_SEQLENS = {}\n",
                    calls_of(path), offsets_of(s));
  const std::int64_t group = s.Hv / std::max<std::int64_t>(s.Hk, 1);
  parts.reference =
      std::string(numpy_text(system.name)) + "\n" +
      filled_in(kFamilyExpected,
                {{"KEY_HEAD",
                  s.head_map == HeadMap::tiled ? fmt::format("h % {}", s.Hk) : fmt::format("h // {}", group)},
                 {"G", system.family.gated ? "DATA[\"g\"][b, begin:end, h].astype(float)" : "None"},
                 {"BETA", system.family.delta ? "DATA[\"beta\"][b, begin:end, h].astype(float)" : "None"},
                 {"READING", reading(s.given, system, s)},
                 {"STATE", batch.initial_state.empty() ? fmt::format("np.zeros(({}, {}))", s.dk, s.dv)
                                                       : "DATA[\"initial_state\"][n, h].astype(float)"},
                 {"SCALE", folded ? "1.0" : "SCALE"}});
  parts.results = recorded ? kFamilyRecorded : kFamilyCalled;
  parts.main = kFamilyMain;
  parts.data = data_of(batch, "");
  const auto count = static_cast<std::int64_t>(compared.size());
  parts.data += python_array("limit row", std::vector{count, longest}, rows) +
                python_array("limit head", std::vector{count}, heads) +
                python_array("limit state", std::vector{count}, states);
  if (recorded)
    parts.data += python_array("recorded o", std::vector{s.B, s.T, s.Hv, s.dv}, outputs.o) +
                  python_array("recorded final_state", std::vector{s.sequences(), s.Hv, s.dk, s.dv},
                               outputs.final_state);
  parts.limits =
      r.regime->exact
          ? "every value on the way is a small integer times a power of two, which these formats hold: no "
            "rounding happens, and a correct kernel gives the exact result"
          : "the error that the roundings of this contract make of these data is propagated through the "
            "recurrence, to first order by second moments (4 to 16 of its standard deviations are allowed, "
            "by how the roundings of these data hang together) plus a bound of all higher orders, and never "
            "more than the worst case";
  return parts;
}

}  // namespace samestate::script_detail
