//! Up to how many bytes a few processes run a collective on a schedule of this library. Longer ones
//! are as fast at the host, or faster.
//!
//! A table in a file replaces the numbers of this module (`MPIX_RMA_COLLECTIVES_TABLE`). A line is
//! a collective, a number of processes and most bytes; `#` begins a comment. Rank 0 of
//! `MPI_COMM_WORLD` reads it for all processes, which must choose alike [CL-1].

use std::ffi::c_int;
use std::sync::OnceLock;

use crate::collective::schedule::FLAT_MAX;
use crate::mpi::abi::world;

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Row {
    Broadcast,
    Reduce,
    Allreduce,
    Scan,
    ReduceScatter,
    Gather,
    Scatter,
    Allgather,
    Alltoall,
}

/// The rows by their names in the table.
const ROWS: [(&str, Row); 9] = [
    ("broadcast", Row::Broadcast),
    ("reduce", Row::Reduce),
    ("allreduce", Row::Allreduce),
    ("scan", Row::Scan),
    ("reduce_scatter", Row::ReduceScatter),
    ("gather", Row::Gather),
    ("scatter", Row::Scatter),
    ("allgather", Row::Allgather),
    ("alltoall", Row::Alltoall),
];

/// Most bytes that a table may say. Long contents pass in pieces whose number is bounded.
const BYTES_MAX: usize = 16 << 20;

impl Row {
    /// Most bytes without a table: where MPICH 4.0.2 becomes faster with 2 ranks, or below, on
    /// near and on distant processors.
    fn standard(self, ranks: u32) -> usize {
        let of_all = match self {
            Row::Broadcast => return 8 << 10,
            // The host's take several times as long.
            Row::Reduce | Row::Scan => 2 << 20,
            Row::Allreduce | Row::ReduceScatter | Row::Allgather => 64 << 10,
            // The host copies them once.
            Row::Gather | Row::Scatter | Row::Alltoall => 16 << 10,
        };
        of_all / ranks as usize
    }

    /// Most bytes that up to [`FLAT_MAX`] processes move here: of an operand, or of the block of a
    /// process.
    pub(super) fn most(self, ranks: u32) -> usize {
        let table = TABLE.get().and_then(|table| table.of(self, ranks));
        table.unwrap_or_else(|| self.standard(ranks))
    }
}

/// Most bytes by row and number of processes. -1: the table does not say.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table([c_int; ROWS.len() * COLUMNS]);

const COLUMNS: usize = FLAT_MAX as usize + 1;

static TABLE: OnceLock<Table> = OnceLock::new();

impl Table {
    const EMPTY: Table = Table([-1; ROWS.len() * COLUMNS]);

    fn of(&self, row: Row, ranks: u32) -> Option<usize> {
        let most = self.0.get(row as usize * COLUMNS + ranks as usize)?;
        usize::try_from(*most).ok()
    }

    /// Reads a table. What it says of a number of processes holds for lower ones, too, and what it
    /// says of the highest holds for higher ones.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    fn parse(text: &str) -> Result<Self, String> {
        let mut lines: Vec<(Row, u32, c_int)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.is_empty() {
                continue;
            }
            let parsed = Self::parse_line(&words).map_err(|what| format!("line {number}: {what}"));
            lines.push(parsed?);
        }
        lines.sort_unstable_by_key(|(_, ranks, _)| *ranks);
        let mut table = Self::EMPTY;
        for (_, row) in ROWS {
            let said = || lines.iter().filter(|line| line.0 == row);
            for ranks in 1..=FLAT_MAX {
                let found = said().find(|line| ranks <= line.1).or_else(|| said().next_back());
                if let Some((.., most)) = found {
                    table.0[row as usize * COLUMNS + ranks as usize] = *most;
                }
            }
        }
        Ok(table)
    }

    fn parse_line(words: &[&str]) -> Result<(Row, u32, c_int), String> {
        let [name, ranks, bytes] = words else {
            return Err("it is not a collective, a number of processes, and bytes".into());
        };
        let row = ROWS.iter().find(|(known, _)| known == name);
        let (_, row) = row.ok_or_else(|| format!("{name} is no collective of the table"))?;
        let ranks = ranks.parse().ok().filter(|ranks| (2..=FLAT_MAX).contains(ranks));
        let ranks = ranks.ok_or_else(|| format!("processes are not from 2 to {FLAT_MAX}"))?;
        let bytes = bytes.parse::<usize>().ok().filter(|bytes| *bytes <= BYTES_MAX);
        let bytes = bytes.ok_or_else(|| format!("bytes are not from 0 to {BYTES_MAX}"))?;
        Ok((*row, ranks, bytes as c_int))
    }

    /// Reads the file of that name.
    fn read(path: &str) -> Self {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string());
        match text.and_then(|text| Self::parse(&text)) {
            Ok(table) => {
                log::info!("collectives run on schedules up to the bytes that {path} says");
                table
            }
            Err(what) => {
                log::warn!(
                    "MPIX_RMA_COLLECTIVES_TABLE={path} is not used, but the standard table: {what}"
                );
                Self::EMPTY
            }
        }
    }
}

/// Takes the table of rank 0. Collective: `share` gives all processes the numbers of rank 0.
pub(super) fn take(rank: c_int, share: impl FnOnce(&mut [c_int])) {
    let path = world::look_up("MPIX_RMA_COLLECTIVES_TABLE");
    let path = path.filter(|path| rank == 0 && !path.is_empty());
    let mut table = path.map_or(Table::EMPTY, |path| Table::read(&path));
    share(&mut table.0);
    // A process has one job.
    _ = TABLE.set(table);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_higher_number_of_processes_counts() {
        let text = "# measured\nallreduce 2 4096\nallreduce 4 512 # on two cores\n\ngather 8 0\n";
        let table = Table::parse(text).unwrap();
        let of = |row| (2..=FLAT_MAX).map(|ranks| table.of(row, ranks)).collect::<Vec<_>>();
        let (two, four) = (Some(4096), Some(512));
        assert_eq!(of(Row::Allreduce), [two, four, four, four, four, four, four]);
        assert_eq!(of(Row::Gather), [Some(0); 7]);
        assert_eq!(of(Row::Broadcast), [None; 7]);
        assert_eq!(table.of(Row::Alltoall, FLAT_MAX + 1), None);
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, what) in [
            ("allreduce 2", "line 1: it is not a collective, a number of processes, and bytes"),
            ("\n# x\nbarrier 2 8", "line 3: barrier is no collective of the table"),
            ("scan 9 8", "line 1: processes are not from 2 to 8"),
            ("scan 1 8", "line 1: processes are not from 2 to 8"),
            ("scan 2 16777217", "line 1: bytes are not from 0 to 16777216"),
            ("scan 2 -1", "line 1: bytes are not from 0 to 16777216"),
        ] {
            assert_eq!(Table::parse(text), Err(what.to_owned()), "{text}");
        }
    }

    #[test]
    fn without_a_table_the_bytes_of_all_count() {
        assert_eq!(Row::Broadcast.most(8), 8 << 10);
        assert_eq!((Row::Allgather.most(2), Row::Alltoall.most(8)), (32 << 10, 2 << 10));
    }
}
