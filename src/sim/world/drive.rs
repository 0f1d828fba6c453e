//! Runs ranks in virtual time: they wake up, continue their scripts, and sweep while they wait.

use super::*;

impl<S: Script> World<S> {
    /// Lets the rank's CPU continue at `at`. Replaces an earlier alarm.
    pub(super) fn set_alarm(&mut self, rank: Rank, at: Time) {
        let process = self.process(rank);
        process.alarms = process.alarms.wrapping_add(2) & !HELPER;
        process.alarm = Some(process.alarms);
        let tag = process.alarms;
        self.net.alarm(at, rank, tag);
    }

    /// Handles an alarm of the rank's CPU or progress thread. A replaced alarm has no effect.
    pub(super) fn handle_alarm(
        &mut self,
        rank: Rank,
        tag: u32,
        watch: &mut impl Watch,
    ) -> Result<(), Stuck> {
        if tag == HELPER {
            self.process(rank).helping = false;
            if self.process(rank).state == RankState::Busy {
                self.help(rank, watch);
            }
            return Ok(());
        }
        if self.process(rank).alarm != Some(tag) {
            return Ok(());
        }
        self.process(rank).alarm = None;
        self.go_on(rank, watch)
    }

    /// Wakes a rank because something arrived for it.
    pub(super) fn woken(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<(), Stuck> {
        let now = self.net.now();
        let process = self.process(rank);
        process.called = true;
        if process.state == RankState::Busy {
            if self.settings.progress_thread {
                self.help(rank, watch);
            }
            return Ok(());
        }
        if process.alarm.is_some() {
            return Ok(());
        }
        if process.clock > now {
            let at = process.clock;
            self.set_alarm(rank, at);
            return Ok(());
        }
        self.go_on(rank, watch)
    }

    /// Runs a sweep of the progress thread, now or when the thread is free.
    pub(super) fn help(&mut self, rank: Rank, watch: &mut impl Watch) {
        let now = self.net.now();
        let process = self.process(rank);
        if process.helper > now {
            if !process.helping {
                process.helping = true;
                let at = process.helper;
                self.net.alarm(at, rank, HELPER);
            }
            return;
        }
        self.net.begin(rank, now);
        self.sweep(rank, watch);
        self.process(rank).helper = self.net.clock();
    }

    /// Runs the rank's CPU: sweeps if the rank waits, and continues its script as far as possible.
    pub(super) fn go_on(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<(), Stuck> {
        self.net.begin(rank, self.net.now());
        if let RankState::Waiting(wait) = self.process(rank).state {
            let began = self.process(rank).clock;
            self.sweep(rank, watch);
            let over = self.is_over(rank, wait);
            let clock = self.net.clock();
            let process = self.process(rank);
            process.in_calls += clock - began;
            process.clock = clock;
            if !over {
                // Later arrivals wake the rank by events. Deliveries that the sweep itself caused
                // have none, so they need an alarm.
                if self.has_news(rank) {
                    self.set_alarm(rank, clock);
                }
                return Ok(());
            }
            self.process(rank).state = RankState::Busy;
            if let Wait::Expectation(window, slot) = wait {
                self.finish_expectation(rank, window, slot, watch);
            }
            if self.must_pause() {
                self.set_alarm(rank, clock);
                return Ok(());
            }
        }
        if self.process(rank).state == RankState::Ended {
            self.sweep(rank, watch);
            self.process(rank).clock = self.net.clock();
            return Ok(());
        }
        self.run_script(rank, watch)
    }

    /// True if the rank's clock has passed the next event, so that other ranks run first.
    pub(super) fn must_pause(&self) -> bool {
        self.net.next_time().is_some_and(|next| next <= self.net.clock())
    }

    pub(super) fn run_script(&mut self, rank: Rank, watch: &mut impl Watch) -> Result<(), Stuck> {
        loop {
            let began = self.net.clock();
            self.net.begin(rank, began);
            let flow = self.step(rank, watch)?;
            let clock = self.net.clock();
            let process = self.process(rank);
            process.clock = clock;
            if !matches!(flow, Flow::Compute) {
                process.in_calls += clock - began;
            }
            match flow {
                Flow::Next if !self.must_pause() => continue,
                Flow::Next | Flow::Compute => {}
                Flow::Wait(wait) => {
                    self.process(rank).state = RankState::Waiting(wait);
                    // A wait starts with a sweep, unless nothing has arrived.
                    if !self.has_news(rank) {
                        return Ok(());
                    }
                }
                Flow::End => {
                    self.process(rank).state = RankState::Ended;
                    self.ended += 1;
                }
            }
            self.set_alarm(rank, clock);
            return Ok(());
        }
    }

    // ---- progress ----

    pub(super) fn has_news(&self, rank: Rank) -> bool {
        self.processes[rank as usize].called
            || (0..self.net.windows()).any(|window| self.net.has_news(window, rank))
    }

    /// Sweeps each window of the rank until it makes no more progress.
    pub(super) fn sweep(&mut self, rank: Rank, watch: &mut impl Watch) {
        self.sweeps += 1;
        self.process(rank).called = false;
        self.net.note(u64::from(rank) << 8 | 0xff);
        self.read_mailbox(rank);
        // Start with a pseudo-random window. If the windows took turns, one that retries a lock at
        // the same rate could take every returned credit.
        let windows = self.net.windows();
        let mixed = self.sweeps.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let first = (mixed % u64::from(windows.max(1))) as u32;
        for window in (first..windows).chain(0..first) {
            while self.call_engine(rank, window, |engine, port| engine.progress(port)) {}
            self.report(rank, window, watch);
        }
        self.watch_after(rank, watch);
    }

    pub(super) fn watch_after(&mut self, rank: Rank, watch: &mut impl Watch) {
        let ranks = self.processes.len();
        let mut own = self.windows.iter().skip(rank as usize).step_by(ranks);
        watch.after(rank, &mut own, &mut self.net);
    }

    /// Handles the requests that the engine has completed.
    pub(super) fn report(&mut self, rank: Rank, window: u32, watch: &mut impl Watch) {
        let at = self.at(window, rank);
        while let Some(id) = meter::engine(|| self.windows[at].next_completed()) {
            if let Some(found) = self.windows[at].found(id) {
                watch.notified(rank, window, found, &mut self.net);
            }
            self.process(rank).completed(window, id);
            watch.completed(rank, window, id, &mut self.net);
        }
    }

    /// Runs engine code and accounts for its memory.
    pub(super) fn call_engine<R>(
        &mut self,
        rank: Rank,
        window: u32,
        code: impl FnOnce(&mut Window, &mut SimPort<'_>) -> R,
    ) -> R {
        let (before, at) = (meter::bytes(), self.at(window, rank));
        let (engine, mut port) = (&mut self.windows[at], self.net.port(window, rank));
        let result = meter::engine(|| code(engine, &mut port));
        let memory = &mut self.processes[rank as usize].memory;
        memory.bytes += meter::bytes() - before;
        memory.peak = memory.peak.max(memory.bytes);
        result
    }

    /// Handles the packets of two-sided communication.
    pub(super) fn read_mailbox(&mut self, rank: Rank) {
        use two_sided::{PacketKind, packed, unpacked};
        while let Some(packet) = self.net.next_packet(rank) {
            self.net.spend(self.settings.machine.network.wire.handle);
            let (kind, bytes) = unpacked(packet.value);
            let mailbox = self.process(rank).mailbox.get_or_insert_default();
            match (kind, packet.acknowledged) {
                (PacketKind::Eager | PacketKind::Ready, false) => {
                    mailbox.arrived.push_back((packet.from, kind, bytes))
                }
                (PacketKind::Clear, false) => self.net.port(0, rank).send_packet(
                    packet.from,
                    packed(PacketKind::Data, bytes),
                    bytes,
                ),
                (PacketKind::Data, false) => mailbox.received = true,
                (PacketKind::Data, true) => mailbox.sent = true,
                (_, true) => {}
            }
        }
        if let RankState::Waiting(Wait::Received(from)) = self.process(rank).state {
            self.receive(rank, from);
        }
    }

    /// Receives a message that has arrived, or answers a ready-to-send with clear-to-send.
    pub(super) fn receive(&mut self, rank: Rank, from: Rank) {
        use two_sided::{PacketKind, packed};
        let mailbox = self.process(rank).mailbox.get_or_insert_default();
        match mailbox.take(from) {
            Some((PacketKind::Ready, bytes)) => {
                self.net.port(0, rank).send_packet(from, packed(PacketKind::Clear, bytes), 0)
            }
            Some(_) => mailbox.received = true,
            None => {}
        }
    }

    pub(super) fn is_over(&mut self, rank: Rank, wait: Wait) -> bool {
        match wait {
            Wait::Request(window, id) => !self.window(window, rank).is_pending(id),
            Wait::Lock(window, held) => held.is_held_in(self.window(window, rank)),
            Wait::OlderLocks => !self.awaits_lock(rank),
            Wait::Barrier => false,
            Wait::Slot(slot) => {
                let over = self.process(rank).held(slot) == SlotState::Complete;
                if over {
                    self.process(rank).set(slot, SlotState::Free);
                }
                over
            }
            Wait::AllSlots => {
                let process = self.process(rank);
                let over = process.slots_pending == 0;
                if over {
                    process.slots.clear();
                }
                over
            }
            Wait::Expectation(window, slot) => self.is_met(rank, window, slot),
            Wait::Sent | Wait::Received(_) => {
                let mailbox = self.process(rank).mailbox.get_or_insert_default();
                let over =
                    if wait == Wait::Sent { &mut mailbox.sent } else { &mut mailbox.received };
                std::mem::take(over)
            }
        }
    }

    pub(super) fn awaits_lock(&self, rank: Rank) -> bool {
        self.windows
            .iter()
            .skip(rank as usize)
            .step_by(self.processes.len())
            .any(Window::awaits_open_lock)
    }
}
