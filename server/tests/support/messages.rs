//! Messages that are planned from a seed and a number, so that one seen anywhere in the cluster
//! tells from its id alone what payload and headers it must have.

use std::collections::BTreeMap;

use iggy::prelude::{HeaderKey, HeaderValue, IggyMessage};

use super::Random;

/// A producer's plan: its seed, the largest payload, and whether messages carry headers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) payload_max: u64,
}

/// What the message of one id must be.
#[derive(Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) id: u128,
    pub(crate) payload: Vec<u8>,
    pub(crate) headers: Option<BTreeMap<HeaderKey, HeaderValue>>,
}

impl Plan {
    /// The id of message `number`: the seed in the upper half.
    pub(crate) fn id(&self, number: u64) -> u128 {
        u128::from(self.seed | 1) << 64 | u128::from(number)
    }

    /// The number of a message with `id`; `None` when it is of another plan.
    pub(crate) fn number(&self, id: u128) -> Option<u64> {
        let number = id as u64;
        (self.id(number) == id).then_some(number)
    }

    /// Message `number`: sizes spread evenly over the magnitudes from 1 byte to `payload_max`,
    /// every other message with one to four headers of mixed kinds.
    pub(crate) fn message(&self, number: u64) -> Planned {
        let mut random = Random::new(self.seed ^ number.wrapping_mul(0xD6E8_FEB8_6659_FD93));
        let magnitude = random.between(0, u64::from(self.payload_max.ilog2()));
        let size = random
            .between(1 << magnitude, (2 << magnitude) - 1)
            .min(self.payload_max);
        let size = usize::try_from(size).expect("fits memory");
        let headers = random.one_in(2).then(|| headers(&mut random));
        Planned {
            id: self.id(number),
            payload: random.bytes(size),
            headers,
        }
    }

    /// Messages `first..first + count` as the client takes them.
    pub(crate) fn batch(&self, first: u64, count: u64) -> Vec<IggyMessage> {
        (first..first + count)
            .map(|number| self.message(number).into_message())
            .collect()
    }
}

impl Planned {
    fn into_message(self) -> IggyMessage {
        IggyMessage::builder()
            .id(self.id)
            .payload(self.payload.into())
            .maybe_user_headers(self.headers)
            .build()
            .expect("a message within the limits")
    }

    /// Says in what a polled message differs.
    pub(crate) fn check(&self, message: &IggyMessage) -> Result<(), String> {
        let (id, offset) = (message.header.id, message.header.offset);
        if id != self.id {
            return Err(format!(
                "offset {offset}: id {id:032x}, expected {:032x}",
                self.id
            ));
        }
        if message.payload != self.payload {
            return Err(format!(
                "offset {offset}, id {id:032x}: payload of {} bytes differs from the {} sent",
                message.payload.len(),
                self.payload.len()
            ));
        }
        let headers = message
            .user_headers_map()
            .map_err(|error| format!("offset {offset}: headers do not decode: {error}"))?
            .filter(|headers| !headers.is_empty());
        if headers != self.headers {
            return Err(format!(
                "offset {offset}, id {id:032x}: headers {headers:?}, expected {:?}",
                self.headers
            ));
        }
        Ok(())
    }
}

fn headers(random: &mut Random) -> BTreeMap<HeaderKey, HeaderValue> {
    (0..random.between(1, 4))
        .map(|number| {
            let key = HeaderKey::try_from(format!("key-{number}")).expect("a short key");
            let value = match random.between(0, 6) {
                0 => HeaderValue::from(random.one_in(2)),
                1 => HeaderValue::from(random.next()),
                2 => HeaderValue::from(random.next() as i32),
                3 => HeaderValue::from(random.next() as f64),
                4 => HeaderValue::from(u128::from(random.next()) << 64),
                5 => {
                    let length = random.between(1, 255) as usize;
                    HeaderValue::try_from(random.bytes(length)).expect("a short value")
                }
                _ => HeaderValue::try_from(format!("value {}", random.next())).expect("a value"),
            };
            (key, value)
        })
        .collect()
}
