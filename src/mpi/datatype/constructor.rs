//! How a derived datatype was made: its envelope and contents.

use std::ffi::c_int;

use crate::mpi::abi::error::Fault;
use crate::mpi::abi::host_calls;
use crate::mpi::abi::sys::*;

/// The call that made a datatype, with its arguments.
pub(crate) struct Constructor {
    pub(crate) combiner: c_int,
    /// Arguments of type int.
    pub(crate) integers: Vec<i64>,
    /// Arguments of type `MPI_Aint`; of a large-count constructor those of type `MPI_Count`, which
    /// include displacements.
    pub(crate) wide: Vec<i64>,
    /// This is a large-count constructor: `wide` has the arguments that are ints in the other form.
    pub(crate) large: bool,
    pub(crate) types: Vec<Inner>,
}

/// A datatype from which another one was made. Frees its handle on drop.
pub(crate) struct Inner(pub(crate) MPI_Datatype);

impl Drop for Inner {
    fn drop(&mut self) {
        // Predefined datatypes and those of MPI_Type_create_f90_* must not be freed.
        let (Ok(envelope), mut datatype) = (Envelope::of(self.0), self.0) else { return };
        if !envelope.is_unnamed_predefined() && envelope.combiner != MPI_COMBINER_NAMED {
            host_calls::type_free(&mut datatype);
        }
    }
}

/// How many arguments of each type a constructor has.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    integers: usize,
    addresses: usize,
    counts: usize,
    types: usize,
    pub(crate) combiner: c_int,
}

pub(crate) fn refused() -> Fault {
    Fault::new(MPI_ERR_TYPE, "the host does not say how a datatype was made")
}

impl Envelope {
    pub(crate) fn of(datatype: MPI_Datatype) -> Result<Self, Fault> {
        let (mut numbers, mut combiner) = ([0; 4], 0);
        if host_calls::type_envelope(datatype, &mut numbers, &mut combiner) != MPI_SUCCESS {
            return Err(refused());
        }
        let [integers, addresses, counts, types] = numbers.map(|number| number as usize);
        Ok(Envelope { integers, addresses, counts, types, combiner })
    }

    /// True for datatypes of `MPI_Type_create_f90_real`, `_complex` and `_integer`.
    pub(crate) fn is_unnamed_predefined(&self) -> bool {
        [MPI_COMBINER_F90_REAL, MPI_COMBINER_F90_COMPLEX, MPI_COMBINER_F90_INTEGER]
            .contains(&self.combiner)
    }
}

impl Constructor {
    /// Gets the constructor of a datatype that is neither predefined nor unnamed predefined.
    pub(crate) fn of(datatype: MPI_Datatype, envelope: Envelope) -> Result<Self, Fault> {
        let mut integers = vec![0 as c_int; envelope.integers];
        let mut addresses = vec![0 as MPI_Aint; envelope.addresses];
        let mut counts = vec![0i64; envelope.counts];
        let mut types = vec![MPI_DATATYPE_NULL; envelope.types];
        let status = host_calls::type_contents(
            datatype,
            &mut integers,
            &mut addresses,
            &mut counts,
            &mut types,
        );
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
        // The number of members comes first, then each member's number of blocks.
        [MPI_COMBINER_STRUCT, MPI_COMBINER_STRUCT_INTEGER].contains(&self.combiner)
            && numbers.get(1 + at) == Some(&0)
    }
}
