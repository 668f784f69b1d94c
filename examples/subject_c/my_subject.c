/* The gated delta rule token by token, states [dv, dk] and the decay as alpha: what its declaration says.
 *   cc -std=c99 -O2 -shared -fPIC -I<prefix>/include my_subject.c -o libmine.so -lm
 *   samestate gate --subject ./libmine.so --kernel mine.gated_delta_rule.recurrent */
#include <samestate/subject.h>

#include <stdlib.h>

static float at(const samestate_tensor* x, int64_t b, int64_t t, int64_t h, int64_t d) {
  const int64_t* s = x->strides;
  return ((const float*)x->data)[b * s[0] + t * s[1] + h * s[2] + (x->rank > 3 ? d * s[3] : 0)];
}

static void head(const samestate_call* c, int64_t b, int64_t n, int64_t h, int64_t begin, int64_t end) {
  const samestate_tensor *q = samestate_input(c, "q"), *k = samestate_input(c, "k"),
                         *v = samestate_input(c, "v"), *g = samestate_input(c, "g"),
                         *beta = samestate_input(c, "beta"), *first = samestate_input(c, "initial_state"),
                         *o = samestate_output(c, "o"), *last = samestate_output(c, "final_state");
  const int64_t Hk = q->shape[2], Hv = v->shape[2], dk = q->shape[3], dv = v->shape[3];
  const int64_t kh = c->tiled ? h % Hk : h / (Hv / Hk);
  float* S = calloc((size_t)(dk * dv) + 1, sizeof *S); /* [dv, dk] */
  for (int64_t i = 0; first != NULL && i < dk * dv; ++i)
    S[i] = ((const float*)first->data)[(n * Hv + h) * dk * dv + i];
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t j = 0; j < dv; ++j) {
      float read = 0, sum = 0;
      for (int64_t i = 0; i < dk; ++i) read += at(k, b, t, kh, i) * (S[j * dk + i] *= at(g, b, t, h, 0));
      const float u = at(beta, b, t, h, 0) * (at(v, b, t, h, j) - read);
      for (int64_t i = 0; i < dk; ++i) sum += at(q, b, t, kh, i) * (S[j * dk + i] += at(k, b, t, kh, i) * u);
      ((float*)o->data)[((b * o->shape[1] + t) * Hv + h) * dv + j] = (float)c->scale * sum;
    }
  }
  for (int64_t i = 0; last != NULL && i < dk * dv; ++i)
    ((float*)last->data)[(n * Hv + h) * dk * dv + i] = S[i];
  free(S);
}

const char* samestate_subject_declare(void) {
  return "{\"type\":\"ready\",\"protocol\":1,\"kernels\":[{\"name\":\"mine.gated_delta_rule.recurrent\","
         "\"system\":\"gated_delta_rule\",\"form\":\"recurrent\",\"contracts\":[\"fp32\"],"
         "\"conventions\":{\"decay\":\"linear\",\"state\":\"vk\",\"l2norm\":\"outside\"}}]}";
}

int samestate_subject_run(const samestate_call* c) {
  const samestate_tensor *v = samestate_input(c, "v"), *offsets = samestate_input(c, "cu_seqlens");
  const int64_t* at_token = offsets != NULL ? (const int64_t*)offsets->data : NULL;
  const int64_t sequences = offsets != NULL ? offsets->shape[0] - 1 : v->shape[0];
  for (int64_t n = 0; n < sequences; ++n) {
    for (int64_t h = 0; h < v->shape[2]; ++h) {
      if (at_token != NULL)
        head(c, 0, n, h, at_token[n], at_token[n + 1]);
      else
        head(c, n, n, h, 0, c->tokens);
    }
  }
  return SAMESTATE_RAN;
}
