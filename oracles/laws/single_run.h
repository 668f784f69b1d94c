#pragma once

#include "oracles/laws/law.h"

/// Laws that hold one run against what it must be (oracles/laws/laws.cpp).
namespace samestate::laws_detail {

/// P-04, P-05: no-op tokens leave the state bit for bit and read nothing. Needs an initial state.
[[nodiscard]] Judgement no_op(const LawSubject& s);

/// P-16, P-17: the state cannot outgrow what was written, nor an output what the state holds.
[[nodiscard]] Judgement norm_bounds(const LawSubject& s);

/// P-19: the value just written is read back. Needs beta.
[[nodiscard]] Judgement recall(const LawSubject& s);

}  // namespace samestate::laws_detail
