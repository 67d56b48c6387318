"""Sends 100 messages with headers to a Biplane cluster.

Creates the stream and the topic when they are missing, spreads the messages over the topic's
partitions by key, and prints where the cluster put each batch.
"""

import argparse
import asyncio

from apache_iggy import (
    AutoLogin,
    IggyClient,
    Partitioning,
    SendMessage,
    TcpConfig,
    TcpReconnectionConfig,
)

STREAM = "biplane-example"
TOPIC = "orders"
PARTITIONS = 3
MESSAGES = 100
BATCH = 10


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


async def ensure_topic(client: IggyClient) -> None:
    """Creates what is missing of the stream and the topic."""
    if await client.get_stream(STREAM) is None:
        await client.create_stream(STREAM)
        print(f"created stream {STREAM!r}")
    if await client.get_topic(STREAM, TOPIC) is None:
        await client.create_topic(STREAM, TOPIC, partitions_count=PARTITIONS)
        print(f"created topic {TOPIC!r} with {PARTITIONS} partitions")


def order(number: int) -> SendMessage:
    """One message; header values keep their type."""
    headers = {"number": number, "source": "produce.py", "express": number % 7 == 0}
    return SendMessage(f"order {number}", user_headers=headers)


async def main(address: str) -> None:
    print(f"connecting to {address}")
    client = await connect(address)
    await ensure_topic(client)
    for first in range(1, MESSAGES + 1, BATCH):
        batch = [order(number) for number in range(first, first + BATCH)]
        key = Partitioning.messages_key(f"customer-{first}")
        response = await client.send_messages(STREAM, TOPIC, key, batch)
        for confirmation in response.confirmations:
            print(
                f"orders {first} to {first + BATCH - 1}: partition {confirmation.partition_id}, "
                f"from offset {confirmation.base_offset}"
            )
    print(f"sent {MESSAGES} messages")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", nargs="?", default="127.0.0.1:8090", help="any node of it")
    asyncio.run(main(parser.parse_args().address))
