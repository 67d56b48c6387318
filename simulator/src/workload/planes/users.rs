//! Users with permissions and access tokens, and clients that become one of them.

use biplane_wire::request::{
    ChangePassword, CreatePersonalAccessToken, CreateUser, DeletePersonalAccessToken,
    UpdatePermissions, UserRequest,
};
use biplane_wire::{
    ClientId, Codec as _, GlobalPermissions, Identifier, Name, Operation, OptionalPermissions,
    Options as TlvOptions, Permissions, PermissionsBlock, Text8,
};

use super::{PlanesWorkload, ROOT_ID};
use crate::machine::Call;
use crate::prng::Prng;

/// Most users beside the root user.
const USERS_MAX: usize = 4;

/// A block that allows some things and not others.
fn permissions(prng: &mut Prng) -> Vec<u8> {
    let mut all = Permissions::all();
    let flags: &mut GlobalPermissions = &mut all.global;
    for flag in [
        &mut flags.manage_users,
        &mut flags.manage_streams,
        &mut flags.read_streams,
        &mut flags.manage_topics,
        &mut flags.read_topics,
        &mut flags.poll_messages,
        &mut flags.send_messages,
    ] {
        *flag = prng.chance(600_000);
    }
    all.encode()
}

fn optional(block: &[u8]) -> OptionalPermissions<'_> {
    OptionalPermissions(Some(
        PermissionsBlock::parse(block).expect("a block made here"),
    ))
}

fn text(text: &str) -> Text8<'_> {
    Text8::new(text).expect("a short text")
}

impl PlanesWorkload {
    /// Something about users, or a logout after which the client is another user.
    pub(super) fn manage_users(&mut self, prng: &mut Prng) -> Call {
        let others: Vec<u32> = self.directory.users.clone();
        let some = prng.pick(&others).copied().unwrap_or(ROOT_ID);
        let name = format!("user-{}", prng.below(6));
        let token = format!("token-{}", prng.below(3));
        let user = Identifier::Numeric(some);
        match prng.weighted(&[20, 15, 10, 10, 15, 10, 20]) {
            0 if others.len() <= USERS_MAX => {
                self.directory_at = None;
                let block = permissions(prng);
                let body = CreateUser {
                    username: Name::new(&name).expect("a short name"),
                    password: text("secret"),
                    status: 1,
                    permissions: optional(&block),
                    options: TlvOptions::EMPTY,
                };
                let body = body.encode();
                self.metadata(Operation::CreateUser, body)
            }
            1 => {
                let block = permissions(prng);
                let permissions = optional(&block);
                let body = UpdatePermissions { user, permissions }.encode();
                self.metadata(Operation::UpdatePermissions, body)
            }
            2 => {
                self.directory_at = None;
                let body = UserRequest { user }.encode();
                self.metadata(Operation::DeleteUser, body)
            }
            3 => {
                let right = prng.chance(700_000);
                let body = ChangePassword {
                    user,
                    current: text(if right { "secret" } else { "wrong" }),
                    new: text("secret"),
                };
                let body = body.encode();
                self.metadata(Operation::ChangePassword, body)
            }
            4 => {
                let body = CreatePersonalAccessToken {
                    name: Name::new(&token).expect("a short name"),
                    expiry: if prng.chance(500_000) { 0 } else { 2_000_000 },
                };
                let body = body.encode();
                self.metadata(Operation::CreatePersonalAccessToken, body)
            }
            5 => {
                let name = Name::new(&token).expect("a short name");
                let body = DeletePersonalAccessToken { name }.encode();
                self.metadata(Operation::DeletePersonalAccessToken, body)
            }
            _ => {
                self.request += 1;
                self.next_user = some;
                Call::Logout {
                    client: self.client,
                    session: self.session.unwrap_or(0),
                    request: self.request,
                }
            }
        }
    }

    /// After a logout: another user, under a client id of its own.
    pub(super) fn become_another(&mut self) {
        self.membership = None;
        if self.next_user == self.user_id {
            return;
        }
        self.user_id = self.next_user;
        self.lives += 1;
        let base = super::client_id(self.index).0;
        self.client = ClientId(base | u128::from(self.lives) << 96);
        self.request = 0;
    }
}
