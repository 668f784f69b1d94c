// examples/subject_cuda on the stand-in for the driver, and with FAULT what a kernel may do to its tensors and streams.
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/subjects/cuda_on_host.h"

// The example itself, its launch rewritten by CMakeLists.txt.
#define samestate_subject_run example_run
#define samestate_subject_declare example_declare
#include <example_on_host.h>
#undef samestate_subject_run
#undef samestate_subject_declare

// As who has dlpack.h sees it: shape, strides and place of a tensor are the call's.
#ifdef DLPACK_DLPACK_H_
static bool dlpack_agrees(const samestate_call* c) {
  for (std::int64_t i = 0; i < c->input_count; ++i) {
    const samestate_tensor& x = c->inputs[i];
    const DLTensor y = samestate_dlpack(c, &x);
    const bool whole = x.dtype == SAMESTATE_INT32 || x.dtype == SAMESTATE_INT64;
    if (y.device.device_type != kDLCUDA || y.device.device_id != 0 || y.data != x.data || y.ndim != x.rank ||
        y.shape != x.shape || y.strides != x.strides || y.byte_offset != 0 || y.dtype.lanes != 1 ||
        y.dtype.code != (whole ? kDLInt : kDLFloat) || y.dtype.bits != (x.dtype == SAMESTATE_INT64 ? 64 : 32))
      return false;
  }
  return true;
}
#else
#error "dlpack/dlpack.h is to be included before samestate/subject.h here"
#endif

extern "C" {

SAMESTATE_SUBJECT_EXPORT const char* samestate_subject_declare(void) {
  static std::string text = example_declare();
  const char* fault = std::getenv("FAULT");
  if (fault != nullptr && std::string(fault) == "on_cpu")
    text.replace(text.find("\"device\":\"cuda\","), 16, "");
  if (fault != nullptr && std::string(fault) == "on_moon")
    text.replace(text.find("\"memory\":\"cuda\""), 15, "\"memory\":\"moon\"");
  return text.c_str();
}

SAMESTATE_SUBJECT_EXPORT int samestate_subject_run(const samestate_call* call) {
  if (!dlpack_agrees(call)) return SAMESTATE_ERROR;
  const char* set = std::getenv("FAULT");
  const std::string fault = set != nullptr ? set : "";
  samestate_call mine = *call;
  const samestate_tensor *k = samestate_input(call, "k"), *o = samestate_output(call, "o");
  if (fault == "no_stream") {
    // The kernel is launched on the default stream, which waits for no copies.
    mine.stream = nullptr;
    return example_run(&mine);
  }
  if (fault == "own_stream") {
    // Reads when it may, and returns before it has written.
    on_host::driver<int (*)(void**, unsigned)>("cuStreamCreate")(&mine.stream, 1);
    (void)on_host::driver<int (*)(void*)>("cuStreamSynchronize")(call->stream);
    return example_run(&mine);
  }
  if (fault == "on_host") {
    volatile float read = *static_cast<const float*>(k->data);
    (void)read;
  }
  if (fault == "breaks")
    return on_host::driver<int (*)(void*, void (*)(void*), void*)>("fake_launch")(call->stream, nullptr,
                                                                                  nullptr);
  const int outcome = example_run(call);
  if (fault == "edits_input") on_host::put(call->stream, [=] { *static_cast<float*>(k->data) += 1.0F; });
  if (fault == "writes_beside" && o != nullptr)
    on_host::put(call->stream, [data = static_cast<char*>(o->data)] { data[-1] = 0; });
  if (fault == "unwritten" && o != nullptr)
    on_host::put(call->stream, [data = static_cast<char*>(o->data)] { std::memset(data, 0xff, 4); });
  return outcome;
}

}  // extern "C"
