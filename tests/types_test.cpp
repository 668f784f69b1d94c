/// No two types of one name in one namespace: formally undefined (ODR), and in practice one destructor for both.
/// Read from the tree itself, so that what no translation unit includes together is seen too.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tree.h"

namespace samestate {
namespace {

using testing::joined;
using testing::Source;
using testing::sources_of;

/// A text without comments, strings, characters and preprocessor lines: what is left are braces and words.
std::string code_of(const std::string& text) {
  std::string code;
  std::size_t i = 0;
  const auto skip_to = [&](std::string_view end) {
    const std::size_t at = text.find(end, i);
    i = at == text.npos ? text.size() : at + end.size();
  };
  while (i < text.size()) {
    const std::string_view rest = std::string_view(text).substr(i);
    const bool line_begins =
        code.find_last_not_of(" \t") == code.npos || code[code.find_last_not_of(" \t")] == '\n';
    if (rest.starts_with("//") || (rest.front() == '#' && line_begins)) {
      // A macro goes on after a backslash.
      do {
        const std::size_t end = text.find('\n', i);
        const bool goes_on = end != text.npos && end > i && text[end - 1] == '\\';
        i = end == text.npos ? text.size() : end + 1;
        if (!goes_on) break;
      } while (i < text.size());
      code += '\n';
    } else if (rest.starts_with("/*")) {
      skip_to("*/");
    } else if (rest.starts_with("R\"")) {
      const std::string delimiter(rest.substr(2, rest.find('(') - 2));
      skip_to(")" + delimiter + "\"");
      code += "0";
    } else if (rest.front() == '"' ||
               (rest.front() == '\'' &&
                (code.empty() || !std::isalnum(static_cast<unsigned char>(code.back()))))) {
      const char quote = rest.front();
      for (++i; i < text.size() && text[i] != quote; ++i) i += text[i] == '\\' ? 1 : 0;
      ++i;
      code += "0";
    } else {
      code += rest.front();
      ++i;
    }
  }
  return code;
}

/// The structs, classes, unions and enums that a text defines in a named namespace, by full name. What stands in an
/// anonymous namespace, a type or a function is its own; so is a specialization of a template.
std::vector<std::string> types_of(const std::string& text) {
  std::vector<std::string> names;
  struct Scope {
    bool is_namespace;
    std::string name;
  };
  std::vector<Scope> scopes;
  std::vector<std::string> words;  // since the last ; { or }
  const auto open = [&] {
    const auto at = [&](const char* word) { return std::find(words.begin(), words.end(), word); };
    const bool calls = at("(") != words.end() || at("=") != words.end();
    if (!words.empty() && at("namespace") != words.end() && !calls) {
      std::string name;
      for (auto w = at("namespace") + 1; w != words.end(); ++w) name += *w;
      scopes.push_back({true, name});
      return;
    }
    const bool only_namespaces = std::all_of(
        scopes.begin(), scopes.end(), [](const Scope& s) { return s.is_namespace && !s.name.empty(); });
    auto key = words.end();
    for (auto w = words.begin(); w != words.end(); ++w) {
      const bool parameter = w != words.begin() && (*(w - 1) == "<" || *(w - 1) == ",");
      if ((*w == "struct" || *w == "class" || *w == "union" || *w == "enum") && !parameter) {
        key = w;
        break;
      }
    }
    if (key != words.end() && only_namespaces) {
      if (key + 1 != words.end() && (*(key + 1) == "class" || *(key + 1) == "struct")) ++key;
      const auto name = key + 1;
      const bool defines =
          name != words.end() && (name + 1 == words.end() || *(name + 1) == ":" || *(name + 1) == "final");
      if (defines) {
        std::string full;
        for (const Scope& scope : scopes) full += scope.name + "::";
        names.push_back(full + *name);
      }
    }
    scopes.push_back({false, "{"});
  };
  const std::string code = code_of(text);
  for (std::size_t i = 0; i < code.size();) {
    const char c = code[i];
    if (std::isspace(static_cast<unsigned char>(c))) {
      ++i;
    } else if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      std::size_t end = i;
      while (end < code.size() && (std::isalnum(static_cast<unsigned char>(code[end])) || code[end] == '_'))
        ++end;
      words.push_back(code.substr(i, end - i));
      i = end;
    } else if (code.compare(i, 2, "::") == 0) {
      words.emplace_back("::");
      i += 2;
    } else if (code.compare(i, 2, "[[") == 0) {
      const std::size_t end = code.find("]]", i);
      i = end == code.npos ? code.size() : end + 2;
    } else {
      if (c == '{') open();
      if (c == '}' && !scopes.empty()) scopes.pop_back();
      if (c == '{' || c == '}' || c == ';') {
        words.clear();
      } else {
        words.emplace_back(1, c);
      }
      ++i;
    }
  }
  return names;
}

/// The folders that are linked into one program; each test and example is a program of its own files.
const std::set<std::string> kLinked = {"reference", "optimized", "oracles", "fixtures", "harness",
                                       "reports",   "measure",   "fuzz",    "cli"};

/// Two files that define one name on purpose.
const std::set<std::set<std::string>> kInTurn = {
    // The second includes the first on the host, and defines the names itself on a device.
    {"optimized/cuda/units/emulation.h", "optimized/cuda/units/intrinsics.cuh"},
    {"optimized/cuda/units/emulated_hopper.h", "optimized/cuda/units/hopper.cuh"},
    {"optimized/cuda/units/emulated_wgmma.h", "optimized/cuda/units/wgmma.cuh"},
    // Instead of them on the host, where grid.cuh and call.cuh include the first.
    {"optimized/cuda/host/emulated_device.h", "optimized/cuda/host/device.cuh"},
    {"optimized/cuda/host/emulated_device.h", "optimized/cuda/host/device_memory.cuh"},
};

/// Two definitions of one name: the linker merges what it takes for one type.
std::vector<std::string> duplicates_of(const std::vector<Source>& sources) {
  std::map<std::string, std::set<std::string>> places;
  for (const Source& source : sources) {
    for (const std::string& name : types_of(source.text)) places[name].insert(source.path);
  }
  std::vector<std::string> faults;
  for (const auto& [name, paths] : places) {
    if (paths.size() < 2 || kInTurn.contains(paths)) continue;
    std::string fault = name + " is defined more than once:";
    for (const std::string& path : paths) fault += " " + path;
    faults.push_back(fault);
  }
  return faults;
}

TEST(Types, NoTwoTypesOfOneNameInOneNamespace) {
  std::vector<Source> linked;
  std::size_t types = 0;
  for (Source& source : sources_of(SAMESTATE_SOURCE_DIR, kLinked)) {
    types += types_of(source.text).size();
    linked.push_back(std::move(source));
  }
  EXPECT_GT(types, 200U) << "the definitions were not seen";
  EXPECT_EQ(joined(duplicates_of(linked)), "");
}

TEST(Types, SeesATypeThatIsDefinedTwice) {
  const auto faults = [](const std::string& a, const std::string& b) {
    return duplicates_of({{"fuzz/a.h", a}, {"reports/b.cpp", b}}).size();
  };
  const std::string one = "#pragma once\nnamespace samestate {\nstruct Finding { int a; };\n}\n";
  EXPECT_EQ(faults(one, one), 1U);
  EXPECT_EQ(
      faults(one,
             "namespace samestate {\n/// struct\nclass [[nodiscard]] Finding final : public X<int> {};\n}"),
      1U);
  EXPECT_EQ(faults(one, "namespace samestate { template <class T, class S> struct Finding { T t; }; }"), 1U);
  EXPECT_EQ(faults(one, "namespace samestate { enum class Finding : int { a, b }; }"), 1U);
  EXPECT_EQ(faults("namespace samestate::cuda { struct A {}; }",
                   "namespace samestate { namespace cuda { struct A {}; } }"),
            1U);
  EXPECT_EQ(faults(one, "namespace samestate { namespace { struct Finding {}; } }"), 0U) << "its own";
  EXPECT_EQ(faults(one, "namespace samestate::cli { struct Finding {}; }"), 0U) << "another namespace";
  EXPECT_EQ(
      faults(one, "namespace samestate { struct Finding; void f(struct Finding& x) { struct Finding {}; } }"),
      0U);
  EXPECT_EQ(faults(one, "namespace samestate { struct Outer { struct Finding {}; }; }"), 0U) << "a member";
  EXPECT_EQ(faults(one, "namespace samestate { template <> struct Finding<int> {}; }"), 0U)
      << "a specialization";
  EXPECT_EQ(
      faults(one, "namespace samestate { const char* a = \"struct Finding {\"; /* struct Finding { */ }"),
      0U);
  EXPECT_EQ(
      faults(one, "namespace samestate { constexpr long a = 64'000; char q = '{'; struct Finding {}; }"), 1U);
}

}  // namespace
}  // namespace samestate
