//! The task graph of the Gauss-Seidel method on one rank, in several versions.
//!
//! The matrix is divided into horizontal bands, one for each rank, and a band into blocks. A block
//! is updated from the new values above and to the left, and from the values of the previous
//! iteration below and to the right (Sala et al. 2019, section 7.1).

use super::scheduler::Graph;

/// The versions of the program; [`Band`] has the order of their tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One rank per core. Each iteration exchanges whole rows by blocking calls.
    Pure,
    /// One rank per core. Rows are exchanged in pieces, each as early as possible.
    NBuffer,
    /// One rank per node. The iterations alternate with an exchange of whole rows.
    ForkJoin,
    /// One rank per node. Tasks with blocking calls exchange pieces, one after the other.
    Sentinel,
    /// One rank per node. Tasks with nonblocking calls exchange pieces and complete with these.
    Interop,
    /// As `Interop`, by notified puts.
    Notified,
}

impl Version {
    /// All versions.
    pub const ALL: [Version; 6] = [
        Version::Pure,
        Version::NBuffer,
        Version::ForkJoin,
        Version::Sentinel,
        Version::Interop,
        Version::Notified,
    ];

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Version::Pure => "pure",
            Version::NBuffer => "nbuffer",
            Version::ForkJoin => "forkjoin",
            Version::Sentinel => "sentinel",
            Version::Interop => "interop",
            Version::Notified => "notified",
        }
    }

    /// True if a rank has all cores of a node, and false if it has one core.
    #[must_use]
    pub fn is_hybrid(self) -> bool {
        !matches!(self, Version::Pure | Version::NBuffer)
    }

    /// True if a call blocks the core that makes it until the communication is complete.
    #[must_use]
    pub fn blocks_core(self) -> bool {
        !matches!(self, Version::Interop | Version::Notified)
    }

    /// True if whole rows are exchanged.
    #[must_use]
    pub fn sends_whole_rows(self) -> bool {
        matches!(self, Version::Pure | Version::ForkJoin)
    }
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Updates a block.
    Compute,
    /// Sends the first row to the rank above. Iteration t sends the values of t - 1.
    SendUp,
    /// Sends the last row to the rank below.
    SendDown,
    /// Receives the row above the band from the rank above.
    ReceiveUpper,
    /// Receives the row below the band from the rank below.
    ReceiveLower,
}

/// One task of a rank. Communication has row 0, and column 0 if whole rows are exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Task {
    /// What it does.
    pub kind: Kind,
    /// Row of blocks in the band.
    pub row: u32,
    /// Column of blocks.
    pub column: u32,
    /// Iteration.
    pub iteration: u32,
}

/// The band of one rank, in blocks.
#[derive(Clone, Copy, Debug)]
pub struct Band {
    /// The version.
    pub version: Version,
    /// Rows of blocks.
    pub rows: u32,
    /// Columns of blocks.
    pub columns: u32,
    /// Number of iterations.
    pub iterations: u32,
    /// There is a rank above.
    pub upper: bool,
    /// There is a rank below.
    pub lower: bool,
}

/// The parts of an iteration in the order in which a program has them.
const PHASES: [Kind; 5] =
    [Kind::SendUp, Kind::ReceiveUpper, Kind::ReceiveLower, Kind::Compute, Kind::SendDown];
/// The parts of a block's update with n buffers. The last one belongs to the next iteration.
const BLOCK: [Kind; 5] =
    [Kind::ReceiveUpper, Kind::ReceiveLower, Kind::Compute, Kind::SendDown, Kind::SendUp];

impl Band {
    fn has(&self, kind: Kind) -> bool {
        match kind {
            Kind::Compute => true,
            Kind::SendUp | Kind::ReceiveUpper => self.upper,
            Kind::SendDown | Kind::ReceiveLower => self.lower,
        }
    }

    /// Columns of a communication.
    fn pieces(&self) -> u32 {
        if self.version.sends_whole_rows() { 1 } else { self.columns }
    }

    fn communication(kind: Kind, column: u32, iteration: u32) -> Task {
        Task { kind, row: 0, column, iteration }
    }

    // ---- tasks that follow each other in the order of the program ----

    /// Place of a task in the program order that its version keeps, if it has one. An iteration of
    /// a fork-join is one place, from its first block to its last.
    fn place(&self, task: Task) -> Option<u64> {
        let (column, iteration) = (u64::from(task.column), u64::from(task.iteration));
        let phase = |of: &[Kind; 5]| of.iter().position(|kind| *kind == task.kind).unwrap_or(0);
        let (columns, five) = (u64::from(self.columns), 5);
        match self.version {
            Version::Interop | Version::Notified => None,
            Version::Sentinel if task.kind == Kind::Compute => None,
            Version::Sentinel => {
                Some((iteration * five + phase(&PHASES) as u64) * columns + column)
            }
            Version::Pure | Version::ForkJoin => Some(iteration * five + phase(&PHASES) as u64),
            // The first rows of iteration 0 are sent before everything else.
            Version::NBuffer if task.kind == Kind::SendUp && iteration == 0 => Some(column),
            Version::NBuffer => {
                let of = iteration - u64::from(task.kind == Kind::SendUp);
                Some(columns + (of * columns + column) * five + phase(&BLOCK) as u64)
            }
        }
    }

    /// The task at a place: the first or the last one of a fork-join. `None` if this rank has none.
    fn at(&self, place: u64, last: bool) -> Option<Task> {
        let (columns, five) = (u64::from(self.columns), 5);
        let (kind, column, iteration) = match self.version {
            Version::Interop | Version::Notified => return None,
            Version::Sentinel => {
                let (line, column) = (place / columns, place % columns);
                (PHASES[(line % five) as usize], column, line / five)
            }
            Version::Pure | Version::ForkJoin => (PHASES[(place % five) as usize], 0, place / five),
            Version::NBuffer if place < columns => (Kind::SendUp, place, 0),
            Version::NBuffer => {
                let (block, kind) = ((place - columns) / five, (place - columns) % five);
                let kind = BLOCK[kind as usize];
                (kind, block % columns, block / columns + u64::from(kind == Kind::SendUp))
            }
        };
        let in_place = !(self.version == Version::Sentinel && kind == Kind::Compute);
        if !in_place || !self.has(kind) || iteration >= u64::from(self.iterations) {
            return None;
        }
        let mut task = Self::communication(kind, column as u32, iteration as u32);
        if kind == Kind::Compute && self.version != Version::NBuffer && last {
            task = Task { row: self.rows - 1, column: self.columns - 1, ..task };
        }
        Some(task)
    }

    /// Number of places.
    fn places(&self) -> u64 {
        let blocks = u64::from(self.pieces()) * (u64::from(self.iterations) * 5 + 1);
        if self.version.blocks_core() { blocks } else { 0 }
    }

    /// True if a task begins, or `last`: ends, its place.
    fn bounds_place(&self, task: Task, last: bool) -> bool {
        if task.kind != Kind::Compute || self.version == Version::NBuffer {
            return true;
        }
        let at = if last { (self.rows - 1, self.columns - 1) } else { (0, 0) };
        (task.row, task.column) == at
    }

    fn previous(&self, task: Task) -> Option<Task> {
        let place = self.place(task).filter(|_| self.bounds_place(task, false))?;
        (0..place).rev().find_map(|place| self.at(place, true))
    }

    fn next(&self, task: Task) -> Option<Task> {
        let place = self.place(task).filter(|_| self.bounds_place(task, true))?;
        (place + 1..self.places()).find_map(|place| self.at(place, false))
    }

    /// True if a task waits for the data that it uses, and for no more.
    fn follows_data(&self) -> bool {
        matches!(self.version, Version::Sentinel | Version::Interop | Version::Notified)
    }
}

impl Graph for Band {
    type Task = Task;

    fn len(&self) -> u64 {
        let sides = 2 * (u64::from(self.upper) + u64::from(self.lower));
        let blocks = u64::from(self.rows) * u64::from(self.columns);
        u64::from(self.iterations) * (blocks + sides * u64::from(self.pieces()))
    }

    fn roots(&self, each: &mut dyn FnMut(Task)) {
        let mut offer = |task| {
            let mut waits = false;
            self.predecessors(task, &mut |_| waits = true);
            if !waits {
                each(task);
            }
        };
        for kind in PHASES.into_iter().filter(|kind| self.has(*kind)) {
            let (rows, columns) =
                if kind == Kind::Compute { (self.rows, self.columns) } else { (1, self.pieces()) };
            for (row, column) in (0..rows).flat_map(|row| (0..columns).map(move |at| (row, at))) {
                offer(Task { kind, row, column, iteration: 0 });
            }
        }
    }

    fn predecessors(&self, task: Task, each: &mut dyn FnMut(Task)) {
        self.previous(task).map(&mut *each);
        let Task { kind, row, column, iteration } = task;
        let block = |row, column, iteration| Task { kind: Kind::Compute, row, column, iteration };
        if kind == Kind::Compute && self.version != Version::NBuffer {
            if row > 0 {
                each(block(row - 1, column, iteration));
            }
            if column > 0 {
                each(block(row, column - 1, iteration));
            }
        }
        if !self.follows_data() {
            return;
        }
        let (last_row, last_column) = (self.rows - 1, self.columns - 1);
        let with = |kind, iteration| Self::communication(kind, column, iteration);
        match kind {
            Kind::Compute => {
                if row == 0 && self.upper {
                    each(with(Kind::ReceiveUpper, iteration));
                    // The values that this task overwrites have been sent.
                    each(with(Kind::SendUp, iteration));
                }
                if row == last_row && self.lower {
                    each(with(Kind::ReceiveLower, iteration));
                }
                let Some(before) = iteration.checked_sub(1) else { return };
                if row < last_row {
                    each(block(row + 1, column, before));
                } else if self.lower {
                    each(with(Kind::SendDown, before));
                }
                each(block(row, last_column.min(column + 1), before));
            }
            Kind::SendDown => each(block(last_row, column, iteration)),
            Kind::SendUp | Kind::ReceiveUpper if iteration > 0 => {
                each(block(0, column, iteration - 1));
            }
            Kind::ReceiveLower if iteration > 0 => each(block(last_row, column, iteration - 1)),
            _ => {}
        }
    }

    fn successors(&self, task: Task, each: &mut dyn FnMut(Task)) {
        self.next(task).map(&mut *each);
        let Task { kind, row, column, iteration } = task;
        let block = |row, column, iteration| Task { kind: Kind::Compute, row, column, iteration };
        let (last_row, last_column) = (self.rows - 1, self.columns - 1);
        if kind == Kind::Compute && self.version != Version::NBuffer {
            if row < last_row {
                each(block(row + 1, column, iteration));
            }
            if column < last_column {
                each(block(row, column + 1, iteration));
            }
        }
        if !self.follows_data() {
            return;
        }
        let with = |kind, iteration| Self::communication(kind, column, iteration);
        let after = Some(iteration + 1).filter(|after| *after < self.iterations);
        match (kind, after) {
            (Kind::Compute, after) => {
                if row == last_row && self.lower {
                    each(with(Kind::SendDown, iteration));
                }
                let Some(after) = after else { return };
                if row == 0 && self.upper {
                    each(with(Kind::SendUp, after));
                    each(with(Kind::ReceiveUpper, after));
                }
                if row == last_row && self.lower {
                    each(with(Kind::ReceiveLower, after));
                }
                if row > 0 {
                    each(block(row - 1, column, after));
                }
                if column > 0 {
                    each(block(row, column - 1, after));
                }
                if column == last_column {
                    each(block(row, column, after));
                }
            }
            (Kind::SendUp | Kind::ReceiveUpper, _) => each(block(0, column, iteration)),
            (Kind::ReceiveLower, _) => each(block(last_row, column, iteration)),
            (Kind::SendDown, Some(after)) => each(block(last_row, column, after)),
            (Kind::SendDown, None) => {}
        }
    }
}
