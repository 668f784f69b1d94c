/* One kernel for every door (measure/doors.py): the gated delta rule token by token, fp32, dense. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* q, k [B, T, Hk, dk], v, o [B, T, Hv, dv], g, beta [B, T, Hv], states [N, Hv, dk, dv], `first` and `last` null where the call
 * has none; offsets [N + 1] of a packed call, else null and N = B. */
void door_kernel(const float* q, const float* k, const float* v, const float* g, const float* beta,
                 const float* first, const int64_t* offsets, float* o, float* last, int64_t N, int64_t T,
                 int64_t Hk, int64_t Hv, int64_t dk, int64_t dv, float scale, int tiled) {
  float* S = malloc(sizeof(float) * (size_t)(dk * dv + 2 * dv) + 1);
  float *read = S + dk * dv, *sum = read + dv;
  for (int64_t n = 0; n < N; ++n) {
    const int64_t begin = offsets ? offsets[n] : n * T, end = offsets ? offsets[n + 1] : (n + 1) * T;
    for (int64_t h = 0; h < Hv; ++h) {
      const int64_t kh = tiled ? h % Hk : h / (Hv / Hk), at = (n * Hv + h) * dk * dv;
      if (first)
        memcpy(S, first + at, sizeof(float) * (size_t)(dk * dv));
      else
        memset(S, 0, sizeof(float) * (size_t)(dk * dv));
      for (int64_t t = begin; t < end; ++t) {
        const float *Q = q + (t * Hk + kh) * dk, *K = k + (t * Hk + kh) * dk, *V = v + (t * Hv + h) * dv;
        const float decay = expf(g[t * Hv + h]), write = beta[t * Hv + h];
        for (int64_t j = 0; j < dv; ++j) read[j] = sum[j] = 0.0F;
        for (int64_t i = 0; i < dk; ++i) {
          for (int64_t j = 0; j < dv; ++j) read[j] += K[i] * (S[i * dv + j] *= decay);
        }
        for (int64_t j = 0; j < dv; ++j) read[j] = write * (V[j] - read[j]);
        for (int64_t i = 0; i < dk; ++i) {
          for (int64_t j = 0; j < dv; ++j) sum[j] += Q[i] * (S[i * dv + j] += K[i] * read[j]);
        }
        for (int64_t j = 0; j < dv; ++j) o[(t * Hv + h) * dv + j] = scale * sum[j];
      }
      if (last) memcpy(last + at, S, sizeof(float) * (size_t)(dk * dv));
    }
  }
  free(S);
}
