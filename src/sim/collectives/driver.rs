//! Runs the programs of all processes in virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use super::super::script::byte_op;
use crate::collective::nodes::{
    Area, Await, Block, Counter, Kind, Move, Place, Program, Progress, Step, StepId,
};
use crate::engine::{
    Assert, Notification, Op, OpKind, Port, Posted, Rank, ReorderFlags, SyncError, Ticket, Window,
};
use crate::transport::sim::{Carry, FaultInjection, Network, NextEvent, Parameters, Time};

const WINDOW: u32 = 0;
/// An alarm with this tag lets the CPU go on. With another one, a counter rises.
const CPU: u32 = 0;

/// A step that waits for a counter.
struct Waiting {
    value: u32,
    rank: Rank,
    step: StepId,
}

struct Process {
    program: Program,
    progress: Progress,
    /// Steps that may be done, lowest number first.
    ready: BinaryHeap<Reverse<StepId>>,
    /// By area.
    memory: [Vec<u8>; 4],
    window: Window,
    /// What the processes of the node have added to the counters of this one.
    counted: Vec<u32>,
    /// Until then the line of the counter is with another processor.
    line: Vec<Time>,
    /// Steps of the processes of the node that wait for a counter of this one.
    waiting: BTreeMap<u32, Vec<Waiting>>,
    /// An alarm for the CPU is set.
    alarm: bool,
    /// Time that the CPU has reached.
    clock: Time,
    /// End of its last step.
    end: Time,
}

/// All processes and the network.
pub(super) struct Driver {
    net: Network,
    processes: Vec<Process>,
    /// Bytes of the simulated collective for which a byte of the contents stands.
    unit: u64,
    /// CPU time of each block of a copy beyond the first one.
    block: Time,
    /// CPU time of a call.
    call: Time,
    /// Bytes on their way between two places.
    buffer: Vec<u8>,
}

impl Driver {
    pub(super) fn new(
        parameters: Parameters,
        programs: Vec<Program>,
        (unit, block, call): (u64, Time, Time),
    ) -> Self {
        let ranks = programs.len() as u32;
        let mut net = Network::new(ranks, parameters, Carry::Nothing, FaultInjection::default());
        net.add_window(0);
        let process = |(me, program): (Rank, Program)| {
            let mut ready = BinaryHeap::new();
            // Steps that wait for a counter too are sorted out when they are first looked at.
            let progress = Progress::new(&program, |step| ready.push(Reverse(step)));
            Process {
                memory: program.areas().map(|bytes| vec![0; bytes as usize]),
                program,
                progress,
                ready,
                window: Window::new(me, ranks, ReorderFlags::default()),
                counted: Vec::new(),
                line: Vec::new(),
                waiting: BTreeMap::new(),
                alarm: false,
                clock: 0,
                end: 0,
            }
        };
        let processes = (0..).zip(programs).map(process).collect();
        Driver { net, processes, unit, block, call, buffer: Vec::new() }
    }

    /// Number of processes.
    pub(super) fn ranks(&self) -> Rank {
        self.processes.len() as u32
    }

    /// The memory of a process.
    pub(super) fn area(&mut self, rank: Rank, area: Area) -> &mut Vec<u8> {
        &mut self.processes[rank as usize].memory[area.number()]
    }

    /// The network.
    pub(super) fn net(&self) -> &Network {
        &self.net
    }

    /// When a process has ended its last step.
    pub(super) fn end(&self, rank: Rank) -> Time {
        self.processes[rank as usize].end
    }

    /// Lets each process enter the collective at its time, and runs it to the end.
    pub(super) fn run(&mut self, enters: impl Fn(Rank) -> Time) -> Result<(), String> {
        let refused = |error: SyncError| format!("the engine refused a call: {error:?}");
        for rank in 0..self.ranks() {
            let process = &mut self.processes[rank as usize];
            self.net.begin(rank, 0);
            let assert = Assert { nocheck: true, ..Assert::default() };
            process.window.lock_all(&mut self.net.port(WINDOW, rank), assert).map_err(refused)?;
            process.alarm = true;
            self.net.alarm(enters(rank) + self.call, rank, CPU);
        }
        while let Some(event) = self.net.advance() {
            match event {
                NextEvent::Alarm { rank, tag: CPU } => {
                    self.processes[rank as usize].alarm = false;
                    self.go_on(rank).map_err(refused)?;
                }
                NextEvent::Alarm { rank, tag } => self.counted(rank, tag - 1),
                NextEvent::Network => {}
            }
            while let Some(rank) = self.net.next_woken() {
                self.woken(rank);
            }
        }
        let stuck = self.processes.iter().filter(|process| !process.progress.is_done());
        match stuck.count() {
            0 if self.net.is_idle() => Ok(()),
            0 => Err("messages are left".into()),
            some => Err(format!("{some} processes are stuck")),
        }
    }

    fn set_alarm(&mut self, rank: Rank, at: Time) {
        let process = &mut self.processes[rank as usize];
        if !process.alarm {
            process.alarm = true;
            self.net.alarm(at, rank, CPU);
        }
    }

    /// Lets an idle CPU go on as soon as it can.
    fn wake(&mut self, rank: Rank) {
        let at = self.processes[rank as usize].clock.max(self.net.now());
        self.set_alarm(rank, at);
    }

    // ---- counters ----

    fn value(&self, counter: Counter) -> u64 {
        let counted = &self.processes[counter.rank as usize].counted;
        let counted = counted.get(counter.index as usize).copied().unwrap_or(0);
        u64::from(counted) + self.net.notifications(WINDOW, counter.rank, counter.index)
    }

    /// A process of the node has raised a counter.
    fn counted(&mut self, rank: Rank, index: u32) {
        self.processes[rank as usize].counted[index as usize] += 1;
        self.look(rank, index);
    }

    /// Frees the steps that wait for this counter and need not any more.
    fn look(&mut self, rank: Rank, index: u32) {
        let value = self.value(Counter { rank, index });
        let waiting = &mut self.processes[rank as usize].waiting;
        let Some(list) = waiting.get_mut(&index) else { return };
        let freed: Vec<Waiting> =
            list.extract_if(.., |step| u64::from(step.value) <= value).collect();
        if list.is_empty() {
            waiting.remove(&index);
        }
        for Waiting { rank, step, .. } in freed {
            self.processes[rank as usize].ready.push(Reverse(step));
            self.wake(rank);
        }
    }

    /// Something has arrived: a notification, which may be for other processes of the node too, or
    /// something for the engine.
    fn woken(&mut self, rank: Rank) {
        let counters: Vec<u32> = self.processes[rank as usize].waiting.keys().copied().collect();
        for index in counters {
            self.look(rank, index);
        }
        self.wake(rank);
    }

    /// Raises a counter of a process of the node. Processors that raise it take turns.
    fn raise(&mut self, counter: Counter) {
        let local = self.net.parameters().local;
        self.net.spend(local.post);
        let at = counter.index as usize;
        let process = &mut self.processes[counter.rank as usize];
        if at >= process.counted.len() {
            process.counted.resize(at + 1, 0);
            process.line.resize(at + 1, 0);
        }
        let seen = (self.net.clock() + local.latency).max(process.line[at]);
        process.line[at] = seen + local.gap;
        self.net.alarm(seen, counter.rank, counter.index + 1);
    }

    // ---- steps ----

    /// Lets a CPU do what it can.
    fn go_on(&mut self, rank: Rank) -> Result<(), SyncError> {
        self.net.begin(rank, self.net.now());
        self.sweep(rank);
        while let Some(Reverse(id)) = self.processes[rank as usize].ready.pop() {
            let step = self.processes[rank as usize].program.steps()[id as usize];
            if !self.may(rank, id, step.awaits) {
                continue;
            }
            self.perform(rank, &step)?;
            let process = &mut self.processes[rank as usize];
            let ready = &mut process.ready;
            process.progress.done(id, |next| ready.push(Reverse(next)));
            process.clock = self.net.clock();
            if process.progress.is_done() {
                process.end = process.clock;
            }
            // Ranks that have an earlier event run first.
            if self.net.next_time().is_some_and(|next| next <= self.net.clock()) {
                let at = self.net.clock();
                self.set_alarm(rank, at);
                return Ok(());
            }
            self.net.begin(rank, self.net.clock());
            self.sweep(rank);
        }
        self.processes[rank as usize].clock = self.net.clock();
        Ok(())
    }

    /// Handles what has arrived for the engine.
    fn sweep(&mut self, rank: Rank) {
        let window = &mut self.processes[rank as usize].window;
        while window.progress(&mut self.net.port(WINDOW, rank)) {}
        while window.next_completed().is_some() {}
    }

    /// Whether the counter of a step allows it. Otherwise the step waits.
    fn may(&mut self, rank: Rank, step: StepId, awaits: Option<Await>) -> bool {
        let Some(Await { counter, value }) = awaits else { return true };
        if self.value(counter) < u64::from(value) {
            let waiting = &mut self.processes[counter.rank as usize].waiting;
            waiting.entry(counter.index).or_default().push(Waiting { value, rank, step });
            return false;
        }
        let local = self.net.parameters().local;
        self.net.spend(local.handle);
        let by_network = self.net.notifications(WINDOW, counter.rank, counter.index) > 0;
        if by_network && counter.rank != rank {
            // The process at which it has arrived has polled the same line.
            self.net.spend(local.latency);
        }
        true
    }

    fn perform(&mut self, rank: Rank, step: &Step) -> Result<(), SyncError> {
        let Some(moves) = step.moves else {
            if let Some(counter) = step.notifies {
                self.raise(counter);
            }
            return Ok(());
        };
        let (bytes, blocks) = self.processes[rank as usize].program.extent(&moves);
        self.transfer(rank, &moves);
        let far = !self.net.parameters().same_node(rank, moves.to.rank);
        let packs = blocks > 1 || moves.kind != Kind::Put || !far;
        if packs && bytes > 0 {
            self.copy(rank, bytes * self.unit, blocks);
        }
        match step.notifies {
            Some(counter) if far => {
                let index = counter.index;
                let op = Op {
                    notification: Some(Notification::counter(index)),
                    ..byte_op(OpKind::Put, counter.rank, 0, bytes * self.unit)
                };
                let window = &mut self.processes[rank as usize].window;
                window.issue(&mut self.net.port(WINDOW, rank), &op)?;
            }
            Some(counter) => self.raise(counter),
            None => {}
        }
        Ok(())
    }

    /// The time of a copy or reduction within the node.
    fn copy(&mut self, rank: Rank, bytes: u64, blocks: u64) {
        self.net.spend((blocks - 1) * self.block);
        let op = byte_op(OpKind::Put, rank, 0, bytes);
        let posted = self.net.port(WINDOW, rank).post(&op, Ticket(0));
        assert_eq!(posted, Posted::Complete, "a put to the own node is a copy");
    }

    /// Moves the contents. A put's are at the target at once; no step reads them before the
    /// notification.
    fn transfer(&mut self, rank: Rank, moves: &Move) {
        let blocks: Vec<_> = self.processes[rank as usize].program.blocks(moves).collect();
        let mut buffer = std::mem::take(&mut self.buffer);
        for Block { from, to, with, bytes } in blocks {
            buffer.clear();
            buffer.extend_from_slice(self.bytes(from, bytes));
            if let Some(with) = with {
                let operand = self.bytes(with, bytes).iter();
                buffer.iter_mut().zip(operand).for_each(|(sum, byte)| {
                    *sum = sum.wrapping_add(*byte);
                });
            }
            self.bytes(to, bytes).copy_from_slice(&buffer);
        }
        self.buffer = buffer;
    }

    fn bytes(&mut self, place: Place, bytes: u32) -> &mut [u8] {
        &mut self.area(place.rank, place.area)[place.at as usize..][..bytes as usize]
    }
}
