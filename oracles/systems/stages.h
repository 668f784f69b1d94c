#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "oracles/systems/judge_sequence.h"
#include "oracles/systems/rows.h"

/// Layers as stages: a kernel may hand out its taps, the tensors between them, and each stage is then judged from what the
/// kernel itself handed to it (bounds_operators.md 11).
namespace samestate {

/// A tensor of a stage's system, by its place in the layer: an input, a tap or an output, all of it or some of its columns.
/// Its elements in their order have the shape that the stage's system gives it (heads side by side may be rows there).
struct StageTensor {
  std::string name;   ///< in the stage's system
  std::string of;     ///< in the layer
  Index first = 0;    ///< column of the layer's tensor,
  Index columns = 0;  ///< the first of so many; 0: all of them
};

/// One step of a layer, as a call of the operator that it is. What it writes is one format's: the contract's output where
/// that is an output of the layer, else that of its taps (input_format).
struct Stage {
  std::string_view name;
  const Operator* op = nullptr;  ///< lives as long as the process
  Call call;
  std::vector<StageTensor> reads, writes;
};

/// What a layer says of a call. A tap is what the kernel's next stage reads, value for value: [T, ...].
struct LayerStages {
  std::vector<TensorSpec> taps;
  std::vector<Stage> stages;  ///< in their order; of two that write the same the finer one first
};

/// How a layer is cut into stages, by the sizes of a call; null: the system has none, and is judged as a whole.
using StagesOf = LayerStages (*)(const Call&);
[[nodiscard]] StagesOf stages_of(std::string_view system);

/// A stage that is a system of the table, or another operator, of those sizes, in its first form.
[[nodiscard]] Stage stage_of(std::string_view name, std::string_view system, const Call& layer, Sizes sizes,
                             std::vector<StageTensor> reads, std::vector<StageTensor> writes);
[[nodiscard]] Stage stage_of(std::string_view name, const Operator& op, const Call& layer, Sizes sizes,
                             std::vector<StageTensor> reads, std::vector<StageTensor> writes);
/// One with the layer's own sizes, and its form where it has that.
[[nodiscard]] Stage stage_of(std::string_view name, const Operator& op, const Call& layer,
                             std::vector<StageTensor> reads, std::vector<StageTensor> writes);

/// The operator of a stage that no system of the table is, from its signature and evaluation as in rows.h.
template <class Form>
[[nodiscard]] Operator stage_operator(std::string_view name, std::string_view equation,
                                      std::vector<OperatorForm> forms = {{"equation"}},
                                      bool streams = false) {
  Operator row{name, equation, {}, std::move(forms), streams, Form::signature};
  evaluate_with<Form>(row);
  return row;
}

/// A tensor [T, ...] of so much a token. Of Content::strength it is one of fp32 (input_format): a tap whose kernels keep what
/// the reference may store, or a number that is no measured value.
[[nodiscard]] TensorSpec of_tokens(const Call& call, std::string name, std::vector<Index> of_token,
                                   Content content = Content::activation);

/// y = W x, the projection of every layer; sizes In and Out: x [T, In], weight [Out, In] -> y [T, Out].
[[nodiscard]] const Operator& linear_map();

/// Which tokens of a mask [T, 1] are no padding.
template <class Scalar>
[[nodiscard]] std::vector<bool> real_tokens(const Matrix<Scalar>& mask) {
  std::vector<bool> real;
  for (Index t = 0; t < mask.rows(); ++t) real.push_back(mask(t, 0) != Scalar(0));
  return real;
}

/// One stage of one sequence.
struct StageJudgement {
  std::string_view stage;
  Judgement judgement;
};

struct StagesJudged {
  std::vector<StageJudgement> stages;  ///< that were judged, in their order
  /// Every output of the layer was written by one of them, and every tap that one of them read by another.
  bool complete = false;
};

/// Judges those stages of one sequence whose inputs are there and of which an output is, by all gates of single operators. A
/// stage all of whose outputs a finer one has written is left out. `written`: the layer's outputs and the taps that were
/// handed out. A stage that reads what is no number is left out too, and one that reads an output of the layer under a contract
/// whose outputs have another format than its inputs: the kernel went on with what it kept. Throws Error where a stage and the layer disagree on sizes.
[[nodiscard]] StagesJudged judge_stages(const Operator& layer, const Call& call,
                                        const Tensors<double>& inputs, const Tensors<double>& written,
                                        const std::vector<Index>& cuts, const Contract& contract,
                                        std::uint64_t seed, const JudgePolicy& policy,
                                        const GatesAsked& asked);

/// Adds to the judgement of a whole sequence what was found of its stages. The first that fails fails the case, and its
/// numbers become the case's; a whole that is vacuous passes where the stages are complete and all of them pass.
void add_stages(Judgement& whole, const StagesJudged& judged);

}  // namespace samestate
