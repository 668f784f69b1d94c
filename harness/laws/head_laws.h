#pragma once

#include "harness/run/law_subject.h"

/// The laws of the recurrent family. Each gets a case that has what its row of the table asks for
/// (harness/laws/laws.cpp).
namespace samestate::laws_detail {

/// EQ-02, EQ-04, EQ-07, EQ-09: the chunked form, with another chunk, over any ranks, and the recurrent form
/// are the same function; ranks that divide heads give the same bits.
[[nodiscard]] Judgement path_equivalence(const LawSubject& s);

/// EQ-03, P-09: cutting anywhere and carrying the state gives the same as one pass.
[[nodiscard]] Judgement split_anywhere(const LawSubject& s);

/// P-07: outputs before t do not depend on tokens from t on. The whole future is changed: v, g and beta.
[[nodiscard]] Judgement causality(const LawSubject& s);

/// P-08: The rows of a batch are independent.
[[nodiscard]] Judgement batch_permutation(const LawSubject& s);

/// P-11: The heads are independent too; key heads move with the value heads that they serve.
[[nodiscard]] Judgement head_permutation(const LawSubject& s);

/// P-18: o and S are linear in (v, S_0).
[[nodiscard]] Judgement linearity(const LawSubject& s);

/// Packed sequences, some of them empty, give the same as each of them alone (BUGS M27, M37, M41).
[[nodiscard]] Judgement packing(const LawSubject& s);

/// A token with alpha = 0 forgets everything: from there on the run equals the suffix from a zero state (BUGS
/// M09, M10, M27).
[[nodiscard]] Judgement reset(const LawSubject& s);

/// P-04, P-05: no-op tokens leave the state unchanged bit for bit and read nothing.
[[nodiscard]] Judgement no_op(const LawSubject& s);

/// P-16, P-17: the state cannot outgrow what was written, nor an output what the state holds.
[[nodiscard]] Judgement norm_bounds(const LawSubject& s);

/// P-19: the value just written is read back.
[[nodiscard]] Judgement recall(const LawSubject& s);

/// A random program of calls, as a serving engine makes them: prefill, decode one token, continue with
/// several, pack requests of different lengths into one call, pad a call with no-op tokens, fork a state and
/// speculate on it, roll back, free a slot and start its request again. Whatever the interleaving, each
/// request's outputs and state are those of its whole history (BUGS M24-M29). The program is a function of
/// the data; the rows of the batch are the requests.
[[nodiscard]] Judgement serving(const LawSubject& s);

}  // namespace samestate::laws_detail
