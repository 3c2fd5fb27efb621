//! A tokenizer, and beside it the same tokenizer with unforgeable control tokens.

use std::collections::hash_map::RandomState;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher};
use std::ops::Range;
use std::sync::OnceLock;

use tokenizers::{AddedToken, Tokenizer};

pub struct Added {
    pub id: u32,
    pub text: String,
    pub special: bool,
    pub control: bool,
}

pub struct SafeTokenizer {
    inner: Tokenizer,
    added: Vec<Added>,
    vocab_size: usize,
    aliased: OnceLock<Result<Aliased, String>>,
}

/// The tokenizer in which every control token is spelt by an alias nobody can guess, so that its usual spelling is
/// text. Everything else (normaliser, pre-tokeniser, model, stripping of blanks around added tokens) is the same.
struct Aliased {
    tokenizer: Tokenizer,
    secret: String,
    alias_of: HashMap<String, String>,
    real_id: HashMap<u32, u32>,
    control_ids: HashSet<u32>,
}

fn looks_like_turn_marker(text: &str) -> bool {
    let framed = |open: &str, close: &str| text.starts_with(open) && text.ends_with(close);
    framed("<|", "|>") || framed("<｜", "｜>") || matches!(text, "<start_of_turn>" | "<end_of_turn>")
}

fn to_message(error: tokenizers::Error) -> String {
    error.to_string()
}

impl SafeTokenizer {
    pub fn from_json(json: &[u8]) -> Result<Self, String> {
        let mut inner = Tokenizer::from_bytes(json).map_err(to_message)?;
        inner.with_truncation(None).map_err(to_message)?;
        inner.with_padding(None);
        let mut added: Vec<Added> = inner
            .get_added_vocabulary()
            .get_added_tokens_decoder()
            .iter()
            .map(|(&id, token)| Added {
                id,
                text: token.content.clone(),
                special: token.special,
                control: token.special || looks_like_turn_marker(&token.content),
            })
            .collect();
        added.sort_by_key(|token| token.id);
        let greatest = inner.get_vocab(true).into_values().max();
        let vocab_size = greatest.map_or(0, |id| id as usize + 1);
        Ok(Self { inner, added, vocab_size, aliased: OnceLock::new() })
    }

    pub fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    pub fn added(&self) -> &[Added] {
        &self.added
    }

    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.inner.token_to_id(token)
    }

    pub fn encode(&self, text: &str) -> Result<Vec<u32>, String> {
        ids_of(&self.inner, text)
    }

    pub fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String, String> {
        self.inner.decode(ids, skip_special).map_err(to_message)
    }

    pub fn encode_with_controls(&self, text: &str, spans: &[Range<usize>]) -> Result<Vec<u32>, String> {
        // Made at the first need: most runs never see a control token's spelling in their data.
        let aliased = self.aliased.get_or_init(|| Aliased::new(self)).as_ref().map_err(String::clone)?;
        let ids = ids_of(&aliased.tokenizer, &aliased.respell(text, spans)?)?;
        ids.into_iter().map(|id| self.real_id(aliased, id, text)).collect()
    }

    fn real_id(&self, aliased: &Aliased, id: u32, text: &str) -> Result<u32, String> {
        if let Some(&real) = aliased.real_id.get(&id) {
            return Ok(real);
        }
        // A word-level vocabulary may hold the spelling itself. (An unknown-token id is no such case.)
        let forged = aliased.control_ids.contains(&id)
            && self.inner.id_to_token(id).is_some_and(|spelling| text.contains(&spelling));
        if forged {
            return Err(format!(
                "this vocabulary has no way to encode the control token {} as plain text; remove it from the text",
                self.inner.id_to_token(id).unwrap_or_default()
            ));
        }
        Ok(id)
    }
}

impl Aliased {
    fn new(source: &SafeTokenizer) -> Result<Self, String> {
        let mut tokenizer = Tokenizer::new(source.inner.get_model().clone());
        tokenizer.with_normalizer(source.inner.get_normalizer().cloned()).map_err(to_message)?;
        tokenizer.with_pre_tokenizer(source.inner.get_pre_tokenizer().cloned());

        let secret = random_secret();
        let marked = source.inner.get_added_vocabulary().get_added_tokens_decoder();
        let mut alias_of = HashMap::new();
        let mut tokens = Vec::new();
        let mut spellings = Vec::new();
        for (index, token) in source.added.iter().enumerate() {
            let mut copy: AddedToken = marked[&token.id].clone();
            if token.control {
                let alias = format!("{secret}{}", private_char(0x1000 + index as u32));
                alias_of.insert(token.text.clone(), alias.clone());
                copy.content = alias;
                copy.normalized = false;
                copy.single_word = false;
            }
            spellings.push((copy.content.clone(), token.id));
            tokens.push(copy);
        }
        tokenizer.add_tokens(tokens).map_err(to_message)?;

        let mut real_id = HashMap::new();
        for (spelling, real) in spellings {
            let id = tokenizer.token_to_id(&spelling).ok_or("an added token was lost")?;
            real_id.insert(id, real);
        }
        let control_ids = source.added.iter().filter(|token| token.control).map(|token| token.id).collect();
        Ok(Self { tokenizer, secret, alias_of, real_id, control_ids })
    }

    fn respell(&self, text: &str, spans: &[Range<usize>]) -> Result<String, String> {
        if text.contains(&self.secret) {
            return Err("the text holds this process's secret spelling of control tokens".into());
        }
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for span in spans {
            let plain = text.get(done..span.start).ok_or("control spans must ascend, apart, between characters")?;
            let spelling = text.get(span.clone()).ok_or("a control span lies outside the text")?;
            let alias = self.alias_of.get(spelling).ok_or_else(|| format!("'{spelling}' is no control token"))?;
            out.push_str(plain);
            out.push_str(alias);
            done = span.end;
        }
        out.push_str(&text[done..]);
        Ok(out)
    }
}

fn ids_of(tokenizer: &Tokenizer, text: &str) -> Result<Vec<u32>, String> {
    // encode_fast leaves out the offsets; the ids are the same.
    let encoding = tokenizer.encode_fast(text, false).map_err(to_message)?;
    Ok(encoding.get_ids().to_vec())
}

/// A character of a private plane: no normaliser changes it and no word contains it.
fn private_char(offset: u32) -> char {
    char::from_u32(0xF0000 + offset).expect("plane 15 is full of characters")
}

fn random_secret() -> String {
    let number = RandomState::new().build_hasher().finish();
    (0..16).map(|digit| private_char((number >> (4 * digit)) as u32 & 0xF)).collect()
}
