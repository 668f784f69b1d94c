#include "optimized/cpu/backward/kernels.h"

#include <string>
#include <utility>

#include "optimized/cpu/backward/chunked.h"
#include "optimized/cpu/backward/recurrent.h"
#include "optimized/cpu/chunked.h"

namespace samestate::cpu {
namespace {

template <const System& system>
void add_rows(std::vector<CallKernel>& rows) {
  const std::string name = std::string(system.name) + ".backward";
  CallKernel recurrent{"cpu." + name + ".recurrent", name, "recurrent", "cpu", {"fp32", "bf16", "fp16"}};
  recurrent.run = run_recurrent_backward<system>;
  rows.push_back(std::move(recurrent));
  CallKernel chunked{"cpu." + name + ".chunked", name, "chunked", "cpu", {"fp32", "tf32", "bf16", "fp16"}};
  chunked.run = run_chunked_backward<system>;
  chunked.limits = {"chunk <= " + std::to_string(kLongestChunk)};
  rows.push_back(std::move(chunked));
}

}  // namespace

std::vector<CallKernel> backward_kernels() {
  std::vector<CallKernel> rows;
  add_rows<GATED_DELTA_RULE>(rows);
  add_rows<DELTA_RULE>(rows);
  add_rows<RETENTION>(rows);
  add_rows<LINEAR_ATTENTION>(rows);
  return rows;
}

}  // namespace samestate::cpu
