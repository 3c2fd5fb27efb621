//! The exported tokenizer functions. Safety: pointers are as the header says.
#![allow(clippy::missing_safety_doc)]

use std::ptr;

use crate::abi::{give_ids, give_text, guard, slice, text, TtIds, TtText};
use crate::tokenizer::SafeTokenizer;

#[repr(C)]
pub struct TtAddedToken {
    id: u32,
    text: *const u8,
    size: usize,
    special: u8,
    control: u8,
}

#[repr(C)]
pub struct TtSpan {
    begin: usize,
    end: usize,
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_new(json: *const u8, size: usize) -> *mut SafeTokenizer {
    guard(ptr::null_mut(), || Ok(Box::into_raw(Box::new(SafeTokenizer::from_json(slice(json, size))?))))
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_free(tokenizer: *mut SafeTokenizer) {
    if !tokenizer.is_null() {
        drop(Box::from_raw(tokenizer));
    }
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_vocab_size(tokenizer: *const SafeTokenizer) -> usize {
    (*tokenizer).vocab_size()
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_added_count(tokenizer: *const SafeTokenizer) -> usize {
    (*tokenizer).added().len()
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_added(
    tokenizer: *const SafeTokenizer,
    index: usize,
    out: *mut TtAddedToken,
) -> i32 {
    guard(-1, || {
        let token = (*tokenizer).added().get(index).ok_or("no such added token")?;
        *out = TtAddedToken {
            id: token.id,
            text: token.text.as_ptr(),
            size: token.text.len(),
            special: token.special.into(),
            control: token.control.into(),
        };
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_token_to_id(
    tokenizer: *const SafeTokenizer,
    token: *const u8,
    size: usize,
) -> i64 {
    guard(-1, || Ok((*tokenizer).token_to_id(text(token, size)?).map_or(-1, i64::from)))
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_encode(
    tokenizer: *const SafeTokenizer,
    data: *const u8,
    size: usize,
    out: *mut TtIds,
) -> i32 {
    guard(-1, || {
        give_ids((*tokenizer).encode(text(data, size)?)?, out);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_encode_with_controls(
    tokenizer: *const SafeTokenizer,
    data: *const u8,
    size: usize,
    spans: *const TtSpan,
    span_count: usize,
    out: *mut TtIds,
) -> i32 {
    guard(-1, || {
        let spans: Vec<_> = slice(spans, span_count).iter().map(|span| span.begin..span.end).collect();
        give_ids((*tokenizer).encode_with_controls(text(data, size)?, &spans)?, out);
        Ok(0)
    })
}

#[no_mangle]
pub unsafe extern "C" fn tt_tokenizer_decode(
    tokenizer: *const SafeTokenizer,
    ids: *const u32,
    count: usize,
    skip_special: i32,
    out: *mut TtText,
) -> i32 {
    guard(-1, || {
        give_text((*tokenizer).decode(slice(ids, count), skip_special != 0)?, out);
        Ok(0)
    })
}
