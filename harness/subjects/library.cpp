#include "harness/subjects/library.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "harness/processes/pool.h"
#include "harness/run/call_variant.h"
#include "harness/run/float_environment.h"
#include "harness/subjects/c_library.h"
#include "reference/error.h"

namespace samestate {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = 16 << 20;  ///< most bytes of a declaration
constexpr std::size_t kMostRows = 10'000;

/// A library loaded in the process that calls its kernels.
struct Loaded {
  std::vector<CallKernel> rows;  ///< rows of a plugin
  SubjectCall call;              ///< the function of a library in C
  std::string problem;           ///< why it cannot be called
  std::string environment;       ///< the changes that loading it made (FloatEnvironment::changed)
};

/// Loads it into the calling process, where it stays.
Loaded load(const std::filesystem::path& path, bool in_c) {
  Loaded loaded;
  const FloatEnvironment environment;
  try {
    if (in_c) {
      loaded.call = open_c_subject(path).call;
    } else {
      loaded.rows = load_plugin(path);
    }
  } catch (const std::exception& error) {
    loaded.problem = error.what();
  } catch (...) {
    loaded.problem = path.string() + ": it threw something that is not a std::exception";
  }
  loaded.environment = FloatEnvironment::changed();
  return loaded;
}

/// A library that every calling process loads for itself, at its first call and within `start` seconds.
class Lazily {
 public:
  Lazily(std::filesystem::path path, bool in_c, double start)
      : path_(std::move(path)), in_c_(in_c), start_(start) {}

  /// Throws runtime_error if it cannot be loaded, and ChangedEnvironment if loading it changed the float
  /// environment.
  const Loaded& get() {
    std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock() || !loaded_) {
      const ExcusedTime excused(start_);
      if (!lock.owns_lock()) lock.lock();
      if (!loaded_) loaded_ = std::make_unique<Loaded>(load(path_, in_c_));
    }
    if (!loaded_->problem.empty()) throw std::runtime_error(loaded_->problem);
    if (!loaded_->environment.empty())
      throw ChangedEnvironment(
          "the library changed the floating-point environment of the thread that loads it: " +
          loaded_->environment + "; a library linked with -ffast-math does so: link it without");
    return *loaded_;
  }

  /// Returns the row at that index. Throws runtime_error if its name is not the declared one.
  const CallKernel& row(std::size_t index, const std::string& name) {
    const std::vector<CallKernel>& all = get().rows;
    if (index < all.size() && all[index].name == name) return all[index];
    throw std::runtime_error(
        fmt::format("plugin {} lists other rows each time: {} is gone", path_.string(), name));
  }

 private:
  std::filesystem::path path_;
  bool in_c_;
  double start_;
  std::mutex mutex_;
  std::unique_ptr<Loaded> loaded_;
};

Json json_of_plugin(const std::vector<CallKernel>& rows) {
  Json out = Json::array();
  for (const CallKernel& row : rows) {
    Json x{
        {"name", row.name},          {"system", row.system},        {"form", row.form},
        {"device", row.device},      {"contracts", row.contracts},  {"limits", row.limits},
        {"strided", row.strided},    {"packed", row.packed},        {"taps", row.taps},
        {"variants", Json::array()}, {"listed_by", row.listed_by},  {"contract_dtypes", row.contract_dtypes},
        {"run", row.run != nullptr}, {"time", row.time != nullptr}, {"trace", row.trace != nullptr}};
    for (const Variant& v : row.variants) x["variants"].push_back({v.name, v.contracts, v.limits, v.why});
    out.push_back(std::move(x));
  }
  return out;
}

/// Runs in the child: returns what the library declares, or why it declares nothing, as JSON.
std::string declared_here(const std::filesystem::path& path) {
  Json out{{"in_c", false}};
  try {
    const std::filesystem::path folder = std::filesystem::current_path();
    out["in_c"] = is_elf(path) && is_c_subject(path);
    // Its constructors may have changed the folder, and the path may be relative.
    std::filesystem::current_path(folder);
    if (out["in_c"]) {
      out["ready"] = open_c_subject(path).declaration;
    } else {
      out["plugin"] = json_of_plugin(load_plugin(path));
    }
  } catch (const std::exception& error) {
    out["problem"] = error.what();
  } catch (...) {
    out["problem"] = path.string() + ": its declaration threw something that is not a std::exception";
  }
  // Foreign names may consist of any bytes; the table refuses those that are not valid names.
  return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// Sets a function of the row so that the calling process looks it up in its own library; null if the row has
/// none.
template <class Result, class... Given>
void forward(std::function<Result(Given...)> CallKernel::*function, CallKernel& row, bool there,
             std::size_t index, const std::shared_ptr<Lazily>& library) {
  if (!there) return;
  row.*function = [=, name = row.name](Given... given) -> Result {
    return (library->row(index, name).*function)(given...);
  };
}

/// Throws Json::exception if it is not a list of rows.
std::vector<CallKernel> rows_of(const Json& plugin, const std::shared_ptr<Lazily>& library) {
  std::vector<CallKernel> rows;
  if (plugin.size() > kMostRows) throw Error(fmt::format("more than {} rows", kMostRows));
  for (const Json& x : plugin) {
    CallKernel row;
    x.at("name").get_to(row.name);
    x.at("system").get_to(row.system);
    x.at("form").get_to(row.form);
    x.at("device").get_to(row.device);
    x.at("contracts").get_to(row.contracts);
    x.at("limits").get_to(row.limits);
    x.at("strided").get_to(row.strided);
    x.at("packed").get_to(row.packed);
    x.at("taps").get_to(row.taps);
    x.at("contract_dtypes").get_to(row.contract_dtypes);
    for (const Json& v : x.at("variants")) {
      const auto texts = v.get<std::array<std::string, 4>>();
      row.variants.push_back({texts[0], texts[1], texts[2], texts[3]});
    }
    // The name is one of this program's strings, since the plugin's own is text in its process.
    for (const std::string_view known : {kFamilyRows, kTensorRows, kCallRows}) {
      if (x.at("listed_by").get<std::string>() == known) row.listed_by = known;
    }
    forward(&CallKernel::run, row, x.at("run").get<bool>(), rows.size(), library);
    forward(&CallKernel::time, row, x.at("time").get<bool>(), rows.size(), library);
    forward(&CallKernel::trace, row, x.at("trace").get<bool>(), rows.size(), library);
    rows.push_back(std::move(row));
  }
  return rows;
}

/// Throws Error, and Json::exception if it is not a declaration.
void read_declaration(const std::string& text, const std::filesystem::path& file, double start,
                      Library& library) {
  if (text.size() > kMostBytes)
    throw Error(fmt::format("a declaration of {} bytes: at most {}", text.size(), kMostBytes));
  const Json said = Json::parse(text);
  library.in_c = said.at("in_c").get<bool>();
  if (said.contains("problem")) {
    library.problem = said.at("problem").get<std::string>();
    return;
  }
  const auto lazily = std::make_shared<Lazily>(file, library.in_c, start);
  if (!library.in_c) {
    library.subject.rows = rows_of(said.at("plugin"), lazily);
    return;
  }
  library.subject = subject_rows(
      parse_ready(said.at("ready").get<std::string>()),
      [lazily](EdgeCall& call, const std::string& kernel) { return lazily->get().call(call, kernel); });
}

}  // namespace

bool is_elf(const std::filesystem::path& path) {
  std::error_code none;
  if (!std::filesystem::is_regular_file(path, none)) return false;
  std::ifstream file(path, std::ios::binary);
  std::array<char, 4> magic{};
  file.read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == "\177ELF";
}

Library declared_library(const std::filesystem::path& path, const SubjectPatience& patience) {
  Library library;
  if (path.empty()) {
    library.problem = "the name of a plugin is empty: name a shared library";
    return library;
  }
  const JobResult done = run_apart([&] { return declared_here(path); }, patience.start, patience.stop);
  const std::string where = path.string();
  switch (done.kind) {
    case JobResult::Kind::answered:
      break;
    case JobResult::Kind::hung:
      if (done.how == "interrupt") {
        library.problem = where + ": interrupted while it was loaded";
        return library;
      }
      library.problem = fmt::format(
          "{}: not loaded, or nothing declared, within {:g} s, and its process was killed; --start-timeout "
          "gives it longer",
          where, patience.start);
      return library;
    case JobResult::Kind::died:
    case JobResult::Kind::unrepeated:
      library.problem = fmt::format(
          "{}: its process ended while the library was loaded and asked what it declares: {}; mend what "
          "its constructors, static objects and declaration do",
          where, done.reason);
      return library;
  }
  try {
    // A library that is loaded later may have changed the folder.
    read_declaration(done.text, std::filesystem::absolute(path), patience.start, library);
  } catch (const Error& error) {
    library.problem = fmt::format("{}: {}", where, error.what());
  } catch (const Json::exception&) {
    library.problem = where + ": what its process said is not a declaration, so something else wrote there";
  }
  return library;
}

}  // namespace samestate
