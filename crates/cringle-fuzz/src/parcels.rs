//! Tracks the values of a channel, and finds values that are lost, duplicated or dropped twice.

use std::sync::{Arc, Mutex, MutexGuard};

/// The state of each value of a channel.
#[derive(Default)]
pub(super) struct Ledger {
    fates: Mutex<Vec<ParcelState>>,
    wrong: Mutex<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParcelState {
    /// Not sent yet.
    Unsent,
    /// The sender is about to send it, or waits for room.
    Sending,
    /// `send` has returned success.
    Sent,
    Received,
    /// Dropped before `send` returned success: the sender was unwound, or the channel refused it.
    Dropped,
}

/// A value to send, which reports to the ledger when it is dropped.
pub(super) struct Parcel {
    pub(super) id: usize,
    ledger: Arc<Ledger>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.ledger.change(self.id, |fate| match fate {
            ParcelState::Received => Ok(ParcelState::Received),
            ParcelState::Sending => Ok(ParcelState::Dropped),
            other => Err(format!("dropped in state {other:?}")),
        });
    }
}

impl Ledger {
    pub(super) fn new(values: usize) -> Arc<Ledger> {
        let ledger =
            Ledger { fates: Mutex::new(vec![ParcelState::Unsent; values]), ..Ledger::default() };
        Arc::new(ledger)
    }

    /// Returns the number of values.
    pub(super) fn values(&self) -> usize {
        self.fates().len()
    }

    fn fates(&self) -> MutexGuard<'_, Vec<ParcelState>> {
        self.fates.lock().expect("no code panics under this lock")
    }

    fn change(&self, id: usize, to: impl FnOnce(ParcelState) -> Result<ParcelState, String>) {
        let fate = &mut self.fates()[id];
        match to(*fate) {
            Ok(new) => *fate = new,
            Err(text) => {
                let mut wrong = self.wrong.lock().expect("no code panics under this lock");
                wrong.get_or_insert(format!("value {id}: {text}"));
            }
        }
    }

    /// Makes the value `id` for an attempt to send it.
    pub(super) fn parcel(self: &Arc<Self>, id: usize) -> Parcel {
        self.change(id, |fate| match fate {
            ParcelState::Unsent | ParcelState::Dropped => Ok(ParcelState::Sending),
            other => Err(format!("sent again in state {other:?}")),
        });
        Parcel { id, ledger: Arc::clone(self) }
    }

    /// Records that `send` returned success. The value may have been received before that.
    pub(super) fn sent(&self, id: usize) {
        self.change(id, |fate| match fate {
            ParcelState::Sending => Ok(ParcelState::Sent),
            ParcelState::Received => Ok(ParcelState::Received),
            other => Err(format!("`send` succeeded in state {other:?}")),
        });
    }

    pub(super) fn received(&self, parcel: &Parcel) {
        self.change(parcel.id, |fate| match fate {
            ParcelState::Sending | ParcelState::Sent => Ok(ParcelState::Received),
            other => Err(format!("received in state {other:?}")),
        });
    }

    pub(super) fn is_received(&self, id: usize) -> bool {
        self.fates()[id] == ParcelState::Received
    }

    pub(super) fn received_count(&self) -> usize {
        self.fates().iter().filter(|&&fate| fate == ParcelState::Received).count()
    }

    /// Checks that no value is lost, once every end of the channel is dropped.
    pub(super) fn settle(&self) -> Result<(), String> {
        if let Some(text) = self.wrong.lock().expect("no code panics under this lock").take() {
            return Err(text);
        }
        let lost = |fate: &ParcelState| matches!(fate, ParcelState::Sending | ParcelState::Sent);
        match self.fates().iter().position(lost) {
            Some(id) => Err(format!("value {id} was lost")),
            None => Ok(()),
        }
    }
}
