//! The server of koch2002 (section 2) as a network of stations, and its run.
//!
//! ```text
//!            network     bus      host      [disk]   host     bus     network processor's
//! request ─▶ processor ────────▶ processor ────────▶ memory ────────▶ memory ─▶ response
//!               │ request_bytes     │ hit                  response     │ read: hit
//!               │                   └───────────────────▶ header and    │ written: miss, after
//!               └ looks into its memory                   location      │ the response has gone
//! ```
//!
//! * Every request takes the network processor and the host's processor for their processing time,
//!   hit or miss. A hit takes the host's a little longer (`host.hit_processing_cycles`).
//! * On a hit the host reads no memory. It sends header and location at the same time; the response
//!   goes when both are there and the network processor has read the data from its memory.
//! * On a miss the host reads its memory (before that, if there is a disk and the data is not in
//!   memory, the disk) and sends the whole response. The network processor sends it on at once and
//!   writes it to its memory afterwards: that may keep a later hit waiting, but not this response.
//! * What a hit has found stays good until its response has gone, whatever is evicted meanwhile.
//! * The bus has one server for both directions with contention, and as many as there are transfers
//!   without.
//!
//! Deliberately absent: the Ethernet's own bandwidth, the network processor's transmit buffers, and
//! the time it takes to search a memory's list, none of which the paper has either.

use nicache_policy::Admission;
use thiserror::Error;

use crate::config::{Config, OutOfBounds};
use crate::kernel::Kernel;
use crate::memory::{Access, Lookup, Memory, MemoryState};
use crate::observer::{Answer, Deaf, Observer, Snapshot, State};
use crate::outcome::{BusBytes, Component, Outcome, PathTimes, StationOutcome, ratio};
use crate::random::{ProcessingTimes, Stream};
use crate::station::{Begun, Servers, Station};
use crate::time::{Clock, Time};
use crate::times::Times;
use crate::trace::{NumberedTrace, TraceError, TraceRequest};
use crate::workload::Workload;

/// A run that did not come to its end.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum RunError {
    /// The configuration is not valid.
    #[error(transparent)]
    Config(#[from] OutOfBounds),
    /// The trace is not valid.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// Requests come faster than they are answered.
    #[error(
        "{outstanding} requests were under way after {at_s:.6} s, most of them waiting for the {component}: lower requests.frequency_per_s, \
         make the {component} faster, or raise simulation.outstanding_max"
    )]
    Overload {
        /// Where most wait.
        component: Component,
        /// How many are under way.
        outstanding: u32,
        /// Since when.
        at_s: f64,
    },
    /// It would take more than 106 days of simulated time.
    #[error(
        "the run would take more than 106 simulated days: raise requests.frequency_per_s, lower requests.count, or make \
         processing times and latencies shorter"
    )]
    TooLong,
    /// No request is left after the warm-up.
    #[error(
        "the warm-up leaves no request: lower simulation.warm_up_s or simulation.warm_up_requests"
    )]
    NothingMeasured,
}

/// Runs a configuration. The same seed gives the same outcome, on every machine.
pub fn run(config: &Config, seed: u64) -> Result<Outcome, RunError> {
    run_observed(config, seed, &mut Deaf)
}

/// Runs a configuration and tells what happens.
pub fn run_observed(
    config: &Config,
    seed: u64,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    config.validate()?;
    let dimensions = (config.requests.different, config.responses.min_bytes);
    Run::new(config, seed, Workload::drawn(config, seed), dimensions, observer).run()
}

/// Runs a configuration with recorded requests, in order of time; of its `requests` and `responses`
/// only the sizes of requests, headers and locations count. The seed is for exponential processing
/// times.
pub fn run_trace(
    config: &Config,
    trace: &[TraceRequest],
    seed: u64,
    observer: &mut dyn Observer,
) -> Result<Outcome, RunError> {
    config.validate()?;
    let trace = NumberedTrace::new(trace)?;
    let dimensions = (trace.different, trace.bytes_min);
    Run::new(config, seed, Workload::Trace(trace, 0), dimensions, observer).run()
}

/// Half of what [`Time`] holds. Sums of times that are too long for it are its largest, which is
/// later than this.
const END: Time = Time(1 << 63);

#[derive(Clone, Copy, Debug)]
enum Event {
    Arrival,
    Completion(Component, Job),
    CardPeriodEnd,
    HostPeriodEnd,
    Dump(Dumped),
}

/// What a station works on: a request at one of its steps.
#[derive(Clone, Copy, Debug)]
struct Job {
    request: u32,
    step: Step,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    CardProcessing,
    Request,
    HostProcessing,
    DiskRead,
    HostMemoryRead,
    Response,
    HeaderOrLocation,
    CardMemoryRead,
    /// After the response: there is no longer a request.
    CardMemoryWrite,
}

#[derive(Clone, Copy, Debug)]
enum Dumped {
    Requests,
    Station(Component),
}

/// A request under way.
#[derive(Clone, Copy, Debug)]
struct Request {
    sequence: u64,
    arrived: Time,
    service: Time,
    id: u32,
    bytes: u32,
    hit: bool,
    measured: bool,
    /// Of header and location: how many are still on the bus.
    transfers: u8,
    card_admission: Admission,
}

struct Run<'a> {
    config: &'a Config,
    seed: u64,
    observer: &'a mut dyn Observer,
    kernel: Kernel<Event>,
    workload: Workload<'a>,
    next_arrival: Option<crate::workload::Incoming>,

    stations: [Station<Job>; Component::ALL.len()],
    card_clock: Clock,
    host_clock: Clock,
    bus_clock: Clock,
    bus_width_bytes: u64,
    card_times: ProcessingTimes,
    host_times: ProcessingTimes,
    card_access: Access,
    host_access: Access,
    disk_access: Access,
    card_memory: Option<Memory>,
    host_memory: Option<Memory>,

    requests: Vec<Request>,
    free: Vec<u32>,
    outstanding: u32,
    /// Jobs at stations, writes to memory included.
    jobs: u64,
    arrived: u64,
    answered: u64,

    measured_since: Option<Time>,
    times: Times,
    response_bytes: u128,
    hits: u64,
    bus_bytes: BusBytes,
    path_ps: [u128; Component::ALL.len()],
}

impl<'a> Run<'a> {
    fn new(
        config: &'a Config,
        seed: u64,
        workload: Workload<'a>,
        (different, bytes_min): (u32, u32),
        observer: &'a mut dyn Observer,
    ) -> Self {
        let (card, host, disk, bus) =
            (&config.network_processor, &config.host, &config.disk, &config.bus);
        let scale = config.simulation.scale;
        let (card_clock, host_clock) = (Clock::new(card.clock_mhz), Clock::new(host.clock_mhz));
        let memory = |policy, bytes_max| Memory::new(policy, bytes_max, different, bytes_min);
        Run {
            config,
            seed,
            observer,
            kernel: Kernel::new(),
            workload,
            next_arrival: None,
            stations: Component::ALL.map(|component| Station::new(servers(config, component))),
            card_clock,
            host_clock,
            bus_clock: Clock::new(bus.clock_mhz),
            bus_width_bytes: u64::from(bus.width_bytes) * u64::from(scale),
            card_times: ProcessingTimes::new(
                seed,
                Stream::CardProcessing,
                card.processing,
                card.processing_cycles,
            ),
            host_times: ProcessingTimes::new(
                seed,
                Stream::HostProcessing,
                host.processing,
                host.processing_cycles,
            ),
            card_access: Access::new(
                card.memory_line_bytes,
                scale,
                card.memory_latency_cycles,
                card_clock,
            ),
            host_access: Access::new(
                host.memory_line_bytes,
                scale,
                host.memory_latency_cycles,
                host_clock,
            ),
            disk_access: Access::new(disk.line_bytes, scale, disk.latency_cycles, host_clock),
            card_memory: (card.memory_bytes > 0)
                .then(|| memory(card.memory_policy, card.memory_bytes)),
            host_memory: disk.present.then(|| memory(host.memory_policy, host.memory_bytes)),
            requests: Vec::new(),
            free: Vec::new(),
            outstanding: 0,
            jobs: 0,
            arrived: 0,
            answered: 0,
            measured_since: None,
            times: Times::new(),
            response_bytes: 0,
            hits: 0,
            bus_bytes: BusBytes::default(),
            path_ps: [0; Component::ALL.len()],
        }
    }

    fn run(mut self) -> Result<Outcome, RunError> {
        self.schedule_arrival();
        self.schedule_periods_and_dumps();
        while self.next_arrival.is_some() || self.jobs > 0 {
            let Some(event) = self.kernel.poll() else { break };
            if self.kernel.now() >= END {
                return Err(RunError::TooLong);
            }
            match event {
                Event::Arrival => self.handle_arrival()?,
                Event::Completion(component, job) => self.handle_completion(component, job),
                Event::CardPeriodEnd => {
                    if let Some(memory) = &mut self.card_memory {
                        memory.handle_period_end();
                        schedule_period(&mut self.kernel, memory, Event::CardPeriodEnd);
                    }
                }
                Event::HostPeriodEnd => {
                    if let Some(memory) = &mut self.host_memory {
                        memory.handle_period_end();
                        schedule_period(&mut self.kernel, memory, Event::HostPeriodEnd);
                    }
                }
                Event::Dump(dumped) => self.handle_dump(dumped),
            }
        }
        self.outcome()
    }

    fn schedule_arrival(&mut self) {
        self.next_arrival = self.workload.next();
        if let Some(incoming) = self.next_arrival {
            self.kernel.schedule(incoming.time, Event::Arrival);
        }
    }

    fn schedule_periods_and_dumps(&mut self) {
        if let Some(memory) = &self.card_memory {
            schedule_period(&mut self.kernel, memory, Event::CardPeriodEnd);
        }
        if let Some(memory) = &self.host_memory {
            schedule_period(&mut self.kernel, memory, Event::HostPeriodEnd);
        }
        let stations = Component::ALL.map(Dumped::Station);
        for dumped in [Dumped::Requests].into_iter().chain(stations) {
            self.schedule_dump(dumped);
        }
    }

    fn schedule_dump(&mut self, dumped: Dumped) {
        let debug = &self.config.debug;
        let ticks = match dumped {
            Dumped::Requests => debug.requests_ticks,
            Dumped::Station(Component::NetworkProcessor) => debug.network_processor_ticks,
            Dumped::Station(Component::NetworkProcessorMemory) => {
                debug.network_processor_memory_ticks
            }
            Dumped::Station(Component::Bus) => debug.bus_ticks,
            Dumped::Station(Component::HostProcessor) => debug.host_processor_ticks,
            Dumped::Station(Component::HostMemory) => debug.host_memory_ticks,
            Dumped::Station(Component::Disk) => debug.disk_ticks,
        };
        if ticks > 0 {
            // With a clock of more than 1 THz a tick may be no time at all: the clock goes on
            // nevertheless.
            let span = self.host_clock.cycles(ticks as f64).max(Time(1));
            self.kernel.schedule(self.kernel.now() + span, Event::Dump(dumped));
        }
    }

    fn handle_arrival(&mut self) -> Result<(), RunError> {
        let Some(incoming) = self.next_arrival else { return Ok(()) };
        self.schedule_arrival();
        let now = self.kernel.now();
        if self.outstanding == self.config.simulation.outstanding_max {
            let queue = |component: &Component| self.stations[*component as usize].waiting();
            let component = Component::ALL.into_iter().max_by_key(queue).unwrap_or(Component::Bus);
            return Err(RunError::Overload {
                component,
                outstanding: self.outstanding,
                at_s: now.seconds(),
            });
        }
        let sequence = self.arrived;
        self.arrived += 1;
        self.outstanding += 1;
        let simulation = &self.config.simulation;
        let measured = sequence >= simulation.warm_up_requests
            && now >= Time::from_seconds(simulation.warm_up_s);
        if measured && self.measured_since.is_none() {
            self.measured_since = Some(now);
            for station in &mut self.stations {
                station.reset(now);
            }
        }
        let request = Request {
            sequence,
            arrived: now,
            service: Time::ZERO,
            id: incoming.id,
            bytes: incoming.bytes,
            hit: false,
            measured,
            transfers: 0,
            card_admission: Admission::Reject,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                self.requests[slot as usize] = request;
                slot
            }
            None => {
                self.requests.push(request);
                self.requests.len() as u32 - 1
            }
        };
        let cycles = self.card_times.draw();
        self.serve(
            Component::NetworkProcessor,
            slot,
            Step::CardProcessing,
            self.card_clock.cycles(cycles),
        );
        Ok(())
    }

    fn handle_completion(&mut self, component: Component, job: Job) {
        let now = self.kernel.now();
        self.jobs -= 1;
        if let Some(begun) = self.stations[component as usize].handle_completion(now) {
            self.schedule(component, begun);
        }
        let slot = job.request;
        match job.step {
            Step::CardProcessing => self.look_up(slot),
            Step::Request => {
                let hit = self.requests[slot as usize].hit;
                let hit_cycles = if hit { self.config.host.hit_processing_cycles } else { 0.0 };
                let cycles = self.host_times.draw() + hit_cycles;
                self.serve(
                    Component::HostProcessor,
                    slot,
                    Step::HostProcessing,
                    self.host_clock.cycles(cycles),
                );
            }
            Step::HostProcessing => self.respond(slot),
            Step::DiskRead => self.read_host_memory(slot),
            Step::HostMemoryRead => {
                let bytes = self.requests[slot as usize].bytes;
                self.bus_bytes.responses += self.counted(slot, bytes);
                self.serve(Component::Bus, slot, Step::Response, self.transfer_time(bytes));
            }
            Step::Response => {
                let Request { id, bytes, card_admission, .. } = self.requests[slot as usize];
                self.answer(slot);
                self.store(id, bytes, card_admission);
            }
            Step::HeaderOrLocation => {
                let request = &mut self.requests[slot as usize];
                request.transfers -= 1;
                if request.transfers == 0 {
                    let time = self.card_access.time(request.bytes);
                    self.serve(Component::NetworkProcessorMemory, slot, Step::CardMemoryRead, time);
                }
            }
            Step::CardMemoryRead => self.answer(slot),
            Step::CardMemoryWrite => {}
        }
    }

    /// The network processor looks into its memory and passes the request on.
    fn look_up(&mut self, slot: u32) {
        let request = &mut self.requests[slot as usize];
        if let Some(memory) = &mut self.card_memory {
            match memory.handle_lookup(request.id) {
                Lookup::Hit(bytes) => (request.hit, request.bytes) = (true, bytes),
                Lookup::Miss(admission) => request.card_admission = admission,
            }
        }
        let bytes = self.config.requests.size_bytes;
        self.bus_bytes.requests += self.counted(slot, bytes);
        self.serve(Component::Bus, slot, Step::Request, self.transfer_time(bytes));
    }

    /// The host has processed the request.
    fn respond(&mut self, slot: u32) {
        let request = &mut self.requests[slot as usize];
        if request.hit {
            request.transfers = 2;
            let responses = &self.config.responses;
            let (header, location) = (responses.in_np_memory_bytes, responses.location_bytes);
            self.bus_bytes.headers += self.counted(slot, header);
            self.bus_bytes.locations += self.counted(slot, location);
            let (header, location) = (self.transfer_time(header), self.transfer_time(location));
            self.count_path(Component::Bus, slot, header.max(location));
            for time in [header, location] {
                self.enter(
                    Component::Bus,
                    Job { request: slot, step: Step::HeaderOrLocation },
                    time,
                );
            }
            return;
        }
        let Request { id, bytes, .. } = *request;
        if let Some(memory) = &mut self.host_memory
            && let Lookup::Miss(admission) = memory.handle_lookup(id)
        {
            memory.handle_data(id, bytes, admission);
            self.serve(Component::Disk, slot, Step::DiskRead, self.disk_access.time(bytes));
            return;
        }
        self.read_host_memory(slot);
    }

    fn read_host_memory(&mut self, slot: u32) {
        let time = self.host_access.time(self.requests[slot as usize].bytes);
        self.serve(Component::HostMemory, slot, Step::HostMemoryRead, time);
    }

    /// The client has its response.
    fn answer(&mut self, slot: u32) {
        let now = self.kernel.now();
        let request = self.requests[slot as usize];
        self.free.push(slot);
        self.outstanding -= 1;
        self.answered += 1;
        if request.measured {
            let time = now - request.arrived;
            self.times.record(time);
            self.response_bytes += u128::from(request.bytes);
            self.hits += u64::from(request.hit);
        }
        self.observer.handle_answer(&Answer {
            sequence: request.sequence,
            id: request.id,
            bytes: request.bytes,
            hit: request.hit,
            arrived: request.arrived,
            answered: now,
            service: request.service,
        });
    }

    /// The network processor keeps a response that it has sent.
    fn store(&mut self, id: u32, bytes: u32, admission: Admission) {
        if let Some(memory) = &mut self.card_memory
            && memory.handle_data(id, bytes, admission)
        {
            let job = Job { request: u32::MAX, step: Step::CardMemoryWrite };
            self.enter(Component::NetworkProcessorMemory, job, self.card_access.time(bytes));
        }
    }

    /// A step that is in the response's way.
    #[inline]
    fn serve(&mut self, component: Component, slot: u32, step: Step, time: Time) {
        self.count_path(component, slot, time);
        self.enter(component, Job { request: slot, step }, time);
    }

    #[inline]
    fn count_path(&mut self, component: Component, slot: u32, time: Time) {
        let request = &mut self.requests[slot as usize];
        request.service = request.service + time;
        if request.measured {
            self.path_ps[component as usize] += u128::from(time.0);
        }
    }

    #[inline]
    fn enter(&mut self, component: Component, job: Job, time: Time) {
        self.jobs += 1;
        if let Some(begun) =
            self.stations[component as usize].handle_arrival(self.kernel.now(), job, time)
        {
            self.schedule(component, begun);
        }
    }

    #[inline]
    fn schedule(&mut self, component: Component, begun: Begun<Job>) {
        self.kernel.schedule(begun.until, Event::Completion(component, begun.job));
    }

    #[inline]
    fn transfer_time(&self, bytes: u32) -> Time {
        self.bus_clock.cycles(u64::from(bytes).div_ceil(self.bus_width_bytes) as f64)
    }

    /// The bytes, if they count.
    #[inline]
    fn counted(&self, slot: u32, bytes: u32) -> u64 {
        if self.requests[slot as usize].measured { u64::from(bytes) } else { 0 }
    }

    fn handle_dump(&mut self, dumped: Dumped) {
        let now = self.kernel.now();
        let state = match dumped {
            Dumped::Requests => State::Requests {
                arrived: self.arrived,
                answered: self.answered,
                outstanding: self.outstanding.into(),
            },
            Dumped::Station(component) => {
                let station = &mut self.stations[component as usize];
                let counts = station.counts(now);
                let memory = match component {
                    Component::NetworkProcessorMemory => self.card_memory.as_ref(),
                    Component::HostMemory => self.host_memory.as_ref(),
                    _ => None,
                };
                State::Station {
                    name: component,
                    waiting: station.waiting(),
                    in_service: station.in_service(),
                    completions: counts.completions,
                    utilisation: ratio(counts.busy_ps as f64, (now - counts.since).0 as f64),
                    memory: memory.map(Memory::state),
                    bus: (component == Component::Bus).then_some(self.bus_bytes),
                }
            }
        };
        let tick = self.host_clock.cycles_in_ps(now.0 as f64).round() as u64;
        self.observer.handle_snapshot(&Snapshot { tick, time: now, state });
        self.schedule_dump(dumped);
    }

    fn outcome(mut self) -> Result<Outcome, RunError> {
        let Some(since) = self.measured_since else { return Err(RunError::NothingMeasured) };
        let now = self.kernel.now();
        let span = now - since;
        let config = self.config;
        let mut stations = Vec::new();
        for component in Component::ALL {
            let queues = servers(config, component) == Servers::One;
            let counts = self.stations[component as usize].counts(now);
            stations.push(StationOutcome::new(component, queues, &counts, span));
        }
        let count = self.times.count() as f64;
        let path = self.path_ps.map(|sum| ratio(sum as f64, count) / 1e3);
        let response = self.times.summary(1e6 / config.host.clock_mhz);
        let busiest = stations.iter().filter(|station| station.queues);
        let bottleneck =
            busiest.max_by(|left, right| left.utilisation.total_cmp(&right.utilisation));
        let longest = Component::ALL
            .into_iter()
            .max_by(|left, right| path[*left as usize].total_cmp(&path[*right as usize]))
            .unwrap_or(Component::HostProcessor);
        Ok(Outcome {
            seed: self.seed,
            requests: self.times.count(),
            hits: self.hits,
            hit_ratio: ratio(self.hits as f64, count),
            response_bytes_mean: ratio(self.response_bytes as f64, count),
            duration_s: span.seconds(),
            throughput_per_s: ratio(count, span.seconds()),
            bus_bytes: self.bus_bytes,
            bus_to_host_bytes: self.bus_bytes.to_host(),
            bus_to_card_bytes: self.bus_bytes.to_card(),
            path: PathTimes {
                network_processor_ns: path[Component::NetworkProcessor as usize],
                network_processor_memory_ns: path[Component::NetworkProcessorMemory as usize],
                bus_ns: path[Component::Bus as usize],
                host_processor_ns: path[Component::HostProcessor as usize],
                host_memory_ns: path[Component::HostMemory as usize],
                disk_ns: path[Component::Disk as usize],
                waiting_ns: response.mean_ns - path.iter().sum::<f64>(),
            },
            response,
            bottleneck: bottleneck.map_or(Component::HostProcessor, |station| station.component),
            longest_stage: longest,
            network_processor_memory: self
                .card_memory
                .as_ref()
                .map_or_else(MemoryState::default, Memory::state),
            host_memory: self.host_memory.as_ref().map_or_else(MemoryState::default, Memory::state),
            stations,
        })
    }
}

fn servers(config: &Config, component: Component) -> Servers {
    if component == Component::Bus && !config.bus.contention {
        Servers::Unlimited
    } else {
        Servers::One
    }
}

fn schedule_period(kernel: &mut Kernel<Event>, memory: &Memory, event: Event) {
    if let Some(period) = memory.period() {
        kernel.schedule(kernel.now() + period.max(Time(1)), event);
    }
}
