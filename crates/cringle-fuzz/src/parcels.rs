//! Where the values of a channel are: each in one place.

use std::sync::{Arc, Mutex, MutexGuard};

/// Where each value is.
#[derive(Default)]
pub(super) struct Ledger {
    fates: Mutex<Vec<ParcelState>>,
    wrong: Mutex<Option<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParcelState {
    Nowhere,
    /// Its sender is about to send it, or waits.
    Sending,
    /// Its sender was told that it is sent.
    Sent,
    Received,
    /// Dropped before its sender was told anything: unwound, or refused.
    Dropped,
}

/// A value that is sent.
pub(super) struct Parcel {
    pub(super) id: usize,
    ledger: Arc<Ledger>,
}

impl Drop for Parcel {
    fn drop(&mut self) {
        self.ledger.change(self.id, |fate| match fate {
            ParcelState::Received => Ok(ParcelState::Received),
            ParcelState::Sending => Ok(ParcelState::Dropped),
            other => Err(format!("it was dropped when it was {other:?}")),
        });
    }
}

impl Ledger {
    pub(super) fn new(values: usize) -> Arc<Ledger> {
        let ledger =
            Ledger { fates: Mutex::new(vec![ParcelState::Nowhere; values]), ..Ledger::default() };
        Arc::new(ledger)
    }

    /// How many values there are.
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

    pub(super) fn parcel(self: &Arc<Self>, id: usize) -> Parcel {
        self.change(id, |fate| match fate {
            ParcelState::Nowhere | ParcelState::Dropped => Ok(ParcelState::Sending),
            other => Err(format!("it was given back, and is {other:?}")),
        });
        Parcel { id, ledger: Arc::clone(self) }
    }

    /// A sender was told so.
    pub(super) fn sent(&self, id: usize) {
        self.change(id, |fate| match fate {
            ParcelState::Sending => Ok(ParcelState::Sent),
            ParcelState::Received => Ok(ParcelState::Received),
            other => Err(format!("it counts as sent, and is {other:?}")),
        });
    }

    pub(super) fn received(&self, parcel: &Parcel) {
        self.change(parcel.id, |fate| match fate {
            ParcelState::Sending | ParcelState::Sent => Ok(ParcelState::Received),
            other => Err(format!("it came when it was {other:?}")),
        });
    }

    pub(super) fn is_received(&self, id: usize) -> bool {
        self.fates()[id] == ParcelState::Received
    }

    pub(super) fn received_count(&self) -> usize {
        self.fates().iter().filter(|&&fate| fate == ParcelState::Received).count()
    }

    /// What is wrong when all ends of the channel are gone.
    pub(super) fn settle(&self) -> Result<(), String> {
        if let Some(text) = self.wrong.lock().expect("no code panics under this lock").take() {
            return Err(text);
        }
        let lost = |fate: &ParcelState| matches!(fate, ParcelState::Sending | ParcelState::Sent);
        match self.fates().iter().position(lost) {
            Some(id) => Err(format!("value {id} is gone")),
            None => Ok(()),
        }
    }
}
