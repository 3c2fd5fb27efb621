//! C ABI over Hugging Face `tokenizers` and `minijinja`; `tandem_tokenizers.h` is its contract.
//!
//! `abi_*.rs` hold the exported functions and all `unsafe`; the rest is plain Rust.

mod abi;
mod abi_template;
mod abi_tokenizer;
mod environment;
mod methods;
mod python;
mod tokenizer;
mod values;
