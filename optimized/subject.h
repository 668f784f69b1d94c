/* The interface for a kernel of yours in C: write one file, build it with `cc -shared -fPIC mine.c -o libmine.so`, and run
 * `samestate gate --subject ./libmine.so`. The library defines the two functions at the end of this header;
 * examples/subject_c is an example to copy. It is called in a process of its own, so that a crash does not end the judge,
 * with the tensors and conventions of docs/subjects.md; declarations are written as described there.
 * Works with C99 and later and with C++, and needs no other library. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when the meaning of a field changes. New fields are added at the end, so a library built for this protocol still
 * loads in later commands: `size` says which fields there are. */
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
      1, /* the kernel does not do this call; `reason` says why. Inside the declared limits this is a failure */
  SAMESTATE_NO_DEVICE = 2,
  SAMESTATE_ERROR = 3 /* the call failed: counts as a crash of the case, with `reason` */
};

/* Where tensors are stored; the numbers are those of DLPack (kDLCPU, kDLCUDA). */
enum samestate_memory { SAMESTATE_HOST = 1, SAMESTATE_CUDA = 2 };

typedef struct samestate_tensor {
  const char* name;
  void* data;             /* on the host, or on the device if the kernel declares "memory": "cuda" */
  const int64_t* shape;   /* [rank] */
  const int64_t* strides; /* [rank], in elements */
  int32_t rank;
  int32_t dtype; /* samestate_dtype */
} samestate_tensor;

typedef struct samestate_parameter {
  const char* name; /* the name of a size: Hk, Hv, dk, dv, .. */
  int64_t value;
} samestate_parameter;

typedef struct samestate_call {
  uint64_t size; /* sizeof this struct in the command */
  const char* kernel;
  const char* contract;
  const samestate_tensor* inputs;
  const samestate_tensor* outputs;
  const samestate_parameter* parameters;
  int64_t input_count, output_count, parameter_count;
  int64_t batch;  /* B */
  int64_t tokens; /* T of this call */
  int64_t chunk;  /* tokens per chunk; 0 if the form has none */
  double scale;   /* multiplies the output */
  int32_t tiled;  /* value head h reads key head h mod Hk instead of h / (Hv / Hk) */
  int32_t l2norm; /* normalise q and k: x (sum x^2 + 1e-6)^-1/2 */
  int32_t threads;
  char* reason; /* write a reason here, zero-terminated */
  uint64_t reason_size;
  /* In sequence_parallel rank r holds the tokens [cuts[r], cuts[r + 1]); in head_parallel those value heads, and the key
   * heads that serve them. Null if one rank holds all, or the form has no ranks. Do not read this field if `size` ends
   * before it: the command was built without it. */
  const int64_t* cuts; /* [cut_count], ranks + 1 */
  int64_t cut_count;
  /* Where the tensors are stored (samestate_memory), and on which of the devices that this process sees. */
  int32_t memory, device;
  /* With SAMESTATE_CUDA, a cudaStream_t; the device's primary context is current. Inputs are ready for work that is enqueued
   * on this stream, and not before; outputs are read when the stream is idle. The command does not wait for the whole device,
   * so work on another stream shows as a failure. */
  void* stream;
} samestate_call;

/* Null if the call has no such tensor. */
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
/* A tensor of the call as a DLTensor, if <dlpack/dlpack.h> is included first; shape and strides still belong to the call. */
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

/* Returns the message `ready` of docs/subjects.md as JSON, in memory that stays valid:
 * {"type":"ready","protocol":1,"kernels":[..]}. */
SAMESTATE_SUBJECT_EXPORT const char* samestate_subject_declare(void);

/* Evaluates one call and returns a samestate_outcome. Called from several threads at once. */
SAMESTATE_SUBJECT_EXPORT int samestate_subject_run(const samestate_call* call);

#ifdef __cplusplus
}
#endif
