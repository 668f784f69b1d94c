/* door_kernel.c as a C library (measure/doors.py). */
#include "optimized/subject.h"

void door_kernel(const float* q, const float* k, const float* v, const float* g, const float* beta,
                 const float* first, const int64_t* offsets, float* o, float* last, int64_t N, int64_t T,
                 int64_t Hk, int64_t Hv, int64_t dk, int64_t dv, float scale, int tiled);

const char* samestate_subject_declare(void) {
  return "{\"type\":\"ready\",\"protocol\":1,\"kernels\":[{\"name\":\"door.gated_delta_rule.recurrent\","
         "\"system\":\"gated_delta_rule\",\"form\":\"recurrent\",\"contracts\":[\"fp32\"],"
         "\"limits\":[\"l2norm = 0\"],\"conventions\":{\"l2norm\":\"outside\"}}]}";
}

static void* data_of(const samestate_tensor* x) { return x ? x->data : NULL; }

int samestate_subject_run(const samestate_call* c) {
  const samestate_tensor *q = samestate_input(c, "q"), *v = samestate_input(c, "v"),
                         *offsets = samestate_input(c, "cu_seqlens");
  door_kernel(q->data, samestate_input(c, "k")->data, v->data, data_of(samestate_input(c, "g")),
              data_of(samestate_input(c, "beta")), data_of(samestate_input(c, "initial_state")),
              data_of(offsets), samestate_output(c, "o")->data, data_of(samestate_output(c, "final_state")),
              offsets ? offsets->shape[0] - 1 : c->batch, c->tokens, q->shape[2], v->shape[2], q->shape[3],
              v->shape[3], (float)c->scale, c->tiled);
  return SAMESTATE_RAN;
}
