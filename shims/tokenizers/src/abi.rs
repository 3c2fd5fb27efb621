//! What every exported function needs: buffers, the error of the thread, and the wall that stops panics.

use std::cell::RefCell;
use std::ffi::{c_char, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;
use std::sync::Once;

thread_local! { static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default()); }

#[repr(C)]
pub struct TtText {
    data: *mut u8,
    size: usize,
}

#[repr(C)]
pub struct TtIds {
    data: *mut u32,
    size: usize,
}

/// Runs `body`; an `Err` or a panic becomes `failed` and the thread's last error.
pub fn guard<T>(failed: T, body: impl FnOnce() -> Result<T, String>) -> T {
    // A panic is reported as an error; it need not be printed as well.
    static QUIET: Once = Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let message = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(value)) => return value,
        Ok(Err(message)) => message,
        Err(panic) => {
            let text =
                panic.downcast_ref::<&str>().map(|s| s.to_string()).or_else(|| panic.downcast_ref::<String>().cloned());
            format!("internal error: {}", text.unwrap_or_else(|| "panic".into()))
        }
    };
    let one_line = message.replace(['\0', '\n', '\r'], " ");
    LAST_ERROR.with(|last| *last.borrow_mut() = CString::new(one_line).unwrap_or_default());
    failed
}

/// # Safety
/// `data` must point to `count` readable values, or `count` must be 0.
pub unsafe fn slice<'a, T>(data: *const T, count: usize) -> &'a [T] {
    if count == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(data, count)
    }
}

/// # Safety
/// As `slice`.
pub unsafe fn text<'a>(data: *const u8, size: usize) -> Result<&'a str, String> {
    std::str::from_utf8(slice(data, size)).map_err(|e| format!("the text is not UTF-8: {e}"))
}

/// # Safety
/// `out` must be writable.
pub unsafe fn give_text(value: String, out: *mut TtText) {
    let bytes = Box::leak(value.into_bytes().into_boxed_slice());
    *out = TtText { data: bytes.as_mut_ptr(), size: bytes.len() };
}

/// # Safety
/// `out` must be writable.
pub unsafe fn give_ids(value: Vec<u32>, out: *mut TtIds) {
    let ids = Box::leak(value.into_boxed_slice());
    *out = TtIds { data: ids.as_mut_ptr(), size: ids.len() };
}

#[no_mangle]
pub extern "C" fn tt_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}

/// # Safety
/// `text` must come from this library and be freed once.
#[no_mangle]
pub unsafe extern "C" fn tt_free_text(text: TtText) {
    if !text.data.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(text.data, text.size)));
    }
}

/// # Safety
/// `ids` must come from this library and be freed once.
#[no_mangle]
pub unsafe extern "C" fn tt_free_ids(ids: TtIds) {
    if !ids.data.is_null() {
        drop(Box::from_raw(ptr::slice_from_raw_parts_mut(ids.data, ids.size)));
    }
}
