#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "fixtures/safetensors.h"
#include "harness/captured/captured_calls.h"
#include "harness/cases/resolved.h"
#include "harness/run/family_run.h"
#include "harness/run/judge_batch.h"
#include "oracles/rounding.h"

namespace samestate {

/// A folder as samestate.capture writes it, of one call that the CPU kernel of a drawn case made.
struct CapturedFolderOfCase {
  Resolved r;
  Batch batch;
  Outputs outputs;
  std::map<std::string, Tensor> tensors;  ///< by name, for write()
  std::string declaration, values = R"("use_qk_l2norm_in_kernel":false)", arguments = "{}";
  std::string none;  ///< results that were None, quoted
  std::filesystem::path folder;

  /// `dtype`: of q, k, v and o. `line` has neither a packed form nor conventions.
  explicit CapturedFolderOfCase(const std::string& line, DType dtype = DType::f32)
      : r(parse_case(line)), batch(batch_of(r, family_named(r.c.system))) {
    outputs = run_on_cpu(r.c.system, batch, r.path(r.c.T), r.promised);
    const Case& c = r.c;
    declaration = fmt::format(
        R"({{"name":"mine.{0}.{1}","system":"{0}","form":"{1}","contracts":["fp32","{2}"],"limits":["chunk = {3}"]}})",
        c.system, c.form, c.contract, c.chunk);
    put("argument.q", dtype, {c.B, c.T, c.Hk, c.dk}, batch.q);
    put("argument.k", dtype, {c.B, c.T, c.Hk, c.dk}, batch.k);
    put("argument.v", dtype, {c.B, c.T, c.Hv, c.dv}, batch.v);
    if (!batch.g.empty()) put("argument.g", DType::f32, {c.B, c.T, c.Hv}, batch.g);
    if (!batch.beta.empty()) put("argument.beta", DType::f32, {c.B, c.T, c.Hv}, batch.beta);
    if (!batch.initial_state.empty())
      put("argument.initial_state", DType::f32, {c.B, c.Hv, c.dk, c.dv}, batch.initial_state);
    put("output.0", dtype, {c.B, c.T, c.Hv, c.dv}, outputs.o);
    put("output.1", DType::f32, {c.B, c.Hv, c.dk, c.dv}, outputs.final_state);
    folder = std::filesystem::path(testing::TempDir()) / fmt::format("captured.{}", ::getpid());
    std::filesystem::create_directories(folder);
  }
  CapturedFolderOfCase(const CapturedFolderOfCase&) = delete;
  CapturedFolderOfCase& operator=(const CapturedFolderOfCase&) = delete;
  ~CapturedFolderOfCase() { std::filesystem::remove_all(folder); }

  void put(const std::string& name, DType dtype, std::vector<std::int64_t> shape,
           const std::vector<float>& values_) {
    tensors[name] = {name, dtype, std::move(shape), {values_.begin(), values_.end()}};
  }

  /// Element [b, t, h, d] of a tensor with tokens.
  double& at(const std::string& name, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) {
    Tensor& x = tensors.at(name);
    return x.values.at(static_cast<std::size_t>(((b * x.shape[1] + t) * x.shape[2] + h) * x.shape[3] + d));
  }

  /// The folder's calls, read back. `metadata` is that of the tensors' file.
  [[nodiscard]] CapturedFolder write(const Metadata& metadata = {{"format", "samestate-call-1"}}) const {
    std::vector<Tensor> all;
    std::string said;
    for (const auto& [name, x] : tensors) {
      all.push_back(x);
      if (x.dtype == DType::f32 || x.dtype == DType::bf16) {
        const Format format = x.dtype == DType::f32 ? Format::fp32 : Format::bf16;
        for (double& value : all.back().values) value = round_to(value, format);
      }
      said += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"strides":[{}]}})", said.empty() ? "" : ",",
                          name, name_of(x.dtype), fmt::join(x.shape, ","), fmt::join(x.shape, ","));
    }
    write_safetensors(folder / "call-1-00001.safetensors", all, metadata);
    std::ofstream(folder / "calls.jsonl") << fmt::format(
        R"({{"event":"function","format":"samestate-capture-1","function":"m:f","declaration":{},"arguments":{}}})"
        "\n"
        R"({{"event":"call","function":"m:f","call":1,"file":"call-1-00001.safetensors","values":{{{}}},"none":[{}],"tensors":{{{}}}}})"
        "\n",
        declaration, arguments, values, none, said);
    return read_captured(folder);
  }
};

}  // namespace samestate
