//! Users and their personal access tokens as the state holds them, and how they are found.

use std::collections::{BTreeMap, BTreeSet};

use biplane_wire::{Identifier, Permissions};

use crate::options::OptionsMap;

/// Id of the root user.
pub const ROOT_USER_ID: u32 = 0;

/// Whether a user may log in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UserStatus {
    /// May log in.
    #[default]
    Active,
    /// May not log in; sessions that exist go on.
    Inactive,
}

impl UserStatus {
    /// Number in replies: 1 active, 2 inactive.
    pub const fn as_u8(self) -> u8 {
        match self {
            Self::Active => 1,
            Self::Inactive => 2,
        }
    }

    /// From the number in requests; None for numbers that mean nothing.
    pub const fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Active),
            2 => Some(Self::Inactive),
            _ => None,
        }
    }
}

/// One user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Id; 0 is root.
    pub id: u32,
    /// Name, unique.
    pub username: String,
    /// Hash of the password as a PHC string.
    pub password_hash: String,
    /// Whether the user may log in.
    pub status: UserStatus,
    /// Timestamp of the creating prepare, microseconds; 1 for root.
    pub created_at: u64,
    /// What the user was granted; None satisfies no rule.
    pub permissions: Option<Permissions>,
    /// Options as stored.
    pub options: OptionsMap,
}

/// One personal access token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// Hash of the token, 64 hexadecimal digits.
    pub hash: String,
    /// Instant from which the token is no longer valid, microseconds; None never.
    pub expiry: Option<u64>,
}

/// All users with their names, tokens and indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Users {
    pub(super) by_id: BTreeMap<u32, User>,
    pub(super) names: BTreeMap<String, u32>,
    /// Tokens by owner and name. Owners need not exist: a session outlives its user.
    tokens: BTreeMap<u32, BTreeMap<String, Token>>,
    /// Hash, owner and name of every token. Two tokens with one hash do not happen, but if they
    /// did, the index must not depend on the order in which they came.
    token_hashes: BTreeSet<(String, u32, String)>,
    /// Tokens that expire, in the order in which they do.
    token_expiries: BTreeSet<(u64, u32, String)>,
}

impl Users {
    pub(super) fn with_root(username: &str, password_hash: &str) -> Self {
        let mut users = Self::default();
        users.insert(User {
            id: ROOT_USER_ID,
            username: username.to_owned(),
            password_hash: password_hash.to_owned(),
            status: UserStatus::Active,
            created_at: 1,
            permissions: Some(Permissions::all()),
            options: OptionsMap::default(),
        });
        users
    }

    /// Users by id, ascending.
    pub fn by_id(&self) -> &BTreeMap<u32, User> {
        &self.by_id
    }

    /// The user an identifier names.
    pub fn user(&self, identifier: &Identifier<'_>) -> Option<&User> {
        self.by_id.get(&self.user_id(identifier)?)
    }

    /// The user with this name.
    pub fn by_name(&self, username: &str) -> Option<&User> {
        self.by_id.get(self.names.get(username)?)
    }

    /// The permissions of a user; None where the user is gone or has none.
    pub fn permissions(&self, user_id: u32) -> Option<&Permissions> {
        self.by_id.get(&user_id)?.permissions.as_ref()
    }

    /// Tokens of a user by name, ascending.
    pub fn tokens_of(&self, user_id: u32) -> impl Iterator<Item = (&str, &Token)> {
        self.tokens
            .get(&user_id)
            .into_iter()
            .flatten()
            .map(|(name, token)| (name.as_str(), token))
    }

    /// Number of tokens of a user, expired ones included.
    pub fn token_count(&self, user_id: u32) -> usize {
        self.tokens.get(&user_id).map_or(0, BTreeMap::len)
    }

    /// The token with this hash and the id of its owner.
    pub fn token_by_hash(&self, hash: &str) -> Option<(u32, &Token)> {
        let first = (hash.to_owned(), 0, String::new());
        let (found, owner, name) = self.token_hashes.range(first..).next()?;
        if found != hash {
            return None;
        }
        self.token(*owner, name).map(|token| (*owner, token))
    }

    /// Tokens with an expiry at or before `now`: owner and name, at most `limit`, ordered by
    /// expiry, owner and name.
    pub fn expired_tokens(&self, now: u64, limit: usize) -> Vec<(u32, String)> {
        self.token_expiries
            .iter()
            .take_while(|(expiry, _, _)| *expiry <= now)
            .take(limit)
            .map(|(_, owner, name)| (*owner, name.clone()))
            .collect()
    }

    /// All tokens: owner, then name.
    pub(crate) fn tokens(&self) -> &BTreeMap<u32, BTreeMap<String, Token>> {
        &self.tokens
    }

    pub(super) fn user_id(&self, identifier: &Identifier<'_>) -> Option<u32> {
        match identifier {
            Identifier::Numeric(id) => self.by_id.contains_key(id).then_some(*id),
            Identifier::Named(name) => self.names.get(name.as_str()).copied(),
        }
    }

    /// Adds a user, whose id and name must be free.
    pub(crate) fn insert(&mut self, user: User) {
        self.names.insert(user.username.clone(), user.id);
        self.by_id.insert(user.id, user);
    }

    /// True where the user has tokens or had some: an owner without any is told apart from one
    /// that never had a list.
    pub(crate) fn has_token_list(&self, user_id: u32) -> bool {
        self.tokens.contains_key(&user_id)
    }

    pub(crate) fn token(&self, user_id: u32, name: &str) -> Option<&Token> {
        self.tokens.get(&user_id)?.get(name)
    }

    /// Adds a token, whose name must be free among those of its owner.
    pub(crate) fn insert_token(&mut self, user_id: u32, name: &str, token: Token) {
        if let Some(expiry) = token.expiry {
            self.token_expiries
                .insert((expiry, user_id, name.to_owned()));
        }
        self.token_hashes
            .insert((token.hash.clone(), user_id, name.to_owned()));
        self.tokens
            .entry(user_id)
            .or_default()
            .insert(name.to_owned(), token);
    }

    /// Removes a token; false where there is none of that name.
    pub(super) fn remove_token(&mut self, user_id: u32, name: &str) -> bool {
        let Some(tokens) = self.tokens.get_mut(&user_id) else {
            return false;
        };
        let Some(token) = tokens.remove(name) else {
            return false;
        };
        self.drop_indexes(user_id, name, &token);
        true
    }

    /// Gives a user an empty list of tokens.
    pub(crate) fn reset_tokens(&mut self, user_id: u32) {
        self.drop_tokens(user_id);
        self.tokens.insert(user_id, BTreeMap::new());
    }

    /// Takes a user's tokens away, list and all.
    pub(super) fn drop_tokens(&mut self, user_id: u32) {
        for (name, token) in self.tokens.remove(&user_id).unwrap_or_default() {
            self.drop_indexes(user_id, &name, &token);
        }
    }

    fn drop_indexes(&mut self, user_id: u32, name: &str, token: &Token) {
        if let Some(expiry) = token.expiry {
            self.token_expiries
                .remove(&(expiry, user_id, name.to_owned()));
        }
        self.token_hashes
            .remove(&(token.hash.clone(), user_id, name.to_owned()));
    }

    /// Checks the indexes.
    pub(super) fn check_invariants(&self) {
        assert_eq!(
            self.names.len(),
            self.by_id.len(),
            "every user has its own name"
        );
        for (id, user) in &self.by_id {
            assert_eq!(*id, user.id, "a user is kept under its id");
            assert_eq!(
                self.names.get(&user.username),
                Some(id),
                "a name leads to its user"
            );
        }
        let count = self.tokens.values().map(BTreeMap::len).sum::<usize>();
        assert_eq!(self.token_hashes.len(), count, "tokens are indexed");
        let expiring = self
            .tokens
            .values()
            .flatten()
            .filter(|(_, t)| t.expiry.is_some());
        assert_eq!(
            self.token_expiries.len(),
            expiring.count(),
            "expiring tokens are indexed"
        );
    }
}
