// Codecs, codebooks and algorithms that are defined at run time, and may be defined again under the same name; and files, which may
// be written again.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace arlab {

/// How many definitions this process has made. Whatever was made of names before the last one may stand for others by now.
/// Thread-safe.
std::uint64_t definitions_made();

/// To be called once a definition can be found by its name. Thread-safe.
void count_definition();

/// Throws InvalidInput unless a codec or a codebook may have the name: it is a plain one, and does not begin like those of codecs
/// around a codec ("ef-", "rans-").
void require_free_name(std::string_view kind, std::string_view name);

/// A text that two definitions share only if they do the same. Throws InvalidInput where that cannot be told.
using Fingerprint = std::function<std::string()>;

/// How one begins that says, in place of that, why it cannot be told (arlab/_fingerprint.py); another in each process.
inline constexpr std::string_view kUntold = "untold: ";

/// Keeps how to tell what stands under `name` from others, in place of what was kept for `kind` and `name`. Thread-safe.
void keep_fingerprint(const std::string& kind, const std::string& name, Fingerprint fingerprint);

/// Returns the definitions that the names mention, "ef-mine" and "rs=mine,ag=fp16" as well as "mine", each under its kind and
/// name, as "codec mine". Those of C++ programs are not among them: they belong to the program's file. Thread-safe.
std::map<std::string, Fingerprint> fingerprints_of(const std::vector<std::string>& names);

/// By what a file that was read is told from what it is now.
struct FileVersion {
  std::string
      stamp;  ///< its place on the disk, size and times; empty for a file that cannot be examined
  bool is_settled =
      false;  ///< else it has just changed, and may change again within a tick of the clock: only its bytes tell

  bool is_still(const FileVersion& now) const { return now.is_settled && now.stamp == stamp; }
};
FileVersion version_of_file(const std::string& path);

/// Keeps whether the operations per element of a codec are guessed, and the times that follow from them. Thread-safe.
void keep_guess(const std::string& codec, bool is_guess);

/// The codecs that these names mention and whose operations are guessed. Thread-safe.
std::vector<std::string> guessed_codecs(const std::vector<std::string>& names);

}  // namespace arlab
