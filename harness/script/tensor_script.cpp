#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "harness/script/script_parts.h"
#include "oracles/systems/numpy_text.h"
#include "reference/error.h"

/// Scripts of the systems of named tensors.
namespace samestate::script_detail {
namespace {

constexpr const char* kExpected = R"py(
def expected(b):
    """The outputs of sequence b by name, in float64."""
    x = {name: DATA[name].astype(float) if name in SHARED else DATA[name][b].astype(float) for name in INPUTS}
    with np.errstate(over="ignore", under="ignore"):
        return reference(x, SIZE)
)py";

constexpr const char* kEmbedded = R"py(
def expected(b):
    """The outputs of sequence b by name: the equation @EQUATION@, which samestate evaluated in
    float64; it is no short text."""
    return {name: DATA["expected " + name][b] for name in OUTPUTS}
)py";

constexpr const char* kRecorded = R"py(
def results():
    """The outputs by name, as the kernel gave them."""
    return {name: DATA["recorded " + name].astype(float) for name in OUTPUTS}
)py";

constexpr const char* kCalled = R"py(
def results():
    """The outputs by name: the calls of the case in their order, states carried from each to the next."""
    carried, parts = {name: DATA[name] for name in INPUTS if KIND[name] == "state"}, {}
    for begin, end, chunk in CALLS:
        rows = {"tokens": slice(begin, end), "prefix": slice(0, end)}
        x = {name: DATA[name][:, rows[KIND[name]]] if KIND[name] in rows else DATA[name] for name in INPUTS}
        for name, y in kernel({**x, **carried}, chunk).items():
            if KIND[name] == "state":
                carried[name] = parts[name] = y
            else:
                parts.setdefault(name, []).append(y)
    return {name: np.concatenate(y, 1) if isinstance(y, list) else y for name, y in parts.items()}
)py";

constexpr const char* kMain = R"py(    outputs = results()
    for i, b in enumerate(COMPARED):
        wanted = expected(b)
        for name in OUTPUTS:
            first = wanted[name].shape[0] - outputs[name][b].shape[0]  # tokens whose call is not made
            actual, exact, limits = outputs[name][b], wanted[name][first:], DATA["limit " + name][i][first:]
            look(name, actual, exact)

            def place(at):
                where = np.unravel_index(at, exact.shape)
                return f"sequence {b}, element [" + ", ".join(map(str, (where[0] + first,) + where[1:])) + "]"

            hold(name, "element", np.abs(actual - exact), limits, place)
)py";

/// What a script says of a tensor's rows.
std::string_view kind_of(Axis axis) {
  switch (axis) {
    case Axis::tokens:
      return "tokens";
    case Axis::prefix:
      return "prefix";
    case Axis::state:
      return "state";
    default:
      return "whole";
  }
}

std::vector<float> floats_of(const Matrix<double>& x) { return {x.data(), x.data() + x.size()}; }

}  // namespace

Parts tensor_parts(const TensorSystem& system, const Resolved& r, const Record& record, const Trace& trace,
                   const ScriptWords& words, bool alone) {
  if (r.form->packed)
    throw Error(fmt::format(
        "--script: form=packed of {} is not written as a script; --dump writes its tensors", system.name));
  Parts parts;
  const Signature signature = system.row.signature(system.call(r.c, trace.native));
  const bool recorded = words.call.empty();
  const std::string_view equation = numpy_text(system.name);
  if (trace.oracles.empty()) throw Error("--script: nothing is known of what is expected of this run");
  std::vector<std::int64_t> compared =
      compared_of(r.c.B, std::max<std::int64_t>(record.judgement.worst.sequence, 0));
  if (alone) {
    parts.cut = fmt::format("sequence {} of the case alone: here it is sequence 0", compared.front());
    compared.resize(1);
  }
  const std::int64_t first = alone ? compared.front() : 0, count = alone ? 1 : r.c.B;
  std::vector<std::string> inputs, shared, outputs, kinds;
  const auto kind = [&](const TensorSpec& spec) {
    const std::string text = fmt::format("\"{}\": \"{}\"", spec.name, kind_of(spec.axis));
    if (std::ranges::find(kinds, text) == kinds.end()) kinds.push_back(text);
  };
  const auto whole = [&](const TensorSpec& spec, bool batched, std::int64_t sequences) {
    std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
    if (batched) shape.insert(shape.begin(), sequences);
    return shape;
  };
  for (const CaseTensor& x : trace.inputs) {
    inputs.push_back(fmt::format("\"{}\"", x.spec.name));
    if (!x.batched) shared.push_back(inputs.back());
    kind(x.spec);
    const auto size = static_cast<std::size_t>(x.spec.size());
    std::span<const float> values = x.data;
    if (x.batched)
      values = values.subspan(static_cast<std::size_t>(first) * size, static_cast<std::size_t>(count) * size);
    parts.data += python_array(x.spec.name, whole(x.spec, x.batched, count), values);
  }
  const std::vector<Tensors<double>> actual = by_sequence(trace.outputs);
  const bool embedded = equation.empty();
  for (const TensorSpec& spec : signature.outputs) {
    outputs.push_back(fmt::format("\"{}\"", spec.name));
    kind(spec);
    // Rows of tokens whose call is not made are nobody's.
    const Index given = r.c.cached && r.c.T > 0 ? spec.size() / r.c.T * r.c.prefill : 0;
    std::vector<float> limits, got;
    std::vector<double> exact_values;
    for (const std::int64_t b : compared) {
      const OperatorOracle& oracle = trace.oracles.at(static_cast<std::size_t>(b));
      const Matrix<double>& exact = get(oracle.exact, spec.name);
      const Matrix<double>& tolerance = get(oracle.tolerance, spec.name);
      for (Index i = 0; i < exact.size(); ++i) {
        const float limit =
            i < given ? std::numeric_limits<float>::infinity() : rounded_up(tolerance.data()[i]);
        limits.push_back(limit);
        parts.judged = parts.judged || std::isfinite(limit);
        if (actual.empty() || i < given) continue;
        const double y = get(actual[static_cast<std::size_t>(b)], spec.name).data()[i];
        parts.fails = parts.fails || breaks(std::abs(y - exact.data()[i]), limit);
      }
    }
    for (std::int64_t b = first; b < first + count; ++b) {
      const auto at = static_cast<std::size_t>(b);
      if (recorded) {
        const std::vector<float> values = floats_of(get(actual.at(at), spec.name));
        got.insert(got.end(), values.begin(), values.end());
      }
      const Matrix<double>& exact = get(trace.oracles.at(at).exact, spec.name);
      if (embedded) exact_values.insert(exact_values.end(), exact.data(), exact.data() + exact.size());
    }
    parts.data += python_array("limit " + spec.name, whole(spec, true, std::ssize(compared)), limits);
    if (recorded) parts.data += python_array("recorded " + spec.name, whole(spec, true, count), got);
    if (embedded) parts.data += python_array("expected " + spec.name, whole(spec, true, count), exact_values);
  }
  if (alone) compared = {0};
  std::vector<std::string> sizes;
  for (const auto& [name, value] : r.c.parameters) sizes.push_back(fmt::format("\"{}\": {}", name, value));
  parts.constants =
      fmt::format("SIZE = {{{}}}\nINPUTS, SHARED, OUTPUTS = [{}], [{}], [{}]\nCOMPARED = [{}]  # sequences\n",
                  fmt::join(sizes, ", "), fmt::join(inputs, ", "), fmt::join(shared, ", "),
                  fmt::join(outputs, ", "), fmt::join(compared, ", "));
  if (!recorded) {
    std::vector<std::string> calls;
    Index begin = r.c.cached ? r.c.prefill : 0;
    std::vector<Index> ends = cuts_of(r);
    std::erase_if(ends, [&](Index end) { return end <= begin; });
    ends.push_back(r.c.T);
    for (const Index end : ends)
      calls.push_back(fmt::format("({}, {}, {})", std::exchange(begin, end), end, r.c.chunk));
    parts.constants += fmt::format(
        "KIND = {{{}}}\nCALLS = [{}]  # first token, end, chunk (0: none) of each\nBATCH, CONTRACT = {}, "
        "{}\n",
        fmt::join(kinds, ", "), fmt::join(calls, ", "), r.c.B, python_string(r.promised.name));
  }
  parts.reference = embedded ? filled_in(kEmbedded, {{"EQUATION", std::string(system.equation)}})
                             : std::string(equation) + "\n" + kExpected;
  parts.results = recorded ? kRecorded : kCalled;
  parts.main = kMain;
  parts.limits =
      "the half unit in the last place of every operation on the way to an element, carried on to first "
      "order by the "
      "operations behind it, is summed without any luck: the worst case";
  return parts;
}

}  // namespace samestate::script_detail
