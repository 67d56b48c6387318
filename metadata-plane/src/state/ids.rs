//! Allocation of the small numeric ids that metadata hands out.

use std::collections::BTreeMap;

/// The lowest number that is no key of `map`.
///
/// Depends on the set of keys alone, never on the order of deletions, so that a replica
/// restored from a snapshot hands out the same id (protocol specification, chapter 05,
/// section 4.1). A map without gaps is answered without a scan.
pub(crate) fn lowest_free<T>(map: &BTreeMap<u32, T>) -> u32 {
    let Some(last) = map.keys().next_back() else {
        return 0;
    };
    let count = u32::try_from(map.len()).unwrap_or(u32::MAX);
    if count.checked_sub(1) == Some(*last) {
        return count;
    }
    let mut free = 0;
    for key in map.keys() {
        if *key != free {
            break;
        }
        free += 1;
    }
    free
}

#[cfg(test)]
mod tests {
    use super::lowest_free;
    use std::collections::BTreeMap;

    #[test]
    fn gaps_are_filled_from_below() {
        let mut map: BTreeMap<u32, ()> = BTreeMap::new();
        assert_eq!(lowest_free(&map), 0);
        map.insert(0, ());
        map.insert(1, ());
        map.insert(2, ());
        assert_eq!(lowest_free(&map), 3);
        map.remove(&1);
        assert_eq!(lowest_free(&map), 1);
        map.remove(&0);
        assert_eq!(lowest_free(&map), 0);
        map.insert(u32::MAX, ());
        map.insert(0, ());
        assert_eq!(lowest_free(&map), 1);
    }
}
