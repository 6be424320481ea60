// Texts of refusals.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"

namespace arlab {

/// Returns what() of the InvalidInput that `call` throws, which must be one line; "accepted" when it throws none.
template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const InvalidInput& error) {
    std::string what = error.what();
    for (const char c : what) {
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << what;
    }
    return what;
  }
  return "accepted";
}

/// The same, where something must be thrown.
template <class Call>
std::string message_of(Call call) {
  std::string what = refusal_of(call);
  EXPECT_NE(what, "accepted");
  return what;
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

}  // namespace arlab
