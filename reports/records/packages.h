#pragma once

#include <string>
#include <string_view>

namespace samestate {

/// "fla 0.6.0, torch 2.11.0": of the packages that a run's head lists for a subject, and "mine.py e961848c" of a subject or a
/// plugin that is a file; empty where it lists none.
/// `plugins`: Run::plugins; `options`: Record::options, by which the subject is known.
[[nodiscard]] std::string packages_of(std::string_view plugins, std::string_view options);

}  // namespace samestate
