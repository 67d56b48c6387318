//! Clients over TLS: the official client against one node, with a certificate of an authority and
//! with one that the node mints.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use iggy::prelude::{AutoLogin, Client, Credentials, IggyClient, IggyClientBuilder, StreamClient};
use tokio::time::{sleep, timeout};

use crate::nodes::Nodes;
use crate::support::messages::Plan;
use crate::support::sdk::{create_topic, named, poll_all};
use crate::support::{PASSWORD, USER};
use crate::tls::Files;

const LIMIT: Duration = Duration::from_secs(10);

fn client(address: SocketAddr, ca: Option<&Files>) -> IggyClient {
    let builder = IggyClientBuilder::new()
        .with_tcp()
        .with_server_address(address.to_string())
        .with_auto_sign_in(AutoLogin::Enabled(Credentials::UsernamePassword(
            USER.to_owned(),
            PASSWORD.into(),
        )))
        .with_tls_enabled(true);
    let builder = match ca {
        Some(files) => builder
            .with_tls_domain("127.0.0.1".to_owned())
            .with_tls_validate_certificate(true)
            .with_tls_ca_file(files.path("ca.pem").display().to_string()),
        None => builder
            .with_tls_domain("localhost".to_owned())
            .with_tls_validate_certificate(false),
    };
    builder.build().expect("a client")
}

/// A connected client of a node that may still be starting.
async fn connected(address: SocketAddr, ca: Option<&Files>) -> IggyClient {
    let start = std::time::Instant::now();
    loop {
        let client = client(address, ca);
        match timeout(LIMIT, client.connect()).await {
            Ok(Ok(())) => return client,
            outcome => {
                let _ = timeout(Duration::from_secs(1), client.shutdown()).await;
                assert!(start.elapsed() < LIMIT, "{outcome:?}");
            }
        }
        sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_official_client_works_over_tls_and_refuses_a_foreign_certificate() {
    let files = Files::new();
    let from_files = format!(
        "[tcp.tls]\nenabled = true\nself_signed = false\ncert_file = {:?}\nkey_file = {:?}\n",
        files.path("cert.pem"),
        files.path("key.pem")
    );
    let minted = format!(
        "[tcp.tls]\nenabled = true\ncert_file = {:?}\n",
        files.path("does-not-exist.pem")
    );
    for (sections, ca) in [(from_files, Some(&files)), (minted, None)] {
        let mut nodes = Nodes::new(1, false, "info");
        nodes.start_single(&sections);
        let address: SocketAddr = (Ipv4Addr::LOCALHOST, nodes.client_address(0).port()).into();
        let client = connected(address, ca).await;
        client.create_stream("tls").await.expect("a stream");
        create_topic(&client, "tls", "topic", 1)
            .await
            .expect("a topic");
        let plan = Plan {
            seed: 7,
            payload_max: 200_000,
        };
        let partition = iggy::prelude::Partitioning::partition_id(0);
        for batch in 0..20 {
            let mut messages = plan.batch(batch * 10 + 1, 10);
            iggy::prelude::MessageClient::send_messages(
                &client,
                &named("tls"),
                &named("topic"),
                &partition,
                &mut messages,
            )
            .await
            .expect("a batch");
        }
        let polled = poll_all(&client, "tls", "topic", 0).await;
        assert_eq!(polled.len(), 200);
        for (number, message) in (1..).zip(&polled) {
            plan.message(number).check(message).expect("as it was sent");
        }
        client.shutdown().await.expect("the client closes");

        if ca.is_some() {
            let foreign = Files::new();
            let client = self::client(address, Some(&foreign));
            let outcome = timeout(Duration::from_secs(2), client.connect()).await;
            assert!(!matches!(outcome, Ok(Ok(()))), "its authority is another");
            let _ = timeout(Duration::from_secs(1), client.shutdown()).await;
        }
        // Whoever speaks no TLS gets nothing.
        let plain = crate::support::raw_client::RawClient::login(address);
        assert!(plain.is_err());
        nodes.check_alive();
        nodes.stop(0);
    }
}
