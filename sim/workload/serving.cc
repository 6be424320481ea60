#include "sim/workload/serving.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "reference/csv.h"
#include "reference/error.h"
#include "reference/tensors/counter_random.h"
#include "reference/tensors/file.h"

namespace arlab {
namespace {

void require_servable(std::span<const ServedRequest> requests, const BatchLimits& limits) {
  std::uint64_t tokens = 0;
  for (const ServedRequest& request : requests) {
    if (request.prompt_tokens > limits.tokens) {
      fail("a prompt of {} tokens is longer than a prefill may be; allowed are {} (max_tokens)",
           request.prompt_tokens, limits.tokens);
    }
    tokens += request.output_tokens;
  }
  if (tokens > kMostServedTokens) {
    fail("{} requests make {} tokens; allowed are {} in all", requests.size(), tokens,
         kMostServedTokens);
  }
}

/// The engine of the head of serving.h, step by step.
class Engine {
 public:
  Engine(std::span<const ServedRequest> requests, const BatchLimits& limits,
         const StepTime& step_us)
      : requests_(requests), limits_(limits), step_us_(step_us) {
    require_servable(requests, limits);
    times_.first_token.resize(requests.size());
    begun_us_.resize(requests.size());
  }

  ServingTimes run() {
    while (next_ < requests_.size() || arrived_ < requests_.size() || !running_.empty()) {
      while (arrived_ < requests_.size() && arrival_us(arrived_) <= now_us_) ++arrived_;
      if (next_ < arrived_ && running_.size() < limits_.sequences) {
        prefill();
      } else if (!running_.empty()) {
        decode();
      } else {
        origin_us_ = requests_[arrived_].arrival_us;
        now_us_ = 0;
      }
    }
    times_.end = origin_us_ + now_us_;
    if (decodes_ > 0) times_.mean_batch = double(times_.between_tokens.size()) / double(decodes_);
    return std::move(times_);
  }

  /// When the prefill of each request began.
  const std::vector<double>& begun_us() const { return begun_us_; }

 private:
  struct Sequence {
    std::size_t request;
    std::uint32_t made;  ///< tokens
    double first_us;
    double last_us;
  };

  double arrival_us(std::size_t request) const {
    return requests_[request].arrival_us - origin_us_;
  }

  void step(Phase phase) {
    times_.most_waiting = std::max(times_.most_waiting, arrived_ - next_);
    now_us_ += step_us_(phase, lengths_);
  }

  void prefill() {
    const std::size_t first = next_;
    std::uint64_t tokens = 0;
    lengths_.clear();
    while (next_ < arrived_ && running_.size() + lengths_.size() < limits_.sequences &&
           tokens + requests_[next_].prompt_tokens <= limits_.tokens) {
      tokens += requests_[next_].prompt_tokens;
      lengths_.push_back(requests_[next_].prompt_tokens);
      begun_us_[next_++] = origin_us_ + now_us_;
    }
    step(Phase::prefill);
    for (std::size_t i = first; i < next_; ++i) {
      times_.first_token[i] = now_us_ - arrival_us(i);
      if (requests_[i].output_tokens > 1) running_.push_back({i, 1, now_us_, now_us_});
    }
  }

  void decode() {
    lengths_.clear();
    for (const Sequence& each : running_) {
      lengths_.push_back(std::uint64_t{requests_[each.request].prompt_tokens} + each.made - 1);
    }
    step(Phase::decode);
    ++decodes_;
    std::erase_if(running_, [this](Sequence& each) {
      times_.between_tokens.push_back(now_us_ - each.last_us);
      each.last_us = now_us_;
      if (++each.made < requests_[each.request].output_tokens) return false;
      times_.per_token.push_back((now_us_ - each.first_us) / (each.made - 1));
      return true;
    });
  }

  std::span<const ServedRequest> requests_;
  BatchLimits limits_;
  const StepTime& step_us_;
  double origin_us_ = 0;  ///< when the device was idle last: years of waiting take no digits away
  double now_us_ = 0;     ///< since then
  std::size_t arrived_ = 0;  ///< requests that have come
  std::size_t next_ = 0;     ///< the first that has not begun
  std::uint64_t decodes_ = 0;
  std::vector<Sequence> running_;
  std::vector<std::uint64_t> lengths_;
  std::vector<double> begun_us_;
  ServingTimes times_;
};

}  // namespace

ServingTimes serve(std::span<const ServedRequest> requests, const BatchLimits& limits,
                   const StepTime& step_us) {
  return Engine(requests, limits, step_us).run();
}

double capacity_per_s(const ServedRequest& each, const BatchLimits& limits,
                      const StepTime& step_us) {
  constexpr std::uint32_t kRounds = 4;
  std::vector<ServedRequest> requests(std::size_t{limits.sequences} * (kRounds + 1), each);
  for (ServedRequest& request : requests) request.arrival_us = 0;
  for (std::uint32_t i = 0; i < limits.sequences; ++i) {
    const double stage = (i + 1.0) / limits.sequences;
    requests[i].output_tokens = static_cast<std::uint32_t>(std::ceil(stage * each.output_tokens));
  }
  Engine engine(requests, limits, step_us);
  engine.run();
  // The first round's requests are shorter than others and do not count.
  const double first_us = engine.begun_us()[limits.sequences];
  const double count = double{kRounds - 1} * limits.sequences;
  return count * kUsPerSecond / (engine.begun_us()[requests.size() - limits.sequences] - first_us);
}

std::vector<ServedRequest> poisson_arrivals(const ServedRequest& each, double per_s,
                                            std::uint32_t requests, std::uint64_t seed) {
  const RandomStream random(seed, 0);
  std::vector<ServedRequest> all(requests, each);
  double now_us = 0;
  for (std::uint32_t i = 0; i < requests; ++i) {
    now_us -= portable_log(unit_interval(random.word(i))) / per_s * kUsPerSecond;
    all[i].arrival_us = now_us;
  }
  return all;
}

std::vector<ServedRequest> read_arrivals(const std::filesystem::path& path) {
  const CsvTable table = read_csv(path);
  const std::vector<std::string>& names = table.rows.front();
  std::array<std::size_t, 3> columns = {};
  constexpr std::array kColumns = {"arrival_s", "prompt_tokens", "output_tokens"};
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    const auto found = std::ranges::find(names, kColumns[i]);
    if (found == names.end()) {
      fail("{}: it has no column '{}'; needed are arrival_s, prompt_tokens, output_tokens",
           printable(path.string()), kColumns[i]);
    }
    columns[i] = static_cast<std::size_t>(found - names.begin());
  }
  std::vector<ServedRequest> requests;
  for (std::size_t row = 1; row < table.rows.size(); ++row) {
    const auto number = [&](std::size_t column, double least, double most, bool whole) {
      const std::string& text = table.rows[row][columns[column]];
      const double value = number_of(text);
      if (value >= least && value <= most && (!whole || value == std::floor(value))) return value;
      fail("{}: line {}: {} is {}; allowed is {} from {} to {}", printable(path.string()),
           table.lines[row], kColumns[column], quote(text), whole ? "a whole number" : "a number",
           least, most);
    };
    requests.push_back({number(0, 0, 1e9, false) * kUsPerSecond,
                        static_cast<std::uint32_t>(number(1, 1, 1 << 24, true)),
                        static_cast<std::uint32_t>(number(2, 1, 1 << 24, true))});
  }
  std::ranges::stable_sort(requests, {}, &ServedRequest::arrival_us);
  return requests;
}

}  // namespace arlab
