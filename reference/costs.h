#pragma once

/// The cost model: parameters, bytes and operations as functions of a configuration, exact in 64-bit
/// integers. The arithmetic claims of the documents (COST-1 .. COST-39, P-26) are compared with it.
#include "reference/costs/attention.h"
#include "reference/costs/dendritic.h"
#include "reference/costs/mixture_of_experts.h"
#include "reference/costs/qwen3_next.h"
#include "reference/costs/recurrence.h"
#include "reference/costs/selective_scan.h"
#include "reference/costs/state_space_duality.h"
