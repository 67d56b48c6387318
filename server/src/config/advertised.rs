//! Addresses that clients are told: their syntax, and which client is told which (chapter 09
//! sections 4.5 and 5.6).

use std::net::{IpAddr, SocketAddr};

use super::sections::{AdvertisedAddress, Config};

/// True for a literal IP address or a host name.
pub(super) fn is_valid(address: &str) -> bool {
    if literal(address).is_some() {
        return true;
    }
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let numeric = address
        .bytes()
        .all(|byte| byte.is_ascii_digit() || byte == b'.');
    address.len() <= 253 && !numeric && address.split('.').all(label)
}

/// The address when it is a literal one; brackets around IPv6 are tolerated.
pub(super) fn literal(address: &str) -> Option<IpAddr> {
    let inner = address
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    match inner {
        Some(inner) => inner.parse().ok().filter(IpAddr::is_ipv6),
        None => address.parse().ok(),
    }
}

/// The one form of an address: host names in small letters, IP addresses without brackets.
pub(super) fn canonical(address: &str) -> String {
    match literal(address) {
        Some(ip) => ip.to_string(),
        None => address.to_ascii_lowercase(),
    }
}

/// What clients are told without clustering and without `node.advertised_address`: the address of
/// the first listener that is on. `None` where that one listens on every address.
pub(super) fn derived(config: &Config) -> Option<String> {
    let listeners = [
        (config.tcp.enabled, &config.tcp.address),
        (config.websocket.enabled, &config.websocket.address),
        (config.quic.enabled, &config.quic.address),
        (config.http.enabled, &config.http.address),
    ];
    let Some((_, address)) = listeners.into_iter().find(|(enabled, _)| *enabled) else {
        return Some(String::new());
    };
    // An address that does not parse is another rule's business.
    let Ok(address) = address.parse::<SocketAddr>() else {
        return Some(String::new());
    };
    (!address.ip().is_unspecified()).then(|| address.ip().to_string())
}

/// A network in its one form: IPv4 inside IPv6 is IPv4, and the bits beyond the prefix are zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Network {
    address: IpAddr,
    prefix: u8,
}

impl Network {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, prefix): (IpAddr, u8) = (address.parse().ok()?, prefix.parse().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if prefix > bits {
            return None;
        }
        // `::ffff:a.b.c.d/(96 + k)` means `a.b.c.d/k`.
        let (address, prefix) = match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(mapped)) if prefix >= 96 => (mapped.into(), prefix - 96),
            _ => (address, prefix),
        };
        let address = truncated(address, prefix);
        Some(Self { address, prefix })
    }

    fn contains(self, address: IpAddr) -> bool {
        let same_family = self.address.is_ipv4() == address.is_ipv4();
        same_family && truncated(address, self.prefix) == self.address
    }

    /// True when some client is in both.
    pub(super) fn meets(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }

    /// True when every client of `other` is in this one.
    pub(super) fn covers(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }
}

fn truncated(address: IpAddr, prefix: u8) -> IpAddr {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - prefix).unwrap_or(0);
            IpAddr::V4((ip.to_bits() & mask).into())
        }
        IpAddr::V6(ip) => {
            let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or(0);
            IpAddr::V6((ip.to_bits() & mask).into())
        }
    }
}

/// Prefix length of a selector, for "longest match first".
pub(super) fn prefix_length(selector: &AdvertisedAddress) -> u8 {
    Network::parse(&selector.client_cidr).map_or(0, |network| network.prefix)
}

/// True when `client` lies in the network `cidr`. Families never cross; an IPv4 client mapped into
/// IPv6 counts as IPv4.
pub(super) fn cidr_contains(cidr: &str, client: IpAddr) -> bool {
    Network::parse(cidr).is_some_and(|network| network.contains(client.to_canonical()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_host_names() {
        let good = [
            "10.0.0.1",
            "::1",
            "[::1]",
            "Node-1.example",
            "a",
            "1.2.3.example",
        ];
        for address in good {
            assert!(is_valid(address), "{address}");
        }
        let long = "a".repeat(64);
        let bad = [
            "",
            "1.2.3",
            "1.2.3.4:80",
            "a.",
            "-a",
            "a_b",
            "[10.0.0.1]",
            &long,
            "a..b",
        ];
        for address in bad {
            assert!(!is_valid(address), "{address}");
        }
        assert_eq!(canonical("[2001:DB8::1]"), "2001:db8::1");
        assert_eq!(canonical("Node.Example"), "node.example");
    }

    #[test]
    fn networks_have_one_form() {
        let network = |text| Network::parse(text);
        assert_eq!(network("10.1.2.3/8"), network("10.0.0.0/8"));
        assert_eq!(network("::ffff:10.1.2.3/104"), network("10.0.0.0/8"));
        for wrong in ["10.0.0.0", "10.0.0.0/33", "::/129", "x/8", "10.0.0.0/-1"] {
            assert_eq!(network(wrong), None, "{wrong}");
        }
        let (wide, narrow) = (
            network("10.0.0.0/8").unwrap(),
            network("10.1.0.0/16").unwrap(),
        );
        assert!(wide.meets(narrow) && narrow.meets(wide));
        assert!(wide.covers(narrow) && !narrow.covers(wide));
        assert!(!wide.meets(network("::/0").unwrap()));
        assert!(cidr_contains(
            "0.0.0.0/0",
            "::ffff:1.2.3.4".parse().unwrap()
        ));
    }
}
