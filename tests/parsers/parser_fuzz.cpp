// Every parser of text or bytes that is not ours, on inputs that are nearly right: each is read or refused in one line, and
// nothing else happens. Built with the preset asan it is the test of memory and of undefined behaviour:
//   parser_fuzz [--inputs N] [--seed S] [--jobs N] [PARSER ..]     parser_fuzz --only NUMBER [--seed S] PARSER
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "cli/manifest.h"
#include "fixtures/quote.h"
#include "fixtures/run_file.h"
#include "fixtures/safetensors.h"
#include "harness/captured/captured_calls.h"
#include "harness/cases/case_filter.h"
#include "harness/cases/case_line.h"
#include "harness/run/kernel_table.h"
#include "harness/subjects/answer.h"
#include "harness/subjects/subject.h"
#include "harness/systems/saved_run.h"
#include "oracles/contract_points.h"
#include "oracles/contracts.h"
#include "oracles/given.h"
#include "reference/error.h"
#include "tests/parsers/inputs.h"

// Allocating the size that an input claims before it is checked is an error.
extern "C" const char* __asan_default_options() {  // NOLINT
  return "max_allocation_size_mb=1024:allocator_may_return_null=0:handle_segv=0:detect_stack_use_after_"
         "return=1";
}

namespace samestate {
namespace {

using testing::Seeds;

/// Thrown if a parser accepts an input but gets a wrong result.
struct Wrong : std::exception {
  explicit Wrong(std::string text) : what_(std::move(text)) {}
  [[nodiscard]] const char* what() const noexcept override { return what_.c_str(); }
  std::string what_;
};

struct Parser {
  std::string name;
  Seeds seeds;
  std::function<void(const std::string&)> read;
};

/// Lines of the corpora that begin as case lines do.
std::vector<std::string> case_lines() {
  std::vector<std::string> out;
  std::vector<std::filesystem::path> files;
  for (const auto& file : std::filesystem::directory_iterator(SAMESTATE_SOURCE_DIR "/fuzz/corpus"))
    files.push_back(file.path());
  std::sort(files.begin(), files.end());
  for (const auto& file : files) {
    std::ifstream in(file);
    int kept = 0;
    for (std::string line; kept < 12 && std::getline(in, line);) {
      if (!line.starts_with("v1 ")) continue;
      out.push_back(line);
      ++kept;
    }
  }
  return out;
}

/// Blanks and the like between them.
std::vector<std::string> words_of(const std::vector<std::string>& texts, const char* between) {
  std::vector<std::string> out;
  for (const std::string& text : texts) {
    for (std::size_t begin = 0; begin < text.size();) {
      const std::size_t end = std::min(text.find_first_of(between, begin), text.size());
      if (end > begin) out.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

void read_case(const std::string& text) {
  const Case c = parse_case(text);
  const std::string line = format_case(c);
  if (!(parse_case(line) == c) || format_case(parse_case(line)) != line)
    throw Wrong("what it is formatted as is another case: " + line);
}

void read_contract(const std::string& text) {
  const std::string name = contract_named(text).name;
  if (contract_named(name).name != name) throw Wrong("its own name is another contract: " + name);
}

void read_filter(const std::string& text) {
  CaseFilter filter;
  filter.where(text);
  static const Case some = parse_case("v1 retention form=packed lengths=1,2");
  (void)filter.takes(some);
}

void read_ready(const std::string& text) {
  Subject subject = subject_rows(parse_ready(text), [](EdgeCall&, const std::string&) { return Outcome{}; });
  KernelTable table({}, {});
  table.add(subject.rows);
  for (const Declaration& d : subject.kernels)
    table.converts(d.name, d.strided, d.variant, nullptr, formats_of(d.conventions));
  for (const KernelRow& row : table.all()) (void)row.limits.text();
}

void read_answer(const std::string& text) { (void)parse_answer(text, 7); }

void read_manifest_text(const std::string& text) {
  for (const cli::ManifestEntry& entry : cli::parse_manifest(text, "manifest.json")) {
    if (std::filesystem::path("a") / entry.file != std::filesystem::path("a/" + entry.file) ||
        entry.file.find('\0') != std::string::npos)
      throw Wrong("a file of another folder: " + entry.file);
  }
}

void read_captured_text(const std::string& text) {
  for (const CapturedCall& call : parse_captured(text, "calls.jsonl").calls) {
    if (std::filesystem::path("a") / call.file != std::filesystem::path("a/" + call.file) ||
        call.file.find('\0') != std::string::npos)
      throw Wrong("a file of another folder: " + call.file);
  }
}

/// A file that no disk holds.
class MemoryFile {
 public:
  MemoryFile() : file_(::memfd_create("parser_fuzz", 0)) {}
  ~MemoryFile() { ::close(file_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
  void hold(const std::string& bytes) const {
    if (::ftruncate(file_, 0) != 0 ||
        ::pwrite(file_, bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
      throw Error("no memory file");
  }

 private:
  int file_;
};

std::string with_length(const std::string& header, std::uint64_t length) {
  std::string out(8, '\0');
  for (int i = 0; i < 8; ++i) out[static_cast<std::size_t>(i)] = static_cast<char>(length >> (8 * i));
  return out + header;
}

/// The text is a number, a header and data in lines: the number is what is added to the header's length in the file.
std::string held(const std::string& text) {
  static const MemoryFile file;
  const std::size_t first = std::min(text.find('\n'), text.size());
  const std::size_t begin = std::min(first + 1, text.size());
  const std::size_t end = std::min(text.find('\n', begin), text.size());
  const std::string header = text.substr(begin, end - begin);
  const std::string data = end == text.size() ? "" : text.substr(end + 1);
  const std::uint64_t length =
      header.size() + static_cast<std::uint64_t>(std::strtoll(text.substr(0, first).c_str(), nullptr, 10));
  file.hold(with_length(header, length) + data);
  return file.path();
}

void read_tensors(const std::string& text) {
  const Safetensors all = read_safetensors(held(text));
  for (const std::string& name : all.names()) {
    std::int64_t size = 1;
    for (const std::int64_t n : all.shape(name)) size *= n;
    if (all.tensor(name).size() != size) throw Wrong("a tensor's values are not those of its shape");
  }
}

void read_run(const std::string& text) {
  const RunFile run = read_run_file(held(text), named_shapes);
  check_run(run, named_shapes);
  const Given given = given_in(run.given);
  if (given_in(text_of(given)) != given) throw std::logic_error("a text of Given that reads as another");
}

/// A file for held(): what is told of its data and then as many bytes of small numbers.
std::string run_text(const std::string& header, std::size_t bytes, std::string data = {}) {
  for (std::size_t i = data.size(); i < bytes; ++i) data += static_cast<char>(i * 37 % 0x3e);
  return "0\n" + header + "\n" + data;
}

/// Little-endian.
std::string whole_numbers(std::initializer_list<std::int64_t> values) {
  std::string out;
  for (const std::int64_t value : values) out += with_length("", static_cast<std::uint64_t>(value));
  return out;
}

std::vector<Parser> parsers() {
  const std::vector<std::string> cases = case_lines();
  std::vector<std::string> case_words = words_of(cases, " =");
  std::vector<std::string> contract_texts;
  for (const NamedContract& one : contracts()) contract_texts.push_back(one.contract.name);
  std::vector<std::string> contract_words = contract_texts;
  for (const ContractPoint& point : contract_points()) {
    contract_words.emplace_back(point.name);
    for (const std::string_view value : point.values) {
      contract_words.emplace_back(value);
      contract_texts.push_back("bf16+" + std::string(point.name) + ":" + std::string(value));
      contract_texts.push_back("fp32+" + std::string(point.name) + ":" + std::string(value));
    }
  }
  contract_texts.emplace_back("bf16+beta_k:bf16+inverse:block16/tf32_truncated");
  // Not every point has a place in every contract.
  std::erase_if(contract_texts, [](const std::string& text) {
    try {
      read_contract(text);
      return false;
    } catch (const Error&) {
      return true;
    }
  });
  case_words.insert(case_words.end(), contract_texts.begin(), contract_texts.end());

  const std::vector<std::string> readies{
      R"({"type":"ready","protocol":1,"kernels":[{"name":"a.gated_delta_rule.chunked","system":"gated_delta_rule","form":"chunked","device":"cuda","memory":"cuda","contracts":["bf16"],"limits":["dk <= 128","chunk in 16 32 64","dv % 8 = 0 if state = random"],"conventions":{"decay":"linear","state":"vk","heads":"tiled","l2norm":"in_kernel","scale":"dk","beta":"logit","layout":"THD","state_argument":"in_place","cu_seqlens":"int32","dtypes":{"g":"bf16"}},"strided":true,"variant":["dk"],"about":{"file":"a.py"}}],"about":{"torch":"2.11"}})",
      R"({"type":"ready","protocol":1,"kernels":[{"name":"m.rms_norm.fused","system":"rms_norm","form":"fused","contracts":["fp32"],"limits":["D <= 64","T in 1..9"],"conventions":{"dtypes":{"x":"fp16"}}},{"name":"b.gated_delta_net.recurrent","system":"gated_delta_net","form":"recurrent","contracts":["bf16_io"],"taps":["q","gated"]}]})",
      R"({"type":"ready","protocol":1,"kernels":[{"name":"c.retention.recurrent","system":"retention","form":"recurrent","contracts":["fp32","bf16"],"conventions":{"scale":"folded","heads":"repeated"}},{"name":"c.retention.chunked","system":"retention","form":"chunked","contracts":["any","fp32"],"conventions":{"scale":"folded","heads":"repeated"},"variant":["dk","dv","contract"]}]})"};
  std::vector<std::string> ready_words = words_of(readies, "\"{}[]:, ");
  ready_words.insert(ready_words.end(),
                     {"[]", "{}", "\"\"", "beta_two", "regime != slow", "log2", "raw", "BHTD", "dk % 0 = 0",
                      "dk in 9..1", "T <= dk", "if", "selective_scan"});
  const std::vector<std::string> answers{
      R"({"type":"ran","id":7})", R"({"type":"unsupported","id":7,"reason":"dk = 3"})",
      R"({"type":"error","id":7,"reason":"ValueError: no","trace":"a\nb","fatal":true})",
      R"({"type":"busy","id":7,"what":"compiling"})",
      R"({"type":"no_device","id":7,"reason":"none \u00e9"})"};
  const std::vector<std::string> manifests{
      R"({"format":"samestate-export-1","samestate":"0.1.0","cases":[{"file":"00000.safetensors","line":"v1 retention T=4"},{"file":"00001.safetensors","line":"v1 rms_norm T=2 D=3"}]})"};
  std::vector<std::string> manifest_words = words_of(manifests, "\"{}[]:, ");
  manifest_words.insert(manifest_words.end(),
                        {"..", "../x", "/etc/passwd", "a/b", ".", "\\u002e\\u002e", "a\\u0000b"});
  const std::vector<std::string> calls{
      R"({"event":"function","format":"samestate-capture-1","function":"m:f","declaration":{"name":"a.retention.chunked","system":"retention","form":"chunked","contracts":["fp32"],"limits":["chunk = 64"],"conventions":{"state":"vk"}},"arguments":{"q":"query"},"options":{"n":1}})"
      "\n"
      R"({"event":"call","function":"m:f","call":1,"file":"call-1-00001.safetensors","values":{"scale":null,"n":1.5,"on":true},"tensors":{"argument.query":{"dtype":"BF16","shape":[1,2,1,2],"strides":[4,2,2,1]}}})"
      "\n"
      R"({"event":"end","function":"m:f","seen":2})"};
  std::vector<std::string> call_words = words_of(calls, "\"{}[]:, \n");
  call_words.insert(call_words.end(), {"..", "../x", "/etc/passwd", "declare", "\n", "F8", "a\\u0000b"});
  const std::vector<std::string> runs{
      run_text(
          R"({"__metadata__":{"format":"samestate-run-1","case":"v1 retention form=recurrent T=2 Hk=1 dk=2 dv=2","kernel":"a"},"g":{"dtype":"F32","shape":[1,2,1],"data_offsets":[0,8]},"k":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[8,24]},"o":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[24,40]},"q":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[40,56]},"v":{"dtype":"F64","shape":[1,2,1,2],"data_offsets":[56,88]},"final_state":{"dtype":"F32","shape":[1,1,2,2],"data_offsets":[88,104]}})",
          104),
      run_text(
          R"({"__metadata__":{"format":"samestate-run-1","case":"v1 retention form=packed lengths=1,1 Hk=1 dk=1 dv=1","kernel":"a","given":"decay=log2 strength=logit scale=folded l2norm_place=max g=bf16 beta=fp16 q=bf16 l2norm_epsilon=0.001"},"cu_seqlens":{"dtype":"I64","shape":[3],"data_offsets":[0,24]},"k":{"dtype":"F32","shape":[1,2,1,1],"data_offsets":[24,32]},"o":{"dtype":"F32","shape":[1,2,1,1],"data_offsets":[32,40]},"q":{"dtype":"F32","shape":[1,2,1,1],"data_offsets":[40,48]},"v":{"dtype":"F32","shape":[1,2,1,1],"data_offsets":[48,56]},"final_state":{"dtype":"F32","shape":[2,1,1,1],"data_offsets":[56,64]},"g":{"dtype":"F32","shape":[1,2,1],"data_offsets":[64,72]}})",
          72, whole_numbers({0, 1, 2})),
      run_text(
          R"({"__metadata__":{"format":"samestate-run-1","case":"v1 l2norm form=fused T=2 H=1 D=2","kernel":"b"},"input.x":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[0,16]},"output.y":{"dtype":"F32","shape":[1,2,1,2],"data_offsets":[16,32]}})",
          32)};
  std::vector<std::string> files = runs;
  files.push_back(run_text(
      R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},"b":{"dtype":"BOOL","shape":[],"data_offsets":[6,7]},"c":{"dtype":"U8","shape":[0,5],"data_offsets":[7,7]},"d":{"dtype":"F16","shape":[1],"data_offsets":[7,9]},"e":{"dtype":"I32","shape":[2],"data_offsets":[9,17]}})",
      17, std::string(6, '\1') + '\0'));
  std::vector<std::string> file_words = words_of(files, "\"{}[]:,\n");
  file_words.insert(file_words.end(),
                    {"[4294967296,4294967296]", "[9223372036854775807,2]", "[-1]", "[0.5]", "BF16", "U8"});

  return {{"case", {cases, case_words}, read_case},
          {"contract", {contract_texts, contract_words}, read_contract},
          {"filter",
           {{"T=64..4096", "contract=bf16,fp32 kernel=*.chunked", "dk=..8 regime=none", "system=ret*"},
            case_words},
           read_filter},
          {"ready", {readies, ready_words}, read_ready},
          {"answer", {answers, words_of(answers, "\"{}[]:, ")}, read_answer},
          {"manifest", {manifests, manifest_words}, read_manifest_text},
          {"captured", {calls, call_words}, read_captured_text},
          {"safetensors", {files, file_words}, read_tensors},
          {"run", {runs, file_words}, read_run}};
}

/// Shared with the process that tries, so that what killed it has a number.
struct Progress {
  std::uint64_t number, read, refused;
};

/// Says what is wrong with how the parser handles the text; empty if nothing is.
std::string wrong_with(const Parser& parser, const std::string& text, Progress& progress) {
  try {
    parser.read(text);
    ++progress.read;
    return "";
  } catch (const Error& error) {
    ++progress.refused;
    const std::string_view said = error.what();
    // A remedy may list what is known.
    constexpr std::size_t kLongestLine = 4000;
    if (said.empty() || said.find_first_of(std::string_view("\n\r\0", 3)) != std::string_view::npos)
      return "refused in more than a line: " + quote(said, 300);
    if (said.size() > kLongestLine) return "refused in " + std::to_string(said.size()) + " bytes";
    return "";
  } catch (const std::exception& other) {
    return std::string("threw what is no Error: ") + other.what();
  }
}

int tried(const Parser& parser, std::uint64_t seed, std::uint64_t begin, std::uint64_t end,
          Progress& progress) {
  constexpr unsigned kSeconds = 60;
  for (std::uint64_t i = begin; i < end; ++i) {
    progress.number = i;
    if ((i - begin) % 256 == 0) ::alarm(kSeconds);  // a hang is SIGALRM
    const std::string text = testing::fuzzed(parser.seeds, seed, i);
    if (const std::string wrong = wrong_with(parser, text, progress); !wrong.empty()) {
      std::fprintf(stderr, "%s\n", wrong.c_str());
      return 1;
    }
  }
  return 0;
}

/// Part of the inputs, in a process of its own.
struct Part {
  pid_t process = -1;
  Progress* progress = nullptr;
  int status = 0;
};

/// Says which input ended the process, and how to try that one again.
void tell(const Parser& parser, std::uint64_t seed, const Part& part) {
  const auto number = static_cast<unsigned long long>(part.progress->number);
  const std::string text = testing::fuzzed(parser.seeds, seed, part.progress->number);
  std::printf("%s: input %llu (seed %llu): %s %d\n  parser_fuzz --only %llu --seed %llu %s\n  %s\n",
              parser.name.c_str(), number, static_cast<unsigned long long>(seed),
              WIFSIGNALED(part.status) ? "signal" : "exit code",
              WIFSIGNALED(part.status) ? WTERMSIG(part.status) : WEXITSTATUS(part.status), number,
              static_cast<unsigned long long>(seed), parser.name.c_str(), quote(text, 400).c_str());
}

int all_of(const Parser& parser, std::uint64_t seed, std::uint64_t inputs, std::uint64_t jobs) {
  for (const std::string& right : parser.seeds.right) {
    try {
      parser.read(right);
    } catch (const std::exception& error) {
      std::printf("%s: refuses %s: %s\n", parser.name.c_str(), quote(right, 200).c_str(), error.what());
      return 1;
    }
  }
  auto* progress = static_cast<Progress*>(
      ::mmap(nullptr, jobs * sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  if (progress == MAP_FAILED) return 2;
  const auto from = std::chrono::steady_clock::now();
  std::vector<Part> parts(jobs);
  for (std::uint64_t j = 0; j < jobs; ++j) {
    parts[j].progress = progress + j;
    parts[j].process = ::fork();
    if (parts[j].process == 0) {
      const int code = tried(parser, seed, inputs * j / jobs, inputs * (j + 1) / jobs, progress[j]);
      std::fflush(stderr);
      std::exit(code);
    }
  }
  int code = 0;
  std::uint64_t read = 0, refused = 0;
  for (Part& part : parts) {
    if (part.process < 0 || ::waitpid(part.process, &part.status, 0) != part.process) return 2;
    if (part.status != 0) tell(parser, seed, part), code = 1;
    read += part.progress->read, refused += part.progress->refused;
  }
  ::munmap(progress, jobs * sizeof(Progress));
  if (code != 0) return code;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - from;
  std::printf("%-12s %llu inputs: %llu read, %llu refused, %.0f s\n", parser.name.c_str(),
              static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(read),
              static_cast<unsigned long long>(refused), seconds.count());
  // Who reads nothing, or refuses nothing, was not tried.
  if (read < inputs / 200 || refused < inputs / 200) {
    std::printf("%s: nearly all inputs go one way\n", parser.name.c_str());
    return 1;
  }
  return 0;
}

int run(const std::vector<std::string>& words) {
  std::uint64_t inputs = 20'000, seed = 1, jobs = 1;
  std::string only;
  std::vector<std::string> names;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool more = i + 1 < words.size();
    if (words[i] == "--inputs" && more)
      inputs = std::stoull(words[++i]);
    else if (words[i] == "--seed" && more)
      seed = std::stoull(words[++i]);
    else if (words[i] == "--jobs" && more)
      jobs = std::max<std::uint64_t>(std::stoull(words[++i]), 1);
    else if (words[i] == "--only" && more)
      only = words[++i];
    else
      names.push_back(words[i]);
  }
  int code = 0;
  std::size_t found = 0;
  for (const Parser& parser : parsers()) {
    if (!names.empty() && std::find(names.begin(), names.end(), parser.name) == names.end()) continue;
    ++found;
    if (only.empty()) {
      code = std::max(code, all_of(parser, seed, inputs, jobs));
      std::fflush(stdout);
    } else {
      Progress progress{};
      const std::uint64_t number = std::stoull(only);
      code = std::max(code, tried(parser, seed, number, number + 1, progress));
    }
  }
  if (found != (names.empty() ? parsers().size() : names.size())) {
    std::fprintf(stderr, "a parser that is none\n");
    return 2;
  }
  return code;
}

}  // namespace
}  // namespace samestate

int main(int count, char** words) { return samestate::run({words + 1, words + count}); }
