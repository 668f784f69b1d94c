#pragma once

#include "oracles/bounds/stored.h"
#include "oracles/systems/explicit_chunk.h"
#include "reference/activations.h"
#include "reference/delta_rule.h"
#include "reference/gated_delta_rule.h"
#include "reference/gates.h"
#include "reference/l2norm.h"
#include "reference/linear.h"
#include "reference/mixture_of_experts.h"
#include "reference/norms.h"
#include "reference/online_softmax.h"
#include "reference/retention.h"
#include "reference/rotary_embedding.h"
#include "reference/short_convolution.h"
#include "reference/softmax_attention.h"

/// Operations that many rows use, in the scalars of a row's evaluations, compiled once in instances.cpp.
/// Otherwise every row would compile its own copies, which is two thirds of the code of this folder. Leaving
/// this header out of a row changes how long its compilation takes, and nothing else.
namespace samestate {

// NOLINTBEGIN: a list of declarations, from which instances.cpp makes the definitions
#define SAMESTATE_INSTANCES_OF(INSTANCE, Scalar)                                                             \
  INSTANCE Matrix<Scalar> matrix_product(const Eigen::MatrixBase<Matrix<Scalar>>&,                           \
                                         const Eigen::MatrixBase<Matrix<Scalar>>&, Point);                   \
  INSTANCE Matrix<Scalar> matrix_product(const Eigen::MatrixBase<Matrix<Scalar>>&,                           \
                                         const Eigen::MatrixBase<Eigen::Transpose<const Matrix<Scalar>>>&,   \
                                         Point);                                                             \
  INSTANCE Matrix<Scalar> matrix_product(const Eigen::MatrixBase<Matrix<Scalar>>&,                           \
                                         const Eigen::MatrixBase<Eigen::Transpose<Matrix<Scalar>>>&, Point); \
  INSTANCE Matrix<Scalar> matrix_product(const Eigen::MatrixBase<Eigen::Transpose<const Matrix<Scalar>>>&,   \
                                         const Eigen::MatrixBase<Matrix<Scalar>>&, Point);                   \
  INSTANCE Matrix<Scalar> matrix_product(const Eigen::MatrixBase<Eigen::Transpose<Matrix<Scalar>>>&,         \
                                         const Eigen::MatrixBase<Matrix<Scalar>>&, Point);                   \
  INSTANCE Matrix<Scalar> linear(const Matrix<Scalar>&, const Matrix<Scalar>&, const Vector<Scalar>&,        \
                                 Point);                                                                     \
  INSTANCE Matrix<Scalar> linear(const Matrix<Scalar>&, const Matrix<Scalar>&, Point);                       \
  INSTANCE Matrix<Scalar> stored(Matrix<Scalar>, Point);                                                     \
  INSTANCE Matrix<Scalar> silu(const Matrix<Scalar>&);                                                       \
  INSTANCE Matrix<Scalar> softmax(const Matrix<Scalar>&);                                                    \
  INSTANCE Matrix<Scalar> log_decay(const Matrix<Scalar>&, const Vector<Scalar>&, const Vector<Scalar>&);    \
  INSTANCE Matrix<Scalar> rms_norm(const Matrix<Scalar>&, const Vector<Scalar>&, const Scalar&);             \
  INSTANCE Matrix<Scalar> rms_norm_gated(const Matrix<Scalar>&, const Matrix<Scalar>&,                       \
                                         const Vector<Scalar>&, const Scalar&);                              \
  INSTANCE Matrix<Scalar> rms_norm_of_gated(const Matrix<Scalar>&, const Matrix<Scalar>&,                    \
                                            const Vector<Scalar>&, const Scalar&);                           \
  INSTANCE Matrix<Scalar> l2norm(const Matrix<Scalar>&, const Scalar&);                                      \
  INSTANCE Matrix<Scalar> rotate(const Matrix<Scalar>&, const RotaryTables<Scalar>&, RotaryPairs, Index);    \
  INSTANCE Convolved<Scalar> short_convolution(const Matrix<Scalar>&, const Matrix<Scalar>&,                 \
                                               const Vector<Scalar>&, const Matrix<Scalar>&, bool);          \
  INSTANCE Matrix<Index> top_k(const Matrix<Scalar>&, Index);                                                \
  INSTANCE Routing<Scalar> route_to(const Matrix<Scalar>&, const Matrix<Index>&, TopKWeights);               \
  INSTANCE Matrix<Scalar> softmax_attention(const AttentionInputs<Scalar>&);                                 \
  INSTANCE Matrix<Scalar> softmax_attention_grouped(const AttentionInputs<Scalar>&);                         \
  INSTANCE Matrix<Scalar> softmax_attention_online(const AttentionInputs<Scalar>&, Index);                   \
  INSTANCE Matrix<Scalar> softmax_attention_merged(const AttentionInputs<Scalar>&, Index);                   \
  INSTANCE Matrix<Scalar> decay_between(const Vector<Scalar>&);                                              \
  INSTANCE Trajectory<Scalar> recurrent<GatedDeltaRule, Scalar>(const Sequence<Scalar>&);                    \
  INSTANCE Trajectory<Scalar> recurrent<Retention, Scalar>(const Sequence<Scalar>&);                         \
  INSTANCE Trajectory<Scalar> explicitly_chunked<GatedDeltaRule, Scalar>(const Sequence<Scalar>&, Index,     \
                                                                         ChunkPlaces);                       \
  INSTANCE Trajectory<Scalar> explicitly_chunked<Retention, Scalar>(const Sequence<Scalar>&, Index,          \
                                                                    ChunkPlaces);

SAMESTATE_INSTANCES_OF(extern template, double)
SAMESTATE_INSTANCES_OF(extern template, Running)
SAMESTATE_INSTANCES_OF(extern template, Stored)
SAMESTATE_INSTANCES_OF(extern template, Stochastic)
// NOLINTEND

}  // namespace samestate
