#include "reference/codecs/registry.h"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "reference/codecs/abstract.h"
#include "reference/codecs/formats/formats.h"
#include "reference/codecs/formats/mx.h"
#include "reference/codecs/scaled_codec.h"
#include "reference/definitions.h"
#include "reference/words.h"

// The families that are built in, but for those of formats/formats.h: one line each. FAMILY is a
// function in the file of that codec, `CodecFamily FAMILY()`, in namespace arlab.
#define ARLAB_CODEC_FAMILIES(X) \
  X(plain_codecs)               \
  X(narrow_codecs)              \
  X(quickreduce_codecs)         \
  X(anybit_codecs)              \
  X(logfmt_codecs)              \
  X(microscaling_codecs)        \
  X(nvfp4_codecs)               \
  X(foreign_codecs)             \
  X(foreign_fp4_codecs)         \
  X(fp8_rows_codecs)            \
  X(shared_scale_codecs)        \
  X(error_feedback_codecs)      \
  X(lossless_codecs)            \
  X(rans_codecs)

namespace arlab {

#define ARLAB_DECLARE(family) CodecFamily family();
ARLAB_CODEC_FAMILIES(ARLAB_DECLARE)
#undef ARLAB_DECLARE

CodecFamily microscaling_codecs() { return scaled_codecs<Mx>(); }

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<CodecFamily> families;
};

std::vector<CodecFamily> built_in() {
  std::vector<CodecFamily> families = {
#define ARLAB_CALL(family) family(),
      ARLAB_CODEC_FAMILIES(ARLAB_CALL)
#undef ARLAB_CALL
  };
  for_each_format(ScaledFormats(),
                  [&]<class Format>() { families.push_back(scaled_codecs<Format>()); });
  return families;
}

Registry& registry() {
  static Registry instance{{}, built_in()};
  return instance;
}

/// A copy, so that no lock is held while a family searches: a family of wrappers may look up
/// others.
std::vector<CodecFamily> families_now() {
  Registry& r = registry();
  const std::scoped_lock lock(r.mutex);
  return r.families;
}

CodecPtr find_in(const std::vector<CodecFamily>& families, std::string_view name) {
  for (const CodecFamily& family : families) {
    if (CodecPtr codec = family.find(name)) return codec;
  }
  return nullptr;
}

}  // namespace

CodecPtr find_codec(std::string_view name) {
  const std::vector<CodecFamily> families = families_now();
  if (CodecPtr codec = find_in(families, name)) return codec;
  if (CodecPtr codec = find_abstract_codec(name)) return codec;
  constexpr std::string_view kAll = "`arlab list codecs` has all";
  if (const std::string meant = did_you_mean(name, listed_codecs()); !meant.empty()) {
    fail("unknown codec {}: {} {}", quote(name), meant, kAll);
  }
  std::set<std::string> begins;
  for (const std::string& each : listed_codecs()) {
    begins.insert(each.substr(0, each.find_first_of("0123456789-")) + "*");
  }
  fail("unknown codec {}: known are {}; {}{}", quote(name),
       names_beside(name, {begins.begin(), begins.end()}), kAll, way_to_own_codecs);
}

void require_free_name(std::string_view kind, std::string_view name) {
  constexpr std::string_view kOther = "<codec>";
  require_plain_name(kind, name);
  for (const CodecFamily& family : families_now()) {
    std::string_view begin = family.pattern;
    if (!begin.ends_with(kOther)) continue;
    begin.remove_suffix(kOther.size());
    if (!name.starts_with(begin)) continue;
    fail("{} {}: names that begin with {} are those of {}: choose another", kind, quote(name),
         begin, family.pattern);
  }
}

std::vector<std::string> listed_codecs(bool with_registered) {
  std::vector<std::string> names;
  for (const CodecFamily& family : families_now()) {
    if (family.replaceable && !with_registered) continue;
    names.insert(names.end(), family.listed.begin(), family.listed.end());
  }
  return names;
}

std::vector<std::string> codec_patterns() {
  std::vector<std::string> patterns;
  for (const CodecFamily& family : families_now()) {
    if (family.pattern.find_first_of("<[(") != std::string::npos)
      patterns.push_back(family.pattern);
  }
  return patterns;
}

namespace {

/// Throws InvalidInput unless a family may be known beside the others.
void require_registrable(const CodecFamily& family, const std::vector<CodecFamily>& others) {
  if (!family.find || family.listed.empty()) {
    fail("codec family '{}': it needs a find function and at least one listed name",
         family.pattern);
  }
  std::set<std::string> seen;
  for (const std::string& name : family.listed) {
    if (family.replaceable) require_free_name("codec", name);
    if (find_in(others, name)) fail("codec '{}' is already registered", name);
    if (!seen.insert(name).second) fail("codec family '{}' lists '{}' twice", family.pattern, name);
    const CodecPtr codec = family.find(name);
    if (!codec) fail("codec family '{}' lists '{}' but does not find it", family.pattern, name);
    if (codec->name() != name) {
      fail("codec family '{}' finds '{}' under the name '{}'", family.pattern, codec->name(), name);
    }
  }
}

}  // namespace

void register_codec_family(CodecFamily family) {
  const auto is_replaced = [&](const CodecFamily& known) {
    return family.replaceable && known.replaceable &&
           std::ranges::find_first_of(family.listed, known.listed) != family.listed.end();
  };
  std::vector<CodecFamily> others = families_now();
  std::erase_if(others, is_replaced);
  require_registrable(family, others);
  {
    Registry& r = registry();
    const std::scoped_lock lock(r.mutex);
    std::erase_if(r.families, is_replaced);
    r.families.push_back(std::move(family));
  }
  count_definition();
}

void register_codec(CodecPtr codec) {
  CodecFamily family = family_of({std::move(codec)});
  family.replaceable = true;
  register_codec_family(std::move(family));
}

CodecFamily family_of(std::vector<CodecPtr> codecs) {
  CodecFamily family;
  for (const CodecPtr& codec : codecs) {
    if (!codec) fail("a codec family cannot hold a null pointer");
    if (!family.pattern.empty()) family.pattern += ", ";
    family.pattern += codec->name();
    family.listed.push_back(codec->name());
  }
  family.find = [codecs = std::move(codecs)](std::string_view name) -> CodecPtr {
    for (const CodecPtr& codec : codecs) {
      if (codec->name() == name) return codec;
    }
    return nullptr;
  };
  return family;
}

}  // namespace arlab
