/// A program that speaks docs/lookup/subjects.md: the gated delta rule token by token in double, with conventions as named, and
/// faults of the kind that somebody else's program has.
/// usage: test_subject FAULT [CONVENTIONS [NAME [CONTRACTS]]]; CONVENTIONS is the JSON object of a declaration.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "reference/contract.h"

namespace {

using Json = nlohmann::ordered_json;

std::string fault;
Json conventions = Json::object();

std::string convention(const char* key, const char* otherwise) {
  return conventions.contains(key) ? conventions[key].get<std::string>() : otherwise;
}

float of_bf16(std::uint16_t bits) {
  const std::uint32_t wide = static_cast<std::uint32_t>(bits) << 16U;
  float x = 0;
  std::memcpy(&x, &wide, sizeof x);
  return x;
}

std::uint16_t to_bf16(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U);
}

/// A tensor of a call, by coordinates.
struct Tensor {
  std::byte* base = nullptr;
  std::string dtype;
  std::vector<std::int64_t> shape, strides;
  bool state = false;

  /// Returns what one dimension adds to the offset, computed in 32 bits if the fault is in that dimension.
  [[nodiscard]] std::int64_t term(std::size_t d, std::int64_t index) const {
    const std::int64_t right = index * strides[d];
    const bool wraps = (fault == "batch32" && d == 0 && !state) || (fault == "token32" && d == 1 && !state) ||
                       (fault == "head32" && d == 2 && !state) || (fault == "slot32" && d == 0 && state);
    return wraps ? static_cast<std::int32_t>(right) : right;
  }
  template <class... Index>
  [[nodiscard]] std::byte* at(Index... index) const {
    const std::vector<std::int64_t> coordinates{index...};
    std::int64_t offset = 0;
    for (std::size_t d = 0; d < coordinates.size(); ++d) offset += term(d, coordinates[d]);
    const int size = dtype == "int64" ? 8 : dtype == "bf16" ? 2 : 4;
    return base + (fault == "byte32" ? static_cast<std::uint32_t>(offset * size) : offset * size);
  }
  template <class... Index>
  [[nodiscard]] double get(Index... index) const {
    if (dtype == "int64") {
      std::int64_t x = 0;
      std::memcpy(&x, at(index...), sizeof x);
      return static_cast<double>(x);
    }
    if (dtype == "int32") {
      std::int32_t x = 0;
      std::memcpy(&x, at(index...), sizeof x);
      return x;
    }
    if (dtype == "bf16") {
      std::uint16_t bits = 0;
      std::memcpy(&bits, at(index...), sizeof bits);
      return of_bf16(bits);
    }
    float x = 0;
    std::memcpy(&x, at(index...), sizeof x);
    return x;
  }
  template <class... Index>
  void set(double value, Index... index) const {
    const auto x = static_cast<float>(value);
    if (dtype == "bf16") {
      const std::uint16_t bits = to_bf16(x);
      std::memcpy(at(index...), &bits, sizeof bits);
    } else {
      std::memcpy(at(index...), &x, sizeof x);
    }
  }
};

struct Memory {
  std::string path;
  std::byte* begin = nullptr;
  std::size_t size = 0;

  void map(std::size_t bytes) {
    if (bytes <= size) return;
    if (begin != nullptr) ::munmap(begin, size);
    const int file = ::open(path.c_str(), O_RDWR);
    void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    if (at == MAP_FAILED) std::exit(9);
    begin = static_cast<std::byte*>(at);
    size = bytes;
  }
};

std::optional<Tensor> find(const Json& list, const char* name, const Memory& memory) {
  for (const Json& x : list) {
    if (x["name"] == name)
      return Tensor{memory.begin + x["offset"].get<std::int64_t>(), x["dtype"], x["shape"], x["strides"],
                    std::string_view(name).ends_with("_state")};
  }
  return std::nullopt;
}

/// o and the final state.
void compute(const Json& call, const Memory& memory) {
  const auto in = [&](const char* name) { return find(call["inputs"], name, memory); };
  const auto out = [&](const char* name) { return find(call["outputs"], name, memory); };
  const Tensor q = *in("q"), k = *in("k"), v = *in("v"), o = *out("o");
  const std::optional<Tensor> g = in("g"), beta = in("beta"), initial = in("initial_state"),
                              offsets = in("cu_seqlens"), final_state = out("final_state");
  const std::string layout = convention("layout", "BTHD");
  const bool first_values = convention("state", "kv") == "vk";
  const std::int64_t Hk = call["parameters"]["Hk"], Hv = call["parameters"]["Hv"],
                     dk = call["parameters"]["dk"], dv = call["parameters"]["dv"], B = call["batch"],
                     T = call["tokens"];
  const auto place = [&](const Tensor& x, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) {
    const bool wide = x.shape.size() == (layout == "THD" ? 3U : 4U);
    if (layout == "THD") return wide ? x.at(b * T + t, h, d) : x.at(b * T + t, h);
    if (layout == "BHTD") return wide ? x.at(b, h, t, d) : x.at(b, h, t);
    return wide ? x.at(b, t, h, d) : x.at(b, t, h);
  };
  const auto get = [&](const Tensor& x, std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) {
    return Tensor{place(x, b, t, h, d), x.dtype, {}, {}}.get();
  };
  const auto state = [&](const Tensor& s, std::int64_t n, std::int64_t h, std::int64_t i, std::int64_t j) {
    return Tensor{first_values ? s.at(n, h, j, i) : s.at(n, h, i, j), s.dtype, {}, {}};
  };
  const double scale = convention("scale", "argument") == "dk"   ? 1.0 / std::sqrt(static_cast<double>(dk))
                       : convention("scale", "argument") == "dv" ? 1.0 / std::sqrt(static_cast<double>(dv))
                                                                 : call["scale"].get<double>();
  const bool tiled = call["heads"] == "tiled";
  const bool packed = offsets.has_value();
  const std::int64_t N = packed ? offsets->shape[0] - 1 : B;
  const std::string decay = convention("decay", "ln"), strength = convention("beta", "beta");
  for (std::int64_t n = 0; n < N; ++n) {
    const std::int64_t b = packed ? 0 : n;
    const auto begin = packed ? static_cast<std::int64_t>(offsets->get(n)) : 0;
    const auto end = packed ? static_cast<std::int64_t>(offsets->get(n + 1)) : T;
    for (std::int64_t h = 0; h < Hv; ++h) {
      const std::int64_t kh = tiled ? h % Hk : h / (Hv / Hk);
      std::vector<double> S(static_cast<std::size_t>(dk * dv), 0.0);
      for (std::int64_t i = 0; initial && i < dk; ++i) {
        for (std::int64_t j = 0; j < dv; ++j)
          S[static_cast<std::size_t>(i * dv + j)] = state(*initial, n, h, i, j).get();
      }
      for (std::int64_t t = begin; t < end; ++t) {
        std::vector<double> key(static_cast<std::size_t>(dk)), query(static_cast<std::size_t>(dk));
        double kk = 1e-6, qq = 1e-6;
        for (std::int64_t i = 0; i < dk; ++i) {
          const auto at = static_cast<std::size_t>(i);
          key[at] = get(k, b, t, kh, i), query[at] = get(q, b, t, kh, i);
          kk += key[at] * key[at], qq += query[at] * query[at];
        }
        const bool norm = call["l2norm"] == true;
        for (double& x : key) x *= norm ? 1.0 / std::sqrt(kk) : 1.0;
        for (double& x : query) x *= norm ? 1.0 / std::sqrt(qq) : 1.0;
        const double given = g ? get(*g, b, t, h, 0) : 0.0;
        const double alpha = !g                  ? 1.0
                             : decay == "linear" ? given
                             : decay == "log2"   ? std::exp2(given)
                             : decay == "raw"    ? std::exp(-std::log1p(std::exp(given)))
                                                 : std::exp(given);
        const double raw = beta ? get(*beta, b, t, h, 0) : 1.0;
        const double write =
            strength == "beta" ? raw : (strength == "logit" ? 1.0 : 2.0) / (1.0 + std::exp(-raw));
        for (std::int64_t j = 0; j < dv; ++j) {
          double read = 0.0, result = 0.0;
          for (std::int64_t i = 0; i < dk; ++i)
            read += key[static_cast<std::size_t>(i)] * (S[static_cast<std::size_t>(i * dv + j)] *= alpha);
          const double u = write * (get(v, b, t, h, j) - read);
          for (std::int64_t i = 0; i < dk; ++i)
            result += query[static_cast<std::size_t>(i)] *
                      (S[static_cast<std::size_t>(i * dv + j)] += key[static_cast<std::size_t>(i)] * u);
          if (fault == "unwritten" && t == end - 1 && j == dv - 1) continue;
          const double factor = fault == "wrong" ? 1.01 : fault == "nan" ? std::nan("") : 1.0;
          Tensor{place(o, b, t, h, j), o.dtype, {}, {}}.set(factor * scale * result);
        }
      }
      for (std::int64_t i = 0; final_state && i < dk; ++i) {
        for (std::int64_t j = 0; j < dv; ++j)
          state(*final_state, n, h, i, j).set(S[static_cast<std::size_t>(i * dv + j)]);
      }
    }
  }
  if (fault == "edits_input") k.set(3.0, 0, 0, 0, 0);
  if (fault == "writes_beside" || (fault == "damages" && call["tokens"] == 33)) *(o.base - 8) = std::byte{1};
  std::int64_t last = 1;
  for (std::size_t d = 0; d < o.shape.size(); ++d) last += (o.shape[d] - 1) * o.strides[d];
  volatile std::byte* const behind = o.base + last * (o.dtype == "fp32" ? 4 : 2);
  if (fault == "writes_64_beyond") behind[63 * 4] = std::byte{1};
  if (fault == "writes_5000_beyond") behind[4999 * 4] = std::byte{1};
  if (fault == "writes_5000_before") o.base[-5000 * 4] = std::byte{1};
  if (fault == "reads_5000_beyond" && behind[4999 * 4] == std::byte{3}) std::exit(8);
  if (fault == "puts_back") {
    const std::byte was = behind[4999 * 4];
    behind[4999 * 4] = std::byte{7};
    behind[4999 * 4] = was;
  }
}

/// In the place of o that of the call before, where that was as large, or what is in v.
void give_other(bool last, const Json& call, const Memory& memory) {
  static std::vector<std::byte> before;
  const Tensor o = *find(call["outputs"], "o", memory), v = *find(call["inputs"], "v", memory);
  std::size_t bytes = o.dtype == "fp32" ? 4 : 2;
  for (const std::int64_t n : o.shape) bytes *= static_cast<std::size_t>(n);
  const std::vector<std::byte> now(o.base, o.base + bytes);
  if (!last)
    std::memcpy(o.base, v.base, bytes);
  else if (before.size() == bytes)
    std::memcpy(o.base, before.data(), bytes);
  before = now;
}

void say(const Json& message) { std::cout << message.dump() << std::endl; }

}  // namespace

int main(int argc, char** argv) {
  fault = argc > 1 ? argv[1] : "none";
  if (argc > 2) conventions = Json::parse(argv[2]);
  if (fault == "dies_at_start") return 3;
  if (fault == "silent") ::pause();
  Memory memory;
  int calls = 0;
  bool damaged = false;
  std::set<std::string> tuned;
  for (std::string line; std::getline(std::cin, line);) {
    const Json message = Json::parse(line);
    if (message["type"] == "bye") return 0;
    if (message["type"] == "hello") {
      memory = Memory{message["memory"]};  // another process's
      if (fault == "prints") std::cout << "hello from a library\n";
      const std::string name = argc > 3 ? argv[3] : "mine.gated_delta_rule.recurrent";
      const std::string contract = argc > 4 ? argv[4] : "fp32";
      Json kernel{{"name", name},
                  {"system", "gated_delta_rule"},
                  {"form", "recurrent"},
                  {"contracts", {contract}},
                  {"conventions", conventions},
                  {"strided", fault == "strided" || fault.ends_with("32")}};
      if (fault == "long_name") kernel["name"] = std::string(1 << 20, 'a') + ".recurrent";
      if (fault == "key") kernel["colour"] = "red";
      if (fault == "tunes_each") kernel["variant"] = {"dk"};
      if (fault == "compiles") kernel["variant"] = {"dk", "dv"};
      if (fault == "compiles_for") kernel["variant"] = {"seed"};
      if (fault == "refuses") kernel["limits"] = {"T >= 1"};
      if (fault.starts_with("jit") || std::getenv("ON_CUDA") != nullptr) kernel["device"] = "cuda";
      if (fault == "jit_declared") kernel["variant"] = {"dk", "T%16"};
      if (fault == "jit_limited") kernel["limits"] = {"dk <= 128"};
      if (fault == "small") kernel["limits"] = {"dk <= 4", "regime != slow"};
      say({{"type", "ready"}, {"protocol", fault == "protocol" ? 9 : 1}, {"kernels", {kernel}}});
      continue;
    }
    if (message["type"] != "run") continue;
    ++calls;
    memory.map(message["bytes"]);
    const Json id = message["id"];
    if (fault == "chatty") std::cerr << std::string(100'000, '.') << "\nptxas info: " << calls << std::endl;
    if (fault == "chatty_crash") std::cerr << "error: illegal instruction at 0x3f" << std::endl;
    if (fault == "signal" || fault == "chatty_crash") ::raise(SIGSEGV);
    if (fault == "exit") return 0;
    if (fault == "small" && message["parameters"]["dk"] > 4) return 4;  // it was not to be asked
    if (fault == "hangs" || (fault == "hangs_later" && calls > 1)) ::pause();
    if (fault == "tunes" && calls == 1) ::sleep(3);
    if (fault == "tunes_each" && tuned.insert(message["parameters"]["dk"].dump()).second) ::usleep(1'500'000);
    if (fault == "garbage") std::cout << "{\"type\":\n";
    if (fault == "floods") std::cout << std::string(5 << 20, 'x') << std::endl;
    if (fault == "truncates") {
      if (::truncate(memory.path.c_str(), 0) == 0) return 7;  // it is sealed
    }
    if (fault == "grows" && ::truncate(memory.path.c_str(), static_cast<off_t>(4 * memory.size)) != 0)
      return 7;
    if (fault.starts_with("seals")) {
      constexpr int kFutureWrite = 0x10;
      const int file = ::open(memory.path.c_str(), O_RDWR);
      if (::fcntl(file, F_ADD_SEALS, fault == "seals_writes" ? kFutureWrite : F_SEAL_GROW) != 0) return 7;
      ::close(file);
    }
    if (fault == "closes") ::close(STDOUT_FILENO);
    while (fault == "compiles_on" || (fault == "compiles_later" && calls > 1)) {
      say({{"type", "busy"}, {"id", id}, {"what", "compiling"}});
      ::usleep(20'000);
    }
    // The judge must not find the processes that it started when all is done.
    if (fault == "child" && calls == 1 && ::fork() == 0) {
      ::execlp("sleep", "sleep", "987654", nullptr);
      ::_exit(1);
    }
    if (fault == "late") say({{"type", "busy"}, {"id", id}, {"what", "compiling"}});
    if (fault == "throws") {
      const std::string trace = "Traceback of T = " + message["tokens"].dump() + "\nValueError: no";
      say({{"type", "error"}, {"id", id}, {"reason", "ValueError: no"}, {"trace", trace}});
      continue;
    }
    // A call of 33 tokens damages its heap, and whatever comes after it throws.
    if (fault.starts_with("damages") && damaged) {
      say({{"type", "error"},
           {"id", id},
           {"where", "mine.py:5 empty"},
           {"refusal", true},
           {"reason", "TypeError: empty()"}});
      continue;
    }
    if (fault == "environment") {
      say({{"type", "error"}, {"id", id}, {"environment", true}, {"reason", "left rounding toward zero"}});
      continue;
    }
    if ((fault.starts_with("jit") || fault == "narrow") && message["parameters"]["dk"] > 64) {
      say({{"type", "error"},
           {"id", id},
           {"refusal", true},
           {"where", "mine.py:12 launch"},
           {"reason", "ValueError: head size " + message["parameters"]["dk"].dump()}});
      continue;
    }
    if (fault == "refuses") {
      say({{"type", "unsupported"}, {"id", id}, {"reason", "not today"}});
      continue;
    }
    if (fault == "early") {  // before it has computed anything
      say({{"type", "ran"}, {"id", id}});
      ::usleep(100'000);
    }
    const bool skips =
        fault == "empty" || (fault == "first" && calls > 1) || (fault == "second" && calls == 1);
    if (!skips) compute(message, memory);
    if (fault.starts_with("damages") && message["tokens"] == 33) damaged = true;
    if (fault == "last" || fault == "input") give_other(fault == "last", message, memory);
    if (fault == "early") continue;
    Json ran{{"type", "ran"}, {"id", fault == "wrong_id" ? Json(77) : id}};
    if (fault.starts_with("jit")) {
      // As Triton does: anew for each value of a constant, and for each kind of a whole number.
      const int T = message["tokens"];
      const std::string kind = T == 1 ? "1" : T % 16 == 0 ? "16" : "other";
      const bool fresh = tuned.insert(message["parameters"]["dk"].dump() + kind).second;
      if (fresh) ::usleep(20'000);
      ran["compiled"] = fresh ? 1 : 0;
      ran["seconds"] = {{"compile", fresh ? 0.02 : 0.0}, {"kernel", 0.001}};
    }
    say(ran);
    if (fault == "twice") say({{"type", "ran"}, {"id", id}});
  }
  return 0;
}
