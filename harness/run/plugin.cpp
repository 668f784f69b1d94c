#include "harness/run/plugin.h"

#include <dlfcn.h>

#include <string>

#include "optimized/plugin.h"
#include "reference/error.h"

namespace samestate {

std::vector<CallKernel> load_plugin(const std::filesystem::path& path) {
  if (path.empty()) throw Error("the name of a plugin is empty: name a shared library");
  // dlopen would search the system's folders for a bare name, so the name is made absolute.
  const std::string file = std::filesystem::absolute(path).string();
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw Error("plugin " + path.string() + " cannot be loaded: " + (why ? why : "unknown reason") +
                (path.string().find(".py") != std::string::npos
                     ? "; a function in a file of Python is python:FILE.py:FUNCTION"
                 : std::filesystem::exists(path) ? ""
                                                 : "; a function of Python is python:MODULE:FUNCTION, a "
                                                   "command that takes arguments one quoted text"));
  }
  const auto optional = [&](std::string_view name) { return dlsym(library, name.data()); };
  const auto function = [&](std::string_view name) {
    void* address = optional(name);
    if (address == nullptr)
      throw Error("plugin " + path.string() + " does not define " + std::string(name) +
                  ": see examples/kernel_plugin");
    return address;
  };
  const auto require = [&](const char* name, int ours) {
    const int theirs = reinterpret_cast<int (*)()>(function(name))();
    if (theirs == ours) return;
    throw Error("plugin " + path.string() + " was built for interface " + std::to_string(theirs) +
                " and this is " + std::to_string(ours) + ": rebuild it against this version");
  };
  require("samestate_plugin_abi", plugin_abi);
  std::vector<CallKernel> rows;
  const auto append = [&]<class Row>(void* lists, std::vector<Row> own) {
    reinterpret_cast<void (*)(std::vector<Row>*)>(lists)(&own);
    for (const Row& row : own) rows.push_back(by_call(row));
  };
  void* const calls = optional(kCallRows);
  // A plugin must list rows of at least one kind; the message about a plugin without any names the oldest
  // kind.
  if (void* lists = calls != nullptr ? optional(kFamilyRows) : function(kFamilyRows))
    append(lists, std::vector<Kernel>());
  if (void* lists = optional(kTensorRows)) append(lists, std::vector<OperatorKernel>());
  if (calls != nullptr) {
    require("samestate_plugin_call_abi", plugin_call_abi);
    append(calls, std::vector<CallKernel>());
  }
  if (rows.empty()) throw Error("plugin " + path.string() + " added no kernel");
  return rows;
}

}  // namespace samestate
