#include "reference/layers/row_parallel.h"

#include "reference/codecs/payload_values.h"
#include "reference/error.h"

namespace arlab {

ExecuteCounts execute_row_parallel(const Schedule& schedule, const Codecs& codecs, DType dtype,
                                   std::span<const RowParallelPart> parts,
                                   std::span<std::byte> outputs, const ExecuteOptions& options) {
  if (parts.size() != schedule.world_size) {
    fail("{} parts of a layer: the schedule is for {} ranks", parts.size(), schedule.world_size);
  }
  std::vector<Int8Panels> panels;
  for (const RowParallelPart& part : parts) {
    require_int8_inputs(part.x, part.w);
    if (part.x.rows * part.w.rows != schedule.elements || part.w.rows != parts[0].w.rows) {
      fail("a layer of {} tokens and {} outputs: the schedule is for {} elements", part.x.rows,
           part.w.rows, schedule.elements);
    }
    panels.emplace_back(part.w);
  }
  const ProduceInput produce = [&](Rank rank, std::uint64_t begin, std::span<std::byte> elements) {
    const std::size_t width = parts[rank].w.rows;
    const std::size_t count = elements.size() / size_of(dtype);
    // Whole tokens, of which the first and the last may be needed in part.
    const std::size_t first = begin / width;
    const std::size_t last = (begin + count + width - 1) / width;
    std::vector<float> y((last - first) * width);
    panels[rank].multiply(parts[rank].x, first, last, y.data(), width);
    for (std::size_t i = 0; i < count; ++i) {
      store_value(dtype, y[begin - first * width + i], elements, i);
    }
  };
  return execute(schedule, codecs, dtype, produce, outputs, options);
}

}  // namespace arlab
