//! The object that a suspended fiber waits for, as a dump describes it.
//!
//! Code that suspends a fiber lends the worker a [`Target`] from its own frame. A dump asks it for
//! a [`TargetInfo`] on the fiber's own worker, while the fiber is suspended (**I2**, **I3**). A
//! debugger reads the object from memory, and finds its parts by the target's [`Form`].

use super::label::{Origin, Origins};
use cringle_driver::OpDescription;
use std::ffi::CString;
use std::marker::PhantomData;
use std::mem::offset_of;

/// An object that a fiber may wait for. Called on the fiber's own worker.
pub trait WaitTarget {
    /// How a debugger reads the object.
    const KIND: TargetKind;
    /// The offsets of the parts that [`KIND`](Self::KIND) names, in their order.
    const PARTS: &[usize];

    fn info(&self) -> TargetInfo;
}

/// The kinds of objects, as the debugger's script numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum TargetKind {
    /// Known only by its address.
    Address = 0,
    /// A gate: its word of permits, its holder's tag.
    Gate = 1,
    /// A fiber's [`Meta`](super::identity::Meta).
    FiberEnd = 2,
    /// A scope: its number of fibers.
    Members = 3,
    /// A call of the pool: its op's name, file and place.
    Call = 4,
}

/// The most parts of an object.
const PARTS: usize = 3;

/// How an object is described, and how a debugger reads it: a table in the program.
#[repr(C)]
pub(crate) struct Form {
    kind: TargetKind,
    parts: [u32; PARTS],
    info: unsafe fn(*const ()) -> TargetInfo,
}

impl Form {
    const ADDRESS: Form = Form { kind: TargetKind::Address, parts: [0; PARTS], info: info_address };

    const fn of<T: WaitTarget>() -> Form {
        let mut parts = [0; PARTS];
        let mut at = 0;
        while at < T::PARTS.len() {
            parts[at] = T::PARTS[at] as u32;
            at += 1;
        }
        Form { kind: T::KIND, parts, info: info_of::<T> }
    }
}

/// # Safety
///
/// `object` is the address of a `T`.
unsafe fn info_of<T: WaitTarget>(object: *const ()) -> TargetInfo {
    // SAFETY: by the contract.
    unsafe { &*object.cast::<T>() }.info()
}

/// # Safety
///
/// None: it dereferences nothing. The type is as of [`info_of`].
unsafe fn info_address(object: *const ()) -> TargetInfo {
    TargetInfo::Address(object.addr())
}

/// A reference to the object that a fiber waits for. The order of its parts is fixed, because a
/// debugger reads them.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Target<'a> {
    object: *const (),
    form: &'static Form,
    frame: PhantomData<&'a ()>,
}

impl<'a> Target<'a> {
    /// The offsets of its parts, for debuggers.
    pub(super) const OBJECT: usize = offset_of!(Target<'static>, object);
    pub(super) const FORM: usize = offset_of!(Target<'static>, form);

    #[inline]
    pub fn of<T: WaitTarget>(object: &'a T) -> Target<'a> {
        let form = const { &Form::of::<T>() };
        Target { object: std::ptr::from_ref(object).cast(), form, frame: PhantomData }
    }

    /// A target that is described by its address alone.
    #[inline]
    pub fn address_of<T>(object: &'a T) -> Target<'a> {
        Target::address(std::ptr::from_ref(object).cast())
    }

    /// The same for an object that is no reference.
    #[inline]
    pub fn address(object: *const ()) -> Target<'a> {
        Target { object, form: const { &Form::ADDRESS }, frame: PhantomData }
    }

    pub(super) fn info(self) -> TargetInfo {
        // SAFETY: I2. The object is borrowed for the lifetime of this value, and has the type that
        // the form was made for.
        unsafe { (self.form.info)(self.object) }
    }
}

/// The description of a [`WaitTarget`].
#[derive(Clone, Debug)]
pub enum TargetInfo {
    /// A lock or a semaphore: its address, its holder, and the number of free permits.
    Gate { address: usize, holder: FiberTag, free: usize },
    /// The end of a fiber.
    FiberEnd(Origins),
    /// The remaining fibers of a scope.
    Members(usize),
    /// A plain system call on a thread of the pool.
    Call { about: OpDescription, path: Option<CString> },
    /// An object known only by its address.
    Address(usize),
}

/// A number for the holder of a lock: a fiber, a thread outside of any fiber, or none.
///
/// A fiber is numbered by the address of its block and the low half of its generation. Two fibers
/// get the same number only if they use the same block exactly 65,536 tenants apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FiberTag(u64);

impl FiberTag {
    pub const NONE: FiberTag = FiberTag(0);
    /// A thread outside of any fiber.
    pub const THREAD: FiberTag = FiberTag(1);

    /// Addresses of user space have at most 48 bits.
    #[inline]
    pub(super) fn of_block(address: usize, generation: u32) -> FiberTag {
        debug_assert!(address >> 48 == 0, "an address of user space has at most 48 bits");
        FiberTag(((address as u64) << 16) | u64::from(generation as u16))
    }

    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    pub fn of_number(number: u64) -> FiberTag {
        FiberTag(number)
    }
}

/// The scope that a fiber belongs to.
#[derive(Clone, Copy, Debug)]
pub struct ScopeOrigin {
    pub opened: Origin,
    /// The worker and id of the fiber that opened it, if a fiber did.
    pub owner: Option<super::fiber::FiberId>,
}

/// The permits of a reader-writer lock. A writer takes all of them.
pub const MOST_PERMITS: usize = usize::MAX >> 3;
