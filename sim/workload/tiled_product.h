// A matrix product beside a kernel that has some of the device's multiprocessors.
//
// A product is cut into tiles of 128 x 256 of its result. Pairs of multiprocessors work through pairs of tiles, one after the
// other. So it takes as many waves as there are pairs of tiles for each pair of multiprocessors, rounded up. Each
// multiprocessor that another kernel has costs it a pair. So a product of few waves may lose a whole one to a kernel of eight
// multiprocessors, and one of many only a share.
//
// Shape of tiles, pairs, and what a multiprocessor costs were found with h200_overlap_2026-11-26.csv in
// view (cuBLAS on H200); why a multiprocessor costs two was not looked for.
#pragma once

#include <cstdint>
#include <map>

namespace arlab {

/// Returns the tiles of the result of a product of [rows, inner] and [inner, columns].
double tiles_of_product(double rows, double columns);

class TiledProduct {
 public:
  /// It takes so long where it has all multiprocessors; `taken` of them it has not.
  TiledProduct(double begin_us, double alone_us, double tiles, std::uint32_t multiprocessors,
               std::uint32_t taken);

  /// Another kernel wants so many multiprocessors from now on, and gets them as tiles end. Returns
  /// when it has them all.
  double take(std::uint32_t multiprocessors, double now_us);
  /// It gives them back.
  void give(std::uint32_t multiprocessors, double now_us);
  /// When the last tile ends, if nothing else happens.
  double end_us() const;

 private:
  void start_tiles(double until_us);

  double pair_us_;
  std::uint64_t left_;       ///< pairs of tiles that have not begun
  std::uint64_t all_slots_;  ///< pairs of multiprocessors that the device has
  std::uint64_t slots_;      ///< slots for the product's tiles
  double end_us_;
  std::map<double, std::uint64_t> free_;  ///< by time, how many pairs of multiprocessors are free
};

}  // namespace arlab
