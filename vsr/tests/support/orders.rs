//! Orders of a few things, for what must not depend on them.

/// Every order of `count` things.
pub fn orders(count: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for next in 0..count {
        let longer = all.iter().flat_map(|order: &Vec<usize>| {
            (0..=order.len()).map(move |place| {
                let mut order = order.clone();
                order.insert(place, next);
                order
            })
        });
        all = longer.collect();
    }
    all
}
