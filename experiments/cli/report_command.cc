// arlab report: a page about folders of results, written by the Python package.

#include "experiments/cli/commands.h"
#include "experiments/cli/options.h"
#include "experiments/cli/plots.h"

namespace arlab::cli {
namespace {

namespace fs = std::filesystem;

struct ReportCommand {
  std::vector<std::string> folders;
  std::string out;
  std::string title;

  void run() const {
    for (const std::string& folder : folders) {
      std::error_code error;
      if (!fs::is_directory(folder, error)) {
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
    draw("report", arguments, "no report is written");
  }
};

}  // namespace

void add_report(CLI::App& app) {
  auto command = std::make_shared<ReportCommand>();
  CLI::App* sub = app.add_subcommand(
      "report", "Write a page about folders of results: report.html and report.md");
  add_fields(*sub, {field("folders", &command->folders,
                          "Folders with tables (.csv) and figures (.png, .svg)")
                        .one_by_one()
                        .by_place("folders"),
                    field("out", &command->out, "Folder for the report", "the folder of results"),
                    field("title", &command->title, "Heading", "that of the first results")});
  sub->callback([command] { command->run(); });
}

}  // namespace arlab::cli
