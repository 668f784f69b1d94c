#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/systems/judge_sequence.h"
#include "oracles/systems/rows.h"

/// Layers as stages: a kernel may hand out its taps, the tensors between stages, and each stage is then
/// judged from the values that the kernel itself handed to it (bounds_operators.md 11).
namespace samestate {

/// A tensor of a stage's system, located in the layer: an input, a tap or an output, all of it or some of its
/// columns. Its elements, in order, have the shape that the stage's system gives it (heads side by side may
/// become rows there).
struct StageTensor {
  std::string name;   ///< name in the stage's system
  std::string of;     ///< name in the layer
  Index first = 0;    ///< first column of the layer's tensor
  Index columns = 0;  ///< number of columns; 0 means all
};

/// One step of a layer, as a call of the operator that it is. Everything that it writes has one format: the
/// contract's output format if it is an output of the layer, else that of its taps (input_format).
struct Stage {
  std::string_view name;
  const Operator* op = nullptr;  ///< must live as long as the process
  Call call;
  std::vector<StageTensor> reads, writes;
};

/// The stages of a layer for one call. A tap is exactly what the kernel's next stage reads, value for value:
/// [T, ...].
struct LayerStages {
  std::vector<TensorSpec> taps;
  std::vector<Stage> stages;  ///< in order; if two write the same, the finer one comes first
};

/// How a layer is divided into stages, for the sizes of a call; null if the system has none and is judged as
/// a whole.
using StagesOf = LayerStages (*)(const Call&);
[[nodiscard]] StagesOf stages_of(std::string_view system);

/// A stage that is a system of the table, or another operator, with these sizes, in its first form.
[[nodiscard]] Stage stage_of(std::string_view name, std::string_view system, const Call& layer, Sizes sizes,
                             std::vector<StageTensor> reads, std::vector<StageTensor> writes);
[[nodiscard]] Stage stage_of(std::string_view name, const Operator& op, const Call& layer, Sizes sizes,
                             std::vector<StageTensor> reads, std::vector<StageTensor> writes);
/// A stage with the layer's own sizes, and with its form if the operator has that.
[[nodiscard]] Stage stage_of(std::string_view name, const Operator& op, const Call& layer,
                             std::vector<StageTensor> reads, std::vector<StageTensor> writes);

/// The operator of a stage that is not a system of the table, made from its signature and evaluation as in
/// rows.h.
template <class Form>
[[nodiscard]] Operator stage_operator(std::string_view name, std::string_view equation,
                                      std::vector<OperatorForm> forms = {{"equation"}},
                                      bool streams = false) {
  Operator row{name, equation, {}, std::move(forms), streams, Form::signature};
  evaluate_with<Form>(row);
  return row;
}

/// A tensor [T, ...] with `of_token` elements per token. With Content::strength it is in fp32 (input_format):
/// a tap whose kernels keep the value that the reference may store, or a number that is not a measured value.
[[nodiscard]] TensorSpec of_tokens(const Call& call, std::string name, Extents of_token,
                                   Content content = Content::activation);

/// y = W x, the projection used in every layer; sizes In and Out: x [T, In], weight [Out, In] -> y [T, Out].
[[nodiscard]] const Operator& linear_map();

/// The tokens of a mask [T, 1] that are not padding.
template <class Scalar>
[[nodiscard]] std::vector<bool> real_tokens(const Matrix<Scalar>& mask) {
  std::vector<bool> real;
  for (Index t = 0; t < mask.rows(); ++t) real.push_back(mask(t, 0) != Scalar(0));
  return real;
}

/// The judgement of one stage of one sequence.
struct StageJudgement {
  std::string_view stage;
  Judgement judgement;
};

struct StagesJudged {
  std::vector<StageJudgement> stages;  ///< the judged stages, in order
  /// Every output of the layer was written by one of them, and every tap that one of them read was written by
  /// another.
  bool complete = false;
};

/// Judges, by all gates for single operators, those stages of one sequence that have all their inputs and at
/// least one output. A stage is left out if finer stages have written all its outputs, if it reads NaN or
/// infinity, or if it reads an output of the layer under a contract whose outputs have another format than
/// its inputs (the kernel continued with what it kept). `written` has the layer's outputs and the taps that
/// were handed out. Throws Error if a stage and the layer disagree on sizes.
[[nodiscard]] StagesJudged judge_stages(const Operator& layer, const Call& call,
                                        const Tensors<double>& inputs, const Tensors<double>& written,
                                        const std::vector<Index>& cuts, const Contract& contract,
                                        std::uint64_t seed, const JudgePolicy& policy,
                                        const GatesAsked& asked);

/// Adds the findings of the stages to the judgement of a whole sequence. The first stage that fails fails the
/// case, and its numbers become the case's; a vacuous whole passes if the stages are complete and all of them
/// pass.
void add_stages(Judgement& whole, const StagesJudged& judged);

}  // namespace samestate
