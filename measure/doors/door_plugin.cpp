// door_kernel.c as a plugin (measure/doors.py).
#include <cstdint>

#include "optimized/plugin.h"

extern "C" void door_kernel(const float* q, const float* k, const float* v, const float* g, const float* beta,
                            const float* first, const std::int64_t* offsets, float* o, float* last,
                            std::int64_t N, std::int64_t T, std::int64_t Hk, std::int64_t Hv, std::int64_t dk,
                            std::int64_t dv, float scale, int tiled);

namespace {

samestate::Outcome run(const samestate::Arguments& a, const samestate::Contract&) {
  if (a.l2norm) return {samestate::Outcome::Kind::unsupported, "l2norm"};
  door_kernel(a.q.data, a.k.data, a.v.data, a.g.data, a.beta.data, a.initial_state.data, a.cu_seqlens.data,
              a.o.data, a.final_state.data, a.sequences(), a.q.shape[1], a.q.shape[2], a.v.shape[2],
              a.q.shape[3], a.v.shape[3], a.scale, a.head_map == samestate::HeadMap::tiled ? 1 : 0);
  return {};
}

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  samestate::Kernel row{
      "door.gated_delta_rule.recurrent", "gated_delta_rule", "recurrent", "cpu", {"fp32"}, run};
  row.limits = {"l2norm = 0"};
  rows->push_back(row);
}
