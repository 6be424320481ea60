// Options of algorithms, as Python names them.
#pragma once

#include "experiments/cli/options.h"
#include "experiments/python/module/binding.h"

namespace arlab::python {

/// own, forward, combine (text), group_size, micro_chunks (integers), inner_codec (text). Throws
/// InvalidInput for others.
cli::ScheduleOptions schedule_options(const std::string& algorithm, const nb::dict& options);

}  // namespace arlab::python
