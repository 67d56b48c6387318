//! Every plan that is kept ends as it says: what was found once is not found again.

use biplane_simulator::plan::{Fit, Plan};
use biplane_simulator::report;

#[test]
fn every_plan_ends_as_it_says() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/plans");
    let mut misfits = Vec::new();
    let mut count = 0;
    for entry in std::fs::read_dir(folder).expect("the folder of plans") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a readable plan");
        let plan = Plan::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (outcome, fit) = plan.replay(false).expect("settings that fit");
        count += 1;
        if let Fit::Differs(_) = fit {
            let line = report::verdict_line(&outcome);
            misfits.push(format!("{}: {line}", path.display()));
        }
    }
    assert!(count > 0, "there are plans");
    assert!(misfits.is_empty(), "{}", misfits.join("\n"));
}
