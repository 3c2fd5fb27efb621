//! The exported template functions. Safety: pointers are as the header says.
#![allow(clippy::missing_safety_doc)]

use std::ptr;

use crate::abi::{give_text, guard, slice, text, TtText};
use crate::environment::ChatTemplate;

#[no_mangle]
pub unsafe extern "C" fn tt_template_new(source: *const u8, size: usize) -> *mut ChatTemplate {
    guard(ptr::null_mut(), || Ok(Box::into_raw(Box::new(ChatTemplate::new(text(source, size)?)?))))
}

#[no_mangle]
pub unsafe extern "C" fn tt_template_free(template: *mut ChatTemplate) {
    if !template.is_null() {
        drop(Box::from_raw(template));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tt_template_render(
    template: *const ChatTemplate,
    variables: *const u8,
    size: usize,
    out: *mut TtText,
) -> i32 {
    guard(-1, || {
        give_text((*template).render(slice(variables, size))?, out);
        Ok(0)
    })
}
