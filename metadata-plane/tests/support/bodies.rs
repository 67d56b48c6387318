//! Bodies as clients write them, built by hand from the layouts.

/// A name.
pub fn name(text: &str) -> Vec<u8> {
    let mut out = vec![u8::try_from(text.len()).expect("short")];
    out.extend_from_slice(text.as_bytes());
    out
}

/// A numeric identifier.
pub fn id(number: u32) -> Vec<u8> {
    let mut out = vec![1, 4];
    out.extend_from_slice(&number.to_le_bytes());
    out
}

/// An identifier by name.
pub fn named(text: &str) -> Vec<u8> {
    let mut out = vec![2];
    out.extend(name(text));
    out
}

/// Parts one after the other.
pub fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// An option entry.
pub fn option(key: &str, kind: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![2];
    out.extend_from_slice(&(key.len() as u32).to_le_bytes());
    out.extend_from_slice(key.as_bytes());
    out.push(kind);
    out.extend_from_slice(&(value.len() as u32).to_le_bytes());
    out.extend_from_slice(value);
    out
}

/// An option entry with a string.
pub fn text_option(key: &str, value: &str) -> Vec<u8> {
    option(key, 2, value.as_bytes())
}

/// Operation 132.
pub fn create_topic(stream: u32, partitions: u32, topic: &str, options: &[u8]) -> Vec<u8> {
    cat(&[
        &id(stream),
        &partitions.to_le_bytes(),
        &name(topic),
        options,
    ])
}

/// Operations 136 and 137.
pub fn partitions(stream: u32, topic: &[u8], count: u32) -> Vec<u8> {
    cat(&[&id(stream), topic, &count.to_le_bytes()])
}

/// Operation 64 with assignments 0..n and numbers from `first` on.
pub fn assigned_topic(
    request: &[u8],
    derived: &[u8],
    count: u32,
    first: u64,
    view: u32,
) -> Vec<u8> {
    let mut out = (request.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(request);
    out.extend_from_slice(&(derived.len() as u32).to_le_bytes());
    out.extend_from_slice(derived);
    out.extend(assignments(count, first, view));
    out
}

/// Operation 65.
pub fn assigned_partitions(request: &[u8], count: u32, first: u64, view: u32) -> Vec<u8> {
    let mut out = (request.len() as u32).to_le_bytes().to_vec();
    out.extend_from_slice(request);
    out.extend(assignments(count, first, view));
    out
}

fn assignments(count: u32, first: u64, view: u32) -> Vec<u8> {
    let mut out = count.to_le_bytes().to_vec();
    for partition in 0..count {
        out.extend_from_slice(&partition.to_le_bytes());
        out.extend_from_slice(&(first + u64::from(partition)).to_le_bytes());
    }
    out.extend_from_slice(&view.to_le_bytes());
    out
}

/// A plain topic with `count` partitions, ready to apply.
pub fn plain_topic(stream: u32, topic: &str, count: u32) -> Vec<u8> {
    assigned_topic(&create_topic(stream, count, topic, &[]), &[], count, 1, 0)
}

/// Operation 139.
pub fn create_group(stream: u32, topic: u32, group: &str) -> Vec<u8> {
    cat(&[&id(stream), &id(topic), &name(group)])
}

/// Operations 140 and, as clients send them, 148 and 149.
pub fn group(stream: u32, topic: u32, group: u32) -> Vec<u8> {
    cat(&[&id(stream), &id(topic), &id(group)])
}

/// Operation 148 as replicated.
pub fn join(stream: u32, topic: u32, group_id: u32, client: u128, in_flight: &[u32]) -> Vec<u8> {
    let mut out = group(stream, topic, group_id);
    out.extend_from_slice(&client.to_le_bytes());
    out.extend_from_slice(&(in_flight.len() as u32).to_le_bytes());
    for partition in in_flight {
        out.extend_from_slice(&partition.to_le_bytes());
    }
    out
}

/// Operation 149 as replicated.
pub fn leave(stream: u32, topic: u32, group_id: u32, client: u128) -> Vec<u8> {
    let mut out = group(stream, topic, group_id);
    out.extend_from_slice(&client.to_le_bytes());
    out
}

/// Operation 67.
pub fn complete(stream: u32, topic: u32, group: u64, client: u128, partition: u32) -> Vec<u8> {
    cat(&[
        &id(stream),
        &id(topic),
        &group.to_le_bytes(),
        &client.to_le_bytes(),
        &partition.to_le_bytes(),
    ])
}

/// Operation 68.
pub fn truncate(stream: u32, topic: u32, partition: u32, up_to: u64) -> Vec<u8> {
    cat(&[
        &id(stream),
        &id(topic),
        &partition.to_le_bytes(),
        &up_to.to_le_bytes(),
    ])
}

/// Operation 141 without options.
pub fn create_user(
    username: &str,
    password: &str,
    status: u8,
    permissions: Option<&[u8]>,
) -> Vec<u8> {
    let mut out = cat(&[&name(username), &name(password), &[status]]);
    match permissions {
        Some(block) => {
            out.push(1);
            out.extend_from_slice(&(block.len() as u32).to_le_bytes());
            out.extend_from_slice(block);
        }
        None => out.push(0),
    }
    out
}

/// Operation 142.
pub fn update_user(user: &[u8], username: Option<&str>, status: Option<u8>) -> Vec<u8> {
    let mut out = user.to_vec();
    match username {
        Some(text) => {
            out.push(1);
            out.extend(name(text));
        }
        None => out.push(0),
    }
    match status {
        Some(status) => out.extend([1, status]),
        None => out.push(0),
    }
    out
}

/// Operation 144.
pub fn change_password(user: &[u8], current: &str, new: &str) -> Vec<u8> {
    let mut out = user.to_vec();
    out.push(current.len() as u8);
    out.extend_from_slice(current.as_bytes());
    out.push(new.len() as u8);
    out.extend_from_slice(new.as_bytes());
    out
}

/// Operation 145.
pub fn update_permissions(user: &[u8], permissions: Option<&[u8]>) -> Vec<u8> {
    let mut out = user.to_vec();
    match permissions {
        Some(block) => {
            out.push(1);
            out.extend_from_slice(&(block.len() as u32).to_le_bytes());
            out.extend_from_slice(block);
        }
        None => out.push(0),
    }
    out
}

/// Operation 146 as replicated.
pub fn create_token(user: u32, token: &str, expiry: u64, hash: char) -> Vec<u8> {
    let hash: String = std::iter::repeat_n(hash, 64).collect();
    cat(&[
        &user.to_le_bytes(),
        &name(token),
        &expiry.to_le_bytes(),
        hash.as_bytes(),
    ])
}

/// Operation 147 as replicated.
pub fn delete_token(user: u32, token: &str, only_if_expired: bool) -> Vec<u8> {
    cat(&[
        &user.to_le_bytes(),
        &name(token),
        &[u8::from(only_if_expired)],
    ])
}

/// A permissions block with some of the ten global booleans.
pub fn global_permissions(bits: &[usize]) -> Vec<u8> {
    let mut out = vec![0; 11];
    for bit in bits {
        out[*bit] = 1;
    }
    out
}
