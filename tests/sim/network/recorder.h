// A client that writes down what an engine reports.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "sim/network/flow_engine.h"
#include "sim/network/network.h"

namespace arlab {

inline constexpr Picoseconds kNanosecond = 1000;

/// Devices 0 and 1 and one link between them.
inline Network one_link(double gb_per_s, double latency_us = 0) {
  Network network;
  network.add_devices(2);
  network.add_link(0, 1, {gb_per_s, latency_us});
  return network;
}

struct Recorder : NetworkClient {
  std::vector<Delivery> deliveries;  ///< in the order of the calls
  std::vector<std::uint64_t> timers;
  std::function<void(const Delivery&)> then = [](const Delivery&) {};
  std::function<void(std::uint64_t)> at_timer = [](std::uint64_t) {};

  void on_delivered(const Delivery& delivery) override {
    deliveries.push_back(delivery);
    then(delivery);
  }
  void on_timer(std::uint64_t tag) override {
    timers.push_back(tag);
    at_timer(tag);
  }

  Delivery of(std::uint64_t tag) const {
    for (const Delivery& delivery : deliveries) {
      if (delivery.tag == tag) return delivery;
    }
    return {};  // no test expects a delivery at 0
  }
  Picoseconds delivered(std::uint64_t tag) const { return of(tag).delivered; }
  std::vector<Picoseconds> all_delivered(const std::vector<std::uint64_t>& tags) const {
    return each(tags, &Delivery::delivered);
  }
  std::vector<Picoseconds> all_sent(const std::vector<std::uint64_t>& tags) const {
    return each(tags, &Delivery::sent);
  }

 private:
  std::vector<Picoseconds> each(const std::vector<std::uint64_t>& tags,
                                Picoseconds Delivery::* when) const {
    std::vector<Picoseconds> all;
    for (const std::uint64_t tag : tags) all.push_back(of(tag).*when);
    return all;
  }
};

/// Converts ns to the unit of all_delivered() and all_sent().
inline std::vector<Picoseconds> ns(std::vector<Picoseconds> nanoseconds) {
  for (Picoseconds& time : nanoseconds) time *= kNanosecond;
  return nanoseconds;
}

/// A message to be sent so many nanoseconds after the start.
struct ToSend {
  std::uint64_t tag;
  std::vector<LinkId> route;
  std::uint64_t bytes;
  double cap = kNoRateCap;
  Picoseconds at_ns = 0;
};

/// An engine with a recorder.
struct Rig : Recorder {
  explicit Rig(Network of, std::uint32_t streams = 1)
      : network(std::move(of)), engine(network, *this, streams) {}

  void send(std::uint64_t tag, std::vector<LinkId> route, std::uint64_t bytes,
            double cap = kNoRateCap) {
    engine.send({.route = route, .bytes = bytes, .tag = tag, .rate_cap_gb_per_s = cap});
  }
  void send_in_turn(std::uint64_t tag, std::vector<LinkId> route, std::uint64_t bytes,
                    std::uint32_t turn, std::uint32_t stream = 0) {
    engine.send({.route = route, .bytes = bytes, .tag = tag, .turn = turn, .stream = stream});
  }
  /// Does something at a later time; call before run().
  void at(Picoseconds time, std::function<void()> action) {
    at_timer = [this](std::uint64_t tag) { actions_.at(tag)(); };
    actions_.push_back(std::move(action));
    engine.call_at(time, actions_.size() - 1);
  }

  /// All of them, and nothing after them.
  void run(const std::vector<ToSend>& messages) {
    for (const ToSend& m : messages) {
      const auto starts = [this, m] { send(m.tag, m.route, m.bytes, m.cap); };
      m.at_ns == 0 ? starts() : at(m.at_ns * kNanosecond, starts);
    }
    engine.run();
  }

  const Network network;
  FlowEngine engine;

 private:
  std::vector<std::function<void()>> actions_;
};

}  // namespace arlab
