"""Reads all messages that produce.py sent, partition by partition, and prints them.

Positions are kept by the program: each run starts at the first message.
"""

import argparse
import asyncio
import sys

from apache_iggy import (
    AutoLogin,
    Consumer,
    IggyClient,
    PollingStrategy,
    TcpConfig,
    TcpReconnectionConfig,
)

STREAM = "biplane-example"
TOPIC = "orders"
POLL_COUNT = 50


async def connect(address: str) -> IggyClient:
    """A client that logs in as root, follows the primary, and logs in again after a failover."""
    login = AutoLogin.username_password("iggy", "iggy")
    # Without a limit a client waits for a cluster that is down for as long as it takes.
    again = TcpReconnectionConfig(max_retries=10)
    client = IggyClient(
        TcpConfig(server_address=address, auto_login=login, reconnection=again)
    )
    await client.connect()
    return client


async def read_partition(client: IggyClient, partition: int) -> int:
    """Prints the messages of one partition and returns how many there are."""
    count = 0
    while True:
        messages = await client.poll_messages(
            STREAM,
            TOPIC,
            partition_id=partition,
            consumer=Consumer.Single("biplane-example-reader"),
            polling_strategy=PollingStrategy.Offset(count),
            count=POLL_COUNT,
            auto_commit=False,
        )
        if not messages:
            return count
        for message in messages:
            headers = message.user_headers()
            shown = headers.to_scalar_dict() if headers else {}
            print(f"{partition}/{message.offset()}: {message.payload().decode()} {shown}")
        count = messages[-1].offset() + 1


async def main(address: str) -> None:
    print(f"connecting to {address}")
    client = await connect(address)
    topic = await client.get_topic(STREAM, TOPIC)
    if topic is None:
        sys.exit(f"there is no topic {TOPIC!r} in stream {STREAM!r}: run produce.py first")
    total = 0
    for partition in topic.partitions:
        total += await read_partition(client, partition.id)
    print(f"read {total} messages from {len(topic.partitions)} partitions")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", nargs="?", default="127.0.0.1:8090", help="any node of it")
    asyncio.run(main(parser.parse_args().address))
