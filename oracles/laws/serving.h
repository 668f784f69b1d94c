#pragma once

#include "oracles/laws/law.h"

namespace samestate::laws_detail {

/// A random program of calls, as a serving engine makes them: prefill, decode one token, go on with several,
/// pack requests of different lengths into one call, pad a call with no-op tokens, fork a state and speculate
/// on it, roll back, free a slot and begin its request again. Whatever the interleaving, each request's
/// outputs and state are those of its whole history (BUGS M24-M29). The program is a function of the data;
/// rows of the batch are the requests.
[[nodiscard]] Judgement serving(const LawSubject& s);

}  // namespace samestate::laws_detail
