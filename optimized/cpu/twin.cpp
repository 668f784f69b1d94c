#include "optimized/cpu/twin.h"

#include <string>

#include "optimized/cpu/chunked.h"
#include "optimized/cpu/recurrent.h"
#include "optimized/cpu/sequence_parallel.h"
#include "reference/error.h"

namespace samestate {

Outcome run_twin(std::string_view system, std::string_view form, const Arguments& arguments,
                 const Contract& contract) {
  for (const cpu::System& known :
       {cpu::GATED_DELTA_RULE, cpu::DELTA_RULE, cpu::RETENTION, cpu::LINEAR_ATTENTION}) {
    if (known.name != system) continue;
    if (form == "recurrent") return cpu::run_recurrent_twin(known, arguments, contract);
    // Heads are independent, so ranks that divide them round nothing more.
    if (form == "chunked" || form == "head_parallel")
      return cpu::run_chunked_twin(known, arguments, contract);
    if (form == "sequence_parallel") return cpu::run_sequence_parallel_twin(known, arguments, contract);
    throw Error("form '" + std::string(form) +
                "' has no twin; use recurrent, chunked, sequence_parallel or head_parallel");
  }
  throw Error("system '" + std::string(system) +
              "' has no twin; use gated_delta_rule, delta_rule, retention or linear_attention");
}

}  // namespace samestate
