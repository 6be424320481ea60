#include "reference/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace arlab {

unsigned hardware_threads() { return std::max(1U, std::thread::hardware_concurrency()); }

void parallel_for(std::size_t count, unsigned threads,
                  const std::function<void(unsigned worker, std::size_t index)>& body) {
  if (threads == 0) threads = hardware_threads();
  if (count < threads) threads = static_cast<unsigned>(std::max<std::size_t>(count, 1));

  std::atomic<std::size_t> next{0};
  std::exception_ptr error;
  std::mutex error_mutex;
  const auto work = [&](unsigned worker) {
    try {
      for (std::size_t index = next++; index < count; index = next++) body(worker, index);
    } catch (...) {
      next = count;
      const std::scoped_lock lock(error_mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> pool;
    pool.reserve(threads - 1);
    try {
      for (unsigned worker = 1; worker < threads; ++worker) pool.emplace_back(work, worker);
    } catch (const std::system_error&) {
      // There are no more threads to be had: those that are there do it all.
    }
    work(0);
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace arlab
