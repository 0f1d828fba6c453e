//! What a process publishes while a window is made: its node, its memory, its RDMA capability, and
//! its port for messages.

use crate::transport::am::window_channel::PeerAddress;

/// What a process publishes of its port for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCard {
    /// Name of the job's context; 0 without one.
    pub(crate) context: u64,
    pub(crate) address: PeerAddress,
}

impl PortCard {
    /// Whether all processes have the same context.
    pub(crate) fn share_context(mut ports: impl Iterator<Item = PortCard>) -> bool {
        let Some(first) = ports.next() else { return false };
        first.context != 0 && ports.all(|port| port.context == first.context)
    }
}

/// What a process publishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Card {
    /// Zeros if the process does not know its node.
    pub(crate) node: [u64; 3],
    /// Bytes and displacement unit of its window memory.
    pub(crate) bytes: u64,
    pub(crate) disp_unit: u32,
    /// `None`: it has not looked for a device yet.
    pub(crate) capability: Option<u8>,
    pub(crate) port: PortCard,
}

/// Bytes of a card.
pub(crate) const CARD: usize = 64;

impl Card {
    /// Whether two processes know that they are on one node.
    pub(crate) fn is_on_node_of(&self, other: &Card) -> bool {
        self.node == other.node && self.node != [0; 3]
    }

    pub(crate) fn encode(self) -> [u8; CARD] {
        let [first, second, third] = self.node;
        let small = [
            self.disp_unit,
            self.capability.map_or(u32::MAX, u32::from),
            self.port.address.process,
            0,
        ];
        let large = [first, second, third, self.bytes, self.port.context, self.port.address.port];
        let mut bytes = [0; CARD];
        let (of_large, of_small) = bytes.split_at_mut(size_of_val(&large));
        for (place, number) in of_large.chunks_exact_mut(8).zip(large) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        for (place, number) in of_small.chunks_exact_mut(4).zip(small) {
            place.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// The card of these [`CARD`] bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let large =
            |at: usize| u64::from_ne_bytes(bytes[8 * at..][..8].try_into().expect("eight bytes"));
        let small = |at: usize| {
            u32::from_ne_bytes(bytes[48 + 4 * at..][..4].try_into().expect("four bytes"))
        };
        Card {
            node: [large(0), large(1), large(2)],
            bytes: large(3),
            disp_unit: small(0),
            capability: u8::try_from(small(1)).ok(),
            port: PortCard {
                context: large(4),
                address: PeerAddress { process: small(2), port: large(5) },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_context(context: u64) -> PortCard {
        PortCard { context, address: PeerAddress { process: 3, port: 1 << 33 } }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        for capability in [None, Some(0), Some(0x82)] {
            let node = [1, u64::MAX, 3];
            let port = with_context(5);
            let card = Card { node, bytes: 1 << 40, disp_unit: 8, capability, port };
            assert_eq!(Card::decode(&card.encode()), card);
        }
    }

    #[test]
    fn unknown_nodes_have_nothing_in_common() {
        let unknown = Card::default();
        assert!(!unknown.is_on_node_of(&unknown));
        let known = Card { node: [1, 0, 0], ..unknown };
        assert!(known.is_on_node_of(&known) && !known.is_on_node_of(&unknown));
    }

    #[test]
    fn a_context_is_shared_if_all_processes_have_it() {
        let share =
            |contexts: &[u64]| PortCard::share_context(contexts.iter().copied().map(with_context));
        assert!(share(&[5, 5, 5]));
        assert!(!share(&[5, 7, 5]), "of two jobs");
        assert!(!share(&[5, 0]), "one without");
        assert!(!share(&[0, 0]), "sessions");
        assert!(!share(&[]));
    }
}
