#include "cli/probe_apart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "harness/processes/pool.h"
#include "harness/processes/workers.h"

namespace samestate::cli {
namespace {

std::string packed(const ProbeRun& run) {
  std::string text;
  const auto put = [&](const void* data, std::size_t bytes) {
    text.append(reinterpret_cast<const char*>(&bytes), sizeof bytes);
    text.append(static_cast<const char*>(data), bytes);
  };
  put(&run.no_device, sizeof run.no_device);
  put(&run.refusal, sizeof run.refusal);
  put(run.refused.data(), run.refused.size());
  put(run.outputs.o.data(), run.outputs.o.size() * sizeof(float));
  put(run.outputs.final_state.data(), run.outputs.final_state.size() * sizeof(float));
  return text;
}

ProbeRun unpacked(const std::string& text) {
  std::size_t at = 0;
  const auto take = [&] {
    std::size_t bytes = 0;
    std::memcpy(&bytes, text.data() + at, sizeof bytes);
    at += sizeof bytes + bytes;
    return std::string_view(text).substr(at - bytes, bytes);
  };
  ProbeRun run;
  std::memcpy(&run.no_device, take().data(), sizeof run.no_device);
  std::memcpy(&run.refusal, take().data(), sizeof run.refusal);
  run.refused = take();
  for (std::vector<float>* x : {&run.outputs.o, &run.outputs.final_state}) {
    const std::string_view bytes = take();
    x->resize(bytes.size() / sizeof(float));
    std::copy_n(bytes.data(), bytes.size(), reinterpret_cast<char*>(x->data()));
  }
  return run;
}

}  // namespace

ProbeRun probe_apart(const std::function<ProbeRun()>& run, double timeout) {
  const JobResult done = run_apart([&] { return packed(run()); }, timeout);
  if (const std::optional<Judgement> lost = judgement_of_loss(done))
    return {{}, fmt::format("{}: {}", name_of(lost->verdict), lost->reason)};
  return unpacked(done.text);
}

}  // namespace samestate::cli
