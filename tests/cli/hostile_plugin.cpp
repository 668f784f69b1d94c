// This build's own kernel of the gated delta rule, right, in a library that does to its process what HOSTILE names.
#include "tests/cli/hostile.h"

#include "optimized/plugin.h"

namespace {

/// A static object, whose constructor and destructor are code of the library too.
struct Static {
  Static() {
    if (hostile_is("static_object")) std::exit(0);
    if (hostile_is("throw_in_constructor")) throw 1;
  }
  ~Static() {
    if (hostile_is("static_destructor")) ::_exit(0);
  }
} const object;

}  // namespace

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  hostile_declare();
  if (hostile_is("throw_in_declaration")) throw 1;
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.name != "cpu.gated_delta_rule.recurrent") continue;
    samestate::Kernel row = kernel;
    row.name = "mine.gated_delta_rule.recurrent";
    row.contracts = {"fp32"};
    row.run = [run = kernel.run](const samestate::Arguments& arguments, const samestate::Contract& contract) {
      hostile_call();
      return run(arguments, contract);
    };
    rows->push_back(std::move(row));
  }
}
