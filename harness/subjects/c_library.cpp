#include "harness/subjects/c_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/run/call_loop.h"
#include "harness/run/guarded_memory.h"
#include "harness/subjects/device_memory.h"
#include "harness/subjects/edge.h"
#include "optimized/subject.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;

/// A call's message as the structs of C; the strings belong to the message.
class CCall {
 public:
  /// With a stream, offsets count from `memory` on the device; otherwise they are addresses of the host.
  CCall(const Json& message, std::byte* memory, void* stream) : message_(message) {
    call_.memory = stream != nullptr ? SAMESTATE_CUDA : SAMESTATE_HOST;
    call_.stream = stream;
    parameters(message["parameters"]);
    side(message["inputs"], memory, inputs_);
    side(message["outputs"], memory, outputs_);
    call_.size = sizeof call_;
    call_.kernel = text(message["kernel"]);
    call_.contract = text(message["contract"]);
    call_.inputs = inputs_.data(), call_.input_count = std::ssize(inputs_);
    call_.outputs = outputs_.data(), call_.output_count = std::ssize(outputs_);
    call_.parameters = parameters_.data(), call_.parameter_count = std::ssize(parameters_);
    call_.batch = message["batch"];
    call_.tokens = message["tokens"];
    call_.chunk = message["chunk"];
    call_.scale = message.value("scale", 1.0);
    call_.tiled = message.value("heads", "interleaved") == "tiled" ? 1 : 0;
    call_.l2norm = message.value("l2norm", false) ? 1 : 0;
    call_.threads = message["threads"];
    if (message.contains("cuts")) {
      cuts_ = message["cuts"].get<std::vector<std::int64_t>>();
      call_.cuts = cuts_.data(), call_.cut_count = std::ssize(cuts_);
    }
    call_.reason = reason_.data();
    call_.reason_size = reason_.size();
  }
  CCall(const CCall&) = delete;
  CCall& operator=(const CCall&) = delete;

  [[nodiscard]] const samestate_call* get() const { return &call_; }
  [[nodiscard]] std::string reason() {
    reason_.back() = '\0';
    return reason_.data();
  }

 private:
  static const char* text(const Json& value) { return value.get_ref<const std::string&>().c_str(); }

  void side(const Json& list, std::byte* memory, std::vector<samestate_tensor>& out) {
    for (const Json& x : list) {
      const auto numbers = [&](const char* key) {
        numbers_.push_back(std::make_unique<std::vector<std::int64_t>>(x[key]));
        return numbers_.back().get();
      };
      static constexpr std::array<Dtype, 5> kInOrder{Dtype::fp32, Dtype::bf16, Dtype::fp16, Dtype::int32,
                                                     Dtype::int64};
      samestate_tensor tensor{};
      tensor.name = text(x["name"]);
      const auto offset = x["offset"].get<std::size_t>();
      tensor.data = memory != nullptr ? memory + offset : reinterpret_cast<std::byte*>(offset);
      const std::vector<std::int64_t>* shape = numbers("shape");
      tensor.shape = shape->data();
      tensor.strides = numbers("strides")->data();
      tensor.rank = static_cast<std::int32_t>(shape->size());
      for (std::size_t i = 0; i < kInOrder.size(); ++i) {
        if (x["dtype"] == name_of(kInOrder[i])) tensor.dtype = static_cast<std::int32_t>(i);
      }
      out.push_back(tensor);
    }
  }
  void parameters(const Json& object) {
    names_.reserve(object.size());
    for (const auto& [name, value] : object.items()) {
      names_.push_back(name);
      parameters_.push_back({names_.back().c_str(), value});
    }
  }

  const Json& message_;
  std::vector<std::unique_ptr<std::vector<std::int64_t>>> numbers_;
  std::vector<std::string> names_;
  std::vector<samestate_tensor> inputs_, outputs_;
  std::vector<samestate_parameter> parameters_;
  std::vector<std::int64_t> cuts_;
  std::array<char, 400> reason_{};
  samestate_call call_{};
};

/// The memory of a call: each tensor has pages of its own, and inputs are read-only.
struct HostMemory {
  explicit HostMemory(EdgeCall& call) {
    for (const EdgeRegion& region : call.regions()) {
      const GuardedMemory& one = memories.emplace_back(region.blocks, region.place);
      EdgePlace place{one.data(), reinterpret_cast<std::size_t>(one.data())};
      for (std::size_t b = 0; b < region.blocks.size(); ++b) place.around.push_back(one.pages(b));
      places.push_back(std::move(place));
    }
    call.write(places);
    for (std::size_t i = 0; i < memories.size(); ++i) {
      memories[i].named(call.regions()[i].name, call.regions()[i].only_read);
      if (call.regions()[i].only_read) memories[i].close();
    }
  }
  /// Reads the outputs. Throws Trespass.
  void read(EdgeCall& call) const {
    for (const GuardedMemory& one : memories) {
      if (const std::string what = one.trespass(); !what.empty()) throw Trespass("the kernel " + what);
    }
    call.read(places);
  }

  std::vector<GuardedMemory> memories;
  std::vector<EdgePlace> places;
};

/// Throws whatever a kernel throws.
Outcome outcome_of(int said, CCall& call) {
  switch (said) {
    case SAMESTATE_RAN:
      return {};
    case SAMESTATE_UNSUPPORTED:
      return {Outcome::Kind::unsupported, call.reason()};
    case SAMESTATE_NO_DEVICE:
      return {Outcome::Kind::no_device, call.reason()};
    case SAMESTATE_ERROR:
      throw std::runtime_error(call.reason());
    default:
      throw std::runtime_error(fmt::format("it returned {}, which is not a samestate_outcome", said));
  }
}

void* opened(const std::filesystem::path& path) {
  return dlopen(std::filesystem::absolute(path).c_str(), RTLD_NOW | RTLD_LOCAL);
}

}  // namespace

bool is_c_subject(const std::filesystem::path& path) {
  void* library = opened(path);
  return library != nullptr && dlsym(library, "samestate_subject_declare") != nullptr;
}

CSubject open_c_subject(const std::filesystem::path& path) {
  void* library = opened(path);
  if (library == nullptr) {
    const char* why = dlerror();
    throw Error(fmt::format("{} cannot be loaded: {}", path.string(), why ? why : "unknown reason"));
  }
  const auto declare = reinterpret_cast<const char* (*)()>(dlsym(library, "samestate_subject_declare"));
  const auto run = reinterpret_cast<int (*)(const samestate_call*)>(dlsym(library, "samestate_subject_run"));
  if (declare == nullptr || run == nullptr)
    throw Error(fmt::format("{} does not define {}: see examples/subject_c", path.string(),
                            declare == nullptr ? "samestate_subject_declare" : "samestate_subject_run"));
  const char* text = declare();
  if (text == nullptr) throw Error(fmt::format("{} declares nothing", path.string()));
  try {
    std::set<std::string> on_device;
    for (const Declaration& d : parse_ready(text).kernels) {
      if (d.device_memory) on_device.insert(d.name);
    }
    return {text, [run, on_device](EdgeCall& call, const std::string& kernel) {
              if (!on_device.contains(kernel)) {
                const HostMemory memory(call);
                const Json message = Json::parse(call.message(1, kernel, 0, memory.places));
                CCall c(message, nullptr, nullptr);
                Outcome outcome = outcome_of(run(c.get()), c);
                if (outcome.kind == Outcome::Kind::ran) memory.read(call);
                return outcome;
              }
              std::vector<std::byte> bytes(call.packed_bytes());
              const std::vector<EdgePlace> places = call.packed(bytes);
              call.write(places);
              const Json message = Json::parse(call.message(1, kernel, bytes.size(), places));
              DeviceMemory device(bytes);
              CCall c(message, device.begin(), device.stream());
              Outcome outcome = outcome_of(run(c.get()), c);
              if (outcome.kind != Outcome::Kind::ran) return outcome;
              device.fetch(bytes);
              call.read(places);
              return outcome;
            }};
  } catch (const Error& error) {
    throw Error(fmt::format("{}: {}", path.string(), error.what()));
  }
}

Subject load_c_subject(const std::filesystem::path& path) {
  CSubject subject = open_c_subject(path);
  return subject_rows(parse_ready(subject.declaration), std::move(subject.call));
}

}  // namespace samestate
