//! How a derived datatype was made: its envelope and contents.

use std::ffi::c_int;

use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;

/// The call that made a datatype, with its arguments.
pub(crate) struct Constructor {
    pub(crate) combiner: c_int,
    /// Arguments that are integers.
    pub(crate) integers: Vec<i64>,
    /// Arguments that are addresses, or, of a large-count constructor, counts, which include
    /// displacements.
    pub(crate) wide: Vec<i64>,
    /// The integers that the large-count constructor takes as counts are in `wide`.
    pub(crate) large: bool,
    pub(crate) types: Vec<Inner>,
}

/// A datatype from which another one was made: a reference, which is freed on drop.
pub(crate) struct Inner(pub(crate) MPI_Datatype);

impl Drop for Inner {
    fn drop(&mut self) {
        // Only what is neither predefined nor made by MPI_Type_create_f90_* may be freed.
        let (Ok(envelope), mut datatype) = (Envelope::of(self.0), self.0) else { return };
        if !envelope.is_unnamed_predefined() && envelope.combiner != MPI_COMBINER_NAMED {
            host_calls::type_free(&mut datatype);
        }
    }
}

/// How many arguments there are of each kind.
#[derive(Clone, Copy, Default)]
pub(crate) struct Envelope {
    integers: usize,
    addresses: usize,
    counts: usize,
    types: usize,
    pub(crate) combiner: c_int,
}

pub(crate) fn refused() -> Fault {
    Fault::new(MPI_ERR_TYPE, "the host does not tell how a datatype was made")
}

impl Envelope {
    #[cfg(not(mpi_large_count))]
    pub(crate) fn of(datatype: MPI_Datatype) -> Result<Self, Fault> {
        let (mut integers, mut addresses, mut types, mut combiner) = (0, 0, 0, 0);
        // SAFETY: the handle is a datatype of the application or of the host; the places are ours.
        let status = unsafe {
            PMPI_Type_get_envelope(
                datatype,
                &raw mut integers,
                &raw mut addresses,
                &raw mut types,
                &raw mut combiner,
            )
        };
        if status != MPI_SUCCESS {
            return Err(refused());
        }
        Ok(Envelope {
            integers: integers as usize,
            addresses: addresses as usize,
            counts: 0,
            types: types as usize,
            combiner,
        })
    }

    /// The large form serves datatypes that were made by either form.
    #[cfg(mpi_large_count)]
    pub(crate) fn of(datatype: MPI_Datatype) -> Result<Self, Fault> {
        let (mut integers, mut addresses, mut counts, mut types, mut combiner) = (0, 0, 0, 0, 0);
        // SAFETY: the handle is a datatype of the application or of the host; the places are ours.
        let status = unsafe {
            PMPI_Type_get_envelope_c(
                datatype,
                &raw mut integers,
                &raw mut addresses,
                &raw mut counts,
                &raw mut types,
                &raw mut combiner,
            )
        };
        if status != MPI_SUCCESS {
            return Err(refused());
        }
        let [integers, addresses, counts, types] =
            [integers, addresses, counts, types].map(|number| number as usize);
        Ok(Envelope { integers, addresses, counts, types, combiner })
    }

    /// Made by `MPI_Type_create_f90_real` and its like.
    pub(crate) fn is_unnamed_predefined(&self) -> bool {
        [MPI_COMBINER_F90_REAL, MPI_COMBINER_F90_COMPLEX, MPI_COMBINER_F90_INTEGER]
            .contains(&self.combiner)
    }
}

impl Constructor {
    /// Gets the contents of a datatype that is not a named one.
    pub(crate) fn of(datatype: MPI_Datatype, envelope: Envelope) -> Result<Self, Fault> {
        let mut integers = vec![0 as c_int; envelope.integers];
        let mut addresses = vec![0 as MPI_Aint; envelope.addresses];
        let mut counts = vec![0i64; envelope.counts];
        let mut types = vec![MPI_DATATYPE_NULL; envelope.types];
        let status = ask(datatype, &mut integers, &mut addresses, &mut counts, &mut types);
        if status != MPI_SUCCESS {
            return Err(refused());
        }
        let types = types.into_iter().map(Inner).collect();
        let large = !counts.is_empty();
        #[allow(clippy::unnecessary_cast, reason = "addresses are not i64 on every host")]
        let wide = if large {
            counts
        } else {
            addresses.into_iter().map(|address| address as i64).collect()
        };
        let integers = integers.into_iter().map(i64::from).collect();
        Ok(Constructor { combiner: envelope.combiner, integers, wide, large, types })
    }

    /// Whether member `at` of a structure has no blocks.
    pub(crate) fn is_empty_member(&self, at: usize) -> bool {
        let numbers = if self.large { &self.wide } else { &self.integers };
        // The number of members stands before the numbers of their blocks.
        [MPI_COMBINER_STRUCT, MPI_COMBINER_STRUCT_INTEGER].contains(&self.combiner)
            && numbers.get(1 + at) == Some(&0)
    }
}

/// Asks the host for the arguments of a constructor; the arrays are as long as the envelope says.
fn ask(
    datatype: MPI_Datatype,
    integers: &mut [c_int],
    addresses: &mut [MPI_Aint],
    counts: &mut [i64],
    types: &mut [MPI_Datatype],
) -> c_int {
    // SAFETY: the host is told the length of each array and fills no more; it refuses arrays that
    // are shorter than the envelope.
    unsafe {
        #[cfg(mpi_large_count)]
        return PMPI_Type_get_contents_c(
            datatype,
            integers.len() as MPI_Count,
            addresses.len() as MPI_Count,
            counts.len() as MPI_Count,
            types.len() as MPI_Count,
            integers.as_mut_ptr(),
            addresses.as_mut_ptr(),
            counts.as_mut_ptr().cast(),
            types.as_mut_ptr(),
        );
        #[cfg(not(mpi_large_count))]
        {
            debug_assert!(counts.is_empty());
            PMPI_Type_get_contents(
                datatype,
                integers.len() as c_int,
                addresses.len() as c_int,
                types.len() as c_int,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                types.as_mut_ptr(),
            )
        }
    }
}
