// From a codec's name to its device code.
#pragma once

#include <string>
#include <utility>

#include "kernels/codecs/plain.h"
#include "kernels/codecs/quickreduce.h"
#include "kernels/runtime/status.h"

namespace arlab::kernels {
inline namespace ARLAB_PLATFORM {

enum class CodecKind { plain, qr_fp8, qr_q8, qr_q6, qr_q4, qr_q3, qr_fp4 };

/// A codec that there is device code for.
struct CodecChoice {
  CodecKind kind = CodecKind::plain;
};

/// The device code of a codec of the reference; the error says what there is.
Result<CodecChoice> choose_codec(const std::string& name);

/// Calls f with the device codec and with the dtype's arithmetic. The codec must take the dtype.
template <class F>
hipError_t with_codec(const CodecChoice& choice, DType dtype, F&& f) {
  const auto with_number = [&](auto make) {
    if (dtype == DType::fp16) {
      f(make(Fp16()), Fp16());
    } else if (dtype == DType::bf16) {
      f(make(Bf16()), Bf16());
    }
  };
  switch (choice.kind) {
    case CodecKind::plain:
      if (dtype == DType::fp32) {
        f(Plain<Fp32>(), Fp32());
      } else {
        with_number([]<class Number>(Number) { return Plain<Number>(); });
      }
      break;
    case CodecKind::qr_fp8:
      with_number([]<class Number>(Number) { return QuickReduce<QFp8, Number>(); });
      break;
    case CodecKind::qr_q8:
      with_number([]<class Number>(Number) { return QuickReduce<Q8, Number>(); });
      break;
    case CodecKind::qr_q6:
      with_number([]<class Number>(Number) { return QuickReduce<Q6, Number>(); });
      break;
    case CodecKind::qr_q4:
      with_number([]<class Number>(Number) { return QuickReduce<Q4, Number>(); });
      break;
    case CodecKind::qr_q3:
      with_number([]<class Number>(Number) { return QuickReduce<Q3, Number>(); });
      break;
    case CodecKind::qr_fp4:
      with_number([]<class Number>(Number) { return QuickReduce<QFp4, Number>(); });
      break;
  }
  return hipGetLastError();
}

}  // namespace ARLAB_PLATFORM
}  // namespace arlab::kernels
