#include "reference/codecs/formats/codebook.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <vector>

#include "reference/codecs/registry.h"
#include "reference/definitions.h"
#include "reference/words.h"

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

constexpr std::string_view kBuiltIn[] = {"nf4", "e4m3b15"};
constexpr std::size_t kGroups[] = {32, 64, 128};

std::string codec_of(std::string_view name, std::size_t group) {
  return fmt::format("{}-g{}", name, group);
}

/// By the name of the codec.
using Known = std::map<std::string, CodebookLevels, std::less<>>;

Known built_in() {
  Known known;
  for (const std::size_t group : kGroups) {
    known[codec_of("nf4", group)] = codebook_levels("nf4", kNf4);
    known[codec_of("e4m3b15", group)] = codebook_levels("e4m3b15", e4m3b15_levels());
  }
  return known;
}

struct Registry {
  std::mutex mutex;
  Known known = built_in();
};
Registry& registry() {
  static Registry instance;
  return instance;
}

bool are_equal(const CodebookLevels& a, const CodebookLevels& b) {
  return a.count == b.count &&
         std::equal(a.level.begin(), a.level.begin() + a.count, b.level.begin(),
                    [](float x, float y) {  // -0 is another level than 0
                      return std::bit_cast<std::uint32_t>(x) == std::bit_cast<std::uint32_t>(y);
                    });
}

std::string text_of(const CodebookLevels& levels) {
  std::string text;
  for (unsigned i = 0; i < levels.count; ++i) {
    text += fmt::format("{:08x}", std::bit_cast<std::uint32_t>(levels.level[i]));
  }
  return text;
}

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

void register_codebook(const std::string& name, std::size_t group, std::span<const float> levels) {
  require_free_name("codebook", name);
  if (std::ranges::find(kGroups, group) == std::end(kGroups)) {
    fail("codebook {}: group is {}: allowed are {}", quote(name), group, fmt::join(kGroups, ", "));
  }
  const CodebookLevels made = codebook_levels(name, levels);
  if (std::ranges::find(kBuiltIn, name) != std::end(kBuiltIn)) {
    fail("codebook {} is built in", quote(name));
  }
  const std::string codec = codec_of(name, group);
  const std::optional<CodebookLevels> before = find_codebook(codec);
  if (before && are_equal(*before, made)) return;
  if (!before) {
    bool is_free = false;
    try {
      find_codec(codec);
    } catch (const InvalidInput&) {
      is_free = true;
    }
    if (!is_free) fail("codebook {}: there is a codec {} already", quote(name), codec);
  }
  {
    Registry& r = registry();
    const std::scoped_lock lock(r.mutex);
    r.known[codec] = made;
  }
  keep_fingerprint("codebook", codec, [made] { return text_of(made); });
  count_definition();
}

std::optional<CodebookLevels> find_codebook(std::string_view codec) {
  Registry& r = registry();
  const std::scoped_lock lock(r.mutex);
  const auto found = r.known.find(codec);
  return found != r.known.end() ? std::optional(found->second) : std::nullopt;
}

CodebookLevels codebook_named(std::string_view name) {
  std::optional<CodebookLevels> found = find_codebook(name);
  for (const std::size_t group : kGroups) {
    const std::optional<CodebookLevels> of_group = find_codebook(codec_of(name, group));
    if (found && of_group && !are_equal(*found, *of_group)) {
      fail("codebook {} has other levels with another group: name both, as {}", quote(name),
           codec_of(name, group));
    }
    if (of_group) found = of_group;
  }
  if (!found) fail("unknown codebook {}", quote(name));
  return *found;
}

}  // namespace arlab
