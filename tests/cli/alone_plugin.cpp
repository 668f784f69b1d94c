// Rows with one form each and no kernel of the other form: this build's own kernels of the gated delta rule
// as alone.FORM.gated_delta_rule.FORM.
#include "optimized/plugin.h"

int samestate_plugin_abi() { return samestate::plugin_abi; }

void samestate_plugin_kernels(std::vector<samestate::Kernel>* rows) {
  for (const samestate::Kernel& kernel : samestate::kernels()) {
    if (kernel.system != "gated_delta_rule" || kernel.device != "cpu") continue;
    samestate::Kernel row = kernel;
    row.name = "alone." + row.form + ".gated_delta_rule." + row.form;
    row.contracts = {"fp32"};
    rows->push_back(std::move(row));
  }
}
