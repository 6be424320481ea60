// Codecs by name.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/codecs/codec.h"

namespace arlab {

/// One or many codecs that share a definition: `qr-q4` alone, or every `int<b>-g<G>`.
struct CodecFamily {
  /// How the names look to people, for example `int<b>-g<G>`.
  std::string pattern;

  /// Members that listings and "all codecs" mean; a parametrised family has more than it lists.
  std::vector<std::string> listed;

  /// The codec of that exact name, or null when the name is not of this family. Throws InvalidInput
  /// when the name is of this family but a parameter is out of range.
  std::function<CodecPtr(std::string_view name)> find;

  /// Whether it takes the place of those that are replaceable, too, and have one of its listed names: it is defined at run time,
  /// and may be defined again.
  bool replaceable = false;
};

/// The codec of that name, or an abstract one (abstract.h); throws InvalidInput when there is none, with near names or
/// families and way_to_own_codecs.
CodecPtr find_codec(std::string_view name);

/// How this program's user makes a codec known ("; your own: --setup FILE"): set once, before threads begin.
inline std::string way_to_own_codecs;

/// Names that "all codecs" stands for, family by family; also of those that are replaceable, or not.
std::vector<std::string> listed_codecs(bool with_registered = true);

/// How names look of families that have more codecs than they list: `logfmt<n>-g<G>`, with the ranges.
std::vector<std::string> codec_patterns();

/// Makes a family known at run time (a codec under test, one written in another language). Throws
/// InvalidInput when a listed name is taken, stands twice, or does not find a codec of that very
/// name. Thread-safe.
void register_codec_family(CodecFamily family);

/// Makes a codec known at run time, in place of the one that was made known so under its name. Throws
/// InvalidInput when another has that name. Thread-safe; who has found the old one still has it.
void register_codec(CodecPtr codec);

/// The family that holds exactly these codecs. Throws InvalidInput when one is null.
CodecFamily family_of(std::vector<CodecPtr> codecs);

}  // namespace arlab
