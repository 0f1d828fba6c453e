//! The memory of a window: `MPI_Win_shared_query`, and memory that is attached to dynamic windows.

use std::ffi::{c_int, c_void};

use crate::engine::Addr;
use crate::mpi::abi::error::Fault;
use crate::mpi::abi::sys::*;
use crate::mpi::rma::args;
use crate::mpi::rma::call::{Done, window_calls};
use crate::runtime::Window;
use crate::transport::shm::AttachError;

/// A rank's memory, at the address at which this process loads and stores it.
struct Segment {
    size: u64,
    disp_unit: u32,
    base: usize,
}

/// The memory of `rank`; for `MPI_PROC_NULL` that of the lowest rank whose memory this process can
/// load and store. Without such memory: zero bytes at NULL (MPI-4.1 12.2.3).
fn segment(window: &Window, rank: c_int) -> Result<Segment, Fault> {
    if window.attributes.flavor == MPI_WIN_FLAVOR_DYNAMIC {
        return Err(Fault::new(MPI_ERR_RMA_FLAVOR, "win was made by MPI_Win_create_dynamic"));
    }
    let of = |rank| {
        let (size, disp_unit) = window.port.extent_of(rank);
        match window.port.address_of(rank) {
            Some(base) => Segment { size, disp_unit, base: base.0 },
            None => Segment { size: 0, disp_unit, base: 0 },
        }
    };
    Ok(match args::rank(window, rank, "rank is outside the window's group")? {
        Some(rank) => of(rank),
        None => {
            let lowest = (0..window.size).find(|rank| window.port.address_of(*rank).is_some());
            lowest.map_or(Segment { size: 0, disp_unit: 1, base: 0 }, of)
        }
    })
}

/// `MPI_Win_shared_query`, with a displacement unit of type `$unit`.
macro_rules! shared_query {
    ($unit:ty; $name:ident => $host:ident) => {
        window_calls! { win;
            /// Returns size, displacement unit and address of another process's memory.
            $name(
                win: MPI_Win, rank: c_int;
                size: MPI_Aint, disp_unit: $unit, baseptr: *mut c_void
            ) => $host, |mut guard| {
                if size.is_null() || disp_unit.is_null() || baseptr.is_null() {
                    return Err(Fault::new(MPI_ERR_ARG, "size, disp_unit or baseptr is NULL"));
                }
                let found = segment(guard.windows.called(), rank)?;
                size.write(found.size as MPI_Aint);
                disp_unit.write(found.disp_unit as $unit);
                baseptr.write(found.base as *mut c_void);
                Ok(())
            };
        }
    };
}

shared_query! { c_int; MPI_Win_shared_query => PMPI_Win_shared_query }

#[cfg(mpi_large_count)]
shared_query! { MPI_Aint; MPI_Win_shared_query_c => PMPI_Win_shared_query_c }

fn dynamic(window: &mut Window) -> Result<&mut Window, Fault> {
    if window.attributes.flavor != MPI_WIN_FLAVOR_DYNAMIC {
        return Err(Fault::new(MPI_ERR_RMA_FLAVOR, "win was not made by MPI_Win_create_dynamic"));
    }
    Ok(window)
}

fn refused(refusal: AttachError) -> Fault {
    let text = match refusal {
        AttachError::Overlaps => "some of the memory is attached already",
        AttachError::TooLong => "the memory ends beyond the address space",
        AttachError::Unknown => "no memory was attached at base",
        AttachError::NoRoom => "the system has no room to attach more (see MPIX_RMA_LOG=warn)",
    };
    Fault::new(MPI_ERR_RMA_ATTACH, text)
}

fn attach(window: &mut Window, base: *const c_void, size: MPI_Aint) -> Done {
    let window = dynamic(window)?;
    let Ok(size) = u64::try_from(size) else {
        return Err(Fault::new(MPI_ERR_SIZE, "size is negative"));
    };
    if base.is_null() && size > 0 {
        return Err(Fault::new(MPI_ERR_ARG, "base is NULL"));
    }
    window.port.attach(Addr(base as usize), size).map_err(refused)
}

window_calls! { win;
    /// Attaches memory of this process to a dynamic window.
    MPI_Win_attach(win: MPI_Win, base: *mut c_void, size: MPI_Aint) => PMPI_Win_attach,
        |mut guard| attach(guard.windows.called(), base, size);
    /// Detaches memory of this process from a dynamic window.
    MPI_Win_detach(win: MPI_Win, base: *const c_void) => PMPI_Win_detach, |mut guard| {
        dynamic(guard.windows.called())?.port.detach(Addr(base as usize)).map_err(refused)
    };
}
