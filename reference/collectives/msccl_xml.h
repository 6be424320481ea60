// Algorithms of MSCCL, Microsoft's collectives with programs of one's own, as a Schedule.
//
// The XML (<algo><gpu><tb><step>) says what every thread block of every GPU does with pieces of
// three buffers: send, receive, reduce, copy. It is run here on names in place of numbers: what a
// piece holds is who made it out of what. What is sent is encoded, once; a piece that only passes
// through goes on unchanged; sums take what was there first, then what comes. Who sends a value and
// keeps it ends with what the others decode, so that ranks hold the same bits.
//
// Thread blocks of a GPU run at the same time. What orders two steps is that one block has both, a
// depid, or a message, and what follows from these; a step reads and writes all its pieces at once.
// Two steps of a GPU that touch the same piece, one of which writes it, must have such an order.
//
// Steps of the schedule follow from what depends on what: that a block does one thing after the other
// is only kept where the data ask for it. Channels take any number of messages.
#pragma once

#include <string_view>

#include "reference/collectives/schedule_json.h"

namespace arlab {

/// Reads the text of an XML file, for tensors of any size. Throws InvalidInput that names the place
/// (gpu 0, tb 1, step 2) and what is allowed there: for text that is not XML, buffers and ranks that
/// do not exist, blocks that wait for each other, steps that race (both are named), sums of
/// different pieces. Whether the result is the collective that it says is for check() to say.
WrittenSchedule schedule_from_msccl(std::string_view xml);

}  // namespace arlab
