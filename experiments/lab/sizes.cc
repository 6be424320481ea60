#include "experiments/lab/sizes.h"

#include <fmt/format.h>

#include <algorithm>

#include "reference/error.h"
#include "reference/words.h"

namespace arlab::lab {

std::uint64_t parse_count(const std::string& text, const std::string& what) {
  const std::uint64_t value = parse_size(text).value_or(0);
  if (value == 0) {
    fail("{} is {}: allowed is {}", what, quote(text),
         "a positive integer, with K, M or G (or KiB, MiB, GiB) for 2^10, "
         "2^20, 2^30, or with KB, MB, GB for 10^3, 10^6, 10^9");
  }
  return value;
}

std::vector<std::uint32_t> integers_in(const std::string& list, const std::string& what,
                                       std::uint32_t low, std::uint32_t high) {
  std::vector<std::uint32_t> all;
  const auto integer = [&](std::string_view text) {
    const std::optional<std::uint64_t> value = parse_size(text);
    if (!value || *value < low || *value > high) {
      fail("{} is {}: allowed are {} to {}, separated by commas, and FIRST-LAST", what, quote(list),
           low, high);
    }
    return static_cast<std::uint32_t>(*value);
  };
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string_view item = std::string_view(list).substr(begin, end - begin);
    const std::size_t dash = item.find('-');
    const std::uint32_t first = integer(item.substr(0, dash));
    const std::uint32_t last = dash == item.npos ? first : integer(item.substr(dash + 1));
    if (last < first) fail("{} is {}: {} ends before it begins", what, quote(list), quote(item));
    for (std::uint32_t each = first; each <= last; ++each) all.push_back(each);
    begin = end + 1;
  }
  return all;
}

std::vector<std::uint64_t> Sizes::list(std::size_t element_bytes) const {
  std::vector<std::uint64_t> sizes;
  const auto add = [&](const std::string& name, std::uint64_t first, std::uint64_t last,
                       std::uint64_t step) {
    if (last < first)
      fail("{}: the last size is less than the first; allowed is FIRST..LAST", name);
    for (std::uint64_t size = first;; size *= step) {
      if (size % element_bytes != 0) {
        fail("{}: {} bytes are not whole elements of {} bytes", name, size, element_bytes);
      }
      sizes.push_back(size);
      if (size > last / step) break;
    }
  };
  if (!least.empty()) {
    const std::uint64_t first = parse_count(least, "-b");
    add("-b and -e", first, most.empty() ? first : parse_count(most, "-e"), factor.value_or(2));
  }
  for (const std::string& text : bytes) {
    const auto dots = text.find("..");
    const std::uint64_t first = parse_count(text.substr(0, dots), "--bytes");
    const bool range = dots != std::string::npos;
    add(fmt::format("--bytes {}", text), first,
        range ? parse_count(text.substr(dots + 2), "--bytes") : first, 2);
  }
  std::sort(sizes.begin(), sizes.end());
  sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
  return sizes;
}

std::vector<BoundField> fields(Sizes& s, const std::string& what, const std::string& otherwise) {
  std::vector<BoundField> all = {
      field("bytes", &s.bytes,
            what + ", separated by commas; FIRST..LAST doubles from FIRST on. 64M and 64MiB are "
                   "2^26, 64MB is 64 * 10^6",
            otherwise),
      field("minbytes", &s.least, "Begin with this size, as nccl-tests does").excludes("bytes"),
      field("maxbytes", &s.most, "End with this size", "-b").needs("minbytes"),
      field("stepfactor", &s.factor, "Multiply sizes by N", "2").from(2, 1024).needs("minbytes")};
  for (std::size_t i = 1; i < all.size(); ++i) all[i].field.letter = "bef"[i - 1];
  return all;
}

}  // namespace arlab::lab
