//! A trace event, as a worker records it: three words. Its only pointers are to `'static` data.

/// The kind of an event. Each describes the use of the event's `value`, `detail` and `extra`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Events were lost (value: their number), so that the state derived from earlier ones is
    /// invalid.
    Lost,
    /// A fiber received a stack. Value: the flow from its spawn, or 0. Detail: 1 if the running
    /// fiber has just spawned it.
    Started,
    /// The fiber's name is in the slots that follow. Value: its length in bytes. Detail: 1 if the
    /// library itself has spawned it.
    Named,
    /// The fiber is named after the place that spawned it. Value: a `&'static Location`. Detail: as
    /// for `Named`.
    Placed,
    /// The fiber was resumed. High half of the value: its generation.
    Resumed,
    /// The running fiber was suspended. Detail: the wait. With [`RESUMES`], another fiber was
    /// resumed.
    Suspended,
    /// The fiber became ready. Detail: a [`Cause`].
    Ready,
    /// The fiber has ended.
    Ended,
    /// The ready fiber leaves for another worker. Value: the flow to its arrival.
    Departed,
    /// The ready fiber has arrived. Value: the flow from its departure.
    Arrived,
    /// A fiber was spawned, and starts later. Value: the flow to its start.
    Spawned,
    /// An op was queued. Detail: its name. Low half of the value: its number. With [`SUSPENDS`],
    /// the running fiber was suspended to wait for its ops, and with [`RESUMES`] another one was
    /// resumed. So most ops need two events, of which the completion is the second.
    Pushed,
    /// The completion of an op was processed. As for `Pushed`; high half of the value: the result.
    Completed,
    /// The worker enters the kernel. Extra: the number of entries. Detail: whether it may sleep.
    Enter,
    /// The worker has returned from the kernel.
    Entered,
    /// A message was sent to a fiber of another worker. Extra: the worker. Value: the fiber's
    /// generation.
    MessageSent,
    /// A message to this fiber was received. Value: the fiber's generation.
    MessageRead,
    /// An unstarted fiber was stolen from another worker.
    Stolen,
    /// A sleeping worker was woken. Extra: the worker.
    Woke,
    /// The fiber was cancelled. Detail: the reason.
    Cancelled,
    /// The running fiber opened a scope.
    ScopeOpened,
    /// The running fiber closed a scope.
    ScopeClosed,
    /// A timer was set. Value: the nanoseconds until it expires.
    TimerSet,
    /// A timer expired.
    TimerFired,
    /// The program opened a span. Its name is a `&'static str`: value, the address; extra, the
    /// length.
    SpanOpened,
    /// The program closed a span.
    SpanClosed,
    /// An inline call was tried. Detail: whether it succeeded without waiting.
    Inline,
}

impl Kind {
    /// The last variant. A new one goes before it, or is named here.
    const LAST: u8 = Kind::Inline as u8;

    fn from_code(code: u8) -> Kind {
        assert!(code <= Kind::LAST, "{code} is not a kind of event");
        // SAFETY: the contract of `transmute`: the enum is a byte, and has a variant for every
        // number up to `LAST`.
        unsafe { std::mem::transmute::<u8, Kind>(code) }
    }
}

/// Bits of an event's `extra`: what else happened at the same time. The event's index is the
/// resumed fiber's, and the high half of the value its generation.
pub const SUSPENDS: u16 = 1;
pub const RESUMES: u16 = 2;

/// The number of bytes of a name that are recorded at most, and the slots that they need after the
/// event.
pub const LONGEST_NAME: usize = 96;
pub const SLOT: usize = size_of::<Event>();
pub const TEXT_SLOTS: usize = LONGEST_NAME.div_ceil(SLOT);

/// The cause by which a fiber became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    Timer,
    /// A wake-up by another fiber or by a message.
    Wake,
    Cancel,
    /// Room in the driver for its op.
    Room,
}

/// A trace event. See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Event {
    /// The time by the clock of the worker that recorded the event.
    pub stamp: u64,
    /// The kind, detail, extra and index, from the lowest byte.
    header: u64,
    pub value: u64,
}

impl Event {
    #[inline(always)]
    pub fn new(stamp: u64, kind: Kind, index: u32, value: u64) -> Event {
        Event { stamp, header: kind as u64 | u64::from(index) << 32, value }
    }

    #[inline(always)]
    pub fn detail(mut self, detail: u8) -> Event {
        self.header |= u64::from(detail) << 8;
        self
    }

    #[inline(always)]
    pub fn extra(mut self, extra: u16) -> Event {
        self.header |= u64::from(extra) << 16;
        self
    }

    /// Adds the resumption of a fiber at the same time.
    pub fn resumes(self, index: u32, generation: u32) -> Event {
        let mut event = self.extra(RESUMES);
        event.header |= u64::from(index) << 32;
        event.value |= u64::from(generation) << 32;
        event
    }

    pub fn is_resumption(&self) -> bool {
        match self.kind() {
            Kind::Resumed => true,
            Kind::Pushed | Kind::Suspended => self.get_extra() & RESUMES != 0,
            _ => false,
        }
    }

    pub fn is_suspension(&self) -> bool {
        match self.kind() {
            Kind::Suspended => true,
            Kind::Pushed => self.get_extra() & SUSPENDS != 0,
            _ => false,
        }
    }

    /// Returns the generation of the resumed fiber.
    pub fn generation(&self) -> u32 {
        (self.value >> 32) as u32
    }

    /// Returns the number of occurrences that the event records.
    pub fn count(&self) -> u64 {
        match self.kind() {
            Kind::Lost => 0,
            Kind::Pushed | Kind::Suspended => 1 + u64::from(self.get_extra().count_ones()),
            _ => 1,
        }
    }

    pub fn kind(&self) -> Kind {
        Kind::from_code(self.header as u8)
    }

    pub fn index(&self) -> u32 {
        (self.header >> 32) as u32
    }

    pub fn get_detail(&self) -> u8 {
        (self.header >> 8) as u8
    }

    pub fn get_extra(&self) -> u16 {
        (self.header >> 16) as u16
    }

    /// Returns the number of slots after this one that hold its text.
    #[inline]
    pub fn text_slots(&self) -> usize {
        match self.kind() {
            Kind::Named => (self.value as usize).min(LONGEST_NAME).div_ceil(SLOT),
            _ => 0,
        }
    }

    /// Returns a slot that holds bytes of a text.
    pub fn from_bytes(bytes: &[u8]) -> Event {
        let word = |n: usize| {
            let mut word = [0; 8];
            let part = bytes.get(n * 8..).unwrap_or(&[]);
            let part = &part[..part.len().min(8)];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        };
        Event { stamp: word(0), header: word(1), value: word(2) }
    }

    pub fn as_bytes(&self) -> [u8; size_of::<Event>()] {
        let mut bytes = [0; size_of::<Event>()];
        bytes[..8].copy_from_slice(&self.stamp.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.header.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.value.to_ne_bytes());
        bytes
    }
}
