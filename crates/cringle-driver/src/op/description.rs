//! An op as dumps and traces report it.

use super::name::{OpName, PlaceKind};
use super::{AT_CURSOR, Op};
use std::ffi::{CStr, CString, c_char};
use std::net::SocketAddr;

/// The name, the file and the place of an op.
#[derive(Clone, Copy, Debug)]
pub struct OpDescription {
    pub name: OpName,
    /// A descriptor; −1 for none; −2 and below for a [registered file](OpDescription::fixed).
    pub file: i32,
    /// The offset or the address that [`OpName`] says; `None` once a cancel has overwritten it.
    pub place: Option<u64>,
}

impl OpDescription {
    /// The index of the file, if it is a registered one.
    pub fn fixed(&self) -> Option<u32> {
        (self.file < -1).then(|| (-2 - self.file) as u32)
    }

    /// The offset in the file, if the op has one.
    pub fn offset(&self) -> Option<u64> {
        self.place_of(PlaceKind::Offset).filter(|&offset| offset != AT_CURSOR)
    }

    /// The path that the op names. `None` for an op on a descriptor.
    ///
    /// # Safety
    ///
    /// I1: the op is in flight.
    pub unsafe fn path(&self) -> Option<CString> {
        let address = self.place_of(PlaceKind::Path).filter(|&address| address != 0)?;
        // SAFETY: I1. What an op points to stays valid until its last cqe, and by the contract that
        // has not been reaped. An op whose place is a path points to a C string there.
        let path = unsafe { CStr::from_ptr(address as *const c_char) };
        // An empty path (`AT_EMPTY_PATH`) means the descriptor itself.
        (!path.is_empty()).then(|| path.to_owned())
    }

    /// The address that a `connect` connects to, if it is an IP address.
    ///
    /// # Safety
    ///
    /// I1: the op is in flight.
    pub unsafe fn peer(&self) -> Option<SocketAddr> {
        let address = self.place_of(PlaceKind::Peer).filter(|&address| address != 0)?;
        // SAFETY: I1. What an op points to stays valid until its last cqe, and by the contract that
        // has not been reaped. `Op::Connect` points to a whole `sockaddr_storage`.
        let storage = unsafe { std::ptr::read(address as *const socket2::SockAddrStorage) };
        let len = size_of::<socket2::SockAddrStorage>() as socket2::socklen_t;
        // SAFETY: the contract of `SockAddr::new` is that `len` bytes of the storage are
        // initialised; these are all of them, whatever the family.
        unsafe { socket2::SockAddr::new(storage, len) }.as_socket()
    }

    /// The address of the futex that the op waits for.
    pub fn address(&self) -> Option<usize> {
        self.place_of(PlaceKind::Address).map(|address| address as usize)
    }

    fn place_of(&self, kind: PlaceKind) -> Option<u64> {
        self.place.filter(|_| self.name.place_kind() == kind)
    }
}

impl Op {
    pub fn describe(&self) -> OpDescription {
        let (file, place) = self.file_and_place();
        OpDescription { name: self.name(), file, place: Some(place) }
    }
}
