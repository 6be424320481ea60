// A page about folders of results, which the Python package writes.

#include <filesystem>

#include "experiments/lab/questions.h"
#include "reference/error.h"

namespace arlab::lab {
namespace {

struct ReportRequest {
  std::vector<std::string> folders;
  std::string out;
  std::string title;

  Result answer() const {
    for (const std::string& folder : folders) {
      std::error_code error;
      if (!std::filesystem::is_directory(folder, error)) {
        fail(
            "{} is not a folder; name folders of results, as `arlab study` and `arlab sweep` "
            "write them",
            quote(folder));
      }
    }
    if (out.empty() && folders.size() > 1) {
      fail("there are {} folders of results: name one for the report with --out", folders.size());
    }
    std::vector<std::string> arguments;
    if (!out.empty()) arguments.push_back("--out=" + out);
    if (!title.empty()) arguments.push_back("--title=" + title);
    arguments.emplace_back("--");  // folders may begin with a dash
    arguments.insert(arguments.end(), folders.begin(), folders.end());
    Result page;
    page.picture = {"report", folders.front(), {}, "no report is written", std::move(arguments)};
    return page;
  }
};

std::vector<BoundField> fields(ReportRequest& r) {
  return {field("folders", &r.folders,
                "Report on these folders with tables (.csv) and figures (.png, .svg)")
              .one_by_one()
              .by_place("folders"),
          field("out", &r.out, "Write the report into this folder", "the folder of results"),
          field("title", &r.title, "Set the heading", "that of the first results")};
}

}  // namespace

Question report_question() {
  Question asked = question<ReportRequest>(
      "report", "Write a page about folders of results: report.html and report.md",
      &ReportRequest::answer);
  asked.has_answer = false;
  return asked;
}

}  // namespace arlab::lab
