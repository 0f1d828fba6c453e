//! What a process publishes while a window is made: its node, its memory, its RDMA capability, and
//! its port for messages.

use crate::transport::am::window_channel::PeerAddress;

/// The part of a [`Card`] that describes the process's port for messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PortCard {
    /// Name of the job's context; 0 if there is none.
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

/// What a process publishes while a window is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Card {
    /// Zeros if the process does not know its node.
    pub(crate) node: [u64; 3],
    /// Bytes and displacement unit of its window memory.
    pub(crate) bytes: u64,
    pub(crate) disp_unit: u32,
    /// RDMA capability. `None`: the process has not looked for a device yet.
    pub(crate) capability: Option<u8>,
    pub(crate) port: PortCard,
}

/// Bytes of a card.
pub(crate) const CARD: usize = 64;

impl Card {
    /// Whether two processes are known to be on the same node.
    pub(crate) fn is_on_node_of(&self, other: &Card) -> bool {
        self.node == other.node && self.node != [0; 3]
    }

    pub(crate) fn encode(self) -> [u8; CARD] {
        let [first, second, third] = self.node;
        let PortCard { context, address } = self.port;
        let capability = u64::from(self.capability.map_or(u32::MAX, u32::from));
        let small = u64::from(self.disp_unit) | capability << 32;
        let words = [
            first,
            second,
            third,
            self.bytes,
            context,
            address.port,
            small,
            address.process.into(),
        ];
        let mut bytes = [0; CARD];
        for (place, word) in bytes.chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&u64::to_ne_bytes(word));
        }
        bytes
    }

    /// The card of these [`CARD`] bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let word =
            |at: usize| u64::from_ne_bytes(bytes[8 * at..][..8].try_into().expect("eight bytes"));
        let address = PeerAddress { process: word(7) as u32, port: word(5) };
        Card {
            node: [word(0), word(1), word(2)],
            bytes: word(3),
            disp_unit: word(6) as u32,
            capability: u8::try_from(word(6) >> 32).ok(),
            port: PortCard { context: word(4), address },
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
