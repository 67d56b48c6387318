//! Users and tokens of the model, and operations on them.

use biplane_wire::Operation;

use super::super::bodies;
use super::super::prng::Prng;
use super::grants::{self, Grants, MANAGE_USERS};
use super::{Model, Step, lowest_free};

/// A user.
#[derive(Clone, Debug)]
pub struct User {
    /// Id.
    pub id: u32,
    /// Name.
    pub name: String,
    /// Password as the prepare had it.
    pub password: String,
    /// Whether the user may log in.
    pub is_active: bool,
    /// Grants; None where the user has no permissions at all.
    pub grants: Option<Grants>,
}

impl User {
    /// The user that is there before the first operation.
    pub fn root() -> Self {
        Self {
            id: 0,
            name: "iggy".to_owned(),
            password: "hash".to_owned(),
            is_active: true,
            grants: Some(grants::everything()),
        }
    }
}

/// Tokens of one owner. A session outlives its user, so the owner may be gone.
#[derive(Clone, Debug)]
pub struct TokenList {
    /// User id.
    pub owner: u32,
    /// Name and the instant of expiry.
    pub tokens: Vec<(String, Option<u64>)>,
}

/// An option entry whose value is too short for its kind, now and then.
fn options(prng: &mut Prng) -> (Vec<u8>, bool) {
    match prng.below(12) {
        0 => (bodies::option("k", 12, &[1, 2, 3]), false),
        1 => (bodies::option("k", 12, &[7; 8]), true),
        _ => (Vec::new(), true),
    }
}

fn username(prng: &mut Prng) -> String {
    match prng.below(24) {
        0 => "ab".to_owned(),
        1 => "u".repeat(51),
        2 => "iggy".to_owned(),
        _ => format!("user{}", prng.below(6)),
    }
}

fn permissions(prng: &mut Prng) -> Option<(Vec<u8>, Grants)> {
    (prng.below(5) > 0).then(|| grants::random_block(prng))
}

impl Model {
    /// The user with this id.
    pub fn user(&self, id: u32) -> Option<&User> {
        self.users.iter().find(|user| user.id == id)
    }

    fn user_mut(&mut self, id: u32) -> &mut User {
        let found = self.users.iter_mut().find(|user| user.id == id);
        found.expect("the user was found before")
    }

    /// Tokens of an owner; None where there is no list.
    pub fn tokens(&self, owner: u32) -> Option<&TokenList> {
        self.tokens.iter().find(|list| list.owner == owner)
    }

    /// Somebody by id or by name, and the id where there is such a user.
    fn draw_user(&self, prng: &mut Prng) -> (Vec<u8>, Option<u32>) {
        let id = prng.small(7);
        let known = self.user(id);
        match known.filter(|_| prng.below(2) == 0) {
            Some(user) => (bodies::named(&user.name), Some(id)),
            None => (bodies::id(id), known.map(|user| user.id)),
        }
    }

    fn length_of(name: &str) -> Result<(), u32> {
        if (3..=50).contains(&name.len()) {
            Ok(())
        } else {
            Err(43)
        }
    }

    /// Draws an operation on users.
    pub(super) fn accounts(&mut self, prng: &mut Prng) -> Step {
        match prng.below(10) {
            0..=2 => self.create_user(prng),
            3 | 4 => self.update_user(prng),
            5 => self.delete_user(prng),
            6 => self.change_password(prng),
            _ => self.update_permissions(prng),
        }
    }

    fn create_user(&mut self, prng: &mut Prng) -> Step {
        let name = username(prng);
        let status = [1, 1, 2, 0, 9][prng.below(5) as usize];
        let permissions = permissions(prng);
        let (options, is_readable) = options(prng);
        let password = format!("h{}", prng.below(100));
        let block = permissions.as_ref().map(|(block, _)| block.as_slice());
        let mut body = bodies::create_user(&name, &password, status, block);
        body.extend(options);
        let code = if self.denies(MANAGE_USERS, 0, 0) {
            41
        } else if let Err(code) = Self::length_of(&name) {
            code
        } else if self.users.iter().any(|user| user.name == name) {
            46
        } else if !is_readable {
            4042
        } else {
            let id = lowest_free(self.users.iter().map(|user| user.id));
            self.users.push(User {
                id,
                name,
                password,
                is_active: status != 2,
                grants: permissions.map(|(_, grants)| grants),
            });
            self.tokens.retain(|list| list.owner != id);
            let tokens = Vec::new();
            self.tokens.push(TokenList { owner: id, tokens });
            0
        };
        self.step(Operation::CreateUser, body, code)
    }

    fn update_user(&mut self, prng: &mut Prng) -> Step {
        let (target, id) = self.draw_user(prng);
        let name = (prng.below(3) > 0).then(|| username(prng));
        let status = (prng.below(2) == 0).then(|| [1, 2, 2, 7][prng.below(4) as usize]);
        let (options, is_readable) = options(prng);
        let mut body = bodies::update_user(&target, name.as_deref(), status);
        body.extend(options);
        let code = if self.denies(MANAGE_USERS, 0, 0) {
            41
        } else if let Some(id) = id {
            let is_taken = |name: &str| self.users.iter().any(|u| u.name == name && u.id != id);
            if !is_readable {
                4042
            } else if let Some(Err(code)) = name.as_deref().map(Self::length_of) {
                code
            } else if name.as_deref().is_some_and(is_taken) {
                46
            } else {
                let user = self.user_mut(id);
                if let Some(name) = name {
                    user.name = name;
                }
                if let Some(status) = status.filter(|status| matches!(status, 1 | 2)) {
                    user.is_active = status == 1;
                }
                0
            }
        } else {
            20
        };
        self.step(Operation::UpdateUser, body, code)
    }

    fn delete_user(&mut self, prng: &mut Prng) -> Step {
        let (body, id) = self.draw_user(prng);
        let code = match id {
            _ if self.denies(MANAGE_USERS, 0, 0) => 41,
            None => 20,
            Some(0) => 48,
            Some(id) => {
                self.users.retain(|user| user.id != id);
                self.tokens.retain(|list| list.owner != id);
                0
            }
        };
        self.step(Operation::DeleteUser, body, code)
    }

    /// One's own password is one's own matter; that of nobody is not found before anything else.
    fn change_password(&mut self, prng: &mut Prng) -> Step {
        let (target, id) = match prng.below(2) {
            0 => {
                let own = self.user(self.actor).map(|user| user.id);
                (bodies::id(self.actor), own)
            }
            _ => self.draw_user(prng),
        };
        let password = match prng.below(4) {
            0 => String::new(),
            _ => format!("h{}", prng.below(100)),
        };
        let body = bodies::change_password(&target, "", &password);
        let code = match id {
            None => 20,
            Some(id) if id != self.actor && self.denies(MANAGE_USERS, 0, 0) => 41,
            Some(_) if password.is_empty() => 42,
            Some(id) => {
                self.user_mut(id).password = password;
                0
            }
        };
        self.step(Operation::ChangePassword, body, code)
    }

    fn update_permissions(&mut self, prng: &mut Prng) -> Step {
        let (target, id) = self.draw_user(prng);
        let permissions = permissions(prng);
        let block = permissions.as_ref().map(|(block, _)| block.as_slice());
        let body = bodies::update_permissions(&target, block);
        let code = match id {
            _ if self.denies(MANAGE_USERS, 0, 0) => 41,
            None => 20,
            Some(0) => 49,
            Some(id) => {
                self.user_mut(id).grants = permissions.map(|(_, grants)| grants);
                0
            }
        };
        self.step(Operation::UpdatePermissions, body, code)
    }

    /// Draws an operation on tokens: always those of the acting user, but for the cleaner, which
    /// goes for those that have expired.
    pub(super) fn own_tokens(&mut self, prng: &mut Prng, now: u64) -> Step {
        let name = format!("k{}", prng.below(3));
        match prng.below(5) {
            0..=2 => self.create_token(prng, name, now),
            3 => self.delete_token(&name),
            _ => self.clean_token(prng.small(6), &name, now),
        }
    }

    fn create_token(&mut self, prng: &mut Prng, name: String, now: u64) -> Step {
        let letter = char::from(b'a' + u8::try_from(prng.below(26)).expect("small"));
        let lifetime = [0, u64::MAX, 1, 40, 1_000, u64::MAX - 5][prng.below(6) as usize];
        let body = bodies::create_token(self.actor, &name, lifetime, letter);
        let owner = self.actor;
        let expiry = match lifetime {
            0 | u64::MAX => None,
            // The sum goes round at the end of time: as if the token had expired already.
            lifetime => Some(now.checked_add(lifetime)),
        };
        let taken = self
            .tokens(owner)
            .is_some_and(|list| list.tokens.iter().any(|(other, _)| *other == name));
        let code = match expiry {
            _ if taken => 51,
            Some(None) => 56,
            Some(Some(_)) | None => {
                if self.tokens(owner).is_none() {
                    let tokens = Vec::new();
                    self.tokens.push(TokenList { owner, tokens });
                }
                let list = self.tokens.iter_mut().find(|list| list.owner == owner);
                let list = list.expect("just made");
                list.tokens.push((name, expiry.flatten()));
                0
            }
        };
        self.step(Operation::CreatePersonalAccessToken, body, code)
    }

    fn delete_token(&mut self, name: &str) -> Step {
        let owner = self.actor;
        let body = bodies::delete_token(owner, name, false);
        let code = if self.drop_token(owner, name, |_| true) {
            0
        } else {
            20
        };
        self.step(Operation::DeletePersonalAccessToken, body, code)
    }

    fn clean_token(&mut self, owner: u32, name: &str, now: u64) -> Step {
        self.actor = 0;
        let body = bodies::delete_token(owner, name, true);
        let code = if self.tokens(owner).is_some() { 0 } else { 20 };
        self.drop_token(owner, name, |expiry| expiry.is_some_and(|at| at <= now));
        self.step(Operation::DeletePersonalAccessToken, body, code)
    }

    fn drop_token(&mut self, owner: u32, name: &str, goes: impl Fn(Option<u64>) -> bool) -> bool {
        let Some(list) = self.tokens.iter_mut().find(|list| list.owner == owner) else {
            return false;
        };
        let before = list.tokens.len();
        list.tokens
            .retain(|(other, expiry)| other != name || !goes(*expiry));
        list.tokens.len() < before
    }
}
