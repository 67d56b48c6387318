//! Requests about streams.

use crate::codec::body;
use crate::primitive::{Identifier, Name};
use crate::tlv::Options;

body! {
    /// GetStream (200), DeleteStream (203), PurgeStream (205), GetTopics (301).
    #[derive(Copy, Eq)]
    pub struct StreamRequest<'a> {
        /// The stream.
        stream: Identifier<'a>,
    }
}

body! {
    /// CreateStream (202).
    #[derive(Copy, Eq)]
    pub struct CreateStream<'a> {
        /// Name of the new stream.
        name: Name<'a>,
        /// Options to the end of the body.
        options: Options<'a>,
    }
}

body! {
    /// UpdateStream (204).
    #[derive(Copy, Eq)]
    pub struct UpdateStream<'a> {
        /// The stream.
        stream: Identifier<'a>,
        /// Its name from now on.
        name: Name<'a>,
        /// Options to the end of the body; no key is updatable.
        options: Options<'a>,
    }
}
