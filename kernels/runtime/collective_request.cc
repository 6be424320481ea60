#include "kernels/runtime/collective_request.h"

#include "reference/error.h"

namespace arlab::kernels {

void require_tail(const CollectiveRequest& request, Collective collective) {
  const Tail& tail = *request.tail;
  if (collective != Collective::all_reduce) {
    fail("tail {}: {} is {}: allowed is an all-reduce", name_of(tail), request.algorithm,
         words_for(collective));
  }
  if (tail.hidden == 0 || request.elements % tail.hidden != 0) {
    fail("tail {}: {} elements are not whole rows of {}", name_of(tail), request.elements,
         tail.hidden);
  }
  if (tail.rounding.keeps_sum) {
    fail("tail {}: kernels round sums to {}: allowed is sum=native", name_of(tail),
         name_of(request.dtype));
  }
  (void)wire_bytes_of(request);  // throws for other dtypes, and for rows that are no whole blocks
}

std::size_t wire_bytes_of(const CollectiveRequest& request) {
  const CodecPtr codec = request.tail ? find_output_codec(*request.tail) : nullptr;
  const std::size_t bytes =
      codec == nullptr ? 0 : codec->wire_bytes(request.dtype, request.elements);
  return request.tail_at_owners ? 0 : bytes;
}

}  // namespace arlab::kernels
