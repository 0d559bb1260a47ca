//! One thing that happened, as a worker writes it down: three words, no pointer that could dangle.

/// What happened. The `value` of each is told with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing that was known of earlier events holds any more: so many were lost (the value).
    Lost,
    /// A fiber was given a stack. Detail: 1 if it was made as it started, by the fiber that runs. The
    /// value is the flow of its making, 0 if none.
    Started,
    /// It is called by the text that follows, of so many bytes (the value).
    Named,
    /// It is called by the place that it was made at: a `&'static Location` (the value).
    Placed,
    /// It goes on. The high half of the value is its generation.
    Resumed,
    /// The one that runs waits: the detail says for what. With [`RESUMES`], another goes on in its place.
    Suspended,
    /// It can go on: the detail is a [`Cause`].
    Ready,
    Ended,
    /// A fiber was made that starts later: the value is the flow to it.
    Spawned,
    /// An op was queued: its name (detail), its number (low half of the value). With [`SUSPENDS`], the fiber
    /// that runs waits for its ops then, and with [`RESUMES`] another goes on: most ops take this event
    /// and their completion, and no third.
    Pushed,
    /// Its completion was taken: the same, and its result (high half).
    Completed,
    /// The kernel is entered with so many entries (extra). Detail: whether it may sleep.
    Enter,
    /// The kernel has returned.
    Entered,
    /// A message for a fiber of another worker: its index, its worker (extra), its generation (value).
    MessageSent,
    /// A message for this fiber was read: its generation (value).
    MessageRead,
    /// An unstarted fiber was taken from another worker.
    Stolen,
    /// Another worker was woken from its sleep (extra).
    Woke,
    /// The fiber is cancelled: why (detail).
    Cancelled,
    ScopeOpened,
    ScopeClosed,
    /// A timer was set: in so many nanoseconds (value).
    TimerSet,
    TimerFired,
    /// A span of the program's begins: a `&'static str`, by its address (value) and length (extra).
    SpanOpened,
    SpanClosed,
    /// A call was tried without the queue. Detail: whether it had its answer at once.
    Inline,
}

impl Kind {
    const LAST: u8 = Kind::Inline as u8;

    fn from_code(code: u8) -> Kind {
        assert!(code <= Kind::LAST, "a worker writes kinds of events only");
        // SAFETY: the enum has every number up to its last, in a byte.
        unsafe { std::mem::transmute::<u8, Kind>(code) }
    }
}

/// What else happened at the time of an event, by its `extra`. Who goes on is told by the index, and by the
/// high half of the value its generation.
pub(super) const SUSPENDS: u16 = 1;
pub(super) const RESUMES: u16 = 2;

/// Text of a name that is kept, in bytes, and the slots that it takes after its event.
pub(super) const LONGEST_NAME: usize = 96;
pub(super) const SLOT: usize = size_of::<Event>();
pub(super) const TEXT_SLOTS: usize = LONGEST_NAME.div_ceil(SLOT);

/// By what a fiber became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cause {
    Timer,
    /// Another fiber, or a message.
    Wake,
    Cancel,
    Room,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct Event {
    /// By the clock of the worker that wrote it.
    pub(super) stamp: u64,
    what: u64,
    pub(super) value: u64,
}

impl Event {
    #[inline(always)]
    pub(crate) fn new(stamp: u64, kind: Kind, index: u32, value: u64) -> Event {
        Event { stamp, what: kind as u64 | u64::from(index) << 32, value }
    }

    #[inline(always)]
    pub(crate) fn detail(mut self, detail: u8) -> Event {
        self.what |= u64::from(detail) << 8;
        self
    }

    #[inline(always)]
    pub(crate) fn extra(mut self, extra: u16) -> Event {
        self.what |= u64::from(extra) << 16;
        self
    }

    /// A fiber goes on at the same time.
    pub(super) fn resumes(self, index: u32, generation: u32) -> Event {
        let mut event = self.extra(RESUMES);
        event.what |= u64::from(index) << 32;
        event.value |= u64::from(generation) << 32;
        event
    }

    pub(super) fn is_resumption(&self) -> bool {
        match self.kind() {
            Kind::Resumed => true,
            Kind::Pushed | Kind::Suspended => self.get_extra() & RESUMES != 0,
            _ => false,
        }
    }

    pub(super) fn is_suspension(&self) -> bool {
        match self.kind() {
            Kind::Suspended => true,
            Kind::Pushed => self.get_extra() & SUSPENDS != 0,
            _ => false,
        }
    }

    /// Of a fiber that goes on.
    pub(super) fn generation(&self) -> u32 {
        (self.value >> 32) as u32
    }

    /// How many things it says that happened.
    pub(super) fn count(&self) -> u64 {
        match self.kind() {
            Kind::Lost => 0,
            Kind::Pushed | Kind::Suspended => 1 + u64::from(self.get_extra().count_ones()),
            _ => 1,
        }
    }

    pub(super) fn kind(&self) -> Kind {
        Kind::from_code(self.what as u8)
    }

    pub(super) fn index(&self) -> u32 {
        (self.what >> 32) as u32
    }

    pub(super) fn get_detail(&self) -> u8 {
        (self.what >> 8) as u8
    }

    pub(super) fn get_extra(&self) -> u16 {
        (self.what >> 16) as u16
    }

    /// Slots after this one that hold its text.
    #[inline]
    pub(super) fn text_slots(&self) -> usize {
        match self.kind() {
            Kind::Named => (self.value as usize).min(LONGEST_NAME).div_ceil(SLOT),
            _ => 0,
        }
    }

    /// Bytes of a text that does not fit into an event, in its place.
    pub(super) fn from_bytes(bytes: &[u8]) -> Event {
        let word = |n: usize| {
            let mut word = [0; 8];
            let part = bytes.get(n * 8..).unwrap_or(&[]);
            let part = &part[..part.len().min(8)];
            word[..part.len()].copy_from_slice(part);
            u64::from_ne_bytes(word)
        };
        Event { stamp: word(0), what: word(1), value: word(2) }
    }

    pub(super) fn as_bytes(&self) -> [u8; size_of::<Event>()] {
        let mut bytes = [0; size_of::<Event>()];
        bytes[..8].copy_from_slice(&self.stamp.to_ne_bytes());
        bytes[8..16].copy_from_slice(&self.what.to_ne_bytes());
        bytes[16..].copy_from_slice(&self.value.to_ne_bytes());
        bytes
    }
}
