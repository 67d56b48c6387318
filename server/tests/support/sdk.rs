//! The official client as an application would set it up, and an application's patience around it.

use std::net::SocketAddr;
use std::time::Duration;

use iggy::prelude::{
    AutoLogin, Client, Consumer, Credentials, Identifier, IggyClient, IggyClientBuilder,
    IggyDuration, IggyError, IggyMessage, MessageClient, NonZeroIggyDuration, Partitioning,
    PollingStrategy, SendMessagesResponse, TopicClient, TopicCreateOptions,
};
use tokio::time::timeout;

use super::{PASSWORD, USER};

/// Longer than any election of a test cluster; an attempt that takes more is given up.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(12);
/// A client keeps dialling a dead node; the application tries the next one sooner.
const CONNECT_LIMIT: Duration = Duration::from_secs(4);
/// Asked for in one poll.
const POLL_COUNT: u32 = 500;

/// A client of the node at `address` that logs in as root by itself and is connected.
pub(crate) async fn connect(address: SocketAddr) -> Result<IggyClient, IggyError> {
    connect_as(address, USER, PASSWORD).await
}

/// As [`connect`], for any user.
pub(crate) async fn connect_as(
    address: SocketAddr,
    user: &str,
    password: &str,
) -> Result<IggyClient, IggyError> {
    let client = IggyClientBuilder::new()
        .with_tcp()
        .with_server_address(address.to_string())
        .with_auto_sign_in(AutoLogin::Enabled(Credentials::UsernamePassword(
            user.to_owned(),
            password.into(),
        )))
        // The defaults suit servers that are away for long; here one is away for seconds.
        .with_reconnection_interval(
            NonZeroIggyDuration::new(Duration::from_millis(200)).expect("not zero"),
        )
        .with_reestablish_after(IggyDuration::new(Duration::from_millis(200)))
        .with_no_delay()
        .build()?;
    match client.connect().await {
        Ok(()) => Ok(client),
        Err(error) => {
            let _ = client.shutdown().await;
            Err(error)
        }
    }
}

/// The identifier of a name.
pub(crate) fn named(name: &str) -> Identifier {
    Identifier::named(name).expect("a legal name")
}

/// Creates a topic with this many partitions.
pub(crate) async fn create_topic(
    client: &IggyClient,
    stream: &str,
    topic: &str,
    partitions: u32,
) -> Result<(), IggyError> {
    let options = TopicCreateOptions {
        partitions_count: Some(partitions),
        ..TopicCreateOptions::default()
    };
    client
        .create_topic(&named(stream), topic, &options)
        .await
        .map(|_| ())
}

/// All messages of a partition, in polls of a few hundred; their offsets are without a gap.
pub(crate) async fn poll_all(
    client: &IggyClient,
    stream: &str,
    topic: &str,
    partition: u32,
) -> Vec<IggyMessage> {
    let mut all: Vec<IggyMessage> = Vec::new();
    loop {
        let next = all.len() as u64;
        let polled = client
            .poll_messages(
                &named(stream),
                &named(topic),
                Some(partition),
                &Consumer::default(),
                &PollingStrategy::offset(next),
                POLL_COUNT,
                false,
            )
            .await
            .unwrap_or_else(|error| panic!("poll of partition {partition} from {next}: {error}"));
        assert_eq!(
            polled.partition_id, partition,
            "the reply names the partition"
        );
        assert_eq!(
            polled.count as usize,
            polled.messages.len(),
            "the reply counts its messages"
        );
        if polled.messages.is_empty() {
            let after = polled.current_offset + u64::from(next > 0);
            assert_eq!(
                after, next,
                "partition {partition}: polls end at the current offset"
            );
            return all;
        }
        for (offset, message) in (next..).zip(&polled.messages) {
            assert_eq!(
                message.header.offset, offset,
                "partition {partition}: offsets in order"
            );
        }
        all.extend(polled.messages);
    }
}

/// An application that keeps a client for as long as it works and otherwise takes a fresh one,
/// at the next of the addresses it knows.
#[derive(Debug)]
pub(crate) struct Application {
    addresses: Vec<SocketAddr>,
    next: usize,
    client: Option<IggyClient>,
    failures: u32,
}

impl Application {
    pub(crate) fn new(addresses: Vec<SocketAddr>, first: usize) -> Self {
        Self {
            addresses,
            next: first,
            client: None,
            failures: 0,
        }
    }

    /// One attempt to send. Whoever calls it again after an error must accept duplicates.
    pub(crate) async fn send(
        &mut self,
        stream: &str,
        topic: &str,
        partition: u32,
        messages: &mut [IggyMessage],
    ) -> Result<SendMessagesResponse, String> {
        let client = self.client().await?;
        let (stream, topic) = (named(stream), named(topic));
        let partitioning = Partitioning::partition_id(partition);
        let attempt = client.send_messages(&stream, &topic, &partitioning, messages);
        let outcome = timeout(ATTEMPT_LIMIT, attempt).await;
        self.settle(outcome).await
    }

    /// One attempt to create a topic.
    pub(crate) async fn create_topic(&mut self, stream: &str, topic: &str) -> Result<(), String> {
        let client = self.client().await?;
        let outcome = timeout(ATTEMPT_LIMIT, create_topic(client, stream, topic, 1)).await;
        let outcome = match outcome {
            // An earlier attempt of ours whose answer was lost.
            Ok(Err(IggyError::TopicNameAlreadyExists(..))) => Ok(Ok(())),
            other => other,
        };
        self.settle(outcome).await
    }

    async fn client(&mut self) -> Result<&IggyClient, String> {
        if self.client.is_none() {
            let address = self.addresses[self.next % self.addresses.len()];
            self.next += 1;
            let connected = timeout(CONNECT_LIMIT, connect(address)).await;
            let client = connected
                .map_err(|_| format!("no connection to {address} in {CONNECT_LIMIT:?}"))?
                .map_err(|error| format!("connection to {address}: {error}"))?;
            self.client = Some(client);
            self.failures = 0;
        }
        Ok(self.client.as_ref().expect("made above"))
    }

    /// An error leaves the client one chance to recover by itself; silence leaves it none, since
    /// the answer to an abandoned request would be read as the answer to the next.
    async fn settle<T>(
        &mut self,
        outcome: Result<Result<T, IggyError>, tokio::time::error::Elapsed>,
    ) -> Result<T, String> {
        let reason = match outcome {
            Ok(Ok(done)) => {
                self.failures = 0;
                return Ok(done);
            }
            Ok(Err(error)) => {
                self.failures += 1;
                error.to_string()
            }
            Err(_) => {
                self.failures = u32::MAX;
                format!("no answer in {ATTEMPT_LIMIT:?}")
            }
        };
        if self.failures > 1 {
            self.close().await;
        }
        Err(reason)
    }

    /// Lets the client go.
    pub(crate) async fn close(&mut self) {
        if let Some(client) = self.client.take() {
            let _ = timeout(Duration::from_secs(1), client.shutdown()).await;
        }
    }
}
