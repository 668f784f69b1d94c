#include "cli/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "fixtures/json_syntax.h"
#include "fixtures/nesting.h"
#include "fixtures/quote.h"
#include "harness/cases/case_line.h"
#include "reference/error.h"

namespace samestate::cli {

std::string without_kernel(const std::string& line) {
  Case c = parse_case(line);
  c.kernel.clear();
  return format_case(c);
}

std::vector<ManifestEntry> parse_manifest(std::string_view text, const std::string& path) {
  const auto refuse = [&](const std::string& why) { throw Error(fmt::format("{}: {}", path, why)); };
  const auto json = nested_within(text) ? nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false)
                                        : nlohmann::json();
  if (json.is_discarded())
    refuse(fmt::format("not JSON: {}; `samestate export` writes one", json_error(text)));
  if (!json.is_object() || !json.contains("format") || json["format"] != "samestate-export-1")
    refuse("its format is not samestate-export-1");
  if (!json.contains("cases") || !json["cases"].is_array() || json["cases"].empty())
    refuse("it contains no case");
  std::vector<ManifestEntry> out;
  for (const auto& one : json["cases"]) {
    if (!one.is_object() || !one.contains("file") || !one["file"].is_string() || !one.contains("line") ||
        !one["line"].is_string())
      refuse(fmt::format("case {} has no \"file\" and \"line\"", out.size()));
    ManifestEntry entry{one["file"], one["line"]};
    if (entry.file.empty() || entry.file == "." || entry.file == ".." ||
        std::any_of(entry.file.begin(), entry.file.end(),
                    [](unsigned char c) { return c < 0x20 || c == '/' || c == 0x7f; }))
      refuse(fmt::format("{} is not the name of a file in this folder", quote(entry.file)));
    entry.line = without_kernel(entry.line);
    out.push_back(std::move(entry));
  }
  return out;
}

std::vector<ManifestEntry> read_manifest(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "manifest.json";
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw Error(fmt::format(
        "{}: this is not a regular file, and there is no manifest.json in it; `samestate export` writes one",
        folder.string()));
  return parse_manifest(std::string{std::istreambuf_iterator<char>(file), {}}, path.string());
}

}  // namespace samestate::cli
