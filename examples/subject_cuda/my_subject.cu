/* The gated delta rule on a device, token by token: a thread a column of the state, a block a sequence and head.
 *   nvcc -O2 -shared -Xcompiler -fPIC -I<prefix>/include my_subject.cu -o libmine.so
 *   samestate gate --subject ./libmine.so --kernel mine.gated_delta_rule.recurrent
 * "memory": "cuda" in the declaration: what it gets are pointers to device memory, and the stream to launch on. */
#include <samestate/subject.h>

#include <cstdio>

namespace {

constexpr int kWidest = 128; /* dk: the column is kept in registers and local memory */

/* Dense tensors, as the declaration asks for; null where the call has none. */
struct Tensors {
  const float *q, *k, *v, *g, *beta, *initial_state;
  const int64_t* cu_seqlens;
  float *o, *final_state;
  int64_t tokens, key_heads, value_heads, dk, dv;
  float scale;
};

__global__ void gated_delta_rule(Tensors x) {
  const int64_t n = blockIdx.x / x.value_heads, h = blockIdx.x % x.value_heads;
  const int64_t key_head = h / (x.value_heads / x.key_heads);
  const int64_t begin = x.cu_seqlens ? x.cu_seqlens[n] : n * x.tokens;
  const int64_t end = x.cu_seqlens ? x.cu_seqlens[n + 1] : begin + x.tokens;
  for (int64_t j = threadIdx.x; j < x.dv; j += blockDim.x) {
    const int64_t state = blockIdx.x * x.dk * x.dv + j;
    float S[kWidest];
    for (int64_t i = 0; i < x.dk; ++i) S[i] = x.initial_state ? x.initial_state[state + i * x.dv] : 0.0f;
    for (int64_t t = begin; t < end; ++t) {
      const int64_t row = t * x.value_heads + h;
      const float* k = x.k + (t * x.key_heads + key_head) * x.dk;
      const float* q = x.q + (t * x.key_heads + key_head) * x.dk;
      const float alpha = expf(x.g[row]);
      float read = 0.0f, sum = 0.0f;
      for (int64_t i = 0; i < x.dk; ++i) read += k[i] * (S[i] *= alpha);
      const float u = x.beta[row] * (x.v[row * x.dv + j] - read);
      for (int64_t i = 0; i < x.dk; ++i) sum += q[i] * (S[i] += k[i] * u);
      x.o[row * x.dv + j] = x.scale * sum;
    }
    for (int64_t i = 0; x.final_state && i < x.dk; ++i) x.final_state[state + i * x.dv] = S[i];
  }
}

template <class T>
T* data_of(const samestate_tensor* x) {
  return x ? static_cast<T*>(x->data) : nullptr;
}

}  // namespace

const char* samestate_subject_declare(void) {
  return "{\"type\":\"ready\",\"protocol\":1,\"kernels\":[{\"name\":\"mine.gated_delta_rule.recurrent\","
         "\"system\":\"gated_delta_rule\",\"form\":\"recurrent\",\"device\":\"cuda\",\"memory\":\"cuda\","
         "\"contracts\":[\"fp32\"],\"limits\":[\"dk <= 128\"],"
         "\"conventions\":{\"l2norm\":\"outside\",\"heads\":\"interleaved\"}}]}";
}

int samestate_subject_run(const samestate_call* c) {
  const samestate_tensor *q = samestate_input(c, "q"), *v = samestate_input(c, "v"),
                         *offsets = samestate_input(c, "cu_seqlens");
  Tensors x{};
  x.q = data_of<const float>(q);
  x.k = data_of<const float>(samestate_input(c, "k"));
  x.v = data_of<const float>(v);
  x.g = data_of<const float>(samestate_input(c, "g"));
  x.beta = data_of<const float>(samestate_input(c, "beta"));
  x.initial_state = data_of<const float>(samestate_input(c, "initial_state"));
  x.cu_seqlens = data_of<const int64_t>(offsets);
  x.o = data_of<float>(samestate_output(c, "o"));
  x.final_state = data_of<float>(samestate_output(c, "final_state"));
  x.tokens = c->tokens;
  x.key_heads = q->shape[2], x.value_heads = v->shape[2], x.dk = q->shape[3], x.dv = v->shape[3];
  x.scale = static_cast<float>(c->scale);
  const int64_t sequences = offsets ? offsets->shape[0] - 1 : v->shape[0];
  const unsigned blocks = static_cast<unsigned>(sequences * x.value_heads);
  if (blocks == 0) return SAMESTATE_RAN;
  const unsigned threads = static_cast<unsigned>(x.dv < 256 ? x.dv : 256);
  gated_delta_rule<<<blocks, threads, 0, static_cast<cudaStream_t>(c->stream)>>>(x);
  const cudaError_t error = cudaGetLastError();
  if (error == cudaSuccess) return SAMESTATE_RAN; /* on its stream: nobody has to wait here */
  snprintf(c->reason, c->reason_size, "%s", cudaGetErrorString(error));
  return error == cudaErrorNoDevice ? SAMESTATE_NO_DEVICE : SAMESTATE_ERROR;
}
