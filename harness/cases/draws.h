#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "harness/cases/counter.h"

namespace samestate {

/// One row of q, k or v before it is rounded.
using DrawnRow = std::span<double>;

/// The random numbers of a batch of the recurrent family, by purpose.
struct BatchSource {
  BatchSource(std::uint64_t seed, std::int64_t width);

  Counter q, k, v, g, beta, state;
  Counter pick;     ///< chooses a token of a pool
  Counter gate;     ///< chooses the kind of a token
  std::int64_t dk;  ///< dk of the batch
};

/// Shared tokens (base directions, pools) have negative token coordinates.
inline constexpr std::int64_t kShared = -1;

/// The token whose vector is used at this one.
using TokenOf = std::int64_t (*)(const BatchSource& source, const Coordinates& at);
/// Fills a row of q, k or v from its own numbers `own`; `at.token` is the result of TokenOf.
using RowOf = void (*)(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at);
/// Scales a row of q or k to its length; `normalises` is true if the kernel does that itself.
using LengthOf = void (*)(DrawnRow row, bool normalises);
/// One number per token and value head: g or beta.
using NumberOf = double (*)(const BatchSource& source, const Coordinates& at);
/// One element of a tensor of a system of named tensors.
using ElementOf = double (*)(const Counter& own, const Coordinates& at);

/// The draws of regime=normal.
namespace normal {

std::int64_t token(const BatchSource& source, const Coordinates& at);  ///< every token has its own
void row(DrawnRow row, const BatchSource& source, const Counter& own, const Coordinates& at);
void length(DrawnRow row, bool normalises);  ///< 1
double gate(const BatchSource& source, const Coordinates& at);
double beta(const BatchSource& source, const Coordinates& at);
/// Element [n, h, i, j] of the initial state, for sequence n, token i, head h, channel j; `size` is that of
/// FamilyDraws.
double state(const BatchSource& source, const Coordinates& at, double size);
bool idle(const BatchSource& source, const Coordinates& at);  ///< false for every token

double activation(const Counter& own, const Coordinates& at);
double feature(const Counter& own, const Coordinates& at);   ///< positive
double log_rate(const Counter& own, const Coordinates& at);  ///< in [-1, log 16]
double scale(const Counter& own, const Coordinates& at);     ///< near 1
double offset(const Counter& own, const Coordinates& at);    ///< near 0
double strength(const Counter& own, const Coordinates& at);  ///< in (0, 1)

}  // namespace normal

/// How a regime draws the inputs of the recurrent family. A row of the table names what it does differently
/// from normal.
struct FamilyDraws {
  TokenOf key_token = normal::token;
  RowOf key = normal::row;
  LengthOf key_length = normal::length;
  bool query_is_key = false;  ///< if true, the next three are not read
  TokenOf query_token = normal::token;
  RowOf query = normal::row;
  LengthOf query_length = normal::length;
  TokenOf value_token = normal::token;
  RowOf value = normal::row;
  double size = 1.0;  ///< factor on v and on the initial state
  NumberOf gate = normal::gate;
  NumberOf beta = normal::beta;
  double (*state)(const BatchSource& source, const Coordinates& at, double size) = normal::state;
  bool (*idle)(const BatchSource& source,
               const Coordinates& at) = normal::idle;  ///< a no-op: q = k = v = 0, beta = 0, g = 0
};

/// The ways in which the cotangents of a backward pass are drawn, the usual one first: normal numbers; the outputs
/// themselves; ones, as the sum of an output has them; numbers times 1e-4 or 30; one element that is 1 among zeros.
[[nodiscard]] const std::vector<std::string_view>& cotangent_kinds();

/// True for offsets that are weights of a norm of queries or keys, recognised by name.
[[nodiscard]] inline bool is_head_norm(std::string_view tensor) {
  return tensor == "q_norm" || tensor == "k_norm";
}

/// How a regime draws the inputs of systems of named tensors, by their Content.
struct TensorDraws {
  ElementOf activation = normal::activation;
  ElementOf feature = normal::feature;
  ElementOf log_rate = normal::log_rate;
  ElementOf scale = normal::scale;
  ElementOf offset = normal::offset;
  ElementOf head_norm = normal::offset;  ///< for tensors of is_head_norm
  ElementOf strength = normal::strength;
  double log_decay = 1.0;        ///< factor
  bool one_token = false;        ///< every token equals the first one
  bool masked_to_third = false;  ///< masks start with zeros, up to a third of the tokens
  bool masked_anywhere = false;  ///< masks end with that many, or have them anywhere
  bool of_rates = false;         ///< differs from another regime only in rates: for systems that have rates
  bool of_head_norms = false;    ///< differs from another regime only in the norms of queries and keys
  /// Biases of steps correspond to steps of 1e-4 to 0.1, and states continue from an earlier call: for
  /// systems that have such biases, or whose states start at zero.
  bool trained = false;
  /// The same after 4,097 to 36,864 tokens, as in a long context: for systems that count tokens.
  bool long_context = false;
};

}  // namespace samestate
