// A platform whose kernels make mistakes, for tests that must see them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/runtime/platforms.h"

namespace arlab::testing {

/// Another platform, with the lowest bit of one part of every result changed: the middle byte of a
/// wire, element 0 of what decode_add adds, the middle element of the last rank, and the middle code
/// and result of a layer.
class MistakenPlatform : public kernels::Platform {
 public:
  explicit MistakenPlatform(const kernels::Platform& right) : right_(right) {}

  std::string_view name() const override { return right_.name(); }
  kernels::Result<int> devices() const override { return right_.devices(); }
  kernels::Result<std::string> device_name() const override { return right_.device_name(); }
  std::optional<kernels::ConformanceRecord> record() const override { return right_.record(); }
  const kernels::DeviceCalls& device_calls() const override { return right_.device_calls(); }
  bool has_codec(const std::string& codec) const override { return right_.has_codec(codec); }

  kernels::Status encode(const std::string& codec, DType dtype, std::span<const std::byte> payload,
                         std::span<std::byte> wire, const EncodeContext& context) const override {
    kernels::Status status = right_.encode(codec, dtype, payload, wire, context);
    wire[wire.size() / 2] ^= std::byte{1};
    return status;
  }
  kernels::Status decode(const std::string& codec, DType dtype, std::span<const std::byte> wire,
                         std::span<std::byte> payload) const override {
    return right_.decode(codec, dtype, wire, payload);
  }
  kernels::Status decode_add(const std::string& codec, DType dtype, std::span<const std::byte> wire,
                             std::span<std::byte> sum) const override {
    kernels::Status status = right_.decode_add(codec, dtype, wire, sum);
    sum[0] ^= std::byte{1};
    return status;
  }

  kernels::Status quantize_int8(DType dtype, std::span<const std::byte> values, std::size_t rows,
                                const OperandFormat& format, const std::optional<Int8Scale>& given,
                                Int8Matrix& to) const override {
    kernels::Status status = right_.quantize_int8(dtype, values, rows, format, given, to);
    to.codes[to.codes.size() / 2] ^= 1;
    return status;
  }
  kernels::Status linear_int8(const Int8Matrix& x, const Int8Matrix& w, DType dtype,
                              std::span<std::byte> y) const override {
    kernels::Status status = right_.linear_int8(x, w, dtype, y);
    y[y.size() / size_of(dtype) / 2 * size_of(dtype)] ^= std::byte{1};
    return status;
  }

  std::size_t team_bytes(std::span<const int> devices,
                         const kernels::CommunicatorOptions& options) const override {
    return right_.team_bytes(devices, options);
  }
  kernels::Result<std::vector<std::unique_ptr<kernels::RankCommunicator>>> make_communicators(
      std::span<const int> devices, const kernels::CommunicatorOptions& options) const override {
    return right_.make_communicators(devices, options);
  }
  kernels::Result<std::unique_ptr<kernels::RankCommunicator>> create_communicator(
      int device, kernels::Bootstrap& bootstrap,
      const kernels::CommunicatorOptions& options) const override {
    return right_.create_communicator(device, bootstrap, options);
  }
  kernels::Result<std::unique_ptr<kernels::Group>> make_group(
      int ranks, const kernels::CommunicatorOptions& options,
      const std::shared_ptr<kernels::Bootstrap>& processes) const override {
    auto group = right_.make_group(ranks, options, processes);
    if (!group.ok()) return group.status();
    return std::unique_ptr<kernels::Group>(
        std::make_unique<MistakenGroup>(std::move(group.value()), ranks));
  }
  kernels::Result<std::unique_ptr<kernels::Group>> make_vendor_group(int ranks) const override {
    return right_.make_vendor_group(ranks);
  }

 private:
  class MistakenGroup final : public kernels::Group {
   public:
    MistakenGroup(std::unique_ptr<kernels::Group> right, int ranks)
        : right_(std::move(right)), ranks_(static_cast<std::size_t>(ranks)) {}

    kernels::Status run(const kernels::GroupCall& call, std::span<const std::byte> inputs,
                        std::span<std::byte> outputs) override {
      kernels::Status status = right_->run(call, inputs, outputs);
      const std::size_t element =
          (ranks_ - 1) * call.collective.elements + call.collective.elements / 2;
      outputs[element * size_of(call.collective.dtype)] ^= std::byte{1};
      return status;
    }
    kernels::Result<std::string> explain(const kernels::CollectiveRequest& request) override {
      return right_->explain(request);
    }
    kernels::Result<kernels::CallTimes> time(const kernels::GroupCall& call,
                                             std::span<const std::byte> pattern,
                                             const kernels::TimingRequest& request) override {
      return right_->time(call, pattern, request);
    }

   private:
    std::unique_ptr<kernels::Group> right_;
    std::size_t ranks_;
  };

  const kernels::Platform& right_;
};

}  // namespace arlab::testing
