//! Pending waits for counters, and whose turn it is to be looked at.

use hashbrown::HashMap;

use super::port::RequestId;

/// What a pending wait looks at: whether one of the counters `first` to `first + number - 1` is at
/// least `expected`.
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    pub(super) request: RequestId,
    pub(super) first: u32,
    pub(super) number: u32,
    pub(super) expected: u64,
    /// Then it looks at the next counter of a list.
    pub(super) of_list: bool,
}

/// A wait for each of some counters, which looks at one after the other.
#[derive(Debug)]
struct List {
    first: u32,
    thresholds: Box<[u64]>,
    /// The values of the counters that have reached theirs.
    values: Vec<u64>,
}

impl List {
    /// What it looks at now.
    fn watch(&self, request: RequestId) -> Watch {
        let at = self.values.len();
        let (first, expected) = (self.first + at as u32, self.thresholds[at]);
        Watch { request, first, number: 1, expected, of_list: true }
    }
}

/// The memory is freed when nothing waits, unless it is for at most so many requests.
const KEPT: usize = 1024;

/// The pending waits of a window. Most windows never have one, so this is small.
#[derive(Debug)]
pub(super) struct CounterWaits {
    /// Most waits that one turn looks at.
    per_turn: usize,
    pending: Option<Box<Pending>>,
}

#[derive(Debug, Default)]
struct Pending {
    watches: Vec<Watch>,
    /// Place in `watches` by the index of the request; stale where none waits.
    places: Vec<u32>,
    lists: HashMap<u32, List>,
    /// Whose turn it is.
    next: usize,
}

impl Default for CounterWaits {
    fn default() -> Self {
        CounterWaits { per_turn: usize::MAX, pending: None }
    }
}

impl CounterWaits {
    pub(super) fn set_per_turn(&mut self, most: usize) {
        self.per_turn = most;
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.pending.as_ref().is_none_or(|pending| pending.watches.is_empty())
    }

    pub(super) fn push(&mut self, watch: Watch) {
        self.pending.get_or_insert_default().push(watch);
    }

    /// Adds a wait for a list of counters, the first of which have these values.
    pub(super) fn push_list(
        &mut self,
        request: RequestId,
        first: u32,
        thresholds: &[u64],
        values: Vec<u64>,
    ) {
        let list = List { first, thresholds: thresholds.into(), values };
        let pending = self.pending.get_or_insert_default();
        pending.push(list.watch(request));
        pending.lists.insert(request.index, list);
    }

    #[inline]
    pub(super) fn get(&self, request: RequestId) -> Option<Watch> {
        let pending = self.pending.as_ref()?;
        pending.place(request).map(|place| pending.watches[place])
    }

    /// The counter that a list looks at has reached its threshold with this value. Returns what it
    /// looks at next, or all values if that was the last one.
    pub(super) fn next_of_list(
        &mut self,
        request: RequestId,
        value: u64,
    ) -> Result<Watch, Vec<u64>> {
        let pending = self.pending.as_mut().expect("a list waits");
        let list = pending.lists.get_mut(&request.index).expect("a list waits");
        list.values.push(value);
        if list.values.len() == list.thresholds.len() {
            return Err(std::mem::take(&mut list.values));
        }
        let watch = list.watch(request);
        let place = pending.place(request).expect("a list waits");
        pending.watches[place] = watch;
        Ok(watch)
    }

    /// Removes a wait.
    pub(super) fn remove(&mut self, request: RequestId) {
        let Some(pending) = &mut self.pending else { return };
        pending.remove(request, self.per_turn);
        if pending.watches.is_empty() && pending.places.len() > KEPT {
            self.pending = None;
        }
    }

    /// Begins a turn. Returns the number of waits to be looked at in it.
    pub(super) fn turn(&mut self) -> usize {
        let Some(pending) = &mut self.pending else { return 0 };
        if pending.watches.len() <= self.per_turn {
            pending.next = 0;
        }
        pending.watches.len().min(self.per_turn)
    }

    /// The next wait to be looked at in this turn.
    pub(super) fn next(&mut self) -> Option<Watch> {
        let pending = self.pending.as_mut()?;
        if pending.next >= pending.watches.len() {
            pending.next = 0;
        }
        let watch = pending.watches.get(pending.next).copied()?;
        pending.next += 1;
        Some(watch)
    }

    /// Removes the waits that `ended` selects.
    pub(super) fn remove_if(&mut self, mut ended: impl FnMut(RequestId) -> bool) {
        let Some(pending) = &self.pending else { return };
        let requests: Vec<RequestId> = pending.watches.iter().map(|watch| watch.request).collect();
        for request in requests {
            if ended(request) {
                self.remove(request);
            }
        }
    }
}

impl Pending {
    fn push(&mut self, watch: Watch) {
        let index = watch.request.index as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, u32::MAX);
        }
        self.places[index] = self.watches.len() as u32;
        self.watches.push(watch);
    }

    #[inline]
    fn place(&self, request: RequestId) -> Option<usize> {
        let place = *self.places.get(request.index as usize)? as usize;
        (self.watches.get(place)?.request == request).then_some(place)
    }

    fn remove(&mut self, request: RequestId, per_turn: usize) {
        let Some(place) = self.place(request) else { return };
        let few = self.watches.len() <= per_turn;
        // A few stay in the order of their calls, in which they then complete.
        let removed =
            if few { self.watches.remove(place) } else { self.watches.swap_remove(place) };
        if removed.of_list {
            self.lists.remove(&request.index);
        }
        let moved = if few { self.watches.len() } else { self.watches.len().min(place + 1) };
        // The last one may have been removed.
        for at in place..moved {
            self.places[self.watches[at].request.index as usize] = at as u32;
        }
        if place + 1 == self.next || few && place < self.next {
            self.next -= 1;
        }
    }
}
