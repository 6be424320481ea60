#include "reference/codecs/formats/codebook.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>

namespace arlab {
namespace {

/// NormalFloat 4: quantiles of a normal distribution between -1 and 1, as QLoRA and bitsandbytes have them.
constexpr std::array<float, 16> kNf4 = {-1.0f,
                                        -0.6961928009986877f,
                                        -0.5250730514526367f,
                                        -0.39491748809814453f,
                                        -0.28444138169288635f,
                                        -0.18477343022823334f,
                                        -0.09105003625154495f,
                                        0.0f,
                                        0.07958029955625534f,
                                        0.16093020141124725f,
                                        0.24611230194568634f,
                                        0.33791524171829224f,
                                        0.44070982933044434f,
                                        0.5626170039176941f,
                                        0.7229568362236023f,
                                        1.0f};

/// The values of 8-bit numbers with 4 exponent bits, 3 mantissa bits and bias 15, whose last code is that of 1.75 again.
std::vector<float> e4m3b15_levels() {
  constexpr Minifloat kFormat = {4, 3, 15, SpecialCodes::none};
  std::vector<float> levels;
  for (std::uint32_t code = 0; code < 0x7F; ++code) {
    levels.push_back(minifloat_to_float(kFormat, code));
    if (code != 0) levels.push_back(-levels.back());
  }
  std::ranges::sort(levels);
  return levels;
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, CodebookLevels, std::less<>> known = {
      {"nf4", codebook_levels("nf4", kNf4)},
      {"e4m3b15", codebook_levels("e4m3b15", e4m3b15_levels())}};
};
Registry& registry() {
  static Registry instance;
  return instance;
}
constexpr std::string_view kBuiltIn[] = {"nf4", "e4m3b15"};

}  // namespace

CodebookLevels codebook_levels(std::string_view name, std::span<const float> levels) {
  if (levels.size() < 2 || levels.size() > 256) {
    fail("codebook {}: {} levels; allowed are 2 to 256", quote(name), levels.size());
  }
  CodebookLevels made;
  made.count = static_cast<unsigned>(levels.size());
  made.bits = static_cast<unsigned>(std::bit_width(levels.size() - 1));
  for (std::size_t i = 0; i < levels.size(); ++i) {
    if (!(std::abs(levels[i]) <= 0x1p100f)) {
      fail("codebook {}: level {} is {}; allowed are numbers of magnitudes up to 2^100",
           quote(name), i, levels[i]);
    }
    if (i > 0 && !(levels[i] > levels[i - 1])) {
      fail("codebook {}: level {} is {}, behind {}; needed are ascending levels", quote(name), i,
           levels[i], levels[i - 1]);
    }
    made.level[i] = levels[i];
    made.largest = std::max(made.largest, std::abs(levels[i]));
  }
  if (made.largest < 0x1p-100f) {
    fail("codebook {}: the largest magnitude is {}; allowed is 2^-100 and more", quote(name),
         made.largest);
  }
  return made;
}

void register_codebook(const std::string& name, std::span<const float> levels) {
  require_plain_name("codebook", name);
  const CodebookLevels made = codebook_levels(name, levels);
  if (std::ranges::find(kBuiltIn, name) != std::end(kBuiltIn)) {
    fail("codebook {} is built in", quote(name));
  }
  Registry& r = registry();
  {
    const std::scoped_lock lock(r.mutex);
    if (r.known.contains(name)) {
      r.known[name] = made;
      return;
    }
  }
  try {
    find_codec(name + "-g64");
  } catch (const InvalidInput&) {
    const std::scoped_lock lock(r.mutex);
    r.known[name] = made;
    return;
  }
  fail("codebook {}: there is a codec {}-g64 already", quote(name), name);
}

std::optional<CodebookLevels> find_codebook(std::string_view name) {
  Registry& r = registry();
  const std::scoped_lock lock(r.mutex);
  const auto found = r.known.find(name);
  return found != r.known.end() ? std::optional(found->second) : std::nullopt;
}

}  // namespace arlab
