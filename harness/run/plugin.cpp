#include "harness/run/plugin.h"

#include <dlfcn.h>

#include <string>

#include "optimized/plugin.h"
#include "reference/error.h"

namespace samestate {

PluginRows load_plugin(const std::filesystem::path& path) {
  if (path.empty()) throw Error("the name of a plugin is empty: name a shared library");
  // An absolute name: dlopen would look a bare one up in the system's folders.
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
  const auto function = [&](const char* name) {
    void* address = dlsym(library, name);
    if (address == nullptr) {
      throw Error("plugin " + path.string() + " does not define " + name + ": see examples/kernel_plugin");
    }
    return address;
  };
  const auto abi = reinterpret_cast<int (*)()>(function("samestate_plugin_abi"));
  const auto rows_of = reinterpret_cast<void (*)(std::vector<Kernel>*)>(function(kFamilyRows.data()));
  if (const int theirs = abi(); theirs != plugin_abi) {
    throw Error("plugin " + path.string() + " was built for interface " + std::to_string(theirs) +
                " and this is " + std::to_string(plugin_abi) + ": rebuild it against this version");
  }
  PluginRows rows;
  rows_of(&rows.kernels);
  // Optional: a plugin of the recurrent family has none.
  if (void* address = dlsym(library, kTensorRows.data())) {
    reinterpret_cast<void (*)(std::vector<OperatorKernel>*)>(address)(&rows.operators);
  }
  if (rows.kernels.empty() && rows.operators.empty())
    throw Error("plugin " + path.string() + " added no kernel");
  return rows;
}

}  // namespace samestate
