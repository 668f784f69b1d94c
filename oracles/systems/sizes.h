#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/error.h"

/// Sizes and extents that are held in place. A plan copies and asks ten million calls for them, so that allocations were most of its time.
namespace samestate {

/// Values of sizes by name, in the order of the names, as a map has them. A name is kept by reference: those of the rows of systems
/// live as long as the program.
class Sizes {
 public:
  using key_type = std::string_view;
  using mapped_type = std::int64_t;
  using value_type = std::pair<std::string_view, std::int64_t>;
  using iterator = value_type*;
  using const_iterator = const value_type*;

  /// The most that one has: of dendritic attention ten.
  static constexpr std::size_t kMost = 12;

  Sizes() = default;
  Sizes(std::initializer_list<value_type> of) : Sizes(of.begin(), of.end()) {}
  template <class Iterator>
  Sizes(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) emplace(begin->first, begin->second);
  }

  [[nodiscard]] iterator begin() { return of_.data(); }
  [[nodiscard]] iterator end() { return of_.data() + count_; }
  [[nodiscard]] const_iterator begin() const { return of_.data(); }
  [[nodiscard]] const_iterator end() const { return of_.data() + count_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }

  [[nodiscard]] iterator find(std::string_view name) {
    return std::find_if(begin(), end(), [&](const value_type& x) { return x.first == name; });
  }
  [[nodiscard]] const_iterator find(std::string_view name) const {
    return std::find_if(begin(), end(), [&](const value_type& x) { return x.first == name; });
  }
  [[nodiscard]] bool contains(std::string_view name) const { return find(name) != end(); }

  /// Throw Error, naming the size, where there is none of that name.
  [[nodiscard]] std::int64_t& at(std::string_view name) { return const_cast<std::int64_t&>(std::as_const(*this).at(name)); }
  [[nodiscard]] const std::int64_t& at(std::string_view name) const {
    const const_iterator found = find(name);
    if (found == end()) throw Error("no size " + std::string(name));
    return found->second;
  }

  /// Adds a size unless there is one of that name, and returns where it is and whether it was added. Throws Error for more than kMost.
  std::pair<iterator, bool> emplace(std::string_view name, std::int64_t value) {
    if (const iterator found = find(name); found != end()) return {found, false};
    if (count_ == kMost) throw Error("size " + std::string(name) + ": at most " + std::to_string(kMost) + " fit");
    const iterator place = std::find_if(begin(), end(), [&](const value_type& x) { return name < x.first; });
    std::move_backward(place, end(), end() + 1);
    *place = {name, value};
    ++count_;
    return {place, true};
  }
  std::int64_t& operator[](std::string_view name) { return emplace(name, 0).first->second; }

  friend bool operator==(const Sizes& a, const Sizes& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<value_type, kMost> of_{};
  std::size_t count_ = 0;
};

/// The extents of a tensor.
class Extents {
 public:
  static constexpr std::size_t kMost = 6;

  Extents() = default;
  Extents(std::initializer_list<std::int64_t> of) : Extents(of.begin(), of.end()) {}
  Extents(const std::vector<std::int64_t>& of) : Extents(of.begin(), of.end()) {}
  /// Throws Error for more than kMost.
  template <class Iterator>
  Extents(Iterator begin, Iterator end) {
    for (; begin != end; ++begin) {
      if (count_ == kMost) throw Error("a tensor of more than " + std::to_string(kMost) + " extents");
      of_[count_++] = *begin;
    }
  }

  [[nodiscard]] std::int64_t* begin() { return of_.data(); }
  [[nodiscard]] std::int64_t* end() { return of_.data() + count_; }
  [[nodiscard]] const std::int64_t* begin() const { return of_.data(); }
  [[nodiscard]] const std::int64_t* end() const { return of_.data() + count_; }
  [[nodiscard]] std::size_t size() const { return count_; }
  [[nodiscard]] bool empty() const { return count_ == 0; }
  [[nodiscard]] std::int64_t& operator[](std::size_t i) { return of_[i]; }
  [[nodiscard]] const std::int64_t& operator[](std::size_t i) const { return of_[i]; }
  [[nodiscard]] const std::int64_t& front() const { return of_[0]; }
  [[nodiscard]] const std::int64_t& back() const { return of_[count_ - 1]; }

  friend bool operator==(const Extents& a, const Extents& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  std::array<std::int64_t, kMost> of_{};
  std::size_t count_ = 0;
};

}  // namespace samestate
