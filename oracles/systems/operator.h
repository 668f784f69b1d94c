#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "oracles/bounds/running_error.h"
#include "oracles/bounds/stochastic.h"
#include "oracles/bounds/stored.h"
#include "oracles/systems/cost.h"
#include "oracles/systems/sizes.h"
#include "reference/axis.h"
#include "reference/error.h"
#include "reference/sequence.h"

/// Operators: the systems that are described by named tensors instead of the recurrent family's fixed set. A
/// row says which tensors and sizes a system has, and evaluates its reference in float64, with the running
/// error and with sampled roundings.
namespace samestate {

/// The kind of values that a tensor holds, for the generators.
enum class Content {
  activation,  ///< unit normal, shaped by the regime
  weight,      ///< normal, divided by the root of the last extent
  scale,       ///< near one: 1 + 0.2 normal
  offset,      ///< near zero: 0.2 normal
  log_rate,    ///< log of a decay rate: uniform in [-1, log 16], shaped by the regime
  log_decay,   ///< g <= 0
  strength,    ///< in (0, 1)
  cosine,      ///< cosines of the rotation angles of Content::sine, by row and column
  sine,
  mask,      ///< zeros and ones: all ones, except for a run of leading zeros in one regime
  features,  ///< positive: exp of a normal, as a feature map makes them
  key,       ///< a key of the recurrent family, whose length its regimes set
  zeros,     ///< a state that has not begun; one that has begun holds activations
  no_sum,    ///< likewise, for a sum of positive terms
  no_count,  ///< likewise, for the number of tokens so far
  slot       ///< a row of a pool, 0 .. TensorSpec::slots - 1, as a number; -1 for none. With Axis::tokens, the
             ///< experts of a token, out of as many: each at most once, and none is -1
};

/// One tensor of one sequence. Its rows are all extents but the last.
struct TensorSpec {
  std::string name;
  Axis axis = Axis::tokens;
  Extents shape;  ///< without the batch; the first extent of token and prefix tensors is T
  Content content = Content::activation;
  Index slots = 0;  ///< for Content::slot: rows of the pool, which are the first extent of the states

  [[nodiscard]] Index columns() const { return shape.empty() ? 1 : shape.back(); }
  [[nodiscard]] Index rows() const { return columns() > 0 ? size() / columns() : 0; }
  [[nodiscard]] Index size() const;
};

struct Signature {
  std::vector<TensorSpec> inputs;
  std::vector<TensorSpec> outputs;
};

/// One setting of an operator: a key of the case line.
struct Parameter {
  std::string_view name;
  Index standard = 1;
  Index least = 1;
  Index most = 1;
  std::string_view summary;
  std::string_view multiple_of = {};  ///< the size that divides it; empty if any value in range is allowed
};

/// Which cotangents a backward pass gets; the cotangent of the other output is zero.
enum class Cotangent : Index { both, o, state };

struct Family;

/// Everything that determines a call besides its tensors.
struct Call {
  std::string form;
  Index tokens = 0;
  Index chunk = 0;  ///< tile or chunk, for forms that have one
  Sizes parameters;
  double scale = 1.0;  ///< multiplies the output of a recurrence, for rows with Operator::family
  /// For a router, [tokens, K]: the experts of each token in descending order, as the kernel under judgement
  /// chose them (kernel_choice.h); -1 in rows, and null as a whole, if the router itself chooses.
  std::shared_ptr<const Matrix<Index>> choice = nullptr;
  Index behind = 0;  ///< tokens of the call after these, whose keys are not given (KeysBehind)
  /// Throws Error if there is no such parameter.
  [[nodiscard]] Index at(std::string_view name) const;
};

/// Tensors of one sequence by name, flattened to rows x last extent.
template <class Scalar>
using Tensors = std::map<std::string, Matrix<Scalar>, std::less<>>;

/// The tensor of that name. Throws Error if there is none.
template <class Scalar>
[[nodiscard]] const Matrix<Scalar>& get(const Tensors<Scalar>& tensors, std::string_view name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) throw Error("no tensor " + std::string(name));
  return found->second;
}

/// A one-row tensor as a vector.
template <class Scalar>
[[nodiscard]] Vector<Scalar> get_vector(const Tensors<Scalar>& tensors, std::string_view name) {
  return get(tensors, name).transpose().col(0);
}

struct OperatorForm {
  std::string_view name;
  bool chunked = false;  ///< reads `chunk`
};

/// The cost of a row whose operations are not counted.
[[nodiscard]] inline Cost uncounted(const Call&, const Signature&) { return {}; }

struct Operator {
  std::string_view name;
  std::string_view equation;
  std::vector<Parameter> parameters;
  std::vector<OperatorForm> forms;  ///< the oracle evaluates the first one
  bool streams = false;             ///< may be evaluated in several calls (form decode)
  /// Throws Error, naming the parameter, if the sizes are impossible together.
  Signature (*signature)(const Call&) = nullptr;
  /// False if `signature` throws, for plans that try thousands of impossible sizes, where an exception each would be
  /// a third of the time. Null if sizes of the row are hardly ever impossible.
  bool (*possible)(const Call&) = nullptr;
  Tensors<double> (*exact)(const Call&, const Tensors<double>&) = nullptr;
  Tensors<Running> (*running)(const Call&, const Tensors<Running>&) = nullptr;
  Tensors<Stored> (*stored)(const Call&, const Tensors<Stored>&) = nullptr;
  Tensors<Stochastic> (*stochastic)(const Call&, const Tensors<Stochastic>&) = nullptr;
  /// No token depends on another: sequences one after another are one sequence.
  bool token_wise = false;
  /// The product of factors that a kernel may apply to a product instead of to its operands (those of l2norm,
  /// at most 1000 for each of q and k): a result larger than 2^-126 by this factor may have been flushed
  /// before they were applied.
  double late_factors = 1.0;
  /// Call::choice of the kernel that wrote `actual`, for tokens for which a correct kernel may choose either
  /// way, as far as its outputs show it; -1 in the other rows. Null if nothing is chosen. Called in the scope
  /// of a RunningModel.
  Matrix<Index> (*choice)(const Call&, const Tensors<double>& inputs,
                          const Tensors<double>& actual) = nullptr;
  /// The cost of one sequence of a call with that signature; Call::chunk is 0 in a form without chunks.
  Cost (*cost)(const Call&, const Signature&) = uncounted;
  /// The recurrence whose gradients this row gives; null for any other row. Its calls have the sizes, settings and
  /// inputs of the recurrence's calls, and sequences may lie end to end in them.
  const Family* family = nullptr;

  [[nodiscard]] const OperatorForm* form(std::string_view name) const;  ///< null if it has no such form
};

/// The table, one row per operator.
[[nodiscard]] std::span<const Operator> operators();

/// Null if there is no such operator.
[[nodiscard]] const Operator* find_operator(std::string_view name);

/// The rows [begin, end) of a sequence's inputs, as one call of a run in several calls sees them; `state`
/// replaces the carried tensors.
template <class Scalar>
[[nodiscard]] Tensors<Scalar> slice(const Signature& whole, const Tensors<Scalar>& inputs,
                                    const Tensors<Scalar>& state, Index tokens, Index begin, Index end) {
  Tensors<Scalar> part;
  for (const TensorSpec& spec : whole.inputs) {
    const Matrix<Scalar>& x = get(inputs, spec.name);
    const Index rows = tokens > 0 ? x.rows() / tokens : 0;  // rows per token
    if (spec.axis == Axis::tokens) {
      part[spec.name] = x.middleRows(begin * rows, (end - begin) * rows);
    } else if (spec.axis == Axis::prefix) {
      part[spec.name] = x.topRows(end * rows);
    } else if (spec.axis == Axis::state) {
      part[spec.name] = get(state, spec.name);
    } else {
      part[spec.name] = x;
    }
  }
  return part;
}

/// Evaluates tokens [0, cuts[0]), [cuts[0], cuts[1]), ... of every sequence of a batch in separate calls,
/// carries the states, and joins the rows again. `run(call, inputs)` evaluates one call of all sequences.
template <class Scalar, class Run>
[[nodiscard]] std::vector<Tensors<Scalar>> evaluate_in_calls(const Operator& op, const Call& call,
                                                             const std::vector<Tensors<Scalar>>& sequences,
                                                             const std::vector<Index>& cuts, Run&& run) {
  const Signature whole = op.signature(call);
  if (cuts.empty()) {
    std::vector<Tensors<Scalar>> all = run(call, sequences);
    for (Tensors<Scalar>& tensors : all) {
      std::erase_if(tensors, [&](const auto& x) {
        return std::ranges::find(whole.outputs, x.first, &TensorSpec::name) == whole.outputs.end();
      });
    }
    return all;
  }
  std::vector<Tensors<Scalar>> states = sequences;
  std::vector<Tensors<Scalar>> out(sequences.size());
  for (Tensors<Scalar>& tensors : out) {
    for (const TensorSpec& spec : whole.outputs)
      tensors[spec.name] = Matrix<Scalar>(spec.rows(), spec.columns());
  }
  Index begin = 0;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const Index end = i < cuts.size() ? cuts[i] : call.tokens;
    Call one = call;
    one.tokens = end - begin;
    std::vector<Tensors<Scalar>> parts;
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      parts.push_back(slice(whole, sequences[b], states[b], call.tokens, begin, end));
    }
    const std::vector<Tensors<Scalar>> results = run(one, parts);
    for (std::size_t b = 0; b < sequences.size(); ++b) {
      for (const TensorSpec& spec : whole.outputs) {
        const Matrix<Scalar>& rows = get(results[b], spec.name);
        if (spec.axis == Axis::state) {
          states[b][spec.name] = rows;
          out[b][spec.name] = rows;
        } else if (end > begin) {
          out[b][spec.name].middleRows(begin * (rows.rows() / (end - begin)), rows.rows()) = rows;
        }
      }
    }
    begin = end;
  }
  return out;
}

}  // namespace samestate
