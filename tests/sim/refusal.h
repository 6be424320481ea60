// What a refusal says.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "reference/error.h"

namespace arlab {

/// what() of the InvalidInput that `action` throws; fails the test when it throws none or more than
/// one line.
template <class Action>
std::string message_of(Action action) {
  try {
    action();
  } catch (const InvalidInput& error) {
    std::string what = error.what();
    for (const char c : what) {
      EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 && c != 0x7f) << what;
    }
    return what;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline void expect_contains(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

}  // namespace arlab
