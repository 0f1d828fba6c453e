//! How a window finds its peers' queues, memory and words: by hellos, which are messages of the
//! host.

use super::super::fabric::{Event, Joined, Stand, State};
use super::super::hello::{Hello, Spot, Stage as Said};
use super::super::nic::Failure;
use super::super::words::OWN;
use super::{Direct, Far, lock};
use crate::engine::Rank;

impl Direct {
    /// The connected queue to a peer, and what it has said. Contact is made if there was none.
    #[inline]
    pub(in crate::transport::verbs) fn reach(&mut self, index: u32) -> Option<(u32, Far)> {
        let peer = &self.peers[index as usize];
        if let (Some(endpoint), Some(far)) = (peer.endpoint, peer.far)
            && *lock(&self.fabric).state_of(endpoint) == State::Ready
        {
            return Some((endpoint, far));
        }
        if !peer.lost {
            self.contact(index);
        }
        None
    }

    #[cold]
    fn contact(&mut self, index: u32) {
        let peer = &self.peers[index as usize];
        if peer.rank == self.me {
            return self.contact_myself(index);
        }
        let generation = match (peer.endpoint, peer.far) {
            (Some(endpoint), Some(_)) => {
                let fabric = lock(&self.fabric);
                // Otherwise somebody is about to connect it, or to leave it first.
                if *fabric.state_of(endpoint) != State::Vacant {
                    return;
                }
                fabric.stand_of(endpoint).generation
            }
            _ => Hello::UNKNOWN,
        };
        if self.peers[index as usize].asked != Some(generation) {
            self.peers[index as usize].asked = Some(generation);
            self.say(index, Said::Asks);
        }
    }

    /// A queue that leads back.
    fn contact_myself(&mut self, index: u32) {
        let (words, pair) =
            (self.words.spot(OWN), self.words.spot(self.peers[index as usize].block));
        let made = lock(&self.fabric).loop_back();
        match made {
            Ok(None) => {}
            Ok(Some(endpoint)) => {
                let peer = &mut self.peers[index as usize];
                peer.endpoint = Some(endpoint);
                peer.far = Some(Far { window: self.window, memory: self.memory, words, pair });
                self.by_endpoint.insert(endpoint, index);
            }
            Err(Failure(reason)) => self.lose(index, reason),
        }
    }

    pub(super) fn say(&mut self, index: u32, stage: Said) {
        let pair = self.words.spot(self.peers[index as usize].block);
        self.say_about(index, stage, pair, 0);
    }

    fn say_about(&mut self, index: u32, stage: Said, pair: Spot, about: Rank) {
        let peer = &mut self.peers[index as usize];
        if stage.wants_answer() {
            peer.awaited += 1;
        }
        let fabric = lock(&self.fabric);
        let unknown = Stand { generation: Hello::UNKNOWN, number: 0, connected: false };
        let Stand { generation, number, connected } =
            peer.endpoint.map_or(unknown, |endpoint| fabric.stand_of(endpoint));
        let hello = Hello {
            stage,
            name: fabric.name(),
            generation,
            number,
            connected,
            address: fabric.address(),
            window: self.window,
            memory: self.memory,
            words: self.words.spot(OWN),
            pair,
            ground: fabric.ground(),
            about,
        };
        let rank = peer.rank;
        drop(fabric);
        self.hellos.push_back((rank, hello));
    }

    /// A peer has said hello.
    pub(in crate::transport::verbs) fn hear(&mut self, rank: Rank, hello: &Hello) {
        let index = self.peer(rank);
        let peer = &mut self.peers[index as usize];
        if !matches!(hello.stage, Said::Asks | Said::Seeks) {
            peer.awaited = peer.awaited.saturating_sub(1);
        }
        match hello.stage {
            Said::Seeks if hello.about >= self.ranks => {
                self.lose(
                    index,
                    "it has asked for words of a process that the window does not have".into(),
                );
                return self.say(index, Said::Declines);
            }
            Said::Seeks => {
                // Whoever is in a target's queue has met it.
                let about = self.peer(hello.about);
                let pair = self.words.spot(self.peers[about as usize].block);
                return self.say_about(index, Said::Finds, pair, hello.about);
            }
            Said::Finds => {
                if let Some(asked) = self.third.get_mut(&(rank, hello.about)) {
                    *asked = Some(hello.pair);
                }
                return;
            }
            _ => {}
        }
        self.heed(index, hello);
    }

    /// Does what a hello wants for the queue, as soon as that can be done.
    pub(super) fn heed(&mut self, index: u32, hello: &Hello) {
        let peer = &self.peers[index as usize];
        if peer.lost {
            if hello.stage.wants_answer() {
                self.say(index, Said::Declines);
            }
            return;
        }
        if hello.stage == Said::Declines {
            return self.lose(index, "its queue cannot be connected, or has failed".into());
        }
        let answer = match self.join(index, hello) {
            Ok(Joined::Now) => Said::Answers,
            Ok(Joined::YoursFirst) => Said::Yields,
            Ok(Joined::Later) => return self.deferred.push_back((index, *hello)),
            Err(Failure(reason)) => {
                self.lose(index, reason);
                return self.say(index, Said::Declines);
            }
        };
        let far = Far {
            window: hello.window,
            memory: hello.memory,
            words: hello.words,
            pair: hello.pair,
        };
        self.peers[index as usize].far = Some(far);
        match hello.stage {
            Said::Asks | Said::Yields => self.say(index, answer),
            Said::Answers => self.say(index, Said::Confirms),
            Said::Confirms => self.say(index, Said::IsReady),
            _ => {}
        }
    }

    /// Does what a hello allows for the queue.
    fn join(&mut self, index: u32, hello: &Hello) -> Result<Joined, Failure> {
        let endpoint = lock(&self.fabric).endpoint(hello.name);
        self.peers[index as usize].endpoint = Some(endpoint);
        if self.by_endpoint.insert(endpoint, index).is_none() {
            let (ripe, early) = std::mem::take(&mut self.early)
                .into_iter()
                .partition(|(other, _)| *other == endpoint);
            self.early = early;
            let ripe: Vec<(u32, Event)> = ripe;
            ripe.into_iter().for_each(|(_, event)| self.take(event));
        }
        lock(&self.fabric).join(endpoint, hello)
    }

    /// Where the words of `home` are that concern `target`, which is another process; asks for it
    /// the first time.
    pub(in crate::transport::verbs) fn words_of_third(
        &mut self,
        home: Rank,
        target: Rank,
    ) -> Option<Spot> {
        if let Some(known) = self.third.get(&(home, target)) {
            return *known;
        }
        self.third.insert((home, target), None);
        let index = self.peer(home);
        self.say_about(index, Said::Seeks, Spot::default(), target);
        None
    }
}
