/* A kernel of yours in C: one file, `cc -shared -fPIC mine.c -o libmine.so`, `samestate gate --subject ./libmine.so`.
 * The library defines the two functions at the end; examples/subject_c is one to copy. It is called in a process that the
 * judge can lose, with the tensors and conventions of docs/lookup/subjects.md, whose declarations and words hold here too.
 * C99 and later, C++ too; no library is needed. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when the meaning of a field changes. New fields come last, so that a library built for this protocol still loads
 * in commands of later ones: `size` says which fields there are. */
#define SAMESTATE_SUBJECT_PROTOCOL 1

enum samestate_dtype {
  SAMESTATE_FP32 = 0,
  SAMESTATE_BF16 = 1,
  SAMESTATE_FP16 = 2,
  SAMESTATE_INT32 = 3,
  SAMESTATE_INT64 = 4
};

enum samestate_outcome {
  SAMESTATE_RAN = 0, /* every element of every output is written */
  SAMESTATE_UNSUPPORTED =
      1, /* this call is not done; `reason` says why. A failure inside the declared limits */
  SAMESTATE_NO_DEVICE = 2,
  SAMESTATE_ERROR = 3 /* it was tried and failed: a crash of the case, with `reason` */
};

/* Where tensors lie; the numbers are DLPack's (kDLCPU, kDLCUDA). */
enum samestate_memory { SAMESTATE_HOST = 1, SAMESTATE_CUDA = 2 };

typedef struct samestate_tensor {
  const char* name;
  void* data;             /* of the host, or of the device where the kernel declares "memory": "cuda" */
  const int64_t* shape;   /* [rank] */
  const int64_t* strides; /* [rank], in elements */
  int32_t rank;
  int32_t dtype; /* samestate_dtype */
} samestate_tensor;

typedef struct samestate_parameter {
  const char* name; /* of a size: Hk, Hv, dk, dv, .. */
  int64_t value;
} samestate_parameter;

typedef struct samestate_call {
  uint64_t size; /* of this struct in the command */
  const char* kernel;
  const char* contract;
  const samestate_tensor* inputs;
  const samestate_tensor* outputs;
  const samestate_parameter* parameters;
  int64_t input_count, output_count, parameter_count;
  int64_t batch;  /* B */
  int64_t tokens; /* T of this call */
  int64_t chunk;  /* tokens a chunk; 0 where the form has none */
  double scale;   /* multiplies the output */
  int32_t tiled;  /* value head h reads key head h mod Hk instead of h / (Hv / Hk) */
  int32_t l2norm; /* q and k are normalised: x (sum x^2 + 1e-6)^-1/2 */
  int32_t threads;
  char* reason; /* where a reason goes, zero at its end */
  uint64_t reason_size;
  /* sequence_parallel: rank r holds the tokens [cuts[r], cuts[r + 1]); head_parallel: those value heads, and the key heads
   * that serve them; null: one rank holds all, or the form has none. Not to be read where `size` ends before it: a command
   * that was built without. */
  const int64_t* cuts; /* [cut_count], ranks + 1 */
  int64_t cut_count;
  /* Where the tensors lie (samestate_memory), and on which of the devices that this process sees. */
  int32_t memory, device;
  /* SAMESTATE_CUDA: a cudaStream_t, current with the device's primary context. Inputs are there for what is put on it, not
   * sooner; outputs are read when it is idle: nobody waits for the device, and work elsewhere is found out. */
  void* stream;
} samestate_call;

/* Null where the call has no such tensor. */
static inline const samestate_tensor* samestate_find(const samestate_tensor* list, int64_t count,
                                                     const char* name) {
  for (int64_t i = 0; i < count; ++i) {
    if (strcmp(list[i].name, name) == 0) return &list[i];
  }
  return NULL;
}
static inline const samestate_tensor* samestate_input(const samestate_call* call, const char* name) {
  return samestate_find(call->inputs, call->input_count, name);
}
static inline const samestate_tensor* samestate_output(const samestate_call* call, const char* name) {
  return samestate_find(call->outputs, call->output_count, name);
}

#ifdef DLPACK_DLPACK_H_
/* A tensor of the call as DLPack has it, for whoever includes <dlpack/dlpack.h> first; shape and strides stay the call's. */
static inline DLTensor samestate_dlpack(const samestate_call* call, const samestate_tensor* x) {
  DLTensor out;
  memset(&out, 0, sizeof out);
  out.data = x->data;
  out.device.device_type = call->memory == SAMESTATE_CUDA ? kDLCUDA : kDLCPU;
  out.device.device_id = call->device;
  out.ndim = x->rank;
  out.dtype.code = (uint8_t)(x->dtype == SAMESTATE_BF16                                 ? kDLBfloat
                             : x->dtype == SAMESTATE_FP32 || x->dtype == SAMESTATE_FP16 ? kDLFloat
                                                                                        : kDLInt);
  out.dtype.bits = (uint8_t)(x->dtype == SAMESTATE_INT64                                ? 64
                             : x->dtype == SAMESTATE_BF16 || x->dtype == SAMESTATE_FP16 ? 16
                                                                                        : 32);
  out.dtype.lanes = 1;
  out.shape = (int64_t*)x->shape;
  out.strides = (int64_t*)x->strides;
  return out;
}
#endif

#define SAMESTATE_SUBJECT_EXPORT __attribute__((visibility("default")))

/* The message `ready` of docs/lookup/subjects.md, as JSON in memory that stays: {"type":"ready","protocol":1,"kernels":[..]}. */
SAMESTATE_SUBJECT_EXPORT const char* samestate_subject_declare(void);

/* Evaluates one call; returns a samestate_outcome. Called from several threads at a time. */
SAMESTATE_SUBJECT_EXPORT int samestate_subject_run(const samestate_call* call);

#ifdef __cplusplus
}
#endif
