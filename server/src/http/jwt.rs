//! The tokens of this interface: JSON Web Tokens, signed with a key that all nodes of a cluster
//! share (chapter 08 section 2.3).
//!
//! ```text
//!   base64url({"typ":"JWT","alg":"HS256"}) . base64url(claims) . base64url(HMAC(key, the two))
//! ```

use std::time::Duration;

use base64ct::{Base64, Base64UrlUnpadded, Encoding as _};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::{Deserialize, Serialize};
use sha2::{Sha256, Sha384, Sha512};
use zeroize::Zeroizing;

use crate::config::{Config, ConfigError, Expiry, HttpJwt, parse_expiry};

/// What the cluster secret is hashed with to become the key.
const KEY_CONTEXT: &str = "apache-iggy server http-jwt v1 psk->hs256-key";
/// Characters of a key that is made at boot, at least and at most.
const RANDOM_KEY_LENGTH: (usize, usize) = (32, 63);
/// "Never" in seconds from now.
const NEVER_SECONDS: u64 = 1_000_000_000;
/// Longest token that is looked at, in bytes.
const TOKEN_LENGTH_MAX: usize = 8192;

/// The hash below the signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
}

impl Algorithm {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "HS256" => Some(Self::Hs256),
            "HS384" => Some(Self::Hs384),
            "HS512" => Some(Self::Hs512),
            _ => None,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Hs384 => "HS384",
            Self::Hs512 => "HS512",
        }
    }

    fn sign(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        macro_rules! mac {
            ($hash:ty) => {{
                let mut mac =
                    Hmac::<$hash>::new_from_slice(key).expect("HMAC takes keys of any length");
                mac.update(message);
                mac.finalize().into_bytes().to_vec()
            }};
        }
        match self {
            Self::Hs256 => mac!(Sha256),
            Self::Hs384 => mac!(Sha384),
            Self::Hs512 => mac!(Sha512),
        }
    }

    /// Compares in constant time.
    fn verify(self, key: &[u8], message: &[u8], signature: &[u8]) -> bool {
        macro_rules! mac {
            ($hash:ty) => {{
                let mut mac =
                    Hmac::<$hash>::new_from_slice(key).expect("HMAC takes keys of any length");
                mac.update(message);
                mac.verify_slice(signature).is_ok()
            }};
        }
        match self {
            Self::Hs256 => mac!(Sha256),
            Self::Hs384 => mac!(Sha384),
            Self::Hs512 => mac!(Sha512),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    #[serde(default)]
    typ: String,
    alg: String,
}

/// One text, or several.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

#[derive(Serialize, Deserialize)]
struct Claims {
    jti: String,
    iss: String,
    aud: Audience,
    sub: String,
    iat: u64,
    exp: u64,
    #[serde(default)]
    nbf: u64,
}

/// A token that was issued here, or on a node with the same key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verified {
    /// Its id.
    pub(crate) jti: String,
    /// Whose it is.
    pub(crate) user_id: u32,
    /// When it ends, in seconds.
    pub(crate) expires: u64,
}

/// Issues and verifies tokens.
pub(crate) struct Tokens {
    algorithm: Algorithm,
    sign: Zeroizing<Vec<u8>>,
    verify: Zeroizing<Vec<u8>>,
    issuer: String,
    audience: String,
    valid_issuers: Vec<String>,
    valid_audiences: Vec<String>,
    life: Expiry,
    not_before: Duration,
    skew: u64,
    /// Other nodes accept these tokens.
    pub(crate) cluster_wide: bool,
}

impl Tokens {
    /// Chooses the key (the table of section 2.3). Must be called before the configuration forgets
    /// its secrets.
    ///
    /// # Errors
    /// [`ConfigError::Rule`] for a secret that is not the base64 it is said to be, or a system
    /// without randomness.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let jwt = &config.http.jwt;
        let algorithm = Algorithm::from_name(&jwt.algorithm)
            .ok_or_else(|| rule("algorithm", "must be HS256, HS384 or HS512"))?;
        let (encoding, decoding) = (&jwt.encoding_secret.0, &jwt.decoding_secret.0);
        let cluster = &config.cluster;
        let shared = &cluster.auth.shared_secret.0;
        let (sign, verify, cluster_wide) = match (encoding.is_empty(), decoding.is_empty()) {
            (false, false) => (secret(jwt, encoding)?, secret(jwt, decoding)?, true),
            (false, true) => (secret(jwt, encoding)?, secret(jwt, encoding)?, true),
            (true, false) => (secret(jwt, decoding)?, secret(jwt, decoding)?, true),
            (true, true) => {
                let derived = cluster.enabled && cluster.auth.enabled && !shared.is_empty();
                let key = if derived {
                    derived_key(shared)
                } else {
                    random_key()?
                };
                let key = secret(jwt, &key)?;
                (key.clone(), key, derived)
            }
        };
        Ok(Self {
            algorithm,
            sign,
            verify,
            issuer: jwt.issuer.clone(),
            audience: jwt.audience.clone(),
            valid_issuers: jwt.valid_issuers.clone(),
            valid_audiences: jwt.valid_audiences.clone(),
            life: parse_expiry(&jwt.access_token_expiry)
                .map_err(|reason| rule("access_token_expiry", &reason))?,
            not_before: jwt.not_before.0,
            skew: jwt.clock_skew.0.as_secs(),
            cluster_wide,
        })
    }

    /// A token for `user_id` and when it ends, in seconds. `now` is in seconds, too.
    pub(crate) fn issue(&self, user_id: u32, now: u64) -> Option<(String, u64)> {
        let life = match self.life {
            Expiry::After(life) => life.as_secs(),
            // The default of a default: validation refuses it.
            Expiry::Never | Expiry::ServerDefault => NEVER_SECONDS,
        };
        let claims = Claims {
            jti: uuid_v7(now)?,
            iss: self.issuer.clone(),
            aud: Audience::One(self.audience.clone()),
            sub: user_id.to_string(),
            iat: now,
            exp: now.saturating_add(life),
            nbf: now.saturating_add(self.not_before.as_secs()),
        };
        let head = Head {
            typ: "JWT".to_owned(),
            alg: self.algorithm.name().to_owned(),
        };
        let mut text = part(&head)?;
        text.push('.');
        text.push_str(&part(&claims)?);
        let signature = self.algorithm.sign(&self.sign, text.as_bytes());
        text.push('.');
        text.push_str(&Base64UrlUnpadded::encode_string(&signature));
        Some((text, claims.exp))
    }

    /// The token's content, if it is genuine and valid at `now` (seconds).
    pub(crate) fn verify(&self, token: &str, now: u64) -> Option<Verified> {
        if token.len() > TOKEN_LENGTH_MAX {
            return None;
        }
        let (signed, signature) = token.rsplit_once('.')?;
        let (head, claims) = signed.split_once('.')?;
        let head: Head = unpart(head)?;
        // The algorithm is ours to choose, never the token's.
        if head.alg != self.algorithm.name() {
            return None;
        }
        let signature = Base64UrlUnpadded::decode_vec(signature).ok()?;
        if !self
            .algorithm
            .verify(&self.verify, signed.as_bytes(), &signature)
        {
            return None;
        }
        let claims: Claims = unpart(claims)?;
        let audience = |wanted: &String| self.valid_audiences.contains(wanted);
        let audience_is_valid = match &claims.aud {
            Audience::One(one) => audience(one),
            Audience::Many(many) => many.iter().any(audience),
        };
        let valid = self.valid_issuers.contains(&claims.iss)
            && audience_is_valid
            && claims.exp.saturating_add(self.skew) >= now
            && claims.nbf <= now.saturating_add(self.skew);
        valid.then_some(())?;
        Some(Verified {
            user_id: claims.sub.parse().ok()?,
            jti: claims.jti,
            expires: claims.exp,
        })
    }
}

fn rule(key: &str, reason: &str) -> ConfigError {
    ConfigError::Rule {
        key: format!("http.jwt.{key}"),
        reason: reason.to_owned(),
    }
}

fn secret(jwt: &HttpJwt, text: &str) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    if !jwt.use_base64_secret {
        return Ok(Zeroizing::new(text.as_bytes().to_vec()));
    }
    Base64::decode_vec(text)
        .map(Zeroizing::new)
        .map_err(|_| rule("use_base64_secret", "the secret is not base64"))
}

/// The hexadecimal text is the key, not the bytes it stands for.
fn derived_key(shared_secret: &str) -> Zeroizing<String> {
    let key = Zeroizing::new(blake3::derive_key(KEY_CONTEXT, shared_secret.as_bytes()));
    Zeroizing::new(blake3::Hash::from_bytes(*key).to_hex().to_string())
}

fn random_key() -> Result<Zeroizing<String>, ConfigError> {
    const ALPHABET: &[u8; 62] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    let (least, most) = RANDOM_KEY_LENGTH;
    let mut random = Zeroizing::new([0u8; 256]);
    getrandom::fill(&mut random[..]).map_err(|_| rule("encoding_secret", "no randomness"))?;
    let length = least + usize::from(random[0]) % (most - least + 1);
    // Bytes beyond the last multiple of 62 would favour some letters.
    let letters = random[1..].iter().filter(|byte| **byte < 248);
    let key: String = letters
        .take(length)
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect();
    Ok(Zeroizing::new(key))
}

fn part(value: &impl Serialize) -> Option<String> {
    let json = serde_json::to_vec(value).ok()?;
    Some(Base64UrlUnpadded::encode_string(&json))
}

fn unpart<T: for<'a> Deserialize<'a>>(text: &str) -> Option<T> {
    let json = Base64UrlUnpadded::decode_vec(text).ok()?;
    serde_json::from_slice(&json).ok()
}

/// A UUID of version 7; `None` when the system has no randomness.
fn uuid_v7(now_seconds: u64) -> Option<String> {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).ok()?;
    let millis = now_seconds.saturating_mul(1000).to_be_bytes();
    bytes[..6].copy_from_slice(&millis[2..]);
    bytes[6] = 0x70 | (bytes[6] & 0x0f);
    bytes[8] = 0x80 | (bytes[8] & 0x3f);
    let hex = bytes.map(|byte| format!("{byte:02x}")).concat();
    let groups = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    Some(groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Secret;

    const SHARED: &str = "0123456789abcdef0123456789abcdef";
    const TOKEN: &str = concat!(
        "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.",
        "eyJqdGkiOiIwMTg5MGE1ZC1hYzk2LTc3NGItYmNjZS1iMzAyMDk5YTgwNTciLCJpc3MiOiJpZ2d5LmFwYWNo",
        "ZS5vcmciLCJhdWQiOiJpZ2d5LmFwYWNoZS5vcmciLCJzdWIiOiIwIiwiaWF0IjoxNzAwMDAwMDAwLCJleHAi",
        "OjE3MDAwMDM2MDAsIm5iZiI6MTcwMDAwMDAwMH0.",
        "vctZ8llaO4ZrV-NYqsaIknXtqj8feGFjdaiOZ-YK4V4"
    );

    fn config() -> Config {
        let mut config = Config::parse("").expect("no file is legal");
        config.cluster.enabled = true;
        config.cluster.auth.enabled = true;
        config.cluster.auth.shared_secret = Secret(SHARED.to_owned());
        config
    }

    #[test]
    fn the_key_of_a_cluster_is_the_text_of_the_vector() {
        assert_eq!(
            *derived_key(SHARED),
            "8f56ac559961f280064ff270ad5ff196953973556bca0ad3a5edfeeac58c40b1"
        );
    }

    #[test]
    fn the_token_of_the_vector_is_accepted_in_its_hour_and_not_after() {
        let tokens = Tokens::new(&config()).unwrap();
        assert!(tokens.cluster_wide);
        let verified = tokens.verify(TOKEN, 1_700_000_010).expect("it is genuine");
        assert_eq!(verified.user_id, 0);
        assert_eq!(verified.jti, "01890a5d-ac96-774b-bcce-b302099a8057");
        for (now, valid) in [
            (1_699_999_994, false),
            (1_699_999_995, true),
            (1_700_003_605, true),
            (1_700_003_606, false),
        ] {
            assert_eq!(tokens.verify(TOKEN, now).is_some(), valid, "{now}");
        }
    }

    #[test]
    fn an_issued_token_is_accepted_and_every_changed_one_refused() {
        for algorithm in ["HS256", "HS384", "HS512"] {
            let mut config = config();
            config.http.jwt.algorithm = algorithm.to_owned();
            let tokens = Tokens::new(&config).unwrap();
            let (token, expires) = tokens.issue(7, 1000).unwrap();
            assert_eq!(expires, 4600);
            assert_eq!(tokens.verify(&token, 1000).unwrap().user_id, 7);
            for at in 0..token.len() {
                let mut changed = token.clone().into_bytes();
                // Half the alphabet away: the low bits of a part's last character mean nothing.
                changed[at] = if changed[at] == b'A' { b'g' } else { b'A' };
                let changed = String::from_utf8(changed).unwrap();
                let verified = tokens.verify(&changed, 1000);
                assert!(verified.is_none(), "{algorithm} {at}");
            }
        }
    }

    #[test]
    fn a_token_without_signature_or_with_another_algorithm_is_refused() {
        let tokens = Tokens::new(&config()).unwrap();
        let claims = TOKEN.split('.').nth(1).unwrap();
        for alg in ["none", "HS512", "hs256"] {
            let head = Head {
                typ: "JWT".to_owned(),
                alg: alg.to_owned(),
            };
            let signed = format!("{}.{claims}", part(&head).unwrap());
            let signature = Algorithm::Hs256.sign(&tokens.sign, signed.as_bytes());
            let signature = Base64UrlUnpadded::encode_string(&signature);
            for signature in ["", &signature] {
                let token = format!("{signed}.{signature}");
                assert!(tokens.verify(&token, 1_700_000_010).is_none(), "{alg}");
            }
        }
    }

    #[test]
    fn the_configured_secret_wins_and_a_node_alone_makes_its_own() {
        let mut with_secret = config();
        with_secret.http.jwt.decoding_secret = Secret("c2VjcmV0".to_owned());
        with_secret.http.jwt.use_base64_secret = true;
        let tokens = Tokens::new(&with_secret).unwrap();
        assert_eq!(tokens.sign.as_slice(), b"secret");
        let mut alone = config();
        alone.cluster.enabled = false;
        let (first, second) = (Tokens::new(&alone).unwrap(), Tokens::new(&alone).unwrap());
        assert!(!first.cluster_wide);
        assert!((32..=63).contains(&first.sign.len()));
        assert_ne!(first.sign, second.sign);
        with_secret.http.jwt.decoding_secret = Secret("!".to_owned());
        assert!(Tokens::new(&with_secret).is_err());
    }
}
