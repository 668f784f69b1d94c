#pragma once

#include <filesystem>
#include <string_view>

namespace samestate {

/// Replaces the file `path` by `text`: written beside it as `path`.partial, then renamed, so that a reader
/// sees the old file or the new one and never a part. A symbolic link stays, and the file that it names is
/// replaced; what is no file (a pipe, /dev/stdout, /dev/null) is written to and stays what it is. Makes
/// missing parent folders. Throws Error when the file cannot be written; the old file is then untouched.
void write_atomically(const std::filesystem::path& path, std::string_view text);

/// Throws Error where write_atomically would: better before a long run than after it.
void require_writable(const std::filesystem::path& path);

/// Makes the folder that will hold `path`. Throws Error when it cannot.
void make_parent_folder(const std::filesystem::path& path);

}  // namespace samestate
