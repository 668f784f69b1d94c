#include "harness/run/makes_calls.h"

namespace samestate {

bool makes_calls(const Resolved& r, const std::string& kernel_form) {
  const bool divided = r.c.ranks > 1 && r.system->form(kernel_form)->chunked;
  return (r.form->decodes && !divided) || r.system->evaluates(r, kernel_form);
}

}  // namespace samestate
