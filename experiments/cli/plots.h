// Pictures: the Python package arlab.figures, run as a child process.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace arlab::cli {

/// The Python that draws: $ARLAB_PYTHON, the project's virtual environment, or python3.
std::string python();

/// Runs `python -m arlab.figures KIND` with these arguments. Throws, with what is there without the picture (`kept`),
/// InvalidInput when it says in one line what is wrong (a picture cannot be written), and
/// CheckFailed with what to do when it fails otherwise; what it said has then gone to stderr.
void draw(const std::string& kind, const std::vector<std::string>& arguments,
          const std::string& kept);

/// The same for a kind that reads JSON from the file of its first argument: its standard input,
/// so that no temporary file can be left behind.
void draw(const std::string& kind, const nlohmann::ordered_json& data, const std::string& picture,
          const std::string& kept);

/// Throws InvalidInput unless the name of the picture ends in one of these and can be one of a file
/// in a folder that exists.
void require_picture_name(const std::string& option, const std::string& path,
                          const std::vector<std::string>& endings);

}  // namespace arlab::cli
