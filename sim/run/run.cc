#include "sim/run/run.h"

#include <algorithm>

#include "sim/run/critical_path.h"
#include "sim/run/crossings.h"
#include "sim/run/later.h"
#include "sim/run/tags.h"

namespace arlab {

Run::Run(const Plan& plan, const Jobs& jobs, const Topology& topology, const Fabric& fabric,
         const SimulateOptions& options)
    : plan_(plan),
      jobs_(jobs),
      topology_(topology),
      fabric_(fabric),
      copies_(plan),
      crossings_(crossings_of(copies_, topology, fabric, options)),
      routes_(fabric, topology, copies_, crossings_, Changes::any(topology),
              options.trace != nullptr),
      costs_(copies_, jobs, routes_, jobs.link_efficiency()),
      jitter_(topology.jitter, options.seed),
      engine_(routes_.network(), *this, plan.channels),
      quantum_(options, crossings_, picoseconds_from_us(jobs.first_start_us())),
      causes_(jobs.size()),
      arrivals_(copies_),
      begun_(copies_.stages()),
      last_messages_(jobs.size()) {
  engine_.set_quantum(quantum_.length());
  if (Changes::any(topology)) changes_.emplace(topology, fabric, routes_, engine_);
  if (options.trace == nullptr) return;
  timeline_.emplace(*options.trace, copies_, routes_, fabric);
  engine_.set_trace(&*timeline_);
}

std::vector<SimulationResult> Run::results() {
  for (std::uint32_t i = 0; changes_ && i < changes_->size(); ++i) {
    engine_.call_at(changes_->time_of(i), timer_tag(i, RunTimer::change));
  }
  start_ranks();
  engine_.run();
  Picoseconds end = 0;
  for (std::uint32_t job = 0; job < jobs_.size(); ++job) {
    add_last(job);
    end = std::max(end, causes_.end_of(job).time);
  }
  CriticalPath path(causes_, copies_, jobs_, costs_, routes_, quantum_, topology_);
  std::vector<SimulationResult> results;
  for (std::uint32_t job = 0; job < jobs_.size(); ++job) {
    results.push_back(result_of(job));
    results.back().links = link_use_.by_class(engine_, routes_, fabric_, end);
    path.explain(results.back(), job);
  }
  return results;
}

SimulationResult Run::result_of(std::uint32_t job) const {
  const Plan& plan = *jobs_[job].plan;
  SimulationResult r{.model = std::string(kSimulatorModel),
                     .topology = topology_.name,
                     .algorithm = plan.algorithm,
                     .collective = plan.collective,
                     .codec = plan.codec,
                     .inner_codec = plan.inner_codec,
                     .dtype = plan.dtype,
                     .world_size = plan.world_size,
                     .library = plan.library,
                     .payload_bytes = plan.elements * size_of(plan.dtype),
                     .simulated_ranks = plan.folded() ? 1 : plan.world_size,
                     .breakdown = {},
                     .links = {},
                     .bottleneck = {}};
  for (const PlannedMessage& message : plan.messages) {
    r.wire_bytes += message.bytes * copies_.times();
    r.wire_elements += message.elements * copies_.times();
  }
  r.latency = causes_.end_of(job).time - picoseconds_from_us(jobs_[job].start_us);
  r.latency_us = us_from_picoseconds(r.latency);
  r.algbw_gb_per_s = static_cast<double>(r.payload_bytes) / (r.latency_us * 1e3);
  r.equal_chunks_factor = plan.equal_chunks_factor;
  r.quantum_us = us_from_picoseconds(quantum_.length());
  r.busbw_gb_per_s = r.algbw_gb_per_s * bus_bandwidth_factor(plan.collective, plan.world_size);
  return r;
}

// ---------------------------------------------------------------- stages

void Run::start_ranks() {
  std::vector<double> delay_us(copies_.ranks(), 0);
  for (const Straggler& straggler : topology_.stragglers) {
    if (straggler.rank < delay_us.size()) delay_us[straggler.rank] = straggler.delay_us.value;
  }
  workers_.resize(std::size_t{copies_.ranks()} * plan_.channels);
  for (std::uint32_t job = 0; job < jobs_.size(); ++job) launch(job, delay_us);
  for (StageId id = 0; id < copies_.stages(); ++id) {
    const Worker& worker = workers_[worker_of(id)];
    if (copies_.stage(id).awaited == 0) begin_at(id, worker.ready, worker.ready_at);
  }
}

void Run::launch(std::uint32_t j, const std::vector<double>& delay_us) {
  const Job& job = jobs_[j];
  const Picoseconds called = picoseconds_from_us(job.start_us);
  CauseId call = 0;
  if (called > 0) call = causes_.add(j, called, 0, Span::nothing);
  const Rank taking_part = job.ranks.empty() ? copies_.ranks() : job.plan->world_size;
  for (Rank channel = 0; channel < job.plan->channels; ++channel) {
    for (Rank i = 0; i < taking_part; ++i) {
      const Rank rank = job.ranks.empty() ? i : job.ranks[i];
      const double late_us = jitter_.launch_us(j, rank);
      const Picoseconds at =
          later_by(called, jobs_.kernel_of(job, rank).launch_us() + delay_us[rank] + late_us);
      const CauseId ready = causes_.add(j, at, call, Span::launch, rank);
      workers_[std::size_t{job.first_channel + channel} * copies_.ranks() + rank] = {
          .ready = ready, .ready_at = at, .free = ready, .free_at = at, .work = {}};
      if (timeline_) timeline_->launched(rank, at);
    }
  }
}

void Run::on_timer(std::uint64_t tag) {
  const auto id = static_cast<std::uint32_t>(tag / kRunTimers);
  switch (static_cast<RunTimer>(tag % kRunTimers)) {
    case RunTimer::begin:
      begin_or_wait(id);
      break;
    case RunTimer::done:
      finish(id);
      break;
    case RunTimer::arrived: {
      const Arrival arrival = arrivals_.take_latest(id);
      if (arrivals_.is_complete(id)) {
        begin_at(id, add_causes_of(jobs_.index_of(copies_.stage(id)), arrival), arrival.there);
      }
      break;
    }
    case RunTimer::free:
      begin_waiting(id);
      break;
    case RunTimer::first_byte:
      for_each_like(id, [this](MessageId each) { await_decoding(each); });
      break;
    case RunTimer::change:
      change(id);
      break;
  }
}

void Run::begin_at(StageId id, CauseId arrived, Picoseconds at) {
  arrivals_.forget(id);
  const Worker& worker = workers_[worker_of(id)];
  StartedStage& begun = begun_[id];
  begun.by = at >= worker.ready_at ? arrived : worker.ready;
  begun.at = std::max(at, worker.ready_at);
  engine_.call_at(std::max(begun.at, engine_.now()), timer_tag(id, RunTimer::begin));
}

void Run::count_cause(StageId id) {
  if (--begun_[id].causes == 0) begun_.release(id);
}

void Run::begin_or_wait(StageId id) {
  const std::uint32_t worker = worker_of(id);
  workers_[worker].wait({engine_.now(), false, id});
  call_when_free(worker);
}

/// Now or later, after what else happens at that instant.
void Run::call_when_free(std::uint32_t index) {
  Worker& worker = workers_[index];
  if (worker.is_called) return;
  worker.is_called = true;
  engine_.call_at(std::max(worker.free_at, engine_.now()), timer_tag(index, RunTimer::free));
}

void Run::begin_waiting(std::uint32_t index) {
  Worker& worker = workers_[index];
  worker.is_called = false;
  while (!worker.waiting.empty() && !is_busy(worker)) {
    const auto [since, is_message, id] = worker.waiting.back();
    worker.waiting.pop_back();
    if (is_message) {
      decode_while_arriving(id, static_cast<Rank>(index % copies_.ranks()), since);
      continue;
    }
    if (since < engine_.now()) {
      begun_[id].by = free_of(worker, jobs_.index_of(copies_.stage(id)));
      begun_[id].at = worker.free_at;
    }
    begin(id);
  }
  if (!worker.waiting.empty()) call_when_free(index);
}

CauseId Run::free_of(Worker& worker, std::uint32_t job) {
  if (worker.work) worker.free = causes_.add(job, *worker.work);
  worker.work.reset();
  return worker.free;
}

void Run::work(Worker& worker, std::uint32_t job, Picoseconds until, CauseId before, Rank rank,
               bool is_memory_bound) {
  worker.free_at = until;
  worker.work = {until, 0, before, rank, is_memory_bound ? 1U : 0U, Span::work};
  causes_.end_with(job, *worker.work);
}

void Run::begin(StageId id) {
  const Stage& stage = copies_.stage(id);
  const Rank rank = copies_.rank_of(id);
  const std::uint32_t job = jobs_.index_of(stage);
  const StageCost& cost = costs_.of(id);
  const KernelModel& kernel = jobs_.kernel_of(stage, rank);
  const Picoseconds start = engine_.now();
  const CauseId begun_by = begun_[id].by;
  begun_[id].causes = stage.messages + (stage.dependents > 0 ? 1 : 0);
  const Picoseconds done = later_by(start, costs_.stage_span(id));
  causes_.end_with(job, {done, 0, begun_by, id, 0, Span::stage});
  if (cost.measure_us + cost.work_us > 0) {
    work(workers_[worker_of(id)], job, later_by(start, costs_.busy_span(id)), begun_by, rank,
         costs_.is_memory_bound(id));
  }
  if (timeline_) timeline_->stage(id, cost.flags_us, start, done);
  const double cap = stage.messages > 0 ? kernel.rate_cap_gb_per_s(stage) : kNoRateCap;
  const MessageId first = copies_.first_message_of(id);
  const std::uint32_t sent = routes_.in_fans() ? std::min(stage.messages, 1U) : stage.messages;
  for (std::uint32_t i = 0; i < sent; ++i) {
    send(first + i, copies_.message_on(stage.first_message + i, rank), cap);
  }
  if (stage.dependents > 0) engine_.call_at(done, timer_tag(id, RunTimer::done));
  if (stage.messages + stage.dependents == 0) begun_.release(id);
}

void Run::finish(StageId id) {
  const Stage& stage = copies_.stage(id);
  const CauseId done =
      causes_.add(jobs_.index_of(stage), engine_.now(), begun_[id].by, Span::stage, id);
  count_cause(id);
  for (std::uint32_t i = 0; i < stage.dependents; ++i) {
    const StageId dependent =
        copies_.stage_on(plan_.dependents[stage.first_dependent + i], copies_.rank_of(id));
    arrivals_.count_stage(dependent);
    if (arrivals_.is_complete(dependent)) begin_at(dependent, done, engine_.now());
  }
}

// ---------------------------------------------------------------- messages leave

void Run::send(MessageId id, const PlannedMessage& message, double rate_cap_gb_per_s) {
  const std::span<const LinkId> route = routes_.route(message);
  const std::uint64_t bytes =
      costs_.link_bytes(message, topology_.in_switch.reduction_efficiency.value);
  // Where two routes are as good, each takes half of the message.
  const bool is_split = bytes > 1 && !routes_.other_route(message).empty();
  const std::uint64_t other = is_split ? bytes / 2 : 0;
  const std::uint64_t other_wire = is_split ? message.bytes / 2 : 0;
  const std::uint64_t halves = is_split ? kHalf : 0;
  link_use_.take(route, bytes - other, message.bytes - other_wire);
  const bool is_decoded = message.output_elements > 0;
  if (is_decoded) {
    for_each_like(id, [&](MessageId each) {
      copies_.for_each_receiver(copies_.message(each),
                                [&](Rank) { ++begun_[message.stage].causes; });
    });
  }
  send(message, route, id | halves, bytes - other, rate_cap_gb_per_s, is_decoded);
  if (!is_split) return;
  const std::span<const LinkId> other_route = routes_.other_route(message);
  link_use_.take(other_route, other, other_wire);
  send(message, other_route, id | halves | kOtherWay, other, rate_cap_gb_per_s, false);
}

void Run::send(const PlannedMessage& message, std::span<const LinkId> route, std::uint64_t tag,
               std::uint64_t bytes, double rate_cap_gb_per_s, bool tells_flow) {
  const Stage& stage = copies_.stage(message.stage);
  const bool is_tree = message.reach != Reach::one;
  engine_.send({.route = route,
                .bytes = bytes,
                .tag = tag,
                .rate_cap_gb_per_s = rate_cap_gb_per_s,
                .turn = stage.step / jobs_.of(stage).steps,  // one of steps side by side
                .stream = stage.channel,
                .is_tree = is_tree,
                .tree_latency = is_tree ? routes_.latency_of_tree(message) : 0,
                .tells_flow = tells_flow});
}

void Run::on_flowing(std::uint64_t tag, Picoseconds first_byte) {
  engine_.call_at(first_byte, timer_tag(static_cast<MessageId>(tag), RunTimer::first_byte));
}

template <class Visit>
void Run::for_each_like(MessageId id, Visit visit) const {
  const bool in_fans = routes_.in_fans();
  const std::uint32_t like = in_fans ? copies_.stage(copies_.message(id).stage).messages : 1;
  for (std::uint32_t i = 0; i < like; ++i) visit(id + i);
}

void Run::await_decoding(MessageId id) {
  const PlannedMessage message = copies_.message(id);
  const Rank channel = copies_.stage(message.stage).channel;
  copies_.for_each_receiver(message, [&](Rank to) {
    const std::uint32_t worker = channel * copies_.ranks() + to;
    workers_[worker].wait({engine_.now(), true, id});
    call_when_free(worker);
  });
}

void Run::decode_while_arriving(MessageId id, Rank to, Picoseconds since) {
  const PlannedMessage message = copies_.message(id);
  const Stage decoded =
      KernelModel::output_stage(message.output_elements, message.inner_output_elements);
  const Stage& stage = copies_.stage(message.stage);
  const std::uint32_t job = jobs_.index_of(stage);
  const KernelModel& kernel = jobs_.kernel_of(stage, to);
  const double work_us = kernel.output_us(decoded.decoded, decoded.inner.decoded);
  const StartedStage begun = begun_[message.stage];
  count_cause(message.stage);
  if (work_us <= 0) return;
  Worker& worker = workers_[stage.channel * copies_.ranks() + to];
  CauseId start = 0;
  if (since == engine_.now()) {
    const std::span<const LinkId> route = routes_.route(message);
    const Picoseconds flows = since - routes_.latency_of(message, route);
    start = begun.by;
    if (flows > begun.at) {
      start = causes_.add(job, flows, start, Span::queue, 0, 0,
                          routes_.named_limit(message, route.front()));
    }
    start = causes_.add(job, since, start, Span::latency);
  } else {
    start = free_of(worker, job);
  }
  work(worker, job, later_by(engine_.now(), work_us), start, to, kernel.is_memory_bound(decoded));
  if (timeline_) {
    timeline_->decoding(to, stage.step, engine_.now(), worker.free_at);
  }
}

void Run::change(std::size_t change) {
  if (delivered_ == copies_.messages()) return;
  // The part that has not left takes another way.
  for (const FlowEngine::Withdrawn& rest : changes_->happen(change)) {
    const PlannedMessage message = copies_.message(static_cast<MessageId>(rest.tag));
    const Stage& stage = copies_.stage(message.stage);
    restarted_.try_emplace(rest.tag, rest.started);
    send(message, routes_.route(message), rest.tag, rest.bytes,
         jobs_.kernel_of(stage, message.from).rate_cap_gb_per_s(stage),
         message.output_elements > 0 && !rest.has_flowed && (rest.tag & kOtherWay) == 0);
  }
}

// ---------------------------------------------------------------- messages arrive

bool Run::join(Delivery& half) {
  const auto id = static_cast<MessageId>(half.tag);
  const auto [first, is_first] = halves_.try_emplace(id, half);
  if (is_first) return false;
  half.bytes += first->second.bytes;
  if (first->second.sent > half.sent) {
    half.sent = first->second.sent;
    half.limit = first->second.limit;
  }
  halves_.erase(first);
  return true;
}

void Run::on_delivered(const Delivery& delivered) {
  const bool is_half = (delivered.tag & kHalf) != 0;
  if (!routes_.in_fans() && !is_half && restarted_.empty()) return complete(delivered);
  Delivery delivery = delivered;
  const auto restarted = restarted_.find(delivery.tag);
  if (restarted != restarted_.end()) delivery.started = restarted->second;
  if (is_half && !join(delivery)) return;
  for_each_like(static_cast<MessageId>(delivered.tag), [&](MessageId each) {
    delivery.tag = each;
    delivery.limit = routes_.named_limit(copies_.message(each), delivery.limit);
    complete(delivery);
  });
}

void Run::complete(const Delivery& delivery) {
  ++delivered_;
  if (quantum_.grows(engine_.solved(), engine_.now())) engine_.set_quantum(quantum_.length());
  const auto id = static_cast<MessageId>(delivery.tag);
  const PlannedMessage message = copies_.message(id);
  const Arrival arrival = arrival_of(id, message, delivery);
  const bool is_awaited = message.consumers > 0;
  const double gather_us = is_awaited ? 0 : costs_.gather_us(message);
  const Picoseconds gathered = gather_us > 0 ? later_by(arrival.there, gather_us) : arrival.there;
  const std::uint32_t job = jobs_.index_of(copies_.stage(message.stage));
  if (Causes::End& end = causes_.end_of(job); gathered > end.time) {
    end.time = gathered;
    last_messages_[job] = {arrival, gathered};
  }
  if (timeline_) timeline_->message(message, delivery.started, arrival, gathered);
  count_cause(message.stage);
  for (std::uint32_t i = 0; i < message.consumers; ++i) {
    arrive_at_all(plan_.consumers[message.first_consumer + i], message, arrival);
  }
}

Arrival Run::arrival_of(MessageId id, const PlannedMessage& message, const Delivery& delivery) {
  const Picoseconds network = delivery.sent - delivery.started;
  const std::uint32_t steps = jobs_.of(copies_.stage(message.stage)).steps;
  const Picoseconds way = steps > 1 ? routes_.latency_of(message, routes_.route(message)) : 0;
  // Where steps run side by side, the last wire takes such a way in each.
  Picoseconds latency = delivery.delivered - delivery.sent + (steps - 1) * way;
  if (jitter_.delays_messages()) latency = later_by(latency, jitter_.message_us(id));
  const Picoseconds gone =
      std::max(delivery.sent, later_by(delivery.started, costs_.message_span(message, network)));
  const Picoseconds there = later_by(gone, latency);
  return {id, delivery.limit, network, gone, there, {}, begun_[message.stage].by};
}

void Run::arrive_at_all(StageId consumer, const PlannedMessage& message, const Arrival& arrival) {
  if (message.reach != Reach::multicast || !plan_.lists_one_rank()) {
    arrive(copies_.stage_on(consumer, copies_.receiver_of(message)), arrival);
    return;
  }
  copies_.for_each_receiver(message,
                            [&](Rank to) { arrive(copies_.stage_on(consumer, to), arrival); });
}

void Run::arrive(StageId id, const Arrival& arrival) {
  if (arrivals_.arrive(id, arrival, engine_, timer_tag(id, RunTimer::arrived))) {
    begin_at(id, add_causes_of(jobs_.index_of(copies_.stage(id)), arrival), arrival.there);
  }
}

/// Adds the causes of an arrival; returns the last one.
CauseId Run::add_causes_of(std::uint32_t job, const Arrival& arrival) {
  const Picoseconds latency = arrival.there - arrival.gone;
  const bool in_one = latency <= Cause::kMostLatency;
  Cause message{in_one ? arrival.there : arrival.gone,
                arrival.network,
                arrival.before,
                arrival.message,
                arrival.limit,
                Span::message};
  if (in_one) message.latency = static_cast<std::uint32_t>(latency) & Cause::kMostLatency;
  const CauseId left = causes_.add(job, message);
  if (in_one) return left;
  return causes_.add(job, arrival.there, left, Span::latency);
}

/// Adds the end of the collective, if it is not written down yet: work, or else a message.
void Run::add_last(std::uint32_t job) {
  Causes::End& end = causes_.end_of(job);
  if (end.time <= end.last_time) return;
  const Cause unwritten = end.unwritten;
  const bool is_work = unwritten.time == end.time;
  end.time = 0;
  if (is_work) {
    causes_.add(job, unwritten);
    return;
  }
  const LastMessage& last = last_messages_[job];
  const CauseId arrived = add_causes_of(job, last.arrival);
  const PlannedMessage message = copies_.message(last.arrival.message);
  const Stage& stage = copies_.stage(message.stage);
  const Rank to = copies_.receiver_of(message);
  causes_.add(job, last.gathered, arrived, Span::work, to, 0,
              jobs_.kernel_of(stage, to).is_memory_bound(stage));
}

}  // namespace arlab
