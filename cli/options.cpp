#include "cli/options.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "reference/error.h"

namespace samestate::cli {
namespace {

template <class Number, class... Format>
bool reads(std::string_view text, Number& value, Format... format) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, format...);
  return error == std::errc{} && end == text.data() + text.size();
}

}  // namespace

CLI::Validator number_in(double least, double most) {
  const auto check = [least, most](std::string& text) {
    double value = 0.0;
    const bool good = reads(text, value) && value >= least && value <= most;
    return good ? std::string() : fmt::format("Value {} not in range {:g} to {:g}", text, least, most);
  };
  return {check, fmt::format("in [{:g} - {:g}]", least, most), "number"};
}

CLI::Validator named() {
  return {[](std::string& text) { return text.empty() ? std::string("is empty; give a name") : ""; }, "",
          "named"};
}

CLI::Validator seed_number() {
  const auto check = [](std::string& text) {
    std::uint64_t value = 0;
    const bool hex = text.starts_with("0x");
    const bool good = reads(std::string_view(text).substr(hex ? 2 : 0), value, hex ? 16 : 10);
    return good ? std::string() : "Value " + text + " is no 64-bit number, as 42 or 0x2a";
  };
  return {check, "", "seed"};
}

void require_different(const std::vector<std::pair<std::string, std::string>>& files) {
  const auto place_of = [](const std::string& name) {
    return std::filesystem::weakly_canonical(std::filesystem::absolute(name));
  };
  // A pipe's /dev/fd/N is not a place in the file system.
  const auto takes_both = [](const std::string& name) {
    return name.empty() || (std::filesystem::exists(name) && !std::filesystem::is_regular_file(name));
  };
  for (std::size_t i = 0; i < files.size(); ++i) {
    const auto& [option, name] = files[i];
    if (takes_both(name)) continue;
    for (std::size_t j = 0; j < i; ++j) {
      if (takes_both(files[j].second) || place_of(files[j].second) != place_of(name)) continue;
      throw Error(
          fmt::format("{} and {} name one file, {}: give each its own", files[j].first, option, name));
    }
  }
}

void add_commit_option(CLI::App& app, std::string& commit) {
  app.add_option("--commit", commit,
                 "revision of the kernels, recorded at the head of every record and report")
      ->envname("SAMESTATE_COMMIT");
}

}  // namespace samestate::cli
