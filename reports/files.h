#pragma once

#include <filesystem>
#include <string_view>

namespace samestate {

/// Replaces the file `path` by `text`: written beside it as `path`.partial, then renamed, so that a reader
/// sees the old file or the new one and never a part. Makes missing parent folders. Throws Error when the
/// file cannot be written; the old file is then untouched.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// Makes the folder that will hold `path`. Throws Error when it cannot.
void make_parent_folder(const std::filesystem::path& path);

}  // namespace samestate
