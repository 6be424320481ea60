// The standard library in device code. Ahead of time that is the library itself. Where kernels are compiled on demand
// (ARLAB_COMPILES_ON_DEMAND), no folder of its headers is given: the compiler gets, in the place of each, a file that includes
// this one, and finds here the little that device code calls.
//
// A format (reference/codecs/scaled_format.h) also says its names, by strings and vectors that no kernel asks for: of these there
// are declarations, so that such a struct compiles as it stands.
#pragma once

#if !defined(ARLAB_COMPILES_ON_DEMAND)

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#else

#define SIZE_MAX 0xFFFFFFFFFFFFFFFFul

// Compilers on demand declare some of std themselves, each another part: this one is called std in what follows.
namespace arlab_std {

using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
using size_t = decltype(sizeof(0));
using ptrdiff_t = long;
using nullptr_t = decltype(nullptr);
enum class byte : unsigned char {};

// ---- types

template <class T, T kValue>
struct integral_constant {
  static constexpr T value = kValue;
  constexpr operator T() const { return kValue; }
};
using true_type = integral_constant<bool, true>;
using false_type = integral_constant<bool, false>;

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class A, class B>
concept same_as = is_same_v<A, B>;

template <class T>
struct type_identity {
  using type = T;
};
template <class T>
using type_identity_t = typename type_identity<T>::type;

template <class T>
struct remove_reference : type_identity<T> {};
template <class T>
struct remove_reference<T&> : type_identity<T> {};
template <class T>
struct remove_reference<T&&> : type_identity<T> {};
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
struct remove_const : type_identity<T> {};
template <class T>
struct remove_const<const T> : type_identity<T> {};
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
using remove_cvref_t = remove_const_t<remove_reference_t<T> >;
template <class T>
using decay_t = remove_cvref_t<T>;

template <bool kWhich, class A, class B>
struct conditional : type_identity<A> {};
template <class A, class B>
struct conditional<false, A, B> : type_identity<B> {};
template <bool kWhich, class A, class B>
using conditional_t = typename conditional<kWhich, A, B>::type;

template <class T>
T&& declval() noexcept;
template <class From, class To>
concept convertible_to = requires(void (&take)(To), From (&make)()) { take(make()); };

// ---- numbers

template <class T>
constexpr const T& min(const T& a, const T& b) {
  return b < a ? b : a;
}
template <class T>
constexpr const T& max(const T& a, const T& b) {
  return a < b ? b : a;
}
template <class T>
constexpr const T& clamp(const T& x, const T& low, const T& high) {
  return x < low ? low : high < x ? high : x;
}
template <class To, class From>
constexpr To bit_cast(const From& x) {
  return __builtin_bit_cast(To, x);
}
template <class T>
constexpr int bit_width(T x) {
  int bits = 0;
  for (; x != 0; x >>= 1) ++bits;
  return bits;
}
template <class T>
constexpr int countr_zero(T x) {
  return x == 0 ? static_cast<int>(8 * sizeof(T)) : bit_width(x & (~x + 1)) - 1;
}
template <class T>
constexpr int countl_zero(T x) {
#if defined(__CUDACC__) || defined(__HIP__)
  if constexpr (sizeof(T) == 4) {
    if (!__builtin_is_constant_evaluated()) return __clz(static_cast<int>(x));
  }
#endif
  return static_cast<int>(8 * sizeof(T)) - bit_width(x);
}
template <class T>
constexpr int popcount(T x) {
  int bits = 0;
  for (; x != 0; x &= x - 1) ++bits;
  return bits;
}
template <class T>
constexpr bool has_single_bit(T x) {
  return x != 0 && (x & (x - 1)) == 0;
}
constexpr float abs(float x) {
  return __builtin_bit_cast(float, __builtin_bit_cast(unsigned, x) & 0x7FFFFFFFu);
}
constexpr bool isfinite(float x) {
  return (__builtin_bit_cast(unsigned, x) & 0x7F800000u) != 0x7F800000u;
}
constexpr bool isnan(float x) { return x != x; }

template <class T>
struct numeric_limits;
template <>
struct numeric_limits<float> {
  static constexpr float max() { return 0x1.fffffep127f; }
  static constexpr float min() { return 0x1p-126f; }
  static constexpr float lowest() { return -max(); }
  static constexpr float infinity() { return __builtin_bit_cast(float, 0x7F800000u); }
  static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7FC00000u); }
};

// ---- sequences

template <class T, size_t kSize>
struct array {
  T values[kSize];
  constexpr T& operator[](size_t i) { return values[i]; }
  constexpr const T& operator[](size_t i) const { return values[i]; }
  constexpr size_t size() const { return kSize; }
  constexpr T* data() { return values; }
  constexpr const T* data() const { return values; }
  constexpr const T* begin() const { return values; }
  constexpr const T* end() const { return values + kSize; }
};

template <class T>
struct span {
  T* first = nullptr;
  size_t count = 0;
  constexpr span() = default;
  constexpr span(T* begin, size_t elements) : first(begin), count(elements) {}
  constexpr bool empty() const { return count == 0; }
  constexpr size_t size() const { return count; }
  constexpr T* data() const { return first; }
  constexpr span subspan(size_t from) const { return {first + from, count - from}; }
  constexpr T& operator[](size_t i) const { return first[i]; }
  constexpr T* begin() const { return first; }
  constexpr T* end() const { return first + count; }
};

// ---- what names are made of, and read with: it compiles, and nothing calls it

struct string_view {
  static constexpr size_t npos = SIZE_MAX;
  constexpr string_view(const char* = "", size_t = 0) {}
  constexpr bool operator==(const string_view&) const { return false; }
  constexpr bool starts_with(string_view) const { return false; }
  constexpr bool ends_with(string_view) const { return false; }
  constexpr bool empty() const { return true; }
  constexpr size_t size() const { return 0; }
  constexpr const char* data() const { return ""; }
  constexpr const char* begin() const { return ""; }
  constexpr const char* end() const { return ""; }
  constexpr char operator[](size_t) const { return 0; }
  constexpr char front() const { return 0; }
  constexpr char back() const { return 0; }
  constexpr string_view substr(size_t = 0, size_t = npos) const { return *this; }
  constexpr size_t find(string_view, size_t = 0) const { return npos; }
  constexpr size_t find(char, size_t = 0) const { return npos; }
  constexpr size_t rfind(char, size_t = npos) const { return npos; }
  constexpr void remove_prefix(size_t) {}
  constexpr void remove_suffix(size_t) {}
};
struct string : string_view {
  constexpr string(const char* = "") {}
  constexpr explicit string(string_view) {}
  constexpr const char* c_str() const { return ""; }
  constexpr string& operator+=(string_view) { return *this; }
};
constexpr string operator+(const string& a, string_view) { return a; }
constexpr string operator+(const char*, const string& b) { return b; }
template <class T>
constexpr string to_string(T) {
  return {};
}
constexpr int stoi(const string&) { return 0; }
constexpr unsigned long stoul(const string&) { return 0; }
constexpr float stof(const string&) { return 0; }
enum class errc { invalid_argument = 1 };
struct from_chars_result {
  const char* ptr;
  errc ec;
};
template <class T>
constexpr from_chars_result from_chars(const char* begin, const char*, T&) {
  return {begin, errc()};
}
template <class T>
struct vector {
  template <class... Values>
  constexpr vector(const Values&...) {}
  template <class... Values>
  constexpr void emplace_back(const Values&...) {}
  constexpr void push_back(const T&) {}
  constexpr T* begin() const { return nullptr; }
  constexpr T* end() const { return nullptr; }
};
struct nullopt_t {};
inline constexpr nullopt_t nullopt;
template <class T>
struct optional {
  T value = {};
  bool has = false;
  constexpr optional() = default;
  constexpr optional(nullopt_t) {}
  constexpr optional(const T& x) : value(x), has(true) {}
  constexpr explicit operator bool() const { return has; }
  constexpr const T& operator*() const { return value; }
  constexpr const T* operator->() const { return &value; }
};

}  // namespace arlab_std
#define std arlab_std
using size_t = std::size_t;

namespace fmt {
template <class... Values>
std::string format(const char*, const Values&...);
}  // namespace fmt

#endif
