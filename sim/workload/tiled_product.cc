#include "sim/workload/tiled_product.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace arlab {
namespace {

constexpr double kTileRows = 128;
constexpr double kTileColumns = 256;
constexpr std::uint32_t kOfPair = 2;

}  // namespace

double tiles_of_product(double rows, double columns) {
  return std::ceil(rows / kTileRows) * std::ceil(columns / kTileColumns);
}

TiledProduct::TiledProduct(double begin_us, double alone_us, double tiles,
                           std::uint32_t multiprocessors, std::uint32_t taken)
    : left_(static_cast<std::uint64_t>(std::max(1.0, std::ceil(tiles / kOfPair)))),
      all_slots_(std::max(1U, multiprocessors / kOfPair)),
      slots_(all_slots_),
      end_us_(begin_us) {
  pair_us_ = alone_us / static_cast<double>((left_ + slots_ - 1) / slots_);
  slots_ -= std::min<std::uint64_t>(taken, slots_ - 1);
  free_[begin_us] = slots_;
}

void TiledProduct::start_tiles(double until_us) {
  while (left_ > 0 && free_.begin()->first <= until_us) {
    const auto [now_us, slots] = *free_.begin();
    free_.erase(free_.begin());
    const std::uint64_t started = std::min(left_, slots);
    left_ -= started;
    end_us_ = now_us + pair_us_;
    free_[end_us_] += started;
    if (slots > started) free_[now_us] += slots - started;
  }
}

double TiledProduct::take(std::uint32_t multiprocessors, double now_us) {
  start_tiles(now_us);
  std::uint64_t wanted = std::min<std::uint64_t>(multiprocessors, slots_ - 1);
  slots_ -= wanted;
  double taken_us = now_us;
  while (wanted > 0) {
    auto& [free_us, slots] = *free_.begin();
    const std::uint64_t taken = std::min(wanted, slots);
    wanted -= taken;
    slots -= taken;
    taken_us = std::max(taken_us, free_us);
    if (slots == 0) free_.erase(free_.begin());
  }
  return taken_us;
}

void TiledProduct::give(std::uint32_t multiprocessors, double now_us) {
  start_tiles(now_us);
  const std::uint64_t given = std::min<std::uint64_t>(multiprocessors, all_slots_ - slots_);
  free_[now_us] += given;
  slots_ += given;
}

double TiledProduct::end_us() const {
  TiledProduct rest = *this;
  rest.start_tiles(std::numeric_limits<double>::infinity());
  return rest.end_us_;
}

}  // namespace arlab
