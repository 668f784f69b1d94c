#pragma once

#include <string>
#include <string_view>

namespace samestate {

/// "fla 0.6.0, torch 2.11.0" from the packages that the head of a run lists for a subject, and "mine.py
/// e961848c" for a subject or plugin that is a file; empty if it lists none. `plugins` is Run::plugins;
/// `options` is Record::options, which identifies the subject.
[[nodiscard]] std::string packages_of(std::string_view plugins, std::string_view options);

}  // namespace samestate
