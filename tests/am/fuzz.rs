//! Malformed messages. They are refused with the peer's rank, and memory outside the window stays
//! unchanged.
//!
//! To replay one seed: `MPIX_FUZZ_SEED=<seed> cargo test --test am fuzz -- --nocapture`; to
//! run more: `MPIX_FUZZ_SEEDS=<number>`.

use mpix_rma::engine::*;
use mpix_rma::transport::am::channel::{MAX_TAGS, TransferKind, TransferTag};
use mpix_rma::transport::am::wire::*;
use mpix_rma::transport::datatype::element::{native, reduction};

use crate::hostile;
use crate::world::*;

fn how() -> ElementOp {
    ElementOp { element: native::U64, reduction: reduction::SUM, extent: 8 }
}

fn put_rendezvous(place: Place, number: u32) -> Record<'static> {
    Record::Rendezvous(place, TransferTag { kind: TransferKind::Put, number })
}

fn get_rendezvous(place: Place, number: u32) -> Record<'static> {
    Record::Rendezvous(place, TransferTag { kind: TransferKind::Get, number })
}

/// A packet with one record of each kind.
fn one_of_each(counted: bool) -> Packet {
    let mut packet = Packet::new();
    packet.put(Place::flat(8, 16)).fill(1);
    packet.put(Place { disp: 64, len: 8, stride: -16, count: 3 }).fill(2);
    packet.push(&Record::Get(Place::flat(0, 24), 4));
    packet.accumulate(Place::flat(16, 8), how()).fill(3);
    packet.fetch(Place::flat(24, 8), how(), 5, true).fill(4);
    packet.fetch(Place::flat(24, 8), ElementOp { reduction: reduction::NO_OP, ..how() }, 6, false);
    packet.swap(Place::flat(32, 8), 7).fill(5);
    packet.push(&Record::Notify(3));
    packet.push(&Record::NotifyTagged(9));
    packet.push(&Record::Signal(Word::Done, 9));
    packet.push(&Record::Access(
        LockWord::Next { target: 1, parity: 1 },
        Atomic::CompareSwap { expected: 1, new: 2 },
        3,
    ));
    packet.push(&Record::Access(LockWord::Tail, Atomic::Load, 4));
    packet.push(&Record::Unattached(Unattached { disp: 5, len: 6, which: OpRef::Reply(0) }));
    packet.push(&Record::Unattached(Unattached { disp: 5, len: 6, which: OpRef::Number(1) }));
    packet.seal(Header { ack_wanted: true, counted, taken: 0, done: 0 });
    packet
}

fn records(bytes: &[u8]) -> Result<usize, Malformed> {
    let (_, mut reader) = Reader::new(bytes)?;
    let mut records = 0;
    while reader.next_record()?.is_some() {
        records += 1;
    }
    Ok(records)
}

#[test]
fn what_is_written_is_read() {
    let packet = one_of_each(true);
    let (header, mut reader) = Reader::new(&packet.bytes).unwrap();
    assert_eq!(header, Header { ack_wanted: true, counted: true, taken: 0, done: 0 });
    assert_eq!(reader.next_record(), Ok(Some(Record::Put(Place::flat(8, 16), &[1; 16]))));
    let place = Place { disp: 64, len: 8, stride: -16, count: 3 };
    assert_eq!(reader.next_record(), Ok(Some(Record::Put(place, &[2; 24]))));
    assert_eq!(reader.next_record(), Ok(Some(Record::Get(Place::flat(0, 24), 4))));
    assert_eq!(
        reader.next_record(),
        Ok(Some(Record::Accumulate(Place::flat(16, 8), how(), &[3; 8])))
    );
    assert_eq!(
        reader.next_record(),
        Ok(Some(Record::Fetch(Place::flat(24, 8), how(), 5, &[4; 8])))
    );
    let no_op = ElementOp { reduction: reduction::NO_OP, ..how() };
    assert_eq!(reader.next_record(), Ok(Some(Record::Fetch(Place::flat(24, 8), no_op, 6, &[]))));
    assert_eq!(reader.next_record(), Ok(Some(Record::Swap(Place::flat(32, 8), 7, &[5; 16]))));
    assert_eq!(reader.next_record(), Ok(Some(Record::Notify(3))));
    assert_eq!(reader.next_record(), Ok(Some(Record::NotifyTagged(9))));
    assert_eq!(reader.next_record(), Ok(Some(Record::Signal(Word::Done, 9))));
    let access = Atomic::CompareSwap { expected: 1, new: 2 };
    assert_eq!(
        reader.next_record(),
        Ok(Some(Record::Access(LockWord::Next { target: 1, parity: 1 }, access, 3)))
    );
    assert_eq!(reader.next_record(), Ok(Some(Record::Access(LockWord::Tail, Atomic::Load, 4))));
    assert!(matches!(
        reader.next_record(),
        Ok(Some(Record::Unattached(Unattached { which: OpRef::Reply(0), .. })))
    ));
    assert!(matches!(
        reader.next_record(),
        Ok(Some(Record::Unattached(Unattached { which: OpRef::Number(1), .. })))
    ));
    assert_eq!(reader.next_record(), Ok(None));
    let mut packet = Packet::new();
    packet.push(&put_rendezvous(Place::flat(1, MAX_TRANSFER), 7));
    packet.push(&get_rendezvous(Place::flat(2, 3), 8));
    packet.reply(8, 5).fill(6);
    packet.push(&Record::Answer(9, 10));
    packet.push(&Record::Close);
    let undone =
        [OpRef::Reply(11), OpRef::Number(12)].map(|which| Unattached { disp: 13, len: 14, which });
    undone.into_iter().for_each(|what| packet.push(&Record::Unattached(what)));
    packet.seal(Header::default());
    let (_, mut reader) = Reader::new(&packet.bytes).unwrap();
    assert_eq!(reader.next_record(), Ok(Some(put_rendezvous(Place::flat(1, MAX_TRANSFER), 7))));
    assert_eq!(reader.next_record(), Ok(Some(get_rendezvous(Place::flat(2, 3), 8))));
    assert_eq!(reader.next_record(), Ok(Some(Record::Reply(8, &[6; 5]))));
    assert_eq!(reader.next_record(), Ok(Some(Record::Answer(9, 10))));
    assert_eq!(reader.next_record(), Ok(Some(Record::Close)));
    for what in undone {
        assert_eq!(reader.next_record(), Ok(Some(Record::Unattached(what))));
    }
}

#[test]
fn every_truncation_is_noticed() {
    let packet = one_of_each(true);
    let whole = records(&packet.bytes).unwrap();
    let mut ends = 0;
    for len in 0..packet.bytes.len() {
        match records(&packet.bytes[..len]) {
            Err(Malformed::Truncated | Malformed::NotAPacket) => {}
            // A cut between two records cannot be noticed.
            Ok(fewer) => {
                assert!(fewer < whole, "{len} bytes");
                ends += 1;
            }
            Err(other) => panic!("{len} bytes: {other}"),
        }
    }
    assert_eq!(ends, whole);
}

fn lies_in(place: Place, size: u64) -> bool {
    place.bounds().is_some_and(|(_, end)| end <= size)
}

#[test]
fn places_that_overflow_are_outside_every_window() {
    for place in [
        Place::flat(u64::MAX, 1),
        Place::flat(u64::MAX - 7, 8),
        Place::flat(0, u64::MAX),
        Place { disp: 0, len: 8, stride: -8, count: 2 },
        Place { disp: 8, len: 8, stride: i64::MIN, count: 2 },
        Place { disp: 8, len: 8, stride: i64::MAX, count: u32::MAX },
        Place { disp: 90, len: 8, stride: 8, count: 2 },
        Place { disp: 93, len: 8, stride: -93, count: 2 },
    ] {
        assert!(!lies_in(place, 100), "{place:?}");
    }
    assert!(lies_in(Place { disp: 92, len: 8, stride: -92, count: 2 }, 100));
}

/// The reason for which a window of 128 bytes refuses a packet.
fn refusal_of(packet: &[u8]) -> Option<Malformed> {
    let mut memories = vec![vec![0u8; 128]; 3];
    let (hub, mut w) = windows(&mut memories, 1);
    hub.lock().unwrap().delay = 0;
    hub.lock().unwrap().inject(2, 1, packet.to_vec());
    w[1].poll();
    let refused = w[1].next_refused()?;
    assert_eq!(refused.peer, 2);
    assert!(refused.to_string().contains("process 2"));
    assert!(
        memories.iter().flatten().all(|byte| *byte == 0),
        "a refused message has changed memory"
    );
    Some(refused.reason)
}

fn sealed(write: impl FnOnce(&mut Packet)) -> Vec<u8> {
    let mut packet = Packet::new();
    write(&mut packet);
    packet.seal(Header { counted: true, ..Header::default() });
    packet.bytes
}

#[test]
fn refusals_name_the_peer_and_the_reason() {
    let outside = |place| sealed(move |packet| packet.put(place).fill(1));
    assert_eq!(refusal_of(&outside(Place::flat(121, 8))), Some(Malformed::OutsideWindow));
    assert_eq!(refusal_of(&outside(Place::flat(u64::MAX - 3, 8))), Some(Malformed::OutsideWindow));
    let strided = Place { disp: 120, len: 8, stride: 8, count: 2 };
    assert_eq!(refusal_of(&outside(strided)), Some(Malformed::OutsideWindow));
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&Record::Get(Place::flat(128, 1), 0)))),
        Some(Malformed::OutsideWindow)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&put_rendezvous(Place::flat(0, 129), 0)))),
        Some(Malformed::OutsideWindow)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&get_rendezvous(Place::flat(1, 128), 0)))),
        Some(Malformed::OutsideWindow)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&put_rendezvous(Place::flat(0, 8), MAX_TAGS)))),
        Some(Malformed::InvalidTransferTag)
    );
    let unknown = ElementOp { element: Element(200), ..how() };
    assert_eq!(
        refusal_of(&sealed(|packet| packet.accumulate(Place::flat(0, 8), unknown).fill(1))),
        Some(Malformed::UnknownReduction)
    );
    let float = ElementOp { element: native::F64, reduction: reduction::BXOR, extent: 8 };
    assert_eq!(
        refusal_of(&sealed(|packet| packet.accumulate(Place::flat(0, 8), float).fill(1))),
        Some(Malformed::UnknownReduction)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.accumulate(Place::flat(0, 9), how()).fill(1))),
        Some(Malformed::Lengths)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.reply(0, 8).fill(1))),
        Some(Malformed::UnexpectedReply)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&Record::Answer(0, 8)))),
        Some(Malformed::UnexpectedReply)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&Record::Notify(0)))),
        Some(Malformed::UnknownCounter)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&Record::NotifyTagged(1 << 31)))),
        Some(Malformed::UnknownTag)
    );
    let word = LockWord::Grant { target: 3 };
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&Record::Access(word, Atomic::Load, 0)))),
        Some(Malformed::UnknownWord)
    );
    assert_eq!(
        refusal_of(&sealed(|packet| packet.push(&Record::Access(
            LockWord::Holders,
            Atomic::Load,
            0
        )))),
        Some(Malformed::UnknownWord)
    );
    let mut early = Packet::new();
    early.seal(Header { taken: 1, ..Header::default() });
    assert_eq!(refusal_of(&early.bytes), Some(Malformed::NotSent));
    early.seal(Header { done: 1, ..Header::default() });
    assert_eq!(refusal_of(&early.bytes), Some(Malformed::NotSent));
    assert_eq!(refusal_of(b"hello"), Some(Malformed::NotAPacket));
    assert_eq!(refusal_of(&[]), Some(Malformed::NotAPacket));
}

/// The work that one packet can ask for is bounded by its bytes and by the bytes of the replies.
#[test]
fn a_packet_asks_for_bounded_work() {
    // There are no more runs than bytes of payload. Walking through 2^32 runs would take minutes.
    for count in [u32::MAX, u32::MAX - 1, PAYLOAD as u32 + 1] {
        let runs = Place { disp: 0, len: 1, stride: 1, count };
        let no_op = ElementOp { element: native::BYTE, reduction: reduction::NO_OP, extent: 1 };
        assert_eq!(
            refusal_of(&sealed(|packet| packet.push(&Record::Get(runs, 0)))),
            Some(Malformed::Lengths)
        );
        assert_eq!(
            refusal_of(&sealed(|packet| _ = packet.fetch(runs, no_op, 0, false))),
            Some(Malformed::Lengths)
        );
        assert_eq!(
            refusal_of(&sealed(|packet| packet.push(&put_rendezvous(runs, 0)))),
            Some(Malformed::Lengths)
        );
        assert_eq!(
            refusal_of(&sealed(|packet| packet.push(&get_rendezvous(runs, 0)))),
            Some(Malformed::Lengths)
        );
    }
    let memory = vec![0u8; PAYLOAD];
    let gets = |number| {
        let (hub, mut w) = dynamic_windows(2, 1);
        hub.lock().unwrap().delay = 0;
        w[1].attach(Addr(memory.as_ptr() as usize), PAYLOAD as u64).unwrap();
        let place = Place::flat(memory.as_ptr() as u64, PAYLOAD as u64);
        hub.lock().unwrap().inject(
            0,
            1,
            sealed(|packet| (0..number).for_each(|id| packet.push(&Record::Get(place, id)))),
        );
        w[1].poll();
        w[1].next_refused().map(|refused| refused.reason)
    };
    // An origin has at most 256 KiB and one record outstanding.
    assert_eq!(gets(16), None);
    assert_eq!(gets(300), Some(Malformed::TooMuch));
}

/// Random bytes, and valid packets with changed bytes. The target neither panics nor changes memory
/// outside its window.
#[test]
fn fuzz() {
    let only = std::env::var("MPIX_FUZZ_SEED")
        .ok()
        .map(|seed| seed.parse().expect("MPIX_FUZZ_SEED is a number"));
    let many = std::env::var("MPIX_FUZZ_SEEDS")
        .map_or(3000, |many| many.parse().expect("MPIX_FUZZ_SEEDS is a number"));
    let seeds: Vec<u64> = only.map_or((1..=many).collect(), |seed| vec![seed]);
    for seed in seeds {
        let result = std::panic::catch_unwind(|| attack(seed));
        assert!(
            result.is_ok(),
            "seed {seed}; replay: MPIX_FUZZ_SEED={seed} \
             cargo test --test am fuzz -- --nocapture"
        );
    }
}

fn attack(seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let packets: Vec<Vec<u8>> = (0..rng.usize(1..40))
        .map(|_| match rng.u8(0..4) {
            0 => (0..rng.usize(0..200)).map(|_| rng.u8(..)).collect(),
            1 => {
                // A valid header, then random bytes.
                let mut bytes = one_of_each(true).bytes[..HEADER].to_vec();
                bytes.extend(
                    (0..rng.usize(0..300))
                        .map(|_| if rng.bool() { rng.u8(0..17) } else { rng.u8(..) }),
                );
                bytes
            }
            _ => mutated(&mut rng),
        })
        .collect();
    hostile::deliver(packets.into_iter(), seed);
}

/// A valid packet with some bytes changed.
fn mutated(rng: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = one_of_each(rng.bool()).bytes;
    for _ in 0..rng.usize(1..6) {
        let at = rng.usize(0..bytes.len());
        match rng.u8(0..4) {
            0 => bytes[at] ^= 1 << rng.u8(0..8),
            1 => bytes[at] = rng.u8(..),
            2 => bytes.truncate(at.max(1)),
            _ => {
                let extreme = [0, 1, u64::MAX, i64::MAX as u64, 1 << 32, 255][rng.usize(0..6)];
                let at = at & !7;
                if at + 8 <= bytes.len() {
                    bytes[at..at + 8].copy_from_slice(&extreme.to_ne_bytes());
                }
            }
        }
        if bytes.is_empty() {
            break;
        }
    }
    bytes
}
