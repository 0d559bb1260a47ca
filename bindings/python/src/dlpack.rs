//! The memory of tensors, by the DLPack protocol: those of PyTorch have no buffer protocol.

use crate::memory::Access;
use pyo3::exceptions::{PyException, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::IntoPyDict;
use std::ffi::{CStr, c_void};

/// Memory that stays until the capsule is dropped. It is never renamed, so its destructor releases
/// the tensor.
pub(crate) struct Tensor {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
    pub(crate) capsule: Py<PyAny>,
}

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";
/// `kDLCPU`, and `kDLCUDAHost`: memory of the host that a graphics card reads, too.
const HOST_DEVICES: [i32; 2] = [1, 3];
const READ_ONLY: u64 = 1;
const IS_COPY: u64 = 2;

/// `DLTensor` of dlpack.h.
#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    type_code: u8,
    type_bits: u8,
    type_lanes: u16,
    shape: *const i64,
    strides: *const i64,
    byte_offset: u64,
}

/// `DLManagedTensorVersioned` of dlpack.h. (`DLManagedTensor` begins with its tensor.)
#[repr(C)]
struct DlVersioned {
    major: u32,
    minor: u32,
    manager: *mut c_void,
    deleter: *mut c_void,
    flags: u64,
    tensor: DlTensor,
}

/// Exports the memory of an object with `__dlpack__`; `None` if it has none.
pub(crate) fn export(
    object: &Bound<'_, PyAny>,
    access: Access,
    what: &str,
) -> PyResult<Option<Tensor>> {
    let py = object.py();
    if !object.hasattr("__dlpack__")? {
        return Ok(None);
    }
    let newest = [("max_version", (1, 0))].into_py_dict(py)?;
    let capsule = match object.call_method("__dlpack__", (), Some(&newest)) {
        // A library from before version 1 of the protocol.
        Err(e) if e.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__")?,
        exported => exported?,
    };
    let (tensor, flags) = tensor_of(&capsule, what)?;
    let refuse = |why: &str| Err(PyValueError::new_err(format!("{what}: the tensor {why}")));
    if !HOST_DEVICES.contains(&tensor.device_type) {
        return refuse("is on a device: read into memory of the host, and copy it from there");
    }
    if flags & IS_COPY != 0 {
        return refuse("exports a copy of its memory");
    }
    if access == Access::Write && flags & READ_ONLY != 0 {
        return refuse("is read-only");
    }
    let Some(len) = contiguous_bytes(tensor) else { return refuse("is not contiguous") };
    let start = tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize);
    keep_storage(object, what)?;
    Ok(Some(Tensor { start, len, capsule: capsule.unbind() }))
}

/// Has PyTorch keep the memory of a tensor where it is (**P1**). A capsule keeps the storage, but
/// `resize_` replaces the memory of a storage, and frees the one before. It refuses a storage that
/// NumPy has got, from then on.
fn keep_storage(object: &Bound<'_, PyAny>, what: &str) -> PyResult<()> {
    let py = object.py();
    let modules = py.import("sys")?.getattr("modules")?;
    let torch = modules.call_method1("get", ("torch",))?;
    if torch.is_none() || !object.is_instance(&torch.getattr("Tensor")?)? {
        return Ok(());
    }
    // NumPy has not each type of PyTorch, but bytes.
    let kept = object
        .call_method0("detach")
        .and_then(|tensor| tensor.call_method1("reshape", (-1,)))
        .and_then(|tensor| tensor.call_method1("view", (torch.getattr("uint8")?,)))
        .and_then(|bytes| bytes.call_method0("numpy"));
    kept.map(drop).map_err(|cause| {
        if !cause.is_instance_of::<PyException>(py) {
            return cause;
        }
        let why = cause.value(py);
        PyValueError::new_err(format!(
            "{what}: PyTorch cannot keep the tensor's memory in its place, for which it needs \
             NumPy: {why}"
        ))
    })
}

fn tensor_of<'c>(capsule: &'c Bound<'_, PyAny>, what: &str) -> PyResult<(&'c DlTensor, u64)> {
    let pointer = |name: &CStr| {
        // SAFETY: the contract of both calls: a valid object and a name.
        unsafe {
            (ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 1)
                .then(|| ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()))
        }
    };
    if let Some(versioned) = pointer(VERSIONED) {
        // SAFETY: DLPack's contract: a capsule of this name points to this type while it lives.
        let versioned = unsafe { &*versioned.cast::<DlVersioned>() };
        if versioned.major == 1 {
            return Ok((&versioned.tensor, versioned.flags));
        }
    } else if let Some(plain) = pointer(PLAIN) {
        // SAFETY: as above; the managed tensor begins with its tensor.
        return Ok((unsafe { &*plain.cast::<DlTensor>() }, 0));
    }
    Err(PyTypeError::new_err(format!("{what}: __dlpack__ returned no capsule of a tensor")))
}

fn contiguous_bytes(tensor: &DlTensor) -> Option<usize> {
    let ndim = usize::try_from(tensor.ndim).ok()?;
    if !tensor.type_bits.is_multiple_of(8) {
        return None;
    }
    let item = usize::from(tensor.type_bits / 8) * usize::from(tensor.type_lanes);
    let (mut items, mut is_contiguous) = (1_usize, true);
    for at in (0..ndim).rev() {
        // SAFETY: DLPack's contract: both have `ndim` elements, if they are not null.
        let (extent, stride) = unsafe {
            let stride = (!tensor.strides.is_null()).then(|| *tensor.strides.add(at));
            (usize::try_from(*tensor.shape.add(at)).ok()?, stride)
        };
        is_contiguous &= extent == 1 || stride.is_none_or(|stride| stride == items as i64);
        items = items.checked_mul(extent)?;
    }
    (is_contiguous || items == 0).then(|| items.checked_mul(item)).flatten()
}
