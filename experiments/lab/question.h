// A question: its fields, their description, and the function that answers it. Programs, Python and pages ask without knowing
// its subject.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "experiments/lab/result.h"
#include "reference/field.h"

namespace arlab::lab {

class Grid;  // grid.h

/// A request that is being made. Once its fields are set, there is an answer, which throws InvalidInput for what does not fit.
struct BoundRequest {
  std::vector<BoundField> fields;
  std::function<Result(Format)> answer;  ///< as far as it depends on how it is printed
  std::function<std::unique_ptr<Grid>()> grid =
      {};  ///< the answer's work, which processes may share; null: none can
};

struct Question {
  std::string name;  ///< "select"; of a group of questions "topology show"
  std::string help;
  std::function<BoundRequest()> ask;
  std::string more_help = {};
  std::vector<Format> formats = {};  ///< formats of its answer, besides table, JSON and CSV
  Format usual = Format::table;
  bool has_answer = true;  ///< printed; else a file is all
};

/// A question of a struct that has fields(); `answer` is called with one, and with the format if it takes that. Before it, the
/// request's settle() is, if it has one, for what fields say together.
template <class Request, class Answer>
Question question(std::string name, std::string help, Answer answer, std::string more_help = {},
                  std::vector<Format> formats = {}) {
  const auto ask = [answer] {
    const auto request = std::make_shared<Request>();
    return BoundRequest{fields(*request), [request, answer](Format format) {
                          if constexpr (requires { request->settle(); }) request->settle();
                          if constexpr (std::is_invocable_v<Answer, Request&, Format>) {
                            return std::invoke(answer, *request, format);
                          } else {
                            return std::invoke(answer, *request);
                          }
                        }};
  };
  return {std::move(name), std::move(help), ask, std::move(more_help), std::move(formats)};
}

/// All questions that the program and Python ask in this way, and one of them.
const std::vector<Question>& questions();
const Question& question_named(const std::string& name);

}  // namespace arlab::lab
