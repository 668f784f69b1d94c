#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "harness/script/script_parts.h"
#include "oracles/systems/numpy_text.h"
#include "reference/error.h"

/// Scripts of the systems of named tensors.
namespace samestate::script_detail {
namespace {

/// The sequences of a packed batch lie one after another in rows of tokens; other batches have one row per
/// sequence.
constexpr const char* kPacked = R"py(
def part(name, x, b):
    """Sequence b of a tensor: its tokens, or its state."""
    return x[0, CU_SEQLENS[b]:CU_SEQLENS[b + 1]] if KIND[name] in ("tokens", "prefix") else x[b]
)py";

constexpr const char* kExpected = R"py(
def expected(b):
    """The outputs of sequence b by name, in float64."""
    x = {name: DATA[name].astype(float) if name in SHARED else @INPUT@.astype(float) for name in INPUTS}
    with np.errstate(over="ignore", under="ignore"):
        return reference(x, SIZE)
)py";

constexpr const char* kEmbedded = R"py(
def expected(b):
    """The outputs of sequence b by name: the equation @EQUATION@, which samestate evaluated in
    float64; it is no short text."""
    return {name: @EXPECTED@ for name in OUTPUTS}
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
    for @B@ in @COMPARED@:
        wanted = expected(b)
        for name in OUTPUTS:
            actual = @ACTUAL@
            first = wanted[name].shape[0] - actual.shape[0]  # tokens whose call is not made
            exact, limits = wanted[name][first:], @LIMIT@[first:]
            look(name, actual, exact)

            def place(at):
                where = np.unravel_index(at, exact.shape)
                return f"sequence {b}, element [" + ", ".join(map(str, (where[0] + first,) + where[1:])) + "]"

            hold(name, "element", np.abs(actual - exact), limits, place)
)py";

/// Returns a script's name for the rows of a tensor.
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

/// The sequences of a batch that a script contains, and how it finds each of them.
struct ScriptedBatch {
  const Case& c;
  bool packed = false;
  std::int64_t first = 0, count = 0;  ///< its sequences among those of the case
  std::vector<std::int64_t>
      compared;  ///< the sequences of the case that have limits; a packed batch has them for all

  [[nodiscard]] std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> ends{0};
    for (std::int64_t b = first; b < first + count; ++b) ends.push_back(ends.back() + tokens_of(c, b));
    return ends;
  }

  [[nodiscard]] bool of_tokens(Axis axis) const {
    return packed && (axis == Axis::tokens || axis == Axis::prefix);
  }

  /// Returns the shape of a tensor for `sequences` sequences; a packed tensor always contains all of them.
  [[nodiscard]] std::vector<std::int64_t> shape(const TensorSpec& spec, bool batched,
                                                std::int64_t sequences) const {
    std::vector<std::int64_t> shape(spec.shape.begin(), spec.shape.end());
    if (of_tokens(spec.axis)) {
      shape.front() = offsets().back();
      sequences = 1;
    }
    if (batched) shape.insert(shape.begin(), sequences);
    return shape;
  }

  /// Returns the values of the script's sequences out of all values of the case.
  [[nodiscard]] std::span<const float> values(const CaseTensor& x) const {
    const std::span<const float> all = x.data;
    if (!x.batched) return all;
    const auto each = [&](std::int64_t n) {
      const std::int64_t tokens = of_tokens(x.spec.axis) ? c.T : 1;
      return static_cast<std::size_t>(tokens > 0 ? x.spec.size() / tokens * n : 0);
    };
    if (!of_tokens(x.spec.axis)) return all.subspan(each(first), each(count));
    std::int64_t before = 0;
    for (std::int64_t b = 0; b < first; ++b) before += tokens_of(c, b);
    return all.subspan(each(before), each(offsets().back()));
  }

  /// Formats a text with the expression that reads sequence b.
  [[nodiscard]] std::string read(const char* text) const {
    const auto at = [&](const std::string& x) {
      return packed ? fmt::format("part(name, {}, b)", x) : x + "[b]";
    };
    return filled_in(text, {{"INPUT", at("DATA[name]")},
                            {"EXPECTED", at("DATA[\"expected \" + name]")},
                            {"ACTUAL", at("outputs[name]")},
                            {"LIMIT", packed ? at("DATA[\"limit \" + name]") : "DATA[\"limit \" + name][i]"},
                            {"B", packed ? "b" : "i, b"},
                            {"COMPARED", packed ? "COMPARED" : "enumerate(COMPARED)"}});
  }
};

}  // namespace

Parts tensor_parts(const TensorSystem& system, const Resolved& r, const Record& record, const Trace& trace,
                   const ScriptWords& words, bool alone) {
  Parts parts;
  const Signature signature = system.row.signature(system.call(r.c, trace.native));
  const bool recorded = words.call.empty();
  const std::string_view equation = numpy_text(system.name);
  if (trace.oracles.empty()) throw Error("--script: nothing is known of what is expected of this run");
  ScriptedBatch batch{r.c, r.form->packed, 0, sequences_of(r.c), {}};
  batch.compared = compared_of(batch.count, std::max<std::int64_t>(record.judgement.worst.sequence, 0));
  if (alone) {
    parts.cut = fmt::format("sequence {} of the case alone: here it is sequence 0", batch.compared.front());
    batch.compared.resize(1);
    batch.first = batch.compared.front(), batch.count = 1;
  }
  // Limits of a packed batch have the layout of its tensors; they are infinite for sequences that are not
  // compared.
  std::vector<std::int64_t> limited = batch.compared;
  if (batch.packed) {
    limited.resize(static_cast<std::size_t>(batch.count));
    std::iota(limited.begin(), limited.end(), batch.first);
  }
  std::vector<std::string> inputs, shared, outputs, kinds;
  const auto kind = [&](const TensorSpec& spec) {
    const std::string text = fmt::format("\"{}\": \"{}\"", spec.name, kind_of(spec.axis));
    if (std::ranges::find(kinds, text) == kinds.end()) kinds.push_back(text);
  };
  for (const CaseTensor& x : trace.inputs) {
    inputs.push_back(fmt::format("\"{}\"", x.spec.name));
    if (!x.batched) shared.push_back(inputs.back());
    kind(x.spec);
    parts.data += python_array(x.spec.name, batch.shape(x.spec, x.batched, batch.count), batch.values(x));
  }
  const std::vector<Tensors<double>> actual = by_sequence(trace.outputs);
  const bool embedded = equation.empty();
  for (const TensorSpec& spec : signature.outputs) {
    outputs.push_back(fmt::format("\"{}\"", spec.name));
    kind(spec);
    // Token rows whose call is not made belong to no sequence.
    const Index given = r.c.cached && r.c.T > 0 ? spec.size() / r.c.T * r.c.prefill : 0;
    std::vector<float> limits, got;
    std::vector<double> exact_values;
    for (const std::int64_t b : limited) {
      const bool held = std::ranges::find(batch.compared, b) != batch.compared.end();
      const OperatorOracle& oracle = trace.oracles.at(static_cast<std::size_t>(b));
      const Matrix<double>& exact = get(oracle.exact, spec.name);
      const Matrix<double>& tolerance = get(oracle.tolerance, spec.name);
      for (Index i = 0; i < exact.size(); ++i) {
        const float limit =
            i < given || !held ? std::numeric_limits<float>::infinity() : rounded_up(tolerance.data()[i]);
        limits.push_back(limit);
        parts.judged = parts.judged || std::isfinite(limit);
        if (actual.empty() || i < given || !held) continue;
        const double y = get(actual[static_cast<std::size_t>(b)], spec.name).data()[i];
        parts.fails = parts.fails || breaks(std::abs(y - exact.data()[i]), limit);
      }
    }
    for (std::int64_t b = batch.first; b < batch.first + batch.count; ++b) {
      const auto at = static_cast<std::size_t>(b);
      if (recorded) {
        const std::vector<float> values = floats_of(get(actual.at(at), spec.name));
        got.insert(got.end(), values.begin(), values.end());
      }
      const Matrix<double>& exact = get(trace.oracles.at(at).exact, spec.name);
      if (embedded) exact_values.insert(exact_values.end(), exact.data(), exact.data() + exact.size());
    }
    parts.data += python_array("limit " + spec.name, batch.shape(spec, true, std::ssize(limited)), limits);
    if (recorded)
      parts.data += python_array("recorded " + spec.name, batch.shape(spec, true, batch.count), got);
    if (embedded)
      parts.data += python_array("expected " + spec.name, batch.shape(spec, true, batch.count), exact_values);
  }
  if (alone) batch.compared = {0};
  std::vector<std::string> sizes;
  for (const auto& [name, value] : r.c.parameters) sizes.push_back(fmt::format("\"{}\": {}", name, value));
  parts.constants =
      fmt::format("SIZE = {{{}}}\nINPUTS, SHARED, OUTPUTS = [{}], [{}], [{}]\nCOMPARED = [{}]  # sequences\n",
                  fmt::join(sizes, ", "), fmt::join(inputs, ", "), fmt::join(shared, ", "),
                  fmt::join(outputs, ", "), fmt::join(batch.compared, ", "));
  if (!recorded || batch.packed) parts.constants += fmt::format("KIND = {{{}}}\n", fmt::join(kinds, ", "));
  if (batch.packed)
    parts.constants += fmt::format("CU_SEQLENS = [{}]\n", fmt::join(batch.offsets(), ", "));
  else if (!recorded)
    parts.constants += "CU_SEQLENS = None\n";
  if (!recorded) {
    std::vector<std::string> calls;
    Index begin = r.c.cached ? r.c.prefill : 0;
    std::vector<Index> ends = cuts_of(r);
    std::erase_if(ends, [&](Index end) { return end <= begin; });
    ends.push_back(r.c.T);
    for (const Index end : ends)
      calls.push_back(fmt::format("({}, {}, {})", std::exchange(begin, end), end, r.c.chunk));
    parts.constants +=
        fmt::format("CALLS = [{}]  # first token, end, chunk (0: none) of each\nBATCH, CONTRACT = {}, {}\n",
                    fmt::join(calls, ", "), r.c.B, python_string(r.promised.name));
  }
  parts.reference = embedded ? filled_in(batch.read(kEmbedded), {{"EQUATION", std::string(system.equation)}})
                             : std::string(equation) + "\n" + batch.read(kExpected);
  if (batch.packed) parts.reference += std::string("\n") + kPacked;
  parts.results = recorded ? kRecorded : kCalled;
  parts.main = batch.read(kMain);
  parts.limits =
      "the half unit in the last place of every operation on the way to an element, carried on to first "
      "order by the "
      "operations behind it, is summed without any luck: the worst case";
  return parts;
}

}  // namespace samestate::script_detail
