#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "harness/script/script_parts.h"
#include "oracles/numbers.h"
#include "reference/error.h"

/// Scripts of laws, which compare two runs of one kernel.
namespace samestate::script_detail {
namespace {

constexpr const char* kLawCalled = R"py(
def run(prefix, calls, cu_seqlens):
    """o and the final state of one run: its calls in their order, the state carried from each to the next."""
    state, parts = DATA.get(prefix + "initial_state"), []
    for begin, end, chunk in calls:
        names = [name for name in ("q", "k", "v", "g", "beta") if prefix + name in DATA]
        x = {name: DATA[prefix + name][:, begin:end] for name in names}
        o, state = kernel(x, state, cu_seqlens, chunk)
        parts.append(o)
    return np.concatenate(parts, 1), state


def results():
    """Of each pair the rows and the state of @FIRST@, then those of @SECOND@."""
    runs = [run(prefix, CALLS[prefix], CU_SEQLENS[prefix]) for prefix in ("first ", "second ")]
    for one, other, rows in PAIRS:
        yield [(o[b, t:t + rows, h], state[n, h]) for (o, state), (n, h, b, t) in zip(runs, (one, other))]
)py";

constexpr const char* kLawRecorded = R"py(
def results():
    """Of each pair the rows and the state of @FIRST@, then those of @SECOND@, as the kernel gave them."""
    for i in range(len(PAIRS)):
        yield [(DATA[f"{side} o {i}"].astype(float), DATA[f"{side} state {i}"].astype(float)) for side in ("first", "second")]
)py";

constexpr const char* kLawMain = R"py(    for i, ((o1, S1), (o2, S2)) in enumerate(results()):
        n, h, _, t = PAIRS[i][0]
        where = f"sequence {n}, head {h}"
        look("o", o1, o2)
        hold("o", "row, 2-norm", np.linalg.norm(o1 - o2, axis=1), DATA[f"limit row {i}"], lambda at: f"{where}, token {t + at}")
        look("final_state", S1, S2)
        hold("final_state", "state, Frobenius norm", [np.linalg.norm(S1 - S2)], DATA[f"limit state {i}"], lambda _: where)
)py";

constexpr const char* kTensorMain = R"py(    for i, (name, sequence) in enumerate(PAIRS):
        one, other = (DATA[f"{side} {i}"].astype(float) for side in ("first", "second"))
        look(name, one, other)
        hold(name, "element", np.abs(one - other), DATA[f"limit {i}"],
             lambda at: f"sequence {sequence}, element {list(map(int, np.unravel_index(at, one.shape)))}")
)py";

constexpr const char* kLimits =
    "each of the two runs may be off by as much as the roundings of the contract make of its own data, and "
    "two right runs "
    "by no more than the sum of both";

/// The number of pairs that a script compares, the worst one first.
constexpr std::size_t kPairs = 4;

float limit_of(double first, double second) { return rounded_up(first + second); }

struct Of {
  const LawPair* pair = nullptr;
  double ratio = -1.0;
};

Of worst_of(const LawPair& pair) {
  Of of{&pair};
  const auto see = [&](double error, double limit) {
    const double ratio = std::isnan(error) ? kInfinity : error == 0.0 ? 0.0 : error / limit;
    of.ratio = std::max(of.ratio, ratio);
  };
  for (Index t = 0; t < pair.rows; ++t)
    see((pair.first.o.row(pair.first_row + t) - pair.second.o.row(pair.second_row + t)).norm(),
        pair.first.oracle.row(pair.first_row + t) + pair.second.oracle.row(pair.second_row + t));
  if (pair.states)
    see((pair.first.state - pair.second.state).norm(), pair.first.oracle.state + pair.second.oracle.state);
  return of;
}

/// Adds the values of both sides and the limits of rows and state.
void add_pair(Parts& parts, const LawPair& pair, std::size_t i, bool recorded) {
  const std::vector<std::int64_t> rows{pair.rows, pair.first.o.cols()};
  const std::vector<std::int64_t> state{pair.first.state.rows(), pair.first.state.cols()};
  std::vector<float> limits;
  const Matrix<double> o1 = pair.first.o.middleRows(pair.first_row, pair.rows);
  const Matrix<double> o2 = pair.second.o.middleRows(pair.second_row, pair.rows);
  for (Index t = 0; t < pair.rows; ++t) {
    limits.push_back(
        limit_of(pair.first.oracle.row(pair.first_row + t), pair.second.oracle.row(pair.second_row + t)));
    parts.fails = parts.fails || breaks((o1.row(t) - o2.row(t)).norm(), limits.back());
    parts.judged = parts.judged || std::isfinite(limits.back());
  }
  const float of_state = pair.states ? limit_of(pair.first.oracle.state, pair.second.oracle.state)
                                     : std::numeric_limits<float>::infinity();
  if (pair.states) {
    parts.fails = parts.fails || breaks((pair.first.state - pair.second.state).norm(), of_state);
    parts.judged = parts.judged || std::isfinite(of_state);
  }
  parts.data +=
      python_array(fmt::format("limit row {}", i), std::vector{pair.rows}, limits) +
      python_array(fmt::format("limit state {}", i), std::vector<std::int64_t>{1}, std::vector{of_state});
  if (!recorded) return;
  const auto values = [](const Matrix<double>& x) {
    return std::span<const double>(x.data(), static_cast<std::size_t>(x.size()));
  };
  parts.data += python_array(fmt::format("first o {}", i), rows, values(o1)) +
                python_array(fmt::format("second o {}", i), rows, values(o2)) +
                python_array(fmt::format("first state {}", i), state, values(pair.first.state)) +
                python_array(fmt::format("second state {}", i), state,
                             values(pair.states ? pair.second.state : pair.first.state));
}

/// Returns "(n, h, row of the batch, first token)" for one side.
std::string side_of(const LawHead& head, const std::optional<LawRun>& run, Index row) {
  std::int64_t b = head.sequence, begin = 0;
  if (run && !run->batch.shape.offsets.empty()) b = 0, begin = run->batch.shape.begin(head.sequence);
  return fmt::format("({}, {}, {}, {})", head.sequence, head.head, b, begin + row);
}

}  // namespace

Parts law_parts(const RecurrentSystem&, const Resolved& r, const Trace& trace, const ScriptWords& words) {
  const LawComparison* worst = nullptr;
  double most = -1.0;
  for (const LawComparison& comparison : trace.law.comparisons) {
    for (const LawPair& pair : comparison.pairs) {
      if (const double ratio = worst_of(pair).ratio; ratio > most) most = ratio, worst = &comparison;
    }
  }
  if (worst == nullptr) throw Error(fmt::format("--script: law={} left no two runs to compare", r.c.law));
  if (worst->at_most)
    throw Error(fmt::format(
        "--script: law={} lets one run be less than the other, which two runs side by side do not "
        "show; `samestate repro` explains it",
        r.c.law));
  std::vector<Of> pairs;
  for (const LawPair& pair : worst->pairs) pairs.push_back(worst_of(pair));
  std::ranges::stable_sort(pairs, std::greater<>(), &Of::ratio);
  if (pairs.size() > kPairs) pairs.resize(kPairs);
  const bool recorded = words.call.empty();
  if (!recorded && (!worst->first_run || !worst->second_run))
    throw Error(fmt::format(
        "--script: law={} compares with what no single run gives (\"{}\", \"{}\"); `samestate repro` "
        "explains it",
        r.c.law, worst->first, worst->second));
  Parts parts;
  std::vector<std::string> sides;
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    const LawPair& pair = *pairs[i].pair;
    add_pair(parts, pair, i, recorded);
    sides.push_back(fmt::format("({}, {}, {})", side_of(pair.first, worst->first_run, pair.first_row),
                                side_of(pair.second, worst->second_run, pair.second_row), pair.rows));
  }
  parts.constants = fmt::format(
      "# Of each pair, for the first run and for the second: sequence, value head, row of the batch, first "
      "token; then rows.\n"
      "PAIRS = [{}]\n",
      fmt::join(sides, ", "));
  if (!recorded) {
    const LawRun &first = *worst->first_run, &second = *worst->second_run;
    parts.constants += settings_of(r, first.batch.shape);
    parts.constants += fmt::format(
        "CALLS = {{\"first \": {}, \"second \": {}}}  # first token, end, chunk (0: none) of each\n"
        "CU_SEQLENS = {{\"first \": {}, \"second \": {}}}\n",
        calls_of(first.path), calls_of(second.path), offsets_of(first.batch.shape),
        offsets_of(second.batch.shape));
    parts.data += data_of(first.batch, "first ") + data_of(second.batch, "second ");
  }
  parts.results =
      filled_in(recorded ? kLawRecorded : kLawCalled, {{"FIRST", worst->first}, {"SECOND", worst->second}});
  parts.main = kLawMain;
  parts.limits = fmt::format("two runs have to agree, the first: {}; the second: {}. {}", worst->first,
                             worst->second, kLimits);
  return parts;
}

Parts law_parts(const TensorSystem&, const Resolved& r, const Trace& trace, const ScriptWords& words) {
  if (!words.call.empty())
    throw Error(fmt::format(
        "--script: the runs of law={} of {} are not kept, so that nothing can be called; leave law= out "
        "for one run",
        r.c.law, r.c.system));
  const TensorLawComparison* worst = nullptr;
  double most = -1.0;
  for (const TensorLawComparison& comparison : trace.tensor_law) {
    for (const TensorLawPair& pair : comparison.pairs) {
      for (Index i = 0; i < pair.rows * pair.first.values.cols(); ++i) {
        const double limit = pair.first.tolerance.data()[i] + pair.second.tolerance.data()[i];
        const double error = std::abs(pair.first.values.data()[i] - pair.second.values.data()[i]);
        const double ratio = std::isnan(error) ? kInfinity : error == 0.0 ? 0.0 : error / limit;
        if (ratio > most) most = ratio, worst = &comparison;
      }
    }
  }
  if (worst == nullptr) throw Error(fmt::format("--script: law={} left no two runs to compare", r.c.law));
  Parts parts;
  std::vector<std::string> pairs;
  for (const TensorLawPair& pair : worst->pairs) {
    const std::size_t i = pairs.size();
    pairs.push_back(fmt::format("({}, {})", python_string(pair.output), pair.sequence));
    const std::vector<std::int64_t> shape{pair.rows, pair.first.values.cols()};
    const auto count = static_cast<std::size_t>(pair.rows * pair.first.values.cols());
    std::vector<float> limits;
    for (std::size_t e = 0; e < count; ++e) {
      limits.push_back(limit_of(pair.first.tolerance.data()[e], pair.second.tolerance.data()[e]));
      parts.judged = parts.judged || std::isfinite(limits.back());
      parts.fails =
          parts.fails ||
          breaks(std::abs(pair.first.values.data()[e] - pair.second.values.data()[e]), limits.back());
    }
    parts.data +=
        python_array(fmt::format("first {}", i), shape, std::span(pair.first.values.data(), count)) +
        python_array(fmt::format("second {}", i), shape, std::span(pair.second.values.data(), count)) +
        python_array(fmt::format("limit {}", i), shape, limits);
  }
  parts.constants = fmt::format("PAIRS = [{}]  # output and sequence of each\n", fmt::join(pairs, ", "));
  parts.main = kTensorMain;
  parts.limits = fmt::format("two runs have to agree, the first: {}; the second: {}. {}", worst->first,
                             worst->second, kLimits);
  return parts;
}

}  // namespace samestate::script_detail
